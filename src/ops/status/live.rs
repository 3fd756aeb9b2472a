//! `/events`: what the page shows, once a second, for as long as somebody has it open. When nobody has, nothing is done.

use std::collections::BTreeMap;
use std::time::{Duration, Instant, SystemTime};

use http_body_util::Channel;
use hyper::body::Bytes;
use serde::Serialize;
use tokio::sync::{Notify, watch};
use tokio::time::{MissedTickBehavior, interval};

use super::Shown;
use crate::ops::control::Status;
use crate::ops::control::status::{Site, Word};
use crate::ops::failures::{Failure, Wanted};
use crate::ops::stats::{self, CLASSES, Histogram, Totals};

/// Pages that are told at once.
const MOST_LISTENERS: usize = 16;

/// Sites that a page is told of: those with trouble in front, then those that are busy.
const MOST_SITES: usize = 300;

/// Failures that a page is told of.
const MOST_FAILURES: usize = 20;

const SECOND: Duration = Duration::from_secs(1);

/// Who tells.
#[derive(Debug, Default)]
pub(super) struct Live {
    /// The last event, as it is sent; empty when nobody has listened.
    latest: watch::Sender<Bytes>,
    /// Somebody listens.
    wake: Notify,
}

/// What a page is told.
#[derive(Debug, Serialize)]
struct Event {
    time_ms: u64,
    status: Status,
    tunnels: usize,
    /// Since the last event; absent in the first.
    rates: Option<Rates>,
    /// How often each thing went wrong since the start.
    reasons: Vec<(&'static str, u64)>,
    /// The last, the newest first.
    failures: Vec<Failure>,
}

/// What has come in a second.
#[derive(Debug, Default, Serialize)]
struct Rates {
    /// A second.
    requests: f64,
    /// Answered with 5xx, a second.
    errors: f64,
    /// Seconds; absent where nothing was answered.
    p50: Option<f64>,
    p95: Option<f64>,
    sites: BTreeMap<String, SiteRates>,
}

/// The same of one site.
#[derive(Debug, Default, Serialize)]
struct SiteRates {
    requests: f64,
    errors: f64,
    p95: Option<f64>,
}

impl Live {
    /// Makes events while somebody listens, for ever.
    pub(super) async fn tell(&self, shown: &Shown, started: SystemTime) {
        loop {
            self.wake.notified().await;
            let mut before: Option<(Totals, Instant)> = None;
            let mut seconds = interval(SECOND);
            seconds.set_missed_tick_behavior(MissedTickBehavior::Delay);
            loop {
                seconds.tick().await;
                if self.latest.receiver_count() == 0 {
                    break;
                }
                let (totals, now) = (shown.stats.totals(), Instant::now());
                let rates = before.as_ref().map(|(before, then)| Rates::between(before, &totals, now - *then));
                if let Some(event) = Event::of(shown, started, &totals, rates) {
                    self.latest.send_replace(event);
                }
                before = Some((totals, now));
            }
            self.latest.send_replace(Bytes::new());
        }
    }

    /// A body that is told; `None` where too many listen.
    pub(super) fn listen(&self) -> Option<Channel<Bytes>> {
        let mut events = self.latest.subscribe();
        if self.latest.receiver_count() > MOST_LISTENERS {
            return None;
        }
        self.wake.notify_one();
        let (mut to, body) = Channel::new(1);
        tokio::task::spawn_local(async move {
            loop {
                let event = events.borrow_and_update().clone();
                // Who reads slowly misses some, and who is gone ends it.
                if !event.is_empty() && to.send_data(event).await.is_err() || events.changed().await.is_err() {
                    return;
                }
            }
        });
        Some(body)
    }
}

impl Event {
    /// As it is sent (HTML Living Standard, section 9.2); `None` where there is nothing to tell, which does not happen.
    fn of(shown: &Shown, started: SystemTime, totals: &Totals, rates: Option<Rates>) -> Option<Bytes> {
        let mut status = Status::of(&shown.served, started, None).ok()?;
        choose(&mut status, rates.as_ref());
        let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
        let mut reasons: Vec<_> = totals.reasons.iter().map(|(reason, count)| (*reason, *count)).collect();
        reasons.sort_by_key(|(_, count)| std::cmp::Reverse(*count));
        let event = Self {
            time_ms: u64::try_from(now.as_millis()).unwrap_or(u64::MAX),
            status,
            tunnels: shown.served.doors.tunnels(),
            rates,
            reasons,
            failures: shown.served.failures.last(&Wanted { most: MOST_FAILURES, ..Wanted::default() }),
        };
        // JSON has no line breaks of its own.
        let json = serde_json::to_string(&event).ok()?;
        Some(format!("retry: 2000\ndata: {json}\n\n").into())
    }
}

/// Keeps the sites that a page is told of, in the order of the file.
fn choose(status: &mut Status, rates: Option<&Rates>) {
    let all = status.sites.len();
    if all <= MOST_SITES {
        return;
    }
    let is_fine = |site: &Site| site.instances.iter().all(|instance| instance.state == Word::Up);
    let is_idle =
        |site: &Site| rates.is_none_or(|rates| rates.sites.get(&site.name).is_none_or(|site| site.requests <= 0.0));
    status.sites.sort_by_cached_key(|site| (is_fine(site), is_idle(site), site.line));
    status.sites.truncate(MOST_SITES);
    status.sites.sort_by_key(|site| site.line);
    status.more_sites += all - MOST_SITES;
}

impl Rates {
    #[expect(clippy::cast_precision_loss, reason = "what comes in a second")]
    fn between(before: &Totals, now: &Totals, time: Duration) -> Self {
        let per_second = |count: u64| (count as f64 / time.as_secs_f64() * 100.0).round() / 100.0;
        let (mut durations, mut requests, mut errors) = (Histogram::default(), 0, 0);
        let mut sites = BTreeMap::new();
        for (name, site) in &now.sites {
            let earlier = before.sites.get(name);
            let count = |class: Option<&str>| {
                let is_meant = |index: usize| class.is_none_or(|class| CLASSES[index] == class);
                let sum = |counts: &[u64]| -> u64 {
                    counts.iter().enumerate().filter(|(index, _)| is_meant(*index)).map(|(_, count)| count).sum()
                };
                let of = |site: &stats::Site| -> u64 { site.pairs.values().map(|pair| sum(&pair.requests)).sum() };
                of(site).saturating_sub(earlier.map_or(0, of))
            };
            let (all, failed) = (count(None), count(Some("5xx")));
            if all == 0 {
                continue;
            }
            let took =
                earlier.map_or_else(|| site.durations.clone(), |earlier| site.durations.since(&earlier.durations));
            durations.absorb(&took);
            requests += all;
            errors += failed;
            let rates = SiteRates { requests: per_second(all), errors: per_second(failed), p95: took.quantile(0.95) };
            sites.insert(name.clone(), rates);
        }
        Self {
            requests: per_second(requests),
            errors: per_second(errors),
            p50: durations.quantile(0.5),
            p95: durations.quantile(0.95),
            sites,
        }
    }
}
