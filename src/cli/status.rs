//! `carom status [SITE]`: how a carom that runs is, for people or as JSON.

use std::fmt::Write as _;
use std::process::ExitCode;
use std::time::{Duration, SystemTime};

use carom::ops::control::status::{Instance, Site, Word};
use carom::ops::control::{Status, TrialState};
use serde_json::Value;

use super::To;
use super::serve::Failure;
use super::talk::{Talk, percent_encoded};

/// The widest that a line may be.
const WIDEST: usize = 100;

/// Fewer days than this are worth a word.
const FEW_DAYS: u64 = 30;

/// Shows how it is: 0 when somebody could be asked.
pub(super) fn run(site: Option<&str>, json: bool, to: To) -> ExitCode {
    match show(site, json, to) {
        Ok(text) => {
            tell!("{}", text.trim_end());
            ExitCode::SUCCESS
        }
        Err(failure) => failure.exit(),
    }
}

fn show(site: Option<&str>, json: bool, to: To) -> Result<String, Failure> {
    let path = match site {
        Some(site) => format!("/v1/status?site={}", percent_encoded(site)),
        None => "/v1/status".to_owned(),
    };
    let carom = Talk::with(to)?;
    if json {
        // As it came: an older program must not swallow what a newer one says.
        return Ok(format!("{:#}", carom.get::<Value>(&path)?));
    }
    Ok(written(&carom.get(&path)?))
}

/// Which carom it is, in a line.
pub(super) fn title(status: &Status) -> String {
    format!(
        "carom {}, process {}, up {}; {} of {} connections",
        status.version,
        status.process,
        span(Duration::from_secs(status.uptime_seconds)),
        status.connections,
        status.most_connections
    )
}

/// For people.
fn written(status: &Status) -> String {
    let mut text = String::new();
    // Writing to a String can't fail.
    let _ = writeln!(text, "{}", title(status));
    let _ = writeln!(text, "listening on {}", status.listening.join(", "));
    let _ = writeln!(text, "{}, applied {}", status.routes.path, ago(&status.routes.applied));
    if let Some(broken) = &status.routes.broken {
        let _ = writeln!(text, "\nWHAT RUNS IS OLDER THAN THE FILE, which was not applied:");
        for line in broken.trim_end().lines() {
            let _ = writeln!(text, "  {line}");
        }
    }
    if let Some(trial) = status.routes.trial.as_ref().filter(|trial| trial.state == TrialState::On) {
        let ends = humantime::parse_rfc3339(&trial.ends).ok();
        let left = ends.and_then(|ends| ends.duration_since(SystemTime::now()).ok()).unwrap_or_default();
        let _ = writeln!(text, "\nON TRIAL, and back in {} unless `carom confirm`:", span(left));
        for line in trial.why.lines() {
            let _ = writeln!(text, "  {}", cut(line, WIDEST - 2));
        }
    }
    let named = status.sites.iter().flat_map(|site| &site.instances).map(|instance| instance.name.chars().count());
    let width = named.max().unwrap_or(0).clamp(8, 40);
    for site in &status.sites {
        text.push('\n');
        text.push_str(&of_site(site, width));
    }
    for leaving in &status.leaving {
        let _ = writeln!(text, "\n{} leaves {}: {} in flight", leaving.name, leaving.site, leaving.in_flight);
    }
    if status.sites.is_empty() {
        text.push_str("\nno site has instances\n");
    }
    if status.more_sites > 0 {
        let _ = writeln!(text, "\n… and {} more sites: carom status SITE", status.more_sites);
    }
    for certificate in status.certificates.iter().filter(|certificate| certificate.days < FEW_DAYS) {
        let _ = writeln!(text, "\ncertificate {} ends in {} days", certificate.names.join(", "), certificate.days);
    }
    text
}

