//! The tables that were live: what their file said, when, and what that changed. To start from the last good one, and to
//! go back.
//!
//! Each is a folder of its own, called by its number: `routes.toml` as it was, for people and for `diff`, and `about.json`.
//! It comes by a rename, whole. Nothing here reads a table or knows whether one is still good.

use std::fs::{self, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use serde::{Deserialize, Serialize};
use twox_hash::XxHash3_64;

use super::{state, text};

/// How many tables are kept: older ones are deleted.
pub const MOST_KEPT: usize = 50;

/// The kept tables of one routes file.
#[derive(Debug)]
pub struct History {
    folder: PathBuf,
}

/// A table that was live.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Kept {
    /// Counting up from 1, also beyond those that are deleted.
    pub number: u64,
    /// When it went live.
    pub time: SystemTime,
    /// What it changed, as it was said.
    pub diff: String,
    digest: String,
    folder: PathBuf,
}

/// What is written beside a table's text.
#[derive(Deserialize, Serialize)]
struct About {
    time: String,
    diff: String,
    /// Of the content.
    digest: String,
}

const ABOUT: &str = "about.json";

/// The routes, whatever their file is called: only its content says whether it is JSON.
const ROUTES: &str = "routes.toml";

/// What a table's folder is called before it is whole.
const UNFINISHED: &str = ".new-";

/// The most characters of a diff.
const LONGEST_DIFF: usize = 16 * 1024;

impl History {
    /// The history in the state folder of a routes file ([`state::of_routes`]). Nothing is made or read yet.
    pub fn new(state: &Path) -> Self {
        Self { folder: state.join("history") }
    }

    /// Where it is.
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// All that is kept, the newest first; nothing where nothing can be read.
    pub fn all(&self) -> Vec<Kept> {
        self.numbers().into_iter().rev().filter_map(|number| self.find(number)).collect()
    }

    /// The one with this number.
    pub fn find(&self, number: u64) -> Option<Kept> {
        let folder = self.folder_of(number);
        let about: About = serde_json::from_slice(&text::read_bounded(&folder.join(ABOUT)).ok()?).ok()?;
        let time = humantime::parse_rfc3339(&about.time).ok()?;
        Some(Kept { number, time, diff: about.diff, digest: about.digest, folder })
    }

    fn newest(&self) -> Option<Kept> {
        self.numbers().into_iter().rev().find_map(|number| self.find(number))
    }

    /// Keeps a table that has gone live, unless the last kept one has the same content. Says its number.
    ///
    /// # Errors
    /// A folder or a file that can't be written.
    pub fn keep(&self, content: &[u8], diff: &str, now: SystemTime) -> io::Result<Option<u64>> {
        if self.newest().is_some_and(|newest| newest.content().is_ok_and(|kept| kept == content)) {
            return Ok(None);
        }
        state::make_folder(&self.folder)?;
        let unfinished = self.unfinished(content, diff, now)?;
        let number = self.finish(&unfinished).inspect_err(|_| drop(fs::remove_dir_all(&unfinished)))?;
        self.forget_the_oldest();
        Ok(Some(number))
    }

    fn unfinished(&self, content: &[u8], diff: &str, now: SystemTime) -> io::Result<PathBuf> {
        let folder = self.folder.join(format!("{UNFINISHED}{}", std::process::id()));
        let _ = fs::remove_dir_all(&folder);
        fs::DirBuilder::new().mode(0o700).create(&folder)?;
        let diff = diff.chars().take(LONGEST_DIFF).collect();
        let about = About { time: humantime::format_rfc3339_seconds(now).to_string(), diff, digest: digest(content) };
        write(&folder.join(ROUTES), content)?;
        write(&folder.join(ABOUT), &serde_json::to_vec(&about)?)?;
        Ok(folder)
    }

    /// Gives it the next number. Another carom with the same routes file may be quicker: then the one after.
    fn finish(&self, unfinished: &Path) -> io::Result<u64> {
        let mut number = self.numbers().last().copied().unwrap_or(0);
        loop {
            number = number.saturating_add(1);
            match fs::rename(unfinished, self.folder_of(number)) {
                Ok(()) => return Ok(number),
                Err(error) if error.kind() == io::ErrorKind::DirectoryNotEmpty => {}
                Err(error) => return Err(error),
            }
        }
    }

    /// What can't be deleted stays: the next time it is tried again.
    fn forget_the_oldest(&self) {
        let numbers = self.numbers();
        let over = numbers.len().saturating_sub(MOST_KEPT);
        for number in numbers.into_iter().take(over) {
            let _ = fs::remove_dir_all(self.folder_of(number));
        }
    }

    /// Counting up.
    fn numbers(&self) -> Vec<u64> {
        let entries = fs::read_dir(&self.folder).into_iter().flatten().flatten();
        let mut numbers: Vec<u64> = entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok()).collect();
        numbers.sort_unstable();
        numbers
    }

    fn folder_of(&self, number: u64) -> PathBuf {
        self.folder.join(number.to_string())
    }
}

