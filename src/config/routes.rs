//! `routes.toml` (or a bouncy `routes.json`) into a [`Table`], or into everything that is wrong with it.
//!
//! Text in, table out; but for [`load`] and [`read`], no file is read but the certificates that the text names. Nothing is resolved,
//! connected to or published here.

use std::net::SocketAddr;
use std::ops::Range;
use std::path::Path;
use std::sync::Arc;

use crate::table::balance::Balance;
use crate::table::https::{Https, Plain};
use crate::table::link::Link;
use crate::table::pattern::{HostPattern, Pattern};
use crate::table::site::{Instance, Rules, Site};
use crate::table::{Action, Route, Table};

use super::keys::{Keys, noted};
use super::link::{self, Links};
use super::node::{Entry, Value};
use super::report::{Problem, Report};
use super::reuse::{self, Known};
use super::text::Text;
use super::{answer, dotted, from_json, from_toml, health, https, rules, sticky};

use instances::Each;

mod instances;

/// Reads and resolves the routes file; gives its bytes too, for the watch to know what is applied.
///
/// # Errors
/// A file that can't be read, and all that [`parse`] finds.
pub fn load(path: &Path, listeners: &[SocketAddr]) -> Result<(Vec<u8>, Table), Report> {
    let bytes = read(path)?;
    let table = parse(path, &bytes, listeners, None)?;
    Ok((bytes, table))
}

/// Reads the routes file, and no more than that.
///
/// # Errors
/// A file that can't be read.
pub fn read(path: &Path) -> Result<Vec<u8>, Report> {
    super::text::read(path)
}

/// Resolves the content of a routes file. `path` names it in errors, and says by `.json` what it is.
///
/// `listeners` are our own addresses, which no route may lead to. From `previous`, the running table, every
/// backend with an unchanged address is taken over, and every site with unchanged targets; and its certificates.
///
/// # Errors
/// Everything that is wrong with it, each with its place.
pub fn parse(path: &Path, bytes: &[u8], listeners: &[SocketAddr], previous: Option<&Table>) -> Result<Table, Report> {
    let text = Text::new(path, bytes)?;
    let (entries, mut problems) =
        if text.is_json() { from_json::entries(text.content) } else { from_toml::entries(text.content) };
    if entries.is_empty() && problems.is_empty() {
        problems.push(Problem::of_file("the file has no route").help(NOTHING));
    }
    let certificates = previous.map(|table| Arc::clone(table.certificates())).unwrap_or_default();
    let mut resolver = Resolver {
        path,
        text: text.content,
        entries: &entries,
        listeners,
        known: Known::from(previous),
        links: Links::new(path),
        table: Table::with_capacity(entries.len()).with_certificates(certificates),
        problems,
        looked_up: 0,
    };
    resolver.run();
    let Resolver { table, problems, .. } = resolver;
    let leaving = previous.map(|previous| reuse::leaving(previous, &table)).unwrap_or_default();
    let table = table.with_leaving(leaving);
    if problems.is_empty() { Ok(table) } else { Err(Report::new(path, text.content, problems)) }
}

struct Resolver<'a> {
    path: &'a Path,
    text: &'a str,
    entries: &'a [Entry<'a>],
    listeners: &'a [SocketAddr],
    known: Known<'a>,
    links: Links<'a>,
    table: Table,
    problems: Vec<Problem>,
    /// How often the place of a taken pattern was searched for.
    looked_up: usize,
}

/// What a route's table says.
#[derive(Default)]
struct Said<'a> {
    to: Option<&'a Entry<'a>>,
    passthrough: Option<&'a Entry<'a>>,
    also: Option<&'a Entry<'a>>,
    rules: rules::Said<'a>,
    health: Option<&'a Entry<'a>>,
    max_connections: Option<&'a Entry<'a>>,
    link: link::Said<'a>,
    redirect: Option<&'a Entry<'a>>,
    respond: Option<&'a Entry<'a>>,
    https: Https,
    /// Its requests are not in the access log.
    is_silent: bool,
    /// A key that is about TLS which ends here.
    ends_here: Option<&'a Entry<'a>>,
}