fn of_site(site: &Site, width: usize) -> String {
    let mut text = String::new();
    let mut first = site.name.clone();
    if !site.also.is_empty() {
        let _ = write!(first, " (also {})", site.also.join(", "));
    }
    let _ = write!(first, ", line {}", site.line);
    if site.passthrough {
        first.push_str(", passed through");
    }
    let _ = write!(first, ", {} requests", site.ended.total());
    if site.ended.bad() > 0 {
        let _ = write!(first, ", {} of them failed or 5xx", site.ended.bad());
    }
    if site.waiting > 0 {
        let _ = write!(first, ", {} waiting", site.waiting);
    }
    let _ = writeln!(text, "{}", cut(&first, WIDEST));
    if let Some(paused) = &site.paused {
        let wait = span(Duration::try_from_secs_f64(paused.wait_seconds).unwrap_or_default());
        let message = paused.message.as_deref().map(|message| format!(" {message:?}")).unwrap_or_default();
        let line = format!("  PAUSED: requests wait {wait}, then get 503{message}; `carom resume` ends it");
        let _ = writeln!(text, "{}", cut(&line, WIDEST));
    }
    let _ = writeln!(
        text,
        "  {:width$}  {:9} {:>9} {:>10} {:>7} {:>7}",
        "instance", "state", "in flight", "requests", "5xx", "failed"
    );
    for instance in &site.instances {
        let traits = traits(instance);
        let line = format!(
            "  {:width$}  {:9} {:>9} {:>10} {:>7} {:>7}  {traits}",
            cut(&instance.name, width),
            word(instance.state),
            instance.in_flight,
            instance.requests,
            instance.ended.server_error,
            instance.ended.failed,
        );
        let _ = writeln!(text, "{}", cut(line.trim_end(), WIDEST));
        for line in told(instance).into_iter().chain(starts(instance)).chain(place(instance)) {
            let _ = writeln!(text, "    {}", cut(&line, WIDEST - 4));
        }
    }
    text
}

/// What is not so by default.
pub(super) fn traits(instance: &Instance) -> String {
    let weight = (instance.weight != 1).then(|| format!("weight {}", instance.weight));
    let backup = instance.backup.then(|| "backup".to_owned());
    let most = instance.max_connections.map(|most| format!("max {most}"));
    weight.into_iter().chain(backup).chain(most).collect::<Vec<_>>().join(", ")
}

/// How far it has got who starts slowly.
fn starts(instance: &Instance) -> Option<String> {
    Some(format!("starts slowly: {} % of its share so far", instance.share_percent?))
}

/// Where its name says that it is.
pub(super) fn place(instance: &Instance) -> Option<String> {
    match instance.addresses.as_deref()? {
        [] => Some("its name is not known to have an address".to_owned()),
        addresses => Some(format!("at {}", addresses.join(", "))),
    }
}

/// Why it is not up, since when, and what brings it back.
fn told(instance: &Instance) -> Vec<String> {
    if instance.state == Word::Up {
        return Vec::new();
    }
    let since = instance.since.as_deref().map(|since| format!("since {}", ago(since)));
    let why: Vec<String> = since.into_iter().chain(instance.why.clone()).collect();
    let why = (!why.is_empty()).then(|| why.join(": "));
    why.into_iter().chain(instance.back.as_ref().map(|back| format!("back by {back}"))).collect()
}

pub(super) fn word(state: Word) -> &'static str {
    match state {
        Word::Up => "up",
        Word::Down => "DOWN",
        Word::Aside => "aside",
        Word::NotAsked => "not asked",
        Word::Draining => "draining",
        Word::Drained => "drained",
    }
}

/// How long ago that was, and the moment itself where it is long ago.
pub(super) fn ago(time: &str) -> String {
    let Ok(then) = humantime::parse_rfc3339(time) else { return time.to_owned() };
    format!("{} ago", span(SystemTime::now().duration_since(then).unwrap_or_default()))
}

/// The two largest parts: `3days 4h`.
pub(super) fn span(span: Duration) -> String {
    let text = humantime::format_duration(Duration::from_secs(span.as_secs())).to_string();
    text.split(' ').take(2).collect::<Vec<_>>().join(" ")
}

pub(super) fn cut(text: &str, most: usize) -> String {
    match text.char_indices().nth(most) {
        Some(_) => text.chars().take(most.saturating_sub(1)).chain(['…']).collect(),
        None => text.to_owned(),
    }
}
