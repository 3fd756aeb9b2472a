//! `carom check [ROUTES]`: says what `serve` would say of the files, and does nothing else.

use std::io::Write;
use std::path::Path;
use std::process::ExitCode;
use std::time::SystemTime;

use hashbrown::HashSet;

use super::Serve;
use super::serve::{Told, colors};
use super::shelf::Folder;

use carom::config::caution::cautions;
use carom::config::report::Report;
use carom::config::routes;
use carom::table::certs::Certificates;
use carom::table::pattern::HostPattern;
use carom::table::{Action, Table};

/// Checks the files that `serve` would read, and prints what is found: 0 when they are fine, 1 when not.
pub(super) fn run(serve: Serve) -> ExitCode {
    let told = match Told::by(serve) {
        Ok(told) => told,
        Err(failure) => return failure.exit(),
    };
    match routes::load(&told.routes, &told.addresses()) {
        Ok((_, table)) => {
            let _ = writeln!(std::io::stdout(), "{}", summary(&told.routes, &table));
            for caution in cautions(&table, &told.routes.display().to_string()) {
                let _ = writeln!(std::io::stdout(), "{caution}");
            }
            match told.certs {
                Some(folder) => certificates(folder, told.config.default_cert, &table, &told.routes),
                None => ExitCode::SUCCESS,
            }
        }
        Err(report) => {
            let _ = writeln!(std::io::stderr(), "{}", failure(&report, colors()));
            ExitCode::FAILURE
        }
    }
}

/// Checks the certificates: which can't be served, which sites have none, and which are no site's.
fn certificates(folder: Folder, default: Option<Box<str>>, table: &Table, routes: &Path) -> ExitCode {
    let mut store = folder.store(default);
    let found = store.read(table, SystemTime::now());
    for trouble in found.problems.iter().chain(&found.expiring) {
        let _ = writeln!(std::io::stderr(), "{trouble}");
    }
    let count = found.certificates.shown().count();
    let _ = writeln!(std::io::stdout(), "{} has {}", store.folder().display(), counted(count, "certificate"));
    for line in without(table, &found.certificates, routes).into_iter().chain(unused(table, &found.certificates)) {
        let _ = writeln!(std::io::stdout(), "{line}");
    }
    if found.problems.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// A line for each host that has no certificate.
fn without(table: &Table, certificates: &Certificates, routes: &Path) -> Vec<String> {
    let mut said = HashSet::new();
    let mut lines = Vec::new();
    // What is passed through is the business of its backend.
    let ours = table.lines().filter(|(route, _)| !matches!(route.action, Action::PassThrough(_)));
    for (route, patterns) in ours {
        for host in patterns.iter().map(|pattern| &pattern.host) {
            let has_one = match host {
                HostPattern::Exact(name) => certificates.covering(name).is_some(),
                HostPattern::Below(_) => certificates.all().iter().any(|certificate| certificate.is_for(host)),
                HostPattern::Any => true,
            };
            if !has_one && said.insert(host) {
                lines.push(format!("no certificate: {host} ({}:{})", routes.display(), route.line));
            }
        }
    }
    lines
}

/// A line for each certificate that no line of the routes is about.
fn unused(table: &Table, certificates: &Certificates) -> Vec<String> {
    let hosts: HashSet<&HostPattern> =
        table.lines().flat_map(|(_, patterns)| patterns.iter().map(|pattern| &pattern.host)).collect();
    let is_routed = |name: &str| {
        hosts.contains(&HostPattern::Any)
            || hosts.iter().any(|host| match host {
                HostPattern::Exact(host) => {
                    **host == *name
                        || name
                            .strip_prefix("*.")
                            .is_some_and(|of| host.split_once('.').is_some_and(|(_, parent)| parent == of))
                }
                HostPattern::Below(parent) => name.strip_suffix(&**parent).is_some_and(|front| front.ends_with('.')),
                HostPattern::Any => true,
            })
    };
    let unused = certificates.shown().filter(|certificate| !certificate.names().iter().any(|name| is_routed(name)));
    unused
        .map(|certificate| {
            let file = certificate.files().first().map(|file| file.display().to_string()).unwrap_or_default();
            format!("of no site: {file} ({})", certificate.names().join(", "))
        })
        .collect()
}

/// One line on a file that is fine: `routes.toml is fine: 12 hosts, 14 routes, 9 backends`.
fn summary(routes: &Path, table: &Table) -> String {
    let hosts: HashSet<&HostPattern> =
        table.lines().flat_map(|(_, patterns)| patterns.iter().map(|pattern| &pattern.host)).collect();
    let backends: HashSet<u64> =
        table.sites().flat_map(|site| site.instances().iter().map(|instance| instance.backend.id())).collect();
    format!(
        "{} is fine: {}, {}, {}",
        routes.display(),
        counted(hosts.len(), "host"),
        counted(table.routes().len(), "route"),
        counted(backends.len(), "backend")
    )
}

/// What is wrong with a file, and how much of it.
fn failure(report: &Report, color: bool) -> String {
    format!("{}\n\n{}", report.render(color), counted(report.count(), "error"))
}

pub(super) fn counted(number: usize, what: &str) -> String {
    format!("{number} {what}{}", if number == 1 { "" } else { "s" })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_good_file_is_counted() {
        let text =
            "\"a.test\" = [1, 2]\n\"a.test/x\" = 2\nb = { to = 3, also = [\"c\"] }\nd = { respond = { status = 404 } }";
        let table = routes::parse(Path::new("r.toml"), text.as_bytes(), &[], None).unwrap();
        assert_eq!(summary(Path::new("r.toml"), &table), "r.toml is fine: 4 hosts, 4 routes, 3 backends");
    }

    #[test]
    fn a_bad_file_is_refused_and_its_errors_counted() {
        let report = routes::parse(Path::new("r.toml"), b"a = 0\nb = 0", &[], None).unwrap_err();
        let text = failure(&report, false);
        assert!(text.contains("r.toml:1:5") && text.ends_with("\n\n2 errors"), "{text}");
    }
}
