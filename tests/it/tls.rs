//! TLS in front: handshakes, and which certificate is shown.

use rustls::version::{TLS12, TLS13};

use crate::support::tls::{self, leaf, pem};
use crate::support::{Carom, Origin};

#[test]
fn requests_over_tls_reach_the_backend_and_say_so() {
    for versions in [&[&TLS12], &[&TLS13]] {
        let a = Origin::named("a");
        let carom = Carom::to(a.port()).tls("a.pem", pem(&["a.test"])).start();
        let mut client = tls::try_connect(carom.tls_address(), "a.test", tls::config(versions)).unwrap();
        assert_eq!(client.get("a.test", "/1").text(), "a GET /1");
        assert_eq!(a.request().field("x-forwarded-proto"), Some("https"));
        assert_eq!(client.get("a.test:443", "/2").text(), "a GET /2");
    }
}

#[test]
fn a_name_without_a_certificate_is_refused_as_unrecognized() {
    let carom = Carom::to(1).tls("a.pem", pem(&["a.test"])).start();
    let mark = carom.mark();
    let error = tls::try_connect(carom.tls_address(), "b.test", tls::config(rustls::ALL_VERSIONS)).err().unwrap();
    assert!(error.to_string().contains("UnrecognisedName"), "{error}");
    let said = carom.stderr(mark, "whom it has refused", |line| line.contains("has no certificate"));
    assert!(said.contains("b.test") && said.contains("127.0.0.1:"), "{said}");
    let error = tls::try_connect(carom.tls_address(), "127.0.0.1", tls::config(rustls::ALL_VERSIONS)).err().unwrap();
    assert!(error.to_string().contains("UnrecognisedName"), "{error}");
}

#[test]
fn a_host_that_the_certificate_is_not_for_is_misdirected() {
    let a = Origin::named("a");
    let routes = format!("\"*\" = {}", a.port());
    let carom = Carom::serving(routes).tls("a.pem", pem(&["a.test", "*.w.test"])).start();
    let mut client = carom.tls_client("a.test");
    assert_eq!(client.get("b.test", "/1").error(), Some("misdirected"));
    assert_eq!(client.get("x.y.w.test", "/2").status(), 421);
    assert_eq!(client.get("x.w.test", "/3").text(), "a GET /3");
    assert_eq!(a.request().target(), "/3");
}

#[test]
fn every_kind_of_key_is_served() {
    let kinds = [&rcgen::PKCS_ECDSA_P256_SHA256, &rcgen::PKCS_ECDSA_P384_SHA384, &rcgen::PKCS_ED25519];
    for (kind, number) in kinds.into_iter().zip(1..) {
        let name = format!("{number}.test");
        let a = Origin::named("a");
        let routes = format!("\"*\" = {}", a.port());
        let made = leaf(&[&name]).algorithm(kind).make();
        let carom = Carom::serving(routes).tls("x/chain.txt", made.fullchain()).tls("y/key.txt", made.key).start();
        assert_eq!(carom.tls_client(&name).get(&name, "/1").text(), "a GET /1");
    }
}

#[test]
fn the_key_exchange_is_safe_from_quantum_computers() {
    let carom = Carom::to(1).tls("a.pem", pem(&["a.test"])).start();
    let client = carom.tls_client("a.test");
    let group = client.session().negotiated_key_exchange_group().unwrap().name();
    assert_eq!(group, rustls::NamedGroup::X25519MLKEM768);
}
