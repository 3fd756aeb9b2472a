//! What must hold of every message, whatever its bytes: each function here takes bytes and panics where carom's reader
//! and the plain [`reference`](crate::http::reference) one part ways, where a verdict depends on how the bytes came
//! in pieces, or where a rewritten head means something else than the one it was made of.
//!
//! The tests below feed them with generated messages, the targets in `fuzz/` with whatever libFuzzer finds.

#![allow(clippy::expect_used, reason = "a panic is the verdict")]

use std::net::IpAddr;

use crate::http::body::{BadBody, Body, ChunkLimits, Framing};
use crate::http::head::{Head, Parsed, RequestHead};
use crate::http::host::Host;
use crate::http::reference::{self, Field};
use crate::http::refuse::Refusal;
use crate::http::response::ResponseHead;
use crate::http::rewrite::{self, Origin, Persistence};
use crate::settings::{ForwardedFields, Limits};

/// Limits that small messages can reach.
fn tight() -> Limits {
    Limits { head: 400, target: 40, fields: 6, response_head: 200, ..Limits::default() }
}

/// Everything about a request's head.
pub(crate) fn request(bytes: &[u8]) {
    let reference = reference::request(bytes);
    for limits in [Limits::default(), tight()] {
        let mut head = RequestHead::default();
        let verdict = head.parse(bytes, &limits);
        match (&verdict, &reference) {
            (Ok(Parsed::Whole), Some(reference)) => same_request(bytes, &head, reference),
            (Ok(Parsed::Whole), None) => panic!("accepted what is not whole or has two meanings"),
            (Ok(Parsed::Partial), Some(_)) => panic!("waits for more of a whole head"),
            (Err(refusal), Some(reference)) => {
                assert!(over_a_request_limit(reference, bytes, &limits), "refused a head of one meaning: {refusal}")
            }
            (_, None) => {}
        }
        let parse = |head: &mut RequestHead, bytes: &[u8]| head.parse(bytes, &limits);
        in_pieces(bytes, (&head, head.length, verdict), parse, |head| meaning(bytes, head), EARLIER_REQUEST);
    }
    let mut head = RequestHead::default();
    if let (Ok(Parsed::Whole), Some(reference)) = (head.parse(bytes, &Limits::default()), &reference) {
        for origin in origins() {
            rewritten_request(bytes, &head, reference, &origin);
        }
    }
}

fn same_request(bytes: &[u8], head: &RequestHead, reference: &reference::Request) {
    assert_eq!(head.length, reference.length, "where the head ends");
    assert_eq!(head.method(bytes), reference.method, "method");
    assert_eq!(origin_form(head.target(bytes)), reference.target, "target");
    assert_eq!(head.minor, reference.minor, "version");
    assert_eq!(head.framing, reference.framing, "framing");
    assert_eq!(head.authority.is_some(), reference.absolute, "form of the target");
    assert_eq!(head.host_text(bytes), reference.host_text.as_deref(), "spelling of the host");
    assert!(same_host(head.host(), reference.host.as_ref()), "host: {:?} and {:?}", head.host(), reference.host);
    same_fields(bytes, &head.fields, &reference.fields);
    let options = reference::list(&reference.fields, "connection");
    let says = |option: &str| options.iter().any(|o| o == option);
    assert_eq!(head.keep_alive, !says("close") && (head.minor == 1 || says("keep-alive")), "keep-alive");
    let seen = Head::new(bytes, head);
    assert!(reference.fields.iter().all(|field| seen.field(&field.name).is_some()), "fields by name");
}

fn same_fields(bytes: &[u8], fields: &[crate::http::field::Field], reference: &[Field]) {
    let ours: Vec<_> = fields.iter().map(|field| (field.name(bytes), field.value(bytes))).collect();
    let theirs: Vec<_> = reference.iter().map(|field| (&field.raw_name[..], &field.value[..])).collect();
    assert_eq!(ours, theirs, "fields");
}

fn same_host(ours: Option<&Host>, theirs: Option<&reference::Host>) -> bool {
    ours.map(|host| (host.name(), host.port())) == theirs.map(|host| (host.name.as_str(), host.port))
}

/// A query alone stands for one behind `/`.
fn origin_form(target: &[u8]) -> Vec<u8> {
    let slash: &[u8] = if target.starts_with(b"?") { b"/" } else { b"" };
    [slash, target].concat()
}

