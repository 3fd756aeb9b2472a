//! Hosts that were written without quotes: `beep.example.com = 8001` is, to TOML, a table in a table in a table.

use std::ops::Range;

use super::node::{Entry, Value};
use super::report::Problem;

/// Whether an entry is a host without quotes. One in quotes may well go on: `"shop.example.com".to = 8011`.
pub(super) fn is_host(text: &str, entry: &Entry<'_>) -> bool {
    let key = text.get(entry.key_span.clone()).unwrap_or_default();
    goes_on(text, &entry.key_span) && !key.starts_with(['"', '\''])
}

/// Whether the key at a place goes on with a dot.
pub(super) fn goes_on(text: &str, key: &Range<usize>) -> bool {
    let behind = text.get(key.end..).unwrap_or_default();
    behind.trim_start_matches([' ', '\t']).starts_with('.')
}

/// Says which hosts an entry whose key goes on was meant to be, one for each line that has one.
pub(super) fn problems(text: &str, entry: &Entry<'_>, problems: &mut Vec<Problem>) {
    walk(text, entry, &entry.key, problems);
}

fn walk(text: &str, entry: &Entry<'_>, name: &str, problems: &mut Vec<Problem>) {
    let Value::Table(inner) = &entry.node.value else {
        return;
    };
    for next in inner {
        let name = format!("{name}.{}", next.key);
        if goes_on(text, &next.key_span) {
            walk(text, next, &name, problems);
            continue;
        }
        let whole = start_of_key(text, next.key_span.start)..next.key_span.end;
        problems.push(
            Problem::at(&whole, "a host with dots is written in quotes")
                .label("TOML reads this as a table in a table")
                .help(format!("\"{name}\"")),
        );
    }
}

/// Where the key begins whose last part begins here. Of several lines that begin alike only the first has its
/// beginning in the tree.
fn start_of_key(text: &str, last: usize) -> usize {
    let before = text.get(..last).unwrap_or_default();
    let begin = before.rfind(['\n', '[', '{', ',', '}']).map_or(0, |at| at + 1);
    let key = before.get(begin..).unwrap_or_default();
    begin + (key.len() - key.trim_start().len())
}
