//! Requests that wait for an instance of their site: in the order in which they came, and woken when there is room.
//!
//! Only who is first looks for an instance, so that nobody overtakes him; who it is, a fair semaphore knows. What he waits
//! for happens to backends, which several sites may have in common: each has a list of those who want to hear of it.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::{Notify, Semaphore, SemaphorePermit};

use super::duty::Waiting;
use super::site::{Instance, Site};

/// Who waits for one site.
#[derive(Debug)]
pub(super) struct Queue {
    /// Who has its one permit is first.
    first: Semaphore,
    /// Told when one of its instances has been given a request less.
    room: Arc<Notify>,
}

/// A place among those who wait; given up when dropped.
#[derive(Debug)]
pub(crate) struct Place<'a> {
    site: &'a Site,
    _counted: Waiting<'a>,
}

/// The place of who is first. Whoever comes behind is first when it is dropped.
#[derive(Debug)]
pub(crate) struct Turn<'a> {
    // Dropped in this order: who is next listens anew, and looks after that.
    listening: Listening<'a>,
    _first: Option<SemaphorePermit<'a>>,
}

/// Hears of the site's instances; no more when dropped.
#[derive(Debug)]
struct Listening<'a>(&'a Site);

/// Those who want to hear when a backend has room.
#[derive(Debug, Default)]
pub(super) struct Listeners {
    /// How many there are, so that a backend for which nobody waits costs no more than a look at it.
    count: AtomicUsize,
    /// A lock, since a list has to be walked while others join; it is taken only where requests wait.
    all: Mutex<Vec<Arc<Notify>>>,
}

impl Default for Queue {
    fn default() -> Self {
        Self { first: Semaphore::new(1), room: Arc::default() }
    }
}

impl Queue {
    /// Whether nobody waits.
    pub(super) fn is_empty(&self) -> bool {
        self.first.available_permits() > 0
    }
}

impl<'a> Place<'a> {
    pub(super) fn new(site: &'a Site, counted: Waiting<'a>) -> Self {
        Self { site, _counted: counted }
    }

    /// Waits until all who came before have gone.
    pub(crate) async fn turn(&self) -> Turn<'a> {
        let site = self.site;
        // It is never closed; if it were, nobody would have to wait for it.
        let first = site.waiters().first.acquire().await.ok();
        Turn { listening: Listening::to(site), _first: first }
    }
}

impl Turn<'_> {
    /// Waits until an instance may have room, since the turn began or since this was last asked. It may be for nothing.
    pub(crate) async fn room(&self) {
        self.listening.0.waiters().room.notified().await;
    }
}

impl<'a> Listening<'a> {
    fn to(site: &'a Site) -> Self {
        let listening = Self(site);
        for listeners in listening.bounded() {
            listeners.lock().push(Arc::clone(&site.waiters().room));
            // Before the instances are looked at: a claim that is given back after that is heard of.
            listeners.count.fetch_add(1, Ordering::SeqCst);
        }
        listening
    }

    fn bounded(&self) -> impl Iterator<Item = &'a Listeners> {
        let bounded = |instance: &&Instance| instance.max_connections.is_some();
        self.0.instances().iter().filter(bounded).map(|instance| instance.backend.listeners())
    }
}

impl Drop for Listening<'_> {
    fn drop(&mut self) {
        for listeners in self.bounded() {
            let mut all = listeners.lock();
            if let Some(at) = all.iter().position(|other| Arc::ptr_eq(other, &self.0.waiters().room)) {
                all.swap_remove(at);
            }
            listeners.count.fetch_sub(1, Ordering::SeqCst);
        }
    }
}

impl Listeners {
    /// There is room for one more.
    pub(super) fn tell(&self) {
        if self.count.load(Ordering::SeqCst) > 0 {
            // One that doesn't wait at this moment hears of it when he does.
            self.lock().iter().for_each(|listener| listener.notify_one());
        }
    }

    fn lock(&self) -> MutexGuard<'_, Vec<Arc<Notify>>> {
        // Nothing that is done under it can panic half way.
        self.all.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::table::backend::{Address, Backend, Claim};
    use crate::table::site::{Pick, Rules, Tried};
    use std::pin::pin;
    use std::task::{Context, Poll, Waker};

    fn bounded(backend: &Arc<Backend>, most: u32) -> Site {
        let instance = Instance { max_connections: Some(most), ..Instance::new(Arc::clone(backend)) };
        Site::new(vec![instance], Rules::default())
    }

    fn claim(site: &Site) -> Option<Claim> {
        match site.pick(&mut Tried::default(), 0, 0) {
            Pick::One(claim) => Some(claim),
            Pick::Busy | Pick::None => None,
        }
    }

    fn now<T>(future: impl Future<Output = T>) -> Option<T> {
        match pin!(future).poll(&mut Context::from_waker(Waker::noop())) {
            Poll::Ready(value) => Some(value),
            Poll::Pending => None,
        }
    }

    #[test]
    fn who_came_first_is_first_and_hears_of_room_that_another_sites_request_has_left() {
        let backend = Backend::new(Address::Port(8001));
        let (site, other) = (bounded(&backend, 1), bounded(&backend, 1));
        let held = claim(&other).expect("there is room");
        assert!(claim(&site).is_none() && site.has_nobody_waiting());
        let place = site.queue(2).expect("a place");
        let turn = now(place.turn()).expect("nobody is before him");
        assert!(!site.has_nobody_waiting());
        let behind = site.queue(2).expect("a place");
        assert!(site.queue(2).is_none(), "two may wait");
        let mut next = Box::pin(behind.turn());
        assert!(now(next.as_mut()).is_none());
        assert!(now(turn.room()).is_none());
        drop(held);
        assert!(now(turn.room()).is_some());
        let held = claim(&site).expect("there is room");
        drop(turn);
        let turn = now(next.as_mut()).expect("nobody is before him any more");
        assert!(claim(&site).is_none());
        drop(held);
        assert!(now(turn.room()).is_some() && claim(&site).is_some());
        drop(turn);
        assert!(site.has_nobody_waiting());
        drop(next);
        drop((place, behind));
        assert_eq!(site.lasting().waiting(), 0);
    }

    #[test]
    fn a_backend_never_has_more_than_it_may_whatever_the_threads() {
        let backend = Backend::new(Address::Port(8001));
        let site = bounded(&backend, 3);
        let most = AtomicUsize::new(0);
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    for _ in 0..2_000 {
                        if let Some(_claim) = claim(&site) {
                            most.fetch_max(backend.in_flight(), Ordering::SeqCst);
                        }
                    }
                });
            }
        });
        let most = most.into_inner();
        assert!((1..=3).contains(&most), "{most} at once");
        assert_eq!(backend.in_flight(), 0);
    }
}
