//! A folder of PEM files into [`Certificates`], and into what is wrong with it.
//!
//! Files are known by what is in them: each certificate that has a private key in the folder is served, whatever their
//! files are called and however many there are. So a folder of certbot's, of acme.sh's, or one's own all do.

use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use hashbrown::{HashMap, HashSet};
use rustls::pki_types::pem::{PemObject, SectionKind};
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::sign::SigningKey;

use crate::table::Table;
use crate::table::certs::{BadCertificate, Certificate, Certificates, Leaf, sections, signing_key};
use crate::table::https::OwnFiles;
use crate::table::pattern::HostPattern;

use super::look::{self, Places};
use super::settle::Seen;

/// What there is to be served, and what there is to be said.
#[derive(Debug, Default)]
pub struct Found {
    /// What can be served.
    pub certificates: Arc<Certificates>,
    /// What can't, and why.
    pub problems: Vec<Trouble>,
    /// What will expire soon, and nothing takes its place.
    pub expiring: Vec<Trouble>,
    /// The list of what was there when it was read: see [`Places::list`].
    pub list: Vec<u8>,
}

/// What is wrong with a file of certificates.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Trouble {
    /// The file, or the folder.
    pub file: PathBuf,
    /// What is wrong with it.
    pub what: String,
}

/// Where certificates are, and those of them that were good last.
#[derive(Debug)]
pub struct Store {
    folder: PathBuf,
    default: Option<Box<str>>,
    /// It is nothing to speak of that there is no folder.
    may_be_missing: bool,
    last: Arc<Certificates>,
}

/// A file, as it was read.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Read {
    path: PathBuf,
    seen: Seen,
}

/// So long before a certificate expires it is said.
const SOON: Duration = Duration::from_secs(14 * 24 * 60 * 60);

/// The most certificates of one chain.
const LONGEST_CHAIN: usize = 10;

impl Store {
    /// Certificates of a folder, and those that routes have of their own. `default` is the name whose certificate is
    /// shown to clients that ask for a name which has none, or for none at all.
    pub fn new(folder: PathBuf, default: Option<Box<str>>) -> Self {
        Self { folder, default, may_be_missing: false, last: Arc::default() }
    }

    /// The folder needs not be there, if it never was: nobody has named it.
    #[must_use]
    pub fn may_be_missing(mut self) -> Self {
        self.may_be_missing = true;
        self
    }

    /// The folder.
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// What is to be watched: the folder, and the files of sites with a certificate of their own.
    pub fn places(&self, table: &Table) -> Places {
        let files = table.routes().iter().filter_map(|route| route.https.own.as_ref());
        let files = files.flat_map(|own| [own.cert.clone(), own.key.clone()]).collect();
        Places { folder: self.folder.clone(), files }
    }

    /// Reads everything. What was good last and is not now stays in use; what has been taken away does not.
    pub fn read(&mut self, table: &Table, now: SystemTime) -> Found {
        // Before all else: what changes while we read is then noticed.
        let list = self.places(table).list();
        let Sorted { served, mut problems } = match read(&self.folder) {
            Ok(files) => sorted_out(&files, now),
            Err(_) if self.may_be_missing && self.last.all().is_empty() && !self.folder.exists() => {
                sorted_out(&[], now)
            }
            Err(trouble) => Sorted { served: Vec::new(), problems: vec![trouble] },
        };
        let mut served: Vec<Arc<Certificate>> = served.into_iter().map(Arc::new).collect();
        let kept: Vec<_> =
            self.still_good(&problems).filter(|last| !served.iter().any(|now| now.is_same(last))).collect();
        served.extend(kept);
        let mut certificates = Certificates::from_shared(served);
        for (route, patterns) in table.lines() {
            if let Some(files) = &route.https.own {
                let hosts: Vec<&HostPattern> = patterns.iter().map(|pattern| &pattern.host).collect();
                self.give_own(&mut certificates, files, &hosts, now, &mut problems);
            }
        }
        let default = self.default.as_deref().and_then(|name| {
            let found = certificates.covering(name).cloned();
            if found.is_none() {
                let what = format!("none is for {name}, which default_cert names");
                problems.push(Trouble { file: self.folder.clone(), what });
            }
            found
        });
        self.last = Arc::new(certificates.or(default));
        Found { certificates: Arc::clone(&self.last), problems, expiring: expiring(&self.last, now), list }
    }

    /// Those of the folder that were good last and of which a file is in trouble now.
    fn still_good(&self, problems: &[Trouble]) -> impl Iterator<Item = Arc<Certificate>> {
        let is_troubled =
            |file: &PathBuf| problems.iter().any(|trouble| trouble.file == *file || trouble.file == self.folder);
        let is_of_folder = |file: &PathBuf| file.starts_with(&self.folder);
        let last = self.last.all().iter().filter(move |last| last.files().iter().any(is_of_folder));
        last.filter(move |last| last.files().iter().any(is_troubled)).cloned()
    }

