//! `carom explain URL [ROUTES]`: which route a request would take, which instance it would get, why, and what nearly
//! covers it but doesn't.
//!
//! Asks the same table as the data path; takes no turn and connects to nothing.

use std::fmt::Write as _;
use std::io::Write as _;
use std::process::ExitCode;
use std::time::SystemTime;

use carom::config::certs::day;
use carom::config::diff::describe;
use carom::config::routes;
use carom::http::host::Host;
use carom::table::balance::Balance;
use carom::table::pattern::{HostPattern, Pattern};
use carom::table::{Action, Route, Table};

use super::Serve;
use super::serve::{Told, colors};

/// Explains what happens to a request for a URL: 0 when a route covers it, 1 when none does or a file is wrong.
pub(super) fn run(url: &str, serve: Serve) -> ExitCode {
    let asked = match Asked::parse(url) {
        Ok(asked) => asked,
        Err(what) => {
            let _ = writeln!(std::io::stderr(), "{url}: {what}");
            return ExitCode::FAILURE;
        }
    };
    let told = match Told::by(serve) {
        Ok(told) => told,
        Err(failure) => return failure.exit(),
    };
    match routes::load(&told.routes, &told.addresses()) {
        Ok((_, table)) => {
            let table = match told.certs {
                Some(folder) if asked.tls => {
                    let certificates = folder.store(told.config.default_cert).read(&table, SystemTime::now());
                    table.with_certificates(certificates.certificates)
                }
                _ => table,
            };
            let (text, covered) = explained(&asked, &table, &told.routes.display().to_string());
            let _ = writeln!(std::io::stdout(), "{text}");
            if covered { ExitCode::SUCCESS } else { ExitCode::FAILURE }
        }
        Err(report) => {
            let _ = writeln!(std::io::stderr(), "{}", report.render(colors()));
            ExitCode::FAILURE
        }
    }
}

/// What was asked about.
#[derive(Debug)]
struct Asked {
    host: Host,
    /// With the query, beginning with `/`.
    path: String,
    /// As it was written, where that is not how it is compared.
    spelled: Vec<String>,
    /// It is asked for over TLS.
    tls: bool,
}

/// The most near misses that are said.
const MOST_MISSES: usize = 8;

/// Names that differ in so many letters are alike.
const ALIKE: usize = 2;

impl Asked {
    /// Reads `http://shop.example.com/api/x`, `shop.example.com:8080/api`, `shop.example.com`.
    fn parse(url: &str) -> Result<Self, String> {
        let scheme = url.split_once("://").map_or("", |(scheme, _)| scheme);
        let tls = ["https", "wss"].iter().any(|tls| scheme.eq_ignore_ascii_case(tls));
        let rest = match url.split_once("://") {
            Some((scheme, rest)) if ["http", "https", "ws", "wss"].iter().any(|s| scheme.eq_ignore_ascii_case(s)) => {
                rest
            }
            Some((scheme, _)) => return Err(format!("{scheme}:// is not what carom serves")),
            None => url,
        };
        let rest = rest.split('#').next().unwrap_or(rest);
        let (authority, path) = rest.find(['/', '?']).map_or((rest, ""), |at| rest.split_at(at));
        let path = if path.starts_with('/') { path.to_owned() } else { format!("/{path}") };
        let authority = authority.rsplit('@').next().unwrap_or(authority);
        let mut spelled = Vec::new();
        let ascii = if authority.is_ascii() {
            authority.to_owned()
        } else {
            let (name, port) = authority.split_once(':').map_or((authority, None), |(name, port)| (name, Some(port)));
            let name = idna::domain_to_ascii_strict(name).map_err(|_| "not a name that IDNA allows".to_owned())?;
            spelled.push(format!("a browser sends {name}"));
            port.map_or_else(|| name.clone(), |port| format!("{name}:{port}"))
        };
        let host = Host::parse(ascii.as_bytes()).map_err(|e| format!("no request can name this host: {}", e.0))?;
        let bare = match host.port() {
            Some(port) => {
                spelled.push(format!("the port {port} takes no part in routing"));
                ascii.strip_suffix(&format!(":{port}")).unwrap_or(&ascii)
            }
            None => ascii.trim_end_matches(':'),
        };
        if bare.ends_with('.') {
            spelled.push("the final dot is ignored".to_owned());
        }
        if bare.bytes().any(|b| b.is_ascii_uppercase()) {
            spelled.push("capitals are ignored".to_owned());
        }
        Ok(Self { host, path, spelled, tls })
    }
}

