//! The routes of one host: the bare line, and lines for path prefixes.

use std::collections::BTreeMap;
use std::ops::Bound;
use std::sync::Arc;

use super::Route;

/// A host's lines. Most hosts have only the bare one.
#[derive(Clone, Debug, Default)]
pub(super) struct Paths {
    bare: Option<Arc<Route>>,
    /// By prefix, which begins with `/` and does not end with one.
    prefixes: BTreeMap<Box<[u8]>, Arc<Route>>,
}

impl Paths {
    /// Adds a line; gives the route that already has that place.
    pub(super) fn add(&mut self, path: Option<&str>, route: &Arc<Route>) -> Result<(), Arc<Route>> {
        let taken = match path {
            None => self.bare.as_ref(),
            Some(path) => self.prefixes.get(path.as_bytes()),
        };
        if let Some(taken) = taken {
            return Err(Arc::clone(taken));
        }
        match path {
            None => self.bare = Some(Arc::clone(route)),
            Some(path) => drop(self.prefixes.insert(path.as_bytes().into(), Arc::clone(route))),
        }
        Ok(())
    }

    /// The line with the longest prefix that covers the path, or the bare one.
    ///
    /// Every prefix of a path sorts before it, and everything that sorts between a prefix and the path begins with
    /// that prefix. So the neighbour before the path either covers it, or shares with it all that a covering prefix
    /// can have: the search goes on below that.
    pub(super) fn find(&self, path: &[u8]) -> Option<&Arc<Route>> {
        let mut bound = path;
        while !self.prefixes.is_empty() {
            let below = (Bound::Unbounded, Bound::Included(bound));
            let Some((prefix, route)) = self.prefixes.range::<[u8], _>(below).next_back() else {
                break;
            };
            if covers(prefix, path) {
                return Some(route);
            }
            let shared = prefix.iter().zip(path).take_while(|(a, b)| a == b).count();
            bound = &path[..shared.min(prefix.len().saturating_sub(1))];
        }
        self.bare.as_ref()
    }
}

/// Whether a prefix covers a path, on a segment border.
fn covers(prefix: &[u8], path: &[u8]) -> bool {
    path.strip_prefix(prefix).is_some_and(|rest| matches!(rest.first(), None | Some(b'/' | b'?')))
}
