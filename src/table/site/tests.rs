use super::*;
use crate::table::backend::Address;
use crate::table::balance::By;
use crate::table::health::{Check, Probe};

fn site(weights: &[(u16, bool)], balance: Balance) -> Site {
    let instances = weights
        .iter()
        .zip(8001..)
        .map(|(&(weight, backup), port)| Instance {
            weight,
            backup,
            ..Instance::new(Backend::new(Address::Port(port)))
        })
        .collect();
    Site::new(instances, Rules { balance, ..Rules::default() })
}

/// Who is picked; the claim is given back at once.
fn pick<'a>(site: &'a Site, tried: &mut Tried, key: u64, now: u64) -> Option<&'a Instance> {
    match site.pick(tried, key, now) {
        Pick::One(claim) => site.instances().iter().find(|one| Arc::ptr_eq(&one.backend, claim.backend())),
        Pick::Busy | Pick::None => None,
    }
}

fn ports(site: &Site, turns: usize) -> Vec<u16> {
    (0..turns)
        .map(|_| match pick(site, &mut Tried::default(), 0, 0).unwrap().backend.address() {
            Address::Port(port) => *port - 8000,
            _ => unreachable!(),
        })
        .collect()
}

#[test]
fn equal_instances_take_exact_turns_in_the_files_order() {
    assert_eq!(ports(&site(&[(1, false); 3], Balance::RoundRobin), 7), [1, 2, 3, 1, 2, 3, 1]);
    assert_eq!(ports(&site(&[(7, false); 2], Balance::RoundRobin), 4), [1, 2, 1, 2]);
}

#[test]
fn weights_are_exact_and_spread() {
    assert_eq!(ports(&site(&[(5, false), (1, false), (1, false)], Balance::RoundRobin), 7), [1, 1, 2, 1, 3, 1, 1]);
    assert_eq!(ports(&site(&[(2, false), (1, false)], Balance::RoundRobin), 6), [1, 2, 1, 1, 2, 1]);
}

#[test]
fn a_request_tries_each_instance_once_and_backups_last() {
    let site = site(&[(1, true), (1, false), (3, false)], Balance::RoundRobin);
    let mut tried = Tried::default();
    let mut order = Vec::new();
    while let Some(instance) = pick(&site, &mut tried, 0, 0) {
        order.push(instance.backup);
    }
    assert_eq!(order, [false, false, true]);
    assert_eq!(tried.count(), 3);
}

#[test]
fn a_drained_instance_gets_nothing_even_where_nobody_else_is_there() {
    let two = site(&[(1, false), (1, false)], Balance::RoundRobin);
    assert!(!two.instances()[0].duty.drain(true));
    assert_eq!(ports(&two, 3), [2, 2, 2]);
    // A save that changes the site leaves it so.
    let instances = two.instances().iter().cloned().map(|i| Instance { duty: Arc::default(), ..i }).collect();
    let saved = Site::new(instances, Rules::default()).instead_of(&two);
    assert_eq!(ports(&saved, 3), [2, 2, 2]);
    assert!(saved.instances()[0].duty.drain(false));
    assert_eq!(ports(&saved, 2), [1, 2]);
    let one = site(&[(1, false)], Balance::RoundRobin);
    one.instances()[0].duty.drain(true);
    assert!(pick(&one, &mut Tried::default(), 0, 0).is_none());
}

#[test]
fn a_site_of_backups_only_still_serves() {
    let site = site(&[(1, true), (1, true)], Balance::RoundRobin);
    assert!(pick(&site, &mut Tried::default(), 0, 0).is_some());
}

#[test]
fn least_connections_passes_by_the_busy_one() {
    let site = site(&[(1, false), (1, false)], Balance::LeastConnections);
    let busy = site.instances()[0].backend.claim();
    assert_eq!(ports(&site, 4), [2, 2, 2, 2]);
    drop(busy);
    assert_eq!(ports(&site, 4), [1, 2, 1, 2]);
}

