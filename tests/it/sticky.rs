//! Sessions that stay with their instance: the cookie, what it survives, and when it is another.

use std::sync::Arc;

use crate::support::http2::{self, Http2};
use crate::support::tls::pem;
use crate::support::wire::Message;
use crate::support::{Carom, Gate, Origin, reply, request};

/// `[8001, 8002]`, with `balance = sticky` and more.
fn sticky(backends: &[&Origin], more: &str) -> String {
    let ports: Vec<_> = backends.iter().map(|origin| origin.port().to_string()).collect();
    format!("[\"a.test\"]\nto = [{}]\n{more}\n", ports.join(", "))
}

const PLAIN: &str = "balance = \"sticky\"";

/// The cookies that a response sets, each whole.
fn set(response: &Message) -> Vec<&str> {
    response.all("set-cookie")
}

/// The pair that a browser sends back.
fn pair(response: &Message) -> String {
    let [cookie] = set(response)[..] else { panic!("one cookie: {:?}", set(response)) };
    cookie.split(';').next().unwrap().to_owned()
}

#[track_caller]
fn ask(carom: &Carom, cookies: &str) -> Message {
    let fields = [format!("Cookie: {cookies}")];
    let fields: Vec<_> = fields.iter().filter(|_| !cookies.is_empty()).map(String::as_str).collect();
    let response = carom.client().ask(request("GET /", "a.test", &fields));
    assert_eq!(response.status(), 200);
    response
}

/// A session for each of two instances: its cookie, and what it is answered.
fn two_sessions(carom: &Carom) -> [(String, String); 2] {
    let sessions = [ask(carom, ""), ask(carom, "")].map(|response| (pair(&response), response.text()));
    assert_ne!(sessions[0].1, sessions[1].1);
    sessions
}

#[track_caller]
fn assert_stays(carom: &Carom, (cookie, text): &(String, String)) {
    let response = ask(carom, cookie);
    assert_eq!((response.text(), set(&response)), (text.clone(), vec![]));
}

#[test]
fn a_session_stays_with_its_instance_and_is_given_its_cookie_once() {
    let (a, b) = (Origin::named("a"), Origin::named("b"));
    let carom = Carom::serving(sticky(&[&a, &b], PLAIN)).workers(2).start();
    let first = ask(&carom, "");
    let (name, rest) = set(&first)[0].split_once('=').unwrap();
    let (token, rest) = rest.split_once(';').unwrap();
    assert_eq!((name, token.len(), rest), ("carom", 22, " Path=/; HttpOnly; SameSite=Lax"));
    for port in [a.port(), b.port()] {
        assert!(!token.contains(&port.to_string()));
    }
    for _ in 0..5 {
        assert_stays(&carom, &(pair(&first), first.text()));
    }
    // Among others, and in another place.
    let response = ask(&carom, &format!("x=1; {}; y=carom", pair(&first)));
    assert_eq!((response.text(), set(&response)), (first.text(), vec![]));
    let serving = if first.text().starts_with('a') { &a } else { &b };
    let last = serving.requests().pop().unwrap();
    assert_eq!(last.field("cookie"), Some(format!("x=1; {}; y=carom", pair(&first)).as_str()), "as it was sent");
}

#[test]
fn new_sessions_are_spread() {
    let (a, b) = (Origin::named("a"), Origin::named("b"));
    let carom = Carom::serving(sticky(&[&a, &b], PLAIN)).workers(2).start();
    let sessions: Vec<_> =
        (0..100).map(|_| ask(&carom, "")).map(|response| (pair(&response), response.text())).collect();
    assert_eq!(sessions.iter().filter(|(_, text)| text.starts_with('a')).count(), 50);
    for session in &sessions {
        assert_stays(&carom, session);
    }
}

#[test]
fn sessions_outlive_saves_and_restarts() {
    let (a, b, c) = (Origin::named("a"), Origin::named("b"), Origin::named("c"));
    let home = tempfile::tempdir().unwrap();
    let path = |name: &str| home.path().join(name).to_str().unwrap().to_owned();
    let start = |state: &str| {
        let log = path("carom.toml");
        std::fs::write(&log, "[log]\nformat = \"json\"\n").unwrap();
        let arguments =
            ["serve", &path("routes.toml"), "--config", &log, "--listen", "127.0.0.1:0", "--state", &path(state)];
        Carom::in_folder(tempfile::tempdir().unwrap(), &arguments)
    };
    let save = |text: String| {
        std::fs::write(path("new.toml"), text).unwrap();
        std::fs::rename(path("new.toml"), path("routes.toml")).unwrap();
    };
    save(sticky(&[&a, &b], PLAIN));
    let carom = start("state");
    let sessions = two_sessions(&carom);
    let mark = carom.mark();
    save(sticky(&[&c, &b, &a], PLAIN));
    carom.wait_changed(mark);
    sessions.iter().for_each(|session| assert_stays(&carom, session));
    drop(carom);
    let carom = start("state");
    sessions.iter().for_each(|session| assert_stays(&carom, session));
    drop(carom);
    // Another carom has made none of them.
    let carom = start("another");
    for (cookie, _) in &sessions {
        assert_eq!(set(&ask(&carom, cookie)).len(), 1);
    }
}

