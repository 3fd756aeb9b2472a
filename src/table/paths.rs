//! The routes of one host: the bare line, and lines for path prefixes.

use std::sync::Arc;

use super::Route;

/// A host's lines. Most hosts have only the bare one.
#[derive(Debug, Default)]
pub(super) struct Paths {
    bare: Option<Arc<Route>>,
    /// Sorted by prefix: begins with `/`, does not end with one.
    prefixes: Vec<(Box<str>, Arc<Route>)>,
}

impl Paths {
    /// Adds a line; gives the route that already has that place.
    pub(super) fn add(&mut self, path: Option<&str>, route: &Arc<Route>) -> Result<(), Arc<Route>> {
        let Some(path) = path else {
            return match &self.bare {
                Some(taken) => Err(Arc::clone(taken)),
                None => {
                    self.bare = Some(Arc::clone(route));
                    Ok(())
                }
            };
        };
        match self.prefixes.binary_search_by(|(prefix, _)| (**prefix).cmp(path)) {
            Ok(index) => Err(Arc::clone(&self.prefixes[index].1)),
            Err(index) => {
                self.prefixes.insert(index, (path.into(), Arc::clone(route)));
                Ok(())
            }
        }
    }

    /// The line with the longest prefix that covers the path, or the bare one.
    ///
    /// Every prefix of a path sorts before it, and everything that sorts between a prefix and the path begins with
    /// that prefix. So the neighbour before the path either covers it, or shares with it all that a covering prefix
    /// can have: the search goes on below that.
    pub(super) fn find(&self, path: &[u8]) -> Option<&Arc<Route>> {
        let mut rest = self.prefixes.as_slice();
        let mut bound = path;
        while !rest.is_empty() {
            let before = rest.partition_point(|(prefix, _)| prefix.as_bytes() <= bound);
            rest = &rest[..before];
            let Some((prefix, route)) = rest.last() else {
                break;
            };
            if covers(prefix.as_bytes(), path) {
                return Some(route);
            }
            let shared = prefix.bytes().zip(path).take_while(|(a, b)| a == *b).count();
            bound = &path[..shared.min(prefix.len().saturating_sub(1))];
        }
        self.bare.as_ref()
    }
}

/// Whether a prefix covers a path, on a segment border.
fn covers(prefix: &[u8], path: &[u8]) -> bool {
    path.strip_prefix(prefix).is_some_and(|rest| matches!(rest.first(), None | Some(b'/' | b'?')))
}
