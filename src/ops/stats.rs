//! What requests come to, added up: how many of which site and instance ended how, how long they took, how much they carried.
//!
//! Each worker adds up in memory of its own and hands over ten times a second: a request costs a look-up and some additions.
//! Who wants to know reads what has been handed over. Bounded whatever clients and tables do: sites are told by the routes that
//! cover requests, never by a `Host`, and those that are too many are one, called `other`.

mod sums;

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use hashbrown::{HashMap, HashSet};

use crate::record::{Log, Observe, Record, Side};
use crate::table::{Action, Table};

pub(super) use sums::seconds;
pub use sums::{BOUNDS, CLASSES, Histogram, Pair, Site};
use sums::{Class, OTHER};

/// Sites that are told apart.
pub const MOST_SITES: usize = 1_000;

/// Pairs of a site and an instance that are told apart.
pub const MOST_PAIRS: usize = 4_000;

/// How long something is told of that the routes don't name any more: long enough for everybody to read its last numbers.
const GONE: Duration = Duration::from_secs(5 * 60);

/// So often nothing was to be handed over for a site or an instance that the worker forgets it: a minute of them.
const QUIET: u16 = 600;

/// What requests come to: an observer, and what it has seen.
#[derive(Clone, Debug, Default)]
pub struct Stats(Arc<Shared>);

#[derive(Debug, Default)]
struct Shared {
    /// Workers add to it ten times a second, at other moments, for some microseconds; who reads takes a copy. A number for
    /// itself each would be thousands of atomics.
    totals: Mutex<Totals>,
}

