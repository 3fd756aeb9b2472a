//! JSON text into nodes: strict JSON, as a bouncy `routes.json` is.

use std::borrow::Cow;
use std::ops::Range;

use jsonc_parser::ast;
use jsonc_parser::common::Range as JsonRange;
use jsonc_parser::{CollectOptions, CommentCollectionStrategy, ParseOptions, parse_to_ast};

use super::node::{Entry, Node, Value};
use super::report::Problem;

/// The entries of the document's one object, in the order of the text.
pub(crate) fn entries(text: &str) -> (Vec<Entry<'_>>, Vec<Problem>) {
    let collect = CollectOptions { comments: CommentCollectionStrategy::Off, tokens: false };
    let strict = ParseOptions {
        allow_comments: false,
        allow_loose_object_property_names: false,
        allow_trailing_commas: false,
        allow_missing_commas: false,
        allow_single_quoted_strings: false,
        allow_hexadecimal_numbers: false,
        allow_unary_plus_numbers: false,
        allow_bare_decimal_point_numbers: false,
        allow_non_finite_numbers: false,
        allow_extended_string_escapes: false,
    };
    match parse_to_ast(text, &collect, &strict) {
        Err(error) => {
            let what = error.kind().to_string();
            (Vec::new(), vec![Problem::at(&span(error.range()), format!("not JSON: {what}"))])
        }
        Ok(parsed) => match parsed.value {
            None => (Vec::new(), Vec::new()),
            Some(ast::Value::Object(object)) => (properties(object), Vec::new()),
            Some(other) => {
                let node = node(other);
                let what = format!("expected an object of hosts, found {}", node.value.kind());
                (Vec::new(), vec![Problem::at(&node.span, what).help("{ \"beep.example.com\": 8001 }")])
            }
        },
    }
}

fn properties(object: ast::Object<'_>) -> Vec<Entry<'_>> {
    object
        .properties
        .into_iter()
        .map(|property| {
            let (key, key_span) = match property.name {
                ast::ObjectPropName::String(name) => (name.value, span(name.range)),
                ast::ObjectPropName::Word(name) => (Cow::Borrowed(name.value), span(name.range)),
            };
            Entry { key, key_span, node: node(property.value) }
        })
        .collect()
}

fn node(value: ast::Value<'_>) -> Node<'_> {
    let (range, value) = match value {
        ast::Value::StringLit(text) => (text.range, Value::String(text.value)),
        ast::Value::NumberLit(number) => (number.range, number_of(number.value)),
        ast::Value::BooleanLit(boolean) => (boolean.range, Value::Boolean(boolean.value)),
        ast::Value::Object(object) => (object.range, Value::Table(properties(object))),
        ast::Value::Array(array) => (array.range, Value::Array(array.elements.into_iter().map(node).collect())),
        ast::Value::NullKeyword(null) => (null.range, Value::Other("null")),
    };
    Node { span: span(range), value }
}

fn number_of(text: &str) -> Value<'static> {
    if text.bytes().all(|b| b.is_ascii_digit() || b == b'-') {
        Value::Integer(text.parse().ok())
    } else {
        Value::Other("a float")
    }
}

fn span(range: JsonRange) -> Range<usize> {
    range.start..range.end
}
