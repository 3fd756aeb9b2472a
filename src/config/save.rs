//! The routes file written by carom itself: whole or not at all, and over nobody else's change.
//!
//! What is to be written is checked first, as a save by hand is. Whether and when it is applied is for whoever follows
//! the file.

use std::fs::{self, File, Metadata, OpenOptions, Permissions};
use std::io::{self, Write};
use std::net::SocketAddr;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt, PermissionsExt, chown};
use std::path::Path;
use std::time::{Duration, Instant};

use rustix::fs::{FlockOperation, flock};

use super::edit::{Edited, Refused};
use super::report::Report;
use super::routes;
use super::text::{self, Text};
use crate::table::Table;

/// A change that was made.
#[derive(Debug)]
pub struct Saved {
    /// What the file said before, where that was a table.
    pub before: Option<Table>,
    /// What it says now.
    pub after: Table,
    /// The content now.
    pub content: Vec<u8>,
    /// Whether anything was written.
    pub written: bool,
}

/// Why nothing was changed.
#[derive(Debug)]
pub enum Failure {
    /// The file is wrong, or would be.
    Wrong(Report),
    /// What was asked for can't be done.
    Refused(Refused),
    /// The file can't be written.
    System(String),
}

/// How long others who write are waited for.
const PATIENCE: Duration = Duration::from_secs(10);

/// How often a change is made anew because somebody else has changed the file meanwhile.
const MOST_TRIES: usize = 20;

/// What an edit would make of the routes file. Nothing is written. `listeners` and `previous` are as for [`routes::parse`].
///
/// # Errors
/// A file that can't be read, an edit that can't be made, a result that is no table.
pub fn plan(
    path: &Path,
    listeners: &[SocketAddr],
    previous: Option<&Table>,
    how: impl Fn(&str) -> Result<Edited, Refused>,
) -> Result<(Table, Edited), Failure> {
    let content = routes::read(path).map_err(Failure::Wrong)?;
    let made = edited(path, &content, listeners, how)?;
    let table = routes::parse(path, made.text.as_bytes(), listeners, previous).map_err(Failure::Wrong)?;
    Ok((table, made))
}

/// Changes the routes file by an edit of its text. `listeners` and `previous` are as for [`routes::parse`].
///
/// # Errors
/// As for [`plan`], and a file that can't be written.
pub fn edit(
    path: &Path,
    listeners: &[SocketAddr],
    previous: Option<&Table>,
    how: impl Fn(&str) -> Result<Edited, Refused>,
) -> Result<(Saved, Edited), Failure> {
    let mut last = None;
    let saved = change(path, listeners, previous, |content| {
        let Some(content) = content else { return Err(Failure::Wrong(unread(path))) };
        let made = edited(path, content, listeners, &how)?;
        let text = made.text.clone().into_bytes();
        last = Some(made);
        Ok(text)
    })?;
    let last = last.ok_or_else(|| Failure::System(format!("{} was not read", path.display())))?;
    Ok((saved, last))
}

fn edited(
    path: &Path,
    content: &[u8],
    listeners: &[SocketAddr],
    how: impl Fn(&str) -> Result<Edited, Refused>,
) -> Result<Edited, Failure> {
    if Text::new(path, content).map_err(Failure::Wrong)?.is_json() {
        let help = Some("bouncy's routes are served as they are; a routes.toml is edited".to_owned());
        return Err(Failure::Refused(Refused::Because { what: format!("{} is JSON", path.display()), help }));
    }
    let text = std::str::from_utf8(content).unwrap_or_default();
    how(text).map_err(|refused| match (refused, routes::parse(path, content, listeners, None)) {
        (Refused::Syntax, Err(report)) => Failure::Wrong(report),
        (refused, _) => Failure::Refused(refused),
    })
}

/// Gives the routes file another content, whatever it says now. `listeners` are as for [`routes::parse`].
///
/// # Errors
/// A content that is no table, a file that can't be written.
pub fn replace(path: &Path, listeners: &[SocketAddr], content: &[u8]) -> Result<Saved, Failure> {
    change(path, listeners, None, |_| Ok(content.to_vec()))
}

/// Makes a change of what stands there, if anything does, and makes it anew while others change that.
fn change(
    path: &Path,
    listeners: &[SocketAddr],
    previous: Option<&Table>,
    mut how: impl FnMut(Option<&[u8]>) -> Result<Vec<u8>, Failure>,
) -> Result<Saved, Failure> {
    let system = |error: io::Error| Failure::System(format!("{} can't be written: {error}", path.display()));
    // Through a link its target is changed: the link is somebody's own.
    let file = path.canonicalize().unwrap_or_else(|_| path.to_owned());
    let _turn = turn(&file).map_err(system)?;
    for _ in 0..MOST_TRIES {
        let before = text::read_bounded(path).ok();
        let content = how(before.as_deref())?;
        let after = routes::parse(path, &content, listeners, previous).map_err(Failure::Wrong)?;
        if text::read_bounded(path).ok() != before {
            continue;
        }
        let written = before.as_ref() != Some(&content);
        if written {
            put(&file, &content).map_err(system)?;
        }
        let before = before.and_then(|before| routes::parse(path, &before, listeners, None).ok());
        return Ok(Saved { before, after, content, written });
    }
    Err(Failure::System(format!("{} is changed by somebody else all the time", path.display())))
}

