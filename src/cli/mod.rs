//! The verbs, one file each.

pub(crate) mod demo;