fn chosen(site: &Site, key: u64, tried: &mut Tried) -> u16 {
    let instance = pick(site, tried, key, 0).unwrap();
    match instance.backend.address() {
        Address::Port(port) => *port - 8000,
        _ => unreachable!(),
    }
}

/// How often each instance is chosen, by so many keys.
fn shares(site: &Site, keys: u64) -> Vec<u64> {
    let mut shares = vec![0; site.instances().len()];
    for key in 0..keys {
        let port = chosen(site, balance::hash(&key.to_le_bytes()), &mut Tried::default());
        shares[usize::from(port) - 1] += 1;
    }
    shares
}

/// Whether counts are as expected: 16.3 is what chi-square exceeds once in a thousand with three degrees of freedom.
fn fits(counts: &[u64], weights: &[u64]) -> bool {
    let (total, parts) = (counts.iter().sum::<u64>() as f64, weights.iter().sum::<u64>() as f64);
    let expected = weights.iter().map(|&weight| total * weight as f64 / parts);
    counts.iter().zip(expected).map(|(&count, e)| (count as f64 - e).powi(2) / e).sum::<f64>() < 16.3
}

#[test]
fn keys_are_spread_by_weight() {
    let by = Balance::Hash(By::Client);
    assert!(fits(&shares(&site(&[(1, false); 4], by.clone()), 20_000), &[1, 1, 1, 1]));
    assert!(fits(&shares(&site(&[(1, false), (2, false), (5, false)], by.clone()), 20_000), &[1, 2, 5]));
    assert!(!fits(&shares(&site(&[(1, false); 4], by), 20_000), &[2, 1, 1, 1]), "the test tells them apart");
}

#[test]
fn an_instance_that_comes_takes_its_share_and_moves_nobody_else() {
    let four = site(&[(1, false); 4], Balance::Hash(By::Client));
    let five = site(&[(1, false); 5], Balance::Hash(By::Client));
    let mut moved = 0;
    for key in 0..10_000_u64 {
        let key = balance::hash(&key.to_le_bytes());
        let before = chosen(&four, key, &mut Tried::default());
        let after = chosen(&five, key, &mut Tried::default());
        assert!(after == before || after == 5, "{before} → {after}");
        moved += u64::from(after != before);
    }
    assert!((1_800..2_200).contains(&moved), "{moved} of 10,000");
}

#[test]
fn a_key_whose_instance_fails_goes_to_the_next_nearest_and_to_backups_last() {
    let site = site(&[(1, false), (1, false), (1, true)], Balance::Hash(By::Client));
    for key in 0..50 {
        let mut tried = Tried::default();
        let order: Vec<u16> = (0..3).map(|_| chosen(&site, key, &mut tried)).collect();
        assert!(order[0] != order[1] && order[2] == 3, "{order:?}");
        assert!(pick(&site, &mut tried, key, 0).is_none());
    }
}

#[test]
fn of_two_at_random_the_less_busy_one_serves() {
    let even = site(&[(1, false); 4], Balance::RandomTwo);
    assert!(fits(&shares(&even, 20_000), &[1, 1, 1, 1]));
    // Of six pairs of four, three have the busy one, which then never serves.
    let _busy: Vec<_> = (0..10).map(|_| even.instances()[0].backend.claim()).collect();
    let shares = shares(&even, 20_000);
    assert_eq!(shares[0], 0);
    assert!(fits(&shares[1..], &[1, 1, 1]), "{shares:?}");
}

#[test]
fn two_at_random_are_each_tried_once() {
    let site = site(&[(3, false), (1, false), (2, false), (1, true)], Balance::RandomTwo);
    for _ in 0..50 {
        let mut tried = Tried::default();
        let mut order: Vec<u16> = (0..4).map(|_| chosen(&site, 0, &mut tried)).collect();
        assert_eq!(order.pop(), Some(4));
        order.sort_unstable();
        assert_eq!(order, [1, 2, 3]);
    }
}

fn put_aside(site: &Site, index: usize) {
    for _ in 0..3 {
        site.instances()[index].backend.standing().failed(1);
    }
}

