//! How much happens a second, from two answers.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::time::Instant;

use carom::ops::control::Status;
use carom::ops::control::status::Site;
use carom::ops::failures::Failure as Failed;
use carom::ops::stats::Histogram;
use serde::Deserialize;

use crate::cli::serve::Failure;
use crate::cli::talk::Talk;

/// As many failures are asked for.
const FAILURES: usize = 100;

/// What a carom has answered, and when.
pub(super) struct Answer {
    pub(super) at: Instant,
    pub(super) status: Status,
    /// The last requests that have failed, the newest first; `None` from a carom that keeps none.
    pub(super) failures: Option<Vec<Failed>>,
}

#[derive(Deserialize)]
struct Failures {
    failures: Vec<Failed>,
}

/// What happens a second.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Rate {
    pub(super) requests: f64,
    /// Those that a backend has failed, or answered with 5xx.
    pub(super) errors: f64,
    /// `None` where there was none, or nobody counts.
    pub(super) took: Option<Took>,
}

/// How long requests took: of a site to their end, of an instance until the first byte of its answer.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Took {
    /// Half of them took no longer than about so many seconds.
    pub(super) p50: f64,
    /// The same of 19 of 20.
    pub(super) p95: f64,
}

/// What happens a second, of whom that is known.
#[derive(Debug, Default)]
pub(super) struct Rates {
    sites: HashMap<String, Rate>,
    /// By the target: what is counted of an instance is counted over all sites.
    instances: HashMap<String, Rate>,
    total: Option<Rate>,
}

/// What has been counted until an answer.
#[derive(Clone)]
struct Counted {
    requests: u64,
    errors: u64,
    took: Option<Histogram>,
}

impl Took {
    pub(super) fn of(histogram: &Histogram) -> Option<Self> {
        Some(Self { p50: histogram.quantile(0.5)?, p95: histogram.quantile(0.95)? })
    }
}

impl Answer {
    pub(super) fn of(carom: &Talk) -> Result<Self, Failure> {
        let status = carom.get("/v1/status")?;
        let failures = carom.get(&format!("/v1/failures?n={FAILURES}"));
        let failures = failures.ok().map(|Failures { failures }| failures);
        Ok(Self { at: Instant::now(), status, failures })
    }
}

impl Rates {
    /// What has happened a second between two answers. Nothing is known where counting has begun again meanwhile.
    pub(super) fn between(before: &Answer, after: &Answer) -> Self {
        let seconds = after.at.saturating_duration_since(before.at).as_secs_f64();
        if before.status.process != after.status.process || seconds <= 0.0 {
            return Self::default();
        }
        let sites = each(&sites(&before.status), &sites(&after.status), seconds);
        let total = sites.values().copied().reduce(|a, b| Rate {
            requests: a.requests + b.requests,
            errors: a.errors + b.errors,
            took: None,
        });
        let instances = each(&instances(&before.status), &instances(&after.status), seconds);
        Self { sites, instances, total }
    }

    pub(super) fn of_site(&self, name: &str) -> Option<Rate> {
        self.sites.get(name).copied()
    }

    pub(super) fn of_instance(&self, name: &str) -> Option<Rate> {
        self.instances.get(name).copied()
    }

    /// Of all sites together.
    pub(super) fn total(&self) -> Option<Rate> {
        self.total
    }
}

fn sites(status: &Status) -> HashMap<&String, Counted> {
    let counted = |site: &Site| Counted {
        requests: site.ended.total(),
        errors: site.ended.bad(),
        took: site.took.as_ref().map(Histogram::from),
    };
    status.sites.iter().map(|site| (&site.name, counted(site))).collect()
}

/// What is counted of one over all sites is the same at each; how long it took is counted for each.
fn instances(status: &Status) -> HashMap<&String, Counted> {
    let mut all = HashMap::<_, Counted>::new();
    for one in status.sites.iter().flat_map(|site| &site.instances) {
        let took = one.took.as_ref().map(Histogram::from);
        match all.entry(&one.name) {
            Entry::Vacant(entry) => {
                entry.insert(Counted { requests: one.requests, errors: one.ended.bad(), took });
            }
            Entry::Occupied(mut entry) => {
                if let (Some(all), Some(more)) = (&mut entry.get_mut().took, &took) {
                    all.absorb(more);
                }
            }
        }
    }
    all
}

fn each(before: &HashMap<&String, Counted>, after: &HashMap<&String, Counted>, seconds: f64) -> HashMap<String, Rate> {
    let known = after.iter().filter_map(|(name, after)| {
        let before = before.get(*name)?;
        // Fewer than before: it went and came again.
        let requests = after.requests.checked_sub(before.requests)?;
        let errors = after.errors.checked_sub(before.errors)?;
        let took = after.took.as_ref().zip(before.took.as_ref());
        let rate = Rate {
            requests: a_second(requests, seconds),
            errors: a_second(errors, seconds),
            took: took.and_then(|(after, before)| Took::of(&after.since(before))),
        };
        Some(((*name).clone(), rate))
    });
    known.collect()
}

