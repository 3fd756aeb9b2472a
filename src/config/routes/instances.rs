//! A route's targets, read into the instances of its site.

use std::sync::Arc;

use super::Resolver;
use crate::config::keys::{Keys, noted};
use crate::config::node::{Entry, Node, Value};
use crate::config::report::Problem;
use crate::config::{health, link, names};
use crate::table::backend::Backend;
use crate::table::health::{Check, Health};
use crate::table::site::{HEAVIEST, Instance, MOST_INSTANCES};
use crate::table::target::{self, Written};

/// What a route says of all of its targets that don't say otherwise.
#[derive(Clone, Copy)]
pub(super) struct Each<'s, 'a> {
    pub(super) link: &'s link::Said<'a>,
    pub(super) check: Option<&'s (Check, &'a Node<'a>)>,
    pub(super) max_connections: Option<u32>,
}

impl<'a> Resolver<'a> {
    /// The instances of a target or of an array of them, with what the route says of all; `None` when one is wrong.
    pub(super) fn instances(&mut self, node: &'a Node<'a>, each: Each<'_, 'a>) -> Option<Vec<Instance>> {
        let items = node.items();
        if items.is_empty() {
            self.problems.push(Problem::at(&node.span, "an array without a target").help("such as [8001, 8002]"));
            return None;
        }
        if items.len() > MOST_INSTANCES {
            let what = format!("a route has at most {MOST_INSTANCES} targets, not {}", items.len());
            self.problems.push(Problem::at(&node.span, what));
            return None;
        }
        let mut instances = Vec::with_capacity(items.len());
        for item in items {
            instances.extend(self.instance(item, each));
        }
        let over_tls = |instance: &Instance| instance.backend.link().tls.is_some();
        if let (Some(entry), true) = (each.link.about_tls(), instances.len() == items.len())
            && !instances.iter().any(over_tls)
        {
            self.problems.push(link::only_over_tls(entry));
        }
        (instances.len() == items.len()).then_some(instances)
    }

    fn instance(&mut self, node: &'a Node<'a>, each: Each<'_, 'a>) -> Option<Instance> {
        let Each { link: route, check, mut max_connections } = each;
        let Value::Table(entries) = &node.value else {
            let backend = self.backend(node, &link::Said::default(), route)?;
            let health = check.and_then(|check| self.health(&backend, check));
            return Some(Instance { max_connections, health, ..Instance::new(backend) });
        };
        let (mut to, mut weight, mut backup, mut own) = (None, 1, false, link::Said::default());
        let mut own_check = None;
        TARGET.read(
            entries,
            &mut self.problems,
            |entry| (entry.key == "tls").then(|| names::listed(&["ca", "server_name", "client_cert", "insecure"])),
            |key, entry, problems| match key {
                "to" => to = Some(&entry.node),
                "weight" => {
                    let number = noted(entry.node.number("a weight", 1..=i64::from(HEAVIEST)), problems);
                    weight = number.and_then(|number| u16::try_from(number).ok()).unwrap_or(1);
                }
                "health" => own_check = health::read(&entry.node, problems).map(|check| (check, &entry.node)),
                "max_connections" => max_connections = most(entry, problems).or(max_connections),
                "backup" => backup = noted(entry.node.flag("true or false"), problems).unwrap_or(false),
                _ => {
                    own.note(key, entry);
                }
            },
        );
        let Some(to) = to else {
            let problem = Problem::at(&node.span, "a target needs `to`");
            self.problems.push(problem.help("{ to = 8001, weight = 2 }"));
            return None;
        };
        let backend = self.backend(to, &own, route)?;
        let health = own_check.as_ref().or(check).and_then(|check| self.health(&backend, check));
        Some(Instance { weight, backup, max_connections, health, ..Instance::new(backend) })
    }

    fn health(&mut self, backend: &Backend, (check, node): &(Check, &'a Node<'a>)) -> Option<Arc<Health>> {
        if let Some(why) = health::fits(check, backend.link().http2) {
            self.problems.push(Problem::at(&node.span, why).help("health = \"tcp\""));
            return None;
        }
        Some(self.known.health(backend, check.clone()))
    }

    fn backend(&mut self, node: &Node<'_>, own: &link::Said<'_>, route: &link::Said<'_>) -> Option<Arc<Backend>> {
        let Written { address, scheme } = self.target(node)?;
        let link = self.links.link(node, &scheme, own, route, &mut self.problems)?;
        Some(self.known.backend(address, link))
    }

    fn target(&mut self, node: &Node<'_>) -> Option<Written> {
        let target = match &node.value {
            Value::Integer(number) => target::port(*number),
            Value::String(text) => target::parse(text),
            other => {
                let what = format!("expected a target, found {}", other.kind());
                self.problems.push(Problem::at(&node.span, what).help("a port such as 8001, or \"10.0.0.7:9000\""));
                return None;
            }
        };
        let target = target.map_err(|bad| Problem::at(&node.span, bad.what).maybe_help(bad.help));
        let target = noted(target, &mut self.problems)?;
        if target::is_ours(&target.address, self.listeners) {
            let address = &target.address;
            self.problems.push(
                Problem::at(&node.span, format!("{address} is a port that carom itself listens on"))
                    .label("requests would go round in a circle")
                    .help("name the port that the application listens on"),
            );
            return None;
        }
        Some(target)
    }
}

/// How many requests an instance takes at once.
pub(super) fn most(entry: &Entry<'_>, problems: &mut Vec<Problem>) -> Option<u32> {
    let number = noted(entry.node.number("a number of requests at once", 1..=MOST_CONNECTIONS), problems)?;
    u32::try_from(number).ok()
}

/// The highest `max_connections`: no instance has as many.
const MOST_CONNECTIONS: i64 = 1_000_000;

/// What a target's table may say.
pub(super) const TARGET: Keys = Keys {
    of: "a target",
    known: &[
        "to",
        "weight",
        "backup",
        "max_connections",
        "health",
        "send_proxy",
        "http2",
        "ca",
        "server_name",
        "client_cert",
        "client_key",
        "insecure",
    ],
    later: &[],
};
