//! What `GET /v1/status` answers: these shapes as JSON, which only grow. Times are RFC 3339.

use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

use serde::{Deserialize, Serialize};

use super::{Served, TrialState, find};
use crate::net::deadline;
use crate::ops::health::returns;
use crate::ops::stats::{self, BOUNDS, Histogram, Stats, seconds};
use crate::table::health::State;
use crate::table::site;
use crate::table::tally::Counts;
use crate::table::{self, Action, Table};

/// As many sites are told of where none is asked for.
const MOST_SITES: usize = 10_000;

/// A running carom.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub struct Status {
    /// Its version.
    pub version: String,
    /// Its process.
    pub process: u32,
    /// Since when it runs.
    pub started: String,
    /// For how long.
    pub uptime_seconds: u64,
    /// The addresses that it listens on: `http://[::]:80`.
    pub listening: Vec<String>,
    /// Clients that are connected.
    pub connections: usize,
    /// As many as may be.
    pub most_connections: usize,
    /// The routes file.
    pub routes: File,
    /// The sites that have instances, in the order of the file.
    pub sites: Vec<Site>,
    /// How many more there are.
    pub more_sites: usize,
    /// The instances that the routes have come to name no more, and that requests are with still.
    #[serde(default)]
    pub leaving: Vec<Leaving>,
    /// The certificates that are shown, those that end first in front.
    pub certificates: Vec<Certificate>,
}

/// The routes file.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub struct File {
    /// Where it is.
    pub path: String,
    /// When its content was last applied.
    pub applied: String,
    /// Why what stands there now is not what runs; absent where it is.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub broken: Option<String>,
    /// The trial that runs in its place, or the last one; absent where there was none.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub trial: Option<Trial>,
}

/// Other routes than those of the file, on trial.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub struct Trial {
    /// Its number in this process.
    pub number: u64,
    /// Where it has got to.
    pub state: TrialState,
    /// What it changes; once it is over, why it has ended so.
    pub why: String,
    /// When it goes back by itself.
    pub ends: String,
}

/// A line of the routes that has instances.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub struct Site {
    /// Its key, as it is written.
    pub name: String,
    /// Its other names, in compared form.
    pub also: Vec<String>,
    /// The line of the file.
    pub line: u32,
    /// Whether its connections are passed through.
    pub passthrough: bool,
    /// Requests that wait.
    pub waiting: usize,
    /// Who watches its requests: `carom tap`.
    #[serde(default)]
    pub watchers: usize,
    /// How it is paused; absent where it isn't.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub paused: Option<Paused>,
    /// How its requests have ended since carom runs, over all saves.
    pub ended: Counts,
    /// How long its requests took, from the first byte to the response's last; absent where nobody counts.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub took: Option<Durations>,
    /// Its instances, in the order of the file.
    pub instances: Vec<Instance>,
}

/// How a site is paused.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub struct Paused {
    /// How long a request waits.
    pub wait_seconds: f64,
    /// What those are told that have waited in vain; absent for a sentence of our own.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub message: Option<String>,
}

/// An instance of a site.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub struct Instance {
    /// Its target, as it is written.
    pub name: String,
    /// Whether it gets requests.
    pub state: Word,
    /// Why that is so, where it is not up.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub why: Option<String>,
    /// Since when; absent where it has been so since it is known.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub since: Option<String>,
    /// What brings it back, where it is not up.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub back: Option<String>,
    /// Requests and tunnels that are with it now, of all sites.
    pub in_flight: usize,
    /// Requests that it has been given, of all sites, tries included.
    pub requests: u64,
    /// How they have ended. One that failed and went on elsewhere failed here.
    pub ended: Counts,
    /// How long it took until the first byte of its answers to this site's requests; absent where nobody counts.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub took: Option<Durations>,
    /// The most that may be with it; absent for any number.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub max_connections: Option<u32>,
    /// Its share of the turns.
    pub weight: u16,
    /// What it gets of that so far, in percent, while it starts slowly; absent for all of it.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub share_percent: Option<u32>,
    /// Serves only when no other can.
    pub backup: bool,
    /// How it is checked; absent where it isn't.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub check: Option<String>,
    /// Where its name says that it is, empty while it has never said so; absent where it is not given by a name.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub addresses: Option<Vec<String>>,
}

