//! A value as it stands in a file, whatever the file's syntax, with the place of every part.
//!
//! TOML and JSON are read into this one form; what it means is decided once, in [`routes`](super::routes) and
//! [`file`](super::file).

use std::borrow::Cow;
use std::ops::Range;

/// A value and where it stands.
#[derive(Debug)]
pub(crate) struct Node<'t> {
    pub(crate) span: Range<usize>,
    pub(crate) value: Value<'t>,
}

/// What kinds of value there are.
#[derive(Debug)]
pub(crate) enum Value<'t> {
    String(Cow<'t, str>),
    /// `None` where it is larger than we count.
    Integer(Option<i64>),
    Boolean(bool),
    Array(Vec<Node<'t>>),
    Table(Vec<Entry<'t>>),
    /// One that nothing here takes, by its name: a float, a date, null.
    Other(&'static str),
}

/// A key with its value.
#[derive(Debug)]
pub(crate) struct Entry<'t> {
    pub(crate) key: Cow<'t, str>,
    pub(crate) key_span: Range<usize>,
    pub(crate) node: Node<'t>,
}

impl Value<'_> {
    /// What it is, with its article, as in "expected a port, found a string".
    pub(crate) fn kind(&self) -> &'static str {
        match self {
            Self::String(_) => "a string",
            Self::Integer(_) => "a number",
            Self::Boolean(_) => "a boolean",
            Self::Array(_) => "an array",
            Self::Table(_) => "a table",
            Self::Other(kind) => kind,
        }
    }
}
