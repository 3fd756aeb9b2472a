//! What a running `serve` follows: the routes file and the certificates, which are published as one table.

mod deploy;

use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use carom::bounce::Routes;
use carom::config::caution::{cautions, unheard};
use carom::config::certs::{Found, Trouble};
use carom::config::diff::Diff;
use carom::config::watch::{self, Seen, Watch};
use carom::config::{routes, save};
use carom::ops::control::{Attempt, Command, RoutesFile, Trial as ShownTrial, TrialState};
use carom::table::Table;
use tokio::signal::unix::Signal;
use tokio::sync::{mpsc, oneshot, watch as watch_channel};
use tokio::time::{Instant, interval_at};

use super::past::Past;
use super::serve::{colors, file_name};
use super::shelf::Shelf;
use super::trial::{self, Trial};

/// The files and whoever publishes what is in them.
pub(super) struct Follow {
    path: PathBuf,
    /// What the control socket says of the file.
    file: watch_channel::Sender<RoutesFile>,
    bytes: Option<Vec<u8>>,
    listening: Vec<SocketAddr>,
    routes: Routes,
    certs: Option<Certs>,
    past: Past,
    trial: Option<Trial>,
    /// How many there have been.
    trials: u64,
}

/// A thread that follows. It stops when this is dropped, and is not waited for: a disk may hold it.
pub(super) struct Following {
    _stop: oneshot::Sender<()>,
    ended: oneshot::Receiver<()>,
}

impl Following {
    /// Waits until it has ended, which it doesn't by itself.
    pub(super) async fn ended(self) {
        // An error is the other end that is gone, which is what is waited for.
        let _ = self.ended.await;
    }
}

/// The certificates, where an address speaks TLS.
struct Certs {
    shelf: Shelf,
    watch: Watch,
    /// What was wrong when it was last said.
    said: Vec<Trouble>,
}

/// Nothing is there to be kept, or to go back from.
const NO_TRIAL: &str = "no trial is under way";

/// Time passes for certificates though nothing happens to them: so often it is looked whether one has become valid.
const HOUR: Duration = Duration::from_secs(60 * 60);

impl Follow {
    /// Follows the routes file, of which `bytes` are published or have been said to be broken, and the certificates, where
    /// there are any; what was wrong with those has been said.
    pub(super) fn new(
        file: RoutesFile,
        bytes: Option<Vec<u8>>,
        listening: Vec<SocketAddr>,
        routes: Routes,
        certs: Option<(Shelf, Found)>,
        past: Past,
    ) -> Self {
        let certs = certs.map(|(shelf, found)| Certs::new(shelf, &found, &routes.current()));
        let (path, file) = (file.path.clone(), watch_channel::Sender::new(file));
        Self { path, file, bytes, listening, routes, certs, past, trial: None, trials: 0 }
    }

    /// What is known of the routes file, from now on.
    pub(super) fn file(&self) -> watch_channel::Receiver<RoutesFile> {
        self.file.subscribe()
    }