#[test]
fn turns_stay_exact_when_one_is_aside() {
    let site = site(&[(1, false); 3], Balance::RoundRobin);
    put_aside(&site, 1);
    let ports: Vec<u16> = (0..6)
        .map(|_| match pick(&site, &mut Tried::default(), 0, 2).unwrap().backend.address() {
            Address::Port(port) => *port - 8000,
            _ => unreachable!(),
        })
        .collect();
    assert_eq!(ports, [1, 3, 1, 3, 1, 3]);
}

#[test]
fn backups_serve_when_no_other_is_up_and_who_is_aside_when_nobody_is() {
    for balance in [Balance::RoundRobin, Balance::LeastConnections, Balance::RandomTwo, Balance::Hash(By::Client)] {
        let site = site(&[(1, false), (1, false), (1, true)], balance);
        put_aside(&site, 0);
        put_aside(&site, 1);
        let mut tried = Tried::default();
        let mut order = Vec::new();
        while let Some(instance) = pick(&site, &mut tried, 0, 2) {
            order.push(instance.backup);
        }
        assert_eq!(order, [true, false, false]);
        put_aside(&site, 2);
        assert!(!pick(&site, &mut Tried::default(), 0, 2).unwrap().backup);
    }
}

/// Two instances, each with room for one, that are chosen in this way.
fn narrow(balance: Balance) -> Site {
    let instances = site(&[(1, false), (1, false), (1, true)], Balance::RoundRobin).instances().to_vec();
    let narrowed = instances.into_iter().map(|instance| Instance { max_connections: Some(1), ..instance });
    Site::new(narrowed.collect(), Rules { balance, ..Rules::default() })
}

#[test]
fn who_is_full_is_passed_over_and_backups_are_not_for_that() {
    for balance in [Balance::RoundRobin, Balance::LeastConnections, Balance::RandomTwo, Balance::Hash(By::Client)] {
        let site = narrow(balance);
        let mut claims = Vec::new();
        for _ in 0..2 {
            match site.pick(&mut Tried::default(), 7, 0) {
                Pick::One(claim) => claims.push(claim),
                other => panic!("{other:?}"),
            }
        }
        assert!(!Arc::ptr_eq(claims[0].backend(), claims[1].backend()));
        assert!(matches!(site.pick(&mut Tried::default(), 7, 0), Pick::Busy));
        // One of them is down, and the other full: it is up, and so no backup's hour.
        put_aside(&site, 0);
        assert!(matches!(site.pick(&mut Tried::default(), 7, 2), Pick::Busy));
        put_aside(&site, 1);
        assert!(pick(&site, &mut Tried::default(), 7, 2).unwrap().backup);
        claims.clear();
    }
}

#[test]
fn a_full_instance_loses_no_turns_of_others() {
    let site = narrow(Balance::RoundRobin);
    let held = site.instances()[0].backend.claim();
    assert_eq!(ports(&site, 3), [2, 2, 2]);
    drop(held);
    assert_eq!(ports(&site, 4), [1, 2, 1, 2]);
}

/// A site of two of which the second comes by a save, at the first look, and takes ten seconds to start.
fn growing(balance: Balance, weights: [u16; 2]) -> Site {
    let rules = Rules { balance, slow_start: Duration::from_secs(10), ..Rules::default() };
    let before = Site::new(site(&[(weights[0], false)], Balance::RoundRobin).instances().to_vec(), rules.clone());
    let mut instances = before.instances().to_vec();
    instances.extend(site(&[(1, false), (weights[1], false)], Balance::RoundRobin).instances()[1..].to_vec());
    let site = Site::new(instances, rules).instead_of(&before);
    pick(&site, &mut Tried::default(), 0, 1_000);
    site
}

/// How many of so many requests at this time the second instance gets.
fn second(site: &Site, requests: u32, now: u64) -> u32 {
    let picks = (0..requests).map(|_| pick(site, &mut Tried::default(), 0, now).unwrap());
    picks.map(|instance| u32::from(Arc::ptr_eq(&instance.backend, &site.instances()[1].backend))).sum()
}

