//! Instances that are given by a name: where the name says that they are, for as long as it says so.

use std::time::{Duration, Instant};

use http::Response;

use crate::support::carom::Setup;
use crate::support::dns::{Answer, Dns};
use crate::support::http2_origin::{Call, Http2Origin};
use crate::support::origin::FullPort;
use crate::support::{Carom, Origin, poll_until, request};

const NAME: &str = "app.internal";

/// A carom whose one instance is this name.
fn named(dns: &Dns, port: u16) -> Setup {
    Carom::serving(format!("\"a.test\" = \"{NAME}:{port}\"\n")).config(&dns.config())
}

fn wait_said(carom: &Carom, mark: usize, what: &str) -> String {
    carom.stderr(mark, what, |text| text.contains(what))
}

/// Which address answers.
fn who(carom: &Carom) -> String {
    let response = carom.client().get("a.test", "/");
    let text = response.text();
    assert_eq!(response.status(), 200, "{text}");
    text.split(' ').next().unwrap_or_default().to_owned()
}

#[test]
fn a_name_that_moves_is_followed_when_its_answer_is_no_longer_good() {
    let dns = Dns::new();
    let [old, new] = Origin::each(["127.0.0.2", "127.0.0.3"]);
    dns.say(NAME, &["127.0.0.2"], 1);
    let carom = named(&dns, old.port()).start();
    let mark = carom.mark();
    let mut client = carom.client();
    assert_eq!(client.get("a.test", "/").text(), "127.0.0.2 GET /");
    dns.say(NAME, &["127.0.0.3"], 300);
    let said = wait_said(&carom, mark, "has moved");
    assert!(
        said.contains(NAME) && said.contains("came=\"127.0.0.3\"") && said.contains("went=\"127.0.0.2\""),
        "{said}"
    );
    // The connection that waits for its next request leads elsewhere now.
    assert_eq!(client.get("a.test", "/").text(), "127.0.0.3 GET /");
    old.wait_end(0);
    assert_eq!((old.requests().len(), new.connections()), (1, 1));
    assert!(carom.said(mark).iter().filter(|line| line.contains("has moved")).count() == 1);
}

#[test]
fn a_connection_that_was_busy_while_its_address_went_is_not_used_again() {
    let dns = Dns::new();
    let [old, new] = Origin::each(["127.0.0.2", "127.0.0.3"]);
    dns.say(NAME, &["127.0.0.2"], 1);
    let carom = named(&dns, old.port()).start();
    let mark = carom.mark();
    let mut client = carom.client();
    client.send(request("POST /", "a.test", &["Content-Length: 5"]) + "bo");
    old.wait("the beginning of a body", |seen| seen.connections.first()?.bytes.ends_with(b"bo").then_some(()));
    dns.say(NAME, &["127.0.0.3"], 300);
    wait_said(&carom, mark, "has moved");
    client.send("dy!");
    assert_eq!(client.response_to("POST").text(), "127.0.0.2 POST /", "it is finished where it was begun");
    assert_eq!(client.get("a.test", "/").text(), "127.0.0.3 GET /");
    old.wait_end(0);
    assert_eq!(new.connections(), 1);
}

#[test]
fn a_shared_connection_to_an_address_that_went_is_not_used_again() {
    let dns = Dns::new();
    let origin = Http2Origin::new(async |mut call: Call| {
        call.whole().await;
        call.head(Response::builder(), true);
    });
    dns.say(NAME, &["127.0.0.1"], 1);
    let routes = format!("\"a.test\" = \"h2c://{NAME}:{}\"\n", origin.port());
    let carom = Carom::serving(routes).config(&dns.config()).start();
    let mark = carom.mark();
    let mut client = carom.client();
    assert_eq!(client.get("a.test", "/").status(), 200);
    // Nobody listens there.
    dns.say(NAME, &["127.0.0.9"], 300);
    wait_said(&carom, mark, "has moved");
    assert_eq!(client.get("a.test", "/").error(), Some("backend-refused"));
    origin.wait("the end of the connection", |seen| (seen.ended == 1).then_some(()));
}

#[test]
fn all_addresses_of_a_name_serve_in_turn() {
    let dns = Dns::new();
    let addresses = ["127.0.0.2", "127.0.0.3", "127.0.0.4"];
    let origins = Origin::each(addresses);
    // So many that they have no room in a datagram, it says.
    dns.tell(NAME, Answer::OverTcp(addresses.map(|ip| ip.parse().unwrap()).into(), 300));
    let carom = named(&dns, origins[0].port()).config("[limits]\nbackend_idle = 0").start();
    for _ in 0..12 {
        who(&carom);
    }
    assert_eq!(origins.map(|origin| origin.requests().len()), [4, 4, 4]);
}

