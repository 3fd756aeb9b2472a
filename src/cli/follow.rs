//! What a running `serve` follows: the routes file and the certificates, which are published as one table.

use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use carom::bounce::Routes;
use carom::config::caution::{cautions, unheard};
use carom::config::certs::{Found, Store, Trouble};
use carom::config::diff::Diff;
use carom::config::routes;
use carom::config::watch::{self, Seen, Watch};
use carom::ops::local::Local;
use carom::table::Table;
use carom::table::certs::Certificate;
use carom::table::pattern::HostPattern;
use tokio::signal::unix::Signal;
use tokio::time::Instant;

use super::serve::{colors, file_name};

/// The files and whoever publishes what is in them.
pub(super) struct Follow {
    path: PathBuf,
    bytes: Vec<u8>,
    listening: Vec<SocketAddr>,
    routes: Routes,
    certs: Option<Certs>,
}

/// Where certificates come from: a folder, and an authority of our own where one is wanted.
pub(super) struct Shelf {
    store: Store,
    local: Option<Local>,
}

/// The certificates, where an address speaks TLS.
struct Certs {
    shelf: Shelf,
    watch: Watch,
    /// What was wrong when it was last said.
    said: Vec<Trouble>,
    reminded: Instant,
}

/// Time passes for certificates though nothing happens to them: so often it is looked whether one has become valid.
const HOUR: Duration = Duration::from_secs(60 * 60);

/// So often it is said again what expires.
const DAY: Duration = Duration::from_secs(24 * 60 * 60);

impl Follow {
    /// Follows the routes file, of which `bytes` are published, and the certificates, where there are any; what was wrong
    /// with those has been said.
    pub(super) fn new(
        path: PathBuf,
        bytes: Vec<u8>,
        listening: Vec<SocketAddr>,
        routes: Routes,
        certs: Option<(Shelf, Found)>,
    ) -> Self {
        let certs = certs.map(|(shelf, found)| Certs::new(shelf, &found, &routes.current()));
        Self { path, bytes, listening, routes, certs }
    }

    /// Publishes all that is new and can be published.
    pub(super) async fn for_ever(mut self, mut hangup: Signal) {
        // The workers run by now: they don't inherit it.
        watch::give_way();
        let mut watch = Watch::new(&self.path, Some(std::mem::take(&mut self.bytes)));
        let name = file_name(&self.path);
        loop {
            tokio::select! {
                seen = watch.changed() => match seen {
                    Seen::Content(bytes) => self.reroute(&name, &bytes),
                    Seen::Missing => say!("{name} is gone: the routes that run stay until it is back"),
                    Seen::Unreadable(why) => say!("{name} can't be read ({why}): the routes that run stay"),
                },
                () = changed(&mut self.certs) => self.recertify(true),
                () = tokio::time::sleep(HOUR) => self.recertify(false),
                Some(()) = hangup.recv() => {
                    watch.now();
                    if let Some(certs) = &mut self.certs {
                        certs.watch.now();
                    }
                }
            }
        }
    }

    fn reroute(&mut self, name: &str, bytes: &[u8]) {
        let running = self.routes.current();
        let mut table = match routes::parse(&self.path, bytes, &self.listening, Some(&running)) {
            Ok(table) => table,
            Err(report) => {
                say!("{}", report.render(colors()).trim_end());
                say!("{name} was not applied: the routes that run stay");
                return;
            }
        };
        let diff = Diff::between(&running, &table);
        let mut found = None;
        if let Some(certs) =
            self.certs.as_mut().filter(|certs| certs.shelf.local.is_some() || has_own(&running) || has_own(&table))
        {
            let read = certs.shelf.read(&table);
            certs.watch.move_to(certs.shelf.store.places(&table), read.list.clone());
            table = table.with_certificates(read.certificates.clone());
            found = Some(read);
        }
        publish(&self.routes, table);
        match diff.is_empty() {
            true => say!("{name} read again: no route has changed"),
            false => say!("{}", diff.block(name).trim_end()),
        }
        let unheard = if self.certs.is_none() { unheard(&self.routes.current(), name) } else { None };
        for caution in cautions(&self.routes.current(), name).into_iter().chain(unheard) {
            say!("{caution}");
        }
        if let Some((certs, found)) = self.certs.as_mut().zip(found) {
            certs.tell(&found);
        }
    }

    /// Reads the certificates again. Time alone changes little: then it is only said what it does change.
    fn recertify(&mut self, asked: bool) {
        let Some(certs) = &mut self.certs else { return };
        let running = self.routes.current();
        let found = certs.shelf.read(&running);
        let diff = Diff::of_certificates(running.certificates(), &found.certificates);
        publish(&self.routes, Table::clone(&running).with_certificates(Arc::clone(&found.certificates)));
        let name = file_name(certs.shelf.folder());
        if !diff.is_empty() {
            say!("{}", diff.block(&name).trim_end());
        }
        if !certs.tell(&found) && diff.is_empty() && asked {
            say!("{name} read again: no certificate has changed");
        }
    }
}

/// Gives the last table back on this thread, so that a large one is not freed on one that carries requests.
fn publish(routes: &Routes, table: Table) {
    drop(routes.publish(table));
}

impl Shelf {
    /// Certificates of a folder; with `self_signed` those that are missing are made.
    pub(super) fn new(folder: PathBuf, default: Option<Box<str>>, self_signed: bool) -> Self {
        let local = self_signed.then(|| Local::new(folder.join("local")));
        // Of ours, one is for this machine: whoever comes by its address asks for no name.
        let default = default.or_else(|| self_signed.then(|| "localhost".into()));
        Self { store: Store::new(folder, default), local }
    }

    pub(super) fn folder(&self) -> &Path {
        self.store.folder()
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

/// What a machine is called by itself.
const THIS_MACHINE: [&str; 3] = ["localhost", "127.0.0.1", "[::1]"];

impl Certs {
    fn new(shelf: Shelf, found: &Found, table: &Table) -> Self {
        let watch = Watch::places(shelf.store.places(table), Some(found.list.clone()));
        Self { shelf, watch, said: all(found), reminded: Instant::now() }
    }

    /// Says what is wrong, as far as it has not been said just before; whether there was anything.
    fn tell(&mut self, found: &Found) -> bool {
        let mut told = false;
        for trouble in found.problems.iter().filter(|trouble| !self.said.contains(trouble)) {
            let stays = found.certificates.all().iter().any(|certificate| certificate.files().contains(&trouble.file));
            let stays = if stays { "; the last one that was good stays in use" } else { "" };
            say!("{trouble}{stays}");
            told = true;
        }
        let remind = self.reminded.elapsed() >= DAY;
        for trouble in found.expiring.iter().filter(|trouble| remind || !self.said.contains(trouble)) {
            say!("{trouble}");
            told = true;
        }
        if remind {
            self.reminded = Instant::now();
        }
        self.said = all(found);
        told
    }
}

fn all(found: &Found) -> Vec<Trouble> {
    found.problems.iter().chain(&found.expiring).cloned().collect()
}

/// Waits until the certificates may have changed; for ever where there are none.
async fn changed(certs: &mut Option<Certs>) {
    match certs {
        Some(certs) => drop(certs.watch.changed().await),
        None => std::future::pending().await,
    }
}

/// Whether a route has a certificate of its own.
fn has_own(table: &Table) -> bool {
    table.routes().iter().any(|route| route.https.own.is_some())
}
