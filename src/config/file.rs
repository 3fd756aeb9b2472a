//! `carom.toml`: everything that can be tuned, each key with a default. The file itself is needed for nothing.
//!
//! `config/carom.toml` lists every key; a test here holds it to that.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use ipnet::IpNet;

use crate::http::rewrite::Changes;
use crate::settings::{ForwardedFields, Forwarding, Http2, Limits, MOST_FIELDS, Settings, Timeouts};
use crate::table::pattern::{HostPattern, Pattern};

use super::keys::{Keys, noted};
use super::node::{Entry, Node, Value};
use super::report::{Problem, Report};
use super::text::Text;
use super::{from_toml, log, names, quantity, status};

pub use super::log::{Format, Log};
pub use super::status::Status;

/// What `carom.toml` says.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Config {
    /// The routes file, as it is written: a relative path is from where carom is started. Default: see
    /// [`default_routes_path`](super::default_routes_path).
    pub routes: Option<PathBuf>,
    /// Worker threads; 0 for one per core. Default: 0.
    pub workers: usize,
    /// Where to listen; empty when nothing is said. Default: empty.
    pub listen: Vec<Listen>,
    /// The folder of certificates, as it is written. Default: see [`default_certs_path`](super::default_certs_path).
    pub certs: Option<PathBuf>,
    /// The state folder, as it is written. Default: see [`default_state_path`](super::state::default_state_path).
    pub state: Option<PathBuf>,
    /// Where the control socket is. Default: decided by who starts it.
    pub control: Option<Control>,
    /// The name whose certificate is shown to clients that ask for a name which has none, or for none at all.
    pub default_cert: Option<Box<str>>,
    /// What connections ask for while they run.
    pub settings: Settings,
    /// The DNS servers that know where backends are which are given by a name; empty for the system's. Default: empty.
    pub dns_servers: Vec<SocketAddr>,
    /// What is said about requests.
    pub log: Log,
    /// Where the status page and metrics are, and for whom.
    pub status: Status,
}

/// An address to listen on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Listen {
    /// Which one.
    pub address: SocketAddr,
    /// Whether every connection begins with a PROXY header. Default: no.
    pub proxy_protocol: bool,
    /// Whether it speaks TLS. Default: no.
    pub tls: bool,
}

/// Where the control socket is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Control {
    /// Nowhere.
    Off,
    /// At this path.
    At(PathBuf),
}

impl From<&str> for Control {
    /// `off`, or a path.
    fn from(text: &str) -> Self {
        if text == "off" { Self::Off } else { Self::At(text.into()) }
    }
}

impl From<SocketAddr> for Listen {
    fn from(address: SocketAddr) -> Self {
        Self { address, proxy_protocol: false, tls: false }
    }
}

/// The most worker threads.
const MOST_WORKERS: i64 = 1024;

/// The most addresses to listen on.
const MOST_LISTENERS: usize = 256;

/// The most DNS servers.
const MOST_DNS_SERVERS: usize = 16;

/// The port of a DNS server that is given without one.
const DNS_PORT: u16 = 53;

/// The most networks that are trusted.
const MOST_TRUSTED: usize = 4096;

/// The largest of what is held in memory for one message part.
const LARGEST_HEAD: u64 = 16 << 20;

const TOP: Keys = Keys {
    of: "carom.toml",
    known: &[
        "routes",
        "workers",
        "certs",
        "state",
        "control",
        "default_cert",
        "listen",
        "timeouts",
        "limits",
        "http2",
        "forwarded",
        "errors",
        "dns",
        "log",
        "status",
    ],
    later: &[],
};

const LISTEN: Keys = Keys { of: "[[listen]]", known: &["address", "proxy_protocol", "tls"], later: &[] };

const TIMEOUTS: Keys = Keys {
    of: "[timeouts]",
    known: &[
        "handshake",
        "head",
        "body",
        "connect",
        "response_head",
        "response_body",
        "send",
        "idle",
        "backend_idle",
        "tunnel",
        "half_closed",
        "drain",
    ],
    later: &[],
};

const LIMITS: Keys = Keys {
    of: "[limits]",
    known: &[
        "head",
        "target",
        "fields",
        "body",
        "response_head",
        "chunk_line",
        "leftover",
        "replay",
        "waiting",
        "connections",
        "backend_idle",
    ],
    later: &[],
};

