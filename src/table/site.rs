//! A site: one or more instances that serve the same thing, in turn.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use super::backend::Backend;
use super::balance::{self, Balance};
use super::duty::{Duty, Lasting, Waiting};
use super::health::Health;

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
    /// Each instance's address as [`balance::hash`] has it.
    hashes: Vec<u64>,
    regular: Group,
    backup: Group,
    rules: Rules,
    lasting: Arc<Lasting>,
}

/// How a site goes about its requests.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Rules {
    /// How the instance is chosen.
    pub balance: Balance,
    /// How long a request waits while no instance can be reached; zero for not at all.
    pub wait: Duration,
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
    /// Whether it is up, where it is checked.
    pub health: Option<Arc<Health>>,
    /// What an operator has asked of it.
    pub duty: Arc<Duty>,
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
        Self { instances, round, next: AtomicUsize::new(0), hashes, regular, backup, rules, lasting: Arc::default() }
    }

    /// The same site as before, with other instances or rules.
    #[must_use]
    pub fn instead_of(mut self, before: &Self) -> Self {
        self.lasting = Arc::clone(&before.lasting);
        for instance in &mut self.instances {
            let same = before.instances.iter().find(|other| Arc::ptr_eq(&other.backend, &instance.backend));
            if let Some(same) = same {
                instance.duty = Arc::clone(&same.duty);
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
    pub(crate) fn queue(&self, most: usize) -> Option<Waiting<'_>> {
        self.lasting.queue(most)
    }

    /// Its instances, in the order of the file.
    pub fn instances(&self) -> &[Instance] {
        &self.instances
    }

    /// How it chooses.
    pub fn balance(&self) -> &Balance {
        &self.rules.balance
    }

    /// The next instance for a request, marked as tried; `None` when every one has been. Those that have been put aside by
    /// `now` come when nobody else is left, and backups when no other instance is up. `key` is what [`Balance::key`] makes
    /// of the request.
    pub(crate) fn pick(&self, tried: &mut Tried, key: u64, now: u64) -> Option<&Instance> {
        let index = match self.instances.len() {
            1 if tried.0 == 0 && !self.instances[0].duty.is_drained() => 0,
            _ => self.choose(*tried, key, now)?,
        };
        tried.0 |= 1 << index;
        self.instances.get(index)
    }

    fn choose(&self, tried: Tried, key: u64, now: u64) -> Option<usize> {
        let up = Group::of(&self.instances, |instance| instance.is_up(now));
        let left = Group::of(&self.instances, |instance| !instance.duty.is_drained()).and(Group(!tried.0));
        let (regular, backup) = (self.regular.and(left), self.backup.and(left));
        for group in [regular.and(up), backup.and(up), regular, backup] {
            let chosen = match self.rules.balance {
                _ if group.is_empty() => continue,
                // Those who stand by have no turns.
                _ if self.regular.and(group).is_empty() => group.iter().next(),
                Balance::RoundRobin => self.in_turn(group, tried.0 == 0),
                Balance::LeastConnections => self.least_busy(group, self.take_turn()?),
                Balance::RandomTwo => self.of_two(group),
                Balance::Hash(_) => self.nearest(group, key),
            };
            if chosen.is_some() {
                return chosen;
            }
        }
        None
    }

    /// The instance that the next request would get, without taking the turn; `None` where that depends on the request, or
    /// on chance.
    pub fn peek(&self) -> Option<&Instance> {
        if self.round.is_empty() || self.instances.len() == 1 {
            return self.instances.first();
        }
        let turn = self.next.load(Ordering::Relaxed) % self.round.len();
        match self.rules.balance {
            Balance::RoundRobin => self.instances.get(usize::from(self.round[turn])),
            Balance::LeastConnections => self.instances.get(self.least_busy(self.regular, turn)?),
            Balance::RandomTwo | Balance::Hash(_) => None,
        }
    }

    /// Whose turn it is. A request that tries again takes nobody's turn: it goes to who comes next. Turns of those who are
    /// not in the group are passed over, lest who comes behind them gets theirs.
    fn in_turn(&self, group: Group, first: bool) -> Option<usize> {
        let mut turn = self.take_turn()?;
        for _ in 0..self.round.len() {
            let index = usize::from(self.round[turn]);
            if group.has(index) {
                return Some(index);
            }
            turn = if first { self.take_turn()? } else { (turn + 1) % self.round.len() };
        }
        None
    }

    /// The first of the least busy, beginning with whose turn it is.
    fn least_busy(&self, group: Group, turn: usize) -> Option<usize> {
        let (first, count) = (usize::from(self.round[turn]), self.instances.len());
        (0..count).map(|step| (first + step) % count).filter(|&i| group.has(i)).min_by_key(|&i| self.load(i))
    }

    fn of_two(&self, group: Group) -> Option<usize> {
        let one = self.at_random(group)?;
        let other = self.at_random(group.without(one)).unwrap_or(one);
        if self.load(other) < self.load(one) { Some(other) } else { Some(one) }
    }

    fn at_random(&self, group: Group) -> Option<usize> {
        let weight = |index: usize| u32::from(self.instances[index].weight);
        let total: u32 = group.iter().map(weight).sum();
        let mut left = fastrand::u32(..total.max(1));
        group.iter().find(|&index| {
            let (rest, over) = left.overflowing_sub(weight(index));
            left = rest;
            over
        })
    }

    fn nearest(&self, group: Group, key: u64) -> Option<usize> {
        let distance = |index: usize| balance::distance(key, self.hashes[index], self.instances[index].weight);
        group.iter().min_by(|&one, &other| distance(one).total_cmp(&distance(other)))
    }

    /// Scaled so that the integer division by the weight keeps small differences.
    fn load(&self, index: usize) -> usize {
        let instance = &self.instances[index];
        instance.backend.in_flight() * 1024 / usize::from(instance.weight)
    }

    fn take_turn(&self) -> Option<usize> {
        self.next.fetch_add(1, Ordering::Relaxed).checked_rem(self.round.len())
    }
}

/// Some of a site's instances, a bit each.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Group(u64);

impl Group {
    fn of(instances: &[Instance], belongs: impl Fn(&Instance) -> bool) -> Self {
        Self(instances.iter().enumerate().fold(0, |bits, (index, i)| bits | u64::from(belongs(i)) << index))
    }

    fn and(self, other: Self) -> Self {
        Self(self.0 & other.0)
    }

    fn without(self, index: usize) -> Self {
        Self(self.0 & !(1 << index))
    }

    fn has(self, index: usize) -> bool {
        self.0 >> index & 1 == 1
    }

    fn is_empty(self) -> bool {
        self.0 == 0
    }

    fn iter(self) -> impl Iterator<Item = usize> {
        (0..MOST_INSTANCES).filter(move |&index| self.has(index))
    }
}

impl Instance {
    /// An instance that nothing is said of.
    pub fn new(backend: Arc<Backend>) -> Self {
        Self { backend, weight: 1, backup: false, health: None, duty: Arc::default() }
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
    use crate::table::balance::By;

    fn site(weights: &[(u16, bool)], balance: Balance) -> Site {
        let instances = weights
            .iter()
            .zip(8001..)
            .map(|(&(weight, backup), port)| Instance {
                weight,
                backup,
                ..Instance::new(Backend::new(Address::Port(port)))
            })
            .collect();
        Site::new(instances, Rules { balance, ..Rules::default() })
    }

    fn ports(site: &Site, turns: usize) -> Vec<u16> {
        (0..turns)
            .map(|_| match site.pick(&mut Tried::default(), 0, 0).unwrap().backend.address() {
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
        while let Some(instance) = site.pick(&mut tried, 0, 0) {
            order.push(instance.backup);
        }
        assert_eq!(order, [false, false, true]);
        assert_eq!(tried.count(), 3);
    }

    #[test]
    fn a_drained_instance_gets_nothing_even_where_nobody_else_is_there() {
        let two = site(&[(1, false), (1, false)], Balance::RoundRobin);
        assert!(!two.instances()[0].duty.drain(true));
        assert_eq!(ports(&two, 3), [2, 2, 2]);
        // A save that changes the site leaves it so.
        let instances = two.instances().iter().cloned().map(|i| Instance { duty: Arc::default(), ..i }).collect();
        let saved = Site::new(instances, Rules::default()).instead_of(&two);
        assert_eq!(ports(&saved, 3), [2, 2, 2]);
        assert!(saved.instances()[0].duty.drain(false));
        assert_eq!(ports(&saved, 2), [1, 2]);
        let one = site(&[(1, false)], Balance::RoundRobin);
        one.instances()[0].duty.drain(true);
        assert!(one.pick(&mut Tried::default(), 0, 0).is_none());
    }

    #[test]
    fn a_site_of_backups_only_still_serves() {
        let site = site(&[(1, true), (1, true)], Balance::RoundRobin);
        assert!(site.pick(&mut Tried::default(), 0, 0).is_some());
    }

    #[test]
    fn least_connections_passes_by_the_busy_one() {
        let site = site(&[(1, false), (1, false)], Balance::LeastConnections);
        let busy = site.instances()[0].backend.claim();
        assert_eq!(ports(&site, 4), [2, 2, 2, 2]);
        drop(busy);
        assert_eq!(ports(&site, 4), [1, 2, 1, 2]);
    }

    fn chosen(site: &Site, key: u64, tried: &mut Tried) -> u16 {
        let instance = site.pick(tried, key, 0).unwrap();
        match instance.backend.address() {
            Address::Port(port) => *port - 8000,
            _ => unreachable!(),
        }
    }

    /// How often each instance is chosen, by so many keys.
    fn shares(site: &Site, keys: u64) -> Vec<u64> {
        let mut shares = vec![0; site.instances().len()];
        for key in 0..keys {
            let port = chosen(site, balance::hash(&key.to_le_bytes()), &mut Tried::default());
            shares[usize::from(port) - 1] += 1;
        }
        shares
    }

    /// Whether counts are as expected: 16.3 is what chi-square exceeds once in a thousand with three degrees of freedom.
    fn fits(counts: &[u64], weights: &[u64]) -> bool {
        let (total, parts) = (counts.iter().sum::<u64>() as f64, weights.iter().sum::<u64>() as f64);
        let expected = weights.iter().map(|&weight| total * weight as f64 / parts);
        counts.iter().zip(expected).map(|(&count, e)| (count as f64 - e).powi(2) / e).sum::<f64>() < 16.3
    }

    #[test]
    fn keys_are_spread_by_weight() {
        let by = Balance::Hash(By::Client);
        assert!(fits(&shares(&site(&[(1, false); 4], by.clone()), 20_000), &[1, 1, 1, 1]));
        assert!(fits(&shares(&site(&[(1, false), (2, false), (5, false)], by.clone()), 20_000), &[1, 2, 5]));
        assert!(!fits(&shares(&site(&[(1, false); 4], by), 20_000), &[2, 1, 1, 1]), "the test tells them apart");
    }

    #[test]
    fn an_instance_that_comes_takes_its_share_and_moves_nobody_else() {
        let four = site(&[(1, false); 4], Balance::Hash(By::Client));
        let five = site(&[(1, false); 5], Balance::Hash(By::Client));
        let mut moved = 0;
        for key in 0..10_000_u64 {
            let key = balance::hash(&key.to_le_bytes());
            let before = chosen(&four, key, &mut Tried::default());
            let after = chosen(&five, key, &mut Tried::default());
            assert!(after == before || after == 5, "{before} → {after}");
            moved += u64::from(after != before);
        }
        assert!((1_800..2_200).contains(&moved), "{moved} of 10,000");
    }

    #[test]
    fn a_key_whose_instance_fails_goes_to_the_next_nearest_and_to_backups_last() {
        let site = site(&[(1, false), (1, false), (1, true)], Balance::Hash(By::Client));
        for key in 0..50 {
            let mut tried = Tried::default();
            let order: Vec<u16> = (0..3).map(|_| chosen(&site, key, &mut tried)).collect();
            assert!(order[0] != order[1] && order[2] == 3, "{order:?}");
            assert!(site.pick(&mut tried, key, 0).is_none());
        }
    }

    #[test]
    fn of_two_at_random_the_less_busy_one_serves() {
        let even = site(&[(1, false); 4], Balance::RandomTwo);
        assert!(fits(&shares(&even, 20_000), &[1, 1, 1, 1]));
        // Of six pairs of four, three have the busy one, which then never serves.
        let _busy: Vec<_> = (0..10).map(|_| even.instances()[0].backend.claim()).collect();
        let shares = shares(&even, 20_000);
        assert_eq!(shares[0], 0);
        assert!(fits(&shares[1..], &[1, 1, 1]), "{shares:?}");
    }

    #[test]
    fn two_at_random_are_each_tried_once() {
        let site = site(&[(3, false), (1, false), (2, false), (1, true)], Balance::RandomTwo);
        for _ in 0..50 {
            let mut tried = Tried::default();
            let mut order: Vec<u16> = (0..4).map(|_| chosen(&site, 0, &mut tried)).collect();
            assert_eq!(order.pop(), Some(4));
            order.sort_unstable();
            assert_eq!(order, [1, 2, 3]);
        }
    }

    fn put_aside(site: &Site, index: usize) {
        for _ in 0..3 {
            site.instances()[index].backend.standing().failed(1);
        }
    }

    #[test]
    fn turns_stay_exact_when_one_is_aside() {
        let site = site(&[(1, false); 3], Balance::RoundRobin);
        put_aside(&site, 1);
        let ports: Vec<u16> = (0..6)
            .map(|_| match site.pick(&mut Tried::default(), 0, 2).unwrap().backend.address() {
                Address::Port(port) => *port - 8000,
                _ => unreachable!(),
            })
            .collect();
        assert_eq!(ports, [1, 3, 1, 3, 1, 3]);
    }

    #[test]
    fn backups_serve_when_no_other_is_up_and_who_is_aside_when_nobody_is() {
        for balance in [Balance::RoundRobin, Balance::LeastConnections, Balance::RandomTwo, Balance::Hash(By::Client)] {
            let site = site(&[(1, false), (1, false), (1, true)], balance);
            put_aside(&site, 0);
            put_aside(&site, 1);
            let mut tried = Tried::default();
            let mut order = Vec::new();
            while let Some(instance) = site.pick(&mut tried, 0, 2) {
                order.push(instance.backup);
            }
            assert_eq!(order, [true, false, false]);
            put_aside(&site, 2);
            assert!(!site.pick(&mut Tried::default(), 0, 2).unwrap().backup);
        }
    }
}
