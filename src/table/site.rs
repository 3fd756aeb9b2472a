//! A site: one or more instances that serve the same thing, in turn.

use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::AtomicUsize;
use std::time::Duration;

use super::arrival;
use super::backend::{Backend, Claim};
use super::balance::{self, Balance};
use super::duty::{Duty, Lasting};
use super::health::Health;
use super::queue::{Place, Queue};
use super::retries::Retries;
use super::sticky::{Sticky, Tokens};
use crate::http::head::Head;
use crate::settings::StickyKey;

use choose::{Choice, Group, round_of};

mod choose;

/// The most that one instance may weigh against another.
pub const HEAVIEST: u16 = 256;

/// How long a request waits for an instance that has room, where the site doesn't say.
pub const BUSY: Duration = Duration::from_secs(10);

/// The most instances of one site: a tried one is a bit in a word.
pub const MOST_INSTANCES: usize = 64;

/// The instances of a site and whose turn it is.
#[derive(Debug)]
pub struct Site {
    instances: Vec<Instance>,
    /// One round of turns, as indices of `instances`, each as often as it weighs and spread evenly.
    round: Vec<u8>,
    /// Shared by all workers, so that turns are exact whatever worker a request lands on.
    next: AtomicUsize,
    /// Each instance's address as [`balance::hash`] has it.
    hashes: Vec<u64>,
    regular: Group,
    backup: Group,
    /// An instance may be full.
    bounded: bool,
    tokens: Tokens,
    queue: Queue,
    rules: Rules,
    lasting: Arc<Lasting>,
}

/// How a site goes about its requests.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Rules {
    /// How the instance is chosen.
    pub balance: Balance,
    /// How long a request waits while no instance can be reached; zero for not at all. Where all are full it waits for as
    /// long, or for [`BUSY`] where this is zero.
    pub wait: Duration,
    /// For how long an instance that has just come gets less than its share; zero for not at all.
    pub slow_start: Duration,
    /// When a request is tried again that may have reached an instance; `None` for never.
    pub retries: Option<Arc<Retries>>,
}

/// One instance of a site.
#[derive(Clone, Debug)]
pub struct Instance {
    /// Where it is.
    pub backend: Arc<Backend>,
    /// Its share of the turns, 1 to [`HEAVIEST`].
    pub weight: u16,
    /// Serves only when no other instance can.
    pub backup: bool,
    /// The most requests and tunnels that may be with its backend for one more to go there, by whichever site they came.
    pub max_connections: Option<u32>,
    /// Whether it is up, where it is checked.
    pub health: Option<Arc<Health>>,
    /// What an operator has asked of it.
    pub duty: Arc<Duty>,
}

/// What has become of a pick.
#[derive(Debug)]
pub(crate) enum Pick {
    /// To the one with whom it is counted now.
    One(Claim),
    /// Nobody now: who could serve it is full.
    Busy,
    /// Nobody is left.
    None,
}

/// Which instances a request has already tried.
#[derive(Clone, Copy, Debug, Default)]
pub struct Tried(u64);

impl Site {
    /// A site of these instances: 1 to [`MOST_INSTANCES`], weights 1 to [`HEAVIEST`]; what is over is cut off.
    pub fn new(mut instances: Vec<Instance>, rules: Rules) -> Self {
        instances.truncate(MOST_INSTANCES);
        for instance in &mut instances {
            instance.weight = instance.weight.clamp(1, HEAVIEST);
        }
        let round = round_of(&instances);
        let hashes = instances.iter().map(|i| balance::hash(i.backend.to_string().as_bytes())).collect();
        let regular = Group::of(&instances, |instance| !instance.backup);
        let backup = Group::of(&instances, |instance| instance.backup);
        let bounded = instances.iter().any(|instance| instance.max_connections.is_some());
        Self {
            instances,
            round,
            next: AtomicUsize::new(0),
            hashes,
            regular,
            backup,
            bounded,
            tokens: Tokens::default(),
            queue: Queue::default(),
            rules,
            lasting: Arc::default(),
        }
    }

    /// The same site as before, with other instances or rules.
    #[must_use]
    pub fn instead_of(mut self, before: &Self) -> Self {
        self.lasting = Arc::clone(&before.lasting);
        for instance in &mut self.instances {
            let same = before.instances.iter().find(|other| Arc::ptr_eq(&other.backend, &instance.backend));
            match same {
                Some(same) => instance.duty = Arc::clone(&same.duty),
                None => instance.duty.arrival().comes(),
            }
        }
        self
    }

    /// How it goes about its requests.
    pub fn rules(&self) -> &Rules {
        &self.rules
    }

    /// What of it outlives a save.
    pub fn lasting(&self) -> &Lasting {
        &self.lasting
    }

