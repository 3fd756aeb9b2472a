//! What a route or a target says about the connections to a backend: PROXY headers, and TLS.
//!
//! The PEM files that it names are read here, while the routes are resolved: what is wrong with one is wrong with the line
//! that names it, and nothing is read where requests are carried.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use hashbrown::HashMap;
use rustls::pki_types::pem::{self, PemObject};
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};

use crate::table::link::{Link, ProxyVersion};
use crate::table::secure::{Identity, Roots, Secure, Wanted};
use crate::table::target::Scheme;
use crate::upstream::tls::{self, Impossible};

use super::keys::noted;
use super::node::{Entry, Node};
use super::report::Problem;

/// What is said, by a route for all of its targets or by one of them.
#[derive(Clone, Copy, Default)]
pub(super) struct Said<'a> {
    send_proxy: Option<&'a Entry<'a>>,
    ca: Option<&'a Entry<'a>>,
    server_name: Option<&'a Entry<'a>>,
    client_cert: Option<&'a Entry<'a>>,
    client_key: Option<&'a Entry<'a>>,
    insecure: Option<&'a Entry<'a>>,
    http2: Option<&'a Entry<'a>>,
}

/// Makes links, and remembers the files that it has read for them.
pub(super) struct Links<'p> {
    /// The routes file.
    file: &'p Path,
    read: HashMap<PathBuf, Result<Arc<[u8]>, String>>,
}

const PROXY_HELP: &str = "\"v1\" is a line of text, \"v2\" a binary block: what the backend is set up to take";

impl<'a> Said<'a> {
    /// Notes a key; `false` when it is about something else.
    pub(super) fn note(&mut self, key: &str, entry: &'a Entry<'a>) -> bool {
        let place = match key {
            "send_proxy" => &mut self.send_proxy,
            "ca" => &mut self.ca,
            "server_name" => &mut self.server_name,
            "client_cert" => &mut self.client_cert,
            "client_key" => &mut self.client_key,
            "insecure" => &mut self.insecure,
            "http2" => &mut self.http2,
            _ => return false,
        };
        *place = Some(entry);
        true
    }

    /// Anything at all.
    pub(super) fn any(&self) -> Option<&'a Entry<'a>> {
        self.send_proxy.or(self.http2).or(self.about_tls())
    }

    /// Anything that only matters over TLS.
    pub(super) fn about_tls(&self) -> Option<&'a Entry<'a>> {
        self.ca.or(self.server_name).or(self.client_cert).or(self.client_key).or(self.insecure)
    }

    /// What a target says, and where it is silent, what its route does. The client's certificate and key are one thing.
    fn or(self, route: &Self) -> Self {
        let own_identity = self.client_cert.is_some() || self.client_key.is_some();
        Self {
            send_proxy: self.send_proxy.or(route.send_proxy),
            ca: self.ca.or(route.ca),
            server_name: self.server_name.or(route.server_name),
            client_cert: self.client_cert.or(route.client_cert.filter(|_| !own_identity)),
            client_key: self.client_key.or(route.client_key.filter(|_| !own_identity)),
            insecure: self.insecure.or(route.insecure),
            http2: self.http2.or(route.http2),
        }
    }
}

/// That a key is for another kind of target.
pub(super) fn only_over_tls(entry: &Entry<'_>) -> Problem {
    Problem::at(&entry.key_span, format!("`{}` is for https:// targets", entry.key))
        .help("to = \"https://10.0.0.7:8443\"")
}

impl<'p> Links<'p> {
    pub(super) fn new(file: &'p Path) -> Self {
        Self { file, read: HashMap::new() }
    }

    /// The link to a target of this scheme, written at `target`; `None` when something that is said of it is wrong.
    pub(super) fn link(
        &mut self,
        target: &Node<'_>,
        scheme: &Scheme,
        own: &Said<'_>,
        route: &Said<'_>,
        problems: &mut Vec<Problem>,
    ) -> Option<Link> {
        let before = problems.len();
        let said = own.or(route);
        let send_proxy = said.send_proxy.and_then(|entry| noted(send_proxy(entry), problems));
        let http2 = match said.http2 {
            None => *scheme == Scheme::H2c,
            Some(entry) => noted(http2(entry, scheme), problems).unwrap_or(false),
        };
        if let (Some(entry), true) = (said.send_proxy, http2) {
            let what = "`send_proxy` says who the one client of a connection is, and one of HTTP/2 carries many";
            problems.push(Problem::at(&entry.key_span, what).help("X-Forwarded-For says it of each request"));
        }
        let tls = match scheme {
            Scheme::Http | Scheme::H2c => {
                problems.extend(own.about_tls().map(only_over_tls));
                None
            }
            Scheme::Https(name) => self.secure(target, name, &said, http2, problems).map(Arc::new),
        };
        (problems.len() == before).then_some(Link { tls, send_proxy, http2 })
    }

