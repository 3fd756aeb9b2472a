//! Where a host goes: an immutable snapshot of everything that routing needs.
//!
//! Does no IO and knows no file format. A table is built once, published, and replaced whole; what outlives it
//! (a backend's counters, a site's turn) is shared with the next one by the code that builds it.
//!
//! [`Table::find`] costs the same for ten hosts and for a million: one hash look-up for the exact name, at most one
//! for each label of the longest wildcard, and one binary search among the host's paths.

mod arrival;
pub mod backend;
pub mod balance;
pub mod certs;
pub mod duty;
pub mod health;
pub mod https;
pub mod link;
pub(crate) mod named;
mod paths;
pub(crate) mod patience;
pub mod pattern;
pub mod pause;
pub(crate) mod queue;
pub mod retries;
pub mod secure;
pub mod site;
pub(crate) mod standing;
pub mod sticky;
pub mod tally;
pub mod taps;
pub(crate) mod target;

use std::sync::Arc;

use backend::Backend;
use hashbrown::HashMap;
use hashbrown::hash_map::Entry;

use crate::http::host::Host;
use certs::Certificates;
use https::Https;
use paths::Paths;
use pattern::{HostPattern, Pattern};
use site::Site;

/// One line of the routes: what it is called, and what happens to the requests that it covers.
#[derive(Debug)]
pub struct Route {
    /// The line's key as the operator wrote it, for people: `shop.example.com/api/`.
    pub name: Box<str>,
    /// The line of the file that says so, counted from 1; 0 where no file says it.
    pub line: u32,
    /// What happens.
    pub action: Action,
    /// What it says about TLS.
    pub https: Https,
    /// Whether its requests are in the access log.
    pub is_logged: bool,
}

/// What happens to a request that a route covers.
#[derive(Clone, Debug)]
pub enum Action {
    /// It is forwarded to one of the site's instances.
    Forward(Arc<Site>),
    /// A TLS connection that asks for its host goes to one of the site's instances as it is, and no request is seen.
    PassThrough(Arc<Site>),
    /// The client is sent elsewhere.
    Redirect(Redirect),
    /// The client gets this answer.
    Respond(Answer),
}

/// Sends the client elsewhere (RFC 9110 section 15.4).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Redirect {
    /// `301`, `302`, `303`, `307` or `308`.
    pub status: u16,
    /// `https://new.example.com`: without a path the request's own path and query are appended; with one
    /// it is the whole new address.
    pub to: Box<str>,
}

impl Redirect {
    /// The `Location` for a request's target in origin form.
    pub fn location(&self, target: &[u8]) -> Vec<u8> {
        let mut location = self.to.as_bytes().to_vec();
        if !self.has_path() && target != b"*" {
            if target.first() == Some(&b'?') {
                location.push(b'/');
            }
            location.extend_from_slice(target);
        }
        location
    }

    fn has_path(&self) -> bool {
        let behind_scheme = self.to.find("://").map_or(0, |at| at + 3);
        self.to[behind_scheme..].contains(['/', '?', '#'])
    }
}

/// A fixed answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Answer {
    /// 200 to 599.
    pub status: u16,
    /// The `Content-Type` of the body.
    pub content_type: Box<str>,
    /// The body, empty where there is none.
    pub body: Box<[u8]>,
}

/// The routing table.
#[derive(Clone, Debug, Default)]
pub struct Table {
    exact: HashMap<Box<str>, Paths>,
    /// Keyed by what stands behind `*.`.
    below: HashMap<Box<str>, Paths>,
    /// The most labels that a key of `below` has: no longer suffix is worth a look-up.
    deepest: usize,
    any: Option<Paths>,
    routes: Vec<Arc<Route>>,
    /// Of each route, in the same order.
    patterns: Vec<Box<[Pattern]>>,
    certificates: Arc<Certificates>,
    leaving: Vec<Leaving>,
}

/// A backend that no route names any more. Requests may still be with it.
#[derive(Clone, Debug)]
pub struct Leaving {
    /// The key of the line that named it last.
    pub site: Box<str>,
    /// Which one.
    pub backend: Arc<Backend>,
}

/// A pattern that an earlier route already has.
#[derive(Debug)]
pub struct Taken {
    /// The route that has it.
    pub by: Arc<Route>,
}

impl Table {
    /// An empty table, which finds nothing.
    pub fn new() -> Self {
        Self::default()
    }

    /// Room for so many exact hosts.
    pub fn with_capacity(hosts: usize) -> Self {
        Self { exact: HashMap::with_capacity(hosts), ..Self::default() }
    }

