//! The verbs of the command line, one file each.

pub mod check;
pub mod explain;
