//! A thread with a runtime of its own, for what goes on beside the requests.

use std::io;
use std::thread::JoinHandle;

use tokio::sync::oneshot;

/// Stops when dropped.
#[derive(Debug)]
pub(super) struct OwnThread {
    stop: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl OwnThread {
    /// Begins what `begin` gives, on a thread of this name.
    pub(super) fn start<F: Future<Output = ()>>(
        name: &str,
        begin: impl FnOnce() -> F + Send + 'static,
    ) -> io::Result<Self> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let (stop, stopped) = oneshot::channel();
        let thread = std::thread::Builder::new().name(name.into()).spawn(move || {
            let local = tokio::task::LocalSet::new();
            local.block_on(&runtime, async {
                tokio::select! {
                    () = begin() => {}
                    _ = stopped => {}
                }
            });
            drop(local);
            // The system's resolver may be at it for many seconds more, and nobody wants to hear of it.
            runtime.shutdown_background();
        })?;
        Ok(Self { stop: Some(stop), thread: Some(thread) })
    }
}

impl Drop for OwnThread {
    fn drop(&mut self) {
        self.stop.take();
        if let Some(thread) = self.thread.take() {
            // A thread that has panicked has said so.
            let _ = thread.join();
        }
    }
}