fn over_a_request_limit(reference: &reference::Request, bytes: &[u8], limits: &Limits) -> bool {
    // Room for a method and a version beside the target, as long as nobody uses them.
    let first_line = bytes.iter().position(|&byte| byte == b'\n').unwrap_or(bytes.len());
    let named = reference::list(&reference.fields, "connection").len();
    reference.length > limits.head || first_line > limits.target || reference.fields.len() > limits.fields || named > 64
}

/// Heads that leave something in every part of the value that they are read into.
const EARLIER_REQUEST: &[u8] = b"OPTIONS http://z.test:9 HTTP/1.1\r\nHost: y\r\nConnection: upgrade\r\nUpgrade: x\r\n\
    TE: trailers\r\nExpect: 100-continue\r\nAccept: text/html\r\n\r\n";
const EARLIER_RESPONSE: &[u8] = b"HTTP/1.1 101 S\r\nConnection: upgrade\r\nUpgrade: x\r\nContent-Length: 7\r\n\r\n";

/// Whether it came whole or not, whatever stands behind it, and whatever the value had read before, a head means the
/// same; only a refusal may come early.
fn in_pieces<H: Default>(
    bytes: &[u8],
    (whole, length, verdict): (&H, usize, Result<Parsed, Refusal>),
    parse: impl Fn(&mut H, &[u8]) -> Result<Parsed, Refusal>,
    meaning: impl Fn(&H) -> String,
    earlier: &[u8],
) {
    let mut head = H::default();
    assert_eq!(parse(&mut head, earlier), Ok(Parsed::Whole), "the earlier head");
    for end in 0..=bytes.len() {
        match (parse(&mut head, &bytes[..end]), verdict) {
            (Ok(Parsed::Partial), Ok(Parsed::Whole)) => assert!(end < length, "at {end}: waits for more"),
            (Ok(Parsed::Whole), Ok(Parsed::Whole)) => {
                assert_eq!(meaning(&head), meaning(whole), "at {end}: another head");
            }
            (Ok(Parsed::Whole), _) => panic!("at {end}: accepted, but with more behind it {verdict:?}"),
            (Err(early), Ok(_)) => panic!("at {end}: refused ({early}), but with more behind it {verdict:?}"),
            (Ok(Parsed::Partial), _) | (Err(_), Err(_)) => {}
        }
    }
}

/// All that can be learnt of a request's head. (What is left of an earlier host, behind a flag, can't.)
fn meaning(bytes: &[u8], head: &RequestHead) -> String {
    let first = (head.method(bytes), head.target(bytes), head.minor, head.host(), head.host_text(bytes));
    let places = (head.length, head.authority, head.fields.start, &head.fields);
    let flags = (head.keep_alive, head.upgrade, head.te_trailers, head.expects_continue);
    let kind = (head.framing, head.is_head, head.is_idempotent, head.wants_html);
    format!("{first:?} {places:?} {flags:?} {kind:?}")
}

fn origins() -> Vec<Origin<'static>> {
    use ForwardedFields::{Both, Forwarded, None, XForwarded};
    let mut origins = Vec::new();
    for fields in [XForwarded, Forwarded, Both, None] {
        for (trusted, peer) in [(false, [192, 0, 2, 7].into()), (true, IpAddr::from([0x2001, 0xdb8, 0, 0, 0, 0, 0, 1]))]
        {
            origins.push(Origin {
                peer,
                trusted,
                scheme: if trusted { "https" } else { "http" },
                fields,
                id: Option::None,
            });
        }
    }
    origins
}