impl<'a> Resolver<'a> {
    fn run(&mut self) {
        let (mut line, mut at) = (1_u32, 0);
        for entry in self.entries {
            if self.problems.len() > MOST_PROBLEMS {
                return;
            }
            let begin = entry.key_span.start.clamp(at, self.text.len());
            let breaks = memchr::memchr_iter(b'\n', &self.text.as_bytes()[at..begin]).count();
            line = line.saturating_add(u32::try_from(breaks).unwrap_or(u32::MAX));
            at = begin;
            if dotted::is_host(self.text, entry) {
                dotted::problems(self.text, entry, &mut self.problems);
            } else {
                self.entry(entry, line);
            }
        }
        self.paths_of_connections();
    }

    fn entry(&mut self, entry: &'a Entry<'a>, line: u32) {
        let mut patterns = Vec::with_capacity(1);
        let own = self.pattern(&entry.key, &entry.key_span);
        let (mut https, mut is_logged) = (Https::default(), true);
        let action = match &entry.node.value {
            Value::Table(inner) => {
                let mut said = self.said(inner);
                patterns.extend(own.clone());
                https = std::mem::take(&mut said.https);
                is_logged = !said.is_silent;
                self.also(&said, &mut patterns);
                self.table_action(&said, entry, own.as_ref())
            }
            _ => {
                patterns.extend(own.clone());
                let link = link::Said::default();
                let instances = self.instances(&entry.node, Each { link: &link, check: None, max_connections: None });
                self.site(&Said::default(), own.as_ref(), instances)
            }
        };
        if let Some(Action::PassThrough(_)) = action {
            // Its backend speaks TLS alone.
            https.plain.get_or_insert(Plain::Redirected);
        }
        // A key that is wrong has been said; the rest of the line was read for what else is.
        let (Some(_), Some(action)) = (own, action.or_else(|| self.stand_in())) else {
            return;
        };
        let route = Arc::new(Route { name: entry.key.as_ref().into(), line, action, https, is_logged });
        let mut rest = patterns.as_slice();
        while let Err((index, taken)) = self.table.add(Arc::clone(&route), rest) {
            let skipped = patterns.len() - rest.len();
            self.taken(entry, &patterns[skipped + index], skipped + index, &taken.by);
            rest = &patterns[skipped + index + 1..];
        }
    }

    /// Stands for an action that is wrong, so that its keys still take part in the search for double ones.
    fn stand_in(&self) -> Option<Action> {
        (!self.problems.is_empty()).then(|| Action::Forward(Arc::new(Site::new(Vec::new(), Rules::default()))))
    }

