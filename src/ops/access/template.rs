//! A line as the operator has written it: text with named fields, `{client} {method} {path} → {status}`.
//!
//! The format `combined`, which log readers know, is one of these.

use std::io::Write;

use super::values::{self, Value};
use crate::record::Record;

/// How each line looks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Template {
    parts: Vec<Part>,
    /// The request fields that it names, in lower case.
    fields: Vec<Box<str>>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Part {
    Text(Box<str>),
    Value(Value),
    /// A field of the request, by its place in [`Template::fields`].
    Field(usize),
}

/// The Combined Log Format of the Apache HTTP server, which nginx, goaccess and fail2ban know by this name.
pub(super) const COMBINED: &str =
    "{client} - - [{clf_time}] \"{request}\" {status} {body_sent} \"{header:Referer}\" \"{header:User-Agent}\"";

impl Template {
    /// Reads one. `{{` and `}}` stand for braces.
    ///
    /// # Errors
    /// What is wrong, and at which byte; the name that is unknown, where one is.
    pub fn parse(text: &str) -> Result<Self, BadTemplate> {
        let mut template = Self { parts: Vec::new(), fields: Vec::new() };
        let mut plain = String::new();
        let mut rest = text;
        while let Some(at) = rest.find(['{', '}']) {
            plain.push_str(&rest[..at]);
            let place = text.len() - rest.len() + at;
            let behind = &rest[at + 1..];
            match (rest.as_bytes()[at], behind.bytes().next()) {
                (brace, Some(next)) if brace == next => {
                    plain.push(char::from(brace));
                    rest = &behind[1..];
                    continue;
                }
                (b'}', _) => return Err(BadTemplate { at: place, what: "a } that closes nothing; }} is one".into() }),
                _ => {}
            }
            let Some(end) = behind.find('}') else {
                return Err(BadTemplate { at: place, what: "a { that is not closed; {{ is one".into() });
            };
            if !plain.is_empty() {
                template.parts.push(Part::Text(std::mem::take(&mut plain).into()));
            }
            let part = template.part(&behind[..end]).map_err(|what| BadTemplate { at: place, what })?;
            template.parts.push(part);
            rest = &behind[end + 1..];
        }
        plain.push_str(rest);
        if plain.contains(['\n', '\r']) {
            return Err(BadTemplate { at: 0, what: "a line has no line break in it".into() });
        }
        if !plain.is_empty() {
            template.parts.push(Part::Text(plain.into()));
        }
        Ok(template)
    }

    /// The Combined Log Format.
    pub fn combined() -> Self {
        Self::parse(COMBINED).unwrap_or(Self { parts: Vec::new(), fields: Vec::new() })
    }

    /// The request fields that it names, in lower case.
    pub fn fields(&self) -> &[Box<str>] {
        &self.fields
    }

    fn part(&mut self, name: &str) -> Result<Part, String> {
        if let Some(field) = name.strip_prefix("header:") {
            if field.is_empty() || !field.bytes().all(crate::http::body::is_token) {
                return Err(format!("\"{field}\" is no name of a field"));
            }
            let field = field.to_ascii_lowercase();
            let known = self.fields.iter().position(|other| **other == *field);
            return Ok(Part::Field(known.unwrap_or_else(|| {
                self.fields.push(field.into());
                self.fields.len() - 1
            })));
        }
        Value::named(name).map(Part::Value).ok_or_else(|| {
            let names: Vec<_> = Value::names().collect();
            format!("nothing is called {{{name}}}: {}, or {{header:NAME}}", names.join(", "))
        })
    }

    /// Writes a line.
    pub(super) fn write(&self, out: &mut Vec<u8>, record: &Record<'_>) {
        for part in &self.parts {
            match part {
                Part::Text(text) => out.extend_from_slice(text.as_bytes()),
                Part::Value(value) => value.write(out, record),
                Part::Field(index) => match record.fields.get(*index) {
                    Some(Some(text)) => values::escaped(out, text),
                    _ => out.push(b'-'),
                },
            }
        }
        // Writing into a Vec can't fail.
        let _ = out.write_all(b"\n");
    }
}

/// What is wrong with a template.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BadTemplate {
    /// At which byte of it.
    pub at: usize,
    /// What.
    pub what: String,
}
