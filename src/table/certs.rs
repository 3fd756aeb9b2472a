//! Which certificate a name gets: an immutable snapshot, like the rest of the table.
//!
//! Does no IO and knows no clock: whoever builds the snapshot leaves out what is not valid. What is in a certificate
//! decides (its subjectAltName, RFC 9525), never what its file is called.

use std::fmt;
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use hashbrown::HashMap;
use rustls::crypto::aws_lc_rs::sign::any_supported_type;
use rustls::pki_types::pem::{self, PemObject, SectionKind};
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::sign::{CertifiedKey, SigningKey};
use x509_parser::extensions::GeneralName;
use x509_parser::prelude::{FromDer, X509Certificate};

use crate::http::host::Host;

use super::pattern::HostPattern;

/// A certificate with its chain and its private key.
pub struct Certificate {
    key: Arc<CertifiedKey>,
    names: Box<[Box<str>]>,
    not_before: SystemTime,
    not_after: SystemTime,
    /// Where it came from: the file of the chain, and that of the key.
    files: Box<[PathBuf]>,
}

/// Why something is no certificate that could be served.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BadCertificate(pub String);

/// The certificates that are served, by the names that they are for.
#[derive(Debug, Default)]
pub struct Certificates {
    all: Vec<Arc<Certificate>>,
    exact: HashMap<Box<str>, Arc<Certificate>>,
    /// Keyed by what stands behind `*.`: one label below it is covered (RFC 9525 section 6.3).
    wildcard: HashMap<Box<str>, Arc<Certificate>>,
    /// Of sites that have their own: keyed by hosts, and by what stands behind `*.`.
    own: HashMap<HostPattern, Arc<Certificate>>,
    default: Option<Arc<Certificate>>,
}

impl Certificate {
    /// Reads a chain, its own certificate first, and its private key (PKCS #8, PKCS #1 or SEC 1; RSA, ECDSA or Ed25519)
    /// from PEM, in whatever order they stand.
    ///
    /// # Errors
    /// What is not PEM, lacks one of them, names no host, or has a key that is not its own.
    pub fn from_pem(text: &[u8]) -> Result<Self, BadCertificate> {
        let (mut chain, mut key) = (Vec::new(), None);
        for section in sections(text) {
            match section? {
                (SectionKind::Certificate, der) => chain.push(CertificateDer::from(der)),
                (kind, der) => key = PrivateKeyDer::from_pem(kind, der).or(key),
            }
        }
        let key = signing_key(key.ok_or_else(|| bad("there is no private key in it"))?)?;
        Self::new(chain, key, &[])
    }

    /// A certificate of a chain, its own first, and a key, which come from these files.
    pub(crate) fn new(
        chain: Vec<CertificateDer<'static>>,
        key: Arc<dyn SigningKey>,
        files: &[&Path],
    ) -> Result<Self, BadCertificate> {
        let leaf = Leaf::of(chain.first().ok_or_else(|| bad("there is no certificate in it"))?)?;
        if leaf.names.is_empty() {
            return Err(bad("it names no host (no subjectAltName)"));
        }
        let key = CertifiedKey::new(chain, key);
        key.keys_match().map_err(|_| bad("its private key is another certificate's"))?;
        Ok(Self {
            key: Arc::new(key),
            names: leaf.names,
            not_before: leaf.not_before,
            not_after: leaf.not_after,
            files: files.iter().map(|&file| file.to_owned()).collect(),
        })
    }

    /// The names that it is for: host names, `*.` names and addresses, as hosts are compared.
    pub fn names(&self) -> &[Box<str>] {
        &self.names
    }

    /// From when on it is valid.
    pub fn not_before(&self) -> SystemTime {
        self.not_before
    }

    /// Until when it is valid.
    pub fn not_after(&self) -> SystemTime {
        self.not_after
    }

    /// The files that it came from, the one with the chain first; none where it was not read from files.
    pub fn files(&self) -> &[PathBuf] {
        &self.files
    }

