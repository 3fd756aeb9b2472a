//! One line of the routes changed, in the text that the operator wrote: comments, order and layout stay.
//!
//! Text in, text out. Whether the result is a table is for [`routes::parse`](super::routes::parse) to say; whoever writes
//! it to the file is [`save`](super::save).

use toml_edit::{DocumentMut, Item, Table, TableLike, Value};

use super::list;
use crate::table::pattern::Pattern;
use crate::table::target;

/// A changed text.
#[derive(Debug, PartialEq, Eq)]
pub struct Edited {
    /// The whole file.
    pub text: String,
    /// The key of the line that was changed, as it is written there.
    pub line: String,
    /// The site is not that line's key but one of its `also`.
    pub by_also: bool,
}

/// Why a text is not changed.
#[derive(Debug, PartialEq, Eq)]
pub enum Refused {
    /// It is not TOML: what is wrong with it is for the parser to say.
    Syntax,
    /// What was asked for can't be done.
    Because {
        /// Why.
        what: String,
        /// What would be right.
        help: Option<String>,
    },
}

/// Sends a site to these targets: adds a line, or changes what its line says of targets. Those that stay keep what is
/// said of them.
///
/// ```
/// use carom::config::edit;
///
/// let text = "\"shop.test\" = 8001 # the shop\n";
/// let edited = edit::set(text, "Shop.test", &["8001".to_owned(), "8002".to_owned()]).unwrap();
/// assert_eq!(edited.text, "\"shop.test\" = [8001, 8002] # the shop\n");
/// ```
///
/// # Errors
/// A text that can't be read; a site or a target that is none; a line that has no targets.
pub fn set(text: &str, site: &str, targets: &[String]) -> Result<Edited, Refused> {
    let pattern = pattern(site)?;
    let targets = targets.iter().map(|target| target_value(target)).collect::<Result<Vec<_>, _>>()?;
    if targets.is_empty() {
        return Err(because("a site needs a target", "a port such as 8001, or 10.0.0.7:9000"));
    }
    Layout::of(text).edited(|document| {
        let Some(found) = find(document, &pattern) else {
            add(document, site.trim(), list::of(None, targets));
            return Ok(Found { line: site.trim().to_owned(), by_also: false });
        };
        match document.get_mut(&found.line) {
            Some(Item::Value(Value::InlineTable(table))) => set_within(table, targets, &found)?,
            Some(Item::Table(table)) => set_within(table, targets, &found)?,
            Some(Item::Value(value)) => *value = list::of(Some(value), targets),
            _ => return Err(by_hand(&found)),
        }
        Ok(found)
    })
}

/// Takes a site out: its line, or its name out of the `also` of another.
///
/// # Errors
/// A text that can't be read; a site that is not there.
pub fn unset(text: &str, site: &str) -> Result<Edited, Refused> {
    let pattern = pattern(site)?;
    Layout::of(text).edited(|document| {
        let Some(found) = find(document, &pattern) else {
            return Err(Refused::Because { what: format!("no line is for {pattern}"), help: None });
        };
        if !found.by_also {
            remove(document, &found.line);
            return Ok(found);
        }
        match document.get_mut(&found.line).and_then(Item::as_table_like_mut) {
            Some(table) => remove_also(table, &pattern),
            None => return Err(by_hand(&found)),
        }
        Ok(found)
    })
}

/// A line that is for a site.
struct Found {
    line: String,
    by_also: bool,
}

fn pattern(site: &str) -> Result<Pattern, Refused> {
    Pattern::parse(site.trim()).map_err(|bad| Refused::Because {
        what: format!("`{site}` is not a site: {}", bad.what),
        help: bad.help.map(|help| format!("did you mean {help}?")),
    })
}

/// A target as it is written in the file: a port is a number.
fn target_value(target: &str) -> Result<Value, Refused> {
    let target = target.trim();
    target::parse(target).map_err(|bad| Refused::Because {
        what: format!("`{target}` is not a target: {}", bad.what),
        help: bad.help,
    })?;
    Ok(target.parse::<u16>().map_or_else(|_| Value::from(target), |port| Value::from(i64::from(port))))
}

