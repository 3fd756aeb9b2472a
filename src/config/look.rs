//! One look at a file, or at many: what stands there, read only when it may have changed.

use std::fs::Metadata;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use super::settle::Seen;
use super::text;

/// Tells a file or folder from another one of the same name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Identity(u64, u64);

/// What of a file changes when it is written to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Stamp {
    pub(super) identity: Identity,
    length: u64,
    modified: Option<SystemTime>,
    /// What is in it: a digest of the stamps of what is in a folder, 0 for a file.
    within: u64,
}

/// What is watched.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Subject {
    /// A file, for what is in it.
    File(PathBuf),
    /// Many, for a list of them that differs when one of them does.
    Places(Places),
}

/// A folder with all that is below it, and files elsewhere.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Places {
    /// The folder.
    pub folder: PathBuf,
    /// The files.
    pub files: Vec<PathBuf>,
}

/// How deep below a folder files are looked for: `live/NAME/` is two.
const DEEPEST: usize = 4;

/// Larger files, in bytes, are not looked at: no certificate is so large with its chain.
const LARGEST: u64 = 1 << 20;

/// More files than this are not looked at.
const MOST_FILES: usize = 20_000;

impl Subject {
    /// The path by which it is called.
    pub(super) fn path(&self) -> &Path {
        match self {
            Self::File(path) => path,
            Self::Places(places) => &places.folder,
        }
    }

    pub(super) fn stamp(&self) -> Option<Stamp> {
        match self {
            Self::File(path) => Stamp::of(path),
            Self::Places(places) => places.stamp(),
        }
    }

    pub(super) fn read(&self) -> Seen {
        match self {
            Self::File(path) => read(path),
            Self::Places(places) => Seen::Content(places.list()),
        }
    }

    /// The paths that have to be watched, and the folders of which every entry has.
    pub(super) fn watched(&self) -> (Vec<PathBuf>, Vec<PathBuf>) {
        match self {
            Self::File(path) => (vec![path.clone()], Vec::new()),
            Self::Places(places) => places.watched(),
        }
    }
}

impl Places {
    /// A list of the files with a digest of what is in each, for [`Watch`](super::watch::Watch) to compare.
    pub fn list(&self) -> Vec<u8> {
        let mut list = Vec::new();
        for path in self.all() {
            let mut hasher = DefaultHasher::new();
            match read(&path) {
                Seen::Content(bytes) => bytes.hash(&mut hasher),
                Seen::Missing => continue,
                Seen::Unreadable(why) => why.hash(&mut hasher),
            }
            // Writing into a Vec can't fail.
            let _ = writeln!(list, "{:?} {:x}", path, hasher.finish());
        }
        list
    }

    fn all(&self) -> impl Iterator<Item = PathBuf> {
        files_below(&self.folder).unwrap_or_default().into_iter().chain(self.files.iter().cloned())
    }

    fn stamp(&self) -> Option<Stamp> {
        let mut hasher = DefaultHasher::new();
        for path in self.all() {
            (Stamp::of(&path), path).hash(&mut hasher);
        }
        // Without the folder the files beside it are still there.
        let none = Stamp { identity: Identity(0, 0), length: 0, modified: None, within: 0 };
        let folder = Stamp::of(&self.folder).unwrap_or(none);
        // That an entry came or went says nothing that the list does not.
        Some(Stamp { length: 0, modified: None, within: hasher.finish(), ..folder })
    }

    fn watched(&self) -> (Vec<PathBuf>, Vec<PathBuf>) {
        let (mut files, mut folders) = (Vec::new(), Vec::new());
        // What can't be read now is found by the poll once it can be.
        let _ = collect(&self.folder, DEEPEST, &mut files, &mut folders);
        // A link's target lies elsewhere; what lies in a watched folder needs no watch of its own.
        files.retain(|file| file.is_symlink());
        files.push(self.folder.clone());
        files.extend_from_slice(&self.files);
        (files, folders)
    }
}

/// Every file below a folder, links followed, in the order of their names.
pub(super) fn files_below(folder: &Path) -> io::Result<Vec<PathBuf>> {
    let (mut files, mut folders) = (Vec::new(), Vec::new());
    collect(folder, DEEPEST, &mut files, &mut folders)?;
    Ok(files)
}

fn collect(folder: &Path, deeper: usize, files: &mut Vec<PathBuf>, folders: &mut Vec<PathBuf>) -> io::Result<()> {
    let mut entries: Vec<PathBuf> =
        std::fs::read_dir(folder)?.filter_map(|entry| entry.ok().map(|entry| entry.path())).collect();
    entries.sort();
    folders.push(folder.to_owned());
    for path in entries {
        // What is hidden is not meant: an editor's file, `..data` of a mounted volume, `.git`.
        let hidden = path.file_name().is_some_and(|name| name.as_encoded_bytes().starts_with(b"."));
        if hidden || files.len() >= MOST_FILES {
            continue;
        }
        match path.metadata() {
            // One below that can't be read has nothing for us: `private/` of another user.
            Ok(metadata) if metadata.is_dir() && deeper > 0 => drop(collect(&path, deeper - 1, files, folders)),
            Ok(metadata) if metadata.is_file() && metadata.len() <= LARGEST => files.push(path),
            _ => {}
        }
    }
    Ok(())
}

impl Identity {
    /// Of the folder at a path, if there is one.
    pub(super) fn of_folder(path: &Path) -> Option<Self> {
        path.metadata().ok().map(|metadata| Self::of(&metadata))
    }

    #[cfg(unix)]
    fn of(metadata: &Metadata) -> Self {
        use std::os::unix::fs::MetadataExt;
        Self(metadata.dev(), metadata.ino())
    }

    /// Without inode numbers, the time of creation has to do.
    #[cfg(not(unix))]
    fn of(metadata: &Metadata) -> Self {
        let created = metadata.created().ok().and_then(|time| time.duration_since(SystemTime::UNIX_EPOCH).ok());
        created.map_or(Self(0, 0), |since| Self(since.as_secs(), u64::from(since.subsec_nanos())))
    }
}

impl Stamp {
    /// Of the file at a path, through links; `None` where there is none.
    pub(super) fn of(path: &Path) -> Option<Self> {
        let metadata = path.metadata().ok()?;
        Some(Self {
            identity: Identity::of(&metadata),
            length: metadata.len(),
            modified: metadata.modified().ok(),
            within: 0,
        })
    }
}

/// What stands at a path.
pub(super) fn read(path: &Path) -> Seen {
    match text::read_bounded(path) {
        Ok(bytes) => Seen::Content(bytes),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Seen::Missing,
        Err(error) => Seen::Unreadable(error.to_string()),
    }
}