    /// Follows on a thread of its own, as long as the result is held: a slow disk, a locked folder or a large table must
    /// not keep this one from hearing a signal.
    pub(super) fn start(self, hangup: Signal, commands: mpsc::Receiver<Command>) -> io::Result<Following> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let (stop, stopped) = oneshot::channel::<()>();
        let (end, ended) = oneshot::channel::<()>();
        std::thread::Builder::new().name("follow".into()).spawn(move || {
            // However the thread ends, by a panic too.
            let _end = end;
            runtime.block_on(async {
                tokio::select! {
                    () = self.for_ever(hangup, commands) => {}
                    _ = stopped => {}
                }
            });
        })?;
        Ok(Following { _stop: stop, ended })
    }

    /// Publishes all that is new and can be published, and does what is asked for.
    async fn for_ever(mut self, mut hangup: Signal, mut commands: mpsc::Receiver<Command>) {
        watch::give_way();
        let mut watch = Watch::new(&self.path, self.bytes.take());
        let name = file_name(&self.path);
        let mut hours = interval_at(Instant::now() + HOUR, HOUR);
        loop {
            tokio::select! {
                seen = watch.changed() => match seen {
                    Seen::Content(bytes) => drop(self.reroute(&name, &bytes)),
                    Seen::Missing => self.stays(format!("{name} is gone: the routes that run stay until it is back")),
                    Seen::Unreadable(why) => {
                        self.stays(format!("{name} can't be read ({why}): the routes that run stay"));
                    }
                },
                Some(command) = commands.recv() => self.obey(command, &name, &mut watch),
                () = Trial::moment(&self.trial) => self.look_at_trial(),
                () = changed(&mut self.certs) => self.recertify(true),
                _ = hours.tick() => self.recertify(false),
                Some(()) = hangup.recv() => {
                    watch.now();
                    if let Some(certs) = &mut self.certs {
                        certs.watch.now();
                    }
                }
            }
        }
    }

    /// Does what was asked for over the control socket. Who has asked may be gone by now.
    fn obey(&mut self, command: Command, name: &str, watch: &mut Watch) {
        match command {
            Command::Reload(reply) => {
                let outcome = routes::read(&self.path).map_err(|report| report.to_string()).and_then(|bytes| {
                    let outcome = self.reroute(name, &bytes);
                    watch.know(bytes);
                    outcome
                });
                let _ = reply.send(outcome);
            }
            Command::Plan(deploy, reply) => drop(reply.send(self.plan(&deploy))),
            Command::Deploy(deploy, reply) => drop(reply.send(self.deploy(&deploy, name, watch))),
            Command::Try(attempt, reply) => drop(reply.send(self.attempt(attempt, name))),
            Command::Confirm(reply) => drop(reply.send(self.confirm(name, watch))),
            Command::GoBack(reply) => drop(reply.send(self.go_back("that was asked for"))),
        }
    }

    /// Has other routes than those of the file run, on trial.
    fn attempt(&mut self, attempt: Attempt, name: &str) -> Result<String, String> {
        if self.trial.is_some() {
            return Err("a trial is under way: `carom confirm` keeps it, `carom reload` ends it".to_owned());
        }
        let before = self.routes.current();
        let path = trial::named(&self.path, &attempt.name);
        let table = routes::parse(&path, &attempt.routes, &self.listening, Some(&before));
        let table = table.map_err(|report| report.to_string())?;
        if Diff::between(&before, &table).is_empty() {
            return Err(format!("{}: nothing would change", attempt.name));
        }
        self.trials += 1;
        let trial = Trial::begin(self.trials, before, &table, &self.path, attempt.routes, attempt.length);
        let found = self.put(table);
        let length = humantime::format_duration(attempt.length);
        let diff = trial.diff.clone();
        self.show_trial(trial.shown(TrialState::On, &diff));
        say!("{diff}\ncarom: on trial for {length}; {name} is as it was");
        self.doubts(name, found);
        self.trial = Some(trial);
        Ok(diff)
    }

    /// Ends the trial where it does harm, or where nobody has confirmed it in time.
    fn look_at_trial(&mut self) {
        if let Some(why) = self.trial.as_ref().and_then(Trial::verdict) {
            // There is one.
            let _ = self.go_back(&why);
        }
    }

    /// Has what ran before the trial run again.
    fn go_back(&mut self, why: &str) -> Result<String, String> {
        let trial = self.trial.take().ok_or(NO_TRIAL)?;
        let certificates = Arc::clone(self.routes.current().certificates());
        let found = self.put(Table::clone(&trial.before).with_certificates(certificates));
        let text = format!("the trial has gone back: {why}");
        self.show_trial(trial.shown(TrialState::GoneBack, why));
        say!("carom: {text}");
        if let Some((certs, found)) = self.certs.as_mut().zip(found) {
            certs.tell(&found);
        }
        Ok(text)
    }

    /// Writes what is on trial into the file.
    fn confirm(&mut self, name: &str, watch: &mut Watch) -> Result<String, String> {
        let trial = self.trial.as_ref().ok_or(NO_TRIAL)?;
        if routes::read(&self.path).ok() != trial.on_disk {
            return Err(format!("{name} has been saved since the trial began: what stands there now would be lost"));
        }
        let saved = save::replace(&self.path, &self.listening, &trial.bytes).map_err(|failure| match failure {
            save::Failure::Wrong(report) => report.to_string(),
            save::Failure::System(why) => why,
            save::Failure::Refused(_) => format!("{name} can't be written"),
        })?;
        watch.know(saved.content);
        let text = format!("the trial is kept: {name} says so now");
        say!("carom: {text}");
        self.past.keep(&trial.bytes, &trial.diff);
        let shown = trial.shown(TrialState::Kept, "it was confirmed");
        self.trial = None;
        self.file.send_modify(RoutesFile::apply);
        self.show_trial(shown);
        Ok(text)
    }

    fn show_trial(&self, shown: ShownTrial) {
        self.file.send_modify(|file| file.trial = Some(shown));
    }

    /// What stands in the file can't be applied.
    fn stays(&self, why: String) {
        self.file.send_modify(|file| file.refuse(why.clone()));
        say!("{why}");
    }

    /// Applies the content of the routes file. Gives what that has changed, or why it can't be.
    fn reroute(&mut self, name: &str, bytes: &[u8]) -> Result<String, String> {
        let running = self.routes.current();
        match routes::parse(&self.path, bytes, &self.listening, Some(&running)) {
            Ok(table) => Ok(self.apply(name, table, bytes)),
            Err(report) => {
                let text = report.to_string();
                // Before it is said: who has read that may ask at once.
                self.file.send_modify(|file| file.refuse(text.clone()));
                say!("{}", report.render(colors()).trim_end());
                say!("{name} was not applied: the routes that run stay");
                Err(text)
            }
        }
    }

    /// Publishes a table, which the routes file has by now. Says and gives what that has changed.
    fn apply(&mut self, name: &str, table: Table, bytes: &[u8]) -> String {
        let running = self.routes.current();
        let diff = Diff::between(&running, &table);
        let found = self.put(table);
        if let Some(trial) = self.trial.take() {
            let why = format!("{name} has been read again");
            self.show_trial(trial.shown(TrialState::GoneBack, &why));
            say!("carom: the trial is over: {why}");
        }
        let block = match diff.is_empty() {
            true => format!("{name} read again: no route has changed"),
            false => diff.block(name).trim_end().to_owned(),
        };
        self.file.send_modify(RoutesFile::apply);
        say!("{block}");
        self.doubts(name, found);
        self.past.keep(bytes, &diff.block(name));
        block
    }

    /// Publishes a table, with the certificates that it wants to have: what was found of them, where they were read.
    fn put(&mut self, mut table: Table) -> Option<Found> {
        let running = self.routes.current();
        let mut found = None;
        if let Some(certs) =
            self.certs.as_mut().filter(|certs| certs.shelf.makes_its_own() || has_own(&running) || has_own(&table))
        {
            let read = certs.shelf.read(&table);
            certs.watch.move_to(certs.shelf.places(&table), read.list.clone());
            table = table.with_certificates(read.certificates.clone());
            found = Some(read);
        }
        publish(&self.routes, table);
        found
    }

    /// Says what is doubtful about what runs now.
    fn doubts(&mut self, name: &str, found: Option<Found>) {
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

impl Certs {
    fn new(shelf: Shelf, found: &Found, table: &Table) -> Self {
        let watch = Watch::places(shelf.places(table), Some(found.list.clone()));
        Self { shelf, watch, said: all(found) }
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
        // How many days are left is in it: so it is said again every day.
        for trouble in found.expiring.iter().filter(|trouble| !self.said.contains(trouble)) {
            say!("{trouble}");
            told = true;
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
