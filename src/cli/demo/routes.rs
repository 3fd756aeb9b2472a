//! The demo's routes file: a folder of its own, the first text, and what becomes of it at the end.

use std::io;
use std::path::{Path, PathBuf};
use std::{env, fs, process};

use super::backends::Backends;

/// The file that the demo's proxy serves, as it was first written.
pub(super) struct RoutesFile {
    path: PathBuf,
    first: String,
}

impl RoutesFile {
    pub(super) fn write(path: PathBuf, first: String) -> io::Result<Self> {
        fs::write(&path, &first)?;
        Ok(Self { path, first })
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// Where carom keeps what is its own: beside the file.
    pub(super) fn state(&self) -> PathBuf {
        self.path.with_file_name("state")
    }

    /// Deletes the folder, unless someone's edits are in it; says which.
    pub(super) fn farewell(&self) -> String {
        let _ = fs::remove_dir_all(self.state());
        let untouched = fs::read_to_string(&self.path).is_ok_and(|now| now == self.first);
        if untouched && fs::remove_file(&self.path).is_ok() {
            // Fails when something else was put there, which is then not ours to delete.
            let _ = self.path.parent().map(fs::remove_dir);
            return String::new();
        }
        format!("\n  Your routes stay in {}\n", self.path.display())
    }
}

/// A new folder that only we had the making of: `create_dir` refuses one that someone else put there.
pub(super) fn fresh_folder() -> io::Result<PathBuf> {
    for attempt in 0.. {
        let folder = env::temp_dir().join(format!("carom-demo-{}-{attempt}", process::id()));
        match fs::create_dir(&folder) {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists && attempt < 100 => {}
            made => return made.map(|()| folder),
        }
    }
    unreachable!("the loop has no end of its own")
}

/// The routes, with a proposal for each thing to try. `port` is the proxy's.
pub(super) fn text(backends: &Backends, port: u16) -> String {
    let Backends { beep, boop: [boop_1, boop_2] } = backends;
    format!(
        r##"# Which host goes to which backend. Save this file, and the next request follows it.

"beep.localhost" = {beep}
"boop.localhost" = [{boop_1}, {boop_2}]    # two instances, in turn

# Things to try. Take the "# " off a line, save, and reload the page:

# "bop.localhost" = {beep}                # a new site: http://bop.localhost:{port}/
# "beep.localhost/moved/" = {{ redirect = {{ to = "http://boop.localhost:{port}/", status = 302 }} }}
# "*" = {{ respond = {{ status = 404, body = "no such site here\n" }} }}    # whatever no line names

# Send beep to boop's first instance: change its port above to {boop_1}.
# Make a mistake: the old routes stay, and the terminal shows the line.
"##
    )
}

#[cfg(test)]
mod tests {
    use carom::config::routes::parse;

    use super::*;

    const BACKENDS: Backends = Backends { beep: 4001, boop: [4002, 4003] };

    fn routes_in(text: &str) -> usize {
        let table = parse(Path::new("routes.toml"), text.as_bytes(), &[], None);
        table.unwrap_or_else(|report| panic!("{}", report.render(false))).routes().len()
    }

    #[test]
    fn every_proposal_can_be_served_once_its_mark_is_off() {
        let text = text(&BACKENDS, 8080);
        assert_eq!(routes_in(&text), 2);
        assert_eq!(routes_in(&text.replace("# \"", "\"")), 5);
    }

    #[test]
    fn folders_are_never_shared() {
        let (one, other) = (fresh_folder().unwrap(), fresh_folder().unwrap());
        assert_ne!(one, other);
        fs::remove_dir(one).unwrap();
        fs::remove_dir(other).unwrap();
    }

    #[test]
    fn an_untouched_file_is_cleared_away_and_an_edited_one_stays() {
        let folder = fresh_folder().unwrap();
        let path = folder.join("routes.toml");
        let file = RoutesFile::write(path.clone(), text(&BACKENDS, 8080)).unwrap();
        fs::write(&path, "\"bop.localhost\" = 4001\n").unwrap();
        assert!(file.farewell().contains(path.to_str().unwrap()));
        assert!(path.exists());
        fs::write(&path, text(&BACKENDS, 8080)).unwrap();
        assert_eq!(file.farewell(), "");
        assert!(!folder.exists());
    }
}
