//! Where carom keeps what outlives a run: the state folder, and in it a folder for each routes file.

use std::ffi::OsString;
use std::fs::DirBuilder;
use std::io;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};

use twox_hash::XxHash3_64;

/// The state folder when none is named: `$STATE_DIRECTORY`, which systemd sets, else `$XDG_STATE_HOME/carom`, else
/// `~/.local/state/carom`. `None` where the environment says none of them.
pub fn default_state_path() -> Option<PathBuf> {
    default_by(|name| std::env::var_os(name))
}

fn default_by(variable: impl Fn(&str) -> Option<OsString>) -> Option<PathBuf> {
    // One that is not absolute is none, as the XDG specification has it.
    let path = |name| variable(name).map(PathBuf::from).filter(|path| path.is_absolute());
    // systemd may name several, with colons between them.
    let systemd = variable("STATE_DIRECTORY").and_then(|all| std::env::split_paths(&all).next());
    systemd
        .filter(|path| path.is_absolute())
        .or_else(|| path("XDG_STATE_HOME").map(|home| home.join("carom")))
        .or_else(|| path("HOME").map(|home| home.join(".local/state/carom")))
}

/// The folder of one routes file: its name, for people, and a short hash of where it is.
///
/// The file's own link is not followed: where routes are mounted, each save makes it point to another file.
pub fn of_routes(state: &Path, routes: &Path) -> PathBuf {
    let parent = routes.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let parent = parent.canonicalize().or_else(|_| std::path::absolute(parent)).unwrap_or_else(|_| parent.into());
    let place = parent.join(routes.file_name().unwrap_or_default());
    let hash = XxHash3_64::oneshot(place.as_os_str().as_encoded_bytes());
    let stem = routes.file_stem().unwrap_or_default().to_string_lossy();
    state.join(format!("{stem}-{:08x}", hash >> 32))
}

/// Makes a folder that only this user may look into, and those above it.
///
/// # Errors
/// What the system says against it.
pub fn make_folder(folder: &Path) -> io::Result<()> {
    DirBuilder::new().recursive(true).mode(0o700).create(folder)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_folder_is_systemds_or_of_the_users_state() {
        for (environment, want) in [
            (&[("STATE_DIRECTORY", "/var/lib/carom"), ("HOME", "/root")][..], Some("/var/lib/carom")),
            (&[("STATE_DIRECTORY", "/var/lib/a:/var/lib/b")], Some("/var/lib/a")),
            (&[("XDG_STATE_HOME", "/s"), ("HOME", "/h")], Some("/s/carom")),
            (&[("XDG_STATE_HOME", "s"), ("HOME", "/h")], Some("/h/.local/state/carom")),
            (&[("XDG_STATE_HOME", ""), ("HOME", "")], None),
            (&[], None),
        ] {
            let variable = |name: &str| environment.iter().find(|(own, _)| *own == name).map(|(_, value)| value.into());
            assert_eq!(default_by(variable), want.map(PathBuf::from), "{environment:?}");
        }
    }

    #[test]
    fn each_routes_file_has_a_folder_and_keeps_it_however_it_is_named() {
        let folder = tempfile::tempdir().unwrap();
        let (a, b) = (folder.path().join("a"), folder.path().join("b"));
        std::fs::create_dir(&a).unwrap();
        std::os::unix::fs::symlink(&a, &b).unwrap();
        let of = |routes: PathBuf| of_routes(Path::new("/s"), &routes);
        let one = of(a.join("routes.toml"));
        assert!(one.to_str().unwrap().starts_with("/s/routes-"), "{one:?}");
        assert_eq!(of(b.join("routes.toml")), one);
        assert_eq!(of(a.join("../a/routes.toml")), one);
        assert_ne!(of(a.join("sites.toml")), one);
        assert_ne!(of(folder.path().join("routes.toml")), one);
        std::os::unix::fs::symlink("first.toml", a.join("routes.toml")).unwrap();
        assert_eq!(of(a.join("routes.toml")), one, "whatever its link points to");
    }
}