/// How long things took since carom runs.
#[derive(Clone, Debug, Default, Deserialize, Serialize, PartialEq)]
pub struct Durations {
    /// How many are known.
    pub count: u64,
    /// All of them together.
    pub sum_seconds: f64,
    /// Of those: a bound in seconds, and how many took no longer than that, and longer than the bound before
    /// ([`BOUNDS`]). Those that took longer than the last bound are in none; a bound with none is left out.
    pub within: Vec<(f64, u64)>,
}

/// Whether an instance gets requests.
#[derive(Clone, Copy, Debug, Deserialize, Serialize, PartialEq, Eq)]
#[serde(rename_all = "kebab-case")]
pub enum Word {
    /// It does.
    Up,
    /// Its checks say that it is down.
    Down,
    /// It has failed too many requests in a row: others are tried first.
    Aside,
    /// Its checks have not been answered yet.
    NotAsked,
    /// It gets none, and some are with it still.
    Draining,
    /// It gets none, and has none.
    Drained,
}

/// An instance that no site has any more.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub struct Leaving {
    /// The key of the line that named it last.
    pub site: String,
    /// Its target, as it was written.
    pub name: String,
    /// Requests and tunnels that are with it still.
    pub in_flight: usize,
}

/// A certificate.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub struct Certificate {
    /// The names that it is for.
    pub names: Vec<String>,
    /// Until when it is valid.
    pub until: String,
    /// For how many days.
    pub days: u64,
}

impl Status {
    /// How things are: of all sites, or of one.
    pub(in crate::ops) fn of(served: &Served, started: SystemTime, site: Option<&str>) -> Result<Self, String> {
        let table = served.routes.current();
        let file = served.file.borrow().clone();
        let now = deadline::now();
        let of = |line| Site::of(line, served.stats.as_ref(), now);
        let (sites, more_sites) = match site {
            Some(name) => (vec![of(find::line(&table, name)?)], 0),
            None => {
                if let Some(stats) = &served.stats {
                    stats.forget(&table, Instant::now());
                }
                let sites: Vec<_> = find::lines(&table).take(MOST_SITES).map(of).collect();
                let more = find::lines(&table).count() - sites.len();
                (sites, more)
            }
        };
        Ok(Self {
            version: env!("CARGO_PKG_VERSION").to_owned(),
            process: std::process::id(),
            started: written(started),
            uptime_seconds: started.elapsed().unwrap_or_default().as_secs(),
            listening: served.listening.clone(),
            connections: served.doors.inside(),
            most_connections: served.doors.most(),
            routes: File {
                path: file.path.display().to_string(),
                applied: written(file.applied),
                broken: file.broken,
                trial: file.trial.as_ref().map(Trial::of),
            },
            sites,
            more_sites,
            leaving: table.leaving().map(Leaving::of).collect(),
            certificates: certificates(&table),
        })
    }
}

impl Trial {
    pub(super) fn of(trial: &super::Trial) -> Self {
        Self { number: trial.number, state: trial.state, why: trial.why.clone(), ends: written(trial.ends) }
    }
}

impl Site {
    fn of(line: find::Line<'_>, stats: Option<&Stats>, now: u64) -> Self {
        // Of one at a time: workers hand over to the same place, and must not wait for all.
        let counted = stats.map(|stats| stats.site(&line.route.name));
        Self {
            name: line.route.name.to_string(),
            also: line.patterns.iter().skip(1).map(ToString::to_string).collect(),
            line: line.route.line,
            passthrough: matches!(line.route.action, Action::PassThrough(_)),
            waiting: line.site.lasting().waiting(),
            watchers: line.site.lasting().taps().count(),
            paused: line.site.lasting().pause().now().map(|paused| Paused {
                wait_seconds: paused.wait.as_secs_f64(),
                message: paused.message.as_deref().map(str::to_owned),
            }),
            ended: line.site.lasting().tally().counts(),
            took: counted.as_ref().map(|counted| Durations::of(&counted.durations)),
            instances: Instance::all(line.site, counted.as_ref(), now),
        }
    }
}

impl Instance {
    fn all(site: &site::Site, counted: Option<&stats::Site>, now: u64) -> Vec<Self> {
        let shares = site.shares(now).into_iter().map(|share| (share < 100).then_some(share));
        let took = |name: &str| {
            let pair = counted?.pairs.get(name);
            Some(pair.map(|pair| Durations::of(&pair.durations)).unwrap_or_default())
        };
        site.instances().iter().zip(shares).map(|(one, share)| Self::of(one, share, took, now)).collect()
    }

