//! Every way to save the routes, one bad save after another, and what requests notice of it: nothing.

use std::io::Write;
use std::os::unix::fs::symlink;
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use rustix::process::Signal;

use crate::support::{Carom, Client, Gate, Origin, reply, request};

/// Two backends, a carom that sends `a.test` to the first, and a connection that stays.
fn two() -> (Origin, Origin, Carom) {
    let (one, two) = (Origin::named("one"), Origin::named("two"));
    let carom = Carom::to(one.port()).start();
    (one, two, carom)
}

fn to(port: u16) -> String {
    format!("\"a.test\" = {port}\n")
}

/// Saves in this way, back and forth five times; each save has to be live soon, the fifth as well as the first.
#[track_caller]
fn assert_saves(save: impl Fn(&Carom, &str)) {
    let (one, two, carom) = two();
    assert_saves_with(&carom, &one, &two, save);
}

#[track_caller]
fn assert_saves_with(carom: &Carom, one: &Origin, two: &Origin, save: impl Fn(&Carom, &str)) {
    let mut client = carom.client();
    assert_eq!(client.get("a.test", "/").text(), "one GET /");
    for round in 0..5 {
        let (name, port) = if round % 2 == 0 { ("two", two.port()) } else { ("one", one.port()) };
        let mark = carom.mark();
        let began = Instant::now();
        save(carom, &to(port));
        let line = carom.wait_changed(mark);
        assert!(line.contains("a.test") && line.contains(&port.to_string()), "{line}");
        assert!(began.elapsed() < Duration::from_secs(4), "save {round} took {:?}", began.elapsed());
        assert_eq!(client.get("a.test", "/").text(), format!("{name} GET /"), "after save {round}");
    }
}

#[test]
fn a_save_in_place_is_seen() {
    assert_saves(|carom, text| std::fs::write(carom.routes_file(), text).unwrap());
}

#[test]
fn a_save_that_truncates_first_and_writes_later_is_seen() {
    assert_saves(|carom, text| {
        let mut file = std::fs::File::create(carom.routes_file()).unwrap();
        std::thread::sleep(Duration::from_millis(100));
        file.write_all(text.as_bytes()).unwrap();
    });
}

#[test]
fn a_save_by_rename_is_seen() {
    assert_saves(Carom::save_by_rename);
}

#[test]
fn a_save_with_a_backup_file_is_seen() {
    // As vim does it: the old file is renamed away, and a new one written under its name.
    assert_saves(|carom, text| {
        let file = carom.routes_file();
        std::fs::rename(file, file.with_extension("toml~")).unwrap();
        std::fs::write(file, text).unwrap();
        std::fs::remove_file(file.with_extension("toml~")).unwrap();
    });
}

#[test]
fn a_save_by_sed_is_seen() {
    assert_saves(|carom, text| {
        let port = text.rsplit(' ').next().unwrap().trim();
        let script = format!("s/= .*/= {port}/");
        let status = Command::new("sed").args(["-i", &script]).arg(carom.routes_file()).status().unwrap();
        assert!(status.success());
    });
}

#[test]
fn a_save_by_deleting_and_creating_is_seen() {
    assert_saves(|carom, text| {
        std::fs::remove_file(carom.routes_file()).unwrap();
        std::thread::sleep(Duration::from_millis(300));
        std::fs::write(carom.routes_file(), text).unwrap();
    });
}

#[test]
fn a_swap_of_the_folder_behind_a_link_is_seen() {
    let (one, two) = (Origin::named("one"), Origin::named("two"));
    let carom = Carom::to(one.port()).link_folder().start();
    let count = AtomicUsize::new(0);
    assert_saves_with(&carom, &one, &two, |carom, text| {
        let name = format!("..version-{}", count.fetch_add(1, Ordering::Relaxed));
        let folder = carom.folder();
        std::fs::create_dir(folder.join(&name)).unwrap();
        std::fs::write(folder.join(&name).join("routes.toml"), text).unwrap();
        let before = std::fs::read_link(folder.join("..data")).unwrap();
        symlink(&name, folder.join("..data_tmp")).unwrap();
        std::fs::rename(folder.join("..data_tmp"), folder.join("..data")).unwrap();
        std::fs::remove_dir_all(folder.join(before)).unwrap();
    });
}

#[test]
fn a_save_behind_a_link_to_another_folder_is_seen() {
    let (one, two) = (Origin::named("one"), Origin::named("two"));
    let elsewhere = tempfile::tempdir().unwrap();
    let file = elsewhere.path().join("sites.toml");
    std::fs::write(&file, to(one.port())).unwrap();
    let folder = tempfile::tempdir().unwrap();
    symlink(&file, folder.path().join("routes.toml")).unwrap();
    let carom = Carom::in_folder(folder, &["serve", "--listen", "127.0.0.1:0", "--workers", "1"]);
    assert_saves_with(&carom, &one, &two, |_, text| {
        let new = elsewhere.path().join("sites.toml.new");
        std::fs::write(&new, text).unwrap();
        std::fs::rename(&new, &file).unwrap();
    });
}

