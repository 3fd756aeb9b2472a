//! A certificate authority of one's own, for sites that nobody else certifies: on a developer's machine, in a test.
//!
//! Its files are like any others in the folder of certificates. It serves nothing and knows no table: it is told for which
//! names there has to be a certificate, and sees to it.

use std::fs::{self, OpenOptions, Permissions};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::io::{self, Write};
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use rcgen::{
    BasicConstraints, CertificateParams, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair, KeyUsagePurpose,
};

use crate::table::certs::{Certificate, Leaf, certificates_in};

/// A folder with an authority and what it has signed.
#[derive(Debug)]
pub struct Local {
    folder: PathBuf,
}

const DAY: Duration = Duration::from_secs(24 * 60 * 60);

/// How long a site's certificate is valid.
const VALID: Duration = Duration::from_secs(90 * 24 * 60 * 60);

/// It is made anew when it has less than this left.
const RENEWED: Duration = Duration::from_secs(30 * 24 * 60 * 60);

/// How long the authority is valid: to trust it is a person's work.
const AUTHORITY_VALID: Duration = Duration::from_secs(10 * 365 * 24 * 60 * 60);

/// The most sets of names that there is a certificate for.
const MOST_NAMES: usize = 10_000;

impl Local {
    /// One in this folder, which needs not exist yet.
    pub fn new(folder: PathBuf) -> Self {
        Self { folder }
    }

    /// The authority's certificate: whoever trusts it trusts what it has signed.
    pub fn authority(&self) -> PathBuf {
        self.folder.join("ca.pem")
    }

    /// Sees to it that there is a certificate for each set of names (`a.test`, `*.a.test`, `127.0.0.1`), good for a while.
    /// Says whether it had to make one. Keys are readable by this user alone.
    ///
    /// # Errors
    /// A folder or a file that can't be read or written.
    pub fn provide(&self, sets: impl Iterator<Item = Vec<String>>, now: SystemTime) -> io::Result<bool> {
        fs::create_dir_all(&self.folder)?;
        fs::set_permissions(&self.folder, Permissions::from_mode(0o700))?;
        let (issuer, subject) = self.issuer(now)?;
        let mut made = false;
        for names in sets.take(MOST_NAMES) {
            let Some(first) = names.first() else { continue };
            let file = self.folder.join(format!("{}.pem", first.replace('*', "_").replace(['[', ']', ':', '/'], "-")));
            if !is_good(&file, &names, &subject, now) {
                write(&file, &certificate(&names, &issuer, now)?)?;
                made = true;
            }
        }
        Ok(made)
    }

    /// The authority that is there, or a new one; and its name.
    fn issuer(&self, now: SystemTime) -> io::Result<(Issuer<'static, KeyPair>, Box<[u8]>)> {
        let key_file = self.folder.join("ca.key");
        let read = || {
            let pem = fs::read_to_string(self.authority()).ok()?;
            let leaf = Leaf::of(certificates_in(pem.as_bytes()).ok()?.first()?).ok()?;
            let key = KeyPair::from_pem(&fs::read_to_string(&key_file).ok()?).ok()?;
            (leaf.not_after > now + VALID).then_some(())?;
            Some((Issuer::from_ca_cert_pem(&pem, key).ok()?, leaf.subject))
        };
        if let Some(found) = read() {
            return Ok(found);
        }
        let key = KeyPair::generate().map_err(io::Error::other)?;
        let mut params = params(Vec::new(), now, AUTHORITY_VALID)?;
        // Told from an earlier one by its key: what that one has signed is then made anew.
        let mut hasher = DefaultHasher::new();
        key.public_key_raw().hash(&mut hasher);
        params.distinguished_name.push(DnType::CommonName, format!("carom local authority {:x}", hasher.finish()));
        params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
        params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
        let pem = params.self_signed(&key).map_err(io::Error::other)?.pem();
        write(&key_file, &key.serialize_pem())?;
        write(&self.authority(), &pem)?;
        read().ok_or_else(|| io::Error::other("the local authority can't be read back"))
    }
}

/// Whether a file has a certificate for these names by this issuer that is good for a while.
fn is_good(file: &Path, names: &[String], issuer: &[u8], now: SystemTime) -> bool {
    let Some(certificate) = fs::read(file).ok().and_then(|pem| Certificate::from_pem(&pem).ok()) else {
        return false;
    };
    let signed = Leaf::of(certificate.leaf()).is_ok_and(|leaf| *leaf.issuer == *issuer);
    signed
        && names.iter().all(|name| certificate.names().iter().any(|own| **own == **name))
        && certificate.not_after() > now + RENEWED
}

/// A certificate for these names, with its key.
fn certificate(names: &[String], issuer: &Issuer<'_, KeyPair>, now: SystemTime) -> io::Result<String> {
    let key = KeyPair::generate().map_err(io::Error::other)?;
    // An address of version 6 stands in brackets as a host, and without in a certificate.
    let names = names.iter().map(|name| name.trim_matches(['[', ']']).to_owned()).collect();
    let mut params = params(names, now, VALID)?;
    params.distinguished_name.push(DnType::CommonName, "carom");
    params.use_authority_key_identifier_extension = true;
    params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
    params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
    let certificate = params.signed_by(&key, issuer).map_err(io::Error::other)?;
    Ok(certificate.pem() + &key.serialize_pem())
}

/// Valid from a day ago, since clocks differ.
fn params(names: Vec<String>, now: SystemTime, valid: Duration) -> io::Result<CertificateParams> {
    let mut params = CertificateParams::new(names).map_err(io::Error::other)?;
    params.distinguished_name = rcgen::DistinguishedName::new();
    params.not_before = (now - DAY).into();
    params.not_after = (now + valid).into();
    Ok(params)
}

/// Writes a file that only we can read, whole or not at all.
fn write(file: &Path, text: &str) -> io::Result<()> {
    let new = file.with_extension("new");
    let _ = fs::remove_file(&new);
    let mut written = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&new)?;
    written.write_all(text.as_bytes())?;
    fs::rename(&new, file)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn certificates_are_made_once_renewed_in_time_and_not_of_an_authority_that_is_gone() {
        let folder = tempfile::tempdir().unwrap();
        let local = Local::new(folder.path().join("local"));
        let sets: [&[&str]; 3] = [&["a.test"], &["*.w.test"], &["localhost", "127.0.0.1", "[::1]"]];
        let now = SystemTime::now();
        let sets = || sets.iter().map(|names| names.iter().map(ToString::to_string).collect());
        let provide = |now| local.provide(sets(), now).unwrap();
        assert!(provide(now));
        assert!(!provide(now));
        assert!(!provide(now + 59 * DAY));
        let authority = fs::read(local.authority()).unwrap();
        assert!(provide(now + 61 * DAY));
        assert_eq!(fs::read(local.authority()).unwrap(), authority);
        fs::remove_file(local.authority()).unwrap();
        assert!(provide(now));
        assert_ne!(fs::read(local.authority()).unwrap(), authority);
        let mut files = 0;
        for file in fs::read_dir(folder.path().join("local")).unwrap() {
            let mode = file.unwrap().metadata().unwrap().permissions().mode();
            assert_eq!(mode & 0o777, 0o600);
            files += 1;
        }
        assert_eq!(files, 3 + 2);
    }
}