    /// Gives a site the certificate of its own files: the one that is there, or the one that was good last.
    fn give_own(
        &self,
        certificates: &mut Certificates,
        own: &OwnFiles,
        hosts: &[&HostPattern],
        now: SystemTime,
        problems: &mut Vec<Trouble>,
    ) {
        let trouble = |what: String| Trouble { file: own.cert.clone(), what };
        let Sorted { mut served, problems: mut found } = sorted_out(&read_files(own), now);
        let certificate = served.pop().map(Arc::new);
        match &certificate {
            Some(certificate) => found.extend(
                hosts
                    .iter()
                    .filter(|host| !certificate.is_for(host))
                    .map(|host| trouble(format!("it is not for {host}, whose certificate it is to be"))),
            ),
            None if found.is_empty() => found.push(trouble("there is no certificate in it".to_owned())),
            None => {}
        }
        problems.append(&mut found);
        let files: &[&Path] = &[&own.cert, &own.key];
        let last = || self.last.all().iter().find(|last| last.files() == files).cloned();
        if let Some(certificate) = certificate.or_else(last) {
            certificates.give(&certificate, hosts.iter().copied());
        }
    }
}

/// What will expire within [`SOON`], and is shown to somebody.
fn expiring(certificates: &Certificates, now: SystemTime) -> Vec<Trouble> {
    let mut expiring = Vec::new();
    for certificate in certificates.shown() {
        let left = certificate.not_after().duration_since(now).unwrap_or_default();
        if left > SOON {
            continue;
        }
        let days = left.as_secs() / (24 * 60 * 60);
        let when = match days {
            0 => "within a day".to_owned(),
            1 => "in a day".to_owned(),
            days => format!("in {days} days"),
        };
        let what = format!("{} expires on {}, {when}", certificate.names().join(", "), day(certificate.not_after()));
        let file = certificate.files().first().cloned().unwrap_or_default();
        expiring.push(Trouble { file, what });
    }
    expiring
}

/// Reads every file below a folder, in the order of their names.
fn read(folder: &Path) -> Result<Vec<Read>, Trouble> {
    let paths = look::files_below(folder).map_err(|error| {
        let what = match error.kind() {
            std::io::ErrorKind::NotFound => "there is no such folder of certificates".to_owned(),
            _ => format!("the folder of certificates can't be read: {error}"),
        };
        Trouble { file: folder.to_owned(), what }
    })?;
    Ok(paths.into_iter().map(|path| Read { seen: look::read(&path), path }).collect())
}

/// Reads the files of one certificate.
fn read_files(own: &OwnFiles) -> Vec<Read> {
    let mut paths = vec![own.cert.clone(), own.key.clone()];
    paths.dedup();
    let read = |path: PathBuf| match look::read(&path) {
        Seen::Missing => Read { seen: Seen::Unreadable("there is no such file".into()), path },
        seen => Read { seen, path },
    };
    paths.into_iter().map(read).collect()
}

/// A certificate in a file, and what follows it there.
struct Candidate<'r> {
    file: &'r Path,
    chain: Vec<CertificateDer<'static>>,
    leaf: Leaf,
}

/// What all the files have, taken together.
#[derive(Default)]
struct Pile<'r> {
    candidates: Vec<Candidate<'r>>,
    /// By their public keys, each with its file.
    keys: HashMap<Vec<u8>, (&'r Path, Arc<dyn SigningKey>)>,
    problems: Vec<Trouble>,
}

/// What files have.
struct Sorted {
    served: Vec<Certificate>,
    problems: Vec<Trouble>,
}

/// Finds out what is to be served. Only what is valid now is.
fn sorted_out(files: &[Read], now: SystemTime) -> Sorted {
    let mut pile = Pile::default();
    for file in files {
        if let Err(bad) = pile.add(file) {
            pile.problems.push(Trouble { file: file.path.clone(), what: bad.0 });
        }
    }
    pile.matched(now)
}

impl<'r> Pile<'r> {
    fn add(&mut self, file: &'r Read) -> Result<(), BadCertificate> {
        let text = match &file.seen {
            Seen::Content(text) => text,
            Seen::Missing => return Ok(()),
            Seen::Unreadable(why) => return Err(BadCertificate(format!("it can't be read: {why}"))),
        };
        if memchr::memmem::find(text, b"ENCRYPTED").is_some() {
            return Err(BadCertificate("its private key is encrypted; `openssl pkey` decrypts it".to_owned()));
        }
        let mut chain = Vec::new();
        for section in sections(text) {
            match section? {
                (SectionKind::Certificate, der) => chain.push(CertificateDer::from(der)),
                (kind, der) => {
                    let Some(key) = PrivateKeyDer::from_pem(kind, der) else { continue };
                    let key = signing_key(key)?;
                    if let Some(public) = key.public_key() {
                        self.keys.insert(public.to_vec(), (&file.path, key));
                    }
                }
            }
        }
        for start in 0..chain.len().min(LONGEST_CHAIN) {
            let leaf = Leaf::of(&chain[start])?;
            self.candidates.push(Candidate { file: &file.path, chain: certified(&chain[start..]), leaf });
        }
        Ok(())
    }

