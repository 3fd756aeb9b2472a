//! Messages for the tests of [`properties`](crate::http::properties): good ones with everything that they may have, and
//! ones that are good but for a few bytes, where a reader is most likely to err.

use proptest::prelude::*;
use proptest::sample::{Index, select};

/// What a pipelining peer may have sent after it.
pub(crate) fn behind() -> impl Strategy<Value = Vec<u8>> {
    prop_oneof![
        Just(Vec::new()),
        Just(b"GET /next HTTP/1.1\r\nHost: b.test\r\n\r\n".to_vec()),
        Just(b"\r\n".to_vec()),
        prop::collection::vec(any::<u8>(), 1..30),
    ]
}

fn bytes_of(regex: &'static str) -> BoxedStrategy<Vec<u8>> {
    prop::string::bytes_regex(regex).expect("a regular expression").boxed()
}

fn any_of(texts: &'static [&'static str]) -> BoxedStrategy<Vec<u8>> {
    select(texts).prop_map(|text| text.as_bytes().to_vec()).boxed()
}

/// The text in any mix of letter cases.
fn cased(text: BoxedStrategy<Vec<u8>>) -> BoxedStrategy<Vec<u8>> {
    let flip = |(mut text, flips): (Vec<u8>, u64)| {
        for (index, byte) in text.iter_mut().enumerate() {
            if flips >> (index % 64) & 1 == 1 {
                *byte = if byte.is_ascii_lowercase() { byte.to_ascii_uppercase() } else { byte.to_ascii_lowercase() };
            }
        }
        text
    };
    (text, any::<u64>()).prop_map(flip).boxed()
}

fn token() -> BoxedStrategy<Vec<u8>> {
    bytes_of("[!#$%&'*+.^_`|~0-9A-Za-z-]{1,12}")
}

pub(crate) fn host_text() -> BoxedStrategy<Vec<u8>> {
    let name = bytes_of("[a-zA-Z0-9_-]{1,9}(\\.[a-zA-Z0-9_-]{1,9}){0,4}\\.?");
    let four = any::<std::net::Ipv4Addr>().prop_map(|address| address.to_string().into_bytes());
    let six = any::<std::net::Ipv6Addr>().prop_map(|address| format!("[{address}]").into_bytes());
    let long = (1_usize..64).prop_map(|n| "abc.".repeat(n).into_bytes());
    let odd =
        any_of(&["[::]", "[0:0:0:0:0:FFFF:1.2.3.4]", "[2001:DB8::0:1]", "xn--bcher-kva.example", "a.b.c.d.e", "-"]);
    let port =
        prop_oneof![3 => Just(String::new()), 1 => Just(":".to_owned()), 2 => (1_u16..).prop_map(|p| format!(":{p}"))];
    let host = prop_oneof![4 => name, 1 => four, 2 => six, 1 => long, 1 => odd];
    (host, port).prop_map(|(host, port)| [host, port.into_bytes()].concat()).boxed()
}

/// A line, with white space where it may be.
fn line(name: BoxedStrategy<Vec<u8>>, value: BoxedStrategy<Vec<u8>>) -> BoxedStrategy<Vec<u8>> {
    let blank = || any_of(&[" ", " ", "", "\t", "  ", " \t "]);
    (cased(name), blank(), value, blank())
        .prop_map(|(name, left, value, right)| [&name[..], b":", &left, &value, &right, b"\r\n"].concat())
        .boxed()
}

fn text() -> BoxedStrategy<Vec<u8>> {
    bytes_of("(?s-u:[!-~\\x80-\\xff]([\\t -~\\x80-\\xff]{0,20}[!-~\\x80-\\xff])?)?")
}

#[rustfmt::skip] // several a row
const OPTIONS: &[&str] = &[
    "close", "keep-alive", "upgrade", "te", "x-hop", "host", "content-length", "transfer-encoding",
    "connection", "x-forwarded-for", "forwarded", "x-real-ip", "content_length", "cookie", "expect", "", " ",
    "\t",
];

