//! One name's addresses, and for how long they are good: from the hosts file, from the DNS, and where that knows nothing
//! from the system's resolver, which may know of other places (mDNS, a directory).
//!
//! A resolver library asks the DNS, since the system's resolver does not say for how long an answer is good.

use std::cell::RefCell;
use std::net::{IpAddr, SocketAddr};
use std::rc::Rc;
use std::time::{Duration, Instant, SystemTime};

use hickory_resolver::Hosts;
use hickory_resolver::TokioResolver;
use hickory_resolver::config::{ConnectionConfig, NameServerConfig, ResolveHosts, ResolverConfig};
use hickory_resolver::net::runtime::TokioRuntimeProvider;
use hickory_resolver::net::{DnsError, NetError};
use hickory_resolver::proto::op::{Query, ResponseCode};
use hickory_resolver::proto::rr::{Name, RecordType};
use tokio::net::lookup_host;
use tokio::time::timeout;

/// How long one server has for its answer, before the next is asked or the same once more.
const ONE_ANSWER: Duration = Duration::from_secs(2);

/// How long all of them have.
const ALL_ANSWERS: Duration = Duration::from_secs(6);

/// For how long an answer is good that does not say so itself: of the hosts file, which costs nothing to read, and of the
/// system's resolver.
const GOOD_FOR: (Duration, Duration) = (Duration::from_secs(5), Duration::from_secs(30));

/// The files that say where to ask, and what need not be asked.
const FILES: [&str; 2] = ["/etc/resolv.conf", "/etc/hosts"];

/// Who is asked.
pub(super) struct Resolver {
    /// Empty: the system's.
    servers: Vec<SocketAddr>,
    /// As the files said when they were last read.
    made: RefCell<Option<Rc<Made>>>,
}

/// What the files say.
struct Made {
    hosts: Hosts,
    dns: Result<TokioResolver, NetError>,
    changed: [Option<SystemTime>; 2],
}

/// An answer.
pub(super) struct Found {
    /// At least one.
    pub(super) addresses: Vec<IpAddr>,
    pub(super) good_for: Duration,
}

impl Resolver {
    pub(super) fn new(servers: Vec<SocketAddr>) -> Self {
        Self { servers, made: RefCell::new(None) }
    }

    /// Asks once. `known` are the addresses that the name had last. An error says why there is none.
    pub(super) async fn ask(&self, text: &str, known: &[IpAddr]) -> Result<Found, String> {
        let made = self.made();
        let name = Name::from_ascii(text).map_err(|error| error.to_string())?;
        let addresses = made.of_hosts(&name);
        if !addresses.is_empty() {
            return Ok(Found { addresses, good_for: GOOD_FOR.0 });
        }
        let why = match &made.dns {
            Ok(dns) => match timeout(ALL_ANSWERS, of_dns(dns, name, known)).await {
                Ok(Ok(found)) => return Ok(found),
                Ok(Err(error)) => why(&error),
                Err(_) => why(&NetError::Timeout),
            },
            Err(error) => error.to_string(),
        };
        // Servers that the operator has named are the ones to be believed.
        if self.servers.is_empty()
            && let Ok(found) = lookup_host((text, 0)).await
        {
            let addresses = unique(found.map(|address| address.ip()));
            if !addresses.is_empty() {
                return Ok(Found { addresses, good_for: GOOD_FOR.1 });
            }
        }
        Err(why)
    }

    /// Reads the files again where they have changed: a network that comes up, a container's new hosts.
    fn made(&self) -> Rc<Made> {
        let changed = FILES.map(|file| std::fs::metadata(file).and_then(|file| file.modified()).ok());
        let mut made = self.made.borrow_mut();
        match &*made {
            Some(made) if made.changed == changed => Rc::clone(made),
            _ => {
                let hosts = Hosts::from_system().unwrap_or_default();
                Rc::clone(made.insert(Rc::new(Made { hosts, dns: self.dns(), changed })))
            }
        }
    }

