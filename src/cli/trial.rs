//! Routes on trial: they run, and nothing is written. They go back by themselves when they do harm or when nobody keeps them.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use carom::config::diff::Diff;
use carom::config::routes;
use carom::ops::control::{Trial as Shown, TrialState};
use carom::table::pattern::Pattern;
use carom::table::site::Site;
use carom::table::tally::Counts;
use carom::table::{Action, Table};
use hashbrown::HashMap;
use tokio::time::{Instant, sleep_until};

/// How often it is looked at what becomes of requests.
const OFTEN: Duration = Duration::from_millis(250);

/// Fewer failures than this are no harm yet.
const FEWEST: u64 = 5;

/// A share of failures that is no harm, whatever it was before.
const SHARE: f64 = 0.05;

/// By how much more often than before requests may fail.
const TIMES: f64 = 3.0;

/// Routes on trial.
pub(super) struct Trial {
    /// What runs otherwise.
    pub(super) before: Arc<Table>,
    /// What the file said when it began; `None` where it could not be read.
    pub(super) on_disk: Option<Vec<u8>>,
    /// What is on trial.
    pub(super) bytes: Vec<u8>,
    /// What that changes.
    pub(super) diff: String,
    touched: Vec<Touched>,
    until: Instant,
    length: Duration,
    number: u64,
}

/// A site that the trial has to do with.
struct Touched {
    name: Box<str>,
    site: Arc<Site>,
    before: Counts,
}

impl Trial {
    /// Begins one, from that table to this.
    pub(super) fn begin(
        number: u64,
        before: Arc<Table>,
        now: &Table,
        path: &Path,
        bytes: Vec<u8>,
        length: Duration,
    ) -> Self {
        let diff = Diff::between(&before, now).block("the routes on trial").trim_end().to_owned();
        let on_disk = routes::read(path).ok();
        let touched = touched(&before, now);
        Self { before, on_disk, bytes, diff, touched, until: Instant::now() + length, length, number }
    }

    /// Waits until it is worth looking again.
    pub(super) async fn moment(trial: &Option<Self>) {
        match trial {
            Some(trial) => sleep_until(trial.until.min(Instant::now() + OFTEN)).await,
            None => std::future::pending().await,
        }
    }

    /// Why it has to go back now, if it has to.
    pub(super) fn verdict(&self) -> Option<String> {
        let harm = self.touched.iter().find_map(|touched| {
            let now = touched.site.lasting().tally().counts();
            harm(&touched.before, &now).map(|harm| format!("{}: {harm}", touched.name))
        });
        harm.or_else(|| {
            let length = humantime::format_duration(self.length);
            (Instant::now() >= self.until).then(|| format!("nobody has confirmed them within {length}"))
        })
    }

    /// For those who ask.
    pub(super) fn shown(&self, state: TrialState, why: &str) -> Shown {
        let left = self.until.saturating_duration_since(Instant::now());
        let ends = std::time::SystemTime::now() + left;
        Shown { number: self.number, state, why: why.to_owned(), ends }
    }
}

/// A file's name for errors, in the folder of the routes: what it names relatively is there once it is kept.
pub(super) fn named(routes: &Path, name: &str) -> PathBuf {
    routes.with_file_name(Path::new(name).file_name().unwrap_or_default())
}

/// The sites of a table that are not those of another.
fn touched(before: &Table, now: &Table) -> Vec<Touched> {
    let sites = |table: &Table| -> HashMap<Pattern, (Box<str>, Arc<Site>)> {
        let lines = table.lines().filter_map(|(route, patterns)| match &route.action {
            Action::Forward(site) | Action::PassThrough(site) => {
                Some((patterns.first()?.clone(), (route.name.clone(), Arc::clone(site))))
            }
            Action::Redirect(_) | Action::Respond(_) => None,
        });
        lines.collect()
    };
    let old = sites(before);
    let changed = sites(now)
        .into_iter()
        .filter(|(pattern, (_, site))| old.get(pattern).is_none_or(|(_, same)| !Arc::ptr_eq(same, site)));
    changed
        .map(|(_, (name, site))| {
            let before = site.lasting().tally().counts();
            Touched { name, site, before }
        })
        .collect()
}

/// What has got worse since `before`, if something has: some failures, and more of them than there used to be.
fn harm(before: &Counts, now: &Counts) -> Option<String> {
    let (bad, all) = (now.bad().saturating_sub(before.bad()), now.total().saturating_sub(before.total()));
    let share = share(bad, all);
    let usual = share_of(before);
    (bad >= FEWEST && share > (TIMES * usual).max(SHARE)).then(|| {
        let (share, usual) = (share * 100.0, usual * 100.0);
        format!("{bad} of {all} requests have failed or got 5xx, {share:.0} %; before it were {usual:.1} %")
    })
}

fn share_of(counts: &Counts) -> f64 {
    share(counts.bad(), counts.total())
}

#[expect(clippy::cast_precision_loss, reason = "a share need not be exact")]
fn share(part: u64, all: u64) -> f64 {
    if all == 0 { 0.0 } else { part as f64 / all as f64 }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn harm_is_some_failures_and_more_than_there_used_to_be() {
        let counts = |success, failed| Counts { success, failed, ..Counts::default() };
        for (before, now, harmed) in [
            (counts(0, 0), counts(0, 4), false),
            (counts(0, 0), counts(0, 5), true),
            (counts(1000, 0), counts(1000 + 95, 5), false),
            (counts(1000, 0), counts(1000 + 90, 6), true),
            // It was no better before.
            (counts(900, 100), counts(900 + 80, 100 + 20), false),
            (counts(900, 100), counts(900 + 60, 100 + 40), true),
        ] {
            assert_eq!(harm(&before, &now).is_some(), harmed, "{before:?} {now:?}");
        }
        let why = harm(&counts(100, 0), &counts(110, 10)).unwrap();
        assert_eq!(why, "10 of 20 requests have failed or got 5xx, 50 %; before it were 0.0 %");
    }

    #[test]
    fn what_a_change_touches_is_watched_and_nothing_else() {
        let parse = |text: &str, before: Option<&Table>| {
            routes::parse(Path::new("routes.toml"), text.as_bytes(), &[], before).unwrap()
        };
        let before = parse("a = 1\nb = 2\nc = 3\n", None);
        let now = parse("a = 1\nb = [2, 4]\nd = 5\n", Some(&before));
        let mut names: Vec<_> = touched(&before, &now).into_iter().map(|touched| touched.name).collect();
        names.sort();
        assert_eq!(names, ["b".into(), "d".into()]);
    }
}