fn options() -> BoxedStrategy<Vec<u8>> {
    let separator = select(&[",", ", ", " ,\t", ",,"][..]);
    (prop::collection::vec(cased(any_of(OPTIONS)), 0..5), separator)
        .prop_map(|(options, separator)| options.join(separator.as_bytes()))
        .boxed()
}

/// A line that neither frames nor addresses the message.
fn other_line() -> BoxedStrategy<Vec<u8>> {
    #[rustfmt::skip] // several a row
    const NAMES: &[&str] = &[
        "x-hop", "keep-alive", "proxy-connection", "http2-settings", "expect", "accept", "cookie", "trailer",
        "x-forwarded-server", "content_length", "transfer_encoding", "x_forwarded_for", "x-forwarded_host",
        "keep_alive", "http2_settings", "x_real-ip", "forwarded-for", "hos", "hostt", "t", "tee", "date",
        "content-lengths",
    ];
    #[rustfmt::skip] // several a row
    const FORWARDING: &[&str] = &[
        "forwarded", "x-forwarded-for", "x-forwarded-proto", "x-forwarded-host", "x-forwarded-port",
        "x-real-ip",
    ];
    #[rustfmt::skip] // several a row
    const FORWARDED: &[&str] = &[
        "for=1.1.1.1", "for=\"[2001:db8::1]\", for=b;proto=https", "for=\"a\\\"b,\"", "for=\"a\\\";x=\"b\"", "for=\"open", "", ",",
        "for=\"a\" x", "6.6.6.6", "for=1.1.1.1;", "https", "evil, \"",
    ];
    prop_oneof![
        3 => line(token(), text()),
        3 => line(any_of(NAMES), text()),
        3 => line(any_of(&["connection"]), options()),
        2 => line(any_of(FORWARDING), prop_oneof![any_of(FORWARDED), text()].boxed()),
        1 => line(any_of(&["te"]), cased(any_of(&["trailers", "gzip", "gzip;q=0.5, trailers", "", "xtrailers"]))),
        1 => line(any_of(&["upgrade"]), cased(any_of(&["websocket", "h2c", "a, h2c", "http/2.0", "", "x/1"]))),
        1 => line(any_of(&["expect"]), any_of(&["100-continue", "200-ok", ""])),
    ]
    .boxed()
}

fn length() -> BoxedStrategy<Vec<u8>> {
    let length = prop_oneof![Just(0), 0_u64..2000, 0..=i64::MAX.unsigned_abs()];
    line(any_of(&["content-length"]), length.prop_map(|n| n.to_string().into_bytes()).boxed())
}

fn coding() -> BoxedStrategy<Vec<u8>> {
    line(any_of(&["transfer-encoding"]), cased(any_of(&["chunked"])))
}

fn lines() -> impl Strategy<Value = Vec<Vec<u8>>> {
    prop_oneof![30 => prop::collection::vec(other_line(), 0..7), 1 => prop::collection::vec(other_line(), 20..40)]
}

/// Puts the lines that must be there somewhere among the others.
fn mixed(mut lines: Vec<Vec<u8>>, special: Vec<(Option<Vec<u8>>, Index)>) -> Vec<u8> {
    for (line, place) in special {
        if let Some(line) = line {
            lines.insert(place.index(lines.len() + 1), line);
        }
    }
    lines.concat()
}

fn method() -> BoxedStrategy<Vec<u8>> {
    let known = any_of(&["GET", "HEAD", "POST", "PUT", "DELETE", "OPTIONS", "PATCH", "PRI", "get", "CONNECTED"]);
    let long = (1_usize..100).prop_map(|n| vec![b'M'; n]);
    prop_oneof![6 => known, 1 => token().prop_filter("is not served", |token| token != b"CONNECT"), 1 => long].boxed()
}

