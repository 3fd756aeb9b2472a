use std::time::{Duration, Instant};

use ratatui::Terminal;
use ratatui::backend::TestBackend;

use super::super::rates::Rates;
use super::super::rates::tests::answer;
use super::*;

fn seen() -> Seen {
    let now = Instant::now();
    let (before, answer) = (answer(now, 10, 0), Box::new(answer(now + Duration::from_secs(1), 135, 5)));
    let rates = Rates::between(&before, &answer);
    Seen { answer, rates, trouble: None }
}

/// The screen as text, and whether it has a colour anywhere.
fn screen(width: u16, height: u16, seen: &Seen, view: &mut View, colors: bool) -> (Vec<String>, bool) {
    let mut terminal = Terminal::new(TestBackend::new(width, height)).unwrap();
    terminal.draw(|frame| draw(frame, seen, view, colors)).unwrap();
    let buffer = terminal.backend().buffer();
    let text: String = buffer.content().iter().map(|cell| cell.symbol()).collect();
    let chars: Vec<char> = text.chars().collect();
    let lines = chars.chunks(usize::from(width)).map(|line| line.iter().collect::<String>().trim_end().to_owned());
    (lines.collect(), buffer.content().iter().any(|cell| cell.fg != Color::Reset))
}

fn line<'l>(lines: &'l [String], what: &str) -> &'l str {
    lines.iter().find(|line| line.contains(what)).unwrap_or_else(|| panic!("{what} is not in {lines:#?}"))
}

#[test]
fn a_usual_terminal_shows_sites_instances_rates_and_failures() {
    let (lines, colored) = screen(80, 24, &seen(), &mut View::default(), true);
    assert!(colored);
    assert!(line(&lines, "carom 0.1.0").contains("process 7, up 1h 1m; 3 of 1000 connections"), "{lines:#?}");
    assert_eq!(line(&lines, "; 2 sites"), "130 req/s, 5.0 err/s, 6 in flight, 2 waiting; 2 sites");
    let words = |what: &str| line(&lines, what).split_whitespace().map(str::to_owned).collect::<Vec<_>>();
    assert_eq!(
        words("› busy.test"),
        ["›", "busy.test", "1", "of", "2", "up", "130", "5.0", "3.8ms", "4.9ms", "4", "1"]
    );
    assert_eq!(words("    8001"), ["8001", "up", "125", "0", "<1ms", "<1ms", "2"]);
    assert_eq!(words("    8002"), ["8002", "DOWN", "5.0", "5.0", "-", "-", "2"]);
    assert_eq!(words("idle.test"), ["idle.test", "0", "0", "-", "-", "2", "1"]);
    assert_eq!(lines[22], "  12:01:02 502 backend-refused (8002) GET busy.test/x");
    assert!(lines[23].starts_with("q quit  s sort: requests"), "{lines:#?}");
}

#[test]
fn a_narrow_terminal_keeps_what_matters_and_a_tiny_one_does_not_break_it() {
    let (lines, _) = screen(46, 10, &seen(), &mut View::default(), true);
    assert!(line(&lines, "site, instance").ends_with("req/s   err/s"), "{lines:#?}");
    assert!(line(&lines, "8002").contains("DOWN"), "{lines:#?}");
    for (width, height) in [(1, 1), (5, 2), (20, 4), (300, 5), (12, 60)] {
        for opened in [false, true] {
            let mut view = View { opened, chosen: Some("busy.test".to_owned()), ..View::default() };
            screen(width, height, &seen(), &mut view, true);
        }
    }
}

#[test]
fn without_colors_the_same_is_said() {
    let (plain, colored) = screen(80, 24, &seen(), &mut View::default(), false);
    assert!(!colored);
    assert_eq!(plain, screen(80, 24, &seen(), &mut View::default(), true).0);
}

