//! The addresses of a backend that is given by a name.
//!
//! Nothing is looked up here. Who does ([`ops::names`](crate::ops::names)) leaves here what it has found, and whoever
//! connects takes it from here, so that no request waits for the DNS once a name has been known.

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use tokio::sync::watch;

/// For how long an address that could not be connected to is tried last, in milliseconds.
const AVOIDED: u64 = 10_000;

/// What is known of a name.
#[derive(Debug)]
pub(crate) struct Named {
    state: watch::Sender<State>,
    /// Another one whenever addresses have come or gone.
    generation: AtomicU64,
}

#[derive(Clone, Debug)]
enum State {
    /// Nobody looks it up but those who connect.
    Alone,
    /// Somebody does, and has no answer yet.
    Asked,
    /// What was found last; empty where nothing ever was.
    Found(Arc<Addresses>),
}

/// All addresses of a name.
#[derive(Debug, Default)]
pub(crate) struct Addresses {
    places: Box<[Place]>,
    turn: AtomicUsize,
}

/// One of them.
#[derive(Debug)]
pub(crate) struct Place {
    pub(crate) address: SocketAddr,
    /// Connecting to it has failed: until then, others are tried first.
    avoided_until: AtomicU64,
}

/// What has changed.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Moved {
    pub(crate) came: Vec<IpAddr>,
    pub(crate) went: Vec<IpAddr>,
}

impl Named {
    pub(crate) fn new() -> Self {
        Self { state: watch::Sender::new(State::Alone), generation: AtomicU64::new(0) }
    }

    /// Somebody looks it up from now on: those who connect wait for the first answer.
    pub(crate) fn ask(&self) {
        self.state.send_if_modified(|state| {
            let alone = matches!(state, State::Alone);
            if alone {
                *state = State::Asked;
            }
            alone
        });
    }

    /// It has these addresses.
    pub(crate) fn found(&self, found: &[IpAddr], port: u16) -> Option<Moved> {
        let mut moved = None;
        self.state.send_if_modified(|state| {
            let known = match state {
                State::Found(known) => Arc::clone(known),
                State::Alone | State::Asked => Arc::default(),
            };
            let came: Vec<_> = found.iter().copied().filter(|ip| !known.has(*ip)).collect();
            let went = known.places.iter().map(|place| place.address.ip()).filter(|ip| !found.contains(ip)).collect();
            let change = Moved { came, went };
            if change.came.is_empty() && change.went.is_empty() {
                return false;
            }
            *state = State::Found(Arc::new(known.become_these(found, port)));
            moved = Some(change);
            true
        });
        if moved.is_some() {
            self.generation.fetch_add(1, Ordering::Release);
        }
        moved
    }

    /// Nothing was found. What was known before stays.
    pub(crate) fn found_nothing(&self) {
        self.state.send_if_modified(|state| {
            let first = !matches!(state, State::Found(_));
            if first {
                *state = State::Found(Arc::default());
            }
            first
        });
    }

    /// All that is known, once there is an answer; `None` where nobody looks it up.
    pub(crate) async fn known(&self) -> Option<Arc<Addresses>> {
        let mut states = self.state.subscribe();
        let state = states.wait_for(|state| !matches!(state, State::Asked)).await.ok()?;
        match &*state {
            State::Found(addresses) => Some(Arc::clone(addresses)),
            State::Alone | State::Asked => None,
        }
    }

    /// What was found last, so far; `None` where nobody looks it up.
    pub(crate) fn addresses(&self) -> Option<Vec<IpAddr>> {
        match &*self.state.borrow() {
            State::Found(addresses) => Some(addresses.places.iter().map(|place| place.address.ip()).collect()),
            State::Asked => Some(Vec::new()),
            State::Alone => None,
        }
    }

    pub(crate) fn generation(&self) -> u64 {
        self.generation.load(Ordering::Acquire)
    }

    /// Whether it is one of its addresses, as far as they are known.
    pub(crate) fn has(&self, ip: IpAddr) -> bool {
        match &*self.state.borrow() {
            State::Found(addresses) => addresses.has(ip),
            State::Alone | State::Asked => true,
        }
    }
}