/// The text, and whether a route covers what was asked about. `file` is what the routes file is called.
fn explained(asked: &Asked, table: &Table, file: &str) -> (String, bool) {
    let mut text = format!("{}{}\n", asked.host, asked.path);
    for note in &asked.spelled {
        let _ = writeln!(text, "  note    {note}");
    }
    if asked.tls {
        let _ = writeln!(text, "  shown   {}", shown(asked, table));
    }
    let route = table.find(Some(&asked.host), asked.path.as_bytes());
    match route {
        Some(route) => {
            let name = if route.name.is_empty() { "\"\"" } else { &*route.name };
            let _ = writeln!(text, "  route   {name}   {file}:{}", route.line);
            let _ = writeln!(text, "  does    {}", describe(&route.action));
            if let Some(next) = next(&route.action, asked) {
                let _ = writeln!(text, "  next    {next}");
            }
            let _ = writeln!(text, "  why     {}", why(asked, table, route));
        }
        None => {
            let _ = writeln!(text, "  no route covers it: the client gets 404 no-route");
        }
    }
    for miss in misses(asked, table, route.map(AsRef::as_ref), file).iter().take(MOST_MISSES) {
        let _ = writeln!(text, "  not     {miss}");
    }
    text.truncate(text.trim_end().len());
    (text, route.is_some())
}

/// The certificate that a client is shown.
fn shown(asked: &Asked, table: &Table) -> String {
    let certificates = table.certificates();
    let name = Some(asked.host.name()).filter(|_| !asked.host.is_address());
    if table.pass_through(name.map(|_| &asked.host)).is_some() {
        return "whatever its backend has: the connection is passed through".to_owned();
    }
    let Some(certificate) = certificates.find(name) else {
        return "no certificate: the handshake fails with unrecognized_name".to_owned();
    };
    let default = if certificate.covers(asked.host.name()) { "" } else { ", by default_cert: it is not for this host" };
    let file = certificate.files().first().map(|file| format!("   {}", file.display())).unwrap_or_default();
    format!("{}{file}, until {}{default}", certificate.names().join(", "), day(certificate.not_after()))
}

/// What the next request would get.
fn next(action: &Action, asked: &Asked) -> Option<String> {
    match action {
        Action::Forward(site) | Action::PassThrough(site) => {
            let backend = site.peek().map(|instance| instance.backend.to_string());
            Some(match (backend, site.balance()) {
                (Some(backend), _) if site.instances().len() == 1 => backend,
                (Some(backend), Balance::LeastConnections) => format!("{backend}, when no other has fewer requests"),
                (Some(backend), _) => format!("{backend}, in turn"),
                (None, Balance::Sticky(sticky)) => match sticky.then {
                    Balance::LeastConnections => {
                        format!("the one that the cookie {} names, else the least busy", sticky.cookie)
                    }
                    Balance::RandomTwo => {
                        format!("the one that the cookie {} names, else the better of two", sticky.cookie)
                    }
                    _ => format!("the one that the cookie {} names, else the next in turn", sticky.cookie),
                },
                (None, Balance::Hash(by)) => format!("the one that {by} hashes to"),
                (None, _) => "of two at random, the one with fewer requests".to_owned(),
            })
        }
        Action::Redirect(redirect) => {
            let to = redirect.location(asked.path.as_bytes());
            Some(format!("Location: {}", String::from_utf8_lossy(&to)))
        }
        Action::Respond(_) => None,
    }
}

/// Which of a route's patterns covers it, and how.
fn why(asked: &Asked, table: &Table, route: &Route) -> String {
    let patterns = table.lines().find(|(other, _)| std::ptr::eq(other.as_ref(), route)).map_or(&[][..], |line| line.1);
    let best = patterns
        .iter()
        .filter(|pattern| covers_host(&pattern.host, asked.host.name()) && covers_path(pattern, &asked.path))
        .max_by_key(|pattern| (depth(&pattern.host), pattern.path.as_deref().map_or(0, str::len)));
    let Some(pattern) = best else {
        return "it covers this request".to_owned();
    };
    let host = match &pattern.host {
        HostPattern::Exact(name) => format!("the host is exactly {name}"),
        HostPattern::Below(suffix) => {
            let (own, labels) = (labels(suffix), labels(asked.host.name()));
            format!("*.{suffix} is the longest wildcard that covers it, {} below", plural(labels - own, "label"))
        }
        HostPattern::Any => "no line names this host, so it is for *".to_owned(),
    };
    let also = if patterns.first() == Some(pattern) { "" } else { ", by `also`" };
    match &pattern.path {
        Some(path) => format!("{host}{also}; {path} is its longest path that covers this one"),
        None => format!("{host}{also}"),
    }
}

