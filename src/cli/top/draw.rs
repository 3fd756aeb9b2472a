//! What is drawn: from above, the carom, its sites with their instances, what has failed last, and the keys.
//!
//! What matters is a word; colours only say it again. Where there is little room, columns go that matter less.

use carom::ops::control::status::{Instance, Site, Word};
use carom::ops::failures::Failure;
use ratatui::Frame;
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::style::{Color, Modifier, Style};
use ratatui::text::{Line, Text};
use ratatui::widgets::{Cell, Paragraph, Row, Table};

use super::Seen;
use super::one;
use super::rates::{self, Rate};
use super::view::{self, View};
use crate::cli::status::{ago, span, title, traits, word};

/// The most failures below the list.
const FAILURES: u16 = 5;

/// So high a screen has to be for failures to have room below the list.
const ROOM_FOR_FAILURES: u16 = 16;

/// The columns of numbers behind the state, the dearest first: heading and width.
const COLUMNS: [(&str, u16); 6] =
    [("req/s", 7), ("err/s", 7), ("p50", 6), ("p95", 6), ("in flight", 9), ("waiting", 7)];

/// The least that a name has.
const NARROWEST_NAME: u16 = 14;

/// The width of the state.
const STATE: u16 = 11;

/// Draws all of it.
pub(super) fn draw(frame: &mut Frame<'_>, seen: &Seen, view: &mut View, colors: bool) {
    let paint = Paint { colors };
    let head = head(seen, &paint);
    let opened = view.opened.then(|| view.chosen.clone()).flatten();
    let failures = failures(seen, opened.as_deref());
    let room = if frame.area().height >= ROOM_FOR_FAILURES { FAILURES } else { 0 };
    let below = u16::try_from(failures.len()).unwrap_or(u16::MAX).min(room);
    let [above, middle, title, last, keys] = Layout::vertical([
        Constraint::Length(u16::try_from(head.len()).unwrap_or(u16::MAX)),
        Constraint::Min(3),
        Constraint::Length(below.min(1)),
        Constraint::Length(below),
        Constraint::Length(1),
    ])
    .areas(frame.area());
    frame.render_widget(Paragraph::new(head), above);
    match opened {
        Some(site) => one::draw(frame, middle, seen, view, &site, &paint),
        None => list(frame, middle, seen, view, &paint),
    }
    frame.render_widget(Line::styled("failed last", paint.heading()), title);
    frame.render_widget(Text::from(failures), last);
    frame.render_widget(footer(view, &paint), keys);
}

/// The carom, its file, and all sites together.
fn head(seen: &Seen, paint: &Paint) -> Vec<Line<'static>> {
    let status = &seen.answer.status;
    let mut lines = Vec::new();
    if let Some((since, why)) = &seen.trouble {
        let silent = format!("NO ANSWER for {}, trying again; what is below is from before", span(since.elapsed()));
        lines.push(Line::styled(silent, paint.bad()));
        let why = why.lines().next().unwrap_or_default();
        // Which socket was asked stands in front, and is too long for a line.
        lines.push(Line::from(why.rsplit_once("does not answer: ").map_or(why, |(_, why)| why).to_owned()));
    }
    lines.push(Line::from(title(status)));
    match &status.routes.broken {
        Some(_) => lines.push(Line::styled(
            format!("WHAT RUNS IS OLDER THAN THE FILE {}: carom check", status.routes.path),
            paint.bad(),
        )),
        None => lines.push(format!("{}, applied {}", status.routes.path, ago(&status.routes.applied)).into()),
    }
    let rate = seen.rates.total();
    let waiting: usize = status.sites.iter().map(|site| site.waiting).sum();
    lines.push(Line::styled(
        format!(
            "{} req/s, {} err/s, {} in flight, {waiting} waiting; {} sites",
            number(rate.map(|rate| rate.requests)),
            number(rate.map(|rate| rate.errors)),
            rates::in_flight(status),
            status.sites.len() + status.more_sites,
        ),
        Style::new().add_modifier(Modifier::BOLD),
    ));
    lines
}

