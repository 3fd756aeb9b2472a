//! What is allowed and yet worth a word, each time that it comes into force.

use std::sync::Arc;

use crate::table::{Action, Route, Table};

/// The routes that never apply where no address speaks TLS, if there are any: a line that says so.
pub fn unheard(table: &Table, file: &str) -> Option<String> {
    let passes = |route: &&Arc<Route>| matches!(route.action, Action::PassThrough(_));
    let first = table.routes().iter().find(passes)?;
    Some(format!(
        "warning: {file}:{}: {} is passed through, and no address speaks TLS: --tls '[::]:443', or tls = true in a [[listen]]",
        first.line, first.name
    ))
}

/// A line for each thing that an operator should not get used to. `file` is what the routes file is called.
pub fn cautions(table: &Table, file: &str) -> Vec<String> {
    let mut lines = Vec::new();
    for route in table.routes() {
        let Action::Forward(site) = &route.action else { continue };
        for instance in site.instances() {
            if instance.backend.link().tls.as_ref().is_some_and(|tls| tls.is_insecure()) {
                lines.push(format!(
                    "warning: {file}:{}: {} is not verified (insecure = true): whoever is on the way to it can read and \
                     change everything; ca = \"its.pem\" trusts it alone",
                    route.line, instance.backend
                ));
            }
        }
    }
    lines
}
