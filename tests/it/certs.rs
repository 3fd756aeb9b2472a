//! Certificates: which one a name gets, and what becomes of files that change.

use std::os::unix::fs::{PermissionsExt, symlink};
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::SystemTime;

use carom::config::routes;
use carom::table::certs::{Certificate, Certificates};
use carom::{Proxy, Routes};
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;
use x509_parser::prelude::{FromDer, X509Certificate};

use crate::support::carom::{BINARY, run};
use crate::support::inside::Inside;
use crate::support::tls::{self, leaf, pem};
use crate::support::{Carom, Client, Origin, request};

/// What a client is shown: the names, joined, and how many days it is still valid.
fn shown(client: &Client) -> (String, u64) {
    let chain = client.session().peer_certificates().unwrap();
    let (_, certificate) = X509Certificate::from_der(&chain[0]).unwrap();
    let names = certificate.subject_alternative_name().unwrap().unwrap();
    let names: Vec<String> = names.value.general_names.iter().map(|name| name.to_string()).collect();
    let until = u64::try_from(certificate.validity().not_after.timestamp()).unwrap();
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap().as_secs();
    (names.join(" "), (until - now + 3600) / (24 * 60 * 60))
}

fn days(carom: &Carom, name: &str) -> u64 {
    shown(&carom.tls_client(name)).1
}

fn refused(carom: &Carom, name: &str) -> bool {
    tls::try_connect(carom.tls_address(), name, tls::config(rustls::ALL_VERSIONS)).is_err()
}

#[test]
fn the_exact_name_comes_before_the_wildcard_and_the_newest_among_equals() {
    let carom = Carom::to(1)
        .tls("wild.pem", leaf(&["*.w.test"]).valid(-1, 50).make().whole())
        .tls("exact.pem", leaf(&["a.w.test"]).valid(-9, 60).make().whole())
        .tls("old.pem", leaf(&["a.test", "b.test"]).valid(-5, 80).make().whole())
        .tls("new.pem", leaf(&["a.test"]).valid(-2, 70).make().whole())
        .start();
    for (name, want) in [("a.w.test", 60), ("b.w.test", 50), ("a.test", 70), ("b.test", 80), ("A.Test", 70)] {
        assert_eq!(days(&carom, name), want, "{name}");
    }
    for name in ["w.test", "x.y.w.test", "c.test"] {
        assert!(refused(&carom, name), "{name}");
    }
}

