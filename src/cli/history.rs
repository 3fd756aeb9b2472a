//! `carom history [N]` and `carom rollback [N]`: the tables that were live, and the way back to one of them.
//!
//! Both work from the state folder, whether a carom runs or not.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use carom::config::history::{History, Kept};
use carom::config::save;

use super::serve::{Failure, REFUSED, Told, WRONG, file_name};
use super::{Serve, To, reload, set};

/// What is kept of a routes file.
struct Past {
    routes: PathBuf,
    history: History,
    /// Where carom listens, as far as carom.toml says so.
    listeners: Vec<std::net::SocketAddr>,
}

/// Says which tables were live, the newest first; or the text of one.
pub(super) fn show(number: Option<u64>, to: To) -> ExitCode {
    let shown = Past::of(to).and_then(|past| match number {
        Some(number) => content(&past.find(number)?),
        None => past.list().map(String::into_bytes),
    });
    match shown {
        Ok(text) => {
            let _ = std::io::stdout().write_all(&text);
            ExitCode::SUCCESS
        }
        Err(failure) => failure.exit(),
    }
}

/// Writes a kept table into the routes file: the one with this number, else the newest that the file does not say already.
pub(super) fn rollback(number: Option<u64>, to: To) -> ExitCode {
    let done = Past::of(to.clone()).and_then(|past| {
        let kept = match number {
            Some(number) => past.find(number)?,
            None => past.before()?,
        };
        let said = past.go_back_to(&kept)?;
        Ok(format!("{said}\ncarom: {}", reload::after_change(to, &past.routes)?))
    });
    match done {
        Ok(said) => {
            tell!("{said}");
            ExitCode::SUCCESS
        }
        Err(failure) => failure.exit(),
    }
}

impl Past {
    fn of(to: To) -> Result<Self, Failure> {
        let told = Told::by(Serve::from(to))?;
        let Some(state) = told.state else {
            return Err(wrong("carom: there is no state folder\nhelp: name the one of the carom that serves: --state"));
        };
        let listeners = told.config.listen.iter().map(|listen| listen.address).collect();
        Ok(Self { routes: told.routes, history: History::new(&state), listeners })
    }

    fn all(&self) -> Result<Vec<Kept>, Failure> {
        let all = self.history.all();
        if all.is_empty() {
            let (routes, folder) = (self.routes.display(), self.history.folder().display());
            return Err(wrong(format!(
                "carom: no table of {routes} is kept in {folder}\nhelp: a carom that serves it keeps each; where that one \
                 has another state folder, name it: --state"
            )));
        }
        Ok(all)
    }

    fn find(&self, number: u64) -> Result<Kept, Failure> {
        let all = self.all()?;
        let (first, last) = (all.last().map_or(0, |kept| kept.number), all.first().map_or(0, |kept| kept.number));
        all.into_iter()
            .find(|kept| kept.number == number)
            .ok_or_else(|| wrong(format!("carom: table {number} is not kept: there are {first} to {last}")))
    }

    /// The newest that says something else than the file does now.
    fn before(&self) -> Result<Kept, Failure> {
        let now = std::fs::read(&self.routes).ok();
        let other = |kept: &Kept| kept.content().is_ok_and(|content| Some(content) != now);
        self.all()?
            .into_iter()
            .find(other)
            .ok_or_else(|| wrong(format!("carom: nothing else was live before what {} says", self.routes.display())))
    }

    /// One line for each table where its changes fit into one.
    fn list(&self) -> Result<String, Failure> {
        let now = std::fs::read(&self.routes).ok();
        let (mut text, mut found, name) = (String::new(), false, file_name(&self.routes));
        for kept in self.all()? {
            let is_now = !found && kept.content().ok() == now;
            found |= is_now;
            let diff = kept.diff.strip_prefix(&format!("{name} changed:")).unwrap_or(&kept.diff).trim();
            let diff = diff.replace('\n', "\n                                ");
            let mark = if is_now { '*' } else { ' ' };
            text.push_str(&format!("{mark} {:>4}  {}  {diff}\n", kept.number, kept.when()));
        }
        if !found {
            text.push_str(&format!("{name} says something else now: a carom that serves it has not taken it\n"));
        }
        Ok(text)
    }

    fn go_back_to(&self, kept: &Kept) -> Result<String, Failure> {
        let (number, when, name) = (kept.number, kept.when(), file_name(&self.routes));
        let saved = save::replace(&self.routes, &self.listeners, &content(kept)?).map_err(|failure| {
            let failure = set::failure(failure);
            Failure { text: format!("{}\ncarom: table {number} of {when} is no way back", failure.text), ..failure }
        })?;
        Ok(format!("{name} is back at table {number} of {when}\n{}", set::diff(&saved, &name)))
    }
}

fn content(kept: &Kept) -> Result<Vec<u8>, Failure> {
    kept.content().map_err(|error| unreadable(&kept.file(), &error))
}

fn unreadable(file: &Path, error: &std::io::Error) -> Failure {
    Failure { text: format!("carom: {} can't be read: {error}", file.display()), code: REFUSED }
}

fn wrong(text: impl Into<String>) -> Failure {
    Failure { text: text.into(), code: WRONG }
}