fn target() -> BoxedStrategy<Vec<u8>> {
    let path = || bytes_of("/[!\"$-~]{0,30}");
    let behind = prop_oneof![Just(Vec::new()), path(), bytes_of("\\?[!\"$-~]{0,9}")];
    let absolute = (cased(any_of(&["http://"])), host_text(), behind);
    prop_oneof![
        4 => path(),
        1 => any_of(&["/", "//b.test/x", "/%00", "/\u{fc}", "/http://b.test/", "/a/../b", "/*"]),
        2 => absolute.prop_map(|(scheme, host, behind)| [scheme, host, behind].concat()),
    ]
    .boxed()
}

/// A head that carom has to accept.
pub(crate) fn request_head() -> BoxedStrategy<Vec<u8>> {
    let framing = prop::option::of(prop_oneof![length(), coding()]);
    let place = any::<Index>;
    let eleven = (method(), target(), lines(), (framing, place()), (line(any_of(&["host"]), host_text()), place()))
        .prop_map(|(method, target, lines, framing, (host, place))| {
            let fields = mixed(lines, vec![framing, (Some(host), place)]);
            [&method[..], b" ", &target, b" HTTP/1.1\r\n", &fields, b"\r\n"].concat()
        });
    let length = prop::option::of(length());
    let host = prop::option::of(line(any_of(&["host"]), host_text()));
    let ten = (method(), target(), lines(), (length, place()), (host, place())).prop_map(
        |(method, target, lines, length, host)| {
            let fields = mixed(lines, vec![length, host]);
            [&method[..], b" ", &target, b" HTTP/1.0\r\n", &fields, b"\r\n"].concat()
        },
    );
    let any = any_of(&["OPTIONS * HTTP/1.1\r\nHost: a.test\r\n\r\n", "OPTIONS * HTTP/1.0\r\n\r\n"]);
    prop_oneof![8 => eleven, 3 => ten, 1 => any].boxed()
}

/// Heads whose parts are each plausible, and together often are not: repeated, missing and contradicting fields.
pub(crate) fn odd_request() -> BoxedStrategy<Vec<u8>> {
    const METHODS: &[&str] = &["GET", "OPTIONS", "CONNECT", "", "G T", " GET", "GET ", "\r\nGET", "G\u{e9}T"];
    #[rustfmt::skip] // several a row
    const TARGETS: &[&str] = &[
        "/", "*", "", "x", "http://", "http:///", "https://a.test/", "http://a.test:0/", "http://u@a.test/",
        "/#", "/\t", "//", "http:/a", "a.test:80", "/ /", "http://[::1]/", "http://[::1/", "http://a.test#f",
        "HTTP://A?",
    ];
    const VERSIONS: &[&str] = &["1.1", "1.1", "1.0", "1.2", "2.0", "1.1 ", "1.1\r", "1,1", "11", "1.10"];
    #[rustfmt::skip] // several a row
    const CODINGS: &[&str] = &[
        "chunked", "gzip", "chunked, chunked", "gzip, chunked", "", "chunked;q=1", "identity", "\"chunked\"",
        "chun\u{212a}ed",
    ];
    #[rustfmt::skip] // several a row
    const LENGTHS: &[&str] = &[
        "0", "5", "05", "+5", "-5", "5,5", "5 5", "", "0x5", "9223372036854775807", "9223372036854775808",
        "18446744073709551621", "00000000000000000005", "5\u{b}", "\u{661}",
    ];
    #[rustfmt::skip] // several a row
    const HOSTS: &[&str] = &[
        "a.test", "b.test:81", "", "a b", "a,b", "u@a", "a..b", "[::1]:8", "[::1", "a:b:1", "a:65536",
        "a:00080",
    ];
    const BROKEN: &[&str] = &[
        "X: a\r\n b\r\n",
        "X: a\n",
        "X: a\r",
        "X\r\n",
        ": x\r\n",
        " X: y\r\n",
        "X: \0\r\n",
        "\n",
        "X: \x7f\r\n",
        "X:y\r\r\n",
    ];
    let field = prop_oneof![
        line(any_of(&["host"]), any_of(HOSTS)),
        line(any_of(&["host"]), host_text()),
        line(any_of(&["content-length", "content_length", "content-length "]), any_of(LENGTHS)),
        line(any_of(&["transfer-encoding", "transfer_encoding", "transfer-encoding\t"]), cased(any_of(CODINGS))),
        other_line(),
        any_of(BROKEN),
    ];
    let odd = (any_of(METHODS), any_of(TARGETS), any_of(VERSIONS))
        .prop_map(|(method, target, version)| [&method[..], b" ", &target, b" HTTP/", &version].concat());
    let first =
        prop_oneof![2 => any_of(&["GET / HTTP/1.1", "OPTIONS * HTTP/1.0", "GET http://A.test HTTP/1.1"]), 1 => odd];
    (first, prop::collection::vec(field, 0..7))
        .prop_map(|(first, fields)| [&first[..], b"\r\n", &fields.concat(), b"\r\n"].concat())
        .boxed()
}

