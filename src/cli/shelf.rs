//! Where the certificates of `serve` come from.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use carom::config::certs::{Found, Store, Trouble};
use carom::config::watch::Places;
use carom::ops::local::Local;
use carom::table::Table;
use carom::table::certs::Certificate;
use carom::table::pattern::HostPattern;

/// A folder, and an authority of our own where one is wanted.
pub(super) struct Shelf {
    store: Store,
    local: Option<Local>,
}

/// The folder of certificates, and whether somebody has named it.
pub(super) struct Folder {
    pub(super) path: PathBuf,
    pub(super) named: bool,
}

impl Folder {
    /// What is in it. Only one that somebody has named has to be there.
    pub(super) fn store(self, default: Option<Box<str>>) -> Store {
        let store = Store::new(self.path, default);
        if self.named { store } else { store.may_be_missing() }
    }
}

/// What a machine is called by itself.
const THIS_MACHINE: [&str; 3] = ["localhost", "127.0.0.1", "[::1]"];

impl Shelf {
    /// Certificates of a folder; with `self_signed` those that are missing are made.
    pub(super) fn new(folder: Folder, default: Option<Box<str>>, self_signed: bool) -> Self {
        let local = self_signed.then(|| Local::new(folder.path.join("local")));
        // Of ours, one is for this machine: whoever comes by its address asks for no name.
        let default = default.or_else(|| self_signed.then(|| "localhost".into()));
        Self { store: folder.store(default), local }
    }

    /// The folder.
    pub(super) fn folder(&self) -> &Path {
        self.store.folder()
    }

    /// Whether it makes what is missing.
    pub(super) fn makes_its_own(&self) -> bool {
        self.local.is_some()
    }

    /// What is to be watched of it.
    pub(super) fn places(&self, table: &Table) -> Places {
        self.store.places(table)
    }

    /// How to trust what we have signed ourselves.
    pub(super) fn how_to_trust(&self) -> Option<String> {
        let authority = self.local.as_ref()?.authority();
        let authority = authority.display();
        Some(format!(
            "carom: certificates are signed by a local authority, {authority}\n\
             help: curl --cacert {authority} https://…   in a browser, import it as an authority; for this whole machine:\n      \
             sudo cp {authority} /usr/local/share/ca-certificates/carom-local.crt && sudo update-ca-certificates"
        ))
    }

    /// Reads everything, and makes what is missing where that is wanted.
    pub(super) fn read(&mut self, table: &Table) -> Found {
        let now = SystemTime::now();
        let Some(local) = &self.local else {
            return self.store.read(table, now);
        };
        let made = local.provide(wanted(table, &self.store.read(table, now), &self.folder().join("local")), now);
        let mut found = self.store.read(table, now);
        if let Err(error) = made {
            let what = format!("a certificate can't be made: {error}");
            found.problems.push(Trouble { file: self.folder().join("local"), what });
        }
        found
    }
}

/// The names that nobody certifies but we, each for itself; and those of this machine.
fn wanted(table: &Table, found: &Found, local: &Path) -> impl Iterator<Item = Vec<String>> {
    let is_theirs = |certificate: &Certificate| !certificate.files().iter().any(|file| file.starts_with(local));
    let is_certified = |host: &HostPattern| {
        found.certificates.all().iter().any(|certificate| certificate.is_for(host) && is_theirs(certificate))
    };
    let hosts: BTreeSet<String> = table
        .lines()
        .flat_map(|(_, patterns)| patterns.iter().map(|pattern| &pattern.host))
        .filter(|host| **host != HostPattern::Any && !is_certified(host))
        .map(ToString::to_string)
        .filter(|host| !THIS_MACHINE.contains(&host.as_str()))
        .collect();
    let this_machine = THIS_MACHINE.iter().map(ToString::to_string).collect();
    std::iter::once(this_machine).chain(hosts.into_iter().map(|host| vec![host]))
}
