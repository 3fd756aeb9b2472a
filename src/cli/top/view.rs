//! How it is looked at: what the keys have done.

use std::cmp::Ordering;

use carom::ops::control::status::Site;
use ratatui::crossterm::event::{KeyCode, KeyEvent, KeyEventKind, KeyModifiers};

use super::Seen;
use super::rates::Rates;

/// What sites are sorted by.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Sort {
    Name,
    #[default]
    Requests,
    Errors,
    Slowest,
    InFlight,
}

/// How it is looked at.
#[derive(Debug, Default)]
pub(super) struct View {
    pub(super) sort: Sort,
    pub(super) reversed: bool,
    /// Sites whose name has this in it; empty for all.
    pub(super) filter: String,
    /// The filter is being typed.
    pub(super) typing: bool,
    /// The site that is marked, by its name: it stays so wherever it is sorted to.
    pub(super) chosen: Option<String>,
    /// One site fills the screen.
    pub(super) opened: bool,
    /// The first line that is shown: of the list, or of the site that fills the screen.
    pub(super) first: usize,
    /// How many lines are shown at once, as they were drawn last.
    pub(super) page: usize,
}

/// What follows a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Next {
    Stay,
    End,
}

impl Sort {
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Name => "name",
            Self::Requests => "requests",
            Self::Errors => "errors",
            Self::Slowest => "p95",
            Self::InFlight => "in flight",
        }
    }

    fn next(self) -> Self {
        match self {
            Self::Name => Self::Requests,
            Self::Requests => Self::Errors,
            Self::Errors => Self::Slowest,
            Self::Slowest => Self::InFlight,
            Self::InFlight => Self::Name,
        }
    }

    /// Names from a, numbers from the largest.
    fn compare(self, a: &Site, b: &Site, rates: &Rates) -> Ordering {
        let rate = |site: &Site| rates.of_site(&site.name).unwrap_or_default();
        match self {
            Self::Name => a.name.cmp(&b.name),
            Self::Requests => rate(b).requests.total_cmp(&rate(a).requests),
            Self::Errors => rate(b).errors.total_cmp(&rate(a).errors),
            Self::Slowest => {
                let p95 = |site| rate(site).took.map_or(0.0, |took| took.p95);
                p95(b).total_cmp(&p95(a))
            }
            Self::InFlight => in_flight(b).cmp(&in_flight(a)),
        }
    }
}

/// Requests and tunnels that are with a site's instances.
pub(super) fn in_flight(site: &Site) -> usize {
    site.instances.iter().map(|instance| instance.in_flight).sum()
}

impl View {
    /// The sites that are looked at, in their order. Equal ones stay as they are in the file.
    pub(super) fn sites<'s>(&self, seen: &'s Seen) -> Vec<&'s Site> {
        let wanted = self.filter.to_lowercase();
        let has = |name: &String| name.to_lowercase().contains(&wanted);
        let all = seen.answer.status.sites.iter();
        let mut sites: Vec<&Site> = all.filter(|site| has(&site.name) || site.also.iter().any(has)).collect();
        sites.sort_by(|a, b| {
            let order = self.sort.compare(a, b, &seen.rates);
            if self.reversed { order.reverse() } else { order }
        });
        sites
    }

    /// Which of them is marked: the first where the one that was is not among them.
    pub(super) fn mark(&self, sites: &[&Site]) -> usize {
        let chosen = self.chosen.as_deref();
        sites.iter().position(|site| Some(site.name.as_str()) == chosen).unwrap_or(0)
    }

    /// Does what a key says.
    pub(super) fn key(&mut self, key: KeyEvent, seen: &Seen) -> Next {
        if key.kind == KeyEventKind::Release {
            return Next::Stay;
        }
        let control = key.modifiers.contains(KeyModifiers::CONTROL);
        match key.code {
            KeyCode::Char('c') if control => return Next::End,
            KeyCode::Char(_) if control => {}
            code if self.typing => self.typed(code),
            KeyCode::Char('q') => return Next::End,
            KeyCode::Esc if self.opened => self.leave(),
            KeyCode::Esc if !self.filter.is_empty() => self.filter.clear(),
            KeyCode::Esc => return Next::End,
            KeyCode::Enter | KeyCode::Backspace | KeyCode::Left if self.opened => self.leave(),
            code if self.opened => self.scroll(code),
            KeyCode::Char('s') => self.sort = self.sort.next(),
            KeyCode::Char('r') => self.reversed = !self.reversed,
            KeyCode::Char('/') => self.typing = true,
            KeyCode::Enter => self.open(seen),
            code => self.move_mark(code, seen),
        }
        Next::Stay
    }

    fn typed(&mut self, code: KeyCode) {
        match code {
            KeyCode::Enter => self.typing = false,
            KeyCode::Esc => {
                self.typing = false;
                self.filter.clear();
            }
            KeyCode::Backspace => drop(self.filter.pop()),
            KeyCode::Char(char) => self.filter.push(char),
            _ => {}
        }
    }

    fn open(&mut self, seen: &Seen) {
        let sites = self.sites(seen);
        let Some(site) = sites.get(self.mark(&sites)) else { return };
        self.chosen = Some(site.name.clone());
        (self.opened, self.first) = (true, 0);
    }

    fn leave(&mut self) {
        (self.opened, self.first) = (false, 0);
    }

    fn scroll(&mut self, code: KeyCode) {
        // Too far is set right where it is drawn: only there it is known how much there is.
        self.first = match code {
            KeyCode::Up => self.first.saturating_sub(1),
            KeyCode::Down => self.first + 1,
            KeyCode::PageUp => self.first.saturating_sub(self.page),
            KeyCode::PageDown => self.first + self.page,
            KeyCode::Home => 0,
            KeyCode::End => usize::MAX - self.page,
            _ => self.first,
        };
    }

    fn move_mark(&mut self, code: KeyCode, seen: &Seen) {
        let sites = self.sites(seen);
        let (mark, last) = (self.mark(&sites), sites.len().saturating_sub(1));
        let to = match code {
            KeyCode::Up => mark.saturating_sub(1),
            KeyCode::Down => (mark + 1).min(last),
            KeyCode::PageUp => mark - paged(sites[..mark].iter().rev(), self.page),
            KeyCode::PageDown => (mark + paged(sites[mark.min(last)..].iter(), self.page)).min(last),
            KeyCode::Home => 0,
            KeyCode::End => last,
            _ => return,
        };
        self.chosen = sites.get(to).map(|site| site.name.clone());
    }
}