fn rewritten_request(bytes: &[u8], head: &RequestHead, before: &reference::Request, origin: &Origin) {
    let mut out = b"in front".to_vec();
    rewrite::request(&mut out, bytes, head, origin, &rewrite::Changes::default());
    let out = out.strip_prefix(b"in front").expect("what was there stays there");
    let after = reference::request(out);
    let after = after.unwrap_or_else(|| panic!("rewritten into no head: {}", out.escape_ascii()));
    let context = || format!("{origin:?}: {}", out.escape_ascii());

    assert_eq!(after.length, out.len(), "bytes behind the head: {}", context());
    assert_eq!(after.method, before.method, "{}", context());
    assert_eq!(after.target, before.target, "{}", context());
    assert_eq!(after.host, before.host, "{}", context());
    assert_eq!(after.host_text, before.host_text, "{}", context());
    assert_eq!(after.framing, before.framing, "{}", context());
    assert_eq!(after.minor, u8::from(before.host.is_some()), "{}", context());
    let mut again = RequestHead::default();
    let roomy = Limits { head: out.len(), target: out.len(), fields: 1000, ..Limits::default() };
    assert_eq!(again.parse(out, &roomy), Ok(Parsed::Whole), "{}", context());
    assert_eq!(again.upgrade, head.upgrade, "{}", context());

    // Every field that means something to no proxy is there, as it was and where it was, unless `Connection` names it.
    let options = reference::list(&before.fields, "connection");
    let unknown = |name: &str| before.minor == 0 && name == "expect";
    let kept = |field: &&Field| plain(&field.name) && !unknown(&field.name) && !nominated(&options, &field.name);
    assert!(
        before.fields.iter().filter(kept).eq(after.fields.iter().filter(|field| plain(&field.name))),
        "{}",
        context()
    );
    assert!(!after.fields.iter().any(|field| looks_alike(&field.name)), "a look-alike: {}", context());

    hop_fields_of_a_request(&after.fields, head, &context);
    if origin.trusted {
        trusted_fields(&after, origin, &context);
    } else {
        let found: Vec<_> = after
            .fields
            .iter()
            .filter(|field| reference::is_forwarding(&field.name))
            .map(|field| (field.name.as_str(), String::from_utf8_lossy(&field.value).into_owned()))
            .collect();
        assert_eq!(found, ours(before, origin), "{}", context());
    }
}

/// Only what we say of this hop ourselves.
fn hop_fields_of_a_request(fields: &[Field], head: &RequestHead, context: &dyn Fn() -> String) {
    let values = |name: &str| -> Vec<_> { fields.iter().filter(|f| f.name == name).map(|f| &f.value[..]).collect() };
    for name in ["keep-alive", "proxy-connection", "http2-settings"] {
        assert!(values(name).is_empty(), "{name}: {}", context());
    }
    let (connection, te): (&[&[u8]], &[&[u8]]) = match (head.upgrade, head.te_trailers) {
        (true, true) => (&[b"upgrade, TE"], &[b"trailers"]),
        (true, false) => (&[b"upgrade"], &[]),
        (false, true) => (&[b"TE"], &[b"trailers"]),
        (false, false) => (&[], &[]),
    };
    assert_eq!((&values("connection")[..], &values("te")[..]), (connection, te), "{}", context());
    assert_eq!(!values("upgrade").is_empty(), head.upgrade, "{}", context());
}

/// The forwarding fields that say what we know of the client ourselves.
fn ours(request: &reference::Request, origin: &Origin) -> Vec<(&'static str, String)> {
    let host = request.host_text.as_ref().map(|host| String::from_utf8_lossy(host).into_owned());
    let mut fields = Vec::new();
    if matches!(origin.fields, ForwardedFields::XForwarded | ForwardedFields::Both) {
        fields.push(("x-forwarded-for", origin.peer.to_string()));
        fields.push(("x-forwarded-proto", origin.scheme.to_owned()));
        fields.extend(host.clone().map(|host| ("x-forwarded-host", host)));
    }
    if matches!(origin.fields, ForwardedFields::Forwarded | ForwardedFields::Both) {
        fields.push(("forwarded", forwarded_element(host.as_deref(), origin)));
    }
    fields
}

/// RFC 7239: what holds a byte that no token has is quoted.
fn forwarded_element(host: Option<&str>, origin: &Origin) -> String {
    let peer = match origin.peer {
        IpAddr::V4(peer) => peer.to_string(),
        IpAddr::V6(peer) => format!("\"[{peer}]\""),
    };
    let host = match host {
        Some(host) if host.contains([':', '[']) => format!(";host=\"{host}\""),
        Some(host) => format!(";host={host}"),
        None => String::new(),
    };
    format!("for={peer};proto={}{host}", origin.scheme)
}