/// A line of the list.
enum Entry<'s> {
    Site(&'s Site),
    Instance(&'s Instance),
}

/// All sites, each with its instances below it, as many as have room around the marked one.
fn list(frame: &mut Frame<'_>, area: Rect, seen: &Seen, view: &mut View, paint: &Paint) {
    let sites = view.sites(seen);
    if sites.is_empty() {
        let why = match view.filter.is_empty() {
            true => "no site has instances".to_owned(),
            false => format!("no site has {:?} in its name", view.filter),
        };
        return frame.render_widget(Paragraph::new(why), area);
    }
    let mark = view.mark(&sites);
    let height = usize::from(area.height.saturating_sub(1));
    view.page = height;
    let above: usize = sites[..mark].iter().map(|site| 1 + site.instances.len()).sum();
    let lowest = above + sites[mark].instances.len();
    let entries: Vec<Entry<'_>> = sites
        .iter()
        .flat_map(|site| std::iter::once(Entry::Site(site)).chain(site.instances.iter().map(Entry::Instance)))
        .collect();
    // The marked site is to be seen with its instances, as far as there is room, and no room is left below.
    let first = view.first.min(entries.len().saturating_sub(height));
    view.first = first.max((lowest + 1).saturating_sub(height)).min(above);
    let columns = columns(area.width);
    let shown = entries.iter().enumerate().skip(view.first).take(height);
    let rows = shown.map(|(index, entry)| match entry {
        Entry::Site(site) => of_site(site, seen, columns, index == above, paint),
        Entry::Instance(instance) => of_instance(instance, seen, columns, paint),
    });
    let headings = COLUMNS[..columns].iter().map(|(heading, _)| Cell::from(Text::from(*heading).right_aligned()));
    let headings = [Cell::from("  site, instance"), Cell::from("state")].into_iter().chain(headings);
    let widths = [Constraint::Fill(1), Constraint::Length(STATE)].into_iter();
    let widths = widths.chain(COLUMNS[..columns].iter().map(|(_, width)| Constraint::Length(*width)));
    let table = Table::new(rows, widths).header(Row::new(headings).style(paint.heading())).column_spacing(1);
    frame.render_widget(table, area);
}

/// How many columns of numbers have room.
fn columns(width: u16) -> usize {
    let mut taken = NARROWEST_NAME + STATE + 1;
    COLUMNS
        .iter()
        .take_while(|(_, width_of_it)| {
            taken += width_of_it + 1;
            taken <= width
        })
        .count()
}

fn of_site(site: &Site, seen: &Seen, columns: usize, is_marked: bool, paint: &Paint) -> Row<'static> {
    let up = site.instances.iter().filter(|instance| instance.state == Word::Up).count();
    let (state, style) = match (&site.paused, up == site.instances.len()) {
        (Some(_), _) => ("PAUSED".to_owned(), paint.warn()),
        (None, true) => (String::new(), Style::new()),
        (None, false) => (format!("{up} of {} up", site.instances.len()), paint.warn()),
    };
    let sign = if is_marked { "› " } else { "  " };
    let how = if site.passthrough { ", passed through" } else { "" };
    let rate = seen.rates.of_site(&site.name);
    let numbers = numbers(rate, view::in_flight(site), Some(site.waiting), columns);
    let cells = [Cell::from(format!("{sign}{}{how}", site.name)), Cell::from(state).style(style)];
    let style = Style::new().add_modifier(Modifier::BOLD);
    let marked = if is_marked { style.add_modifier(Modifier::REVERSED) } else { style };
    Row::new(cells.into_iter().chain(numbers)).style(marked)
}

fn of_instance(instance: &Instance, seen: &Seen, columns: usize, paint: &Paint) -> Row<'static> {
    let traits = traits(instance);
    let traits = if traits.is_empty() { traits } else { format!("  {traits}") };
    let rate = seen.rates.of_instance(&instance.name);
    let numbers = numbers(rate, instance.in_flight, None, columns);
    let state = Cell::from(word(instance.state)).style(paint.of(instance.state));
    Row::new([Cell::from(format!("    {}{traits}", instance.name)), state].into_iter().chain(numbers))
}

