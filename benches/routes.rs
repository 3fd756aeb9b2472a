//! What a large routing table costs: a look-up, a load, and the requests that run meanwhile; and what a closure does.
//!
//! `cargo bench --bench routes` prints figures and ratios; `-- --quick` takes a few seconds and says the same roughly.
//! It fails only where a figure is of another order than it should be; everything finer is for people to read.

#![expect(clippy::expect_used, reason = "a benchmark that can't run has nothing else to say")]

use std::hint::black_box;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use carom::bounce::Routes;
use carom::config::routes::parse;
use carom::config::watch::give_way;
use carom::http::host::Host;
use carom::table::Table;
use carom::{Bounce, Head, Proxy};

fn main() {
    let quick = std::env::args().any(|argument| argument == "--quick");
    let rounds = if quick { 3 } else { 11 };
    println!("look-ups (ns each, median of {rounds} rounds; half exact, a quarter by wildcard, a quarter unknown)");
    let sizes = if quick { vec![10, 100_000] } else { vec![10, 1_000, 100_000, 1_000_000] };
    let cost: Vec<f64> = sizes.iter().map(|&size| lookups(size, rounds)).collect();
    for (size, each) in sizes.iter().zip(&cost) {
        println!("{size:>10} hosts {each:>8.1}   × 10 hosts {:.2}", each / cost[0]);
    }
    println!("\nloading 100,000 hosts (ms, median of {rounds} rounds)");
    println!("{:>16} {:>8.1}", "parse and check", loading(100_000, rounds));
    println!("\nrequests on one connection (µs)   p50      p99      max     requests");
    let seconds = Duration::from_secs(if quick { 1 } else { 5 });
    let few = serving("10 hosts", 10, By::Table, seconds);
    let closure = serving("a closure", 10, By::Closure, seconds);
    let many = serving("100,000 hosts", 100_000, By::Table, seconds);
    let swapped = serving("100,000 hosts, loaded and swapped all the while", 100_000, By::SwappedTable, seconds);
    let [closure, many, swapped] = [closure, many, swapped].map(|p50| p50 / few);
    println!("p50 × 10 hosts: {closure:.2} by a closure, {many:.2} with 100,000, {swapped:.2} while they are swapped");
    // A cache miss more is allowed for; a scan is not.
    let flat = cost.iter().all(|each| each / cost[0] < 50.0);
    assert!(flat, "a look-up's cost grows with the table");
}

fn file(hosts: usize, port: u16) -> String {
    let mut text = String::with_capacity(hosts * 40);
    for host in 0..hosts.max(4) {
        match host % 4 {
            3 => text.push_str(&format!("\"*.zone{host}.example.com\" = {port}\n")),
            _ => text.push_str(&format!("\"host{host}.example.com\" = {port}\n")),
        }
    }
    text
}

fn table(text: &str) -> Table {
    parse(Path::new("routes.toml"), text.as_bytes(), &[], None).unwrap_or_else(|report| panic!("{report}"))
}

/// Nanoseconds for one look-up.
fn lookups(hosts: usize, rounds: usize) -> f64 {
    let table = table(&file(hosts, 8001));
    let step = (hosts / 64).max(1) | 1;
    let asked: Vec<Host> = (0..64)
        .map(|n| n * step % hosts.max(1))
        .enumerate()
        .map(|(n, host)| match n % 4 {
            0 | 1 => format!("host{}.example.com", host / 4 * 4),
            2 => format!("a.b.zone{}.example.com", host / 4 * 4 + 3),
            _ => format!("host{host}.example.net"),
        })
        .map(|name| Host::parse(name.as_bytes()).unwrap_or_else(|bad| panic!("{name}: {}", bad.0)))
        .collect();
    let found = asked.iter().filter(|host| table.find(Some(host), b"/").is_some()).count();
    assert!(found >= 32, "{found} of 64 found");
    let mut costs: Vec<f64> = (0..rounds)
        .map(|_| {
            let begun = Instant::now();
            for _ in 0..2_000 {
                for host in &asked {
                    black_box(table.find(Some(black_box(host)), b"/x/y"));
                }
            }
            begun.elapsed().as_nanos() as f64 / (2_000.0 * 64.0)
        })
        .collect();
    median(&mut costs)
}

