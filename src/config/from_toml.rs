//! TOML text into nodes, with what is wrong with its syntax.

use std::ops::Range;

use toml::de::{DeTable, DeValue};

use super::node::{Entry, Node, Value};
use super::report::Problem;

/// The entries of a document in the order of the text, as far as they could be read, and everything that is
/// wrong with the syntax.
pub(crate) fn entries(text: &str) -> (Vec<Entry<'_>>, Vec<Problem>) {
    let (document, errors) = DeTable::parse_recoverable(text);
    let document = document.into_inner();
    let problems = errors.iter().take(MOST_ERRORS).map(|error| problem(text, &document, error)).collect();
    (table(document), problems)
}

/// After so many nobody reads on.
const MOST_ERRORS: usize = 1000;

fn table(table: DeTable<'_>) -> Vec<Entry<'_>> {
    let mut entries: Vec<Entry<'_>> = table
        .into_iter()
        .map(|(key, value)| Entry {
            key_span: key.span(),
            key: key.into_inner(),
            node: node(value.span(), value.into_inner()),
        })
        .collect();
    // The parser keeps them by name.
    entries.sort_by_key(|entry| entry.key_span.start);
    entries
}

fn node(span: Range<usize>, value: DeValue<'_>) -> Node<'_> {
    let value = match value {
        DeValue::String(text) => Value::String(text),
        DeValue::Integer(number) => Value::Integer(i64::from_str_radix(number.as_str(), number.radix()).ok()),
        DeValue::Boolean(yes) => Value::Boolean(yes),
        DeValue::Float(_) => Value::Other("a float"),
        DeValue::Datetime(_) => Value::Other("a date"),
        DeValue::Array(items) => {
            Value::Array(items.into_iter().map(|item| node(item.span(), item.into_inner())).collect())
        }
        DeValue::Table(inner) => Value::Table(table(inner)),
    };
    Node { span, value }
}

fn problem(text: &str, document: &DeTable<'_>, error: &toml::de::Error) -> Problem {
    let message = error.message().trim_end();
    let Some(span) = error.span() else {
        return Problem::of_file(message);
    };
    if message == "duplicate key" {
        let key = text.get(span.clone()).unwrap_or_default();
        let problem = Problem::at(&span, format!("the key {key} stands here a second time")).label("again");
        let first = document.keys().find(|other| other.get_ref().as_ref() == key.trim_matches(['"', '\'']));
        return match first.map(toml::Spanned::span) {
            Some(first) if first != span => problem.and(&first, "first here"),
            _ => problem,
        };
    }
    // The parser says what it expected on further lines.
    let (what, more) = message.split_once('\n').map_or((message, None), |(what, more)| (what, Some(more)));
    let problem = Problem::syntax(&span, what.to_owned()).maybe_help(more.map(|more| more.replace('\n', ", ")));
    match starred_key(text, &span) {
        Some(key) => problem.help(format!("a key that is more than letters, digits, - and _ needs quotes: \"{key}\"")),
        None => problem,
    }
}

/// The unquoted key of a line that went wrong, if that is because it is unquoted: `*.example.com = 8001`.
fn starred_key<'t>(text: &'t str, span: &Range<usize>) -> Option<&'t str> {
    let begin = text.get(..span.start)?.rfind('\n').map_or(0, |at| at + 1);
    let line = text.get(begin..)?.lines().next()?;
    let key = line.split_once('=')?.0.trim();
    let bare = !key.is_empty() && !key.contains(['"', '\'', ' ', '[', '{', '#']);
    (bare && key.contains(['*', '/', ':'])).then_some(key)
}