    /// A place among those who wait; `None` when that many do already.
    pub(crate) fn queue(&self, most: usize) -> Option<Place<'_>> {
        Some(Place::new(self, self.lasting.queue(most)?))
    }

    /// Whether a request that comes now overtakes none that waits.
    pub(crate) fn has_nobody_waiting(&self) -> bool {
        self.queue.is_empty()
    }

    pub(super) fn waiters(&self) -> &Queue {
        &self.queue
    }

    /// Whether an instance may be full.
    pub(crate) fn is_bounded(&self) -> bool {
        self.bounded
    }

    /// Its instances, in the order of the file.
    pub fn instances(&self) -> &[Instance] {
        &self.instances
    }

    /// How it chooses.
    pub fn balance(&self) -> &Balance {
        &self.rules.balance
    }

    /// What a request is chosen by; 0 where it doesn't matter. A connection that is passed through has no head.
    pub(crate) fn key(&self, head: Option<&Head<'_>>, client: IpAddr, signed: &StickyKey) -> u64 {
        match (&self.rules.balance, head) {
            (Balance::Sticky(sticky), Some(head)) => {
                let named = self.tokens.named(sticky, &self.instances, signed, head);
                named.and_then(|index| u64::try_from(index + 1).ok()).unwrap_or(0)
            }
            (balance, head) => balance.key(head, client),
        }
    }

    /// The cookie that makes a session stay with who has claimed it, where it has not come by one that does. `key` is what
    /// [`Site::key`] has made of the request.
    pub(crate) fn session(&self, claim: &Claim, key: u64, signed: &StickyKey, tls: bool) -> Option<Box<str>> {
        let sticky = self.sticky()?;
        let index = self.instances.iter().position(|one| Arc::ptr_eq(&one.backend, claim.backend()))?;
        if u64::try_from(index + 1) == Ok(key) {
            return None;
        }
        self.tokens.cookie(sticky, &self.instances, signed, index, tls)
    }

    /// How its sessions are kept together, where they are.
    pub(crate) fn sticky(&self) -> Option<&Sticky> {
        match &self.rules.balance {
            Balance::Sticky(sticky) => Some(sticky),
            _ => None,
        }
    }

    /// The next instance for a request, claimed and marked as tried. Those that have been put aside by `now` come when nobody
    /// else is left, and backups when no other instance is up; one that is full is up. `key` is what [`Site::key`] makes
    /// of the request.
    pub(crate) fn pick(&self, tried: &mut Tried, key: u64, now: u64) -> Pick {
        let mut full = Group::default();
        loop {
            let chosen = match self.instances.len() {
                1 if tried.0 == 0 && full.is_empty() && !self.instances[0].duty.is_drained() => Choice::One(0),
                _ => self.choose(*tried, full, key, now),
            };
            let index = match chosen {
                Choice::One(index) => index,
                Choice::Busy => return Pick::Busy,
                Choice::None => return Pick::None,
            };
            if !self.instances[index].backend.standing().admits(now) {
                continue;
            }
            if let Some(claim) = self.instances[index].claim() {
                tried.0 |= 1 << index;
                return Pick::One(claim);
            }
            // Full, or others have been faster.
            full = full.with(index);
        }
    }
}

impl Instance {
    /// An instance that nothing is said of.
    pub fn new(backend: Arc<Backend>) -> Self {
        Self { backend, weight: 1, backup: false, max_connections: None, health: None, duty: Arc::default() }
    }

    /// Counts a request as with it, where it is not full.
    fn claim(&self) -> Option<Claim> {
        match self.most() {
            None => Some(self.backend.claim()),
            Some(most) => self.backend.claim_within(most),
        }
    }

    fn most(&self) -> Option<usize> {
        self.max_connections.map(|most| usize::try_from(most).unwrap_or(usize::MAX))
    }

    fn is_full(&self) -> bool {
        self.most().is_some_and(|most| self.backend.has(most))
    }

    /// What it gets of its share, of [`arrival::WHOLE`].
    fn part(&self, now: u64, slow_start: Duration) -> u32 {
        let by_checks = self.health.as_ref().map_or(0, |health| health.came());
        let came = self.duty.arrival().at(now).max(by_checks).max(self.backend.standing().came(now));
        arrival::part(came, now, slow_start)
    }

    fn is_up(&self, now: u64) -> bool {
        self.health.as_ref().is_none_or(|health| health.is_up()) && !self.backend.standing().is_aside(now)
    }
}

impl Tried {
    /// How many instances have been tried.
    pub fn count(self) -> u32 {
        self.0.count_ones()
    }
}

#[cfg(test)]
mod tests;