    fn of(
        instance: &site::Instance,
        share_percent: Option<u32>,
        took: impl Fn(&str) -> Option<Durations>,
        now: u64,
    ) -> Self {
        let backend = &instance.backend;
        let name = backend.to_string();
        let mut shown = Self {
            took: took(&name),
            name,
            state: Word::Up,
            why: None,
            since: None,
            back: None,
            in_flight: backend.in_flight(),
            requests: backend.requests(),
            ended: backend.tally().counts(),
            max_connections: instance.max_connections,
            weight: instance.weight,
            share_percent,
            backup: instance.backup,
            check: instance.health.as_ref().map(|health| health.check().to_string()),
            addresses: backend.addresses().map(|all| all.iter().map(ToString::to_string).collect()),
        };
        shown.judge(instance, now);
        shown
    }

    /// Says whether it gets requests, and what else there is to say of that.
    fn judge(&mut self, instance: &site::Instance, now: u64) {
        if instance.duty.is_drained() {
            self.state = if self.in_flight == 0 { Word::Drained } else { Word::Draining };
            self.why = Some("it was drained by hand".to_owned());
            self.back = Some("carom undrain".to_owned());
            return;
        }
        if let Some(health) = &instance.health {
            self.since = (health.since() > 0).then(|| at(health.since(), now));
            match health.state() {
                State::Down => {
                    self.state = Word::Down;
                    self.why = health.why().map(|why| why.to_string());
                    self.back = Some(returns(health.check()));
                    return;
                }
                State::Unknown => {
                    self.state = Word::NotAsked;
                    self.back = Some("its first good answer".to_owned());
                    return;
                }
                State::Up => {}
            }
        }
        if let Some(aside) = instance.backend.standing().aside(now) {
            self.state = Word::Aside;
            self.why = Some(format!("{}, again and again", aside.why));
            self.since = Some(at(aside.since, now));
            let seconds = aside.until.saturating_sub(now).div_ceil(1000);
            self.back = Some(format!("a request that it serves: it is tried again in {seconds}s"));
        }
    }
}

impl Durations {
    fn of(histogram: &Histogram) -> Self {
        let within = BOUNDS.iter().zip(&histogram.counts).filter(|(_, count)| **count > 0);
        Self {
            count: histogram.count(),
            sum_seconds: histogram.sum.as_secs_f64(),
            within: within.map(|(&bound, &count)| (seconds(bound), count)).collect(),
        }
    }
}

impl From<&Durations> for Histogram {
    fn from(durations: &Durations) -> Self {
        let mut histogram =
            Self { sum: Duration::try_from_secs_f64(durations.sum_seconds).unwrap_or_default(), ..Self::default() };
        let mut longer = durations.count;
        for &(bound, count) in &durations.within {
            // Of a carom with other bounds: the next that is as long.
            let at = BOUNDS.iter().position(|&known| seconds(known) >= bound).unwrap_or(BOUNDS.len());
            histogram.counts[at] += count;
            longer = longer.saturating_sub(count);
        }
        histogram.counts[BOUNDS.len()] += longer;
        histogram
    }
}

impl Leaving {
    fn of(leaving: &table::Leaving) -> Self {
        Self {
            site: leaving.site.to_string(),
            name: leaving.backend.to_string(),
            in_flight: leaving.backend.in_flight(),
        }
    }
}

fn certificates(table: &Table) -> Vec<Certificate> {
    let now = SystemTime::now();
    let mut all: Vec<_> = table.certificates().shown().map(Arc::clone).collect();
    all.sort_by_key(|certificate| certificate.not_after());
    all.iter()
        .map(|certificate| Certificate {
            names: certificate.names().iter().map(ToString::to_string).collect(),
            until: written(certificate.not_after()),
            days: certificate.not_after().duration_since(now).unwrap_or_default().as_secs() / (24 * 60 * 60),
        })
        .collect()
}

/// A moment of the time that all have in common.
fn at(moment: u64, now: u64) -> String {
    let ago = Duration::from_millis(now.saturating_sub(moment));
    written(SystemTime::now().checked_sub(ago).unwrap_or(SystemTime::UNIX_EPOCH))
}

fn written(time: SystemTime) -> String {
    humantime::format_rfc3339_seconds(time).to_string()
}