fn because(what: &str, help: &str) -> Refused {
    Refused::Because { what: what.to_owned(), help: Some(help.to_owned()) }
}

fn by_hand(found: &Found) -> Refused {
    because(&format!("the line of {} is written in a way that is not edited here", found.line), "edit it by hand")
}

fn find(document: &Table, pattern: &Pattern) -> Option<Found> {
    let is_it = |text: &str| Pattern::parse(text).is_ok_and(|other| other == *pattern);
    let found = |key: &str, by_also| Found { line: key.to_owned(), by_also };
    let own = document.iter().find(|(key, _)| is_it(key)).map(|(key, _)| found(key, false));
    own.or_else(|| {
        let has_it = |item: &Item| {
            let also = item.as_table_like().and_then(|table| table.get("also"));
            also.and_then(Item::as_value).is_some_and(|also| list::texts(also).any(is_it))
        };
        document.iter().find(|(_, item)| has_it(item)).map(|(key, _)| found(key, true))
    })
}

/// Changes the targets of a line that is a table.
fn set_within(table: &mut dyn TableLike, targets: Vec<Value>, found: &Found) -> Result<(), Refused> {
    if let Some(key) = ["redirect", "respond"].into_iter().find(|key| table.contains_key(key)) {
        let what = format!("{} has `{key}` and no targets", found.line);
        return Err(Refused::Because { what, help: Some(format!("take it out first: carom unset {}", found.line)) });
    }
    let key = if table.contains_key("passthrough") { "passthrough" } else { "to" };
    match table.get_mut(key) {
        Some(Item::Value(value)) => *value = list::of(Some(value), targets),
        Some(_) => return Err(by_hand(found)),
        None => drop(table.insert(key, Item::Value(list::of(None, targets)))),
    }
    Ok(())
}

/// Adds a plain line, behind all that are there, and in front of the first `[header]`: what comes after belongs to that.
fn add(document: &mut DocumentMut, key: &str, value: Value) {
    let has_lines = document.iter().any(|(_, item)| !is_headed(item));
    document.insert(key, Item::Value(value));
    if has_lines {
        return;
    }
    // A comment at the top is about the file and stays there.
    let loose = match next_header(document, None) {
        Some(table) => take_loose(table.decor().prefix().and_then(|prefix| prefix.as_str()).unwrap_or_default())
            .map(|(loose, rest)| (loose, Some((table, rest)))),
        None => {
            let trailing = document.trailing().as_str().unwrap_or_default().to_owned();
            document.set_trailing("");
            Some((trailing, None))
        }
    };
    let Some((mut loose, headed)) = loose else { return };
    if let Some((table, rest)) = headed {
        // A blank line stays between the new line and the header.
        table.decor_mut().set_prefix(format!("\n{rest}"));
    } else if !loose.is_empty() && !loose.ends_with('\n') {
        loose.push('\n');
    }
    if let Some(mut key) = document.key_mut(key) {
        key.leaf_decor_mut().set_prefix(loose);
    }
}