    fn said(&mut self, entries: &'a [Entry<'a>]) -> Said<'a> {
        let mut said = Said::default();
        let hint = |entry: &Entry<'_>| self.hint(entry);
        let mut problems = Vec::new();
        let (path, https) = (self.path, &mut said.https);
        ROUTE.read(entries, &mut problems, hint, |key, entry, problems| match key {
            "https" => {
                https.plain = noted(https::plain(&entry.node), problems);
                said.ends_here = said.ends_here.or((https.plain == Some(Plain::Allowed)).then_some(entry));
            }
            "hsts" => {
                https.hsts = https::hsts(&entry.node, problems);
                said.ends_here = Some(entry);
            }
            "tls" => {
                https.own = https::own(&entry.node, path, problems);
                said.ends_here = Some(entry);
            }
            "passthrough" => said.passthrough = Some(entry),
            "to" => said.to = Some(entry),
            "also" => said.also = Some(entry),
            "health" => said.health = Some(entry),
            "max_connections" => said.max_connections = Some(entry),
            "log" => said.is_silent = noted(entry.node.flag("true or false"), problems) == Some(false),
            "redirect" => said.redirect = Some(entry),
            "respond" => said.respond = Some(entry),
            _ => {
                let _ = said.rules.note(key, entry) || said.link.note(key, entry);
            }
        });
        self.problems.append(&mut problems);
        said
    }

    /// What an unknown key in a route's table may be about.
    fn hint(&self, entry: &Entry<'_>) -> Option<String> {
        let key = entry.key.as_ref();
        if matches!(key, "weight" | "backup") {
            return Some(format!("`{key}` belongs to one target: to = [{{ to = 8001, {key} = … }}]"));
        }
        let host = key.contains(['.', '*', '/'])
            && Pattern::parse(key).is_ok()
            && !dotted::goes_on(self.text, &entry.key_span);
        host.then(|| "lines after a [header] belong to it: move this one above the first [header]".to_owned())
    }

    fn pattern(&mut self, key: &str, span: &Range<usize>) -> Option<Pattern> {
        let pattern = Pattern::parse(key).map_err(|bad| {
            let help = bad.help.map(|help| format!("did you mean \"{help}\"?"));
            Problem::at(span, format!("not a host: {}", bad.what)).maybe_help(help)
        });
        noted(pattern, &mut self.problems)
    }

    fn also(&mut self, said: &Said<'a>, patterns: &mut Vec<Pattern>) {
        let Some(also) = said.also else {
            return;
        };
        let items = also.node.items();
        if items.len() > MOST_ALSO {
            let what = format!("`also` has at most {MOST_ALSO} hosts, not {}", items.len());
            self.problems.push(Problem::at(&also.node.span, what));
            return;
        }
        for item in items {
            let name = item.text("a host").map_err(|problem| problem.help("also = [\"www.example.com\"]"));
            let Some(name) = noted(name, &mut self.problems) else {
                continue;
            };
            patterns.extend(self.pattern(name, &item.span));
        }
    }

    fn table_action(&mut self, said: &Said<'a>, entry: &'a Entry<'a>, own: Option<&Pattern>) -> Option<Action> {
        let mut given = [said.to, said.passthrough, said.redirect, said.respond].into_iter().flatten();
        let Some(first) = given.next() else {
            self.problems.push(
                Problem::at(&entry.key_span, "a route needs one of `to`, `passthrough`, `redirect` and `respond`")
                    .help("to = 8001, for a port on this machine"),
            );
            return None;
        };
        for second in given {
            self.problems.push(
                Problem::at(&second.key_span, format!("`{}` and `{}` in one route", first.key, second.key))
                    .label("either this")
                    .and(&first.key_span, "or this")
                    .help("a route has exactly one of `to`, `passthrough`, `redirect` and `respond`"),
            );
        }
        let mut of_targets = said.rules.all().chain(said.health).chain(said.max_connections).chain(said.link.any());
        while let (None, Some(of_targets)) = (said.to.or(said.passthrough), of_targets.next()) {
            let what = format!("`{}` is for routes with `to`", of_targets.key);
            self.problems.push(Problem::at(&of_targets.key_span, what));
        }
        if let Some(redirect) = said.redirect {
            return answer::redirect(&redirect.node, &mut self.problems).map(Action::Redirect);
        }
        if let Some(respond) = said.respond {
            return answer::respond(&respond.node, &mut self.problems).map(Action::Respond);
        }
        let check = said.health.and_then(|entry| Some((health::read(&entry.node, &mut self.problems)?, &entry.node)));
        let max_connections = said.max_connections.and_then(|entry| instances::most(entry, &mut self.problems));
        let each = Each { link: &said.link, check: check.as_ref(), max_connections };
        let instances = self.instances(&first.node, each);
        match said.to {
            Some(_) => self.site(said, own, instances),
            None => self.pass_through(first, said, own, instances),
        }
    }

    /// A route whose TLS connections are somebody else's.
    fn pass_through(
        &mut self,
        key: &'a Entry<'a>,
        said: &Said<'a>,
        own: Option<&Pattern>,
        instances: Option<Vec<Instance>>,
    ) -> Option<Action> {
        let rules = said.rules.of_connections(&mut self.problems);
        let site = self.known.site(own?, instances?, rules);
        let speaks = |link: &Link| link.tls.is_some() || link.http2;
        if site.instances().iter().any(|instance| speaks(instance.backend.link())) {
            let problem =
                Problem::at(&key.node.span, "what is passed through stays what it is, whatever a target speaks");
            self.problems.push(problem.help("an address alone: passthrough = \"10.0.0.9:443\""));
        }
        let asked = |instance: &Instance| health::fits(instance.health.as_ref()?.check(), true);
        if let Some(why) = site.instances().iter().find_map(asked) {
            self.problems.push(
                Problem::at(&said.health.map_or(&key.node.span, |entry| &entry.node.span).clone(), why)
                    .help("health = \"tcp\""),
            );
        }
        if let Some(key) = said.ends_here {
            let what = format!("`{}` is for connections that end here, and these are passed through", key.key);
            self.problems.push(Problem::at(&key.key_span, what));
        }
        Some(Action::PassThrough(site))
    }

    /// Says which keys have a path though what they cover is a connection, which has none.
    fn paths_of_connections(&mut self) {
        let passes = |route: &Route| matches!(route.action, Action::PassThrough(_));
        let whole: Vec<&HostPattern> = self
            .table
            .lines()
            .filter(|(route, _)| passes(route))
            .flat_map(|(_, patterns)| patterns.iter().map(|pattern| &pattern.host))
            .collect();
        if whole.is_empty() {
            return;
        }
        let mut problems = Vec::new();
        for (route, patterns) in self.table.lines() {
            for pattern in patterns.iter().filter(|pattern| pattern.path.is_some()) {
                let what = match passes(route) {
                    true => "a connection that is passed through has no path",
                    false if whole.contains(&&pattern.host) => {
                        "this host's connections are passed through: nobody sees a path"
                    }
                    false => continue,
                };
                let entry = self.entries.iter().find(|entry| entry.key.as_ref() == &*route.name);
                let span = entry.map_or(0..0, |entry| place(entry, pattern, false));
                problems.push(Problem::at(&span, what).help("name the bare host"));
            }
        }
        self.problems.append(&mut problems);
    }

    fn site(&mut self, said: &Said<'a>, own: Option<&Pattern>, instances: Option<Vec<Instance>>) -> Option<Action> {
        let mut rules = said.rules.of_requests(&mut self.problems);
        if let (Balance::Sticky(sticky), Some(own)) = (&mut rules.balance, own) {
            sticky::of_site(sticky, own, said.also.is_none());
        }
        Some(Action::Forward(self.known.site(own?, instances?, rules)))
    }

    /// Says that a pattern is another route's, and where that one is.
    fn taken(&mut self, entry: &'a Entry<'a>, pattern: &Pattern, index: usize, by: &Route) {
        /// Searching costs a pass over the file; more than these are only counted in the report anyway.
        const MOST_LOOK_UPS: usize = 64;
        let again = place(entry, pattern, index > 0);
        let mut problem = Problem::at(&again, format!("two routes for {pattern}")).label("again");
        self.looked_up += 1;
        if self.looked_up <= MOST_LOOK_UPS {
            let first = self
                .entries
                .iter()
                .filter(|other| other.key.as_ref() == &*by.name)
                .map(|other| place(other, pattern, false))
                .find(|first| *first != again);
            if let Some(first) = first {
                problem = problem.and(&first, "first here");
            }
        }
        self.problems.push(problem.help("put all targets of a host into one route, as [8001, 8002]"));
    }
}

