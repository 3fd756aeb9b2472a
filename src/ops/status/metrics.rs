//! `/metrics`: everything that is counted, in the text formats of OpenMetrics and Prometheus.
//!
//! The client library writes them: quoting, suffixes and the difference between the two formats are its business. What there
//! is, is put together anew for each scrape, so there are no series of what is no more.

use std::collections::HashSet;
use std::fmt;
use std::time::SystemTime;

use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeCounterValue, EncodeGaugeValue, prometheus_text, text};
use prometheus_client::metrics::MetricType;
use prometheus_client::registry::{Registry, Unit};

use super::process::Process;
use crate::ops::control::status::{Status, Word};
use crate::ops::control::{Reloads, RoutesFile, Served};
use crate::ops::stats::{BOUNDS, CLASSES, Histogram, MOST_PAIRS, Totals, seconds};

/// Certificates that are told of, those that end first.
const MOST_CERTIFICATES: usize = 1_000;

/// The two formats.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Format {
    OpenMetrics,
    /// Version 0.0.4: what people, and old programs, can read.
    Prometheus,
}

impl Format {
    /// What an `Accept` asks for.
    pub(super) fn of(accept: &str) -> Self {
        if accept.contains("application/openmetrics-text") { Self::OpenMetrics } else { Self::Prometheus }
    }

    pub(super) fn content_type(self) -> &'static str {
        match self {
            Self::OpenMetrics => "application/openmetrics-text; version=1.0.0; charset=utf-8",
            Self::Prometheus => prometheus_text::CONTENT_TYPE,
        }
    }
}

/// What is told of, as it is now.
#[derive(Debug)]
pub(super) struct Seen {
    status: Status,
    totals: Totals,
    file: RoutesFile,
    /// The first name of each, and when it ends.
    certificates: Vec<(String, SystemTime)>,
    tunnels: usize,
    idle: usize,
    started: SystemTime,
    process: Process,
}

impl Seen {
    /// Looks at everything.
    pub(super) fn now(served: &Served, status: Status, totals: Totals, started: SystemTime) -> Self {
        let table = served.routes.current();
        let mut certificates: Vec<_> = table
            .certificates()
            .shown()
            .filter_map(|one| Some((one.names().first()?.to_string(), one.not_after())))
            .collect();
        certificates.sort_by_key(|(_, ends)| *ends);
        let mut names = HashSet::new();
        certificates.retain(|(name, _)| names.insert(name.clone()));
        certificates.truncate(MOST_CERTIFICATES);
        Self {
            status,
            totals,
            file: served.file.borrow().clone(),
            certificates,
            tunnels: served.doors.tunnels(),
            idle: served.doors.idle(),
            started,
            process: Process::now(),
        }
    }

    /// All of it as text.
    pub(super) fn written(self, format: Format) -> Result<String, fmt::Error> {
        let mut registry = Registry::default();
        registry.register_collector(Box::new(self));
        let mut out = String::new();
        match format {
            Format::OpenMetrics => text::encode(&mut out, &registry)?,
            Format::Prometheus => prometheus_text::encode(&mut out, &registry)?,
        }
        Ok(out)
    }