    /// Gives each certificate its key.
    fn matched(mut self, now: SystemTime) -> Sorted {
        // The same certificate may be in several files, alone and with its chain: the longest counts.
        let mut longest: HashMap<&CertificateDer<'_>, usize> = HashMap::new();
        for (index, candidate) in self.candidates.iter().enumerate() {
            let best = longest.entry(&candidate.chain[0]).or_insert(index);
            if self.candidates[*best].chain.len() < candidate.chain.len() {
                *best = index;
            }
        }
        let mut order: Vec<usize> = longest.into_values().collect();
        order.sort_unstable();

        let (mut served, mut late) = (Vec::new(), Vec::new());
        for candidate in order.into_iter().map(|index| &self.candidates[index]) {
            match self.certificate(candidate, now) {
                Ok(Some(certificate)) => served.push(certificate),
                Ok(None) => {}
                Err(Unfit::Trouble(bad)) => {
                    self.problems.push(Trouble { file: candidate.file.to_owned(), what: bad.0 });
                }
                Err(Unfit::Untimely(what)) => late.push((candidate, what)),
            }
        }
        let named: HashSet<Box<str>> = served.iter().flat_map(Certificate::names).cloned().collect();
        for (candidate, what) in late {
            // One that has a successor is only a leftover: certbot keeps them all.
            if !candidate.leaf.names.iter().all(|name| named.contains(name)) {
                self.problems.push(Trouble { file: candidate.file.to_owned(), what });
            }
        }
        Sorted { served, problems: self.problems }
    }

    /// The certificate as it is served; `None` for one that is only part of other's chains.
    fn certificate(&self, candidate: &Candidate<'_>, now: SystemTime) -> Result<Option<Certificate>, Unfit> {
        let leaf = &candidate.leaf;
        let Some((key_file, key)) = self.keys.get(&*leaf.public_key) else {
            return match leaf.is_authority {
                true => Ok(None),
                false => Err(Unfit::Trouble(BadCertificate("its private key is in none of the files".to_owned()))),
            };
        };
        if leaf.is_authority && leaf.names.is_empty() {
            return Ok(None);
        }
        if now > leaf.not_after {
            return Err(Unfit::Untimely(format!("it expired on {}", day(leaf.not_after))));
        }
        if now < leaf.not_before {
            return Err(Unfit::Untimely(format!("it is not valid before {}", day(leaf.not_before))));
        }
        let chain = self.completed(candidate);
        let files = [candidate.file, key_file];
        Certificate::new(chain, Arc::clone(key), &files).map(Some).map_err(Unfit::Trouble)
    }

    /// A chain, with those of its issuers that other files have (`cert.pem` beside `chain.pem`).
    fn completed(&self, candidate: &Candidate<'_>) -> Vec<CertificateDer<'static>> {
        let mut chain = candidate.chain.clone();
        if chain.len() > 1 {
            return chain;
        }
        let (mut issuer, mut subject) = (&candidate.leaf.issuer, &candidate.leaf.subject);
        while issuer != subject && chain.len() < LONGEST_CHAIN {
            let of_issuer = |other: &&Candidate<'_>| other.leaf.is_authority && other.leaf.subject == *issuer;
            // A root is what clients have themselves.
            let Some(next) =
                self.candidates.iter().find(of_issuer).filter(|next| next.leaf.issuer != next.leaf.subject)
            else {
                break;
            };
            chain.push(next.chain[0].clone());
            (issuer, subject) = (&next.leaf.issuer, &next.leaf.subject);
        }
        chain
    }
}

/// The first certificate, and of those behind it as many as each certify the one before (RFC 8446 section 4.4.2), but for
/// the root, which clients have themselves.
fn certified(chain: &[CertificateDer<'static>]) -> Vec<CertificateDer<'static>> {
    let certifies = |pair: &&[CertificateDer<'_>]| match (Leaf::of(&pair[0]), Leaf::of(&pair[1])) {
        (Ok(before), Ok(behind)) => before.issuer == behind.subject && behind.issuer != behind.subject,
        _ => false,
    };
    let length = 1 + chain.windows(2).take_while(certifies).count();
    chain.iter().take(length.min(LONGEST_CHAIN)).cloned().collect()
}

/// Why a certificate is not served.
enum Unfit {
    Trouble(BadCertificate),
    /// It was once, or will be.
    Untimely(String),
}

/// A day as people write it: `2027-02-01`.
pub fn day(time: SystemTime) -> String {
    humantime::format_rfc3339_seconds(time).to_string().chars().take(10).collect()
}

impl fmt::Display for Trouble {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.file.display(), self.what)
    }
}

impl std::error::Error for Trouble {}
