//! One site on the whole screen: what `carom status` says of it, and what it serves a second.

use std::time::Duration;

use carom::ops::control::status::Site;
use carom::table::tally::Counts;
use ratatui::Frame;
use ratatui::layout::Rect;
use ratatui::style::{Modifier, Style};
use ratatui::text::{Line, Text};

use super::Seen;
use super::draw::{Paint, number, time};
use super::rates::{Rate, Took};
use super::view::{self, View};
use crate::cli::status::{ago, place, span, traits, word};

/// Draws it.
pub(super) fn draw(frame: &mut Frame<'_>, area: Rect, seen: &Seen, view: &mut View, name: &str, paint: &Paint) {
    let site = seen.answer.status.sites.iter().find(|site| site.name == name);
    let lines = match site {
        Some(site) => told(site, seen, paint),
        None => vec![(format!("{name} is not among the sites any more"), paint.warn())],
    };
    let width = usize::from(area.width);
    let lines: Vec<Line<'_>> = lines.into_iter().flat_map(|(text, style)| folded(&text, width, style)).collect();
    view.page = usize::from(area.height);
    view.first = view.first.min(lines.len().saturating_sub(view.page));
    frame.render_widget(Text::from_iter(lines.into_iter().skip(view.first)), area);
}

fn told(site: &Site, seen: &Seen, paint: &Paint) -> Vec<(String, Style)> {
    let plain = Style::new();
    let also = if site.also.is_empty() { String::new() } else { format!(" (also {})", site.also.join(", ")) };
    let now = rate(seen.rates.of_site(&site.name));
    let mut lines = vec![
        (format!("{}{also}, line {}", site.name, site.line), plain.add_modifier(Modifier::BOLD)),
        (format!("  {now}, {} in flight, {} waiting", view::in_flight(site), site.waiting), plain),
        (format!("  since the start: {}", counts(&site.ended)), plain),
        (format!("  {}", durations(site, seen)), plain),
    ];
    if let Some(paused) = &site.paused {
        let wait = span(Duration::try_from_secs_f64(paused.wait_seconds).unwrap_or_default());
        let line = format!("  PAUSED: requests wait {wait}, then get 503; `carom resume` ends it");
        lines.push((line, paint.warn()));
    }
    for instance in &site.instances {
        lines.push((String::new(), plain));
        let traits = traits(instance);
        let traits = if traits.is_empty() { traits } else { format!(", {traits}") };
        let line = format!("  {}: {}{traits}", instance.name, word(instance.state));
        lines.push((line, paint.of(instance.state)));
        let since = instance.since.as_ref().map(|since| format!("since {}", ago(since)));
        let back = instance.back.as_ref().map(|back| format!("back by {back}"));
        let check = instance.check.as_ref().map(|check| format!("checked by {check}"));
        let said = since.into_iter().chain(instance.why.clone()).chain(back).chain(check).chain(place(instance));
        let now = format!("{}, {} in flight", rate(seen.rates.of_instance(&instance.name)), instance.in_flight);
        let all = format!("since the start: {} given; {}", instance.requests, counts(&instance.ended));
        lines.extend([now, all].into_iter().chain(said).map(|text| (format!("    {text}"), plain)));
    }
    lines
}

/// How long its requests take.
fn durations(site: &Site, seen: &Seen) -> String {
    let Some(all) = &site.took else {
        return "how long they take is not counted: neither log.access nor [status] is on".to_owned();
    };
    let part = |took: Option<Took>| {
        let [p50, p95] = [took.map(|took| took.p50), took.map(|took| took.p95)].map(time);
        format!("p50 {p50}, p95 {p95}")
    };
    let now = seen.rates.of_site(&site.name).and_then(|rate| rate.took);
    format!("they take: {}; since the start: {}", part(now), part(Took::of(&all.into())))
}

fn rate(rate: Option<Rate>) -> String {
    format!("{} req/s, {} err/s", number(rate.map(|rate| rate.requests)), number(rate.map(|rate| rate.errors)))
}

/// What has come to pass at all.
fn counts(counts: &Counts) -> String {
    let all = [
        ("2xx", counts.success),
        ("3xx", counts.redirect),
        ("4xx", counts.client_error),
        ("5xx", counts.server_error),
        ("failed", counts.failed),
        ("tunnels", counts.tunnels),
        ("answered by carom", counts.own),
        ("clients gone before", counts.unanswered),
    ];
    let some: Vec<String> =
        all.iter().filter(|(_, count)| *count > 0).map(|(what, count)| format!("{count} {what}")).collect();
    if some.is_empty() { "nothing yet".to_owned() } else { some.join(", ") }
}

/// As many lines as it takes, those behind the first further in. Between words where there are some.
fn folded(text: &str, width: usize, style: Style) -> Vec<Line<'static>> {
    let indent = text.chars().take_while(|char| *char == ' ').count();
    let mut lines = Vec::new();
    let mut rest = text.to_owned();
    while let Some((end, _)) = rest.char_indices().nth(width.max(indent + 10)) {
        let at = rest[..end].rfind(' ').filter(|&at| at > indent + 2).unwrap_or(end);
        let behind = rest.split_off(at);
        lines.push(Line::styled(rest, style));
        rest = format!("{:1$}{2}", "", indent + 2, behind.trim_start());
    }
    lines.push(Line::styled(rest, style));
    lines
}