    fn dns(&self) -> Result<TokioResolver, NetError> {
        let mut builder = match self.servers.as_slice() {
            [] => TokioResolver::builder_tokio()?,
            servers => {
                let servers = servers.iter().map(|server| {
                    let mut both = [ConnectionConfig::udp(), ConnectionConfig::tcp()];
                    for connection in &mut both {
                        connection.port = server.port();
                    }
                    NameServerConfig::new(server.ip(), true, both.into())
                });
                let config = ResolverConfig::from_name_servers(servers.collect());
                TokioResolver::builder_with_config(config, TokioRuntimeProvider::default())
            }
        };
        let options = builder.options_mut();
        options.timeout = options.timeout.min(ONE_ANSWER);
        options.use_hosts_file = ResolveHosts::Never;
        builder.build()
    }
}

impl Made {
    fn of_hosts(&self, name: &Name) -> Vec<IpAddr> {
        let kinds = [RecordType::A, RecordType::AAAA];
        let lookups = kinds.iter().filter_map(|kind| self.hosts.lookup_static_host(&Query::query(name.clone(), *kind)));
        unique(
            lookups.flat_map(|lookup| {
                lookup.answers().iter().filter_map(|record| record.data.ip_addr()).collect::<Vec<_>>()
            }),
        )
    }
}

async fn of_dns(dns: &TokioResolver, name: Name, known: &[IpAddr]) -> Result<Found, NetError> {
    // We ask when we want to know it anew.
    dns.clear_cache();
    let lookup = dns.lookup_ip(name).await?;
    let mut addresses = unique(lookup.iter());
    // IPv4 and IPv6 are two questions, and the library makes do with one answer: whether a kind that there was before is
    // gone, or only could not be asked for, makes a difference.
    for (kind, is_of) in [(RecordType::A, IpAddr::is_ipv4 as fn(&IpAddr) -> bool), (RecordType::AAAA, IpAddr::is_ipv6)]
    {
        if known.iter().any(is_of)
            && !addresses.iter().any(is_of)
            && let Err(error) = dns.lookup(lookup.query().name().clone(), kind).await
            && !says_none(&error)
        {
            addresses.extend(known.iter().filter(|ip| is_of(ip)));
        }
    }
    Ok(Found { addresses, good_for: lookup.valid_until().saturating_duration_since(Instant::now()) })
}

fn unique(addresses: impl Iterator<Item = IpAddr>) -> Vec<IpAddr> {
    let mut unique = Vec::new();
    for address in addresses {
        if !unique.contains(&address) {
            unique.push(address);
        }
    }
    unique
}

/// Whether it is an answer, and says that there is none.
fn says_none(error: &NetError) -> bool {
    let codes = [ResponseCode::NXDomain, ResponseCode::NoError];
    matches!(error, NetError::Dns(DnsError::NoRecordsFound(none)) if codes.contains(&none.response_code))
}

fn why(error: &NetError) -> String {
    match error {
        NetError::Dns(DnsError::NoRecordsFound(none)) if none.response_code == ResponseCode::NXDomain => {
            "there is no such name".to_owned()
        }
        NetError::Dns(DnsError::NoRecordsFound(none)) if none.response_code == ResponseCode::NoError => {
            "the name has no address".to_owned()
        }
        NetError::Dns(DnsError::NoRecordsFound(none)) => format!("the DNS server answers: {}", none.response_code),
        NetError::Dns(DnsError::ResponseCode(code)) => format!("the DNS server answers: {code}"),
        NetError::Timeout | NetError::NoConnections => "no DNS server answers".to_owned(),
        error => error.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_hosts_file_knows_names_in_any_case_and_all_their_addresses() {
        let mut hosts = Hosts::default();
        let file = "10.0.0.1 App.Internal app # both\n10.0.0.1 app\n::1 app\n10.0.0.2 app\n";
        hosts.read_hosts_conf(file.as_bytes()).unwrap();
        let made = Made { hosts, dns: Err(NetError::NoConnections), changed: [None; 2] };
        let of = |name: &str| {
            let found = made.of_hosts(&Name::from_ascii(name).unwrap());
            found.iter().map(ToString::to_string).collect::<Vec<_>>().join(" ")
        };
        assert_eq!(
            (of("app"), of("app.internal"), of("internal")),
            ("10.0.0.1 10.0.0.2 ::1".into(), "10.0.0.1".into(), String::new())
        );
    }

    #[test]
    fn a_name_as_containers_have_them_is_a_name() {
        for name in ["app", "my_app", "app-1.default.svc.cluster.local", "xn--bcher-kva.example"] {
            assert!(Name::from_ascii(name).is_ok(), "{name}");
        }
    }
}
