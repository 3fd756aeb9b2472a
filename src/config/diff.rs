//! What a save changes, for people: one block, from two tables.

use std::fmt::{self, Write};
use std::time::Duration;

use hashbrown::HashMap;

use crate::table::backend::Address;
use crate::table::balance::Balance;
use crate::table::certs::{Certificate, Certificates};
use crate::table::health::Probe;
use crate::table::https::{Https, Plain};
use crate::table::link::ProxyVersion;
use crate::table::pattern::Pattern;
use crate::table::retries::Retries;
use crate::table::secure::Roots;
use crate::table::site::{Instance, Site};
use crate::table::sticky::{SameSite, Sticky};
use crate::table::{Action, Answer, Route, Table};

use super::certs::day;

/// The changes from one table to the next, in the order of the new file; what is gone comes last.
#[derive(Debug, Default)]
pub struct Diff {
    changes: Vec<Change>,
    /// How many more there are than are kept.
    more: usize,
}

#[derive(Debug, PartialEq, Eq)]
enum Change {
    Added { name: String, now: String },
    Changed { name: String, what: String },
    Removed { name: String },
}

/// More changes than this are only counted.
const MOST_SHOWN: usize = 50;

/// A block wider than this, in characters, takes a line for each change.
const WIDEST: usize = 110;

/// The most characters of a body or of one side of a change.
const LONGEST: usize = 120;

type Line<'t> = (&'t Route, &'t [Pattern]);

impl Diff {
    /// Compares two tables by what their lines cover: a line that moved or is spelled in another way has not changed.
    pub fn between(old: &Table, new: &Table) -> Self {
        let mut gone: HashMap<&Pattern, Line<'_>> =
            lines(old).filter_map(|line| Some((line.1.first()?, line))).collect();
        let mut diff = Self::default();
        for (route, patterns) in lines(new) {
            let before = patterns.first().and_then(|first| gone.remove(first));
            let name = shown_name(route);
            match before {
                None => diff.push(|| Change::Added { name, now: format!("→ {}", described(route, patterns)) }),
                Some(before) => {
                    if let Some(what) = changed(before, (route, patterns)) {
                        diff.push(|| Change::Changed { name, what });
                    }
                }
            }
        }
        for (route, patterns) in lines(old) {
            if patterns.first().is_some_and(|first| gone.contains_key(first)) {
                diff.push(|| Change::Removed { name: shown_name(route) });
            }
        }
        diff
    }

    /// Compares the certificates that are shown, by the names that they are for.
    pub fn of_certificates(old: &Certificates, new: &Certificates) -> Self {
        let mut gone: HashMap<&[Box<str>], &Certificate> =
            old.shown().map(|certificate| (certificate.names(), &**certificate)).collect();
        let mut diff = Self::default();
        for now in new.shown() {
            let name = shortened(&now.names().join(", "));
            match gone.remove(now.names()) {
                None => diff.push(|| Change::Added { name, now: until(now) }),
                Some(before) if before.is_same(now) => {}
                Some(before) => diff.push(|| {
                    let before = day(before.not_after());
                    Change::Changed { name, what: format!("until {before} → {}", until(now)) }
                }),
            }
        }
        for before in old.shown().filter(|before| gone.contains_key(before.names())) {
            diff.push(|| Change::Removed { name: shortened(&before.names().join(", ")) });
        }
        diff
    }

    /// Whether nothing has changed.
    pub fn is_empty(&self) -> bool {
        self.changes.is_empty()
    }

    /// How many lines have changed.
    pub fn count(&self) -> usize {
        self.changes.len() + self.more
    }

    /// The whole block: `routes.toml changed: …` in one line where it fits, else a line for each change.
    pub fn block(&self, file: &str) -> String {
        if self.is_empty() {
            return format!("{file}: nothing changed");
        }
        let line = format!("{file} changed: {}", self.parts().join("   "));
        if line.chars().count() <= WIDEST {
            return line;
        }
        format!("{file} changed:\n  {}", self.parts().join("\n  "))
    }

