//! Each policy's shares, as backends see them: many clients, several workers. (What a policy does with one request after the
//! other is tested beside it, in `table::site`.)

use std::sync::Arc;

use crate::support::load::say;
use crate::support::{Carom, Gate, Origin, poll_until, request};

const NAMES: [&str; 3] = ["a", "b", "c"];

/// A carom of several workers, with one site.
fn serving(origins: &[Origin], weights: [u16; 3], balance: &str) -> Carom {
    let to =
        origins.iter().zip(weights).map(|(origin, weight)| format!("{{ to = {}, weight = {weight} }}", origin.port()));
    let to = to.collect::<Vec<_>>().join(", ");
    Carom::serving(format!("[\"a.test\"]\nto = [{to}]\nbalance = {balance}\n")).workers(3).start()
}

/// So many clients at once, each with so many requests, the `n`th of them as `asks` says; gives how many each backend got.
fn shares(carom: &Carom, origins: &[Origin], clients: usize, each: usize, asks: fn(usize) -> String) -> Vec<usize> {
    std::thread::scope(|scope| {
        for client in 0..clients {
            scope.spawn(move || {
                let mut connection = carom.client();
                for index in 0..each {
                    assert_eq!(connection.ask(asks(client * each + index)).status(), 200);
                }
            });
        }
    });
    origins.iter().map(|origin| origin.requests().len()).collect()
}

fn plain(_: usize) -> String {
    request("GET /", "a.test", &[])
}

/// How far counts are from their expectations, all in all: chi-square, with two degrees of freedom. Chance alone exceeds
/// 27.6 once in a million times.
fn distance(counts: &[usize], weights: [u16; 3]) -> f64 {
    let (total, parts) = (counts.iter().sum::<usize>() as f64, f64::from(weights.iter().sum::<u16>()));
    let expected = weights.iter().map(|&weight| total * f64::from(weight) / parts);
    counts.iter().zip(expected).map(|(&count, expected)| (count as f64 - expected).powi(2) / expected).sum()
}

#[test]
fn turns_are_exact_over_all_workers_and_clients() {
    for weights in [[1, 1, 1], [1, 2, 5]] {
        let origins = NAMES.map(Origin::named);
        let carom = serving(&origins, weights, "\"round-robin\"");
        let shares = shares(&carom, &origins, 12, 40, plain);
        say(&format!("shares: round-robin by {weights:?}: {shares:?}"));
        let parts = usize::from(weights.iter().sum::<u16>());
        assert_eq!(shares, weights.map(|weight| 480 * usize::from(weight) / parts));
    }
}

#[test]
fn the_fewest_requests_in_flight_are_exact_by_weight_while_nobody_answers() {
    let gate = Arc::new(Gate::default());
    let held = |name| {
        let gate = Arc::clone(&gate);
        Origin::new(move |conn| {
            while let Some(request) = conn.request() {
                gate.wait();
                conn.answer(name, &request);
            }
        })
    };
    let origins = NAMES.map(held);
    let weights = [1, 2, 3];
    let carom = serving(&origins, weights, "\"least-connections\"");
    let mut clients = Vec::new();
    for index in 1..=18 {
        let mut client = carom.client();
        client.send(plain(0));
        clients.push(client);
        // One after the other: workers that choose at the same moment can't know of each other.
        let arrived = || origins.iter().map(|origin| origin.requests().len()).sum::<usize>();
        poll_until("that it has arrived", || arrived() == index);
    }
    let shares = origins.each_ref().map(|origin| origin.requests().len());
    say(&format!("shares: least-connections by {weights:?}, all in flight: {shares:?}"));
    assert_eq!(shares, [3, 6, 9]);
    gate.open();
    for client in &mut clients {
        assert_eq!(client.response().status(), 200);
    }
}

#[test]
fn where_nothing_is_in_flight_the_fewest_are_taken_in_turn() {
    let origins = NAMES.map(Origin::named);
    let carom = serving(&origins, [1, 1, 1], "\"least-connections\"");
    assert_eq!(shares(&carom, &origins, 1, 60, plain), [20, 20, 20]);
}

#[test]
fn two_at_random_spread_evenly() {
    let origins = NAMES.map(Origin::named);
    let carom = serving(&origins, [1, 1, 1], "\"random-two\"");
    let shares = shares(&carom, &origins, 6, 150, plain);
    let distance = distance(&shares, [1, 1, 1]);
    say(&format!("shares: random-two: {shares:?}, chi-square {distance:.1}"));
    assert!(distance < 27.6, "{shares:?}: {distance}");
}

#[test]
fn keys_are_spread_by_weight_and_each_stays_where_it_is() {
    let origins = NAMES.map(Origin::named);
    let weights = [1, 2, 3];
    let carom = serving(&origins, weights, "{ hash = \"header:X-User\" }");
    let by_key = |index: usize| request("GET /", "a.test", &[&format!("X-User: user-{index}")]);
    let first = shares(&carom, &origins, 6, 150, by_key);
    let distance = distance(&first, weights);
    say(&format!("shares: hash by {weights:?}: {first:?}, chi-square {distance:.1}"));
    assert!(distance < 27.6, "{first:?}: {distance}");
    let both = shares(&carom, &origins, 3, 300, by_key);
    assert_eq!(both, first.iter().map(|count| 2 * count).collect::<Vec<_>>());
}