    /// The certificate itself, without its chain.
    pub(crate) fn leaf(&self) -> &CertificateDer<'static> {
        // There is one: `new` has read it.
        &self.key.cert[0]
    }

    /// Whether it is the same one, whatever files it came from.
    pub fn is_same(&self, other: &Self) -> bool {
        self.key.cert == other.key.cert
    }

    /// Whether it is for a host, in [`Host`]'s compared form (RFC 9525 section 6).
    pub fn covers(&self, host: &str) -> bool {
        let parent = parent(host);
        self.names.iter().any(|name| {
            **name == *host || parent.is_some_and(|parent| name.strip_prefix("*.").is_some_and(|name| name == parent))
        })
    }

    /// Whether it is for all hosts that a pattern names, as far as one label below a `*.`.
    pub fn is_for(&self, host: &HostPattern) -> bool {
        match host {
            HostPattern::Exact(name) => self.covers(name),
            HostPattern::Below(parent) => {
                self.names.iter().any(|name| name.strip_prefix("*.").is_some_and(|name| name == &**parent))
            }
            HostPattern::Any => false,
        }
    }

    /// The chain and the key as a handshake needs them.
    pub(crate) fn key(&self) -> &Arc<CertifiedKey> {
        &self.key
    }
}

impl Certificates {
    /// An index of certificates, all of them valid. The newest wins among those that are for the same name: the one
    /// whose validity began last.
    pub fn of(certificates: impl IntoIterator<Item = Certificate>) -> Self {
        Self::from_shared(certificates.into_iter().map(Arc::new))
    }

    pub(crate) fn from_shared(certificates: impl IntoIterator<Item = Arc<Certificate>>) -> Self {
        let mut index = Self { all: certificates.into_iter().collect(), ..Self::default() };
        for certificate in &index.all {
            for name in &certificate.names {
                let (map, name) = match name.strip_prefix("*.") {
                    Some(parent) => (&mut index.wildcard, parent),
                    None => (&mut index.exact, &**name),
                };
                let best = map.entry(name.into()).or_insert_with(|| Arc::clone(certificate));
                if (best.not_before, best.not_after) < (certificate.not_before, certificate.not_after) {
                    *best = Arc::clone(certificate);
                }
            }
        }
        index
    }

    /// Names the certificate of clients that ask for a name which has none, or for no name at all.
    #[must_use]
    pub fn or(mut self, default: Option<Arc<Certificate>>) -> Self {
        self.default = default;
        self
    }

    /// Gives a site a certificate of its own: it wins for those of the site's hosts that it is for.
    pub(crate) fn give<'p>(&mut self, certificate: &Arc<Certificate>, hosts: impl Iterator<Item = &'p HostPattern>) {
        for host in hosts {
            if certificate.is_for(host) {
                self.own.insert(host.clone(), Arc::clone(certificate));
            }
        }
        self.all.push(Arc::clone(certificate));
    }

    /// The certificate for the name that a client asks for: an exact one before a wildcard, then the default.
    pub fn find(&self, name: Option<&str>) -> Option<&Arc<Certificate>> {
        name.and_then(|name| self.covering(name)).or(self.default.as_ref())
    }

    /// The certificate that is for a host, and not the default.
    pub fn covering(&self, host: &str) -> Option<&Arc<Certificate>> {
        let own = || {
            let exact = self.own.get(&HostPattern::Exact(host.into()));
            exact.or_else(|| self.own.get(&HostPattern::Below(parent(host)?.into())))
        };
        let own = if self.own.is_empty() { None } else { own() };
        own.or_else(|| self.exact.get(host)).or_else(|| self.wildcard.get(parent(host)?))
    }

    /// Those that some name gets: not those that others have taken the place of.
    pub fn shown(&self) -> impl Iterator<Item = &Arc<Certificate>> {
        self.all.iter().filter(|certificate| {
            let is_it = |shown: &Arc<Certificate>| Arc::ptr_eq(shown, certificate);
            certificate.names.iter().any(|name| match name.strip_prefix("*.") {
                Some(parent) => self.wildcard.get(parent).is_some_and(is_it),
                None => self.exact.get(name).is_some_and(is_it),
            }) || self.own.values().any(is_it)
        })
    }

    /// Every certificate, in the order in which they were given.
    pub fn all(&self) -> &[Arc<Certificate>] {
        &self.all
    }
}