/// What a trusted peer said stays in front of what we say, and can't swallow it.
fn trusted_fields(after: &reference::Request, origin: &Origin, context: &dyn Fn() -> String) {
    for (name, value) in ours(after, origin) {
        let values: Vec<_> = after.fields.iter().filter(|field| field.name == name).map(|field| &field.value).collect();
        match name {
            "x-forwarded-for" => {
                assert_eq!(values.len(), 1, "{name}: {}", context());
                assert_eq!(
                    values[0].rsplit(|&byte| byte == b',').next().map(<[u8]>::trim_ascii),
                    Some(value.as_bytes())
                );
            }
            "forwarded" => {
                assert_eq!(values.len(), 1, "{name}: {}", context());
                let elements = outside_quotes(values[0]);
                assert_eq!(elements.last().map(|e| e.trim_ascii()), Some(value.as_bytes()), "{}", context());
            }
            _ => assert!(!values.is_empty(), "{name}: {}", context()),
        }
    }
}

/// Splits at the commas that stand outside quoted strings (RFC 9110 section 5.6.4).
fn outside_quotes(value: &[u8]) -> Vec<&[u8]> {
    let (mut quoted, mut escaped) = (false, false);
    value
        .split(|&byte| {
            if escaped {
                escaped = false;
            } else if quoted && byte == b'\\' {
                escaped = true;
            } else if byte == b'"' {
                quoted = !quoted;
            }
            byte == b',' && !quoted
        })
        .collect()
}

/// Whether a field of this name is none of a proxy's business.
fn plain(name: &str) -> bool {
    name != "host" && !looks_alike(name) && !reference::is_hop(name) && !reference::is_forwarding(name)
}

/// Whether an odd character stands for a `-` of a name that means something.
fn looks_alike(name: &str) -> bool {
    let real = reference::dashed(name);
    let meant = reference::is_hop(&real) || reference::is_forwarding(&real);
    name != real && (meant || real == "content-length" || real == "transfer-encoding")
}

/// Whether `Connection` may take this field away. It names the closing and keeping of the connection too.
fn nominated(options: &[String], name: &str) -> bool {
    !["content-length", "transfer-encoding", "close", "keep-alive", "upgrade"].contains(&name)
        && options.iter().any(|option| option == name)
}

/// Everything about a response's head.
pub(crate) fn response(bytes: &[u8]) {
    for to_head in [false, true] {
        let reference = reference::response(bytes, to_head);
        for limits in [Limits::default(), tight()] {
            let mut head = ResponseHead::default();
            let verdict = head.parse(bytes, to_head, &limits);
            match (&verdict, &reference) {
                (Ok(Parsed::Whole), Some(reference)) => same_response(bytes, &head, reference),
                (Ok(Parsed::Whole), None) => panic!("accepted what is not whole or has two meanings"),
                (Ok(Parsed::Partial), Some(_)) => panic!("waits for more of a whole head"),
                (Err(refusal), Some(reference)) => {
                    let named = reference::list(&reference.fields, "connection").len();
                    let fields = reference.fields.len();
                    let over = reference.length > limits.response_head || fields > limits.fields || named > 64;
                    assert!(over, "refused a head of one meaning: {refusal}");
                }
                (_, None) => {}
            }
            let parse = |head: &mut ResponseHead, bytes: &[u8]| head.parse(bytes, to_head, &limits);
            in_pieces(bytes, (&head, head.length, verdict), parse, |head| format!("{head:?}"), EARLIER_RESPONSE);
        }
        let mut head = ResponseHead::default();
        if let (Ok(Parsed::Whole), Some(before)) = (head.parse(bytes, to_head, &Limits::default()), &reference) {
            use Persistence::{Close, KeepAlive, Silent, Upgrade};
            for persistence in [Silent, KeepAlive, Close, Upgrade] {
                if persistence != Upgrade || (head.status == 101 && head.upgrade) {
                    rewritten_response(bytes, &head, before, persistence, false, to_head);
                }
            }
            if rewrite::must_dechunk(head.framing, 0) {
                rewritten_response(bytes, &head, before, Close, true, to_head);
            }
        }
    }
}

fn same_response(bytes: &[u8], head: &ResponseHead, reference: &reference::Response) {
    assert_eq!(head.length, reference.length, "where the head ends");
    assert_eq!((head.minor, head.status), (reference.minor, reference.status), "version and status");
    assert_eq!(head.framing, reference.framing, "framing");
    same_fields(bytes, &head.fields, &reference.fields);
    let options = reference::list(&reference.fields, "connection");
    let says = |option: &str| options.iter().any(|o| o == option);
    let goes_on = !says("close") && (head.minor == 1 || says("keep-alive")) && head.framing != Framing::UntilClose;
    assert_eq!(head.keep_alive, goes_on, "keep-alive");
    let upgrade = says("upgrade") && reference.fields.iter().any(|field| field.name == "upgrade");
    assert_eq!(head.upgrade, upgrade, "upgrade");
}

