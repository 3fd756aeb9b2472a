//! What the targets in `fuzz/` call: the properties of `http::properties`, for bytes from anywhere.
//!
//! Only built with `--cfg fuzzing`; no part of the library.

use crate::http::properties;

/// A request's head, its rewriting, and whatever stands behind it.
pub fn head(bytes: &[u8]) {
    properties::request(bytes);
}

/// A response's head and its rewriting.
pub fn response(bytes: &[u8]) {
    properties::response(bytes);
}

/// A chunked body.
pub fn chunked(bytes: &[u8]) {
    properties::chunked(bytes);
}

/// A host's spelling.
pub fn host(bytes: &[u8]) {
    properties::host(bytes);
}