/// What is said by the certificate itself.
pub(crate) struct Leaf {
    pub(crate) names: Box<[Box<str>]>,
    pub(crate) not_before: SystemTime,
    pub(crate) not_after: SystemTime,
    pub(crate) is_authority: bool,
    /// Its public key as `SubjectPublicKeyInfo`, by which its private key is found.
    pub(crate) public_key: Box<[u8]>,
    pub(crate) subject: Box<[u8]>,
    pub(crate) issuer: Box<[u8]>,
}

impl Leaf {
    pub(crate) fn of(der: &CertificateDer<'_>) -> Result<Self, BadCertificate> {
        let (_, certificate) = X509Certificate::from_der(der).map_err(|_| bad("a certificate in it can't be read"))?;
        let alternative = certificate.subject_alternative_name().ok().flatten();
        let names = alternative.iter().flat_map(|extension| &extension.value.general_names);
        Ok(Self {
            names: names.filter_map(name_of).collect(),
            not_before: time(certificate.validity().not_before.timestamp()),
            not_after: time(certificate.validity().not_after.timestamp()),
            is_authority: certificate.is_ca(),
            public_key: certificate.public_key().raw.into(),
            subject: certificate.subject().as_raw().into(),
            issuer: certificate.issuer().as_raw().into(),
        })
    }
}

/// The sections of a PEM file that we know; text around them and other sections are nothing.
pub(crate) fn sections(text: &[u8]) -> impl Iterator<Item = Result<(SectionKind, Vec<u8>), BadCertificate>> {
    <(SectionKind, Vec<u8>)>::pem_slice_iter(text).map(|section| {
        section.map_err(|error| match error {
            pem::Error::MissingSectionEnd { .. } => bad("it is cut off: a section has no end"),
            _ => bad("it is not PEM: a section can't be decoded"),
        })
    })
}

/// The certificates of a PEM file.
pub(crate) fn certificates_in(text: &[u8]) -> Result<Vec<CertificateDer<'static>>, BadCertificate> {
    let certificate = |section: Result<(SectionKind, Vec<u8>), BadCertificate>| match section {
        Ok((SectionKind::Certificate, der)) => Some(Ok(CertificateDer::from(der))),
        Ok(_) => None,
        Err(bad) => Some(Err(bad)),
    };
    sections(text).filter_map(certificate).collect()
}

/// A private key that can sign.
pub(crate) fn signing_key(key: PrivateKeyDer<'static>) -> Result<Arc<dyn SigningKey>, BadCertificate> {
    any_supported_type(&key).map_err(|_| bad("its private key is none of RSA, ECDSA and Ed25519, or broken"))
}

/// The form in which names are compared, or `None` for one that no request can have.
fn name_of(name: &GeneralName<'_>) -> Option<Box<str>> {
    match name {
        GeneralName::DNSName(name) => {
            let (star, rest) = name.strip_prefix("*.").map_or(("", *name), |rest| ("*.", rest));
            let host = Host::parse(rest.as_bytes()).ok().filter(|host| host.port().is_none())?;
            Some(format!("{star}{host}").into())
        }
        GeneralName::IPAddress(bytes) => {
            let address = match <[u8; 4]>::try_from(*bytes) {
                Ok(v4) => IpAddr::from(v4),
                Err(_) => IpAddr::from(<[u8; 16]>::try_from(*bytes).ok()?),
            };
            Some(if address.is_ipv6() { format!("[{address}]") } else { address.to_string() }.into())
        }
        _ => None,
    }
}

/// What stands behind the first label of a name.
fn parent(host: &str) -> Option<&str> {
    if host.starts_with('[') {
        return None;
    }
    host.split_once('.').map(|(_, parent)| parent)
}

/// Nothing that is served was, or will be, valid before there was Unix.
fn time(seconds: i64) -> SystemTime {
    SystemTime::UNIX_EPOCH + Duration::from_secs(u64::try_from(seconds).unwrap_or(0))
}

fn bad(what: &str) -> BadCertificate {
    BadCertificate(what.to_owned())
}

impl fmt::Display for BadCertificate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for BadCertificate {}