const HTTP2: Keys = Keys {
    of: "[http2]",
    known: &["streams", "stream_window", "connection_window", "send_buffer", "resets", "prior_knowledge"],
    later: &[],
};

const FORWARDED: Keys = Keys { of: "[forwarded]", known: &["send", "trust", "request_id"], later: &[] };

const ERRORS: Keys = Keys { of: "[errors]", known: &["field"], later: &["pages"] };

const DNS: Keys = Keys { of: "[dns]", known: &["servers"], later: &[] };

/// What `forwarded.send` may be.
const SENDS: &[&str] = &["x-forwarded", "forwarded", "both", "none"];

impl Config {
    /// Reads `carom.toml`.
    ///
    /// # Errors
    /// A file that can't be read, and all that [`Config::parse`] finds.
    pub fn load(path: &Path) -> Result<Self, Report> {
        Self::parse(path, &super::text::read(path)?)
    }

    /// Reads the content of a `carom.toml`; `path` names it in errors.
    ///
    /// # Errors
    /// Everything that is wrong with it, each with its place.
    pub fn parse(path: &Path, bytes: &[u8]) -> Result<Self, Report> {
        let text = Text::new(path, bytes)?;
        let (entries, mut problems) = from_toml::entries(text.content);
        let mut config = Self::default();
        TOP.read(
            &entries,
            &mut problems,
            |entry| section_of(&entry.key),
            |key, entry, problems| {
                config.section(key, &entry.node, problems);
            },
        );
        config.doubts(&entries, &mut problems);
        if problems.is_empty() { Ok(config) } else { Err(Report::new(path, text.content, problems)) }
    }

    fn section(&mut self, key: &str, node: &Node<'_>, problems: &mut Vec<Problem>) {
        match key {
            "routes" => self.routes = noted(path(node, "the path of the routes file"), problems),
            "workers" => {
                if let Some(workers) = noted(node.number("a number of workers", 0..=MOST_WORKERS), problems) {
                    self.workers = usize::try_from(workers).unwrap_or(0);
                }
            }
            "certs" => self.certs = noted(path(node, "the path of the folder of certificates"), problems),
            "state" => self.state = noted(path(node, "the path of the state folder"), problems),
            "control" => {
                let place = path(node, "\"off\", or the path of the control socket");
                self.control = noted(place, problems).map(|path| match path.to_str() {
                    Some("off") => Control::Off,
                    _ => Control::At(path),
                });
            }
            "default_cert" => self.default_cert = noted(host_name(node), problems),
            "listen" => self.listen = listeners(node, problems),
            "timeouts" => timeouts(&mut self.settings.timeouts, node, problems),
            "limits" => limits(&mut self.settings.limits, node, problems),
            "http2" => http2(&mut self.settings.http2, node, problems),
            "forwarded" => forwarding(&mut self.settings.forwarding, node, problems),
            "errors" => section(&ERRORS, node, problems, |_, entry, problems| {
                set(&mut self.settings.error_field, entry.node.flag("true or false"), problems);
            }),
            "dns" => section(&DNS, node, problems, |_, entry, problems| {
                self.dns_servers = dns_servers(&entry.node, problems);
            }),
            "status" => section(&status::KEYS, node, problems, |key, entry, problems| {
                self.status.take(key, &entry.node, problems);
            }),
            _ => section(&log::KEYS, node, problems, |key, entry, problems| self.log.take(key, &entry.node, problems)),
        }
    }

