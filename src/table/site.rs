//! A site: one or more instances that serve the same thing, in turn.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use super::backend::Backend;

/// The most that one instance may weigh against another.
pub const HEAVIEST: u16 = 256;

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
    balance: Balance,
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
}

/// How the next instance is chosen.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Balance {
    /// In turn, by weight.
    #[default]
    RoundRobin,
    /// The one with the fewest requests in flight for its weight; in turn among equals.
    LeastConnections,
}

/// Which instances a request has already tried.
#[derive(Clone, Copy, Debug, Default)]
pub struct Tried(u64);

impl Site {
    /// A site of these instances: 1 to [`MOST_INSTANCES`], weights 1 to [`HEAVIEST`]; what is over is cut off.
    pub fn new(mut instances: Vec<Instance>, balance: Balance) -> Self {
        instances.truncate(MOST_INSTANCES);
        for instance in &mut instances {
            instance.weight = instance.weight.clamp(1, HEAVIEST);
        }
        let round = round_of(&instances);
        Self { instances, round, next: AtomicUsize::new(0), balance }
    }

    /// Its instances, in the order of the file.
    pub fn instances(&self) -> &[Instance] {
        &self.instances
    }

    /// How it chooses.
    pub fn balance(&self) -> Balance {
        self.balance
    }

    /// The next instance for a request, marked as tried; `None` when every one has been.
    /// Backups come when all others have been tried.
    pub fn pick(&self, tried: &mut Tried) -> Option<&Instance> {
        let index = match self.instances.len() {
            1 if tried.0 == 0 => 0,
            _ => match self.balance {
                Balance::RoundRobin => self.in_turn(*tried),
                Balance::LeastConnections => self.least_busy(*tried),
            }
            .or_else(|| self.backup(*tried))?,
        };
        tried.0 |= 1 << index;
        self.instances.get(index)
    }

    /// The instance that the next request would get, without taking the turn.
    pub fn peek(&self) -> Option<&Instance> {
        match self.round.as_slice() {
            [] => self.instances.first(),
            round => {
                let turn = self.next.load(Ordering::Relaxed) % round.len();
                match self.balance {
                    Balance::RoundRobin => self.instances.get(usize::from(round[turn])),
                    Balance::LeastConnections => self.instances.get(self.least_busy_from(turn, Tried::default())?),
                }
            }
        }
    }

    fn in_turn(&self, tried: Tried) -> Option<usize> {
        let first = self.take_turn()?;
        (0..self.round.len())
            .map(|step| usize::from(self.round[(first + step) % self.round.len()]))
            .find(|&index| !tried.has(index))
    }

    fn least_busy(&self, tried: Tried) -> Option<usize> {
        let first = self.take_turn()?;
        self.least_busy_from(first, tried)
    }

    fn least_busy_from(&self, first: usize, tried: Tried) -> Option<usize> {
        let load = |index: usize| {
            let instance = &self.instances[index];
            // Scaled so that the integer division by the weight keeps small differences.
            instance.backend.in_flight() * 1024 / usize::from(instance.weight)
        };
        (0..self.round.len())
            .map(|step| usize::from(self.round[(first + step) % self.round.len()]))
            .filter(|&index| !tried.has(index))
            .min_by_key(|&index| load(index))
    }

    fn backup(&self, tried: Tried) -> Option<usize> {
        (0..self.instances.len()).find(|&index| self.instances[index].backup && !tried.has(index))
    }

    fn take_turn(&self) -> Option<usize> {
        self.next.fetch_add(1, Ordering::Relaxed).checked_rem(self.round.len())
    }
}

impl Tried {
    fn has(self, index: usize) -> bool {
        self.0 & (1 << index) != 0
    }

    /// How many instances have been tried.
    pub fn count(self) -> u32 {
        self.0.count_ones()
    }
}

/// One round: each instance as often as it weighs, as evenly spread as it can be (smooth weighted round robin:
/// each turn goes to whoever is furthest behind its share).
fn round_of(instances: &[Instance]) -> Vec<u8> {
    let weights: Vec<i64> = instances.iter().map(|i| if i.backup { 0 } else { i64::from(i.weight) }).collect();
    let divisor = weights.iter().copied().fold(0, gcd).max(1);
    let weights: Vec<i64> = weights.iter().map(|w| w / divisor).collect();
    let total: i64 = weights.iter().sum();
    let mut behind = vec![0_i64; weights.len()];
    let mut round = Vec::new();
    for _ in 0..total {
        for (b, w) in behind.iter_mut().zip(&weights) {
            *b += w;
        }
        // The first of the largest, so that equals keep the file's order.
        let Some((index, _)) = behind.iter().enumerate().rev().max_by_key(|&(_, b)| *b) else {
            break;
        };
        behind[index] -= total;
        round.extend(u8::try_from(index));
    }
    round
}

fn gcd(a: i64, b: i64) -> i64 {
    if b == 0 { a } else { gcd(b, a % b) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::table::backend::Address;

    fn site(weights: &[(u16, bool)], balance: Balance) -> Site {
        let instances = weights
            .iter()
            .zip(8001..)
            .map(|(&(weight, backup), port)| Instance { backend: Backend::new(Address::Port(port)), weight, backup })
            .collect();
        Site::new(instances, balance)
    }

    fn ports(site: &Site, turns: usize) -> Vec<u16> {
        (0..turns)
            .map(|_| match site.pick(&mut Tried::default()).unwrap().backend.address() {
                Address::Port(port) => *port - 8000,
                _ => unreachable!(),
            })
            .collect()
    }

    #[test]
    fn equal_instances_take_exact_turns_in_the_files_order() {
        assert_eq!(ports(&site(&[(1, false); 3], Balance::RoundRobin), 7), [1, 2, 3, 1, 2, 3, 1]);
        assert_eq!(ports(&site(&[(7, false); 2], Balance::RoundRobin), 4), [1, 2, 1, 2]);
    }

    #[test]
    fn weights_are_exact_and_spread() {
        assert_eq!(ports(&site(&[(5, false), (1, false), (1, false)], Balance::RoundRobin), 7), [1, 1, 2, 1, 3, 1, 1]);
        assert_eq!(ports(&site(&[(2, false), (1, false)], Balance::RoundRobin), 6), [1, 2, 1, 1, 2, 1]);
    }

    #[test]
    fn a_request_tries_each_instance_once_and_backups_last() {
        let site = site(&[(1, true), (1, false), (3, false)], Balance::RoundRobin);
        let mut tried = Tried::default();
        let mut order = Vec::new();
        while let Some(instance) = site.pick(&mut tried) {
            order.push(instance.backup);
        }
        assert_eq!(order, [false, false, true]);
        assert_eq!(tried.count(), 3);
    }

    #[test]
    fn a_site_of_backups_only_still_serves() {
        let site = site(&[(1, true), (1, true)], Balance::RoundRobin);
        assert!(site.pick(&mut Tried::default()).is_some());
    }

    #[test]
    fn least_connections_passes_by_the_busy_one() {
        let site = site(&[(1, false), (1, false)], Balance::LeastConnections);
        let busy = site.instances()[0].backend.claim();
        assert_eq!(ports(&site, 4), [2, 2, 2, 2]);
        drop(busy);
        assert_eq!(ports(&site, 4), [1, 2, 1, 2]);
    }
}