    fn push(&mut self, change: impl FnOnce() -> Change) {
        if self.changes.len() < MOST_SHOWN {
            self.changes.push(change());
        } else {
            self.more += 1;
        }
    }

    fn parts(&self) -> Vec<String> {
        let mut parts: Vec<String> = self.changes.iter().map(ToString::to_string).collect();
        if self.more > 0 {
            parts.push(format!("… and {} more", self.more));
        }
        parts
    }
}

impl fmt::Display for Diff {
    /// The changes in one line where they fit, else one line for each.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let parts = self.parts();
        let line = parts.join("   ");
        f.write_str(&if line.chars().count() <= WIDEST { line } else { parts.join("\n") })
    }
}

impl fmt::Display for Change {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Added { name, now } => write!(f, "+ {name} {now}"),
            Self::Changed { name, what } => write!(f, "~ {name} {what}"),
            Self::Removed { name } => write!(f, "- {name}"),
        }
    }
}

fn lines(table: &Table) -> impl Iterator<Item = Line<'_>> {
    table.lines().map(|(route, patterns)| (route.as_ref(), patterns))
}

fn shown_name(route: &Route) -> String {
    match &*route.name {
        "" => "\"\"".to_owned(),
        name => shortened(name),
    }
}

fn described(route: &Route, patterns: &[Pattern]) -> String {
    let mut text = describe(&route.action);
    let https = describe_https(&route.https);
    if !https.is_empty() {
        let _ = write!(text, ", {https}");
    }
    if !route.is_logged {
        text.push_str(", not logged");
    }
    for also in patterns.iter().skip(1).take(8) {
        let _ = write!(text, ", also {also}");
    }
    shortened(&text)
}

/// What differs between two lines for the same host; `None` when nothing does.
fn changed(before: Line<'_>, after: Line<'_>) -> Option<String> {
    let mut what = Vec::new();
    if !same_action(&before.0.action, &after.0.action) {
        let (old, new) = (shortened(&describe(&before.0.action)), shortened(&describe(&after.0.action)));
        what.push(if old == new { format!("→ {new}, changed within") } else { format!("{old} → {new}") });
    }
    if before.0.https != after.0.https {
        let said = |route: &Route| match describe_https(&route.https) {
            text if text.is_empty() => "https as it comes".to_owned(),
            text => text,
        };
        what.push(shortened(&format!("{} → {}", said(before.0), said(after.0))));
    }
    if before.0.is_logged != after.0.is_logged {
        what.push(if after.0.is_logged { "logged" } else { "not logged" }.to_owned());
    }
    let (old, new) = (before.1.get(1..).unwrap_or_default(), after.1.get(1..).unwrap_or_default());
    let also = |sign: char, of: &[Pattern], without: &[Pattern]| -> Vec<String> {
        let without: hashbrown::HashSet<&Pattern> = without.iter().collect();
        of.iter().filter(|pattern| !without.contains(pattern)).map(|pattern| format!("{sign}{pattern}")).collect()
    };
    let names = [also('+', new, old), also('-', old, new)].concat();
    if !names.is_empty() {
        what.push(shortened(&format!("also {}", names.join(" "))));
    }
    (!what.is_empty()).then(|| what.join(", "))
}

/// `until 2027-02-01 (certs/apps.pem)`
fn until(certificate: &Certificate) -> String {
    let file = certificate.files().first().map(|file| format!(" ({})", file.display())).unwrap_or_default();
    format!("until {}{file}", day(certificate.not_after()))
}

fn same_action(old: &Action, new: &Action) -> bool {
    match (old, new) {
        (Action::Forward(old), Action::Forward(new)) | (Action::PassThrough(old), Action::PassThrough(new)) => {
            std::sync::Arc::ptr_eq(old, new) || same_site(old, new)
        }
        (Action::Redirect(old), Action::Redirect(new)) => old == new,
        (Action::Respond(old), Action::Respond(new)) => old == new,
        _ => false,
    }
}