    /// Adds a route under each of its patterns: its own and those of `also`.
    ///
    /// # Errors
    /// The first pattern that is already taken, with its index. The table is then to be thrown away.
    pub fn add(&mut self, route: Arc<Route>, patterns: &[Pattern]) -> Result<(), (usize, Taken)> {
        for (index, pattern) in patterns.iter().enumerate() {
            let paths = match &pattern.host {
                HostPattern::Exact(name) => entry(&mut self.exact, name),
                HostPattern::Below(suffix) => {
                    self.deepest = self.deepest.max(suffix.split('.').count());
                    entry(&mut self.below, suffix)
                }
                HostPattern::Any => self.any.get_or_insert_default(),
            };
            if let Err(by) = paths.add(pattern.path.as_deref(), &route) {
                return Err((index, Taken { by }));
            }
        }
        self.routes.push(route);
        self.patterns.push(patterns.into());
        Ok(())
    }

    /// The most specific route that covers a host and a path: the exact host, then the longest wildcard suffix,
    /// then `*`; within that host the longest path prefix. A host with paths but without a bare line covers nothing
    /// else: it does not fall to `*`.
    ///
    /// `path` is a target in origin form (`/x?y`) or `*`; a request without a host (HTTP/1.0) can only be covered by `*`.
    pub fn find(&self, host: Option<&Host>, path: &[u8]) -> Option<&Arc<Route>> {
        self.paths_of(host)?.find(path)
    }

    fn paths_of(&self, host: Option<&Host>) -> Option<&Paths> {
        let Some(host) = host else {
            return self.any.as_ref();
        };
        if let Some(paths) = self.exact.get(host.name()) {
            return Some(paths);
        }
        if !self.below.is_empty() && !host.name().starts_with('[') {
            let labels = memchr::memchr_iter(b'.', host.name().as_bytes()).count() + 1;
            for (index, dot) in memchr::memchr_iter(b'.', host.name().as_bytes()).enumerate() {
                if labels - (index + 1) > self.deepest {
                    continue;
                }
                if let Some(paths) = self.below.get(&host.name()[dot + 1..]) {
                    return Some(paths);
                }
            }
        }
        self.any.as_ref()
    }

    /// The route that passes on the TLS connections of clients that ask for this host, or for none, if one does.
    pub fn pass_through(&self, host: Option<&Host>) -> Option<&Arc<Route>> {
        // A connection has no path.
        self.find(host, b"/").filter(|route| matches!(route.action, Action::PassThrough(_)))
    }

    /// Every route, in the order of the file.
    pub fn routes(&self) -> &[Arc<Route>] {
        &self.routes
    }

    /// Every route with its patterns, its own first and then those of `also`, in the order of the file.
    pub fn lines(&self) -> impl ExactSizeIterator<Item = (&Arc<Route>, &[Pattern])> {
        self.routes.iter().zip(self.patterns.iter().map(AsRef::as_ref))
    }

    /// The certificates that are published with it.
    pub fn certificates(&self) -> &Arc<Certificates> {
        &self.certificates
    }

    /// The same routes with these certificates.
    #[must_use]
    pub fn with_certificates(mut self, certificates: Arc<Certificates>) -> Self {
        self.certificates = certificates;
        self
    }

    /// Remembers who has left.
    #[must_use]
    pub(crate) fn with_leaving(mut self, leaving: Vec<Leaving>) -> Self {
        self.leaving = leaving;
        self
    }

    /// The backends that the routes have come to name no more, until they have no requests.
    pub fn leaving(&self) -> impl Iterator<Item = &Leaving> {
        self.leaving.iter().filter(|leaving| leaving.backend.in_flight() > 0)
    }

    /// The same, also those that had no requests when the table was built: they may have got one since.
    pub(crate) fn left(&self) -> &[Leaving] {
        &self.leaving
    }

    /// The backends that are given by a name, once each time that a site has one.
    pub(crate) fn named_backends(&self) -> impl Iterator<Item = &Arc<Backend>> {
        let instances = self.sites().flat_map(|site| site.instances());
        instances.map(|instance| &instance.backend).filter(|backend| backend.named().is_some())
    }

    /// Every site that something is forwarded to, once each time that a route names it.
    pub fn sites(&self) -> impl Iterator<Item = &Arc<Site>> {
        self.routes.iter().filter_map(|route| match &route.action {
            Action::Forward(site) | Action::PassThrough(site) => Some(site),
            Action::Redirect(_) | Action::Respond(_) => None,
        })
    }
}

