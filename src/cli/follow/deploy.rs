//! A site that goes over to other targets while it is served: the file is changed, and applied in the same moment.

use std::sync::Arc;
use std::time::Duration;

use carom::config::edit;
use carom::config::save;
use carom::config::watch::Watch;
use carom::ops::control::deploy::{Deploy, Done, Planned};
use carom::ops::health;
use carom::table::health::{Check, Probe};
use carom::table::pattern::Pattern;
use carom::table::site::Site;
use carom::table::{Action, Table};

use super::Follow;
use crate::cli::set;

/// How long a target may take to answer, where the site has no check of its own.
const TIMEOUT: Duration = Duration::from_secs(3);

impl Follow {
    /// The targets that a site would have. Nothing is changed.
    pub(super) fn plan(&self, deploy: &Deploy) -> Result<Vec<Planned>, String> {
        let running = self.routes.current();
        let how = |text: &str| edit::set(text, &deploy.site, &deploy.to);
        let (table, _) = save::plan(&self.path, &self.listening, Some(&running), how).map_err(text)?;
        let path = deploy.health.as_deref().map(checked).transpose()?;
        let planned = site(&table, &deploy.site)?.instances().iter().map(|instance| {
            let link = instance.backend.link();
            let own = instance.health.as_ref().map(|health| health.check().clone());
            if path.is_some() && link.http2 {
                return Err(format!("{} speaks HTTP/2: it can't be asked for a path", instance.backend));
            }
            let check = path.clone().or(own).unwrap_or_else(|| check(Probe::Tcp));
            Ok(Planned { backend: Arc::clone(&instance.backend), check })
        });
        planned.collect()
    }

    /// Writes the change into the file and applies it. Whoever asks for it has seen that the targets are healthy: they serve
    /// from the first request on.
    pub(super) fn deploy(&mut self, deploy: &Deploy, name: &str, watch: &mut Watch) -> Result<Done, String> {
        let running = self.routes.current();
        let how = |text: &str| edit::set(text, &deploy.site, &deploy.to);
        let (saved, edited) = save::edit(&self.path, &self.listening, Some(&running), how).map_err(text)?;
        health::believe(site(&saved.after, &deploy.site)?);
        let text = self.apply(name, saved.after, &saved.content);
        watch.know(saved.content);
        Ok(Done { text, site: edited.line })
    }
}

/// The site that a table has for a key.
fn site<'t>(table: &'t Table, key: &str) -> Result<&'t Arc<Site>, String> {
    let pattern = Pattern::parse(key).map_err(|bad| bad.what)?;
    let found = table.lines().find(|(_, patterns)| patterns.contains(&pattern));
    match found.map(|(route, _)| &route.action) {
        Some(Action::Forward(site) | Action::PassThrough(site)) => Ok(site),
        _ => Err(format!("{key} has no targets")),
    }
}

fn checked(path: &str) -> Result<Check, String> {
    let plain = path.bytes().all(|byte| byte.is_ascii_graphic() && byte != b'#');
    match path.starts_with('/') && plain {
        true => Ok(check(Probe::Http { method: "GET".into(), path: path.into(), host: None, status: Vec::new() })),
        false => Err(format!("`{path}` is no path: it begins with / and has neither spaces nor #")),
    }
}

fn check(probe: Probe) -> Check {
    Check { probe, interval: TIMEOUT, timeout: TIMEOUT, rise: 1, fall: 1 }
}

/// For whoever asks, who may not sit at a terminal though this carom does.
fn text(failure: save::Failure) -> String {
    match failure {
        save::Failure::Wrong(report) => format!("{report}\ncarom: nothing was written"),
        failure => set::failure(failure).text,
    }
}