fn same_site(old: &Site, new: &Site) -> bool {
    old.rules() == new.rules()
        && old.instances().len() == new.instances().len()
        && old.instances().iter().zip(new.instances()).all(|(old, new)| {
            old.backend.address() == new.backend.address()
                && old.backend.link() == new.backend.link()
                && old.weight == new.weight
                && old.backup == new.backup
                && old.max_connections == new.max_connections
                && old.health.as_ref().map(|health| health.check()) == new.health.as_ref().map(|health| health.check())
        })
}

/// What a route does, in few words: `8011, 10.0.0.8:8011 (weight 2), 8013 (backup)`.
pub fn describe(action: &Action) -> String {
    match action {
        Action::Forward(site) => describe_site(site),
        Action::PassThrough(site) => format!("passthrough {}", describe_site(site)),
        Action::Redirect(redirect) => format!("redirect {} {}", redirect.status, redirect.to),
        Action::Respond(answer) => describe_answer(answer),
    }
}

fn describe_site(site: &Site) -> String {
    let targets: Vec<String> = site
        .instances()
        .iter()
        .map(|instance| {
            let (backend, traits) = (&instance.backend, traits(instance).join(", "));
            if traits.is_empty() { backend.to_string() } else { format!("{backend} ({traits})") }
        })
        .collect();
    let balance = match site.balance() {
        Balance::RoundRobin => String::new(),
        Balance::LeastConnections => " by least-connections".to_owned(),
        Balance::RandomTwo => " by random-two".to_owned(),
        Balance::Hash(by) => format!(" by hash of {by}"),
        Balance::Sticky(sticky) => format!(" by the session's cookie {}{}", sticky.cookie, described_sticky(sticky)),
    };
    let wait = match site.rules().wait {
        Duration::ZERO => String::new(),
        wait => format!(", waits {}", humantime::format_duration(wait)),
    };
    let slow_start = match site.rules().slow_start {
        Duration::ZERO => String::new(),
        time => format!(", slow start {}", humantime::format_duration(time)),
    };
    let retries = site.rules().retries.as_deref().map(describe_retries).unwrap_or_default();
    format!("{}{balance}{wait}{slow_start}{retries}", targets.join(", "))
}

/// `, tried 3 times on connect, reset, 503`
fn describe_retries(retries: &Retries) -> String {
    let named = [(retries.connect, "connect"), (retries.reset, "reset"), (retries.timeout, "timeout")];
    let named = named.into_iter().filter(|(on, _)| *on).map(|(_, name)| name.to_owned());
    let on: Vec<String> = named.chain(retries.statuses.iter().map(ToString::to_string)).collect();
    let mut text = format!(", tried {} times on {}", retries.tries, on.join(", "));
    if let Some(methods) = &retries.methods {
        let _ = write!(text, " for {}", methods.join(", "));
    }
    if retries.budget != Retries::default().budget {
        let _ = write!(text, " within {} %", retries.budget);
    }
    text
}

/// What is said of sessions beside the cookie's name.
fn described_sticky(sticky: &Sticky) -> String {
    let mut text = String::new();
    match sticky.then {
        Balance::LeastConnections => text.push_str(", a new one by least-connections"),
        Balance::RandomTwo => text.push_str(", a new one by random-two"),
        Balance::RoundRobin | Balance::Hash(_) | Balance::Sticky(_) => {}
    }
    if let Some(age) = sticky.max_age {
        let _ = write!(text, ", for {}", humantime::format_duration(age));
    }
    match sticky.same_site {
        SameSite::Lax => {}
        SameSite::Strict => text.push_str(", same_site strict"),
        SameSite::None => text.push_str(", same_site none"),
    }
    if let Some(secure) = sticky.secure {
        text.push_str(if secure { ", secure" } else { ", not secure" });
    }
    text
}

