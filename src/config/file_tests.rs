use super::*;
use crate::ops::access::{Redact, To};
use std::time::Duration;

fn parse(text: &str) -> Config {
    Config::parse(Path::new("carom.toml"), text.as_bytes()).unwrap_or_else(|report| panic!("{report}"))
}

fn refused(text: &str) -> String {
    Config::parse(Path::new("carom.toml"), text.as_bytes()).expect_err(text).to_string()
}

const EXAMPLE: &str = include_str!("../../config/carom.toml");

#[test]
fn the_example_says_the_defaults_and_names_every_key() {
    assert_eq!(parse(EXAMPLE), Config::default());
    let written: Vec<&str> = EXAMPLE.lines().map(|line| line.trim_start_matches('#').trim()).collect();
    let mut keys = 0;
    for section in [&TOP, &LISTEN, &TIMEOUTS, &LIMITS, &FORWARDED, &ERRORS, &DNS, &log::KEYS, &status::KEYS] {
        for key in section.known {
            let is_key = |line: &&str| line.starts_with(&format!("{key} = "));
            let is_section = |line: &&str| *line == format!("[{key}]") || *line == format!("[[{key}]]");
            assert!(written.iter().any(|line| is_key(line) || is_section(line)), "{} {key}", section.of);
            keys += 1;
        }
    }
    assert!(keys > 25, "{keys}");
}

#[test]
fn what_the_example_has_commented_out_is_right_too() {
    let text: String = EXAMPLE
        .lines()
        .map(|line| line.strip_prefix('#').filter(|rest| !rest.starts_with(' ')).unwrap_or(line).to_owned() + "\n")
        .collect();
    let config = parse(&text);
    let [plain, tls] = ["[::]:80", "[::]:443"].map(|address| Listen::from(address.parse::<SocketAddr>().unwrap()));
    assert_eq!(config.listen, [plain, Listen { tls: true, ..tls }]);
    assert_eq!((config.certs, config.default_cert), (Some("certs".into()), Some("example.com".into())));
    assert_eq!((config.routes, config.state), (Some("routes.toml".into()), Some("/var/lib/carom".into())));
    assert_eq!(config.log.format, Some(Format::Pretty));
}

#[test]
fn the_example_routes_are_right() {
    let bytes = include_bytes!("../../config/routes.toml");
    let table = super::super::routes::parse(Path::new("config/routes.toml"), bytes, &[], None).unwrap();
    assert_eq!(table.routes().len(), 8);
}

#[test]
fn every_key_arrives_in_its_place() {
    let config = parse(
        "routes = \"r.toml\"\nworkers = 3\ncerts = \"c\"\ncontrol = \"/c.sock\"\nstate = \"s\"\ndefault_cert = \"Bücher.example\"\n\
         [[listen]]\naddress = \":8080\"\n[[listen]]\naddress = \"127.0.0.1:81\"\ntls = true\n\
         proxy_protocol = true\n[timeouts]\nhandshake = \"12s\"\nhead = \"1s\"\nbody = \"2s\"\nconnect = \"3ms\"\nresponse_head = \"4s\"\nresponse_body = \"5s\"\n\
         send = \"6s\"\nidle = \"7s\"\nbackend_idle = \"8s\"\ntunnel = \"9m\"\nhalf_closed = \"11s\"\ndrain = \"10s\"\n\
         [limits]\nhead = 2000\ntarget = 300\nfields = 9\nbody = \"1MiB\"\nresponse_head = 2001\nchunk_line = 65\n\
         waiting = 4\nreplay = \"8KiB\"\nleftover = 0\nconnections = 5\nbackend_idle = 6\n\
         [http2]\nstreams = 7\nstream_window = 70000\nconnection_window = \"1MiB\"\nsend_buffer = 16384\nresets = 8\n\
         prior_knowledge = true\n\
         [forwarded]\nsend = \"both\"\ntrust = [\"10.1.2.3/8\", \"::1\"]\nrequest_id = \"X-Id\"\n[errors]\nfield = false\n[dns]\nservers = [\"10.0.0.2\", \"127.0.0.1:5353\", \"::1\", \"[::1]\", \"[::1]:54\"]\n\
         [log]\naccess = [\"stdout\", \"/var/log/carom\"]\nformat = \"json\"\nredact = [\"query\", \"header:X-Key\"]\n\
         [status]\nlisten = \"0.0.0.0:9180\"\ntoken = \"0123456789abcdef\"\n",
    );
    let seconds = Duration::from_secs;
    let want = Config {
        routes: Some("r.toml".into()),
        workers: 3,
        control: Some(Control::At("/c.sock".into())),
        certs: Some("c".into()),
        state: Some("s".into()),
        default_cert: Some("xn--bcher-kva.example".into()),
        listen: vec![
            Listen { address: "[::]:8080".parse().unwrap(), proxy_protocol: false, tls: false },
            Listen { address: "127.0.0.1:81".parse().unwrap(), proxy_protocol: true, tls: true },
        ],
        settings: Settings {
            timeouts: Timeouts {
                handshake: seconds(12),
                head: seconds(1),
                body: seconds(2),
                connect: Duration::from_millis(3),
                response_head: seconds(4),
                response_body: seconds(5),
                send: seconds(6),
                idle: seconds(7),
                backend_idle: seconds(8),
                tunnel: Some(seconds(540)),
                half_closed: seconds(11),
                drain: seconds(10),
            },
            limits: Limits {
                head: 2000,
                target: 300,
                fields: 9,
                body: Some(1 << 20),
                response_head: 2001,
                chunk_line: 65,
                leftover: 0,
                replay: 8192,
                waiting: 4,
                connections: 5,
                backend_idle: 6,
            },
            http2: Http2 {
                streams: 7,
                stream_window: 70_000,
                connection_window: 1 << 20,
                send_buffer: 16_384,
                resets: 8,
                prior_knowledge: true,
            },
            forwarding: Forwarding {
                send: ForwardedFields::Both,
                trust: vec!["10.0.0.0/8".parse().unwrap(), "::1/128".parse().unwrap()],
                request_id: Some("X-Id".into()),
            },
            sticky_key: None,
            error_field: false,
        },
        dns_servers: ["10.0.0.2:53", "127.0.0.1:5353", "[::1]:53", "[::1]:53", "[::1]:54"]
            .map(|address| address.parse().unwrap())
            .into(),
        log: Log {
            access: vec![To::Stdout, To::File("/var/log/carom".into())],
            format: Some(Format::Json),
            redact: Redact { query: true, fields: vec!["x-key".into()], ..Redact::default() },
        },
        status: Status { listen: Some("0.0.0.0:9180".parse().unwrap()), token: Some("0123456789abcdef".into()) },
    };
    assert_eq!(config, want);
}