/// A head that carom has to pass on.
pub(crate) fn response_head() -> BoxedStrategy<Vec<u8>> {
    let minor = select(&[0, 1, 1, 1][..]);
    let status = prop_oneof![2 => select(&[100, 101, 103, 200, 204, 206, 304, 426, 500, 999][..]), 1 => 100_u16..1000];
    let reason = prop_oneof![any_of(&["", " ", " OK", "  OK ", " a\tb", " \u{fc}"]), bytes_of(" [ -~]{0,12}")];
    let framing = prop::option::of(prop_oneof![length(), coding()]);
    (minor, status, reason, lines(), (framing, any::<Index>()))
        .prop_map(|(minor, status, reason, lines, (framing, place))| {
            let coding = |line: &Vec<u8>| line.first().is_some_and(|byte| byte.eq_ignore_ascii_case(&b't'));
            let framing = framing.filter(|line| minor == 1 || !coding(line));
            let first = format!("HTTP/1.{minor} {status}").into_bytes();
            [first, reason, b"\r\n".to_vec(), mixed(lines, vec![(framing, place)]), b"\r\n".to_vec()].concat()
        })
        .boxed()
}

/// A chunked body, and what it carries.
pub(crate) fn chunked_body() -> BoxedStrategy<(Vec<u8>, Vec<u8>)> {
    let extension = prop_oneof![3 => Just(Vec::new()), 1 => bytes_of("(?s-u:;[\\t -~\\x80-\\xff]{0,30})")];
    let data = prop_oneof![prop::collection::vec(any::<u8>(), 1..40), any_of(&["\r\n", "0\r\n\r\n", "\n", "\r"])];
    let chunk = (data, 0_usize..10, any::<bool>(), extension.clone());
    let trailer = line(any_of(&["x-t", "etag", "x_y", "content-lengths", "a-very-long-name-indeed"]), text());
    let last = (1_usize..17, extension, prop::collection::vec(trailer, 0..4));
    (prop::collection::vec(chunk, 0..5), last)
        .prop_map(|(chunks, (zeros, extension, trailers))| {
            let (mut bytes, mut content) = (Vec::new(), Vec::new());
            for (data, zeros, upper, extension) in chunks {
                let size = if upper { format!("{:X}", data.len()) } else { format!("{:x}", data.len()) };
                bytes.extend([b"0".repeat(zeros), size.into_bytes(), extension, b"\r\n".to_vec()].concat());
                bytes.extend([&data[..], b"\r\n"].concat());
                content.extend(data);
            }
            bytes.extend(
                [b"0".repeat(zeros), extension, b"\r\n".to_vec(), trailers.concat(), b"\r\n".to_vec()].concat(),
            );
            (bytes, content)
        })
        .boxed()
}