#[test]
fn a_file_named_without_a_folder_is_followed() {
    let (one, two) = (Origin::named("one"), Origin::named("two"));
    for arguments in [&["serve", "routes.toml", "--listen", "127.0.0.1:0"][..], &["routes.toml", "0", "127.0.0.1"]] {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("routes.toml"), to(one.port())).unwrap();
        let carom = Carom::in_folder(folder, arguments);
        assert_saves_with(&carom, &one, &two, Carom::save_by_rename);
    }
}

#[test]
fn a_save_that_routes_to_our_own_port_is_refused() {
    let (_one, _two, carom) = two();
    let mark = carom.mark();
    carom.save_by_rename(&to(carom.address().port()));
    carom.stderr(mark, "where it is wrong", |line| line.contains("routes.toml:1:"));
    assert_eq!(carom.client().get("a.test", "/").text(), "one GET /");
}

#[test]
fn a_hangup_signal_reloads() {
    let (_one, two, carom) = two();
    let mark = carom.mark();
    std::fs::write(carom.routes_file(), to(two.port())).unwrap();
    carom.signal(Signal::HUP);
    carom.wait_changed(mark);
    assert_eq!(carom.client().get("a.test", "/").text(), "two GET /");
    // And again with nothing new: it does no harm.
    carom.signal(Signal::HUP);
    carom.signal(Signal::HUP);
    assert_eq!(carom.client().get("a.test", "/").text(), "two GET /");
    carom.assert_running();
}

#[test]
fn a_bad_save_changes_nothing_and_says_what_is_wrong() {
    let (one, two, carom) = two();
    let mut client = carom.client();
    for bad in [
        "\"a.test\" = \n".to_owned(),
        "\"a.test\" = 99999\n".to_owned(),
        format!("\"a.test\" = {0}\n\"A.TEST\" = {0}\n", two.port()),
        format!("[\"a.test\"]\nto = {}\nballance = \"round-robin\"\n", two.port()),
        "\"a.test\" = [\n".to_owned(),
        "not toml at all".to_owned(),
    ] {
        let mark = carom.mark();
        carom.save_by_rename(&bad);
        let line = carom.stderr(mark, "where it is wrong", |line| line.contains("routes.toml:"));
        assert!(
            line.contains("routes.toml:1:") || line.contains("routes.toml:2:") || line.contains("routes.toml:3:"),
            "{line}"
        );
        assert_eq!(client.get("a.test", "/").text(), "one GET /", "{bad:?}");
    }
    let mark = carom.mark();
    carom.save_by_rename(&to(two.port()));
    carom.wait_changed(mark);
    assert_eq!(client.get("a.test", "/").text(), "two GET /");
    assert_eq!(one.requests().len(), 6);
}

#[test]
fn one_bad_line_among_good_ones_changes_none() {
    let (_one, two, carom) = two();
    let mark = carom.mark();
    let mut routes = to(two.port());
    for n in 0..10 {
        routes.push_str(&format!("\"n{n}.test\" = {}\n", two.port()));
    }
    routes.push_str("\"bad host.test\" = 1\n");
    carom.save_by_rename(&routes);
    carom.stderr(mark, "line 12", |line| line.contains("routes.toml:12:"));
    let mut client = carom.client();
    assert_eq!(client.get("a.test", "/").text(), "one GET /");
    assert_eq!(client.get("n1.test", "/").status(), 404);
}

#[test]
fn a_half_written_file_is_no_table() {
    let (one, two, carom) = two();
    let mut client = carom.client();
    let mark = carom.mark();
    // The first half alone is good TOML: what it says must not be live for long, and requests must not fail.
    let mut file = std::fs::File::create(carom.routes_file()).unwrap();
    file.write_all(format!("\"b.test\" = {}\n\"a.te", two.port()).as_bytes()).unwrap();
    file.flush().unwrap();
    let until = Instant::now() + Duration::from_millis(600);
    while Instant::now() < until {
        assert_eq!(client.get("a.test", "/").text(), "one GET /");
    }
    file.write_all(format!("st\" = {}\n", two.port()).as_bytes()).unwrap();
    drop(file);
    carom.wait_changed(mark);
    assert_eq!(client.get("a.test", "/").text(), "two GET /");
    drop(one);
}