#[test]
fn a_carom_that_has_ended_is_said_and_what_was_stays_without_rates() {
    let mut seen = seen();
    seen.miss("carom: nobody is there".to_owned());
    let (lines, _) = screen(80, 24, &seen, &mut View::default(), true);
    assert!(lines[0].starts_with("NO ANSWER for 0s"), "{lines:#?}");
    assert_eq!(lines[1], "carom: nobody is there");
    assert_eq!(line(&lines, "8001").split_whitespace().collect::<Vec<_>>(), ["8001", "up", "-", "-", "-", "-", "2"]);
}

#[test]
fn the_marked_site_is_scrolled_into_view_with_its_instances() {
    let seen = seen();
    let mut view = View { chosen: Some("idle.test".to_owned()), ..View::default() };
    // Five lines of list, three of them for the head, one for the heading: one is left.
    let (lines, _) = screen(80, 7, &seen, &mut view, true);
    assert!(lines.iter().any(|line| line.contains("› idle.test")), "{lines:#?}");
    view.chosen = Some("busy.test".to_owned());
    let (lines, _) = screen(80, 8, &seen, &mut view, true);
    assert!(lines.iter().any(|line| line.contains("› busy.test")), "{lines:#?}");
}

#[test]
fn one_site_says_why_an_instance_is_down_and_what_brings_it_back() {
    let seen = seen();
    let mut view = View { opened: true, chosen: Some("busy.test".to_owned()), ..View::default() };
    let (lines, _) = screen(80, 24, &seen, &mut view, true);
    assert_eq!(line(&lines, "since the start: 135"), "  since the start: 135 2xx, 5 5xx");
    let took = "they take: p50 3.8ms, p95 4.9ms; since the start: p50 3.8ms, p95 4.9ms";
    assert_eq!(line(&lines, "they take").trim(), took);
    let at = lines.iter().position(|line| line == "  8002: DOWN").unwrap();
    assert_eq!(lines[at + 3..at + 5], ["    backend-refused", "    back by a good answer"]);
    // It scrolls no further than to its end, and a narrow screen folds it.
    view.first = usize::MAX - 20;
    let (lines, _) = screen(24, 9, &seen, &mut view, true);
    assert!(lines.iter().any(|line| line == "      answer"), "{lines:#?}");
    view.chosen = Some("gone.test".to_owned());
    let (lines, _) = screen(80, 24, &seen, &mut view, true);
    assert!(lines.iter().any(|line| line.contains("gone.test is not among the sites any more")), "{lines:#?}");
}

#[test]
fn an_empty_table_and_an_empty_filter_say_so() {
    let mut seen = seen();
    let (lines, _) = screen(80, 24, &seen, &mut View { filter: "zzz".to_owned(), ..View::default() }, true);
    assert!(lines.iter().any(|line| line.contains("no site has \"zzz\" in its name")), "{lines:#?}");
    seen.answer.status.sites.clear();
    let (lines, _) = screen(80, 24, &seen, &mut View::default(), true);
    assert!(lines.iter().any(|line| line.contains("no site has instances")), "{lines:#?}");
}

#[test]
fn a_time_is_as_exact_as_it_is_known() {
    let shown =
        [(0.0002, "<1ms"), (0.001, "<1ms"), (0.00123, "1.2ms"), (0.0995, "100ms"), (0.25, "250ms"), (12.34, "12.3s")];
    for (seconds, text) in shown {
        assert_eq!(time(Some(seconds)), text);
    }
    assert_eq!(time(None), "-");
}

#[test]
fn a_carom_that_counts_no_times_says_so() {
    let mut seen = seen();
    seen.answer.status.sites.iter_mut().for_each(|site| site.took = None);
    let mut view = View { opened: true, chosen: Some("busy.test".to_owned()), ..View::default() };
    let (lines, _) = screen(80, 24, &seen, &mut view, true);
    assert!(line(&lines, "how long they take").ends_with("neither log.access nor [status] is on"), "{lines:#?}");
}