#[test]
fn what_nobody_has_signed_is_a_new_session() {
    let (a, b) = (Origin::named("a"), Origin::named("b"));
    let other = format!("[\"b.test\"]\nto = [{}, {}]\n{PLAIN}\n", a.port(), b.port());
    let carom = Carom::serving(sticky(&[&a, &b], PLAIN) + &other).start();
    let of_other = pair(&carom.client().get("b.test", "/"));
    let own = pair(&ask(&carom, ""));
    let mut flipped = own.clone();
    flipped.replace_range(6..7, if own[6..].starts_with('A') { "B" } else { "A" });
    for cookie in
        [&of_other, &flipped, &own[..own.len() - 1], &format!("{own}A"), "carom=", "carom=8001", "Carom=x", "carom"]
    {
        assert_eq!(set(&ask(&carom, cookie)).len(), 1, "{cookie}");
    }
    // One that is right beside one that is not: as a browser sends them for a host and the domain above it.
    assert!(set(&ask(&carom, &format!("carom=x; {own}"))).is_empty());
}

#[test]
fn a_session_whose_instance_is_away_moves_and_the_old_cookie_is_good_again_when_it_is_back() {
    // A kept connection would go on when its backend listens no more.
    let once = |name: &'static str| {
        Origin::new(move |conn| {
            if let Some(message) = conn.request() {
                conn.answer(name, &message);
            }
        })
    };
    let (a, b) = (once("a"), once("b"));
    let carom = Carom::serving(sticky(&[&a, &b], PLAIN)).start();
    let sessions = two_sessions(&carom);
    let (of_a, of_b) =
        if sessions[0].1.starts_with('a') { (&sessions[0], &sessions[1]) } else { (&sessions[1], &sessions[0]) };
    let port = a.port();
    drop(a);
    let moved = ask(&carom, &of_a.0);
    assert_eq!((moved.text(), pair(&moved)), (of_b.1.clone(), of_b.0.clone()));
    let _back = Origin::on(&format!("127.0.0.1:{port}"), |conn| conn.serve("a"));
    assert_stays(&carom, of_a);
}

#[test]
fn a_drained_instance_gives_its_sessions_to_others() {
    let (a, b) = (Origin::named("a"), Origin::named("b"));
    let carom = Carom::serving(sticky(&[&a, &b], PLAIN)).start();
    let sessions = two_sessions(&carom);
    let drained = if sessions[0].1.starts_with('a') { &a } else { &b };
    let instance = drained.port().to_string();
    assert_eq!(carom.verb(&["drain", "a.test", &instance]).0, Some(0));
    let moved = ask(&carom, &sessions[0].0);
    assert_eq!((moved.text(), pair(&moved)), (sessions[1].1.clone(), sessions[1].0.clone()));
    assert_eq!(carom.verb(&["undrain", "a.test", &instance]).0, Some(0));
    assert_stays(&carom, &sessions[0]);
}

#[test]
fn a_session_whose_instance_is_full_moves_and_is_told_so() {
    let gate = Arc::new(Gate::default());
    let shut = Arc::clone(&gate);
    let slow = move |name: &'static str, shut: Arc<Gate>| {
        Origin::new(move |conn| {
            while let Some(message) = conn.request() {
                if message.target() == "/held" {
                    shut.wait();
                }
                conn.answer(name, &message);
            }
        })
    };
    let (a, b) = (slow("a", Arc::clone(&shut)), slow("b", shut));
    let carom = Carom::serving(sticky(&[&a, &b], &format!("{PLAIN}\nmax_connections = 1"))).start();
    let sessions = two_sessions(&carom);
    let mut held = carom.client();
    held.send(request("GET /held", "a.test", &[&format!("Cookie: {}", sessions[0].0)]));
    let origin = if sessions[0].1.starts_with('a') { &a } else { &b };
    origin.wait("the request that is held", |seen| {
        seen.requests.iter().any(|(_, message)| message.target() == "/held").then_some(())
    });
    let moved = ask(&carom, &sessions[0].0);
    assert_eq!((moved.text(), pair(&moved)), (sessions[1].1.clone(), sessions[1].0.clone()));
    gate.open();
    assert_eq!(held.response().status(), 200);
}