#[test]
fn an_emptied_file_is_not_no_routes() {
    let (_one, _two, carom) = two();
    std::fs::File::create(carom.routes_file()).unwrap();
    let mut client = carom.client();
    let until = Instant::now() + Duration::from_millis(700);
    while Instant::now() < until {
        assert_eq!(client.get("a.test", "/").text(), "one GET /");
    }
}

#[test]
fn a_deleted_file_changes_nothing() {
    let (_one, two, carom) = two();
    std::fs::remove_file(carom.routes_file()).unwrap();
    let mut client = carom.client();
    let until = Instant::now() + Duration::from_millis(700);
    while Instant::now() < until {
        assert_eq!(client.get("a.test", "/").text(), "one GET /");
    }
    let mark = carom.mark();
    std::fs::write(carom.routes_file(), to(two.port())).unwrap();
    carom.wait_changed(mark);
    assert_eq!(client.get("a.test", "/").text(), "two GET /");
}

#[test]
fn of_a_burst_of_saves_the_last_one_counts() {
    let (one, two, carom) = two();
    for _ in 0..3 {
        let mark = carom.mark();
        for _ in 0..50 {
            carom.save_by_rename(&to(one.port()));
            carom.save_by_rename("\"a.test\" = [\n");
            std::fs::write(carom.routes_file(), format!("{}\"x.test\" = 1\n", to(one.port()))).unwrap();
        }
        carom.save_by_rename(&format!("{}\"last.test\" = {}\n", to(two.port()), two.port()));
        carom.stderr(mark, "the last save", |line| line.contains("last.test"));
        let mut client = carom.client();
        assert_eq!(client.get("last.test", "/").text(), "two GET /");
        assert_eq!(client.get("a.test", "/").text(), "two GET /");
        carom.reroute(&to(one.port()));
    }
}

#[test]
fn a_save_of_the_same_text_says_nothing() {
    let (one, two, carom) = two();
    let mark = carom.mark();
    for _ in 0..3 {
        std::fs::write(carom.routes_file(), to(one.port())).unwrap();
        carom.save_by_rename(&to(one.port()));
    }
    carom.reroute(&to(two.port()));
    let said = carom.said(mark);
    assert_eq!(said.iter().filter(|line| line.contains("changed")).count(), 1, "{said:#?}");
}

#[test]
fn what_changed_is_said_in_one_block() {
    let (one, two, carom) = two();
    let routes = |rest: &str| format!("\"a.test\" = {}\n{rest}", one.port());
    let block = carom.reroute(&routes(&format!("\"new.test\" = {}\n", two.port())));
    assert!(block.contains(&format!("+ new.test → {}", two.port())), "{block}");
    assert!(!block.contains("a.test "), "what stayed is not said: {block}");
    let block = carom.reroute(&format!("\"a.test\" = [{}, {}]\n", one.port(), two.port()));
    assert!(block.contains(&format!("~ a.test {0} → {0}, {1}", one.port(), two.port())), "{block}");
    assert!(block.contains("- new.test"), "{block}");
}

#[test]
fn a_kept_alive_connection_uses_the_new_table_at_its_next_request() {
    let (one, two, carom) = two();
    let mut client = carom.client();
    assert_eq!(client.get("a.test", "/1").text(), "one GET /1");
    carom.reroute(&to(two.port()));
    assert_eq!(client.get("a.test", "/2").text(), "two GET /2");
    carom.reroute("\"b.test\" = 1\n");
    assert_eq!(client.get("a.test", "/3").error(), Some("no-route"));
    carom.reroute(&to(one.port()));
    assert_eq!(client.get("a.test", "/4").text(), "one GET /4");
}

#[test]
fn a_removed_route_refuses_at_once_and_finishes_what_is_in_flight() {
    let gate = Arc::new(Gate::default());
    let told = Arc::clone(&gate);
    let a = Origin::new(move |conn| {
        let Some(request) = conn.request() else { return };
        if request.has("upgrade") {
            conn.send("HTTP/1.1 101 Switching Protocols\r\nUpgrade: chat\r\nConnection: Upgrade\r\n\r\n");
            return conn.echo();
        }
        conn.send("HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nhello");
        told.wait();
        conn.send("world");
        conn.serve("a");
    });
    let carom = Carom::serving(format!("\"a.test\" = {}\n\"b.test\" = 1\n", a.port())).start();
    let mut download = carom.client();
    download.send(request("GET /", "a.test", &[]));
    assert_eq!(download.response_head().status(), 200);
    download.expect("hello");
    let mut tunnel = carom.client();
    tunnel.send(request("GET /", "a.test", &["Connection: Upgrade", "Upgrade: chat"]));
    assert_eq!(tunnel.response_head().status(), 101);
    carom.reroute("\"b.test\" = 1\n");
    assert_eq!(carom.client().get("a.test", "/").error(), Some("no-route"));
    gate.open();
    download.expect("world");
    assert_eq!(download.get("a.test", "/").error(), Some("no-route"));
    tunnel.send("ping");
    tunnel.expect("ping");
}