#[test]
fn every_layout_is_found_out() {
    let certbot = leaf(&["certbot.test"]).make();
    let acme = leaf(&["acme.test"]).make();
    let whole = leaf(&["whole.test"]).make();
    let carom = Carom::to(1)
        .tls("archive/certbot.test/fullchain1.pem", certbot.fullchain())
        .tls("archive/certbot.test/privkey1.pem", &certbot.key)
        .tls("live/certbot.test/cert.pem", &certbot.cert)
        .tls("live/certbot.test/chain.pem", &certbot.chain)
        .tls("acme.test_ecc/fullchain.cer", acme.fullchain())
        .tls("acme.test_ecc/acme.test.cer", &acme.cert)
        .tls("acme.test_ecc/ca.cer", &acme.chain)
        .tls("acme.test_ecc/acme.test.key", &acme.key)
        .tls("acme.test_ecc/acme.test.conf", "Le_Domain='acme.test'\n")
        .tls("one-file", format!("{}{}", whole.key, whole.fullchain()))
        .start();
    for name in ["certbot.test", "acme.test", "whole.test"] {
        let client = carom.tls_client(name);
        assert_eq!(shown(&client).1, 90, "{name}");
        assert_eq!(client.session().peer_certificates().map(<[CertificateDer<'_>]>::len), Some(2), "{name}");
    }
    assert_eq!(carom.said(0).len(), 1, "{:?}", carom.said(0));
}

#[test]
fn a_chain_is_sent_in_order_without_root_or_repetition_however_it_lies() {
    let made = leaf(&["a.test"]).make();
    let tls::Made { cert, chain, key } = &made;
    for (what, files) in [
        ("beside", vec![cert.clone(), chain.clone(), key.clone()]),
        ("with the root", vec![format!("{cert}{chain}{}{key}", tls::root())]),
        ("in the wrong order", vec![format!("{key}{}{chain}{cert}", tls::root())]),
        ("twice", vec![format!("{cert}{cert}{chain}{chain}{key}")]),
        ("alone and whole", vec![cert.clone(), made.whole(), chain.clone()]),
    ] {
        let named = files.into_iter().enumerate();
        let carom = named.fold(Carom::to(1), |setup, (n, pem)| setup.tls(&format!("{n}.pem"), pem)).start();
        let client = carom.tls_client("a.test");
        let sent = client.session().peer_certificates().unwrap();
        let wanted = [cert, chain].map(|pem| CertificateDer::from_pem_slice(pem.as_bytes()).unwrap());
        assert_eq!(sent, wanted, "{what}");
    }
}

#[test]
fn a_change_takes_effect_for_the_next_handshake_and_says_so() {
    let a = Origin::named("a");
    let carom = Carom::to(a.port()).tls("a.pem", leaf(&["a.test"]).valid(-2, 40).make().whole()).start();
    let mut before = carom.tls_client("a.test");
    assert_eq!(shown(&before).1, 40);

    let mark = carom.mark();
    carom.save_cert("a.pem", leaf(&["a.test"]).valid(-1, 60).make().whole());
    let said = carom.wait_certs(mark);
    assert!(said.contains("~ a.test until ") && said.contains("certs/a.pem"), "{said}");
    assert_eq!(days(&carom, "a.test"), 60);

    let mark = carom.mark();
    carom.save_cert("deep/er/b.pem", pem(&["*.b.test"]));
    let said = carom.wait_certs(mark);
    assert!(said.contains("certs changed: + *.b.test until "), "{said}");
    assert_eq!(days(&carom, "x.b.test"), 90);

    let mark = carom.mark();
    std::fs::remove_file(carom.folder().join("certs/deep/er/b.pem")).unwrap();
    assert!(carom.wait_certs(mark).contains("- *.b.test"));
    assert!(refused(&carom, "x.b.test"));
    assert_eq!(before.get("a.test", "/still").text(), "a GET /still");
}

#[test]
fn what_is_wrong_is_said_with_file_and_reason_and_the_last_good_one_stays() {
    let other = leaf(&["a.test"]).make();
    for (what, words) in [
        (leaf(&["a.test"]).valid(-9, -1).make().whole(), "expired on"),
        (leaf(&["a.test"]).valid(1, 9).make().whole(), "not valid before"),
        (format!("{}{}", other.cert, leaf(&["b.test"]).make().key), "private key is in none"),
        (other.whole()[..700].to_owned(), "cut off"),
        (other.whole().replace("MII", "!!!"), "can't be decoded"),
        (other.fullchain(), "private key is in none"),
        (other.whole().replace("PRIVATE KEY", "ENCRYPTED PRIVATE KEY"), "openssl pkey"),
        (leaf(&[]).make().whole(), "names no host"),
    ] {
        let carom = Carom::to(1).tls("a.pem", leaf(&["a.test"]).valid(-2, 40).make().whole()).start();
        let mark = carom.mark();
        carom.save_cert("a.pem", &what);
        let said = carom.stderr(mark, "what is wrong", |line| line.contains("certs/a.pem: "));
        assert!(said.contains(words) && said.contains("stays in use"), "{words}: {said}");
        assert_eq!(days(&carom, "a.test"), 40, "{words}");

        let mark = carom.mark();
        carom.save_cert("a.pem", leaf(&["a.test"]).make().whole());
        carom.wait_certs(mark);
        assert_eq!(days(&carom, "a.test"), 90, "{words}");
    }
}

#[test]
fn a_key_that_comes_before_its_certificate_changes_nothing_until_both_are_there() {
    let old = leaf(&["a.test"]).valid(-2, 40).make();
    let new = leaf(&["a.test"]).make();
    let carom = Carom::to(1).tls("live/chain.pem", old.fullchain()).tls("live/key.pem", old.key).start();
    let mark = carom.mark();
    carom.save_cert("live/key.pem", &new.key);
    carom.stderr(mark, "that the key is another's", |line| line.contains("stays in use"));
    assert_eq!(days(&carom, "a.test"), 40);
    let mark = carom.mark();
    carom.save_cert("live/chain.pem", new.fullchain());
    carom.wait_certs(mark);
    assert_eq!(days(&carom, "a.test"), 90);
}

#[test]
fn a_renewal_by_links_is_followed() {
    let (old, new) = (leaf(&["a.test"]).valid(-2, 40).make(), leaf(&["a.test"]).make());
    let carom = Carom::to(1).tls("readme", "").start();
    let folder = carom.folder().to_owned();
    let put = |number: u32, made: &tls::Made| {
        std::fs::create_dir_all(folder.join("archive")).unwrap();
        std::fs::create_dir_all(folder.join("certs/live")).unwrap();
        for (name, text) in [("fullchain", made.fullchain()), ("privkey", made.key.clone())] {
            let file = folder.join(format!("archive/{name}{number}.pem"));
            std::fs::write(&file, text).unwrap();
            let (link, new) = (folder.join(format!("certs/live/{name}.pem")), folder.join("link"));
            symlink(&file, &new).unwrap();
            std::fs::rename(&new, &link).unwrap();
        }
    };
    let mark = carom.mark();
    put(1, &old);
    carom.wait_certs(mark);
    assert_eq!(days(&carom, "a.test"), 40);
    let mark = carom.mark();
    put(2, &new);
    carom.wait_certs(mark);
    assert_eq!(days(&carom, "a.test"), 90);
}

#[test]
fn what_expires_soon_is_said_at_the_start() {
    let carom = Carom::to(1)
        .tls("a.pem", leaf(&["a.test"]).valid(-80, 13).make().whole())
        .tls("b.pem", leaf(&["b.test"]).valid(-80, 16).make().whole())
        .tls("old.pem", leaf(&["c.test"]).valid(-80, 3).make().whole())
        .tls("new.pem", leaf(&["c.test"]).make().whole())
        .tls("gone.pem", leaf(&["d.test"]).valid(-80, -3).make().whole())
        .start();
    let said = carom.said(0).join("\n");
    assert!(said.contains("certs/a.pem: a.test expires on ") && said.contains("in 12 days"), "{said}");
    assert!(said.contains("certs/gone.pem: it expired on "), "{said}");
    assert!(!said.contains("b.test") && !said.contains("c.test"), "{said}");
}

#[test]
fn a_site_may_have_a_certificate_of_its_own() {
    let folder = tempfile::tempdir().unwrap();
    let made = leaf(&["a.test", "b.test"]).valid(-5, 33).make();
    std::fs::write(folder.path().join("own.pem"), made.fullchain()).unwrap();
    std::fs::write(folder.path().join("own.key"), &made.key).unwrap();
    let at = folder.path().display();
    let routes =
        format!("\"b.test\" = 1\n[\"a.test\"]\nto = 1\ntls = {{ cert = \"{at}/own.pem\", key = \"{at}/own.key\" }}\n");
    let carom = Carom::serving(&routes).tls("all.pem", pem(&["a.test", "b.test"])).start();
    assert_eq!((days(&carom, "a.test"), days(&carom, "b.test")), (33, 90));

    let mark = carom.mark();
    std::fs::write(folder.path().join("own.pem"), "nothing").unwrap();
    carom.stderr(mark, "that it is none", |line| line.contains("own.pem: ") && line.contains("stays in use"));
    assert_eq!(days(&carom, "a.test"), 33);

    carom.reroute("\"b.test\" = 1\n\"a.test\" = 1\n");
    assert_eq!(days(&carom, "a.test"), 90);
    std::fs::write(folder.path().join("own.pem"), made.fullchain()).unwrap();
    carom.reroute(&routes);
    assert_eq!(days(&carom, "a.test"), 33);
}

#[test]
fn the_default_is_for_names_without_one_and_for_no_name() {
    let a = Origin::named("a");
    let carom = Carom::serving(format!("\"*\" = {}", a.port()))
        .config("default_cert = \"a.test\"")
        .tls("a.pem", pem(&["a.test", "127.0.0.1"]))
        .start();
    let mut client = tls::connect(carom.tls_address(), "127.0.0.1");
    assert_eq!(client.get("127.0.0.1", "/1").text(), "a GET /1");
    // Its client would not take a certificate that is not for it, but it is shown one.
    let error = tls::try_connect(carom.tls_address(), "b.test", tls::config(rustls::ALL_VERSIONS)).err().unwrap();
    assert!(error.to_string().contains("not valid for name"), "{error}");
}

#[test]
fn two_hundred_swaps_under_load_fail_no_handshake_and_drop_no_stream() {
    let a = Origin::new(|conn| {
        while let Some(request) = conn.request() {
            if request.has("upgrade") {
                conn.send("HTTP/1.1 101 Switching Protocols\r\nConnection: upgrade\r\nUpgrade: echo\r\n\r\n");
                return conn.echo();
            }
            conn.answer("a", &request);
        }
    });
    let text = format!("\"a.test\" = {}", a.port());
    let table = || routes::parse("routes.toml".as_ref(), text.as_bytes(), &[], None).unwrap();
    let swapped: Vec<_> = (0..200)
        .map(|_| {
            table().with_certificates(Arc::new(Certificates::of([
                Certificate::from_pem(pem(&["a.test"]).as_bytes()).unwrap()
            ])))
        })
        .collect();
    let published = Routes::new(table());
    let mut swapped = swapped.into_iter();
    published.publish(swapped.next().unwrap());
    let builder = Proxy::builder().listen_tls("127.0.0.1:0").decide(published.clone()).certify(published.clone());
    let proxy = Inside::running(builder);
    let address = proxy.address();
    let mut tunnel = tls::connect(address, "a.test");
    tunnel.send(request("GET /t", "a.test", &["Connection: Upgrade", "Upgrade: echo"]));
    assert_eq!(tunnel.response_head().status(), 101);
    let mut kept = tls::connect(address, "a.test");

    let over = Arc::new(AtomicBool::new(false));
    let clients: Vec<_> = (0..3)
        .map(|_| {
            let over = Arc::clone(&over);
            std::thread::spawn(move || {
                let mut handshakes = 0;
                while !over.load(Ordering::Relaxed) {
                    assert_eq!(tls::connect(address, "a.test").get("a.test", "/").status(), 200);
                    handshakes += 1;
                }
                handshakes
            })
        })
        .collect();
    for table in swapped {
        published.publish(table);
        assert_eq!(kept.get("a.test", "/kept").status(), 200);
        tunnel.send("ping");
        tunnel.expect("ping");
    }
    over.store(true, Ordering::Relaxed);
    for client in clients {
        assert!(client.join().unwrap() > 0);
    }
}

/// Runs a verb in a folder with these routes and certificates.
fn verb(routes: &str, certs: &[(&str, String)], arguments: &[&str]) -> (Option<i32>, String) {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("routes.toml"), routes).unwrap();
    std::fs::create_dir(folder.path().join("certs")).unwrap();
    for (file, pem) in certs {
        std::fs::write(folder.path().join("certs").join(file), pem).unwrap();
    }
    run(Command::new(BINARY).args(arguments).current_dir(folder.path()))
}

#[test]
fn check_says_which_sites_have_none_and_which_are_no_sites() {
    let routes = "\"a.test\" = 1\n\"b.test\" = 1\n\"x.w.test\" = 1\n\"*.v.test\" = 1\n\"*.u.test\" = 1\n";
    let certs = [
        ("a.pem", pem(&["a.test", "www.a.test"])),
        ("w.pem", pem(&["*.w.test"])),
        ("v.pem", pem(&["*.v.test"])),
        ("old.pem", pem(&["old.test", "*.old.test"])),
    ];
    let (code, said) = verb(routes, &certs, &["check", "--certs", "certs"]);
    assert_eq!(code, Some(0), "{said}");
    assert!(said.contains("no certificate: b.test (routes.toml:2)"), "{said}");
    assert!(said.contains("no certificate: *.u.test (routes.toml:5)"), "{said}");
    assert_eq!(said.matches("no certificate").count(), 2, "{said}");
    assert!(said.contains("of no site: certs/old.pem (old.test, *.old.test)"), "{said}");
    assert_eq!(said.matches("of no site").count(), 1, "{said}");

    let broken = [("a.pem", pem(&["a.test"]).replace("-----END", "----END"))];
    let (code, said) = verb("\"a.test\" = 1\n", &broken, &["check", "--tls", "8443"]);
    assert_eq!(code, Some(1), "{said}");
    assert!(said.contains("certs/a.pem: it is"), "{said}");
    let (code, said) = verb("\"a.test\" = 1\n", &broken, &["check"]);
    assert_eq!(code, Some(0), "without TLS nobody looks: {said}");
}

#[test]
fn explain_names_the_certificate() {
    let certs = [("a.pem", pem(&["a.test"]))];
    let (code, said) = verb("\"*\" = 1\n", &certs, &["explain", "https://a.test/", "--certs", "certs"]);
    assert_eq!(code, Some(0), "{said}");
    assert!(said.contains("shown   a.test   certs/a.pem, until "), "{said}");
    let (_, said) = verb("\"*\" = 1\n", &certs, &["explain", "https://b.test/", "--certs", "certs"]);
    assert!(said.contains("unrecognized_name"), "{said}");
}

#[test]
fn self_signed_certificates_are_made_for_the_routed_names_and_for_new_ones() {
    let a = Origin::named("a");
    let folder = tempfile::tempdir().unwrap();
    let routes = format!("\"a.test\" = {0}\n\"*.w.test\" = {0}\n", a.port());
    std::fs::write(folder.path().join("routes.toml"), &routes).unwrap();
    let arguments = ["serve", "routes.toml", "--tls", "127.0.0.1:0", "--tls-self-signed", "--workers", "1"];
    let carom = Carom::in_folder(folder, &arguments);
    assert!(carom.said(0).iter().any(|line| line.contains("--cacert certs/local/ca.pem")), "{:?}", carom.said(0));
    let authority = carom.folder().join("certs/local/ca.pem");
    let get = |name: &str| {
        let config = tls::config_trusting(&std::fs::read(&authority).unwrap());
        tls::try_connect(carom.tls_address(), name, config).map(|mut client| client.get(name, "/1").status())
    };
    assert_eq!((get("a.test").unwrap(), get("x.w.test").unwrap()), (200, 200));
    assert_eq!(get("127.0.0.1").unwrap(), 404);
    assert!(get("b.test").is_err());
    carom.reroute(&format!("{routes}\"b.test\" = {}\n", a.port()));
    assert_eq!(get("b.test").unwrap(), 200);
    let mode = std::fs::metadata(carom.folder().join("certs/local/ca.key")).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
}

#[test]
fn a_folder_that_is_not_there_or_has_nothing_is_said() {
    let (code, said) = verb("\"a.test\" = 1\n", &[], &["serve", "--tls", "127.0.0.1:0", "--certs", "none"]);
    assert_eq!(code, Some(1), "{said}");
    assert!(said.contains("none: there is no such folder") && said.contains("--certs"), "{said}");
    let (code, said) = verb("\"a.test\" = 1\n", &[], &["serve", "--listen", "127.0.0.1:0", "--tls-self-signed"]);
    assert_eq!(code, Some(1), "{said}");
    assert!(said.contains("--tls '[::]:443'"), "{said}");

    // One that nobody has named needs not be there: a site may have a certificate of its own.
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("own.pem"), pem(&["a.test"])).unwrap();
    std::fs::write(folder.path().join("routes.toml"), "[\"a.test\"]\nto = 1\ntls = { cert = \"own.pem\" }\n").unwrap();
    let carom = Carom::in_folder(folder, &["serve", "--tls", "127.0.0.1:0"]);
    assert_eq!((days(&carom, "a.test"), carom.said(0).len()), (90, 1), "{:?}", carom.said(0));

    // One that has nothing yet is waited for.
    let carom = Carom::to(1).config("default_cert = \"a.test\"").tls("readme", "").start();
    assert!(carom.said(0).iter().any(|line| line.contains("no certificate yet")), "{:?}", carom.said(0));
    let mark = carom.mark();
    carom.save_cert("a.pem", pem(&["a.test"]));
    carom.wait_certs(mark);
    assert_eq!(days(&carom, "a.test"), 90);
}

#[test]
fn a_hangup_reads_the_certificates_again() {
    let carom = Carom::to(1).tls("a.pem", pem(&["a.test"])).start();
    let mark = carom.mark();
    carom.signal(rustix::process::Signal::HUP);
    carom.stderr(mark, "that they are the same", |line| line.contains("certs read again: no certificate has changed"));
    carom.stderr(mark, "that the routes are", |line| line.contains("routes.toml read again"));
}
