//! What the targets in `fuzz/` call: the properties of `http::properties`, and those of a routes file, for bytes from
//! anywhere.
//!
//! Only built with `--cfg fuzzing`; no part of the library.

use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;

use crate::config::{self, diff::Diff};
use crate::http::{host::Host, properties};
use crate::table::Table;
use crate::table::pattern::HostPattern;

/// A request's head, its rewriting, and whatever stands behind it.
pub fn head(bytes: &[u8]) {
    properties::request(bytes);
}

/// A response's head and its rewriting.
pub fn response(bytes: &[u8]) {
    properties::response(bytes);
}

/// A chunked body.
pub fn chunked(bytes: &[u8]) {
    properties::chunked(bytes);
}

/// A host's spelling.
pub fn host(bytes: &[u8]) {
    properties::host(bytes);
}

/// The header of a PROXY protocol connection.
pub fn proxy_protocol(bytes: &[u8]) {
    crate::net::proxy_protocol::properties(bytes);
}

/// A routes file, in either of its languages: what it says, it says every time, and each line of it covers its host.
pub fn routes(bytes: &[u8]) {
    for name in ["routes.toml", "routes.json"] {
        let listeners = [SocketAddr::from(([127, 0, 0, 1], 80))];
        let parse = |previous| config::routes::parse(Path::new(name), bytes, &listeners, previous);
        match (parse(None), parse(None)) {
            (Ok(table), Ok(again)) => {
                assert!(Diff::between(&table, &again).is_empty(), "the same file is another table");
                let reloaded = parse(Some(&table)).unwrap_or_else(|report| panic!("{}", report.render(false)));
                assert!(Diff::between(&table, &reloaded).is_empty(), "reloading changes what has not changed");
                assert!(!table.routes().is_empty(), "accepted a file that routes nothing");
                finds_its_own_lines(&table);
            }
            (Err(report), Err(again)) => {
                assert_eq!(report.render(false), again.render(false), "the same file has other faults");
                assert!(report.count() > 0 && !report.render(true).is_empty());
                let lines = bytes.iter().filter(|&&byte| byte == b'\n').count() + 1;
                let (line, column) = report.position().unwrap_or((1, 1));
                assert!((1..=lines).contains(&line) && (1..=bytes.len() + 1).contains(&column), "{line}:{column}");
            }
            (first, second) => panic!("{:?}, then {:?}", first.is_ok(), second.is_ok()),
        }
    }
}

/// A line that names one host is found by that host, and leads to its own route.
fn finds_its_own_lines(table: &Table) {
    for (route, pattern) in table.lines().flat_map(|(route, patterns)| patterns.iter().map(move |p| (route, p))) {
        let HostPattern::Exact(name) = &pattern.host else { continue };
        let host = Host::parse(name.as_bytes()).unwrap_or_else(|bad| panic!("{name}: {bad:?}"));
        for behind in ["", "/", "?x"] {
            let target = match pattern.path.as_deref() {
                Some(path) => format!("{path}{behind}"),
                None => format!("/{}", behind.trim_start_matches('/')),
            };
            let found = table.find(Some(&host), target.as_bytes());
            assert!(found.is_some_and(|found| Arc::ptr_eq(found, route)), "{name}{target} leads to {found:?}");
        }
    }
}
