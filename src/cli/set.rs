//! `carom set SITE TARGET…` and `carom unset SITE`: one line of the routes file changed, the rest of it left as it is.
//!
//! The file stays the one truth: a carom that follows it applies the change as any other save.

use std::net::SocketAddr;
use std::process::ExitCode;

use carom::config::diff::Diff;
use carom::config::edit::{self, Edited, Refused};
use carom::config::save::{self, Failure, Saved};

use super::check::counted;
use super::serve::{self, REFUSED, Told, WRONG, colors, file_name};
use super::{Serve, To, reload};

/// Sends a site to these targets.
pub(super) fn set(site: &str, targets: &[String], to: To) -> ExitCode {
    run(to, |text| edit::set(text, site, targets))
}

/// Takes a site out.
pub(super) fn unset(site: &str, to: To) -> ExitCode {
    run(to, |text| edit::unset(text, site))
}

fn run(to: To, how: impl Fn(&str) -> Result<Edited, Refused>) -> ExitCode {
    match change(to, how) {
        Ok(said) => {
            tell!("{said}");
            ExitCode::SUCCESS
        }
        Err(failure) => failure.exit(),
    }
}

fn change(to: To, how: impl Fn(&str) -> Result<Edited, Refused>) -> Result<String, serve::Failure> {
    let told = Told::by(Serve::from(to.clone()))?;
    // Where nothing is said, whoever serves may listen anywhere.
    let listeners: Vec<SocketAddr> = told.config.listen.iter().map(|listen| listen.address).collect();
    let (saved, edited) = save::edit(&told.routes, &listeners, None, how).map_err(failure)?;
    let name = file_name(&told.routes);
    let mut said = diff(&saved, &name);
    if edited.by_also {
        said.push_str(&format!("\n{name}: it is one of the `also` of {}, whose line was changed", edited.line));
    }
    if saved.written {
        said.push_str(&format!("\ncarom: {}", reload::after_change(to, &told.routes)?));
    }
    Ok(said)
}

/// What a change of the file has changed, for people.
pub(super) fn diff(saved: &Saved, name: &str) -> String {
    match &saved.before {
        _ if !saved.written => format!("{name}: nothing changed"),
        Some(before) => Diff::between(before, &saved.after).block(name),
        None => format!("{name} is right again, with {}", counted(saved.after.routes().len(), "route")),
    }
}

/// Why a change was not made, and how to exit.
pub(super) fn failure(failure: Failure) -> serve::Failure {
    match failure {
        Failure::Wrong(report) => {
            let text = format!("{}\ncarom: nothing was written", report.render(colors()).trim_end());
            serve::Failure { text, code: WRONG }
        }
        Failure::Refused(Refused::Syntax) => {
            serve::Failure { text: "carom: the file can't be edited as TOML".to_owned(), code: WRONG }
        }
        Failure::Refused(Refused::Because { what, help }) => {
            let help = help.map(|help| format!("\nhelp: {help}")).unwrap_or_default();
            serve::Failure { text: format!("carom: {what}{help}"), code: WRONG }
        }
        Failure::System(why) => serve::Failure { text: format!("carom: {why}"), code: REFUSED },
    }
}