impl fmt::Debug for Certificate {
    /// Without its key.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Certificate").field("names", &self.names).field("files", &self.files).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn certificate(names: &[&str], from: i32) -> Certificate {
        let names: Vec<String> = names.iter().map(ToString::to_string).collect();
        let mut params = rcgen::CertificateParams::new(names).unwrap();
        params.not_before = rcgen::date_time_ymd(from, 1, 1);
        let key = rcgen::KeyPair::generate().unwrap();
        let pem = params.self_signed(&key).unwrap().pem();
        Certificate::from_pem(format!("some text\n{}{pem}", key.serialize_pem()).as_bytes()).unwrap()
    }

    #[test]
    fn a_name_covers_itself_and_a_wildcard_one_label() {
        let certificate = certificate(&["A.test", "*.W.test", "192.0.2.7", "2001:db8::1"], 2020);
        for host in ["a.test", "x.w.test", "xn--bcher-kva.w.test", "192.0.2.7", "[2001:db8::1]"] {
            assert!(certificate.covers(host), "{host}");
        }
        for host in ["b.test", "x.a.test", "w.test", "x.y.w.test", "*.w.test.x", "192.0.2.8", "[2001:db8::2]", ""] {
            assert!(!certificate.covers(host), "{host}");
        }
        let below = |parent: &str| certificate.is_for(&HostPattern::Below(parent.into()));
        assert!(below("w.test") && !below("test") && !below("a.test"));
        assert!(!certificate.is_for(&HostPattern::Any));
    }

    #[test]
    fn the_exact_name_the_wildcard_the_default() {
        let certificates = [
            certificate(&["*.w.test"], 2001),
            certificate(&["a.w.test"], 2002),
            certificate(&["b.test", "a.w.test"], 2003),
            certificate(&["b.test"], 2002),
        ];
        let certificates = Certificates::of(certificates);
        let year = |found: Option<&Arc<Certificate>>| {
            let days = found?.not_before().duration_since(SystemTime::UNIX_EPOCH).unwrap().as_secs() / (24 * 60 * 60);
            Some(1970 + days * 10 / 3652)
        };
        for (name, want) in [
            ("a.w.test", Some(2003)),
            ("b.w.test", Some(2001)),
            ("b.test", Some(2003)),
            ("w.test", None),
            ("x.b.w.test", None),
            ("c.test", None),
        ] {
            assert_eq!(year(certificates.find(Some(name))), want, "{name}");
        }
        assert!(certificates.find(None).is_none());
        assert_eq!(certificates.shown().count(), 2);
        let default = Some(Arc::new(certificate(&["d.test"], 2010)));
        let mut certificates = certificates.or(default);
        assert_eq!((year(certificates.find(None)), year(certificates.find(Some("c.test")))), (Some(2010), Some(2010)));
        assert!(certificates.covering("c.test").is_none());
        // A site's own, for those of its hosts that it is for.
        let own = Arc::new(certificate(&["b.test", "*.w.test"], 2000));
        let hosts = ["b.test", "c.test"].map(|name| HostPattern::Exact(name.into()));
        certificates.give(&own, hosts.iter());
        for (name, want) in [("b.test", 2000), ("c.test", 2010), ("b.w.test", 2001)] {
            assert_eq!(year(certificates.find(Some(name))), Some(want), "{name}");
        }
    }

    #[test]
    fn what_is_no_certificate_says_why() {
        let key = rcgen::KeyPair::generate().unwrap();
        let params = |names: &[&str]| {
            rcgen::CertificateParams::new(names.iter().map(ToString::to_string).collect::<Vec<_>>()).unwrap()
        };
        let pem = params(&["a.test"]).self_signed(&key).unwrap().pem();
        let other = rcgen::KeyPair::generate().unwrap().serialize_pem();
        for (text, words) in [
            (String::new(), "no private key"),
            (pem.clone(), "no private key"),
            (key.serialize_pem(), "no certificate"),
            (pem.clone() + &other, "another certificate's"),
            (params(&[]).self_signed(&key).unwrap().pem() + &key.serialize_pem(), "names no host"),
            (pem[..pem.len() - 30].to_owned(), "cut off"),
            (pem.replace("MII", "..."), "can't be decoded"),
            ("-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n".to_owned() + &other, "can't be read"),
            (pem.clone() + "-----BEGIN PRIVATE KEY-----\nAAAA\n-----END PRIVATE KEY-----\n", "RSA, ECDSA and Ed25519"),
        ] {
            let why = Certificate::from_pem(text.as_bytes()).expect_err(words).to_string();
            assert!(why.contains(words), "{words}: {why}");
        }
    }
}
