//! One look at a file: what stands there, read only when it may have changed.

use std::fs::Metadata;
use std::io;
use std::path::Path;
use std::time::SystemTime;

use super::settle::Seen;
use super::text;

/// Tells a file or folder from another one of the same name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Identity(u64, u64);

/// What of a file changes when it is written to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Stamp {
    pub(super) identity: Identity,
    length: u64,
    modified: Option<SystemTime>,
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
        Some(Self { identity: Identity::of(&metadata), length: metadata.len(), modified: metadata.modified().ok() })
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