#[test]
fn where_one_address_can_not_be_connected_to_the_next_serves() {
    let dns = Dns::new();
    let [first, last] = Origin::each(["127.0.0.2", "127.0.0.4"]);
    // Nobody listens on the second.
    dns.say(NAME, &["127.0.0.2", "127.0.0.3", "127.0.0.4"], 300);
    let carom = named(&dns, first.port()).config("[limits]\nbackend_idle = 0").start();
    for _ in 0..12 {
        who(&carom);
    }
    assert!(first.requests().len() >= 4 && last.requests().len() >= 4, "{:?}", [first.lines(), last.lines()]);
    assert!(!carom.said(0).iter().any(|line| line.contains("keeps failing")));
}

#[test]
fn an_address_that_swallows_what_it_is_sent_holds_up_one_request() {
    let dns = Dns::new();
    let full = FullPort::new();
    let alive = Origin::on(&format!("127.0.0.2:{}", full.port()), |conn| conn.serve("alive"));
    dns.say(NAME, &["127.0.0.1", "127.0.0.2"], 300);
    let carom = named(&dns, alive.port()).config("[limits]\nbackend_idle = 0").start();
    let slow = (0..8)
        .filter(|_| {
            let begun = Instant::now();
            assert_eq!(who(&carom), "alive");
            begun.elapsed() >= Duration::from_secs(1)
        })
        .count();
    assert!(slow <= 2, "{slow} of 8 have tried it");
}

#[test]
fn what_was_known_last_stays_while_the_name_does_not_resolve() {
    let dns = Dns::new();
    let [a, b] = Origin::each(["127.0.0.2", "127.0.0.3"]);
    dns.say(NAME, &["127.0.0.2"], 1);
    let carom = named(&dns, a.port()).start();
    assert_eq!(who(&carom), "127.0.0.2");
    for (answer, why) in [
        (Some(Answer::Failure), "Server Failure"),
        (None, "there is no such name"),
        (Some(Answer::Addresses(Vec::new(), 1)), "the name has no address"),
        (Some(Answer::Silence), "no DNS server answers"),
    ] {
        let mark = carom.mark();
        match answer {
            Some(answer) => dns.tell(NAME, answer),
            None => dns.forget(NAME),
        }
        let said = wait_said(&carom, mark, "does not resolve");
        assert!(said.contains(why) && said.contains("WARN"), "{why}: {said}");
        assert!(said.contains("127.0.0.2 stay in use"), "{said}");
        assert_eq!(who(&carom), "127.0.0.2");
        dns.wait_asked(NAME, dns.asked(NAME) + 2);
        dns.say(NAME, &["127.0.0.2"], 1);
        let said = wait_said(&carom, mark, "resolves again");
        assert!(said.contains(NAME), "{said}");
        assert_eq!(
            carom.said(mark).len(),
            2,
            "one line when it begins, and one when it is over: {:?}",
            carom.said(mark)
        );
    }
    assert_eq!((a.requests().len(), b.requests().len()), (5, 0));
}

#[test]
fn the_addresses_of_one_kind_stay_where_only_the_other_could_be_asked_for() {
    let dns = Dns::new();
    let origin = Origin::on("127.0.0.2:0", |conn| conn.serve("a"));
    let both = ["127.0.0.2".parse().unwrap(), "2001:db8::1".parse().unwrap()].to_vec();
    dns.tell(NAME, Answer::Addresses(both.clone(), 1));
    let carom = named(&dns, origin.port()).start();
    assert_eq!(who(&carom), "a");
    dns.tell(NAME, Answer::FailingIpv4(both, 1));
    dns.wait_asked(NAME, dns.asked(NAME) + 6);
    // A fresh connection each time.
    assert_eq!(carom.client().ask(request("POST /", "a.test", &["Content-Length: 0"])).status(), 200);
    assert!(!carom.said(0).iter().any(|line| line.contains("moved")), "{:?}", carom.said(0));
}

