//! A folder of PEM files into [`Certificates`], and into what is wrong with it.
//!
//! Files are known by what is in them: each certificate that has a private key in the folder is served, whatever their
//! files are called and however many there are. So a folder of certbot's, of acme.sh's, or one's own all do.

use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::SystemTime;

use hashbrown::HashMap;
use rustls::pki_types::pem::{PemObject, SectionKind};
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::sign::SigningKey;

use crate::table::certs::{BadCertificate, Certificate, Certificates, Leaf, sections, signing_key};

use super::look;
use super::settle::Seen;

/// What a folder of certificates has.
#[derive(Debug, Default)]
pub struct Found {
    /// Those that can be served.
    pub certificates: Certificates,
    /// What can't, and why.
    pub problems: Vec<Trouble>,
}

/// What is wrong with a file of certificates.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Trouble {
    /// The file, or the folder.
    pub file: PathBuf,
    /// What is wrong with it.
    pub what: String,
}

/// A file, as it was read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Read {
    pub(super) path: PathBuf,
    pub(super) seen: Seen,
}

/// How deep below the folder files are looked for: `live/NAME/` is two.
const DEEPEST: usize = 4;

/// More files than this are not looked at.
const MOST_FILES: usize = 20_000;

/// The most certificates of one chain.
const LONGEST_CHAIN: usize = 10;

/// Reads a folder. Only what is valid now is served.
///
/// # Errors
/// A folder that can't be read. What is wrong within it is in [`Found::problems`].
pub fn load(folder: &Path, now: SystemTime) -> Result<Found, Trouble> {
    Ok(sorted_out(&read(folder)?, now))
}

/// Reads every file below a folder, in the order of their names.
pub(super) fn read(folder: &Path) -> Result<Vec<Read>, Trouble> {
    let mut paths = Vec::new();
    collect(folder, DEEPEST, &mut paths).map_err(|error| {
        let what = match error.kind() {
            std::io::ErrorKind::NotFound => "there is no such folder of certificates".to_owned(),
            _ => format!("the folder of certificates can't be read: {error}"),
        };
        Trouble { file: folder.to_owned(), what }
    })?;
    Ok(paths.into_iter().map(|path| Read { seen: look::read(&path), path }).collect())
}

/// The files below a folder, links followed.
fn collect(folder: &Path, deeper: usize, paths: &mut Vec<PathBuf>) -> std::io::Result<()> {
    let mut entries: Vec<PathBuf> =
        std::fs::read_dir(folder)?.filter_map(|entry| entry.ok().map(|entry| entry.path())).collect();
    entries.sort();
    for path in entries {
        // What is hidden is nobody's certificate: an editor's file, `..data` of a mounted volume, `.git`.
        let hidden = path.file_name().is_some_and(|name| name.as_encoded_bytes().starts_with(b"."));
        if hidden || paths.len() >= MOST_FILES {
            continue;
        }
        match path.metadata() {
            // A folder below that can't be read holds nothing that could be served: `private/` of another user.
            Ok(metadata) if metadata.is_dir() && deeper > 0 => drop(collect(&path, deeper - 1, paths)),
            Ok(metadata) if metadata.is_file() => paths.push(path),
            _ => {}
        }
    }
    Ok(())
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
    /// By their public keys.
    keys: HashMap<Vec<u8>, Arc<dyn SigningKey>>,
    problems: Vec<Trouble>,
}

/// Finds out what is to be served.
pub(super) fn sorted_out(files: &[Read], now: SystemTime) -> Found {
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
        let mut chain = Vec::new();
        for section in sections(text) {
            match section? {
                (SectionKind::Certificate, der) => chain.push(CertificateDer::from(der)),
                (kind, der) => {
                    let Some(key) = PrivateKeyDer::from_pem(kind, der) else { continue };
                    let key = signing_key(key)?;
                    if let Some(public) = key.public_key() {
                        self.keys.insert(public.to_vec(), key);
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
    fn matched(mut self, now: SystemTime) -> Found {
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
        let certificates = Certificates::of(served);
        for (candidate, what) in late {
            // One that has a successor is only a leftover: certbot keeps them all.
            let succeeded = candidate.leaf.names.iter().all(|name| certificates.has(name));
            if !succeeded {
                self.problems.push(Trouble { file: candidate.file.to_owned(), what });
            }
        }
        Found { certificates, problems: self.problems }
    }

    /// The certificate as it is served; `None` for one that is only part of other's chains.
    fn certificate(&self, candidate: &Candidate<'_>, now: SystemTime) -> Result<Option<Certificate>, Unfit> {
        let leaf = &candidate.leaf;
        let Some(key) = self.keys.get(&*leaf.public_key) else {
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
        let source = candidate.file.display().to_string();
        Certificate::new(chain, Arc::clone(key), &source).map(Some).map_err(Unfit::Trouble)
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

/// The first certificate, and of those behind it as many as each certify the one before (RFC 8446 section 4.4.2).
fn certified(chain: &[CertificateDer<'static>]) -> Vec<CertificateDer<'static>> {
    let certifies = |pair: &&[CertificateDer<'_>]| match (Leaf::of(&pair[0]), Leaf::of(&pair[1])) {
        (Ok(before), Ok(behind)) => before.issuer == behind.subject && before.issuer != before.subject,
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
pub(super) fn day(time: SystemTime) -> String {
    humantime::format_rfc3339_seconds(time).to_string().chars().take(10).collect()
}

impl fmt::Display for Trouble {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.file.display(), self.what)
    }
}

impl std::error::Error for Trouble {}
