//! What is allowed and yet worth a word, each time that it comes into force.

use crate::table::{Action, Table};

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
