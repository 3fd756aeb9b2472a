//! `[log]` of carom.toml: where access lines go, how they look, and what is not in them.

use std::path::PathBuf;

use crate::http::body::is_token;
use crate::ops::access::{NAMES, Redact, Template, To};

use super::keys::{Keys, noted};
use super::names;
use super::node::{Node, Value};
use super::report::Problem;

/// What is said about requests, and how.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Log {
    /// Where the access lines go; nowhere when empty.
    pub access: Vec<To>,
    /// How they look; `None`: pretty on a terminal, JSON otherwise.
    pub format: Option<Format>,
    /// What is not in them.
    pub redact: Redact,
}

/// How access lines look.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Format {
    /// For people.
    Pretty,
    /// For programs: one JSON object a line.
    Json,
    /// As the operator has written it, or the Combined Log Format.
    Template(Template),
}

pub(super) const KEYS: Keys = Keys { of: "[log]", known: &["access", "format", "redact"], later: &["level", "error"] };

const FORMATS: &[&str] = &["pretty", "json", "combined"];

/// The most places that lines go to.
const MOST: usize = 8;

impl Default for Log {
    fn default() -> Self {
        Self { access: vec![To::Stdout], format: None, redact: Redact::default() }
    }
}

impl Log {
    /// Takes one key.
    pub(super) fn take(&mut self, key: &str, node: &Node<'_>, problems: &mut Vec<Problem>) {
        match key {
            "access" => self.access = access(node, problems).unwrap_or_default(),
            "format" => self.format = noted(format(node), problems),
            _ => self.redact = redact(node, problems),
        }
    }
}

/// `"stdout"`, `"off"`, a file, or an array of places.
fn access(node: &Node<'_>, problems: &mut Vec<Problem>) -> Option<Vec<To>> {
    if let Value::String(text) = &node.value
        && text == "off"
    {
        return Some(Vec::new());
    }
    let items = node.items();
    if items.is_empty() || items.len() > MOST {
        problems.push(Problem::at(&node.span, format!("one to {MOST} places")).help("\"off\" for none"));
        return None;
    }
    let mut places = Vec::new();
    for item in items {
        let place = noted(place(item), problems)?;
        if places.contains(&place) {
            problems.push(Problem::at(&item.span, "lines go there already"));
            return None;
        }
        places.push(place);
    }
    Some(places)
}

fn place(node: &Node<'_>) -> Result<To, Problem> {
    match node.text("\"stdout\", \"off\" or the path of a file")? {
        "stdout" => Ok(To::Stdout),
        "off" => Err(Problem::at(&node.span, "\"off\" stands alone")),
        "stderr" => Err(Problem::at(&node.span, "stderr is for what the operator must see").help("\"stdout\"")),
        text if text.is_empty() || text.contains('\0') => Err(Problem::at(&node.span, "not a path")),
        text => Ok(To::File(PathBuf::from(text))),
    }
}

fn format(node: &Node<'_>) -> Result<Format, Problem> {
    match node.text("\"pretty\", \"json\", \"combined\", or a template")? {
        "pretty" => Ok(Format::Pretty),
        "json" => Ok(Format::Json),
        "combined" => Ok(Format::Template(Template::combined())),
        template if template.contains(['{', '}']) => Template::parse(template).map(Format::Template).map_err(|bad| {
            Problem::at(&node.span, format!("at its byte {}: {}", bad.at, bad.what))
                .help("such as \"{client} {method} {host}{path} {status} {total_ms} {header:User-Agent}\"")
        }),
        other => {
            let help = match other {
                "common" | "clf" | "apache" | "nginx" => "\"combined\"".to_owned(),
                other => names::did_you_mean(other, FORMATS),
            };
            let help = format!("{help}; or a template with fields in braces");
            Err(Problem::at(&node.span, format!("no format is called \"{other}\"")).help(help))
        }
    }
}

/// `["query", "client", "header:Cookie"]`
fn redact(node: &Node<'_>, problems: &mut Vec<Problem>) -> Redact {
    let mut redact = Redact::default();
    for item in node.items() {
        let text = item.text("what is not written down");
        let help = || format!("{}, or \"header:NAME\"", names::listed(NAMES));
        let Some(text) = noted(text.map_err(|problem| problem.help(help())), problems) else { continue };
        match (text, text.strip_prefix("header:")) {
            ("query", _) => redact.query = true,
            ("client", _) => redact.client = true,
            ("path", _) => redact.path = true,
            (_, Some(name)) if !name.is_empty() && name.bytes().all(is_token) => {
                redact.fields.push(name.to_ascii_lowercase().into());
            }
            _ => problems.push(Problem::at(&item.span, format!("nothing to redact is called \"{text}\"")).help(help())),
        }
    }
    redact
}
