//! What of the running table goes on living in the next: backends by their address and link, sites that are the same.
//!
//! So a save touches no count, no idle connection and no turn of what it doesn't change.

use std::sync::Arc;

use hashbrown::{HashMap, HashSet};

use crate::table::backend::{Address, Backend};
use crate::table::health::{Check, Health};
use crate::table::link::Link;
use crate::table::pattern::Pattern;
use crate::table::site::{Instance, Rules, Site};
use crate::table::{Action, Leaving, Table};

/// The backends and sites that are known while a table is built.
pub(super) struct Known<'p> {
    backends: HashMap<(Address, Link), Arc<Backend>>,
    /// By the backend's id and the check.
    healths: HashMap<(u64, Check), Arc<Health>>,
    /// By the first pattern of their route.
    sites: HashMap<&'p Pattern, &'p Arc<Site>>,
}

impl<'p> Known<'p> {
    /// What a running table knows.
    pub(super) fn from(previous: Option<&'p Table>) -> Self {
        let mut known = Self { backends: HashMap::new(), healths: HashMap::new(), sites: HashMap::new() };
        for (route, patterns) in previous.into_iter().flat_map(Table::lines) {
            let (Action::Forward(site) | Action::PassThrough(site), Some(first)) = (&route.action, patterns.first())
            else {
                continue;
            };
            known.sites.insert(first, site);
            for instance in site.instances() {
                let backend = &instance.backend;
                let key = (backend.address().clone(), backend.link().clone());
                known.backends.entry(key).or_insert_with(|| Arc::clone(backend));
                if let Some(health) = &instance.health {
                    let key = (backend.id(), health.check().clone());
                    known.healths.entry(key).or_insert_with(|| Arc::clone(health));
                }
            }
        }
        // One that comes back before it has become idle is the same still.
        for Leaving { backend, .. } in previous.map(Table::left).unwrap_or_default() {
            let key = (backend.address().clone(), backend.link().clone());
            known.backends.entry(key).or_insert_with(|| Arc::clone(backend));
        }
        known
    }

    /// The one backend with this address and this link.
    pub(super) fn backend(&mut self, address: Address, link: Link) -> Arc<Backend> {
        let key = (address, link);
        if let Some(backend) = self.backends.get(&key) {
            return Arc::clone(backend);
        }
        let backend = Backend::linked(key.0.clone(), key.1.clone());
        self.backends.insert(key, Arc::clone(&backend));
        backend
    }

    /// What is known of this backend by this check.
    pub(super) fn health(&mut self, backend: &Backend, check: Check) -> Arc<Health> {
        let health = self.healths.entry((backend.id(), check.clone()));
        Arc::clone(health.or_insert_with(|| Arc::new(Health::new(check))))
    }

    /// The site of a route: the running one where nothing of it has changed.
    pub(super) fn site(&self, pattern: &Pattern, instances: Vec<Instance>, rules: Rules) -> Arc<Site> {
        match self.sites.get(pattern) {
            Some(site) if *site.rules() == rules && same(site.instances(), &instances) => Arc::clone(site),
            Some(site) => Arc::new(Site::new(instances, rules).instead_of(site)),
            None => Arc::new(Site::new(instances, rules)),
        }
    }
}

/// Who leaves with a new table, and who has left before and is not done yet.
pub(super) fn leaving(previous: &Table, next: &Table) -> Vec<Leaving> {
    let stays: HashSet<u64> = next.sites().flat_map(|site| site.instances()).map(|i| i.backend.id()).collect();
    let mut told = HashSet::new();
    let gone = previous.routes().iter().flat_map(|route| {
        let (Action::Forward(site) | Action::PassThrough(site)) = &route.action else { return Vec::new() };
        let backends = site.instances().iter().map(|instance| Arc::clone(&instance.backend));
        backends.map(|backend| Leaving { site: route.name.clone(), backend }).collect()
    });
    gone.chain(previous.leaving().cloned())
        .filter(|leaving| !stays.contains(&leaving.backend.id()) && told.insert(leaving.backend.id()))
        .collect()
}

fn same(old: &[Instance], new: &[Instance]) -> bool {
    old.len() == new.len()
        && old.iter().zip(new).all(|(old, new)| {
            Arc::ptr_eq(&old.backend, &new.backend)
                && old.weight == new.weight
                && old.backup == new.backup
                && old.max_connections == new.max_connections
                && old.health.as_ref().map(Arc::as_ptr) == new.health.as_ref().map(Arc::as_ptr)
        })
}