#[test]
fn the_cookie_is_as_the_site_says_and_of_its_path_alone() {
    let (a, b) = (Origin::named("a"), Origin::named("b"));
    let ports = format!("[{}, {}]", a.port(), b.port());
    let carom = Carom::serving(format!(
        "\"a.test\" = {{ to = {ports}, balance = \"sticky\" }}\n\
         \"a.test/api/\" = {{ to = {ports}, balance = {{ sticky = {{ cookie = \"api\", max_age = \"1h\", same_site = \"none\", \
         then = \"least-connections\" }} }} }}\n\
         \"a.test/same/\" = {{ to = {ports}, balance = {{ sticky = \"carom\" }} }}\n\
         \"a.test/also\" = {{ to = {ports}, also = [\"b.test\"], balance = {{ sticky = {{ secure = true, same_site = \"strict\" }} }} }}\n"
    ))
    .start();
    let rest = |path: &str| {
        let response = carom.client().get("a.test", path);
        let (pair, rest) = set(&response)[0].split_once("; ").unwrap();
        (pair.split('=').next().unwrap().to_owned(), rest.to_owned())
    };
    let own = |name: &str, rest: &str| (name.to_owned(), rest.to_owned());
    assert_eq!(rest("/api/x"), own("api", "Path=/api; HttpOnly; SameSite=None; Secure; Max-Age=3600"));
    assert_eq!(rest("/same/"), own("carom", "Path=/same; HttpOnly; SameSite=Lax"));
    assert_eq!(rest("/also"), own("carom", "Path=/; HttpOnly; SameSite=Strict; Secure"));
    // Both cookies of one name come where the longer path is asked for: each site knows its own.
    let (whole, same) = (pair(&carom.client().get("a.test", "/")), pair(&carom.client().get("a.test", "/same/")));
    for path in ["/", "/same/x"] {
        let cookies = format!("Cookie: {same}; {whole}");
        let response = carom.client().ask(request(&format!("GET {path}"), "a.test", &[&cookies]));
        assert!(set(&response).is_empty(), "{path}");
    }
}

#[test]
fn what_the_backend_sets_goes_through_and_what_carom_answers_sets_nothing() {
    let origin = Origin::replying_once(reply("200 OK", &["Set-Cookie: carom=own", "Set-Cookie: b=2"], ""));
    let carom = Carom::serving(sticky(&[&origin], PLAIN)).start();
    let response = ask(&carom, "");
    let cookies = set(&response);
    assert_eq!((cookies.len(), &cookies[..2]), (3, &["carom=own", "b=2"][..]), "{cookies:?}");
    drop(origin);
    let refused = carom.client().get("a.test", "/");
    assert_eq!((refused.status(), set(&refused)), (502, vec![]));
}

#[test]
fn a_switched_connection_is_a_session_too() {
    let origin = Origin::new(|conn| {
        if conn.request().is_some() {
            conn.send("HTTP/1.1 101 Switching Protocols\r\nUpgrade: x\r\nConnection: upgrade\r\n\r\n");
            conn.echo();
        }
    });
    let carom = Carom::serving(sticky(&[&origin], PLAIN)).start();
    let mut client = carom.client();
    client.send(request("GET /", "a.test", &["Connection: upgrade", "Upgrade: x"]));
    let head = client.response_head();
    assert_eq!((head.status(), set(&head).len()), (101, 1));
}

#[test]
fn a_session_over_tls_and_http2_is_kept_and_its_cookie_is_secure() {
    let (a, b) = (Origin::named("a"), Origin::named("b"));
    let carom = Carom::serving(sticky(&[&a, &b], PLAIN)).tls("a.pem", pem(&["a.test"])).start();
    let mut client = Http2::tls(carom.tls_address(), "a.test");
    let first = client.ask(http2::get("https://a.test/"));
    let cookie = first.field("set-cookie");
    assert!(cookie.ends_with("; Path=/; HttpOnly; SameSite=Lax; Secure"), "{cookie}");
    let pair = cookie.split(';').next().unwrap().to_owned();
    for _ in 0..3 {
        let again = client.ask(http2::get("https://a.test/").header("cookie", "x=1").header("cookie", &pair));
        assert_eq!((again.text(), again.fields.get("set-cookie")), (first.text(), None));
    }
    // A proxy in front that is believed, and one that is not.
    for (trust, secure) in [("127.0.0.1", true), ("192.0.2.1", false)] {
        let carom =
            Carom::serving(sticky(&[&a, &b], PLAIN)).config(&format!("[forwarded]\ntrust = [\"{trust}\"]")).start();
        let response = carom.client().ask(request("GET /", "a.test", &["X-Forwarded-Proto: https"]));
        assert_eq!(set(&response)[0].ends_with("; Secure"), secure, "{:?}", set(&response));
    }
}

#[test]
fn sessions_are_kept_without_a_home_for_their_key_too_and_that_is_said() {
    let (a, b) = (Origin::named("a"), Origin::named("b"));
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("routes.toml"), sticky(&[&a, &b], PLAIN)).unwrap();
    std::fs::write(folder.path().join("file"), "").unwrap();
    let carom = Carom::in_folder(folder, &["serve", "--listen", "127.0.0.1:0", "--state", "file"]);
    two_sessions(&carom).iter().for_each(|session| assert_stays(&carom, session));
    let said = carom.said(0);
    assert!(said.iter().any(|line| line.contains("sticky sessions begin anew with each start")), "{said:#?}");
}