fn rewritten_response(
    bytes: &[u8],
    head: &ResponseHead,
    before: &reference::Response,
    persistence: Persistence,
    dechunk: bool,
    to_head: bool,
) {
    let mut out = b"in front".to_vec();
    let changed = rewrite::response(&mut out, bytes, head, persistence, dechunk, rewrite::Added::default());
    let written = out.strip_prefix(b"in front").expect("what was there stays there");
    assert!(changed || written.is_empty(), "wrote, and said that it did not");
    let out = if changed { written } else { &bytes[..head.length] };
    let after = reference::response(out, to_head);
    let after = after.unwrap_or_else(|| panic!("rewritten into no head: {}", out.escape_ascii()));
    let context = || format!("{persistence:?}, dechunked: {dechunk}: {}", out.escape_ascii());

    assert_eq!(after.length, out.len(), "bytes behind the head: {}", context());
    assert_eq!((after.minor, after.status, &after.reason), (1, before.status, &before.reason), "{}", context());
    let framing = if dechunk { Framing::UntilClose } else { before.framing };
    assert_eq!(after.framing, framing, "{}", context());

    let options = reference::list(&before.fields, "connection");
    let bodiless = before.status < 200 || before.status == 204;
    let framed = |name: &str| match name {
        "content-length" => bodiless,
        "transfer-encoding" => bodiless || dechunk,
        _ => false,
    };
    let hop = |name: &str| ["connection", "keep-alive", "proxy-connection", "upgrade"].contains(&name);
    let kept = |field: &&Field| {
        !hop(&field.name) && !framed(&field.name) && (field.name == "host" || !nominated(&options, &field.name))
    };
    assert!(
        before.fields.iter().filter(kept).eq(after.fields.iter().filter(|field| !hop(&field.name))),
        "{}",
        context()
    );

    let values = |name: &str| after.fields.iter().filter(|field| field.name == name).count();
    assert_eq!((values("keep-alive"), values("proxy-connection")), (0, 0), "{}", context());
    let upgrades = persistence == Persistence::Upgrade || before.status == 426;
    let sent = before.fields.iter().filter(|field| field.name == "upgrade").count();
    assert_eq!(values("upgrade"), if upgrades { sent } else { 0 }, "{}", context());
    let said = reference::list(&after.fields, "connection");
    let says = |option: &str| said.iter().any(|o| o == option);
    assert_eq!(says("close"), persistence == Persistence::Close, "{}", context());
    assert_eq!(says("upgrade"), upgrades, "{}", context());
    assert!(said.len() <= 2 && values("connection") <= 1, "{}", context());
}

/// Everything about a chunked body, and about what stands behind it.
pub(crate) fn chunked(bytes: &[u8]) {
    let reference = reference::chunked(bytes);
    for limits in [
        ChunkLimits { line: 4096, trailers: 4096, content: None },
        ChunkLimits { line: 20, trailers: 30, content: None },
    ] {
        let whole = decode(bytes, bytes.len().max(1), limits);
        match (&whole, &reference) {
            (Ok(Some(ours)), Some(theirs)) => assert_eq!(ours, theirs, "content and end"),
            (Ok(Some(_)), None) => panic!("accepted what is not whole or has two meanings"),
            (Ok(None), Some(_)) => panic!("waits for more of a whole body"),
            (Err(why), Some(_)) => assert!(
                why.0.ends_with("too long") && bytes.len() > limits.line.min(limits.trailers),
                "refused a body of one meaning: {why}"
            ),
            (_, None) => {}
        }
        for size in 1..bytes.len() {
            assert_eq!(decode(bytes, size, limits), whole, "in pieces of {size}");
        }
    }
}

