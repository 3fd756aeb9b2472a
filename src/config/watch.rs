//! A file that is read again whenever it was saved, however it was saved; or a folder of them.
//!
//! Events say soon that something happened; a slow poll says it in any case, where events get lost, can't be set up,
//! or don't exist (network file systems, some container mounts). Neither is believed: what counts is that the content
//! differs from what was taken last, and that it has settled, which `settle` decides.
//!
//! Reads the file on the thread that awaits [`Watch::changed`]: one that serves requests should not.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use super::folders::{Event, Folders};
use super::look::{Stamp, Subject};
use super::settle::{Pace, Saved, Settling, Verdict};

pub use super::look::Places;
pub use super::settle::Seen;

use crate::net::system;

/// A watched file, or many.
#[derive(Debug)]
pub struct Watch {
    subject: Subject,
    folders: Folders,
    settling: Settling,
    /// As the file was when it was last read.
    stamp: Option<Stamp>,
    /// As it was when its content was last taken.
    taken: Option<Stamp>,
    /// It has to be read even if the stamp is the same.
    unread: bool,
    next_poll: Instant,
    polls: u32,
    /// What events have said since the last look about how it was saved.
    saved: Option<Saved>,
    warned: bool,
    events_wanted: bool,
}

/// How often the file is looked at when no event says so.
const POLL: Duration = Duration::from_secs(1);

/// Events come in swarms: one look serves all that come within this time.
const BREATH: Duration = Duration::from_millis(5);

/// Every so many polls the content is compared although the file looks untouched.
const POLLS_A_READ: u32 = 10;

/// Every so many polls it is tried again to get events, after that has failed.
const POLLS_A_RETRY: u32 = 30;

/// Makes the calling thread, which reads and loads, give way to those that carry requests: on two cores, loading a large
/// table at equal priority made one request in a hundred wait for milliseconds. Where a thread has no priority of its own
/// (anywhere but on Linux) it does nothing. Not for the thread that starts a proxy: its workers would inherit it.
pub fn give_way() {
    system::give_way();
}

impl Watch {
    /// Watches a file whose content, as far as it is applied already, is `running`.
    /// What differs from that is what [`Watch::changed`] gives first.
    pub fn new(path: impl Into<PathBuf>, running: Option<Vec<u8>>) -> Self {
        Self::polling(path, running).with_events()
    }

    /// Watches a folder and files beside it. What [`Watch::changed`] gives of them is a list, [`Places::list`], which says
    /// that something is different.
    pub fn places(places: Places, running: Option<Vec<u8>>) -> Self {
        Self::of(Subject::Places(places), Pace::MANY, running).with_events()
    }

    /// Watches these in place of those. `running` is the list of what is applied of them.
    pub fn move_to(&mut self, places: Places, running: Vec<u8>) {
        self.subject = Subject::Places(places);
        self.settling = Settling::new(Pace::MANY, Some(running));
        self.unread = true;
        self.next_poll = Instant::now();
    }

    fn with_events(mut self) -> Self {
        self.events_wanted = true;
        self.arm();
        self
    }

    /// Watches without events, by the poll alone.
    pub fn polling(path: impl Into<PathBuf>, running: Option<Vec<u8>>) -> Self {
        Self::of(Subject::File(path.into()), Pace::NORMAL, running)
    }

    fn of(subject: Subject, pace: Pace, running: Option<Vec<u8>>) -> Self {
        let stamp = subject.stamp();
        Self {
            subject,
            folders: Folders::new(),
            settling: Settling::new(pace, running),
            stamp: None,
            taken: stamp,
            unread: true,
            next_poll: Instant::now(),
            polls: 0,
            saved: None,
            warned: false,
            events_wanted: false,
        }
    }

    /// The watched path, as it was given.
    pub fn path(&self) -> &Path {
        self.subject.path()
    }

    /// Makes [`Watch::changed`] give the current content even if it is the same: for SIGHUP.
    pub fn now(&mut self) {
        self.settling.ask();
        self.unread = true;
        self.next_poll = Instant::now();
    }

    /// Takes this content of a file as applied: somebody else has read it.
    pub fn know(&mut self, content: Vec<u8>) {
        self.settling = Settling::new(Pace::NORMAL, Some(content));
        self.taken = self.subject.stamp();
        self.unread = true;
    }

    /// Waits for a content that differs from the last one and has settled. Safe to cancel: what was noticed is kept.
    pub async fn changed(&mut self) -> Seen {
        loop {
            let until = match self.look() {
                Verdict::Take(seen) => {
                    self.taken = self.stamp;
                    return seen;
                }
                Verdict::Wait(until) => until.min(self.next_poll),
                Verdict::Same => self.next_poll,
            };
            tokio::select! {
                event = self.folders.event() => {
                    self.note(event);
                    tokio::time::sleep(BREATH).await;
                }
                () = tokio::time::sleep_until(until.into()) => {}
            }
        }
    }

    /// Looks at the file, as closely as there is reason to.
    fn look(&mut self) -> Verdict {
        while let Some(event) = self.folders.event_now() {
            self.note(event);
        }
        let now = Instant::now();
        let polled = now >= self.next_poll;
        if polled {
            self.next_poll = now + POLL;
            self.polls = self.polls.wrapping_add(1);
            self.unread |= self.polls.is_multiple_of(POLLS_A_READ);
            if !self.folders.is_armed() && self.polls.is_multiple_of(POLLS_A_RETRY) {
                self.folders.disarm();
            }
        }
        if polled || self.unread || self.saved.is_some() {
            // What came between the look before and the new watches has no event.
            self.unread |= self.arm();
        }
        let stamp = self.subject.stamp();
        let touched = stamp != self.stamp;
        let saved = self.saved.take().or_else(|| (touched && self.is_new_file(stamp)).then_some(Saved::Renamed));
        self.stamp = stamp;
        if !touched && !self.unread && saved.is_none() {
            return self.settling.untouched(now);
        }
        self.unread = false;
        self.settling.observe(now, self.subject.read(), saved)
    }

    /// Whether it is another file than the one whose content was taken.
    fn is_new_file(&self, stamp: Option<Stamp>) -> bool {
        match (stamp, self.taken) {
            (Some(new), Some(old)) => new.identity != old.identity,
            _ => false,
        }
    }

    /// The last save counts: a write after a close means that there is more to come.
    fn note(&mut self, event: Event) {
        match event {
            Event::Saved(saved) => self.saved = Some(saved),
            Event::Look | Event::Lost => self.unread = true,
        }
    }

    /// Sees to it that the right folders are watched. Says whether that has changed.
    fn arm(&mut self) -> bool {
        if !self.events_wanted {
            return false;
        }
        match self.folders.arm(&self.subject) {
            Ok(changed) => changed,
            Err(error) => {
                if !self.warned {
                    self.warned = true;
                    tracing::warn!(
                        file = %self.path().display(), %error,
                        "no file events; looking every second instead (is fs.inotify.max_user_instances used up?)"
                    );
                }
                false
            }
        }
    }
}

#[cfg(test)]
#[cfg(unix)]
#[path = "watch_tests.rs"]
mod tests;