    /// What only the whole file shows.
    fn doubts(&self, entries: &[Entry<'_>], problems: &mut Vec<Problem>) {
        self.status.doubts(entries, problems);
        let proxied = self.listen.iter().any(|listen| listen.proxy_protocol);
        if proxied && self.settings.forwarding.trust.is_empty() {
            let listeners = entries.iter().filter(|entry| entry.key == "listen").flat_map(|entry| entry.node.items());
            let keys = listeners.filter_map(|item| item.entries("a table").ok()).flatten();
            let key = keys.into_iter().find(|entry| entry.key == "proxy_protocol");
            let problem = match key {
                Some(entry) => Problem::at(&entry.key_span, "`proxy_protocol`, and nobody is trusted to speak it"),
                None => Problem::of_file("`proxy_protocol`, and nobody is trusted to speak it"),
            };
            problems.push(problem.help("[forwarded] trust = [\"10.0.0.0/8\"]: the networks of the proxies in front"));
        }
    }
}

/// Reads an address to listen on: `[::]:80`, `127.0.0.1:8080`, `:8080` and `8080` for every address.
///
/// # Errors
/// What is wrong with it and what would be right.
pub fn listen_address(text: &str) -> Result<SocketAddr, String> {
    let port = text.strip_prefix(':').unwrap_or(text);
    if !port.is_empty() && port.bytes().all(|b| b.is_ascii_digit()) {
        let port = port.parse().map_err(|_| format!("{port} is no port: 0 to 65535"))?;
        return Ok((std::net::Ipv6Addr::UNSPECIFIED, port).into());
    }
    if let Some(port) = text.strip_prefix("localhost:") {
        return Err(format!("to listen on this machine only, name the address: \"127.0.0.1:{port}\""));
    }
    if let Some(port) = text.strip_prefix("*:") {
        return Err(format!("for every address write \"[::]:{port}\""));
    }
    text.parse().map_err(|_| "an address is written \"[::]:80\", \"127.0.0.1:8080\" or \"8080\"".to_owned())
}

/// The name of a host.
fn host_name(node: &Node<'_>) -> Result<Box<str>, Problem> {
    let text = node.text("the name of a host that has a certificate")?;
    match Pattern::parse(text).ok() {
        Some(Pattern { host: HostPattern::Exact(name), path: None }) => Ok(name),
        _ => Err(Problem::at(&node.span, "not the name of a host").help("such as \"example.com\"")),
    }
}

fn listeners(node: &Node<'_>, problems: &mut Vec<Problem>) -> Vec<Listen> {
    let items = node.items();
    if items.len() > MOST_LISTENERS {
        problems.push(Problem::at(&node.span, format!("at most {MOST_LISTENERS} addresses to listen on")));
        return Vec::new();
    }
    let mut all: Vec<Listen> = Vec::new();
    for item in items {
        let example = "[[listen]] on a line of its own, then address = \"[::]:80\"";
        let Some(entries) = noted(item.entries("a table").map_err(|problem| problem.help(example)), problems) else {
            continue;
        };
        let before = problems.len();
        let (mut address, mut proxy_protocol, mut tls) = (None, false, false);
        LISTEN.read(
            entries,
            problems,
            |_| None,
            |key, entry, problems| match key {
                "address" => address = noted(listener(&entry.node), problems),
                "tls" => set(&mut tls, entry.node.flag("true or false"), problems),
                _ => set(&mut proxy_protocol, entry.node.flag("true or false"), problems),
            },
        );
        match address {
            Some(address) if all.iter().any(|other| other.address == address) => {
                problems.push(Problem::at(&item.span, format!("{address} is listened on twice")));
            }
            Some(address) => all.push(Listen { address, proxy_protocol, tls }),
            None if problems.len() == before => {
                problems.push(Problem::at(&item.span, "[[listen]] needs an address").help("address = \"[::]:80\""));
            }
            None => {}
        }
    }
    all
}

fn listener(node: &Node<'_>) -> Result<SocketAddr, Problem> {
    if let Value::Integer(Some(port)) = node.value {
        return Err(Problem::at(&node.span, "an address stands in quotes").help(format!("\"[::]:{port}\"")));
    }
    let text = node.text("an address such as \"[::]:80\"")?;
    listen_address(text).map_err(|help| Problem::at(&node.span, "not an address to listen on").help(help))
}

fn timeouts(timeouts: &mut Timeouts, node: &Node<'_>, problems: &mut Vec<Problem>) {
    section(&TIMEOUTS, node, problems, |key, entry, problems| {
        let place = match key {
            "handshake" => &mut timeouts.handshake,
            "head" => &mut timeouts.head,
            "body" => &mut timeouts.body,
            "connect" => &mut timeouts.connect,
            "response_head" => &mut timeouts.response_head,
            "response_body" => &mut timeouts.response_body,
            "send" => &mut timeouts.send,
            "idle" => &mut timeouts.idle,
            "backend_idle" => &mut timeouts.backend_idle,
            "half_closed" => &mut timeouts.half_closed,
            "tunnel" => return set(&mut timeouts.tunnel, quantity::duration_or_off(&entry.node), problems),
            _ => &mut timeouts.drain,
        };
        set(place, quantity::duration(&entry.node), problems);
    });
}

fn limits(limits: &mut Limits, node: &Node<'_>, problems: &mut Vec<Problem>) {
    let fields = u64::try_from(MOST_FIELDS).unwrap_or(u64::MAX);
    section(&LIMITS, node, problems, |key, entry, problems| {
        let node = &entry.node;
        match key {
            "head" => set(&mut limits.head, bytes(node, 1024, LARGEST_HEAD), problems),
            "target" => set(&mut limits.target, bytes(node, 256, LARGEST_HEAD), problems),
            "fields" => set(&mut limits.fields, count(node, "a number of fields", 8, fields), problems),
            "body" => set(&mut limits.body, body(node), problems),
            "response_head" => set(&mut limits.response_head, bytes(node, 1024, LARGEST_HEAD), problems),
            "chunk_line" => set(&mut limits.chunk_line, bytes(node, 64, 1 << 20), problems),
            "leftover" => set(&mut limits.leftover, quantity::size(node, 0, 1 << 30), problems),
            "replay" => set(&mut limits.replay, bytes(node, 0, LARGEST_HEAD), problems),
            "waiting" => set(&mut limits.waiting, count(node, "a number of requests", 0, 1 << 24), problems),
            "connections" => set(&mut limits.connections, count(node, "a number of connections", 0, 1 << 24), problems),
            _ => set(&mut limits.backend_idle, count(node, "a number of connections", 0, 1 << 20), problems),
        }
    });
}

fn http2(http2: &mut Http2, node: &Node<'_>, problems: &mut Vec<Problem>) {
    section(&HTTP2, node, problems, |key, entry, problems| {
        let node = &entry.node;
        match key {
            "streams" => set(&mut http2.streams, number(node, "a number of requests", 1, 1 << 16), problems),
            "stream_window" => set(&mut http2.stream_window, window(node), problems),
            "connection_window" => set(&mut http2.connection_window, window(node), problems),
            "send_buffer" => set(&mut http2.send_buffer, bytes(node, 16 << 10, 1 << 30), problems),
            "resets" => set(&mut http2.resets, count(node, "a number of requests", 0, 1 << 20), problems),
            _ => set(&mut http2.prior_knowledge, node.flag("true or false"), problems),
        }
    });
}

/// RFC 9113 section 6.9: no window is smaller at the start than this, nor larger than 31 bits have room for.
fn window(node: &Node<'_>) -> Result<u32, Problem> {
    quantity::size(node, 65_535, (1 << 31) - 1).map(|bytes| u32::try_from(bytes).unwrap_or(u32::MAX >> 1))
}

fn number(node: &Node<'_>, what: &str, least: u64, most: u64) -> Result<u32, Problem> {
    count(node, what, least, most).map(|number| u32::try_from(number).unwrap_or(u32::MAX))
}

fn bytes(node: &Node<'_>, least: u64, most: u64) -> Result<usize, Problem> {
    quantity::size(node, least, most).map(|bytes| usize::try_from(bytes).unwrap_or(usize::MAX))
}

fn count(node: &Node<'_>, what: &str, least: u64, most: u64) -> Result<usize, Problem> {
    let bounds = i64::try_from(least).unwrap_or(0)..=i64::try_from(most).unwrap_or(i64::MAX);
    node.number(what, bounds).map(|number| usize::try_from(number).unwrap_or(0))
}

/// A size, or `"off"` for any.
fn body(node: &Node<'_>) -> Result<Option<u64>, Problem> {
    match &node.value {
        Value::String(text) if text == "off" => Ok(None),
        _ => quantity::size(node, 1, u64::MAX).map(Some).map_err(|problem| problem.help("\"off\" takes any")),
    }
}

fn forwarding(forwarding: &mut Forwarding, node: &Node<'_>, problems: &mut Vec<Problem>) {
    section(&FORWARDED, node, problems, |key, entry, problems| match key {
        "send" => set(&mut forwarding.send, send(&entry.node), problems),
        "request_id" => forwarding.request_id = noted(request_id(&entry.node), problems).flatten(),
        _ => {
            let items = entry.node.items();
            if items.len() > MOST_TRUSTED {
                problems.push(Problem::at(&entry.node.span, format!("at most {MOST_TRUSTED} networks")));
                return;
            }
            let nets = items.iter().filter_map(|item| noted(net(item), problems)).collect();
            forwarding.trust = nets;
        }
    });
}

/// `true` for the usual field, or its name.
fn request_id(node: &Node<'_>) -> Result<Option<Box<str>>, Problem> {
    const HELP: &str = "request_id = true, or the name of a field such as \"X-Request-Id\"";
    match &node.value {
        Value::Boolean(yes) => Ok(yes.then(|| "X-Request-Id".into())),
        _ => {
            let name = node.text("true or a field's name").map_err(|problem| problem.help(HELP))?;
            // Whatever a decision may set, backends may be given.
            match Changes::default().set_field(name, b"x") {
                Ok(()) => Ok(Some(name.into())),
                Err(why) => Err(Problem::at(&node.span, why).help(HELP)),
            }
        }
    }
}

fn send(node: &Node<'_>) -> Result<ForwardedFields, Problem> {
    match node
        .text("which fields to send")
        .map_err(|problem| problem.help(format!("one of {}", names::listed(SENDS))))?
    {
        "x-forwarded" => Ok(ForwardedFields::XForwarded),
        "forwarded" => Ok(ForwardedFields::Forwarded),
        "both" => Ok(ForwardedFields::Both),
        "none" => Ok(ForwardedFields::None),
        other => Err(Problem::at(&node.span, format!("no fields are called \"{other}\""))
            .help(names::did_you_mean(other, SENDS))),
    }
}

/// A network, or one address.
fn net(node: &Node<'_>) -> Result<IpNet, Problem> {
    let text = node.text("an address or a network")?;
    text.parse::<IpNet>()
        .map(|net| net.trunc())
        .or_else(|_| text.parse::<std::net::IpAddr>().map(IpNet::from))
        .map_err(|_| Problem::at(&node.span, "not an address or a network").help("such as \"10.0.0.0/8\" or \"::1\""))
}

fn dns_servers(node: &Node<'_>, problems: &mut Vec<Problem>) -> Vec<SocketAddr> {
    let items = node.items();
    if items.len() > MOST_DNS_SERVERS {
        problems.push(Problem::at(&node.span, format!("at most {MOST_DNS_SERVERS} servers")));
        return Vec::new();
    }
    items.iter().filter_map(|item| noted(dns_server(item), problems)).collect()
}

/// An address, with a port or without.
fn dns_server(node: &Node<'_>) -> Result<SocketAddr, Problem> {
    let text = node.text("the address of a DNS server")?;
    let bare = text.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')).unwrap_or(text);
    let alone = bare.parse::<std::net::IpAddr>().map(|ip| SocketAddr::new(ip, DNS_PORT));
    alone.or_else(|_| text.parse()).map_err(|_| {
        let problem = Problem::at(&node.span, "not the address of a DNS server");
        problem.help("such as \"10.0.0.2\", \"127.0.0.1:5353\" or \"[2001:db8::53]:53\"")
    })
}

fn path(node: &Node<'_>, what: &str) -> Result<PathBuf, Problem> {
    match node.text(what)? {
        text if text.is_empty() || text.contains('\0') => Err(Problem::at(&node.span, "not a path")),
        text => Ok(PathBuf::from(text)),
    }
}

/// Reads a section of the file key by key.
fn section<'n, 't>(
    keys: &Keys,
    node: &'n Node<'t>,
    problems: &mut Vec<Problem>,
    take: impl FnMut(&'static str, &'n Entry<'t>, &mut Vec<Problem>),
) {
    let entries = node.entries("a table").map_err(|problem| problem.help(format!("it is a section: {}", keys.of)));
    if let Some(entries) = noted(entries, problems) {
        keys.read(entries, problems, |_| None, take);
    }
}

fn set<T>(place: &mut T, value: Result<T, Problem>, problems: &mut Vec<Problem>) {
    if let Some(value) = noted(value, problems) {
        *place = value;
    }
}

/// What is at the top but belongs into a section, or into the routes file.
fn section_of(key: &str) -> Option<String> {
    if key.contains(['.', '*', '/']) {
        return Some("hosts stand in the routes file, not here".to_owned());
    }
    let sections = [&TIMEOUTS, &LIMITS, &FORWARDED, &ERRORS, &DNS, &log::KEYS, &status::KEYS];
    let found = sections.iter().find(|section| section.known.contains(&key))?;
    Some(format!("it stands in {}", found.of))
}

#[cfg(test)]
#[path = "file_tests.rs"]
mod tests;