impl Addresses {
    /// Those that are there now; of those that were before, what is known stays.
    fn become_these(&self, found: &[IpAddr], port: u16) -> Self {
        let place = |ip: &IpAddr| {
            let before = self.places.iter().find(|place| place.address.ip() == *ip);
            let avoided_until = before.map_or(0, |place| place.avoided_until.load(Ordering::Relaxed)).into();
            Place { address: SocketAddr::new(*ip, port), avoided_until }
        };
        let places = found.iter().map(place).collect();
        Self { places, turn: self.turn.load(Ordering::Relaxed).into() }
    }

    fn has(&self, ip: IpAddr) -> bool {
        self.places.iter().any(|place| place.address.ip() == ip)
    }

    /// All in the order in which they are to be tried: another one first each time, those that have failed last.
    pub(crate) fn in_turn(&self, now: u64) -> Vec<&Place> {
        let turn = self.turn.fetch_add(1, Ordering::Relaxed);
        let first = turn.checked_rem(self.places.len()).unwrap_or(0);
        let (behind, ahead) = self.places.split_at(first);
        let mut all: Vec<_> = ahead.iter().chain(behind).collect();
        all.sort_by_key(|place| place.avoided_until.load(Ordering::Relaxed) > now);
        all
    }
}

impl Place {
    pub(crate) fn failed(&self, now: u64) {
        self.avoided_until.store(now.saturating_add(AVOIDED), Ordering::Relaxed);
    }

    pub(crate) fn connected(&self) {
        self.avoided_until.store(0, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ips(last: &[u8]) -> Vec<IpAddr> {
        last.iter().map(|last| IpAddr::from([10, 0, 0, *last])).collect()
    }

    fn known(named: &Named) -> Arc<Addresses> {
        match &*named.state.borrow() {
            State::Found(addresses) => Arc::clone(addresses),
            other => panic!("{other:?}"),
        }
    }

    fn order(addresses: &Addresses, now: u64) -> Vec<IpAddr> {
        addresses.in_turn(now).iter().map(|place| place.address.ip()).collect()
    }

    #[test]
    fn another_address_is_first_each_time_and_those_that_failed_are_last_for_a_while() {
        let named = Named::new();
        assert_eq!(named.found(&ips(&[1, 2, 3]), 80), Some(Moved { came: ips(&[1, 2, 3]), went: vec![] }));
        let all = known(&named);
        assert_eq!((order(&all, 5), order(&all, 5)), (ips(&[1, 2, 3]), ips(&[2, 3, 1])));
        all.places[0].failed(5);
        assert_eq!((order(&all, 6), order(&all, 6)), (ips(&[3, 2, 1]), ips(&[2, 3, 1])));
        assert_eq!(order(&all, 6), ips(&[2, 3, 1]), "its turn, and yet it is last");
        assert_eq!(order(&all, 5 + AVOIDED), ips(&[3, 1, 2]));
        all.places[2].failed(7);
        all.places[2].connected();
        assert_eq!(order(&all, 8), ips(&[2, 3, 1]));
    }

    #[test]
    fn only_what_comes_or_goes_is_a_change_and_failing_is_none() {
        let named = Named::new();
        named.found_nothing();
        assert_eq!((named.generation(), order(&known(&named), 0)), (0, vec![]));
        named.found(&ips(&[1, 2]), 80);
        assert_eq!(named.generation(), 1);
        assert_eq!(named.found(&ips(&[2, 1]), 80), None);
        named.found_nothing();
        assert_eq!((named.generation(), known(&named).places.len()), (1, 2));
        known(&named).places[1].failed(0);
        assert_eq!(named.found(&ips(&[3, 2]), 80), Some(Moved { came: ips(&[3]), went: ips(&[1]) }));
        assert!(named.has(ips(&[3])[0]) && !named.has(ips(&[1])[0]));
        assert_eq!(order(&known(&named), 1), ips(&[3, 2]), "the second is still known to fail");
    }
}