#[test]
fn a_name_that_does_not_resolve_stops_neither_the_start_nor_others_and_is_there_once_it_does() {
    let dns = Dns::new();
    let [a, other] = Origin::each(["127.0.0.2", "127.0.0.3"]);
    dns.say("other.internal", &["127.0.0.3"], 300);
    let routes = format!("\"a.test\" = \"{NAME}:{}\"\n\"b.test\" = \"other.internal:{}\"\n", a.port(), other.port());
    let carom = Carom::serving(routes).config(&dns.config()).start();
    let said = wait_said(&carom, 0, "does not resolve");
    assert!(said.contains("WARN") && said.contains(NAME) && said.contains("there is no such name"), "{said}");
    let response = carom.client().get("a.test", "/");
    assert_eq!((response.status(), response.error()), (502, Some("backend-name")));
    let status = || carom.verb(&["status", "a.test"]).1;
    assert!(status().contains("its name is not known to have an address"), "{}", status());
    assert_eq!(carom.client().get("b.test", "/").text(), "127.0.0.3 GET /");
    dns.say(NAME, &["127.0.0.2"], 300);
    wait_said(&carom, 0, "resolves again");
    assert_eq!(who(&carom), "127.0.0.2");
    assert!(status().contains("at 127.0.0.2"), "{}", status());
}

#[test]
fn each_name_is_asked_for_as_often_as_its_answer_wants_and_no_oftener() {
    let dns = Dns::new();
    let origin = Origin::on("127.0.0.2:0", |conn| conn.serve("a"));
    for (name, seconds) in [("quick.internal", 0), ("slow.internal", 300)] {
        dns.say(name, &["127.0.0.2"], seconds);
    }
    let port = origin.port();
    // Two instances with one name are one question.
    let carom = Carom::serving(format!(
        "\"a.test\" = \"quick.internal:{port}\"\n\"b.test\" = [\"slow.internal:{port}\", \"slow.internal:1\"]\n"
    ))
    .config(&dns.config())
    .start();
    dns.wait_asked("slow.internal", 1);
    let (before, begun) = (dns.asked("quick.internal"), Instant::now());
    dns.wait_asked("quick.internal", before + 3);
    assert!(begun.elapsed() > Duration::from_millis(1_900), "{:?}: at most once a second", begun.elapsed());
    assert_eq!(dns.asked("slow.internal"), 1);
    assert_eq!(carom.client().get("b.test", "/").status(), 200);
}

#[test]
fn a_name_that_a_save_brings_is_asked_for_before_its_first_request_and_one_that_it_takes_no_more() {
    let dns = Dns::new();
    let [a, b] = Origin::each(["127.0.0.2", "127.0.0.3"]);
    dns.say(NAME, &["127.0.0.2"], 1);
    dns.say("new.internal", &["127.0.0.3"], 1);
    let carom = named(&dns, a.port()).start();
    assert_eq!(who(&carom), "127.0.0.2");
    carom.reroute(&format!("\"a.test\" = \"new.internal:{}\"\n", b.port()));
    assert_eq!(who(&carom), "127.0.0.3");
    // It may have been asked at that moment.
    dns.wait_asked("new.internal", dns.asked("new.internal") + 1);
    let (before, new) = (dns.asked(NAME), dns.asked("new.internal"));
    dns.wait_asked("new.internal", new + 2);
    assert_eq!(dns.asked(NAME), before);
}

#[test]
fn checks_ask_where_the_name_is_now() {
    let dns = Dns::new();
    let [alive] = Origin::each(["127.0.0.2"]);
    dns.say(NAME, &["127.0.0.9"], 1);
    let routes = format!(
        "[\"a.test\"]\nto = \"{NAME}:{}\"\nhealth = {{ path = \"/up\", interval = \"100ms\" }}\n",
        alive.port()
    );
    let carom = Carom::serving(routes).config(&dns.config()).start();
    wait_said(&carom, 0, "a backend is down");
    dns.say(NAME, &["127.0.0.2"], 300);
    wait_said(&carom, 0, "a backend that was down is up");
}

#[test]
fn a_name_that_only_the_system_knows_is_found_too() {
    let origin = Origin::named("here");
    // An old way to write 127.0.0.1, which no DNS server knows.
    let carom = Carom::serving(format!("\"a.test\" = \"0x7f000001:{}\"\n", origin.port()))
        .config("[timeouts]\nconnect = \"15s\"")
        .start();
    assert_eq!(who(&carom), "here");
}

#[test]
fn a_stop_does_not_wait_for_the_dns() {
    let dns = Dns::new();
    dns.tell(NAME, Answer::Silence);
    let carom = named(&dns, 1).start();
    dns.wait_asked(NAME, 1);
    let begun = Instant::now();
    carom.signal(rustix::process::Signal::TERM);
    poll_until("that it has ended", || carom.exit_code() == Some(0));
    assert!(begun.elapsed() < Duration::from_secs(4), "{:?}", begun.elapsed());
}