fn loading(hosts: usize, rounds: usize) -> f64 {
    let text = file(hosts, 8001);
    let mut costs: Vec<f64> = (0..rounds)
        .map(|_| {
            let begun = Instant::now();
            let table = table(&text);
            let cost = begun.elapsed().as_secs_f64() * 1e3;
            assert_eq!(table.routes().len(), hosts);
            cost
        })
        .collect();
    median(&mut costs)
}

/// Who decides, and whether that changes all the while.
enum By {
    Table,
    SwappedTable,
    Closure,
}

/// Asks for one host over and over; prints how long that took and gives the median.
fn serving(what: &str, hosts: usize, by: By, time: Duration) -> f64 {
    let backend = backend();
    let text = file(hosts, backend.port());
    let routes = Routes::new(table(&text));
    let builder = Proxy::builder().listen("127.0.0.1:0").workers(1);
    let builder = match by {
        By::Closure => builder.decide(async move |head: &Head<'_>, bounce: Bounce| match head.host() {
            Some(host) if host == "host0.example.com" => bounce.to(backend),
            _ => bounce,
        }),
        By::Table | By::SwappedTable => builder.decide(routes.clone()),
    };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    let proxy = runtime.block_on(builder.bind()).unwrap_or_else(|error| panic!("{error}"));
    let address = proxy.addresses()[0];
    let (stop, stopped) = tokio::sync::oneshot::channel::<()>();
    let serving = thread::spawn(move || {
        runtime.block_on(proxy.run_until(async {
            let _ = stopped.await;
        }))
    });
    let over = Arc::new(AtomicBool::new(false));
    let swapping = matches!(by, By::SwappedTable).then(|| {
        let over = Arc::clone(&over);
        thread::spawn(move || {
            // As `carom serve` does it.
            give_way();
            let mut swaps = 0;
            while !over.load(Ordering::Relaxed) {
                let running = routes.current();
                let next = parse(Path::new("routes.toml"), text.as_bytes(), &[], Some(&running));
                routes.publish(next.unwrap_or_else(|report| panic!("{report}")));
                swaps += 1;
            }
            swaps
        })
    });
    let mut times = ask(address, time);
    over.store(true, Ordering::Relaxed);
    let swaps = swapping.map_or(0, |thread| thread.join().unwrap_or(0));
    let _ = stop.send(());
    serving.join().expect("the proxy's thread").expect("the proxy");
    times.sort_by(f64::total_cmp);
    let at = |percent: usize| times[(times.len() - 1) * percent / 100];
    let swaps = if swaps > 0 { format!(" ({swaps} times)") } else { String::new() };
    println!("{:>10.1} {:>8.1} {:>8.1} {:>12}   {what}{swaps}", at(50), at(99), at(100), times.len());
    at(50)
}

/// Microseconds of each request.
fn ask(address: SocketAddr, time: Duration) -> Vec<f64> {
    let mut client = TcpStream::connect(address).expect("the proxy listens");
    client.set_nodelay(true).expect("a TCP socket");
    let mut answer = [0; 1024];
    let mut times = Vec::new();
    let until = Instant::now() + time;
    while Instant::now() < until {
        let begun = Instant::now();
        client.write_all(b"GET / HTTP/1.1\r\nHost: host0.example.com\r\n\r\n").expect("the proxy reads");
        let count = client.read(&mut answer).expect("the proxy answers");
        assert!(answer[..count].starts_with(b"HTTP/1.1 200 "), "{}", answer[..count].escape_ascii());
        times.push(begun.elapsed().as_secs_f64() * 1e6);
    }
    times
}

/// A backend that says the same to everything, on a thread for each connection, for as long as the process lives.
fn backend() -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let address = listener.local_addr().expect("a bound socket");
    thread::spawn(move || {
        for mut client in listener.incoming().flatten() {
            thread::spawn(move || {
                let _ = client.set_nodelay(true);
                let mut request = [0; 4096];
                while let Ok(1..) = client.read(&mut request) {
                    if client.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\nok\n").is_err() {
                        break;
                    }
                }
            });
        }
    });
    address
}

fn median(values: &mut [f64]) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}