/// How many of these sites fill a page, each with a line for itself and for each of its instances; one at least.
fn paged<'s>(sites: impl Iterator<Item = &'s &'s Site>, page: usize) -> usize {
    let mut lines = 0;
    let mut count = 0;
    for site in sites {
        lines += 1 + site.instances.len();
        if count > 0 && lines > page {
            break;
        }
        count += 1;
    }
    count
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, Instant};

    use super::super::rates::tests::answer;
    use super::*;

    fn seen() -> Seen {
        let now = Instant::now();
        let (before, answer) = (answer(now, 10, 0), Box::new(answer(now + Duration::from_secs(1), 90, 5)));
        let rates = Rates::between(&before, &answer);
        Seen { answer, rates, trouble: None }
    }

    fn names(view: &View, seen: &Seen) -> Vec<String> {
        view.sites(seen).iter().map(|site| site.name.clone()).collect()
    }

    fn press(view: &mut View, seen: &Seen, keys: impl IntoIterator<Item = KeyCode>) -> Next {
        keys.into_iter().fold(Next::Stay, |_, code| view.key(code.into(), seen))
    }

    #[test]
    fn keys_sort_and_turn_the_order() {
        let (mut view, seen) = (View::default(), seen());
        assert_eq!(names(&view, &seen), ["busy.test", "idle.test"], "by requests");
        press(&mut view, &seen, [KeyCode::Char('r')]);
        assert_eq!(names(&view, &seen), ["idle.test", "busy.test"]);
        press(&mut view, &seen, [KeyCode::Char('r'), KeyCode::Char('s')]);
        assert_eq!((view.sort, names(&view, &seen)), (Sort::Errors, vec!["busy.test".into(), "idle.test".into()]));
        press(&mut view, &seen, [KeyCode::Char('s')]);
        assert_eq!((view.sort, names(&view, &seen)), (Sort::Slowest, vec!["busy.test".into(), "idle.test".into()]));
        press(&mut view, &seen, [KeyCode::Char('s'), KeyCode::Char('s'), KeyCode::Char('r')]);
        assert_eq!((view.sort, names(&view, &seen)), (Sort::Name, vec!["idle.test".into(), "busy.test".into()]));
    }

    #[test]
    fn what_is_typed_filters_and_escape_ends_one_thing_at_a_time() {
        let (mut view, seen) = (View::default(), seen());
        press(&mut view, &seen, "/Q".chars().map(KeyCode::Char));
        assert!(names(&view, &seen).is_empty() && view.typing);
        press(&mut view, &seen, [KeyCode::Backspace, KeyCode::Char('I'), KeyCode::Char('d'), KeyCode::Enter]);
        assert_eq!((view.typing, names(&view, &seen)), (false, vec!["idle.test".to_owned()]));
        press(&mut view, &seen, [KeyCode::Enter]);
        assert_eq!((view.opened, view.chosen.as_deref()), (true, Some("idle.test")));
        assert_eq!(press(&mut view, &seen, [KeyCode::Esc, KeyCode::Esc]), Next::Stay);
        assert!(!view.opened && view.filter.is_empty());
        assert_eq!(press(&mut view, &seen, [KeyCode::Esc]), Next::End);
        let ctrl_c = KeyEvent::new(KeyCode::Char('c'), KeyModifiers::CONTROL);
        assert_eq!(view.key(ctrl_c, &seen), Next::End);
    }

    #[test]
    fn the_mark_stays_with_its_site_and_within_the_list() {
        let (mut view, seen) = (View { page: 5, ..View::default() }, seen());
        press(&mut view, &seen, [KeyCode::Down, KeyCode::Down, KeyCode::PageDown]);
        assert_eq!(view.chosen.as_deref(), Some("idle.test"));
        press(&mut view, &seen, [KeyCode::Char('r')]);
        assert_eq!(view.mark(&view.sites(&seen)), 0);
        press(&mut view, &seen, [KeyCode::End]);
        assert_eq!(view.chosen.as_deref(), Some("busy.test"));
        press(&mut view, &seen, [KeyCode::PageUp, KeyCode::Up]);
        assert_eq!(view.chosen.as_deref(), Some("idle.test"));
        // Nothing to move in.
        press(&mut view, &seen, "/zzz".chars().map(KeyCode::Char));
        view.typing = false;
        let all = [KeyCode::Down, KeyCode::Up, KeyCode::PageDown, KeyCode::PageUp, KeyCode::End, KeyCode::Enter];
        press(&mut view, &seen, all);
        assert!(!view.opened);
    }
}
