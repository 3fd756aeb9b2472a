//! Routes that forward nowhere: `redirect` and `respond`.

use crate::http::host::Host;
use crate::table::{Answer, Redirect};

use super::keys::{Keys, noted};
use super::node::{Node, Value};
use super::report::Problem;

/// Reads a redirect: an address, or a table of `to` and `status`.
pub(super) fn redirect(node: &Node<'_>, problems: &mut Vec<Problem>) -> Option<Redirect> {
    let Value::Table(entries) = &node.value else {
        let to = noted(location(node), problems)?;
        return Some(Redirect { status: PERMANENT, to });
    };
    let before = problems.len();
    let (mut to, mut status) = (None, PERMANENT);
    REDIRECT.read(
        entries,
        problems,
        |_| None,
        |key, entry, problems| match key {
            "to" => to = noted(location(&entry.node), problems),
            _ => status = noted(redirect_status(&entry.node), problems).unwrap_or(PERMANENT),
        },
    );
    if to.is_none() && problems.len() == before {
        problems.push(
            Problem::at(&node.span, "a redirect needs an address")
                .help("redirect = { to = \"https://new.example.com\", status = 301 }"),
        );
    }
    Some(Redirect { status, to: to? })
}

fn redirect_status(node: &Node<'_>) -> Result<u16, Problem> {
    match node.value {
        Value::Integer(Some(status @ (301 | 302 | 303 | 307 | 308))) => Ok(u16::try_from(status).unwrap_or(PERMANENT)),
        _ => Err(Problem::at(&node.span, "the status of a redirect is 301, 302, 303, 307 or 308")
            .help("308 and 307 keep the method of the request; 301 and 302 make a GET of a POST")),
    }
}

/// Checks an address to be sent to: it goes into a field of the response as it is.
fn location(node: &Node<'_>) -> Result<Box<str>, Problem> {
    let text = node.text("an address such as \"https://new.example.com\"")?;
    let wrong = |what: &str| Problem::at(&node.span, what.to_owned());
    let Some((scheme, rest)) = text.split_once("://") else {
        return Err(wrong("a redirect begins with http:// or https://").help(format!("\"https://{}\"", text.trim())));
    };
    if !scheme.eq_ignore_ascii_case("http") && !scheme.eq_ignore_ascii_case("https") {
        return Err(wrong("a redirect begins with http:// or https://"));
    }
    let (authority, path) = rest.find(['/', '?', '#']).map_or((rest, ""), |at| rest.split_at(at));
    if let Some(odd) = path.chars().find(|c| !c.is_ascii_graphic()) {
        return Err(wrong("an address has no spaces, control characters or letters beyond ASCII")
            .help(format!("written as in a URL: {}", percent(odd))));
    }
    let ascii = if authority.is_ascii() {
        authority.to_owned()
    } else {
        let (name, port) = authority.split_once(':').map_or((authority, None), |(name, port)| (name, Some(port)));
        let name = idna::domain_to_ascii_strict(name).map_err(|_| wrong("not a name that IDNA allows"))?;
        port.map_or_else(|| name.clone(), |port| format!("{name}:{port}"))
    };
    Host::parse(ascii.as_bytes()).map_err(|e| wrong(&format!("a redirect needs a host: {}", e.0)))?;
    Ok(format!("{}://{ascii}{path}", scheme.to_ascii_lowercase()).into())
}

fn percent(odd: char) -> String {
    let mut bytes = [0; 4];
    odd.encode_utf8(&mut bytes).bytes().map(|byte| format!("%{byte:02X}")).collect()
}

/// Reads a fixed answer: a table of `status`, `body` and `content_type`.
pub(super) fn respond(node: &Node<'_>, problems: &mut Vec<Problem>) -> Option<Answer> {
    let example = "respond = { status = 410, body = \"gone\" }";
    let entries = noted(node.entries("a table").map_err(|problem| problem.help(example)), problems)?;
    let before = problems.len();
    let mut status = None;
    let mut answer = Answer { status: 0, content_type: "text/plain; charset=utf-8".into(), body: Box::default() };
    RESPOND.read(
        entries,
        problems,
        |_| None,
        |key, entry, problems| match key {
            "status" => status = noted(entry.node.number("a status", 200..=599), problems),
            "body" => {
                if let Some(body) = noted(entry.node.text("the text of the body"), problems) {
                    answer.body = body.as_bytes().into();
                }
            }
            _ => {
                if let Some(content_type) = noted(content_type(&entry.node), problems) {
                    answer.content_type = content_type.into();
                }
            }
        },
    );
    if status.is_none() && problems.len() == before {
        problems.push(Problem::at(&node.span, "an answer needs a status").help(example));
    }
    answer.status = u16::try_from(status?).ok()?;
    if matches!(answer.status, 204 | 304) && !answer.body.is_empty() {
        problems.push(Problem::at(&node.span, format!("a {} has no body", answer.status)).help("200 has one"));
    }
    Some(answer)
}

fn content_type<'n>(node: &'n Node<'_>) -> Result<&'n str, Problem> {
    let text = node.text("a media type such as \"text/html\"")?;
    let fine = text.contains('/') && text.bytes().all(|b| (b' '..=b'~').contains(&b)) && text.trim() == text;
    if fine { Ok(text) } else { Err(Problem::at(&node.span, "not a media type").help("such as \"text/html\"")) }
}

/// What a redirect answers with when nothing else is said: permanent, and the method is kept (RFC 9110 section 15.4.9).
const PERMANENT: u16 = 308;

/// What the table of a redirect may say.
const REDIRECT: Keys = Keys { of: "a redirect", known: &["to", "status"], later: &[] };

/// What the table of an answer may say.
const RESPOND: Keys = Keys { of: "an answer", known: &["status", "body", "content_type"], later: &["headers", "file"] };