    fn requests(&self, to: &mut Writer<'_>) -> fmt::Result {
        let sites = &self.totals.sites;
        let help = "Requests that are over, by the class of the status that the client got";
        to.counters("carom_requests", help, None, |add| {
            for (site, sums) in sites {
                for (backend, pair) in &sums.pairs {
                    for (class, &count) in CLASSES.iter().zip(&pair.requests).filter(|(_, count)| **count > 0) {
                        add(&[("site", site), ("backend", backend), ("class", class)], count)?;
                    }
                }
            }
            Ok(())
        })?;
        let help = "From a request's first byte to the answer's last; tunnels not counted";
        to.histograms("carom_request_duration", help, |add| {
            sites.iter().try_for_each(|(site, sums)| add(&[("site", site)], &sums.durations))
        })?;
        let help = "From the end of a request's head to the backend's first byte";
        to.histograms("carom_backend_duration", help, |add| {
            for (site, sums) in sites {
                for (backend, pair) in sums.pairs.iter().filter(|(backend, _)| !backend.is_empty()) {
                    add(&[("site", site), ("backend", backend)], &pair.durations)?;
                }
            }
            Ok(())
        })?;
        to.counters("carom", "Bytes from clients (in) and to them (out)", Some(&Unit::Bytes), |add| {
            for (site, sums) in sites {
                add(&[("site", site), ("direction", "in")], sums.received)?;
                add(&[("site", site), ("direction", "out")], sums.sent)?;
            }
            Ok(())
        })?;
        to.counters("carom_retries", "Tries of requests beyond their first", None, |add| {
            sites.iter().try_for_each(|(site, sums)| add(&[("site", site)], sums.retries))
        })?;
        let help = "Requests that were refused or have failed, by reason code";
        to.counters("carom_refusals", help, None, |add| {
            self.totals.reasons.iter().try_for_each(|(reason, count)| add(&[("reason", reason)], *count))
        })?;
        to.counters("carom_closed", "Connections that ended with a request, by who has closed", None, |add| {
            let closed = self.totals.closed.iter().filter(|(side, _)| !side.is_empty());
            closed.into_iter().try_for_each(|(side, count)| add(&[("by", side)], *count))
        })
    }

    fn sites(&self, to: &mut Writer<'_>) -> fmt::Result {
        let help = "1: the instance gets requests; 0: it is down, put aside, or drained";
        to.gauges("carom_backend_up", help, None, |add| {
            self.instances(|site, instance| {
                let up = u32::from(instance.state == Word::Up);
                add(&[("site", site), ("backend", &instance.name)], up)
            })
        })?;
        let help = "Requests and tunnels that are with the instance now, by whichever site";
        to.gauges("carom_backend_in_flight", help, None, |add| {
            self.instances(|site, instance| add(&[("site", site), ("backend", &instance.name)], instance.in_flight))
        })?;
        to.gauges("carom_waiting", "Requests that wait for an instance of the site", None, |add| {
            let sites = self.status.sites.iter().take(MOST_PAIRS);
            sites.into_iter().try_for_each(|site| add(&[("site", &site.name)], site.waiting))
        })
    }

    /// Each instance of each site, once, as far as there are not too many.
    fn instances(
        &self,
        mut see: impl FnMut(&str, &crate::ops::control::status::Instance) -> fmt::Result,
    ) -> fmt::Result {
        let all = self.status.sites.iter().flat_map(|site| {
            let mut names = HashSet::new();
            let once = site.instances.iter().filter(move |instance| names.insert(&instance.name));
            once.map(|instance| (&*site.name, instance))
        });
        all.take(MOST_PAIRS).try_for_each(|(site, instance)| see(site, instance))
    }

    fn whole(&self, to: &mut Writer<'_>) -> fmt::Result {
        to.gauge(
            "carom_connections",
            "Clients that are connected, HTTP/2 requests beyond the first included",
            self.status.connections,
        )?;
        to.gauge("carom_connections_limit", "As many as may be", self.status.most_connections)?;
        to.gauge("carom_tunnels", "Upgraded and passed-through connections now", self.tunnels)?;
        to.gauge("carom_backend_idle_connections", "Connections to backends that wait for a request", self.idle)?;
        let Reloads { applied, refused } = self.file.reloads;
        to.counters("carom_reloads", "Readings of the routes file since the start", None, |add| {
            add(&[("result", "applied")], applied)?;
            add(&[("result", "refused")], refused)
        })?;
        let (seconds, help) = (Some(&Unit::Seconds), "When the routes file was last applied, since 1970");
        to.gauges("carom_reload_timestamp", help, seconds, |add| add(&[], since_1970(self.file.applied)))?;
        let help = "1: what stands in the routes file is what runs; 0: it can't be applied";
        to.gauge("carom_routes_current", help, usize::from(self.file.broken.is_none()))?;
        let help = "When a certificate that is shown ends, since 1970, by the first of its names";
        to.gauges("carom_certificate_expiry_timestamp", help, seconds, |add| {
            let certificates = &self.certificates;
            certificates.iter().try_for_each(|(name, ends)| add(&[("name", name)], since_1970(*ends)))
        })?;
        to.gauges("carom_build_info", "The version that runs", None, |add| add(&[("version", &self.status.version)], 1))
    }