#[test]
fn an_unchanged_backend_keeps_its_connections_over_a_reload() {
    let (one, two, carom) = two();
    let mut client = carom.client();
    for round in 0..5 {
        assert_eq!(client.get("a.test", "/").text(), "one GET /");
        carom.reroute(&format!("{}\"b{round}.test\" = {}\n", to(one.port()), two.port()));
    }
    assert_eq!(client.get("a.test", "/").text(), "one GET /");
    assert_eq!(one.connections(), 1);
}

#[test]
fn turns_go_on_where_they_were_over_a_reload() {
    let (one, two) = (Origin::named("one"), Origin::named("two"));
    let routes = format!("\"a.test\" = [{}, {}]\n", one.port(), two.port());
    let carom = Carom::serving(&routes).start();
    let mut client = carom.client();
    let mut answers = Vec::new();
    for round in 0..6 {
        answers.push(client.get("a.test", "/").text());
        carom.reroute(&format!("{routes}\"b{round}.test\" = {}\n", two.port()));
    }
    for pair in answers.windows(2) {
        assert_ne!(pair[0], pair[1], "{answers:?}");
    }
}

#[test]
fn two_hundred_reloads_fail_no_request_and_drop_no_tunnel() {
    let a = Origin::new(|conn| {
        while let Some(request) = conn.request() {
            if request.has("upgrade") {
                conn.send("HTTP/1.1 101 Switching Protocols\r\nUpgrade: chat\r\nConnection: Upgrade\r\n\r\n");
                return conn.echo();
            }
            conn.send(reply("200 OK", &[], request.target()));
        }
    });
    let b = Origin::named("b");
    let routes = |round: usize| {
        let more = if round.is_multiple_of(2) { b.port() } else { a.port() };
        format!("\"a.test\" = {}\n\"b.test\" = {more}\n\"c{round}.test\" = {more}\n", a.port())
    };
    let carom = Carom::serving(routes(0)).workers(2).start();
    let mut tunnels: Vec<_> = (0..20)
        .map(|_| {
            let mut tunnel = carom.client();
            tunnel.send(request("GET /chat", "a.test", &["Connection: Upgrade", "Upgrade: chat"]));
            assert_eq!(tunnel.response_head().status(), 101);
            tunnel
        })
        .collect();
    // A client that never stops, on a connection that it keeps, and one that makes a new one each time.
    let over = Arc::new(AtomicBool::new(false));
    let served = Arc::new(AtomicUsize::new(0));
    let address = carom.address();
    let threads: Vec<_> = [true, false]
        .into_iter()
        .map(|keeps| {
            let (over, served) = (Arc::clone(&over), Arc::clone(&served));
            std::thread::spawn(move || {
                let mut client = Client::connect(address);
                while !over.load(Ordering::SeqCst) {
                    if !keeps {
                        client = Client::connect(address);
                    }
                    let path = format!("/{}", served.fetch_add(1, Ordering::SeqCst));
                    let response = client.get("a.test", &path);
                    assert_eq!((response.status(), response.text()), (200, path), "{:?}", response.error());
                }
            })
        })
        .collect();
    let settled = |round: usize| {
        let mark = carom.mark();
        carom.save_by_rename(&routes(round));
        let name = format!("c{round}.test");
        carom.stderr(mark, &name, |line| line.contains(&name));
    };
    for round in 1..=5 {
        settled(round);
    }
    let descriptors = carom.descriptors();
    let threads_before = carom.threads();
    for round in 6..=200 {
        // Each one is waited for: none may be swallowed by the next.
        carom.save_by_rename(&routes(round));
        carom.signal(Signal::HUP);
        let name = format!("+ c{round}.test");
        carom.stderr(0, &name, |line| line.contains(&name));
        // Their other ends wait for a word, but not for ever.
        if round.is_multiple_of(20) {
            for tunnel in &mut tunnels {
                tunnel.send("still here");
                tunnel.expect("still here");
            }
        }
    }
    over.store(true, Ordering::SeqCst);
    for thread in threads {
        thread.join().expect("a request failed");
    }
    assert!(served.load(Ordering::SeqCst) > 200, "the clients did not run");
    for tunnel in &mut tunnels {
        tunnel.send("still here");
        tunnel.expect("still here");
    }
    assert!(carom.descriptors() <= descriptors + 4, "{} descriptors, before {descriptors}", carom.descriptors());
    assert_eq!(carom.threads(), threads_before);
    assert_eq!(b.lines().len(), 0);
}