#[test]
fn an_instance_that_has_just_come_gets_a_share_that_grows_from_a_tenth() {
    let site = growing(Balance::RoundRobin, [1, 1]);
    // A tenth of what the other gets; then 0.55 of it; then as much.
    assert!((99..=101).contains(&second(&site, 1_100, 1_000)));
    assert!((352..=358).contains(&second(&site, 1_000, 6_000)));
    assert_eq!(second(&site, 1_000, 11_000), 500);
    assert_eq!(ports(&site, 2).len(), 2);
    assert_eq!([1_000, 6_000, 11_000].map(|now| site.shares(now)), [[100, 9], [100, 54], [100, 100]]);
    // The others keep their turns exactly meanwhile.
    let heavy = growing(Balance::RoundRobin, [2, 1]);
    assert!((47..=49).contains(&second(&heavy, 1_008, 1_000)), "a tenth of a third");
    for balance in [Balance::LeastConnections, Balance::RandomTwo] {
        let site = growing(balance.clone(), [1, 1]);
        let shares = [1_000, 6_000, 11_000].map(|now| second(&site, 2_000, now));
        assert!(shares[0] <= 190 && shares[0] < shares[1] && shares[1] < 850, "{balance:?}: {shares:?}");
        assert!((850..=1_150).contains(&shares[2]), "{balance:?}: {shares:?}");
    }
}

#[test]
fn who_has_just_come_serves_all_where_he_is_alone_and_all_are_equal_who_come_together() {
    let site = growing(Balance::RoundRobin, [1, 1]);
    site.instances()[0].duty.drain(true);
    assert_eq!(second(&site, 20, 1_000), 20);
    assert_eq!(site.shares(1_000), [100, 100], "alone it gets all");
    // Who is given requests again has just come, like the other.
    site.instances()[0].duty.drain(false);
    assert_eq!(second(&site, 20, 1_000), 10);
    let rules = Rules { slow_start: Duration::from_secs(10), ..Rules::default() };
    let first = Site::new(site.instances().iter().map(|one| Instance::new(Arc::clone(&one.backend))).collect(), rules);
    assert_eq!(second(&first, 20, 5), 10, "those that were there from the beginning begin with their shares");
}

#[test]
fn who_comes_back_from_being_down_or_aside_has_just_come() {
    let mut instances = site(&[(1, false), (1, false)], Balance::RoundRobin).instances().to_vec();
    let check = Check {
        probe: Probe::Tcp,
        interval: Duration::from_secs(1),
        timeout: Duration::from_secs(1),
        rise: 1,
        fall: 1,
    };
    let health = Arc::new(Health::new(check));
    instances[1].health = Some(Arc::clone(&health));
    let rules = Rules { slow_start: Duration::from_secs(10), ..Rules::default() };
    let site = Site::new(instances, rules);
    health.take(true, 900);
    assert_eq!(second(&site, 100, 1_000), 50, "its first good answer of all is the beginning");
    health.take(false, 2_000);
    assert_eq!(second(&site, 100, 2_000), 0);
    health.take(true, 3_000);
    assert!((9..=11).contains(&second(&site, 110, 3_000)));
    assert_eq!(second(&site, 100, 13_000), 50);
    for _ in 0..3 {
        site.instances()[1].backend.standing().failed(20_000);
    }
    assert_eq!(second(&site, 100, 20_500), 0);
    assert_eq!(second(&site, 110, 21_000), 1, "one tries it out");
    site.instances()[1].backend.standing().served(21_100);
    assert!((9..=11).contains(&second(&site, 110, 21_100)), "one good answer is not the end of it");
    assert_eq!(second(&site, 100, 31_000), 50);
}

#[test]
fn keys_stay_where_they_are_while_an_instance_starts() {
    let rules = |slow_start| Rules { balance: Balance::Hash(By::Client), slow_start, ..Rules::default() };
    let cold = growing(Balance::Hash(By::Client), [1, 1]);
    let warm = Site::new(cold.instances().to_vec(), rules(Duration::ZERO));
    for key in 0..200 {
        assert_eq!(chosen(&cold, key, &mut Tried::default()), chosen(&warm, key, &mut Tried::default()));
    }
}
