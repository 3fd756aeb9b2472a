//! Which of a site's instances a request gets.

use std::sync::atomic::Ordering;

use super::{Instance, MOST_INSTANCES, Site, Tried};
use crate::table::arrival::WHOLE;
use crate::table::balance::{self, Balance};

impl Site {
    pub(super) fn choose(&self, tried: Tried, full: Group, key: u64, now: u64) -> Choice {
        let up = Group::of(&self.instances, |instance| instance.is_up(now));
        let left = Group::of(&self.instances, |instance| !instance.duty.is_drained()).without_all(Group(tried.0));
        let full = match self.bounded {
            false => full,
            true => full.and_also(Group::of(&self.instances, Instance::is_full)),
        };
        let (regular, backup) = (self.regular.and(left), self.backup.and(left));
        for group in [regular.and(up), backup.and(up), regular, backup] {
            let room = group.without_all(full);
            let balance = match &self.rules.balance {
                Balance::Sticky(sticky) => match self.of_session(room, key) {
                    Some(index) => return Choice::One(index),
                    None => &sticky.then,
                },
                balance => balance,
            };
            let chosen = match balance {
                _ if group.is_empty() => continue,
                // It is up: who stands in for it would only be in its place.
                _ if room.is_empty() => return Choice::Busy,
                // Those who stand by have no turns.
                _ if self.regular.and(room).is_empty() => room.iter().next(),
                Balance::RoundRobin => self.in_turn(room, tried.0 == 0, self.eased(room, now).as_ref()),
                Balance::LeastConnections => {
                    let room = self.ready(room, now);
                    self.take_turn().and_then(|turn| self.least_busy(room, turn))
                }
                Balance::RandomTwo => self.of_two(self.ready(room, now)),
                Balance::Hash(_) | Balance::Sticky(_) => self.nearest(room, key),
            };
            if let Some(index) = chosen {
                return Choice::One(index);
            }
        }
        Choice::None
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
            Balance::RandomTwo | Balance::Hash(_) | Balance::Sticky(_) => None,
        }
    }

    /// The instance that the session's cookie names, where it is one of these.
    fn of_session(&self, group: Group, key: u64) -> Option<usize> {
        usize::try_from(key).ok()?.checked_sub(1).filter(|&index| index < MOST_INSTANCES && group.has(index))
    }

    /// Whose turn it is. A request that tries again takes nobody's turn: it goes to who comes next. Turns of those who are
    /// not in the group are passed over, lest who comes behind them gets theirs.
    fn in_turn(&self, group: Group, first: bool, eased: Option<&Eased>) -> Option<usize> {
        let mut turn = self.take_turn()?;
        let round = self.round.len();
        // Others take turns meanwhile: one round of them may miss somebody, but not one that is gone through.
        for step in 0..2 * round {
            let index = usize::from(self.round[turn]);
            if group.has(index) && eased.is_none_or(|eased| self.earns(eased, index, eased.parts[index])) {
                return Some(index);
            }
            turn = if first && step < round { self.take_turn()? } else { (turn + 1) % round };
        }
        None
    }

    /// Those whose time it is: of those that have just come, only who has earned a request.
    fn ready(&self, group: Group, now: u64) -> Group {
        let Some(eased) = self.eased(group, now) else { return group };
        let share = |index: usize| eased.parts[index].saturating_mul(u32::from(self.instances[index].weight));
        let all = group.iter().map(share).sum::<u32>().max(1);
        let earns = |&index: &usize| self.earns(&eased, index, share(index).saturating_mul(WHOLE) / all);
        match group.iter().filter(earns).fold(Group::default(), Group::with) {
            nobody if nobody.is_empty() => group,
            ready => ready,
        }
    }

    /// Whether one of those serves whose turn it is. Who has the largest part of all gets all of it.
    fn earns(&self, eased: &Eased, index: usize, part: u32) -> bool {
        eased.parts[index] >= eased.most || self.instances[index].duty.arrival().earns(part)
    }

    /// What each instance gets of its share, in percent: less than 100 where it has just come, and others that are up have been
    /// there for longer.
    pub fn shares(&self, now: u64) -> Vec<u32> {
        let up = Group::of(&self.instances, |instance| instance.is_up(now) && !instance.duty.is_drained());
        let eased = match self.rules.balance {
            // Keys move for nobody who starts.
            Balance::Hash(_) => None,
            _ => self.eased(self.regular.and(up), now),
        };
        let mut shares = vec![100; self.instances.len()];
        for (share, part) in shares.iter_mut().zip(eased.iter().flat_map(|eased| eased.parts)) {
            if eased.as_ref().is_some_and(|eased| part < eased.most) {
                *share = part * 100 / WHOLE;
            }
        }
        shares
    }

    /// What they get of their shares, where somebody gets less than another.
    fn eased(&self, group: Group, now: u64) -> Option<Eased> {
        let slow_start = self.rules.slow_start;
        if slow_start.is_zero() {
            return None;
        }
        let mut eased = Eased { parts: [WHOLE; MOST_INSTANCES], most: 0 };
        let mut least = WHOLE;
        for index in group.iter() {
            let part = self.instances[index].part(now, slow_start);
            eased.parts[index] = part;
            eased.most = eased.most.max(part);
            least = least.min(part);
        }
        (least < eased.most).then_some(eased)
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

/// What instances get of their shares, as some have just come.
struct Eased {
    parts: [u32; MOST_INSTANCES],
    /// The largest.
    most: u32,
}

/// What has been chosen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Choice {
    /// The instance with this index.
    One(usize),
    /// Nobody: who could serve is full.
    Busy,
    /// Nobody is left.
    None,
}

/// Some of a site's instances, a bit each.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Group(u64);

impl Group {
    pub(super) fn of(instances: &[Instance], belongs: impl Fn(&Instance) -> bool) -> Self {
        Self(instances.iter().enumerate().fold(0, |bits, (index, i)| bits | u64::from(belongs(i)) << index))
    }

    fn and(self, other: Self) -> Self {
        Self(self.0 & other.0)
    }

    fn and_also(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    fn without_all(self, other: Self) -> Self {
        Self(self.0 & !other.0)
    }

    pub(super) fn with(self, index: usize) -> Self {
        Self(self.0 | 1 << index)
    }

    fn without(self, index: usize) -> Self {
        Self(self.0 & !(1 << index))
    }

    fn has(self, index: usize) -> bool {
        self.0 >> index & 1 == 1
    }

    pub(super) fn is_empty(self) -> bool {
        self.0 == 0
    }

    fn iter(self) -> impl Iterator<Item = usize> {
        (0..MOST_INSTANCES).filter(move |&index| self.has(index))
    }
}

/// One round: each instance as often as it weighs, as evenly spread as it can be (smooth weighted round robin:
/// each turn goes to whoever is furthest behind its share).
pub(super) fn round_of(instances: &[Instance]) -> Vec<u8> {
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
