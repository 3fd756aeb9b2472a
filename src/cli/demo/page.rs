//! What a demo backend says: which instance answered, and what of the request reached it.
//!
//! Whatever the request brought is escaped: the page runs no one's text.

use std::fmt::Write as _;
use std::path::Path;

use hyper::HeaderMap;

/// A request as its backend sees it.
pub(super) struct Seen<'a> {
    pub(super) instance: &'static str,
    /// Where the instance listens.
    pub(super) port: u16,
    /// How many requests the instance has seen with this one.
    pub(super) count: u64,
    pub(super) method: &'a str,
    pub(super) target: String,
    pub(super) fields: &'a HeaderMap,
    /// The file that the reader may edit.
    pub(super) routes: &'a Path,
}

/// For curl.
pub(super) fn plain(seen: &Seen) -> String {
    let Seen { instance, port, count, method, target, .. } = seen;
    let mut text = format!("{instance} answered, its request {count}, on port {port}\n\n{method} {target}\n");
    for (name, value) in seen.fields {
        let _ = writeln!(text, "{name}: {}", String::from_utf8_lossy(value.as_bytes()));
    }
    text
}

/// For a browser.
pub(super) fn html(seen: &Seen) -> String {
    let mut fields = String::new();
    for (name, value) in seen.fields {
        let value = escape(&String::from_utf8_lossy(value.as_bytes()));
        let _ = writeln!(fields, "<tr><th>{}<td>{value}", escape(name.as_str()));
    }
    let file = seen.routes.display().to_string();
    let values = [
        ("instance", seen.instance),
        ("port", &seen.port.to_string()),
        ("count", &seen.count.to_string()),
        ("request", &escape(&format!("{} {}", seen.method, seen.target))),
        ("fields", &fields),
        ("routes", &escape(&file)),
    ];
    fill(include_str!("page.html"), &values)
}

/// The template with each `{{name}}` replaced, in one pass: a value that looks like a name is not one.
fn fill(template: &str, values: &[(&str, &str)]) -> String {
    let mut pieces = template.split("{{");
    let mut page = pieces.next().unwrap_or_default().to_owned();
    for piece in pieces {
        let (name, rest) = piece.split_once("}}").unwrap_or((piece, ""));
        let value = values.iter().find(|(known, _)| *known == name);
        page.push_str(value.map_or("", |(_, value)| value));
        page.push_str(rest);
    }
    page
}

fn escape(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;").replace('\'', "&#39;")
}

#[cfg(test)]
mod tests {
    use hyper::header::{HeaderName, HeaderValue};

    use super::*;

    fn page(fields: &HeaderMap, render: fn(&Seen) -> String) -> String {
        render(&Seen {
            instance: "boop-2",
            port: 4003,
            count: 7,
            method: "GET",
            target: "/<b>".into(),
            fields,
            routes: Path::new("/tmp/a&b/routes.toml"),
        })
    }

    #[test]
    fn what_the_request_brought_can_not_become_markup() {
        let mut fields = HeaderMap::new();
        let evil = HeaderValue::from_bytes(b"<script>alert('1')</script>{{port}}\xff\"").unwrap();
        fields.insert(HeaderName::from_static("x-evil"), evil);
        let html = page(&fields, html);
        let expected = "<tr><th>x-evil<td>&lt;script&gt;alert(&#39;1&#39;)&lt;/script&gt;{{port}}\u{fffd}&quot;\n";
        assert!(html.contains(expected), "{html}");
        assert!(html.contains("GET /&lt;b&gt;"), "{html}");
        assert!(html.contains("/tmp/a&amp;b/routes.toml"), "{html}");
    }

    #[test]
    fn every_place_of_the_template_has_a_value() {
        let html = page(&HeaderMap::new(), html);
        assert!(!html.contains("{{") && html.contains("boop-2") && html.contains("4003"), "{html}");
        assert!(html.trim_end().ends_with("</html>"), "{html}");
    }

    #[test]
    fn a_page_asks_nobody_else_for_anything() {
        let html = page(&HeaderMap::new(), html);
        assert!(!html.contains("https://") && !html.contains("src=") && !html.contains("@import"), "{html}");
    }

    #[test]
    fn plain_text_shows_the_request_as_it_came() {
        let mut fields = HeaderMap::new();
        fields.insert("host", HeaderValue::from_static("boop.localhost"));
        let text = page(&fields, plain);
        assert_eq!(text, "boop-2 answered, its request 7, on port 4003\n\nGET /<b>\nhost: boop.localhost\n");
    }
}
