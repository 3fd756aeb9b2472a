//! A table of a file read key by key: what is taken, what is left over, what was meant.

use std::ops::Range;

use super::names;
use super::node::{Entry, Node, Value};
use super::report::Problem;

/// The keys that a table may have.
pub(crate) struct Keys {
    /// What the table is, as in "a route has no key `x`".
    pub(crate) of: &'static str,
    /// Those that work.
    pub(crate) known: &'static [&'static str],
    /// Those that will.
    pub(crate) later: &'static [&'static str],
}

impl Keys {
    /// Calls `take` with each known key once; says what is wrong with the others.
    /// `hint` may know better than "did you mean" what an unknown key is about.
    pub(crate) fn read<'n, 't>(
        &self,
        entries: &'n [Entry<'t>],
        problems: &mut Vec<Problem>,
        hint: impl Fn(&Entry<'t>) -> Option<String>,
        mut take: impl FnMut(&'static str, &'n Entry<'t>, &mut Vec<Problem>),
    ) {
        let mut seen: Vec<(&str, &Range<usize>)> = Vec::new();
        for entry in entries {
            let key = entry.key.as_ref();
            if let Some(&known) = self.known.iter().find(|&&known| known == key) {
                match seen.iter().find(|(other, _)| *other == known) {
                    Some((_, first)) => problems.push(
                        Problem::at(&entry.key_span, format!("`{known}` stands here twice"))
                            .label("again")
                            .and(first, "first here"),
                    ),
                    None => {
                        seen.push((known, &entry.key_span));
                        take(known, entry, problems);
                    }
                }
            } else if self.later.contains(&key) {
                problems.push(Problem::at(&entry.key_span, format!("not yet: `{key}`")).help("take it out for now"));
            } else {
                let help = hint(entry).unwrap_or_else(|| names::did_you_mean(key, self.known));
                problems.push(Problem::at(&entry.key_span, format!("{} has no key `{key}`", self.of)).help(help));
            }
        }
    }
}

impl<'t> Node<'t> {
    /// The text of a string.
    pub(crate) fn text(&self, what: &str) -> Result<&str, Problem> {
        match &self.value {
            Value::String(text) => Ok(text),
            other => Err(self.wrong(what, other)),
        }
    }

    /// True or false.
    pub(crate) fn flag(&self, what: &str) -> Result<bool, Problem> {
        match &self.value {
            Value::Boolean(yes) => Ok(*yes),
            other => Err(self.wrong(what, other)),
        }
    }

    /// A number within bounds.
    pub(crate) fn number(&self, what: &str, bounds: std::ops::RangeInclusive<i64>) -> Result<i64, Problem> {
        match &self.value {
            Value::Integer(Some(number)) if bounds.contains(number) => Ok(*number),
            Value::Integer(_) => {
                Err(Problem::at(&self.span, format!("expected {what}, {} to {}", bounds.start(), bounds.end())))
            }
            other => Err(self.wrong(what, other)),
        }
    }

    /// The entries of a table.
    pub(crate) fn entries(&self, what: &str) -> Result<&[Entry<'t>], Problem> {
        match &self.value {
            Value::Table(entries) => Ok(entries),
            other => Err(self.wrong(what, other)),
        }
    }

    /// The items of an array; anything else is an array of itself.
    pub(crate) fn items(&self) -> &[Self] {
        match &self.value {
            Value::Array(items) => items,
            _ => std::slice::from_ref(self),
        }
    }

    fn wrong(&self, what: &str, found: &Value<'_>) -> Problem {
        Problem::at(&self.span, format!("expected {what}, found {}", found.kind()))
    }
}

/// The value, or `None` with its problem noted.
pub(crate) fn noted<T>(result: Result<T, Problem>, problems: &mut Vec<Problem>) -> Option<T> {
    result.map_err(|problem| problems.push(problem)).ok()
}