/// Takes out a line, with the comment right above it. One further above is about more than this line.
fn remove(document: &mut DocumentMut, key: &str) {
    let Some(item) = document.get(key) else { return };
    let (headed, place) = (is_headed(item), item.as_table().and_then(Table::position));
    let prefix = match item.as_table().filter(|_| headed) {
        Some(table) => table.decor().prefix(),
        None => document.key(key).and_then(|key| key.leaf_decor().prefix()),
    };
    let loose = prefix.and_then(|prefix| prefix.as_str()).and_then(take_loose).map(|(loose, _)| loose);
    let behind = || document.iter().skip_while(|(other, _)| *other != key).skip(1);
    let next = if headed { None } else { behind().find(|(_, item)| item.is_value()).map(|(key, _)| key.to_owned()) };
    document.remove(key);
    let Some(loose) = loose else { return };
    let before = |text: Option<&toml_edit::RawString>| {
        let text = text.and_then(|text| text.as_str()).unwrap_or_default();
        format!("{loose}{}", text.trim_start_matches('\n'))
    };
    if let Some(mut next) = next.and_then(|next| document.as_table_mut().key_mut(&next)) {
        let prefix = before(next.leaf_decor().prefix());
        next.leaf_decor_mut().set_prefix(prefix);
    } else if let Some(table) = next_header(document, place) {
        let prefix = before(table.decor().prefix());
        table.decor_mut().set_prefix(prefix);
    } else {
        let trailing = before(Some(document.trailing()));
        document.set_trailing(trailing);
    }
}

/// Whether an item has a `[header]` of its own.
fn is_headed(item: &Item) -> bool {
    item.as_table().is_some_and(|table| !table.is_dotted()) || item.is_array_of_tables()
}

/// The first `[header]` of a line behind a place, or of all.
fn next_header(document: &mut DocumentMut, behind: Option<isize>) -> Option<&mut Table> {
    let tables = document.iter_mut().filter_map(|(_, item)| match item {
        Item::Table(table) if !table.is_dotted() && !table.is_implicit() => Some(table),
        _ => None,
    });
    tables.filter(|table| table.position() > behind).min_by_key(|table| table.position())
}

/// What stands above the last blank line, with that line, and what stands below it.
fn take_loose(prefix: &str) -> Option<(String, String)> {
    let (loose, rest) = prefix.rsplit_once("\n\n")?;
    (!loose.trim().is_empty()).then(|| (format!("{loose}\n\n"), rest.to_owned()))
}

fn remove_also(table: &mut dyn TableLike, pattern: &Pattern) {
    let is_it = |text: &str| Pattern::parse(text).is_ok_and(|other| other == *pattern);
    let also = table.get_mut("also").and_then(Item::as_value_mut).and_then(Value::as_array_mut);
    if let Some(also) = also
        && list::without(also, is_it)
    {
        return;
    }
    let was_last = table.iter().last().is_some_and(|(key, _)| key == "also");
    let end = table.get("also").and_then(Item::as_value).and_then(|also| also.decor().suffix().cloned());
    table.remove("also");
    // The blank before the brace of `{ to = 8001 }` belongs to whoever is the last.
    let blank = end.filter(|end| was_last && end.as_str().is_some_and(|end| end == " "));
    if let (Some(blank), Some((_, Item::Value(last)))) = (blank, table.iter_mut().last()) {
        last.decor_mut().set_suffix(blank);
    }
}

/// How the file is written, but for its lines.
struct Layout<'t> {
    text: &'t str,
    mark: bool,
    /// Every line ends with a carriage return.
    returns: bool,
}

impl<'t> Layout<'t> {
    fn of(text: &'t str) -> Self {
        let (mark, text) = text.strip_prefix('\u{feff}').map_or((false, text), |text| (true, text));
        let ends = text.matches('\n').count();
        Self { text, mark, returns: ends > 0 && text.matches("\r\n").count() == ends }
    }

    fn edited(&self, change: impl FnOnce(&mut DocumentMut) -> Result<Found, Refused>) -> Result<Edited, Refused> {
        let text = if self.returns { self.text.replace("\r\n", "\n") } else { self.text.to_owned() };
        let mut document: DocumentMut = text.parse().map_err(|_| Refused::Syntax)?;
        let found = change(&mut document)?;
        let text = document.to_string();
        let text = if self.returns { text.replace('\n', "\r\n") } else { text };
        let mark = if self.mark { "\u{feff}" } else { "" };
        Ok(Edited { text: format!("{mark}{text}"), line: found.line, by_also: found.by_also })
    }
}

#[cfg(test)]
#[path = "edit_tests.rs"]
mod tests;