#[test]
fn what_is_wrong_says_what_would_be_right() {
    for (text, position, words) in [
        ("worker = 2", "1:1", "did you mean `workers`?"),
        ("head = \"1s\"", "1:1", "it stands in [timeouts]"),
        ("\"a.test\" = 1", "1:1", "hosts stand in the routes file"),
        ("workers = -1", "1:11", "0 to 1024"),
        ("workers = \"2\"", "1:11", "found a string"),
        ("listen = \"[::]:80\"", "1:10", "[[listen]]"),
        ("[[listen]]\naddress = \"localhost:80\"", "2:11", "127.0.0.1:80"),
        ("[[listen]]\naddress = \"*:80\"", "2:11", "[::]:80"),
        ("[[listen]]\naddress = 80", "2:11", "\"[::]:80\""),
        ("[[listen]]\naddress = \"[::]:80\"\ntls = 1", "3:7", "true or false"),
        ("default_cert = \"*.a.test\"", "1:16", "such as"),
        ("[[listen]]\naddress = \"[::]:80\"\n[[listen]]\naddress = \"80\"", "", "listened on twice"),
        ("[[listen]]\n", "1:1", "needs an address"),
        ("[[listen]]\naddress = \"80\"\nproxy_protocol = 1", "3:18", "found a number"),
        ("[[listen]]\naddress = \"80\"\nproxy_protocol = true", "3:1", "[forwarded] trust = ["),
        ("[status]\nlisten = 9180", "2:10", "an address stands in quotes"),
        ("[status]\nlisten = \"10.0.0.1:9180\"", "2:10", "is not only this machine's, and there is no token"),
        ("[status]\nlisten = \"9180\"", "2:10", "\"127.0.0.1:9180\"; or [status] token = "),
        ("[status]\nlisten = \"9180\"\ntoken = \"short\"", "3:9", "a token is at least 16 of letters"),
        ("[status]\ntoken = \"sixteen letters and a space\"", "2:9", "`openssl rand -hex 16` makes one"),
        ("[timeouts]\nhead = 10", "2:8", "\"10s\""),
        ("[timeouts]\nhead = \"0s\"", "2:8", "nothing"),
        ("[timeouts]\nidle = \"off\"", "2:8", "can't be off"),
        ("[timeouts]\nheed = \"1s\"", "2:1", "did you mean `head`?"),
        ("[limits]\nhead = 10", "2:8", "1024 to 16777216 bytes"),
        ("[limits]\nfields = 5000", "2:10", "8 to 1024"),
        ("[http2]\nstream_window = 65534", "2:17", "65535 to 2147483647 bytes"),
        ("[http2]\nstreams = 0", "2:11", "1 to 65536"),
        ("[forwarded]\nsend = \"x-forward\"", "2:8", "did you mean `x-forwarded`?"),
        ("[forwarded]\ntrust = [\"10.0.0.0/99\"]", "2:10", "10.0.0.0/8"),
        ("[dns]\nservers = [\"dns.example\"]", "2:12", "10.0.0.2"),
        ("servers = []", "1:1", "it stands in [dns]"),
        ("[log]\nformat = \"comined\"", "2:10", "did you mean `combined`"),
        ("[log]\nformat = \"{client} {stats}\"", "2:10", "nothing is called {stats}"),
        ("[log]\naccess = [\"stdout\", \"off\"]", "2:21", "stands alone"),
        ("[log]\naccess = [\"a\", \"a\"]", "2:16", "go there already"),
        ("[log]\nredact = [\"quary\"]", "2:11", "`query`"),
        ("[forwarded]\nrequest_id = \"a b\"", "2:14", "X-Request-Id"),
        ("log = 1", "1:7", "[log]"),
    ] {
        let report = refused(text);
        assert!(report.contains(&format!("carom.toml:{position}")), "{text}:\n{report}");
        assert!(report.contains(words), "{text}:\n{report}");
    }
}

#[test]
fn addresses_to_listen_on() {
    for (text, want) in
        [("[::]:80", "[::]:80"), ("127.0.0.1:8080", "127.0.0.1:8080"), (":8080", "[::]:8080"), ("8080", "[::]:8080")]
    {
        assert_eq!(listen_address(text).unwrap(), want.parse().unwrap(), "{text}");
    }
    for text in ["", ":", "65536", "a.test:80", "127.0.0.1", "[::]"] {
        assert!(listen_address(text).is_err(), "{text}");
    }
}