fn unread(path: &Path) -> Report {
    routes::read(path).err().unwrap_or_else(|| Report::unread(path, "the file was away for a moment", None))
}

/// Waits until no other carom writes in this folder. The folder itself is the lock: a file for it would stay behind.
///
/// `None` where there are no such locks, as on some network file systems: then only the look before writing is left.
fn turn(file: &Path) -> io::Result<Option<File>> {
    let folder = match file.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent,
        _ => Path::new("."),
    };
    let folder = File::open(folder)?;
    let begin = Instant::now();
    loop {
        match flock(&folder, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => return Ok(Some(folder)),
            Err(rustix::io::Errno::AGAIN) if begin.elapsed() < PATIENCE => {
                std::thread::sleep(Duration::from_millis(10))
            }
            Err(rustix::io::Errno::AGAIN) => {
                return Err(io::Error::new(io::ErrorKind::ResourceBusy, "another program has locked its folder"));
            }
            Err(_) => return Ok(None),
        }
    }
}

/// Puts a content into the file's place at once: a new file with the same mode and owner takes its name.
fn put(file: &Path, content: &[u8]) -> io::Result<()> {
    let old = file.metadata().ok();
    match put_new(file, content, old.as_ref()) {
        // A file that is mounted by itself, a folder of somebody else, an owner that can't be given: written in place it
        // stays what it is. Whoever follows it waits for the whole.
        Err(error) if old.is_some() && is_about_the_place(&error) => put_in_place(file, content),
        done => done,
    }
}

/// Whether the file itself may still be written where a new one could not take its place. Not where the disk is full or
/// broken: then the old content would be gone too.
fn is_about_the_place(error: &io::Error) -> bool {
    use io::ErrorKind::{
        AlreadyExists, CrossesDevices, InvalidInput, IsADirectory, PermissionDenied, ReadOnlyFilesystem, ResourceBusy,
    };
    // A mounted file is busy; an owner that this user namespace doesn't know is invalid.
    let kinds =
        [AlreadyExists, CrossesDevices, InvalidInput, IsADirectory, PermissionDenied, ReadOnlyFilesystem, ResourceBusy];
    kinds.contains(&error.kind())
}

/// Writes over what stands there. Where that can't be done to its end, what stood there is put back, which has room.
fn put_in_place(file: &Path, content: &[u8]) -> io::Result<()> {
    let before = text::read_bounded(file)?;
    overwrite(file, content).inspect_err(|_| drop(overwrite(file, &before)))
}

/// Cuts nothing off before all is written: the room that the file has stays its own.
fn overwrite(file: &Path, content: &[u8]) -> io::Result<()> {
    let mut written = OpenOptions::new().write(true).open(file)?;
    written.write_all(content)?;
    written.set_len(u64::try_from(content.len()).unwrap_or(u64::MAX))?;
    written.sync_all()
}

fn put_new(file: &Path, content: &[u8], old: Option<&Metadata>) -> io::Result<()> {
    let name = file.file_name().unwrap_or_default().display();
    let new = file.with_file_name(format!(".{name}.{}.new", std::process::id()));
    let _ = fs::remove_file(&new);
    let done = write_as(&new, content, old).and_then(|()| fs::rename(&new, file));
    done.inspect_err(|_| drop(fs::remove_file(&new)))
}

