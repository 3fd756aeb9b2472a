//! A site, and an instance of it, by what people call them.

use std::sync::Arc;

use crate::table::pattern::Pattern;
use crate::table::site::{Instance, Site};
use crate::table::{Action, Route, Table};

/// How many names are listed where one is not found.
const MOST_LISTED: usize = 12;

/// A line of the routes that has instances.
#[derive(Clone, Copy, Debug)]
pub(super) struct Line<'t> {
    pub(super) route: &'t Route,
    pub(super) patterns: &'t [Pattern],
    pub(super) site: &'t Arc<Site>,
}

/// The lines that have instances.
pub(super) fn lines(table: &Table) -> impl Iterator<Item = Line<'_>> {
    table.lines().filter_map(|(route, patterns)| match &route.action {
        Action::Forward(site) | Action::PassThrough(site) => Some(Line { route, patterns, site }),
        Action::Redirect(_) | Action::Respond(_) => None,
    })
}

/// The line with this key, or with this name in its `also`, compared as the file's keys are.
pub(super) fn line<'t>(table: &'t Table, name: &str) -> Result<Line<'t>, String> {
    let pattern = Pattern::parse(name).map_err(|bad| format!("{name}: not a site: {}", bad.what))?;
    let mut found = lines(table);
    found.find(|line| line.patterns.contains(&pattern)).ok_or_else(|| {
        let all: Vec<&str> = lines(table).map(|line| &*line.route.name).collect();
        let named = table.lines().any(|(_, patterns)| patterns.contains(&pattern));
        match named {
            true => format!("{name} has no instances: it is answered here"),
            false => format!("no site {name}; there {}", listed(&all)),
        }
    })
}

/// The instance that the file or `status` calls so.
pub(super) fn instance<'t>(line: Line<'t>, name: &str) -> Result<&'t Instance, String> {
    let plain = |text: &str| text.strip_prefix("localhost:").unwrap_or(text).to_owned();
    let wanted = plain(name.strip_prefix("http://").unwrap_or(name));
    let found = line.site.instances().iter().find(|instance| {
        let (shown, address) = (instance.backend.to_string(), instance.backend.address().to_string());
        shown == name || address == wanted
    });
    found.ok_or_else(|| {
        let all: Vec<String> = line.site.instances().iter().map(|instance| instance.backend.to_string()).collect();
        let all: Vec<&str> = all.iter().map(String::as_str).collect();
        format!("{} has no instance {name}; there {}", line.route.name, listed(&all))
    })
}

fn listed(all: &[&str]) -> String {
    let more = all.len().saturating_sub(MOST_LISTED);
    let names = all.iter().take(MOST_LISTED).copied().collect::<Vec<_>>().join(", ");
    match (all.len(), more) {
        (0, _) => "is none".to_owned(),
        (1, _) => format!("is {names}"),
        (_, 0) => format!("are {names}"),
        (_, more) => format!("are {names}, and {more} more"),
    }
}
