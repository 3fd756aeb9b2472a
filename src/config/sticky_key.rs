//! The key that the cookies of sticky sessions are signed with: made once, and kept in the state folder, so that sessions
//! outlive a restart.

use std::fs::{self, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use super::state::make_folder;
use super::text::read_bounded;
use crate::settings::StickyKey;

/// The file's name.
const NAME: &str = "sticky.key";

/// The key in a state folder, which is made where there is none.
///
/// # Errors
/// A folder or a file that can't be made or read, and a file that holds no key: what is in the way is then said.
pub fn kept_in(folder: &Path) -> io::Result<StickyKey> {
    let path = folder.join(NAME);
    let about = |error: io::Error| io::Error::new(error.kind(), format!("{}: {error}", path.display()));
    match read_bounded(&path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => make(folder, &path).map_err(about)?,
        Err(error) => return Err(about(error)),
        Ok(_) => {}
    }
    // Read again where it has just been made: another carom may have been faster.
    let bytes = read_bounded(&path).map_err(about)?;
    match <[u8; 32]>::try_from(bytes.as_slice()) {
        Ok(key) => Ok(StickyKey::new(key)),
        Err(_) => Err(about(io::Error::other(format!(
            "{} bytes are no key, which has 32: take the file away, and another is made",
            bytes.len()
        )))),
    }
}

/// Writes a new one, whole or not at all, unless there is one by then.
fn make(folder: &Path, path: &Path) -> io::Result<()> {
    make_folder(folder)?;
    let fresh = folder.join(format!("{NAME}.{}", std::process::id()));
    let _ = fs::remove_file(&fresh);
    let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&fresh)?;
    file.write_all(StickyKey::random()?.bytes())?;
    file.sync_all()?;
    let made = match fs::hard_link(&fresh, path) {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => Err(error),
        _ => Ok(()),
    };
    let _ = fs::remove_file(&fresh);
    made
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    #[test]
    fn a_key_is_made_once_and_is_for_one_user_alone() {
        let home = tempfile::tempdir().unwrap();
        let folder = home.path().join("state/routes-1");
        let key = kept_in(&folder).unwrap();
        assert_eq!(kept_in(&folder).unwrap(), key);
        let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
        assert_eq!((mode(&folder), mode(&folder.join(NAME))), (0o700, 0o600));
        assert_eq!(fs::read_dir(&folder).unwrap().count(), 1, "nothing is left over");
        assert_ne!(kept_in(&home.path().join("other")).unwrap(), key);
    }

    #[test]
    fn what_is_no_key_is_said_and_left_alone() {
        let folder = tempfile::tempdir().unwrap();
        fs::write(folder.path().join(NAME), "short").unwrap();
        let said = kept_in(folder.path()).unwrap_err().to_string();
        assert!(said.contains("sticky.key: 5 bytes are no key"), "{said}");
        assert_eq!(fs::read(folder.path().join(NAME)).unwrap(), b"short");
    }
}