fn write_as(new: &Path, content: &[u8], old: Option<&Metadata>) -> io::Result<()> {
    let mode = old.map_or(0o644, |old| old.permissions().mode() & 0o7777);
    let mut written = OpenOptions::new().write(true).create_new(true).mode(mode & 0o600).open(new)?;
    written.write_all(content)?;
    let own = written.metadata()?;
    if let Some(old) = old.filter(|old| (old.uid(), old.gid()) != (own.uid(), own.gid())) {
        chown(new, Some(old.uid()), Some(old.gid()))?;
    }
    written.set_permissions(Permissions::from_mode(mode))?;
    written.sync_all()
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;

    use super::*;
    use crate::config::edit::{set, unset};

    fn folder_with(text: &str) -> (tempfile::TempDir, PathBuf) {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("routes.toml");
        fs::write(&file, text).unwrap();
        (folder, file)
    }

    fn set_to(file: &Path, site: &str, port: usize) -> Result<(Saved, Edited), Failure> {
        edit(file, &[], None, |text| set(text, site, &[port.to_string()]))
    }

    #[test]
    fn a_change_keeps_mode_and_link_and_leaves_nothing_behind() {
        let (folder, file) = folder_with("a = 1 # a\n");
        fs::set_permissions(&file, Permissions::from_mode(0o640)).unwrap();
        let link = folder.path().join("link.toml");
        std::os::unix::fs::symlink("routes.toml", &link).unwrap();
        let (saved, edited) = set_to(&link, "a", 2).unwrap();
        assert!(saved.written && saved.before.is_some());
        assert_eq!((fs::read_to_string(&file).unwrap().as_str(), edited.line.as_str()), ("a = 2 # a\n", "a"));
        assert!(link.is_symlink());
        assert_eq!(file.metadata().unwrap().permissions().mode() & 0o7777, 0o640);
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 2);
        assert!(!set_to(&link, "a", 2).unwrap().0.written, "it is there already");
    }

    #[test]
    fn what_would_be_wrong_is_not_written() {
        let text = "a = 1\nb = { to = 1, also = [\"c\"] }\n";
        let (_folder, file) = folder_with(text);
        assert!(
            matches!(edit(&file, &[], None, |_| unset("a = 1", "a")), Err(Failure::Wrong(_))),
            "no route would be left"
        );
        let own = "127.0.0.1:81".parse().unwrap();
        let result = edit(&file, &[own], None, |text| set(text, "a", &["127.0.0.1:81".to_owned()]));
        assert!(matches!(result, Err(Failure::Wrong(report)) if report.position() == Some((1, 5))));
        assert!(matches!(replace(&file, &[], b"a = 0"), Err(Failure::Wrong(_))));
        assert_eq!(fs::read_to_string(&file).unwrap(), text);
        fs::write(&file, "a = = 1").unwrap();
        assert!(matches!(set_to(&file, "a", 2), Err(Failure::Wrong(_))));
        fs::remove_file(&file).unwrap();
        assert!(matches!(set_to(&file, "a", 2), Err(Failure::Wrong(_))));
        fs::write(&file, "{ \"a\": 1 }").unwrap();
        assert!(matches!(set_to(&file, "a", 2), Err(Failure::Refused(_))));
    }

    #[test]
    fn a_change_of_somebody_else_in_between_is_kept() {
        let (_folder, file) = folder_with("a = 1\n");
        let mut others = 0;
        let saved = change(&file, &[], None, |content| {
            let text = std::str::from_utf8(content.unwrap()).unwrap();
            if others < 3 {
                others += 1;
                fs::write(&file, format!("{text}b{others} = 1\n")).unwrap();
            }
            Ok(set(text, "a", &["2".to_owned()]).unwrap().text.into_bytes())
        });
        assert!(saved.unwrap().written);
        assert_eq!(fs::read_to_string(&file).unwrap(), "a = 2\nb1 = 1\nb2 = 1\nb3 = 1\n");
    }

    #[test]
    fn changes_at_the_same_time_lose_nothing_of_each_other() {
        let (_folder, file) = folder_with("a = 1\n");
        std::thread::scope(|scope| {
            for thread in 0..4 {
                let file = &file;
                scope.spawn(move || (1..=10).for_each(|i| drop(set_to(file, &format!("t{thread}-{i}"), i).unwrap())));
            }
        });
        assert_eq!(fs::read_to_string(&file).unwrap().lines().count(), 41);
    }

    #[test]
    fn a_file_that_cannot_be_replaced_is_written_in_place() {
        let (folder, file) = folder_with("a = 1\n");
        let inode = file.metadata().unwrap().ino();
        // Nothing can be made under this name, whoever asks.
        fs::create_dir(folder.path().join(format!(".routes.toml.{}.new", std::process::id()))).unwrap();
        set_to(&file, "a", 2).unwrap();
        assert_eq!(fs::read_to_string(&file).unwrap(), "a = 2\n");
        assert_eq!(file.metadata().unwrap().ino(), inode);
        replace(&file, &[], b"a=3").unwrap();
        assert_eq!(fs::read_to_string(&file).unwrap(), "a=3", "nothing is left of the longer one");
    }

    #[test]
    fn a_full_disk_costs_nothing_of_what_stands_there() {
        for kind in [io::ErrorKind::StorageFull, io::ErrorKind::QuotaExceeded, io::ErrorKind::Other] {
            assert!(!is_about_the_place(&kind.into()), "{kind}: writing in place would begin with cutting it off");
        }
        assert!(!is_about_the_place(&io::Error::from_raw_os_error(rustix::io::Errno::IO.raw_os_error())));
        for errno in [rustix::io::Errno::BUSY, rustix::io::Errno::ROFS, rustix::io::Errno::PERM] {
            assert!(is_about_the_place(&io::Error::from_raw_os_error(errno.raw_os_error())), "{errno}");
        }
    }
}