/// Where an entry names a pattern: in its key, or in `also`.
fn place(entry: &Entry<'_>, pattern: &Pattern, in_also: bool) -> Range<usize> {
    let is_it = |text: &str| Pattern::parse(text).is_ok_and(|other| other == *pattern);
    if !in_also && is_it(&entry.key) {
        return entry.key_span.clone();
    }
    let Value::Table(inner) = &entry.node.value else {
        return entry.key_span.clone();
    };
    let mut items = inner.iter().filter(|inner| inner.key == "also").flat_map(|also| also.node.items());
    let found = if in_also {
        items.rfind(|item| matches!(&item.value, Value::String(text) if is_it(text)))
    } else {
        items.find(|item| matches!(&item.value, Value::String(text) if is_it(text)))
    };
    found.map_or_else(|| entry.key_span.clone(), |item| item.span.clone())
}

/// What a route's table may say.
const ROUTE: Keys = Keys {
    of: "a route",
    known: &[
        "to",
        "passthrough",
        "also",
        "log",
        "balance",
        "health",
        "wait",
        "slow_start",
        "max_connections",
        "retries",
        "send_proxy",
        "http2",
        "ca",
        "server_name",
        "client_cert",
        "client_key",
        "insecure",
        "redirect",
        "respond",
        "https",
        "hsts",
        "tls",
    ],
    later: &["headers", "auth"],
};

/// The most further hosts of one route.
const MOST_ALSO: usize = 10_000;

/// After so many problems nobody reads on.
const MOST_PROBLEMS: usize = 10_000;

/// How to say "nothing" on purpose.
const NOTHING: &str = "to serve nothing on purpose, say so: \"*\" = { respond = { status = 404 } }";

#[cfg(test)]
#[path = "routes_tests.rs"]
mod tests;