    fn secure(
        &mut self,
        target: &Node<'_>,
        name: &str,
        said: &Said<'_>,
        http2: bool,
        problems: &mut Vec<Problem>,
    ) -> Option<Secure> {
        let insecure = match said.insecure {
            Some(entry) => noted(entry.node.flag("true or false"), problems)?,
            None => false,
        };
        if let (true, Some(ca)) = (insecure, said.ca) {
            let what = "`ca` and `insecure` contradict each other: nobody looks who has signed";
            problems.push(Problem::at(&ca.key_span, what).help("with `ca`, insecure = true is most likely not needed"));
        }
        let server_name = match said.server_name {
            Some(entry) => noted(server_name(entry), problems)?,
            None => name,
        };
        let roots = match said.ca {
            Some(entry) => noted(self.roots(entry), problems)?,
            None => Roots::System,
        };
        let identity = match (said.client_cert, said.client_key) {
            (None, None) => None,
            (Some(cert), key) => Some(noted(self.identity(cert, key), problems)?),
            (None, Some(key)) => {
                let problem = Problem::at(&key.key_span, "`client_key` without `client_cert`");
                problems.push(problem.help("client_cert = \"client.pem\": its certificate"));
                return None;
            }
        };
        let secure = Secure::new(Wanted { server_name: server_name.into(), roots, identity, insecure, http2 });
        // Made ready here, so that what can't be done is said before a request needs it.
        if let Err(why) = tls::prepare(&secure) {
            let entry = match why {
                Impossible::BadRoot => said.ca,
                Impossible::BadIdentity(_) => said.client_cert,
                Impossible::BadName => said.server_name,
                Impossible::NoSystemRoots(_) => None,
            };
            let span = entry.map_or(&target.span, |entry| &entry.node.span);
            let help = matches!(why, Impossible::NoSystemRoots(_)).then(|| {
                "install the system's certificates (Debian: ca-certificates), or name a file: ca = \"ca.pem\""
                    .to_owned()
            });
            problems.push(Problem::at(span, why.to_string()).maybe_help(help));
            return None;
        }
        Some(secure)
    }

    fn roots(&mut self, entry: &Entry<'_>) -> Result<Roots, Problem> {
        Ok(Roots::File { path: written(entry), certificates: self.certificates(entry)? })
    }

    fn identity(&mut self, cert: &Entry<'_>, key: Option<&Entry<'_>>) -> Result<Identity, Problem> {
        let chain = self.certificates(cert)?;
        let holder = key.unwrap_or(cert);
        let (key_path, pem) = self.file(holder)?;
        let key = PrivateKeyDer::from_pem_slice(&pem).map_err(|error| {
            let help = match key {
                Some(_) => None,
                None => Some("its key stands in another file? client_key = \"client.key\"".to_owned()),
            };
            let what = match error {
                pem::Error::NoItemsFound => format!("no private key in {}", key_path.display()),
                error => format!("no private key can be read from {}: {error}", key_path.display()),
            };
            Problem::at(&holder.node.span, what).maybe_help(help)
        })?;
        Ok(Identity { path: written(cert), chain, key })
    }

    fn certificates(&mut self, entry: &Entry<'_>) -> Result<Vec<CertificateDer<'static>>, Problem> {
        let (path, pem) = self.file(entry)?;
        let certificates: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(&pem).collect();
        let problem = match certificates {
            Ok(certificates) if !certificates.is_empty() => return Ok(certificates),
            Ok(_) => format!("no certificate in {}", path.display()),
            Err(error) => format!("no certificates can be read from {}: {error}", path.display()),
        };
        let help = "a PEM file has -----BEGIN CERTIFICATE----- in it";
        Err(Problem::at(&entry.node.span, problem).help(help))
    }

    /// Reads a file that is named: a relative path is from the folder of the routes file.
    fn file(&mut self, entry: &Entry<'_>) -> Result<(PathBuf, Arc<[u8]>), Problem> {
        let text = entry
            .node
            .text("the path of a PEM file")
            .map_err(|problem| problem.help(format!("{} = \"file.pem\"", entry.key)))?;
        if text.is_empty() || text.contains('\0') {
            return Err(Problem::at(&entry.node.span, "not a path"));
        }
        let path = self.file.parent().unwrap_or(Path::new("")).join(text);
        let read = |path: &PathBuf| super::text::read_bounded(path).map(Arc::from).map_err(|error| error.to_string());
        let bytes = self.read.entry_ref(&path).or_insert_with(|| read(&path)).clone();
        bytes.map(|bytes| (path.clone(), bytes)).map_err(|why| {
            let help = "it has to be readable by the user that carom runs as; \
                        a relative path is from the folder of the routes file";
            Problem::at(&entry.node.span, format!("{} can't be read: {why}", path.display())).help(help)
        })
    }
}

/// The version of the PROXY protocol that a backend gets.
fn send_proxy(entry: &Entry<'_>) -> Result<ProxyVersion, Problem> {
    let span = &entry.node.span;
    match entry.node.text("\"v1\" or \"v2\"").map_err(|problem| problem.help(PROXY_HELP))? {
        "v1" => Ok(ProxyVersion::V1),
        "v2" => Ok(ProxyVersion::V2),
        other => Err(Problem::at(span, format!("the PROXY protocol has no version \"{other}\"")).help(PROXY_HELP)),
    }
}

/// A value's text, for people.
fn written(entry: &Entry<'_>) -> Box<str> {
    entry.node.text("").unwrap_or_default().into()
}

fn server_name<'e>(entry: &'e Entry<'_>) -> Result<&'e str, Problem> {
    let text = entry.node.text("a name")?;
    match ServerName::try_from(text) {
        Ok(_) => Ok(text),
        Err(_) => Err(Problem::at(&entry.node.span, "neither a host's name nor an IP address")
            .help("the name that the backend's certificate is for, without a port: \"app.internal\"")),
    }
}

/// Whether HTTP/2 is spoken.
fn http2(entry: &Entry<'_>, scheme: &Scheme) -> Result<bool, Problem> {
    match (entry.node.flag("true or false")?, scheme) {
        (false, Scheme::H2c) => {
            Err(Problem::at(&entry.node.span, "h2c:// is HTTP/2").help("http:// is for servers of HTTP/1"))
        }
        (http2, _) => Ok(http2),
    }
}
