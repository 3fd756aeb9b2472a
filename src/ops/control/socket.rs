//! The socket's file: made so that nobody else may ever open it, never taken from a program that lives, gone at the end.

use std::fmt;
use std::fs::{self, DirBuilder, Metadata, Permissions};
use std::io::{self, ErrorKind};
use std::os::unix::fs::{DirBuilderExt, FileTypeExt, MetadataExt, PermissionsExt};
use std::os::unix::net::{SocketAddr, UnixListener, UnixStream};
use std::path::{Path, PathBuf};

/// A bound control socket. Its file goes away with it.
#[derive(Debug)]
pub struct Socket {
    listener: UnixListener,
    file: File,
}

/// The file, as long as it is ours.
#[derive(Debug)]
pub(super) struct File {
    path: PathBuf,
    identity: Option<(u64, u64)>,
}

/// Why there is no control socket at a path.
#[derive(Debug)]
pub struct NoSocket {
    /// Where it was to be.
    pub path: PathBuf,
    why: Why,
}

#[derive(Debug)]
enum Why {
    /// Somebody answers there.
    Alive,
    /// Something else stands there.
    Other,
    System(io::Error),
}

impl Socket {
    /// Binds a socket that only this user may connect to. One that a dead process has left is replaced.
    ///
    /// # Errors
    /// A socket on which somebody answers, another file at that place, and what the system says against it.
    pub fn bind(path: impl Into<PathBuf>) -> Result<Self, NoSocket> {
        let path = path.into();
        match place(&path) {
            Ok((listener, identity)) => Ok(Self { listener, file: File { path, identity } }),
            Err(why) => Err(NoSocket { path, why }),
        }
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.file.path
    }

    pub(super) fn into_parts(self) -> (UnixListener, File) {
        (self.listener, self.file)
    }
}

/// Binds in a folder that is closed to others, and moves the socket to its place: at no moment is it open to anybody else,
/// which a `chmod` behind the `bind` would leave, and a umask is the whole process's.
fn place(path: &Path) -> Result<(UnixListener, Option<(u64, u64)>), Why> {
    // Moved to where no client could name it, it would be of no use.
    SocketAddr::from_pathname(path)?;
    match path.symlink_metadata() {
        Ok(found) if !found.file_type().is_socket() => return Err(Why::Other),
        Ok(_) => match UnixStream::connect(path) {
            Ok(_) => return Err(Why::Alive),
            // Left by a process that is dead.
            Err(error) if matches!(error.kind(), ErrorKind::ConnectionRefused | ErrorKind::NotFound) => {}
            Err(error) => return Err(Why::System(error)),
        },
        Err(error) if error.kind() == ErrorKind::NotFound => {}
        Err(error) => return Err(Why::System(error)),
    }
    let folder = path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
    DirBuilder::new().recursive(true).mode(0o700).create(folder)?;
    // No longer than the place itself will be: the kernel takes about a hundred bytes.
    let closed = folder.join(format!(".{:06x}", fastrand::u32(..1 << 24)));
    DirBuilder::new().mode(0o700).create(&closed)?;
    let inside = closed.join("s");
    let moved = UnixListener::bind(&inside).and_then(|listener| {
        fs::set_permissions(&inside, Permissions::from_mode(0o600))?;
        listener.set_nonblocking(true)?;
        fs::rename(&inside, path)?;
        Ok(listener)
    });
    if moved.is_err() {
        let _ = fs::remove_file(&inside);
    }
    let _ = fs::remove_dir(&closed);
    Ok((moved?, path.symlink_metadata().ok().map(|found| identity(&found))))
}

fn identity(metadata: &Metadata) -> (u64, u64) {
    (metadata.dev(), metadata.ino())
}

impl Drop for File {
    fn drop(&mut self) {
        // Somebody may have put another in its place.
        let ours = self.path.symlink_metadata().is_ok_and(|found| Some(identity(&found)) == self.identity);
        if ours {
            let _ = fs::remove_file(&self.path);
        }
    }
}

impl From<io::Error> for Why {
    fn from(error: io::Error) -> Self {
        Self::System(error)
    }
}

impl NoSocket {
    /// What to do about it.
    pub fn help(&self) -> &'static str {
        match &self.why {
            Why::Alive => "stop the carom that runs, or name another place: --control FILE, or --control off",
            Why::Other => "it is no socket: name another place with --control",
            Why::System(error) if error.kind() == ErrorKind::InvalidInput => {
                "a socket's path has at most about a hundred bytes: name a shorter one with --control"
            }
            Why::System(_) => "name another place with --control, or do without: --control off",
        }
    }
}

impl fmt::Display for NoSocket {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let path = self.path.display();
        match &self.why {
            Why::Alive => write!(f, "the control socket {path} is in use: another carom answers there"),
            Why::Other => write!(f, "the control socket {path} can't be made: another file stands there"),
            Why::System(error) => write!(f, "the control socket {path} can't be made: {error}"),
        }
    }
}

impl std::error::Error for NoSocket {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match &self.why {
            Why::System(error) => Some(error),
            Why::Alive | Why::Other => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_its_user_may_open_it_and_it_goes_away_with_its_owner() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("run/control.sock");
        let socket = Socket::bind(&path).unwrap();
        assert_eq!(path.metadata().unwrap().mode() & 0o777, 0o600);
        assert_eq!(path.parent().unwrap().metadata().unwrap().mode() & 0o777, 0o700);
        assert_eq!(fs::read_dir(path.parent().unwrap()).unwrap().count(), 1, "nothing is left over");
        drop(socket);
        assert!(!path.exists());
    }

    #[test]
    fn a_dead_ones_is_replaced_and_a_living_ones_is_not() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("control.sock");
        drop(UnixListener::bind(&path).unwrap());
        let living = Socket::bind(&path).unwrap();
        let refused = Socket::bind(&path).unwrap_err();
        assert!(refused.to_string().contains("another carom answers there"), "{refused}");
        // One that takes the place afterwards is not removed with us.
        fs::remove_file(&path).unwrap();
        let other = UnixListener::bind(&path).unwrap();
        drop(living);
        assert!(path.exists());
        drop(other);
    }

    #[test]
    fn what_is_no_socket_stays() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("notes");
        fs::write(&path, "mine").unwrap();
        assert!(Socket::bind(&path).unwrap_err().to_string().contains("another file"));
        assert_eq!(fs::read_to_string(&path).unwrap(), "mine");
        let long = folder.path().join("x".repeat(120));
        let refused = Socket::bind(long).unwrap_err();
        assert!(refused.help().contains("shorter"), "{refused}");
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1);
    }
}