#[allow(clippy::cast_precision_loss, reason = "it is shown with three digits")]
fn a_second(count: u64, seconds: f64) -> f64 {
    count as f64 / seconds
}

/// Requests and tunnels that are with all instances. One that serves two sites is counted once.
pub(super) fn in_flight(status: &Status) -> usize {
    let all: HashMap<&String, usize> =
        status.sites.iter().flat_map(|site| &site.instances).map(|one| (&one.name, one.in_flight)).collect();
    all.values().sum()
}

#[cfg(test)]
pub(super) mod tests {
    use std::time::Duration;

    use serde_json::json;

    use super::*;

    /// An answer: a busy site of two instances, and one that is idle.
    pub(in crate::cli::top) fn answer(at: Instant, served: u64, failed: u64) -> Answer {
        let took = |bound: f64, count: u64| json!({ "count": count, "sum_seconds": 0.5, "within": [[bound, count]] });
        let instance = |name: &str, requests: u64, failed: u64, state: &str| {
            json!({
                "name": name, "state": state, "in_flight": 2, "requests": requests, "weight": 1, "backup": false,
                "ended": { "success": requests - failed, "failed": failed }, "took": took(0.001, requests - failed),
                "why": (state != "up").then_some("backend-refused"), "back": (state != "up").then_some("a good answer"),
            })
        };
        let site = |name: &str, ended: serde_json::Value, instances: Vec<serde_json::Value>| {
            json!({
                "name": name, "also": [], "line": 1, "passthrough": false, "waiting": 1, "ended": ended,
                "took": took(0.005, ended["success"].as_u64().unwrap_or_default()), "instances": instances,
            })
        };
        let status = json!({
            "version": "0.1.0", "process": 7, "started": "2026-01-01T00:00:00Z", "uptime_seconds": 3700,
            "listening": ["http://127.0.0.1:80"], "connections": 3, "most_connections": 1000, "more_sites": 0,
            "routes": { "path": "/etc/carom/routes.toml", "applied": "2026-01-01T00:00:00Z" }, "certificates": [],
            "sites": [
                site("idle.test", json!({}), vec![instance("8009", 0, 0, "up")]),
                site(
                    "busy.test",
                    json!({ "success": served, "server_error": failed }),
                    vec![instance("8001", served, 0, "up"), instance("8002", failed, failed, "down")],
                ),
            ],
        });
        let failures = json!([{
            "number": 1, "time": "2026-01-01T12:01:02.345Z", "id": "", "client": "127.0.0.1:4711", "scheme": "http",
            "protocol": "HTTP/1.1", "method": "GET", "host": "busy.test", "path": "/x", "status": 502,
            "reason": "backend-refused", "fault": "backend", "route": "busy.test", "backend": "8002", "tries": 1,
            "received": 40, "sent": 200, "total_ms": 1.5,
        }]);
        Answer {
            at,
            status: serde_json::from_value(status).unwrap(),
            failures: Some(serde_json::from_value(failures).unwrap()),
        }
    }

    #[test]
    fn a_rate_is_what_has_come_between_two_answers_by_the_time_between_them() {
        let now = Instant::now();
        let (before, after) = (answer(now, 100, 0), answer(now + Duration::from_secs(2), 150, 3));
        let rates = Rates::between(&before, &after);
        let told = |rate: Option<Rate>| {
            let rate = rate.unwrap();
            (
                rate.requests,
                rate.errors,
                rate.took.map(|took| [took.p50, took.p95].map(|seconds| (seconds * 1e6).round())),
            )
        };
        assert_eq!(told(rates.of_site("busy.test")), (26.5, 1.5, Some([3_750.0, 4_875.0])));
        assert_eq!(told(rates.of_site("idle.test")), (0.0, 0.0, None));
        assert_eq!(told(rates.of_instance("8001")), (25.0, 0.0, Some([500.0, 950.0])));
        assert_eq!(told(rates.total()), (26.5, 1.5, None));
    }

    #[test]
    fn nothing_is_said_of_what_has_been_counted_anew() {
        let now = Instant::now();
        let (before, mut after) = (answer(now, 100, 0), answer(now + Duration::from_secs(1), 50, 0));
        let rates = Rates::between(&before, &after);
        assert_eq!((rates.of_site("busy.test"), rates.of_instance("8001")), (None, None));
        assert_eq!(rates.of_site("idle.test"), Some(Rate::default()));
        after.status.process += 1;
        assert_eq!(Rates::between(&before, &after).of_site("idle.test"), None);
        assert_eq!(Rates::between(&before, &before).total(), None);
    }
}
