//! The tables that `serve` has had live: each is kept, and when the routes file is broken at a start, the last good one
//! serves.

use std::net::SocketAddr;
use std::path::Path;
use std::time::SystemTime;

use carom::config::diff::Diff;
use carom::config::history::{History, Kept};
use carom::config::report::Report;
use carom::config::routes;
use carom::table::Table;

use super::check::counted;
use super::serve::{colors, file_name};

/// The history of the routes file, as far as there is a folder for it.
pub(super) struct Past {
    history: Option<History>,
    warned: bool,
}

/// The table to begin with.
pub(super) struct First {
    /// What the routes file holds, good or not; `None` where it can't be read.
    pub(super) bytes: Option<Vec<u8>>,
    pub(super) table: Table,
    /// Where the table is from, for people.
    pub(super) from: String,
    /// What is wrong with the file, where that is why the table is another.
    pub(super) broken: Option<String>,
}

impl Past {
    /// The past in the state folder of a routes file.
    pub(super) fn new(state: Option<&Path>) -> Self {
        Self { history: state.map(History::new), warned: false }
    }

    /// The table of the routes file. Where that is broken, says so, and gives the last good one, unless `strict`.
    pub(super) fn first(&mut self, path: &Path, listening: &[SocketAddr], strict: bool) -> Result<First, Report> {
        let (report, bytes) = match routes::read(path) {
            Ok(bytes) => match routes::parse(path, &bytes, listening, None) {
                Ok(table) => {
                    self.keep(&bytes, &self.since_last_time(path, &table));
                    return Ok(First { bytes: Some(bytes), table, from: path.display().to_string(), broken: None });
                }
                Err(report) => (report, Some(bytes)),
            },
            Err(report) => (report, None),
        };
        let kept = if strict { Vec::new() } else { self.all() };
        if kept.is_empty() {
            return Err(report);
        }
        say!("{}", report.render(colors()).trim_end());
        let Some((kept, table)) = last_good(kept, path, listening) else {
            say!("carom: no table that was live before is good any more; this is what is to be corrected:");
            return Err(report);
        };
        let (file, when, kept_in) = (path.display(), kept.when(), kept.file());
        say!(
            "carom: {file} can't be served: SERVING THE LAST GOOD TABLE in its place, number {}, of {when}",
            kept.number
        );
        say!("help: correct {file}, and it is applied as soon as it is saved");
        say!("help: `carom rollback` puts back what is served now, which stands in {}", kept_in.display());
        let from = format!("table {} of {when}, in place of {file}", kept.number);
        Ok(First { bytes, table, from, broken: Some(report.to_string()) })
    }

    /// Keeps what has gone live. Where that fails, everything but the past goes on.
    pub(super) fn keep(&mut self, content: &[u8], diff: &str) {
        let Some(history) = &self.history else {
            return self.warn("carom: the tables that were live are not kept: there is no home for them");
        };
        if let Err(error) = history.keep(content, diff, SystemTime::now()) {
            let folder = history.folder().display();
            self.warn(&format!("carom: the tables that were live can't be kept in {folder}: {error}"));
        }
    }

    fn warn(&mut self, what: &str) {
        if !std::mem::replace(&mut self.warned, true) {
            say!("{what}\nhelp: name a folder that carom may write to, with --state or with `state` in carom.toml");
        }
    }

    fn all(&self) -> Vec<Kept> {
        self.history.as_ref().map(History::all).unwrap_or_default()
    }

    /// What the file has come to say while no carom followed it.
    fn since_last_time(&self, path: &Path, table: &Table) -> String {
        let content = self.all().into_iter().next().and_then(|kept| kept.content().ok());
        match content.map(|content| routes::parse(path, &content, &[], None)) {
            Some(Ok(before)) => Diff::between(&before, table).block(&file_name(path)),
            _ => format!("{} came with {}", file_name(path), counted(table.routes().len(), "route")),
        }
    }
}

/// The newest table that still is one: a certificate that it names may be gone.
fn last_good(kept: Vec<Kept>, path: &Path, listening: &[SocketAddr]) -> Option<(Kept, Table)> {
    kept.into_iter().find_map(|kept| {
        let parsed = kept
            .content()
            .map_err(|error| error.to_string())
            .and_then(|content| routes::parse(path, &content, listening, None).map_err(|report| report.to_string()));
        let why = match parsed {
            Ok(table) => return Some((kept, table)),
            Err(why) => why,
        };
        let why = why.lines().next().unwrap_or_default();
        say!("carom: table {} of {} is good no more: {why}", kept.number, kept.when());
        None
    })
}
