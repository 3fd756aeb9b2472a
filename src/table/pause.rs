//! A site that is paused: new requests wait until it is resumed, for as long as they may, and then get a 503.

use std::sync::{Arc, OnceLock};
use std::time::Duration;

use tokio::sync::watch;

/// What a paused site does with new requests.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Paused {
    /// What those are told that have waited in vain; `None` for a sentence of our own.
    pub message: Option<Box<str>>,
    /// How long each waits.
    pub wait: Duration,
}

/// Whether a site is paused. Made when it first is: most never are.
#[derive(Debug, Default)]
pub struct Pause(OnceLock<Box<Switch>>);

type Switch = watch::Sender<Option<Arc<Paused>>>;

impl Pause {
    /// How it is paused now, if it is.
    pub fn now(&self) -> Option<Arc<Paused>> {
        self.0.get()?.borrow().clone()
    }

    /// Pauses it, or resumes it and wakes all who wait. Gives how it was.
    pub fn set(&self, paused: Option<Paused>) -> Option<Arc<Paused>> {
        match (self.0.get(), paused) {
            (None, None) => None,
            (_, paused) => self.0.get_or_init(Box::default).send_replace(paused.map(Arc::new)),
        }
    }

    /// Waits until it is not paused any more.
    pub(crate) async fn over(&self) {
        if let Some(switch) = self.0.get() {
            // An error is a sender that is gone, which is ours.
            let _ = switch.subscribe().wait_for(Option::is_none).await;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_paused_until_it_is_resumed() {
        let pause = Pause::default();
        assert!(pause.now().is_none() && pause.set(None).is_none());
        let paused = Paused { message: None, wait: Duration::from_secs(1) };
        assert!(pause.set(Some(paused.clone())).is_none());
        assert_eq!(pause.now().as_deref(), Some(&paused));
        assert_eq!(pause.set(None).as_deref(), Some(&paused));
        assert!(pause.now().is_none());
    }
}
