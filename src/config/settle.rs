//! When a new content of a file is whole enough to be taken. Pure: times come in as arguments.
//!
//! Nobody says when a save is complete. What is known: a rename brings a whole file, and a writer that closes the
//! file has most likely finished. What is empty, missing, much shorter than before, a beginning of what was there
//! before, or cut off within its last line may be half of something.

use std::time::{Duration, Instant};

/// What stands at the watched path.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Seen {
    /// The file's bytes.
    Content(Vec<u8>),
    /// There is no such file.
    Missing,
    /// It can't be read; why.
    Unreadable(String),
}

/// How a change came about, as far as is known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Saved {
    /// By a rename: whole.
    Renamed,
    /// By a writer that has closed the file, and may yet open it again.
    Closed,
    /// By a writer that has the file open, and is not done for all we know.
    Open,
    /// Nothing but the content says so: no event came.
    Unseen,
}

/// How long to wait, for what.
#[derive(Clone, Copy, Debug)]
pub(super) struct Pace {
    /// After a whole save: editors do several things at once.
    pub(super) quiet: Duration,
    /// Where events don't come; with the poll in front of it, still within two seconds of the save.
    pub(super) unseen: Duration,
    /// For the rest of what looks like half of something.
    pub(super) patience: Duration,
    /// After this a file that is written to for ever is read anyway.
    pub(super) cap: Duration,
}

/// The content that was taken last, and the one that may be next.
#[derive(Debug)]
pub(super) struct Settling {
    pace: Pace,
    /// What was taken last, but for its bytes.
    taken: Option<Taken>,
    /// The last content that was taken, also when the file has gone missing since.
    content: Vec<u8>,
    next: Option<Next>,
    /// The current content is asked for even if it is the same.
    asked: bool,
}

#[derive(Debug, PartialEq, Eq)]
enum Taken {
    Content,
    Missing,
    Unreadable(String),
}

#[derive(Debug)]
struct Next {
    seen: Seen,
    saved: Saved,
    /// When it first differed from what was taken.
    since: Instant,
    /// When it last changed.
    changed: Instant,
}

/// What to do.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Verdict {
    /// Nothing has changed.
    Same,
    /// Look again at this time, or when something happens.
    Wait(Instant),
    /// This is new.
    Take(Seen),
}

impl Pace {
    pub(super) const NORMAL: Self = Self {
        quiet: Duration::from_millis(50),
        unseen: Duration::from_millis(600),
        patience: Duration::from_millis(1000),
        cap: Duration::from_millis(2000),
    };

    /// For files that belong together and are saved one after the other: a certificate and its key.
    pub(super) const MANY: Self = Self { quiet: Duration::from_millis(300), ..Self::NORMAL };
}

impl Settling {
    /// Begins with the content that runs already, if any does.
    pub(super) fn new(pace: Pace, running: Option<Vec<u8>>) -> Self {
        Self {
            pace,
            taken: running.is_some().then_some(Taken::Content),
            content: running.unwrap_or_default(),
            next: None,
            asked: false,
        }
    }

    /// Asks for the current content, changed or not.
    pub(super) fn ask(&mut self) {
        self.asked = true;
    }

    /// What stands there now. `saved` is how it came there, when something has happened since the last look.
    pub(super) fn observe(&mut self, now: Instant, seen: Seen, saved: Option<Saved>) -> Verdict {
        if self.is_taken(&seen) {
            self.next = None;
            return if self.asked { self.take(seen) } else { Verdict::Same };
        }
        let next = match self.next.take() {
            Some(mut next) => {
                if next.seen != seen {
                    next.seen = seen;
                    next.changed = now;
                    next.saved = saved.unwrap_or(Saved::Unseen);
                } else if let Some(saved) = saved {
                    next.changed = now;
                    next.saved = saved;
                }
                next
            }
            None => Next { seen, saved: saved.unwrap_or(Saved::Unseen), since: now, changed: now },
        };
        let due = self.due_at(&next);
        self.next = Some(next);
        self.due(now, due)
    }

    /// Nothing has happened since the last look.
    pub(super) fn untouched(&mut self, now: Instant) -> Verdict {
        match &self.next {
            Some(next) => {
                let due = self.due_at(next);
                self.due(now, due)
            }
            None => Verdict::Same,
        }
    }

    fn due(&mut self, now: Instant, due: Instant) -> Verdict {
        if now < due {
            return Verdict::Wait(due);
        }
        match self.next.take() {
            Some(next) => self.take(next.seen),
            None => Verdict::Same,
        }
    }

    fn due_at(&self, next: &Next) -> Instant {
        let wait = match (next.saved, &next.seen) {
            (Saved::Renamed, Seen::Content(content)) if !content.is_empty() => self.pace.quiet,
            (Saved::Closed, seen) if !self.is_half(seen) => self.pace.quiet,
            (Saved::Unseen, seen) if !self.is_half(seen) => self.pace.unseen,
            _ => self.pace.patience,
        };
        (next.changed + wait).min(next.since + self.pace.cap)
    }