fn entry<'a>(map: &'a mut HashMap<Box<str>, Paths>, key: &str) -> &'a mut Paths {
    match map.entry(key.into()) {
        Entry::Occupied(paths) => paths.into_mut(),
        Entry::Vacant(room) => room.insert(Paths::default()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn table(keys: &[&str]) -> Table {
        let mut table = Table::new();
        for key in keys {
            let answer = Answer { status: 200, content_type: "text/plain".into(), body: Box::default() };
            let route = Arc::new(Route {
                name: (*key).into(),
                line: 0,
                action: Action::Respond(answer),
                https: Https::default(),
                is_logged: true,
            });
            table.add(route, &[Pattern::parse(key).unwrap()]).unwrap();
        }
        table
    }

    fn found<'t>(table: &'t Table, host: &str, path: &str) -> Option<&'t str> {
        let host = Host::parse(host.as_bytes()).unwrap();
        table.find(Some(&host), path.as_bytes()).map(|route| &*route.name)
    }

    #[test]
    fn most_specific_wins_in_every_order_of_lines() {
        let keys = ["*.w.test", "x.w.test", "*.x.w.test"];
        for order in [[0, 1, 2], [0, 2, 1], [1, 0, 2], [1, 2, 0], [2, 0, 1], [2, 1, 0]] {
            let table = table(&order.map(|i: usize| keys[i]));
            assert_eq!(found(&table, "x.w.test", "/"), Some("x.w.test"));
            assert_eq!(found(&table, "q.x.w.test", "/"), Some("*.x.w.test"));
            assert_eq!(found(&table, "a.b.x.w.test", "/"), Some("*.x.w.test"));
            assert_eq!(found(&table, "q.w.test", "/"), Some("*.w.test"));
            assert_eq!(found(&table, "a.b.w.test", "/"), Some("*.w.test"), "a wildcard covers any depth");
            assert_eq!(found(&table, "w.test", "/"), None, "and not the name itself");
            assert_eq!(found(&table, "xw.test", "/"), None);
        }
    }

    #[test]
    fn paths_end_on_segment_borders_and_the_longest_wins() {
        let table = table(&["a.test", "a.test/api/", "a.test/api/v2", "a.test/api-docs", "b.test/only"]);
        for (path, want) in [
            ("/", "a.test"),
            ("/api", "a.test/api/"),
            ("/api/", "a.test/api/"),
            ("/api?x=/api/v2", "a.test/api/"),
            ("/api/v2", "a.test/api/v2"),
            ("/api/v2/x", "a.test/api/v2"),
            ("/api/v20", "a.test/api/"),
            ("/apix", "a.test"),
            ("/api-docs", "a.test/api-docs"),
            ("/api-docs/x", "a.test/api-docs"),
            ("//api", "a.test"),
            ("/API", "a.test"),
            ("*", "a.test"),
        ] {
            assert_eq!(found(&table, "a.test", path), Some(want), "{path}");
        }
        assert_eq!(found(&table, "b.test", "/only/x"), Some("b.test/only"));
        assert_eq!(found(&table, "b.test", "/else"), None);
    }

    #[test]
    fn a_host_with_paths_only_does_not_fall_to_any() {
        let table = table(&["*", "b.test/only", "*.w.test/p"]);
        assert_eq!(found(&table, "b.test", "/else"), None);
        assert_eq!(found(&table, "q.w.test", "/else"), None);
        assert_eq!(found(&table, "c.test", "/else"), Some("*"));
        assert_eq!(table.find(None, b"/").map(|r| &*r.name), Some("*"));
    }

    #[test]
    fn ipv6_literals_are_hosts_like_any_other() {
        let table = table(&["[2001:db8::1]", "*"]);
        assert_eq!(found(&table, "[2001:db8::1]", "/"), Some("[2001:db8::1]"));
        assert_eq!(found(&table, "[2001:DB8:0:0::1]:8080", "/"), Some("[2001:db8::1]"));
        assert_eq!(found(&table, "[2001:db8::2]", "/"), Some("*"));
    }

    #[test]
    fn two_keys_for_one_host_are_found_out() {
        let mut table = table(&["a.test", "", "a.test/x"]);
        for again in ["A.TEST.", "*", "a.test/x/"] {
            let answer = Answer { status: 200, content_type: "text/plain".into(), body: Box::default() };
            let route = Arc::new(Route {
                name: again.into(),
                line: 0,
                action: Action::Respond(answer),
                https: Https::default(),
                is_logged: true,
            });
            assert!(table.add(route, &[Pattern::parse(again).unwrap()]).is_err(), "{again}");
        }
    }

    #[test]
    fn a_redirect_keeps_path_and_query_unless_it_names_a_path() {
        let to = |to: &str| Redirect { status: 308, to: to.into() };
        assert_eq!(to("https://n.test").location(b"/x?y"), b"https://n.test/x?y");
        assert_eq!(to("https://n.test:8443").location(b"/"), b"https://n.test:8443/");
        assert_eq!(to("https://[::1]:8443").location(b"/x"), b"https://[::1]:8443/x");
        assert_eq!(to("https://n.test/").location(b"/x?y"), b"https://n.test/");
        assert_eq!(to("https://n.test/new").location(b"/x?y"), b"https://n.test/new");
        assert_eq!(to("https://n.test").location(b"?y"), b"https://n.test/?y");
        assert_eq!(to("https://n.test").location(b"*"), b"https://n.test");
    }
}