/// Lines that nearly cover it, with the reason that they don't; the most telling first.
fn misses(asked: &Asked, table: &Table, found: Option<&Route>, file: &str) -> Vec<String> {
    let name = asked.host.name();
    let mut paths = Vec::new();
    let mut hosts = Vec::new();
    let mut alike = Vec::new();
    let names_it = |pattern: &Pattern| matches!(&pattern.host, HostPattern::Exact(own) if **own == *name);
    let named = table.lines().any(|(_, patterns)| patterns.iter().any(names_it));
    for (route, patterns) in table.lines() {
        if found.is_some_and(|found| std::ptr::eq(found, route.as_ref())) {
            continue;
        }
        let place = format!("{file}:{}", route.line);
        for pattern in patterns {
            let host = &pattern.host;
            match (&pattern.path, host) {
                (Some(path), _) if names_it(pattern) || (!named && covers_host(host, name)) => {
                    paths.extend(
                        path_miss(path, asked, found.is_none()).map(|why| format!("{pattern}   {place}   {why}")),
                    );
                }
                (None, HostPattern::Below(suffix)) if **suffix == *name => {
                    hosts.push(format!("{pattern}   {place}   a wildcard does not cover the bare name"));
                }
                (None, HostPattern::Below(suffix)) if covers_host(host, name) => {
                    hosts.push(format!("*.{suffix}   {place}   a more specific line has this host"));
                }
                (None, HostPattern::Any) if named && found.is_none() => {
                    hosts.push(format!(
                        "{pattern}   {place}   a host that has lines of its own, if only for paths, does not fall to *"
                    ));
                }
                (_, HostPattern::Exact(own)) if !named => {
                    if let Some((far, why)) = name_miss(own, name) {
                        alike.push((far, format!("{pattern}   {place}   {why}")));
                    }
                }
                _ => {}
            }
        }
    }
    alike.sort();
    paths.into_iter().chain(hosts).chain(alike.into_iter().map(|(_, miss)| miss)).collect()
}

/// Why a path of the same host does not cover what was asked; `None` when that is plain to see.
fn path_miss(path: &str, asked: &Asked, without_route: bool) -> Option<String> {
    let bare = asked.path.split('?').next().unwrap_or(&asked.path);
    if covers(path, bare) {
        return Some("a longer path covers it".to_owned());
    }
    if bare.starts_with(path) {
        return Some(format!("a path ends on a border: {path} covers {path}/… but not {bare}"));
    }
    if covers(&path.to_ascii_lowercase(), &bare.to_ascii_lowercase()) {
        return Some("capitals count in a path".to_owned());
    }
    if without_route {
        return Some("the host has lines for paths only, and none for this one".to_owned());
    }
    None
}

/// Why another host is not this one, when it nearly is; with how far it is.
fn name_miss(own: &str, name: &str) -> Option<(usize, String)> {
    if own.strip_prefix("www.") == Some(name) {
        return Some((0, "with www. it is another host; `also` names both in one route".to_owned()));
    }
    if name.strip_prefix("www.") == Some(own) {
        return Some((0, "without www. it is another host; `also` names both in one route".to_owned()));
    }
    if name.strip_suffix(own).is_some_and(|front| front.ends_with('.')) {
        return Some((1, "a host does not cover the names below it; *. does".to_owned()));
    }
    let far = strsim::damerau_levenshtein(own, name);
    (far <= ALIKE && name.len() > 2 * ALIKE).then(|| (1 + far, "a similar name".to_owned()))
}

fn covers_host(host: &HostPattern, name: &str) -> bool {
    match host {
        HostPattern::Exact(own) => **own == *name,
        HostPattern::Below(suffix) => {
            !name.starts_with('[') && name.strip_suffix(&**suffix).is_some_and(|front| front.ends_with('.'))
        }
        HostPattern::Any => true,
    }
}

fn covers_path(pattern: &Pattern, path: &str) -> bool {
    let bare = path.split('?').next().unwrap_or(path);
    pattern.path.as_deref().is_none_or(|prefix| covers(prefix, bare))
}

fn covers(prefix: &str, path: &str) -> bool {
    path.strip_prefix(prefix).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
}

/// How specific a host pattern is.
fn depth(host: &HostPattern) -> usize {
    match host {
        HostPattern::Exact(_) => usize::MAX,
        HostPattern::Below(suffix) => labels(suffix),
        HostPattern::Any => 0,
    }
}

