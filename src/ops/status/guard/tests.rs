use super::*;
use hyper::Request;

const TOKEN: &str = "a-long-enough+token/1=";

fn guard(token: Option<&str>) -> Guard {
    Guard::new("127.0.0.1:9180".parse().unwrap(), token.map(Into::into)).unwrap()
}

fn judge(guard: &Guard, target: &str, fields: &[(&str, &str)]) -> Verdict {
    let request = fields.iter().fold(Request::get(target), |request, (name, value)| request.header(*name, *value));
    guard.judge(&request.body(()).unwrap().into_parts().0)
}

#[test]
fn without_a_token_only_names_of_this_machine_pass() {
    let guard = guard(None);
    for host in ["localhost", "LOCALHOST:9180", "127.0.0.1:9180", "127.0.0.1", "127.8.0.1:1", "[::1]:9180", "[::1]"] {
        assert_eq!(judge(&guard, "/", &[("host", host)]), Verdict::Pass, "{host}");
    }
    for host in [
        "evil.test",
        "evil.test:9180",
        "127.0.0.1.evil.test",
        "localhost.evil.test",
        "192.0.2.1:9180",
        "",
        "::1:x",
        "0.0.0.0",
    ] {
        assert_eq!(judge(&guard, "/", &[("host", host)]), Verdict::Stranger, "{host}");
    }
    assert_eq!(judge(&guard, "/", &[]), Verdict::Stranger);
    assert_eq!(judge(&guard, "http://evil.test/", &[("host", "localhost")]), Verdict::Stranger);
}

#[test]
fn with_a_token_whoever_has_it_passes_by_whatever_name() {
    let guard = guard(Some(TOKEN));
    let bearer = format!("bearer {TOKEN}");
    assert_eq!(judge(&guard, "/metrics", &[("authorization", &bearer), ("host", "status.test")]), Verdict::Pass);
    for (target, fields) in [
        ("/", &[][..]),
        ("/", &[("host", "localhost")]),
        ("/", &[("authorization", "Bearer wrong")]),
        ("/", &[("authorization", TOKEN)]),
        ("/", &[("authorization", "Basic a-long-enough+token/1=")]),
        ("/", &[("cookie", "carom-status-9180=a-long-enough+token/1=")]),
        ("/?token=", &[]),
        ("/?token=wrong", &[]),
        ("/?x=a-long-enough+token/1=", &[]),
    ] {
        assert_eq!(judge(&guard, target, fields), Verdict::NoToken, "{target} {fields:?}");
    }
}

#[test]
fn the_token_in_the_address_is_changed_for_a_cookie_that_is_not_it() {
    let guard = guard(Some(TOKEN));
    for target in ["/?token=a-long-enough+token/1=", "/?x&token=a-long-enough%2Btoken%2f1%3D"] {
        let Verdict::Enter { cookie } = judge(&guard, target, &[]) else { panic!("{target}") };
        assert!(cookie.contains("; HttpOnly") && !cookie.contains(TOKEN), "{cookie}");
        let pair = cookie.split(';').next().unwrap();
        assert_eq!(judge(&guard, "/", &[("cookie", &format!("a=b; {pair}"))]), Verdict::Pass);
        let other = self::guard(Some(TOKEN));
        assert_eq!(judge(&other, "/", &[("cookie", pair)]), Verdict::NoToken, "another run's");
    }
}