fn numbers(rate: Option<Rate>, in_flight: usize, waiting: Option<usize>, columns: usize) -> Vec<Cell<'static>> {
    let took = rate.and_then(|rate| rate.took);
    let texts = [
        number(rate.map(|rate| rate.requests)),
        number(rate.map(|rate| rate.errors)),
        time(took.map(|took| took.p50)),
        time(took.map(|took| took.p95)),
        in_flight.to_string(),
        waiting.map(|waiting| waiting.to_string()).unwrap_or_default(),
    ];
    texts.into_iter().take(columns).map(|text| Cell::from(Text::from(text).right_aligned())).collect()
}

/// What has failed last, of all or of one site, the newest first.
fn failures(seen: &Seen, site: Option<&str>) -> Vec<Line<'static>> {
    let all = seen.answer.failures.iter().flatten();
    let wanted = all.filter(|failed| site.is_none() || failed.route.as_deref() == site);
    wanted.take(usize::from(FAILURES)).map(|failed| Line::from(failure(failed))).collect()
}

fn failure(failed: &Failure) -> String {
    // Of RFC 3339, the time of day.
    let time = failed.time.get(11..19).unwrap_or_default();
    let status = if failed.status == 0 { "-".to_owned() } else { failed.status.to_string() };
    let reason = failed.reason.as_deref().unwrap_or("by the backend");
    let by = failed.backend.as_deref().map(|backend| format!(" ({backend})")).unwrap_or_default();
    format!("  {time} {status} {reason}{by} {} {}{}", failed.method, failed.host, failed.path)
}

fn footer(view: &View, paint: &Paint) -> Line<'static> {
    if view.typing {
        return Line::from(format!("/{}▏  Enter keeps the filter, Esc drops it", view.filter));
    }
    if view.opened {
        return Line::styled("Esc back  ↑↓ scroll  q quit", paint.dim());
    }
    let order = if view.reversed { " ↑" } else { "" };
    let filter = if view.filter.is_empty() { String::new() } else { format!(": {}", view.filter) };
    let keys = format!("q quit  s sort: {}{order}  r reverse  / filter{filter}  Enter one site", view.sort.name());
    Line::styled(keys, paint.dim())
}

/// `-` where it is not known.
pub(super) fn number(number: Option<f64>) -> String {
    match number {
        None => "-".to_owned(),
        Some(0.0) => "0".to_owned(),
        Some(few) if few < 99.95 => format!("{few:.1}"),
        Some(many) => format!("{many:.0}"),
    }
}

/// `-` where it is not known.
pub(super) fn time(seconds: Option<f64>) -> String {
    match seconds {
        None => "-".to_owned(),
        // Nothing is known of those that are shorter.
        Some(seconds) if seconds <= 0.001 => "<1ms".to_owned(),
        Some(seconds) if seconds < 0.0995 => format!("{:.1}ms", seconds * 1e3),
        Some(seconds) if seconds < 0.9995 => format!("{:.0}ms", seconds * 1e3),
        Some(seconds) => format!("{seconds:.1}s"),
    }
}

/// Colours, where they are welcome. What they say stands there in words too.
pub(super) struct Paint {
    colors: bool,
}

impl Paint {
    pub(super) fn of(&self, state: Word) -> Style {
        match state {
            Word::Up => self.in_color(Color::Green),
            Word::Down => self.bad(),
            Word::Aside | Word::NotAsked | Word::Draining | Word::Drained => self.warn(),
        }
    }

    pub(super) fn bad(&self) -> Style {
        self.in_color(Color::Red).add_modifier(Modifier::BOLD)
    }

    pub(super) fn warn(&self) -> Style {
        self.in_color(Color::Yellow)
    }

    fn heading(&self) -> Style {
        self.in_color(Color::Cyan).add_modifier(Modifier::UNDERLINED)
    }

    fn dim(&self) -> Style {
        Style::new().add_modifier(Modifier::DIM)
    }

    fn in_color(&self, color: Color) -> Style {
        if self.colors { Style::new().fg(color) } else { Style::new() }
    }
}

#[cfg(test)]
mod tests;