    fn take(&mut self, seen: Seen) -> Verdict {
        self.asked = false;
        self.taken = Some(match &seen {
            Seen::Content(content) => {
                self.content.clone_from(content);
                Taken::Content
            }
            Seen::Missing => Taken::Missing,
            Seen::Unreadable(why) => Taken::Unreadable(why.clone()),
        });
        Verdict::Take(seen)
    }

    fn is_taken(&self, seen: &Seen) -> bool {
        match (&self.taken, seen) {
            (Some(Taken::Content), Seen::Content(content)) => *content == self.content,
            (Some(Taken::Missing), Seen::Missing) => true,
            (Some(Taken::Unreadable(old)), Seen::Unreadable(new)) => old == new,
            _ => false,
        }
    }

    /// Whether it looks like half of something.
    fn is_half(&self, seen: &Seen) -> bool {
        let Seen::Content(content) = seen else {
            return true;
        };
        let shorter = content.len() < self.content.len() && self.content.starts_with(content);
        let cut_off = self.content.ends_with(b"\n") && !content.ends_with(b"\n");
        let shrunk = content.len() < self.content.len() / 4 * 3;
        content.is_empty() || shorter || cut_off || shrunk
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn content(text: &str) -> Seen {
        Seen::Content(text.as_bytes().to_vec())
    }

    /// Looks every 10 ms at what a script says stands there; gives what is taken and when.
    fn play(script: &[(u64, &str, Option<Saved>)], until: u64) -> Vec<(u64, Seen)> {
        let mut settling = Settling::new(Pace::NORMAL, Some(b"a = 1\nb = 2\n".to_vec()));
        let begin = Instant::now();
        let mut now_there = content("a = 1\nb = 2\n");
        let mut taken = Vec::new();
        for ms in (0..until).step_by(10) {
            let mut saved = None;
            if let Some((_, text, how)) = script.iter().find(|(at, ..)| *at == ms) {
                now_there = if *text == "missing" { Seen::Missing } else { content(text) };
                saved = *how;
            }
            match settling.observe(begin + Duration::from_millis(ms), now_there.clone(), saved) {
                Verdict::Take(seen) => taken.push((ms, seen)),
                Verdict::Wait(_) | Verdict::Same => {}
            }
        }
        taken
    }

    #[test]
    fn a_whole_save_is_taken_soon_and_once() {
        let text = "c = 3\nd = 4\n";
        assert_eq!(play(&[(100, text, Some(Saved::Closed))], 5000), [(150, content(text))]);
        assert_eq!(play(&[(100, "a = 1\n", Some(Saved::Renamed))], 5000), [(150, content("a = 1\n"))]);
    }

    #[test]
    fn half_of_something_waits_for_the_rest() {
        let whole = Some(Saved::Closed);
        for half in ["", "a = 1\n", "a = 1\nb", "missing", "c = ", "c = 3\n"] {
            let script = [(100, half, whole), (600, "a = 1\nb = 3\n", whole)];
            assert_eq!(play(&script, 5000), [(650, content("a = 1\nb = 3\n"))], "{half:?}");
        }
        let script = [(100, "c = 3\n", Some(Saved::Open)), (600, "c = 3\nd = 4\n", whole)];
        assert_eq!(play(&script, 5000), [(650, content("c = 3\nd = 4\n"))]);
    }

    #[test]
    fn what_stays_half_is_taken_in_the_end() {
        assert_eq!(play(&[(100, "", Some(Saved::Closed))], 5000), [(1100, content(""))]);
        assert_eq!(play(&[(100, "missing", None)], 5000), [(1100, Seen::Missing)]);
    }

    #[test]
    fn a_file_that_is_written_to_for_ever_is_read_all_the_same() {
        let texts: Vec<String> = (0..400).map(|i| format!("a = {i}")).collect();
        let script: Vec<_> =
            (100..).step_by(10).zip(&texts).map(|(ms, text)| (ms, &**text, Some(Saved::Open))).collect();
        let taken = play(&script, 4000);
        assert_eq!(taken.first().map(|(ms, _)| *ms), Some(2100));
    }

    #[test]
    fn a_change_that_is_taken_back_is_none() {
        let whole = Some(Saved::Closed);
        assert_eq!(play(&[(100, "", whole), (140, "a = 1\nb = 2\n", whole)], 3000), []);
    }

    #[test]
    fn what_is_asked_for_is_given_though_it_is_the_same() {
        let mut settling = Settling::new(Pace::NORMAL, Some(b"a".to_vec()));
        settling.ask();
        assert_eq!(settling.observe(Instant::now(), content("a"), None), Verdict::Take(content("a")));
        assert_eq!(settling.observe(Instant::now(), content("a"), None), Verdict::Same);
        assert_eq!(settling.untouched(Instant::now()), Verdict::Same);
    }
}
