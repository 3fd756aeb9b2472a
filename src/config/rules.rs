//! What a route says about how its site goes about requests, whichever instance they go to.

use std::sync::Arc;
use std::time::Duration;

use crate::table::balance::{Balance, By};
use crate::table::site::Rules;

use super::keys::noted;
use super::node::Entry;
use super::report::Problem;
use super::{balance, quantity, retries};

/// What is said.
#[derive(Clone, Copy, Default)]
pub(super) struct Said<'a> {
    balance: Option<&'a Entry<'a>>,
    wait: Option<&'a Entry<'a>>,
    slow_start: Option<&'a Entry<'a>>,
    retries: Option<&'a Entry<'a>>,
}

impl<'a> Said<'a> {
    /// Notes a key; `false` when it is about something else.
    pub(super) fn note(&mut self, key: &str, entry: &'a Entry<'a>) -> bool {
        let place = match key {
            "balance" => &mut self.balance,
            "wait" => &mut self.wait,
            "slow_start" => &mut self.slow_start,
            "retries" => &mut self.retries,
            _ => return false,
        };
        *place = Some(entry);
        true
    }

    /// All that is said.
    pub(super) fn all(&self) -> impl Iterator<Item = &'a Entry<'a>> {
        [self.balance, self.wait, self.slow_start, self.retries].into_iter().flatten()
    }

    /// The rules of a site whose requests are seen.
    pub(super) fn of_requests(&self, problems: &mut Vec<Problem>) -> Rules {
        let wait = self.wait.and_then(|entry| noted(quantity::duration(&entry.node), problems));
        let retries = self.retries.and_then(|entry| retries::read(&entry.node, problems));
        Rules {
            balance: self.balance(problems),
            wait: wait.unwrap_or_default(),
            slow_start: self.slow_start(problems),
            retries: retries.map(Arc::new),
        }
    }

    /// The rules of a site whose connections are passed through.
    pub(super) fn of_connections(&self, problems: &mut Vec<Problem>) -> Rules {
        let balance = self.balance(problems);
        if let (Balance::Hash(by @ (By::Header(_) | By::Cookie(_))), Some(entry)) = (&balance, self.balance) {
            let problem = Problem::at(&entry.node.span, format!("nobody sees {by} of what is passed through"));
            problems.push(problem.help("hash = \"client\""));
        }
        if let (Balance::Sticky(_), Some(entry)) = (&balance, self.balance) {
            let problem = Problem::at(&entry.node.span, "nobody sees a cookie of what is passed through");
            problems.push(problem.help("hash = \"client\""));
        }
        for (entry, what) in [
            (self.wait, "connections that are passed through don't wait"),
            (self.retries, "nobody sees a request of what is passed through, so none is tried again"),
        ] {
            problems.extend(entry.map(|entry| Problem::at(&entry.key_span, what).help("take it out")));
        }
        Rules { balance, slow_start: self.slow_start(problems), ..Rules::default() }
    }

    fn slow_start(&self, problems: &mut Vec<Problem>) -> Duration {
        self.slow_start.and_then(|entry| noted(quantity::duration(&entry.node), problems)).unwrap_or_default()
    }

    fn balance(&self, problems: &mut Vec<Problem>) -> Balance {
        self.balance.map_or_else(Balance::default, |entry| balance::read(&entry.node, problems))
    }
}
