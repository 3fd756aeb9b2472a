//! A value of a routes file that may be one thing or an array of them, changed item by item: what stays keeps its
//! comments and its place among blanks and line breaks.

use toml_edit::{Array, RawString, Value};

use crate::table::target::{self, Written};

/// The items of an array, each with what is written around it.
struct Parts {
    /// What stands on the line of the opening bracket.
    open: String,
    items: Vec<Part>,
    /// What stands in front of the closing bracket.
    end: String,
}

struct Part {
    /// Blanks, line breaks and comments in front of it.
    lead: String,
    value: Value,
    /// The comment behind it, on its line.
    tail: String,
}

/// These targets in place of those; a target that stays is the old value, with all that is said of it.
pub(super) fn of(old: Option<&Value>, new: Vec<Value>) -> Value {
    let mut array = match old {
        Some(Value::Array(array)) => array.clone(),
        Some(other) => std::iter::once(bare(other)).collect(),
        None => Array::new(),
    };
    let mut parts = Parts::of(&array);
    let (first, second) = (parts.lead(0).unwrap_or_default(), parts.lead(1).unwrap_or_else(|| " ".to_owned()));
    let mut left: Vec<Option<Part>> = std::mem::take(&mut parts.items).into_iter().map(Some).collect();
    for value in new {
        let place = place(&value);
        let kept = left.iter_mut().find(|part| part.as_ref().is_some_and(|part| self::place(&part.value) == place));
        let part = kept.and_then(Option::take);
        // A new one stands as those do that are there.
        let lead = if first.contains('\n') { indent(&first) } else { second.clone() };
        parts.items.push(part.unwrap_or(Part { lead, value, tail: String::new() }));
    }
    if !first.contains('\n') {
        for (index, part) in parts.items.iter_mut().enumerate().filter(|(_, part)| !part.lead.contains('\n')) {
            part.lead.clone_from(if index == 0 { &first } else { &second });
        }
    }
    let decor = old.map(|old| old.decor().clone());
    let mut value = match parts.items.as_slice() {
        // In an array it is a target; alone it would be the route.
        [Part { value, .. }] if !value.is_inline_table() && !parts.is_wide() => value.clone(),
        [_] if old.is_some_and(|old| !old.is_array() && left.iter().all(Option::is_none)) => {
            return old.cloned().unwrap_or_else(|| Value::from(0));
        }
        _ => {
            parts.put(&mut array);
            Value::Array(array)
        }
    };
    *value.decor_mut() = decor.unwrap_or_else(|| toml_edit::Decor::new(" ", ""));
    value
}

/// The texts of a value: its own, or those of its items.
pub(super) fn texts(value: &Value) -> impl Iterator<Item = &str> {
    let items = value.as_array().map(Array::iter);
    items.into_iter().flatten().chain(std::iter::once(value)).filter_map(Value::as_str)
}

/// Takes items out of an array. Says whether any is left.
pub(super) fn without(array: &mut Array, goes: impl Fn(&str) -> bool) -> bool {
    let mut parts = Parts::of(array);
    let first = parts.lead(0).unwrap_or_default();
    parts.items.retain(|part| !part.value.as_str().is_some_and(&goes));
    if let Some(part) = parts.items.first_mut().filter(|part| !part.lead.contains('\n')) {
        part.lead = first;
    }
    parts.put(array);
    !array.is_empty()
}

/// Where a target is, however it is written.
fn place(value: &Value) -> Option<Written> {
    match value {
        Value::Integer(port) => target::port(Some(*port.value())).ok(),
        Value::String(text) => target::parse(text.value()).ok(),
        Value::InlineTable(table) => place(table.get("to")?),
        _ => None,
    }
}

impl Parts {
    fn of(array: &Array) -> Self {
        let (mut open, mut items) = (String::new(), Vec::<Part>::with_capacity(array.len()));
        for value in array {
            let (behind, lead) = at_line_end(text(value.decor().prefix()));
            match items.last_mut() {
                Some(before) => before.tail = behind,
                None => open = behind,
            }
            items.push(Part { lead, value: value.clone(), tail: String::new() });
        }
        // Without a final comma, what stands in front of the bracket is the last item's.
        let own = items.last().map(|last| text(last.value.decor().suffix()).to_owned()).unwrap_or_default();
        let own = if array.trailing_comma() { String::new() } else { own };
        let (behind, end) = at_line_end(&(own + text(Some(array.trailing()))));
        if let Some(last) = items.last_mut() {
            last.tail = behind;
            if !array.trailing_comma() {
                last.value.decor_mut().set_suffix("");
            }
        }
        Self { open, items, end }
    }

    fn lead(&self, index: usize) -> Option<String> {
        self.items.get(index).map(|part| part.lead.clone())
    }

    /// Whether it takes several lines.
    fn is_wide(&self) -> bool {
        self.end.contains('\n') || self.items.iter().any(|part| part.lead.contains('\n'))
    }

    fn put(self, array: &mut Array) {
        let mut before = self.open;
        array.clear();
        for part in self.items {
            array.push_formatted(part.value);
            if let Some(value) = array.len().checked_sub(1).and_then(|last| array.get_mut(last)) {
                // A comment ends with its line, and nothing else does.
                let breaks = before.contains('#') && !part.lead.contains('\n');
                let lead = if breaks { indent(&part.lead) } else { part.lead };
                value.decor_mut().set_prefix(before + &lead);
            }
            before = part.tail;
        }
        let end = if before.contains('#') && !self.end.contains('\n') { format!("\n{}", self.end) } else { self.end };
        array.set_trailing(before + &end);
    }
}

fn text(raw: Option<&RawString>) -> &str {
    raw.and_then(RawString::as_str).unwrap_or_default()
}

/// What still belongs to the line before, and what comes with the line break; all of it is the latter where there is none.
fn at_line_end(text: &str) -> (String, String) {
    match text.find('\n') {
        Some(at) => (text[..at].to_owned(), text[at..].to_owned()),
        None => (String::new(), text.to_owned()),
    }
}

/// The line break and the blanks of what stands in front of an item, without its comments.
fn indent(lead: &str) -> String {
    match lead.rfind('\n') {
        Some(at) => lead[at..].to_owned(),
        None => "\n    ".to_owned(),
    }
}

/// A value without what is written around it.
fn bare(value: &Value) -> Value {
    value.clone().decorated("", "")
}