fn labels(name: &str) -> usize {
    name.split('.').count()
}

fn plural(number: usize, what: &str) -> String {
    format!("{number} {what}{}", if number == 1 { "" } else { "s" })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::Path;

    const ROUTES: &str = r#"
"shop.example.com" = [8011, 8012]
"shop.example.com/api/" = 8010
"*.apps.example.com" = 9000
"*.example.com" = 9001
"paths.test/only/" = 1
"www.site.test" = 2
"old.test" = { redirect = "https://new.test" }
"gone.test" = { respond = { status = 410, body = "gone" } }
"a.test" = { to = 3, also = ["b.test", "*.b.test/x"] }
"#;

    fn ask(routes: &str, url: &str) -> (String, bool) {
        let table = routes::parse(Path::new("routes.toml"), routes.as_bytes(), &[], None).unwrap();
        explained(&Asked::parse(url).unwrap(), &table, "routes.toml")
    }

    #[test]
    fn a_covered_url_says_route_instance_and_reason() {
        let (text, covered) = ask(ROUTES, "http://Shop.Example.com.:8080/apix?y");
        let want = "shop.example.com/apix?y
  note    the port 8080 takes no part in routing
  note    the final dot is ignored
  note    capitals are ignored
  route   shop.example.com   routes.toml:2
  does    8011, 8012
  next    8011, in turn
  why     the host is exactly shop.example.com
  not     shop.example.com/api   routes.toml:3   a path ends on a border: /api covers /api/… but not /apix
  not     *.example.com   routes.toml:5   a more specific line has this host";
        assert_eq!(text, want);
        assert!(covered);
    }

    #[test]
    fn each_reason_and_each_near_miss_is_said() {
        for (url, covered, parts) in [
            ("shop.example.com/api", true, &["route   shop.example.com/api/ ", "/api is its longest path"][..]),
            ("shop.example.com?x", true, &["shop.example.com/?x"]),
            ("shop.example.com/API", true, &["capitals count in a path"]),
            (
                "x.y.apps.example.com",
                true,
                &["*.apps.example.com is the longest wildcard that covers it, 2 labels below"],
            ),
            ("apps.example.com", true, &["route   *.example.com", "does not cover the bare name"]),
            ("example.com", false, &["no route covers it", "*.example.com   routes.toml:5   a wildcard does not"]),
            ("paths.test/else", false, &["paths.test/only   routes.toml:6   the host has lines for paths only"]),
            ("paths.test/only/x", true, &["next    1\n"]),
            ("site.test", false, &["www.site.test   routes.toml:7   with www. it is another host"]),
            ("www.old.test", false, &["old.test   routes.toml:8   without www."]),
            ("old.test/x", true, &["does    redirect 308", "next    Location: https://new.test/x"]),
            ("gone.test", true, &["does    respond 410 \"gone\""]),
            ("gnoe.test", false, &["gone.test   routes.toml:9   a similar name"]),
            ("x.gone.test", false, &["does not cover the names below it"]),
            ("b.test", true, &["route   a.test", "exactly b.test, by `also`"]),
            ("q.b.test/x/y", true, &["1 label below, by `also`; /x is its longest path"]),
            ("nobody.invalid", false, &["404 no-route"]),
        ] {
            let (text, is_covered) = ask(ROUTES, url);
            assert_eq!(is_covered, covered, "{text}");
            for part in parts {
                assert!((text.clone() + "\n").contains(part), "{part}\n{text}");
            }
        }
        let sticky = "\"a\" = { to = [1, 2], balance = \"sticky\", max_connections = 5, slow_start = \"10s\" }";
        let (text, _) = ask(sticky, "a");
        for part in [
            "1 (max_connections 5), 2 (max_connections 5) by the session's cookie carom, slow start 10s",
            "next    the one that the cookie carom names, else the next in turn",
        ] {
            assert!(text.contains(part), "{text}");
        }
        let with_any = format!("\"*\" = 4\n{ROUTES}");
        assert!(ask(&with_any, "nobody.invalid").0.contains("so it is for *"));
        assert!(ask(&with_any, "paths.test/else").0.contains("does not fall to *"));
        assert!(ask("\"bücher.example\" = 1", "https://bücher.example").0.contains("xn--bcher-kva.example"));
    }

    #[test]
    fn what_is_no_url_is_said() {
        for url in ["", "ftp://a.test", "a b.test", "http://", "a.test:x"] {
            assert!(Asked::parse(url).is_err(), "{url}");
        }
    }
}
