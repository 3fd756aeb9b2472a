//! `carom check [ROUTES]`: says what `serve` would say of the files, and does nothing else.

use std::io::Write;
use std::path::Path;
use std::process::ExitCode;

use hashbrown::HashSet;

use super::Serve;
use super::serve::{Told, colors};

use carom::config::caution::cautions;
use carom::config::report::Report;
use carom::config::routes;
use carom::table::Table;
use carom::table::pattern::HostPattern;

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
            ExitCode::SUCCESS
        }
        Err(report) => {
            let _ = writeln!(std::io::stderr(), "{}", failure(&report, colors()));
            ExitCode::FAILURE
        }
    }
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

fn counted(number: usize, what: &str) -> String {
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