/// What is said of an instance behind its target.
fn traits(instance: &Instance) -> Vec<String> {
    let mut traits = Vec::new();
    if instance.weight != 1 {
        traits.push(format!("weight {}", instance.weight));
    }
    if instance.backup {
        traits.push("backup".to_owned());
    }
    traits.extend(instance.max_connections.map(|most| format!("max_connections {most}")));
    if let Some(health) = &instance.health {
        traits.push(match &health.check().probe {
            Probe::Tcp => "checked by tcp".to_owned(),
            Probe::Http { method, path, .. } => format!("checked by {method} {path}"),
        });
    }
    match instance.backend.link().send_proxy {
        None => {}
        Some(ProxyVersion::V1) => traits.push("send_proxy v1".to_owned()),
        Some(ProxyVersion::V2) => traits.push("send_proxy v2".to_owned()),
    }
    let link = instance.backend.link();
    if link.http2 && (link.tls.is_some() || matches!(instance.backend.address(), Address::Unix(_))) {
        traits.push("http2".to_owned());
    }
    if let Some(tls) = &instance.backend.link().tls {
        let own_name = match instance.backend.address() {
            Address::Port(_) => "localhost".to_owned(),
            Address::Socket(address) => address.ip().to_string(),
            Address::Name(name, _) => name.to_string(),
            Address::Unix(_) => String::new(),
        };
        if tls.server_name().trim_matches(['[', ']']) != own_name {
            traits.push(format!("server_name {}", tls.server_name()));
        }
        if let Roots::File { path, .. } = &tls.wanted().roots {
            traits.push(format!("ca {path}"));
        }
        if let Some(identity) = &tls.wanted().identity {
            traits.push(format!("client_cert {}", identity.path));
        }
        if tls.is_insecure() {
            traits.push("insecure".to_owned());
        }
    }
    traits
}

/// What a route says about TLS; empty where it says nothing.
fn describe_https(https: &Https) -> String {
    let plain = https.plain.map(|plain| match plain {
        Plain::Redirected => "https redirect".to_owned(),
        Plain::Allowed => "https allow".to_owned(),
        Plain::Refused => "https only".to_owned(),
    });
    let hsts = https.hsts.as_ref().map(|value| format!("hsts {value}"));
    let own = https.own.as_ref().map(|own| format!("certificate {}", own.cert.display()));
    [plain, hsts, own].into_iter().flatten().collect::<Vec<_>>().join(", ")
}

fn describe_answer(answer: &Answer) -> String {
    let mut text = format!("respond {}", answer.status);
    if !answer.body.is_empty() {
        let body = String::from_utf8_lossy(&answer.body);
        let short: String = body.chars().take(32).collect();
        let more = if short.len() < body.len() { "…" } else { "" };
        let _ = write!(text, " {short:?}{more}");
    }
    if &*answer.content_type != "text/plain; charset=utf-8" {
        let _ = write!(text, " as {}", answer.content_type);
    }
    text
}

