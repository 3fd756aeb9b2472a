use super::*;
use crate::http::refuse::Fault;
use crate::table::Route;
use crate::table::backend::{Address, Backend};
use crate::table::https::Https;
use crate::table::pattern::Pattern;
use crate::table::site::{self, Instance, Rules};
use std::time::SystemTime;

fn record<'a>(route: Option<&'a str>, backend: Option<&'a Backend>) -> Record<'a> {
    Record {
        time: SystemTime::UNIX_EPOCH,
        client: "192.0.2.7:4711".parse().unwrap(),
        scheme: "http",
        protocol: "HTTP/1.1",
        method: b"GET",
        host: "a.test",
        target: b"/x?secret",
        fields: &[],
        id: "",
        status: 200,
        received: 100,
        sent: 1_000,
        sent_head: 100,
        route,
        is_logged: false,
        backend,
        tries: 1,
        head: Duration::from_millis(1),
        connect: None,
        first_byte: Some(Duration::from_millis(5)),
        total: Duration::from_millis(7),
        closed: None,
        reason: None,
    }
}

fn table(sites: &[(&str, &Arc<Backend>)]) -> Table {
    let mut table = Table::new();
    for (name, backend) in sites {
        let site = site::Site::new(vec![Instance::new(Arc::clone(backend))], Rules::default());
        let action = Action::Forward(Arc::new(site));
        let route = Route { name: (*name).into(), line: 1, action, https: Https::default(), is_logged: true };
        table.add(Arc::new(route), &[Pattern::parse(name).unwrap()]).unwrap();
    }
    table
}

#[test]
fn what_workers_have_counted_comes_together_when_they_hand_it_over() {
    let stats = Stats::default();
    let (one, two) = (Backend::new(Address::Port(8001)), Backend::new(Address::Port(8002)));
    let mut workers = [stats.for_worker(), stats.for_worker()];
    for worker in &mut workers {
        worker.request(&record(Some("a.test"), Some(&one)));
        worker.request(&Record { status: 503, tries: 3, ..record(Some("a.test"), Some(&two)) });
        worker.request(&Record { status: 404, backend: None, ..record(None, None) });
        worker.request(&Record { status: 101, closed: Some(Side::Client), ..record(Some("a.test"), Some(&one)) });
    }
    assert!(stats.totals().sites.is_empty());
    workers.iter_mut().for_each(|worker| worker.flush());
    workers.iter_mut().for_each(|worker| worker.flush());
    let totals = stats.totals();
    let site = &totals.sites["a.test"];
    assert_eq!((site.received, site.sent, site.retries), (600, 6_000, 4));
    assert_eq!(site.pairs["8001"].requests, [0, 2, 0, 0, 0, 2], "and the tunnel");
    assert_eq!(site.pairs["8002"].requests, [0, 0, 0, 0, 2, 0]);
    assert_eq!(site.durations.count(), 4, "tunnels have no duration");
    assert_eq!(site.durations.counts[3], 4, "7 ms are more than 5 and at most 10");
    assert_eq!(site.pairs["8001"].durations.counts[2], 4, "4 ms behind the head");
    assert_eq!(totals.sites[""].pairs[""].requests[3], 2);
    assert_eq!(totals.closed, [("client", 2), ("backend", 0), ("carom", 0)]);
}

#[test]
fn too_many_sites_and_instances_are_counted_together() {
    let stats = Stats::default();
    let mut worker = stats.for_worker();
    for round in 0..3 {
        for number in 0..MOST_SITES + 500 {
            let name = format!("{}.test", number + round * 200);
            worker.request(&record(Some(&name), None));
        }
        worker.flush();
    }
    let totals = stats.totals();
    assert!((MOST_SITES..=MOST_SITES + 1).contains(&totals.sites.len()), "{}", totals.sites.len());
    let all: u64 = totals.sites.values().map(|site| site.pairs[""].requests[1]).sum();
    assert_eq!(all, 4_500, "none is lost");
    assert!(totals.sites["other"].pairs[""].requests[1] > 1_000);

    let stats = Stats::default();
    let mut worker = stats.for_worker();
    for number in 0..MOST_PAIRS + 700 {
        let backend = Backend::new(Address::Name("b.test".into(), u16::try_from(number).unwrap()));
        worker.request(&record(Some("a.test"), Some(&backend)));
        if number % 100 == 0 {
            worker.flush();
        }
    }
    worker.flush();
    let totals = stats.totals();
    let pairs = &totals.sites["a.test"].pairs;
    assert!((MOST_PAIRS..=MOST_PAIRS + 1).contains(&pairs.len()), "{}", pairs.len());
    assert_eq!(pairs.values().map(|pair| pair.requests[1]).sum::<u64>(), 4_700);
    assert!(pairs["other"].requests[1] >= 700);
}

#[test]
fn what_no_table_names_any_more_is_forgotten_after_a_while() {
    let stats = Stats::default();
    let (one, two) = (Backend::new(Address::Port(8001)), Backend::new(Address::Port(8002)));
    let mut worker = stats.for_worker();
    worker.request(&record(Some("a.test"), Some(&one)));
    worker.request(&record(Some("a.test"), Some(&two)));
    worker.request(&record(Some("b.test"), Some(&two)));
    worker.request(&record(None, None));
    worker.flush();
    let begin = Instant::now();
    let at = |minutes: u64| begin + Duration::from_secs(minutes * 60);
    let names = || {
        let mut names: Vec<String> = stats.totals().sites.into_keys().collect();
        names.sort();
        names
    };
    let only_one = table(&[("a.test", &one)]);
    stats.forget(&only_one, at(0));
    stats.forget(&only_one, at(4));
    assert_eq!(names(), ["", "a.test", "b.test"]);
    assert_eq!(stats.totals().sites["a.test"].pairs.len(), 2);
    // One that comes back in time goes on.
    stats.forget(&table(&[("a.test", &one), ("b.test", &two)]), at(4));
    stats.forget(&only_one, at(6));
    assert_eq!(names(), ["", "a.test", "b.test"]);
    assert_eq!(stats.totals().sites["a.test"].pairs.keys().collect::<Vec<_>>(), ["8001"]);
    stats.forget(&only_one, at(12));
    assert_eq!(names(), ["", "a.test"]);
}

#[test]
fn what_goes_wrong_is_counted_by_its_reason() {
    let stats = Stats::new();
    let mut worker = stats.for_worker();
    for (reason, fault) in
        [("backend-refused", Fault::Backend), ("no-route", Fault::Operator), ("no-route", Fault::Operator)]
    {
        worker.request(&Record { status: 502, reason: Some((reason, fault)), ..record(None, None) });
        worker.flush();
    }
    assert_eq!(stats.totals().reasons, BTreeMap::from([("backend-refused", 1), ("no-route", 2)]));
}

#[test]
fn a_quantile_lies_within_its_bucket() {
    let mut histogram = Histogram::default();
    assert_eq!(histogram.quantile(0.5), None);
    for _ in 0..90 {
        histogram.add(Duration::from_micros(800));
    }
    let before = histogram.clone();
    for _ in 0..10 {
        histogram.add(Duration::from_millis(70));
    }
    let quantile = |part| histogram.quantile(part).unwrap();
    assert!(quantile(0.5) <= 0.001 && (0.05..=0.1).contains(&quantile(0.95)), "{}", quantile(0.95));
    assert!((0.05..=0.1).contains(&histogram.since(&before).quantile(0.5).unwrap()));
    histogram.add(Duration::from_secs(100));
    assert!((histogram.quantile(1.0).unwrap() - 60.0).abs() < f64::EPSILON, "longer than can be told");
}