impl Kept {
    /// What the routes file said.
    ///
    /// # Errors
    /// A file that can't be read, or is not what was kept.
    pub fn content(&self) -> io::Result<Vec<u8>> {
        let content = text::read_bounded(&self.file())?;
        if digest(&content) != self.digest {
            return Err(io::Error::new(io::ErrorKind::InvalidData, "it is not what was kept"));
        }
        Ok(content)
    }

    /// Where that is kept.
    pub fn file(&self) -> PathBuf {
        self.folder.join(ROUTES)
    }

    /// When it went live, for people: `2026-12-01 13:45:10 UTC`.
    pub fn when(&self) -> String {
        let time = humantime::format_rfc3339_seconds(self.time).to_string();
        time.replace('T', " ").replace('Z', " UTC")
    }
}

/// Writes a new file that only this user can read. Nobody waits for the disk: what a power cut makes of the file is told
/// by its digest.
fn write(file: &Path, content: &[u8]) -> io::Result<()> {
    OpenOptions::new().write(true).create_new(true).mode(0o600).open(file)?.write_all(content)
}

fn digest(content: &[u8]) -> String {
    format!("{:016x}", XxHash3_64::oneshot(content))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;
    use std::time::Duration;

    fn history() -> (tempfile::TempDir, History) {
        let folder = tempfile::tempdir().unwrap();
        let history = History::new(&folder.path().join("state/routes-1"));
        (folder, history)
    }

    fn numbers(history: &History) -> Vec<u64> {
        history.all().iter().map(|kept| kept.number).collect()
    }

    #[test]
    fn what_is_kept_is_there_with_number_time_and_diff_and_for_nobody_else() {
        let (_folder, history) = history();
        assert_eq!(history.all(), []);
        let now = SystemTime::UNIX_EPOCH + Duration::from_secs(1_800_000_000);
        assert_eq!(history.keep(b"a = 1\n", "first", now).unwrap(), Some(1));
        assert_eq!(history.keep(b"a = 2\n", "~ a 1 \u{2192} 2", now).unwrap(), Some(2));
        let all = history.all();
        assert_eq!(numbers(&history), [2, 1]);
        assert_eq!((all[0].time, &*all[0].diff, all[0].content().unwrap()), (now, "~ a 1 → 2", b"a = 2\n".to_vec()));
        assert_eq!(all[0].when(), "2027-01-15 08:00:00 UTC");
        assert_eq!(history.find(1).as_ref(), all.get(1));
        assert_eq!(history.find(3), None);
        let mode = |path: &Path| path.metadata().unwrap().permissions().mode() & 0o777;
        assert_eq!((mode(history.folder()), mode(&all[0].file())), (0o700, 0o600));
    }

    #[test]
    fn the_same_content_is_kept_once_in_a_row() {
        let (_folder, history) = history();
        let keep = |content: &[u8]| history.keep(content, "", SystemTime::now()).unwrap();
        assert_eq!((keep(b"a"), keep(b"a"), keep(b"b"), keep(b"a")), (Some(1), None, Some(2), Some(3)));
    }

    #[test]
    fn the_oldest_are_forgotten_and_numbers_go_on() {
        let (_folder, history) = history();
        for i in 0..60 {
            history.keep(format!("{i}").as_bytes(), "", SystemTime::now()).unwrap();
        }
        assert_eq!(numbers(&history), (11..=60).rev().collect::<Vec<_>>());
    }

    #[test]
    fn one_that_is_half_there_is_none() {
        let (_folder, history) = history();
        history.keep(b"a", "", SystemTime::now()).unwrap();
        fs::create_dir(history.folder().join("7")).unwrap();
        fs::write(history.folder().join("7/routes.toml"), "b").unwrap();
        assert_eq!(numbers(&history), [1]);
        assert_eq!(history.keep(b"c", "", SystemTime::now()).unwrap(), Some(8));
        let kept = history.find(8).unwrap();
        fs::write(kept.file(), "").unwrap();
        assert!(kept.content().is_err(), "its file was cut off");
    }

    #[test]
    fn two_that_keep_at_once_lose_nothing_of_each_other() {
        let (_folder, history) = history();
        history.keep(b"a", "", SystemTime::now()).unwrap();
        let other = history.unfinished(b"b", "", SystemTime::now()).unwrap();
        fs::rename(&other, history.folder().join("other")).unwrap();
        history.keep(b"c", "", SystemTime::now()).unwrap();
        assert_eq!(history.finish(&history.folder().join("other")).unwrap(), 3);
        assert_eq!(numbers(&history), [3, 2, 1]);
    }

    #[test]
    fn a_folder_that_cannot_be_made_is_an_error_and_no_more() {
        let folder = tempfile::tempdir().unwrap();
        fs::write(folder.path().join("file"), "").unwrap();
        let history = History::new(&folder.path().join("file"));
        assert!(history.keep(b"a", "", SystemTime::now()).is_err());
        assert_eq!(history.all(), []);
    }
}