    fn process(&self, to: &mut Writer<'_>) -> fmt::Result {
        let seconds = Some(&Unit::Seconds);
        let Process { cpu, resident, virtual_, descriptors, most_descriptors } = self.process;
        if let Some(cpu) = cpu {
            to.counters("process_cpu", "CPU time used", seconds, |add| add(&[], cpu))?;
        }
        let bytes = Some(&Unit::Bytes);
        for (name, help, value) in [
            ("process_resident_memory", "Memory that is resident", resident),
            ("process_virtual_memory", "Address space", virtual_),
        ] {
            if let Some(value) = value {
                to.gauges(name, help, bytes, |add| add(&[], value))?;
            }
        }
        for (name, help, value) in [
            ("process_open_fds", "Open descriptors", descriptors),
            ("process_max_fds", "As many as may be", most_descriptors),
        ] {
            if let Some(value) = value {
                to.gauges(name, help, None, |add| add(&[], value))?;
            }
        }
        to.gauges("process_start_time", "When it began, since 1970", seconds, |add| add(&[], since_1970(self.started)))
    }
}

impl Collector for Seen {
    fn encode(&self, encoder: DescriptorEncoder<'_>) -> fmt::Result {
        let to = &mut Writer(encoder);
        self.requests(to)?;
        self.sites(to)?;
        self.whole(to)?;
        self.process(to)
    }
}

/// Whole seconds.
fn since_1970(time: SystemTime) -> u64 {
    time.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default().as_secs()
}

type Labels<'a> = &'a [(&'a str, &'a str)];

/// Writes one metric after the other. Each `fill` is given what adds a series.
struct Writer<'a>(DescriptorEncoder<'a>);

impl Writer<'_> {
    fn counters<V: EncodeCounterValue>(
        &mut self,
        name: &str,
        help: &str,
        unit: Option<&Unit>,
        fill: impl FnOnce(&mut dyn FnMut(Labels<'_>, V) -> fmt::Result) -> fmt::Result,
    ) -> fmt::Result {
        let mut metric = self.0.encode_descriptor(name, help, unit, MetricType::Counter)?;
        fill(&mut |labels, value| {
            metric.encode_family(&labels)?.encode_counter::<[(&str, &str); 0], V, f64>(&value, None)
        })
    }

    fn gauges<V: EncodeGaugeValue>(
        &mut self,
        name: &str,
        help: &str,
        unit: Option<&Unit>,
        fill: impl FnOnce(&mut dyn FnMut(Labels<'_>, V) -> fmt::Result) -> fmt::Result,
    ) -> fmt::Result {
        let mut metric = self.0.encode_descriptor(name, help, unit, MetricType::Gauge)?;
        fill(&mut |labels, value| metric.encode_family(&labels)?.encode_gauge(&value))
    }

    fn gauge(&mut self, name: &str, help: &str, value: usize) -> fmt::Result {
        self.gauges(name, help, None, |add| add(&[], value))
    }

    /// In seconds.
    fn histograms(
        &mut self,
        name: &str,
        help: &str,
        fill: impl FnOnce(&mut dyn FnMut(Labels<'_>, &Histogram) -> fmt::Result) -> fmt::Result,
    ) -> fmt::Result {
        let mut metric = self.0.encode_descriptor(name, help, Some(&Unit::Seconds), MetricType::Histogram)?;
        fill(&mut |labels, histogram| {
            let Histogram { counts, sum } = histogram;
            let bounds = BOUNDS.iter().map(|&micros| seconds(micros)).chain([f64::INFINITY]);
            let buckets: Vec<(f64, u64)> = bounds.zip(counts.iter().copied()).collect();
            let mut series = metric.encode_family(&labels)?;
            series.encode_histogram::<[(&str, &str); 0]>(sum.as_secs_f64(), histogram.count(), &buckets, None)
        })
    }
}