fn shortened(text: &str) -> String {
    let text: String = text.chars().map(|c| if c.is_control() { ' ' } else { c }).collect();
    match text.char_indices().nth(LONGEST) {
        Some((at, _)) => format!("{}…", &text[..at]),
        None => text,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::Path;

    fn table(text: &str) -> Table {
        crate::config::routes::parse(Path::new("routes.toml"), text.as_bytes(), &[], None)
            .unwrap_or_else(|report| panic!("{report}"))
    }

    fn block(old: &str, new: &str) -> String {
        Diff::between(&table(old), &table(new)).block("routes.toml")
    }

    #[test]
    fn a_short_change_is_one_line() {
        let old = "\"shop.example.com\" = 8011\n\"old.example.com\" = 8001\n\"same.test\" = 1\n";
        let new =
            "\"blog.example.com\" = 8003\n\"shop.example.com\" = [8011, 8012]\n\"SAME.test.\" = \"localhost:1\"\n";
        assert_eq!(
            block(old, new),
            "routes.toml changed: + blog.example.com → 8003   ~ shop.example.com 8011 → 8011, 8012   - old.example.com"
        );
        assert!(Diff::between(&table(old), &table(old)).is_empty());
    }

    #[test]
    fn everything_that_a_line_can_say_is_compared() {
        for (old, new, want) in [
            ("8001", "{ to = [{ to = 8001, weight = 2 }, 8002] }", "~ a 8001 → 8001 (weight 2), 8002"),
            ("[1, 2]", "{ to = [1, { to = 2, backup = true }] }", "~ a 1, 2 → 1, 2 (backup)"),
            ("[1, 2]", "{ to = [1, 2], balance = \"least-connections\" }", "~ a 1, 2 → 1, 2 by least-connections"),
            (
                "[1, 2]",
                "{ to = [1, { to = 2, max_connections = 5 }], max_connections = 9 }",
                "~ a 1, 2 → 1 (max_connections 9), 2 (max_connections 5)",
            ),
            ("[1, 2]", "{ to = [1, 2], slow_start = \"30s\" }", "~ a 1, 2 → 1, 2, slow start 30s"),
            (
                "[1, 2]",
                "{ to = [1, 2], balance = { sticky = { cookie = \"s\", then = \"random-two\", max_age = \"1h\" } } }",
                "~ a 1, 2 → 1, 2 by the session's cookie s, a new one by random-two, for 1h",
            ),
            ("{ to = 1, https = \"redirect\" }", "{ passthrough = 1 }", "~ a 1 → passthrough 1"),
            ("1", "{ to = 1, health = \"/up\", wait = \"10s\" }", "~ a 1 → 1 (checked by GET /up), waits 10s"),
            ("[1, 2]", "{ to = [1, 2], balance = \"random-two\" }", "~ a 1, 2 → 1, 2 by random-two"),
            (
                "{ to = [1, 2], balance = \"hash\" }",
                "{ to = [1, 2], balance = { hash = \"cookie:uid\" } }",
                "~ a 1, 2 by hash of the client's address → 1, 2 by hash of the cookie uid",
            ),
            ("1", "{ redirect = \"https://b.test\" }", "~ a 1 → redirect 308 https://b.test"),
            (
                "{ respond = { status = 410, body = \"gone\" } }",
                "{ respond = { status = 410 } }",
                "~ a respond 410 \"gone\" → respond 410",
            ),
            ("{ to = 1, also = [\"b\", \"c\"] }", "{ to = 1, also = [\"c\", \"d\"] }", "~ a also +d -b"),
            ("1", "{ to = 2, also = [\"b\"] }", "~ a 1 → 2, also +b"),
            ("1", "{ to = 1, send_proxy = \"v2\" }", "~ a 1 → 1 (send_proxy v2)"),
            ("1", "\"https://localhost:1\"", "~ a 1 → https://localhost:1"),
            (
                "\"https://10.0.0.7\"",
                "{ to = \"https://10.0.0.7\", server_name = \"b.test\", insecure = true }",
                "~ a https://10.0.0.7:443 → https://10.0.0.7:443 (server_name b.test, insecure)",
            ),
            ("1", "\"unix:/run/app.sock\"", "~ a 1 → unix:/run/app.sock"),
        ] {
            let got = Diff::between(&table(&format!("a = {old}")), &table(&format!("a = {new}")));
            assert_eq!(got.to_string(), want);
        }
        let (old, new) = (format!("{}1", "x".repeat(99)), format!("{}2", "x".repeat(99)));
        let body = |body: &str| table(&format!("a = {{ respond = {{ status = 200, body = \"{body}\" }} }}"));
        assert!(Diff::between(&body(&old), &body(&new)).to_string().ends_with("changed within"));
    }

    #[test]
    fn a_wide_change_takes_a_line_each_and_a_huge_one_is_cut() {
        let lines = |count: usize| (0..count).map(|i| format!("\"host-{i}.example.com\" = 8001\n")).collect::<String>();
        let got = block("\"x.test\" = 1", &lines(4));
        let want = "routes.toml changed:
  + host-0.example.com → 8001
  + host-1.example.com → 8001
  + host-2.example.com → 8001
  + host-3.example.com → 8001
  - x.test";
        assert_eq!(got, want);
        let got = block("\"x.test\" = 1", &lines(1000));
        assert_eq!(got.lines().count(), 52);
        assert!(got.ends_with("\n  … and 951 more"), "{got}");
    }
}