/// The content, and where it ends; `None` where more is due.
fn decode(bytes: &[u8], size: usize, limits: ChunkLimits) -> Result<Option<(Vec<u8>, usize)>, BadBody> {
    let mut reading = Body::new(Framing::Chunked, limits);
    let mut counting = reading;
    let (mut data, mut end) = (Vec::new(), 0);
    for piece in bytes.chunks(size) {
        let taken = reading.decode(piece, &mut data);
        assert_eq!(counting.take(piece), taken, "taking and decoding differ");
        let taken = taken?;
        end += taken;
        assert_eq!(counting.is_done(), reading.is_done());
        if reading.is_done() {
            assert_eq!(reading.take(bytes), Ok(0), "took more than its own");
            return Ok(Some((data, end)));
        }
        assert_eq!(taken, piece.len(), "left bytes of an unfinished body");
        assert!(!reading.may_end_here());
    }
    Ok(None)
}

/// Everything about a host.
pub(crate) fn host(raw: &[u8]) {
    let host = Host::parse(raw).ok();
    let reference = reference::host(raw);
    assert!(same_host(host.as_ref(), reference.as_ref()), "{host:?} and {reference:?}");
    let Some(host) = host else { return };
    assert!(host.name().len() <= 253 && !host.name().ends_with('.'));
    assert!(!host.name().bytes().any(|byte| byte.is_ascii_uppercase()));
    let again = Host::parse(host.name().as_bytes()).expect("its own name is one");
    assert_eq!((again.name(), again.port()), (host.name(), None));
    if let Some(port) = host.port() {
        assert_eq!(Host::parse(format!("{}:{port}", host.name()).as_bytes()).as_ref(), Ok(&host));
    }
    assert_eq!(Host::parse(&raw.to_ascii_uppercase()).as_ref(), Ok(&host));
    let mut used = Host::parse(b"[2001:db8::1]:81").expect("a host");
    assert_eq!((used.assign(raw), &used), (Ok(()), &host));
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use proptest::test_runner::RngSeed;

    use super::*;
    use crate::http::generate::*;

    /// The same cases every time: a failure is there for everyone, and none comes with somebody else's change.
    fn config() -> ProptestConfig {
        ProptestConfig {
            cases: 512,
            failure_persistence: None,
            rng_seed: RngSeed::Fixed(0x000c_a20a),
            ..ProptestConfig::default()
        }
    }

    proptest! {
        #![proptest_config(config())]

        #[test]
        fn good_requests_are_accepted_and_keep_their_meaning(bytes in request_head(), behind in behind()) {
            let mut head = RequestHead::default();
            prop_assert_eq!(head.parse(&bytes, &Limits::default()), Ok(Parsed::Whole), "{}", bytes.escape_ascii());
            request(&[bytes, behind].concat());
        }

        #[test]
        fn spoilt_requests_are_refused_or_have_one_meaning(bytes in spoilt(request_head())) {
            request(&bytes);
        }

        #[test]
        fn requests_out_of_odd_pieces_are_refused_or_have_one_meaning(bytes in odd_request()) {
            request(&bytes);
        }

        #[test]
        fn good_responses_are_accepted_and_keep_their_meaning(bytes in response_head(), behind in behind()) {
            let mut head = ResponseHead::default();
            let verdict = head.parse(&bytes, false, &Limits::default());
            prop_assert_eq!(verdict, Ok(Parsed::Whole), "{}", bytes.escape_ascii());
            response(&[bytes, behind].concat());
        }

        #[test]
        fn spoilt_responses_are_refused_or_have_one_meaning(bytes in spoilt(response_head())) {
            response(&bytes);
        }

        #[test]
        fn good_chunks_are_decoded_in_any_pieces((bytes, data) in chunked_body(), behind in behind()) {
            let decoded = decode(&bytes, bytes.len(), ChunkLimits { line: 4096, trailers: 4096, content: None });
            prop_assert_eq!(decoded, Ok(Some((data, bytes.len()))), "{}", bytes.escape_ascii());
            chunked(&[bytes, behind].concat());
        }

        #[test]
        fn spoilt_chunks_are_refused_or_have_one_meaning(bytes in spoilt(chunked_body().prop_map(|(bytes, _)| bytes))) {
            chunked(&bytes);
        }

        #[test]
        fn chunks_out_of_odd_pieces_are_refused_or_have_one_meaning(bytes in odd_chunked()) {
            chunked(&bytes);
        }

        #[test]
        fn a_host_has_one_spelling(raw in prop_oneof![host_text(), spoilt(host_text()), any::<Vec<u8>>()]) {
            host(&raw);
        }
    }
}