/// All that has been added up.
#[derive(Clone, Debug, Default)]
pub struct Totals {
    /// By the routes' names; empty for what no route covers.
    pub sites: HashMap<String, Site>,
    /// How often each thing went wrong, by its reason code.
    pub reasons: BTreeMap<&'static str, u64>,
    /// Who has closed connections: `client`, `backend`, `carom`.
    pub closed: [(&'static str, u64); 3],
    pairs: usize,
}

/// What one worker has not handed over yet.
struct Counting {
    to: Stats,
    sites: HashMap<String, Local>,
    rest: Rest,
}

/// One worker's numbers of a site.
#[derive(Default)]
struct Local {
    site: Site,
    /// By what the backend is numbered by; its name is written once. Few: a look through them is quicker than a hash.
    pairs: Vec<(Option<u64>, Box<str>, Pair)>,
    quiet: u16,
}

/// What belongs to no site.
#[derive(Default)]
struct Rest {
    reasons: Vec<(&'static str, u64)>,
    closed: [u64; 3],
}

impl Stats {
    /// Nothing yet.
    pub fn new() -> Self {
        Self::default()
    }

    /// What there is now.
    pub fn totals(&self) -> Totals {
        self.lock().clone()
    }

    /// What there is now of one site, by the routes' name for it.
    pub fn site(&self, name: &str) -> Site {
        self.lock().sites.get(name).cloned().unwrap_or_default()
    }

    /// Forgets what this table has not named for some minutes.
    pub fn forget(&self, table: &Table, now: Instant) {
        let known: HashSet<String> = self.lock().sites.keys().cloned().collect();
        // Tables are large, and workers must not wait for this.
        let mut named: HashMap<&str, Vec<String>> = HashMap::new();
        for route in table.routes().iter().filter(|route| known.contains(&*route.name)) {
            let instances = match &route.action {
                Action::Forward(site) | Action::PassThrough(site) => site.instances(),
                Action::Redirect(_) | Action::Respond(_) => &[],
            };
            named.insert(&route.name, instances.iter().map(|instance| instance.backend.to_string()).collect());
        }
        let mut totals = self.lock();
        totals.sites.retain(|name, site| {
            let instances = named.get(name.as_str());
            site.pairs.retain(|backend, pair| {
                let is_named = instances.is_some_and(|all| all.contains(backend));
                stays(&mut pair.gone, is_named || is_ours(backend), now)
            });
            stays(&mut site.gone, instances.is_some() || is_ours(name), now)
        });
        totals.pairs = totals.sites.values().map(|site| site.pairs.len()).sum();
    }

    fn lock(&self) -> MutexGuard<'_, Totals> {
        // Nothing that is done under it can panic half way.
        self.0.totals.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Whether it is told of still: it is named, or has not been long gone.
fn stays(gone: &mut Option<Instant>, is_named: bool, now: Instant) -> bool {
    if is_named {
        *gone = None;
        return true;
    }
    now.saturating_duration_since(*gone.get_or_insert(now)) < GONE
}

/// Whether no table has to name it.
fn is_ours(name: &str) -> bool {
    name.is_empty() || name == OTHER
}

impl Observe for Stats {
    fn for_worker(&self) -> Box<dyn Log> {
        Box::new(Counting { to: self.clone(), sites: HashMap::new(), rest: Rest::default() })
    }
}

impl Log for Counting {
    fn request(&mut self, record: &Record<'_>) {
        let name = record.route.unwrap_or_default();
        let is_told = self.sites.len() < MOST_SITES || self.sites.contains_key(name);
        let local = self.sites.entry_ref(if is_told { name } else { OTHER }).or_default();
        local.quiet = 0;
        local.count(record);
        self.rest.count(record);
    }

    fn flush(&mut self) {
        if self.sites.is_empty() {
            return;
        }
        let mut totals = self.to.lock();
        self.sites.retain(|name, local| {
            if local.quiet == 0 {
                totals.take(name, local);
            }
            local.quiet += 1;
            local.quiet < QUIET
        });
        totals.take_rest(&mut self.rest);
    }
}

impl Local {
    fn count(&mut self, record: &Record<'_>) {
        self.site.received += record.received;
        self.site.sent += record.sent;
        self.site.retries += u64::from(record.tries.saturating_sub(1));
        let class = Class::of(record);
        if class.is_answered() {
            self.site.durations.add(record.total);
        }
        let pair = self.pair(record);
        pair.requests[class as usize] += 1;
        if let Some(first_byte) = record.first_byte.filter(|_| record.backend.is_some()) {
            pair.durations.add(first_byte.saturating_sub(record.head));
        }
    }

    fn pair(&mut self, record: &Record<'_>) -> &mut Pair {
        let id = record.backend.map(|backend| backend.id());
        let found = self.pairs.iter().position(|(other, ..)| *other == id);
        let at = match found {
            Some(at) => at,
            None => {
                let many = self.pairs.len() >= MOST_PAIRS;
                let name = record.backend.map(ToString::to_string).unwrap_or_default();
                let (id, name) = if many { (Some(0), OTHER.to_owned()) } else { (id, name) };
                let at = self.pairs.iter().position(|(other, ..)| *other == id);
                at.unwrap_or_else(|| {
                    self.pairs.push((id, name.into(), Pair::default()));
                    self.pairs.len() - 1
                })
            }
        };
        &mut self.pairs[at].2
    }
}

impl Rest {
    fn count(&mut self, record: &Record<'_>) {
        if let Some(side) = record.closed {
            self.closed[side as usize] += 1;
        }
        let Some((reason, _)) = record.reason else { return };
        match self.reasons.iter_mut().find(|(other, _)| *other == reason) {
            Some((_, count)) => *count += 1,
            None => self.reasons.push((reason, 1)),
        }
    }
}

impl Totals {
    /// Takes over what a worker has counted of a site.
    fn take(&mut self, name: &str, local: &mut Local) {
        let known = self.sites.contains_key(name);
        let name = if known || self.sites.len() < MOST_SITES { name } else { OTHER };
        let site = self.sites.entry_ref(name).or_default();
        site.absorb(&mut local.site);
        for (_, backend, pair) in &mut local.pairs {
            if pair.is_empty() {
                continue;
            }
            let known = site.pairs.contains_key(&**backend);
            let backend = if known || self.pairs < MOST_PAIRS { &**backend } else { OTHER };
            self.pairs += usize::from(!site.pairs.contains_key(backend));
            site.pairs.entry_ref(backend).or_default().absorb(pair);
        }
        // Backends come and go; those that are there count again at once.
        if local.pairs.len() > MOST_REMEMBERED {
            local.pairs.clear();
        }
    }

    fn take_rest(&mut self, rest: &mut Rest) {
        for (reason, count) in rest.reasons.drain(..) {
            *self.reasons.entry(reason).or_default() += count;
        }
        for (side, count) in [Side::Client, Side::Backend, Side::Proxy].into_iter().zip(&mut rest.closed) {
            let (name, sum) = &mut self.closed[side as usize];
            *name = side.name();
            *sum += std::mem::take(count);
        }
    }
}

/// Backends of one site that a worker remembers the names of.
const MOST_REMEMBERED: usize = 256;

#[cfg(test)]
#[path = "stats/tests.rs"]
mod tests;
