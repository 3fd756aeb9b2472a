//! The library as a user of it runs it: a proxy inside this process, on a thread of its own.

use std::net::SocketAddr;
use std::thread::JoinHandle;

use carom::proxy::Builder;
use carom::settings::Settings;
use carom::{Decide, Proxy};
use tokio::sync::oneshot;

use super::Client;

/// A proxy that runs until it is dropped.
pub struct Inside {
    address: SocketAddr,
    stop: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Inside {
    /// One that decides like this, on two workers.
    pub fn deciding(decide: impl Decide) -> Self {
        Self::with(Settings::default(), decide)
    }

    pub fn with(settings: Settings, decide: impl Decide) -> Self {
        Self::running(Proxy::builder().listen("127.0.0.1:0").settings(settings).decide(decide))
    }

    /// One that is built like this, on two workers.
    pub fn running(builder: Builder) -> Self {
        let (stop, stopped) = oneshot::channel::<()>();
        let (bound, address) = std::sync::mpsc::channel();
        let thread = std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
            runtime.block_on(async {
                let proxy = builder.workers(2).bind().await.unwrap();
                bound.send(proxy.addresses()[0]).unwrap();
                let shutdown = async {
                    let _ = stopped.await;
                };
                proxy.run_until(shutdown).await.unwrap();
            });
        });
        Self { address: address.recv().unwrap(), stop: Some(stop), thread: Some(thread) }
    }

    pub fn address(&self) -> SocketAddr {
        self.address
    }

    pub fn client(&self) -> Client {
        Client::connect(self.address)
    }
}

impl Drop for Inside {
    fn drop(&mut self) {
        drop(self.stop.take());
        if let Some(thread) = self.thread.take() {
            assert!(thread.join().is_ok() || std::thread::panicking(), "the proxy's thread panicked");
        }
    }
}