/// Chunked bodies out of parts that are each plausible, good or not.
pub(crate) fn odd_chunked() -> BoxedStrategy<Vec<u8>> {
    #[rustfmt::skip] // several a row
    const CHUNKS: &[&str] = &[
        "5\r\nhello\r\n", "05;a=\"b\"\r\nhello\r\n", "2\r\n\r\n\r\n", "5\nhello\n", "5\r\nhell\r\n", "5\r\nhello\rX", "5\r\nhellos\r\n", "+5\r\nhello\r\n",
        "0x5\r\nhello\r\n", " 5\r\nhello\r\n", "5 \r\nhello\r\n", "5 ;a\r\nhello\r\n", "5\r\nhello", "5;\ra\r\nhello\r\n", "-0\r\n\r\n", "\r\n",
        "00000000000000005\r\nhello\r\n", "8000000000000000\r\nhello\r\n", "10000000000000005\r\nhello\r\n",
    ];
    const LAST: &[&str] =
        &["0\r\n", "0;a\r\n", "0000000000000000\r\n", "0\n", "00000000000000000\r\n", "", "0 \r\n", "-0\r\n"];
    #[rustfmt::skip] // several a row
    const TRAILERS: &[&str] = &[
        "x: y", "etag", "content-length: 5", "content_length: 5", "transfer-encoding: chunked", "host: b.test", "connection: close",
        "forwarded: for=x", "x-forwarded-for: x", "x-forwarded-proto: x", "x-forwarded-host: x", "x-forwarded-port: 1", "x-real-ip: x",
        "x_real_ip: x", "x-forwarded-server: x", "x-forwarded-for : x", ": x", " x: y", "x: \0", "x: a\rb", "x: a\nb",
    ];
    let trailer = cased(any_of(TRAILERS)).prop_map(|line| [line, b"\r\n".to_vec()].concat());
    let chunk = prop_oneof![2 => any_of(&["5\r\nhello\r\n"]), 1 => any_of(CHUNKS)];
    let last = prop_oneof![4 => any_of(&["0\r\n"]), 1 => any_of(LAST)];
    let end = prop_oneof![4 => any_of(&["\r\n"]), 1 => any_of(&["\n", "\r", "\r\r\n"])];
    (prop::collection::vec(chunk, 0..3), last, prop::collection::vec(trailer, 0..3), end)
        .prop_map(|(chunks, last, trailers, end)| [chunks.concat(), last, trailers.concat(), end].concat())
        .boxed()
}

/// The same with a few bytes changed, put in, taken out or repeated.
pub(crate) fn spoilt(good: impl Strategy<Value = Vec<u8>>) -> impl Strategy<Value = Vec<u8>> {
    #[rustfmt::skip] // several a row
    const PUT_IN: &[&str] = &[
        "\r\n", "\n", "\r", "\0", " ", "\t", ":", ",", ";", "#", "\x7f", "\u{b}", "\"", "0", "[", "]", "@", "-",
        "_", "\r\n ", "\r\n\r\n", "Host: b.test\r\n", "Content-Length: 3\r\n", "Transfer-Encoding: chunked\r\n",
        "X_Real_IP: 1\r\n", "fffffffffffffff", "\u{e9}", "0\r\nX-Forwarded-Port: 1\r\n", "\r\nHost: c.test",
        " HTTP/1.1", "ffff",
    ];
    let edit = (any::<Index>(), 0_usize..5, any::<Index>(), any::<u8>(), select(PUT_IN));
    (good, prop::collection::vec(edit, 1..4)).prop_map(|(mut bytes, edits)| {
        for (place, edit, length, byte, put_in) in edits {
            let at = place.index(bytes.len() + 1);
            let end = at + length.index((bytes.len() - at).min(20) + 1);
            match edit {
                0 => drop(bytes.splice(at..at, put_in.bytes())),
                1 => drop(bytes.splice(at..end.min(at + 1), [byte])),
                2 => drop(bytes.drain(at..end)),
                3 => drop(bytes.splice(0..0, put_in.bytes())),
                _ => bytes.extend_from_within(at..end),
            }
        }
        bytes
    })
}
