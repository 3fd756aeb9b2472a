//! What is wrong with a file, for the person who wrote it: file, line, column, the text underlined, what would be right.
//!
//! A [`Report`] owns only the lines that it shows, so it is cheap to keep and to print however large the file is.

use std::fmt;
use std::ops::Range;
use std::path::Path;

use annotate_snippets::{AnnotationKind, Group, Level, Origin, Renderer, Snippet};

/// One thing that is wrong, with the places in the text that show it.
#[derive(Debug)]
pub(crate) struct Problem {
    what: String,
    marks: Vec<Mark>,
    help: Option<String>,
    /// Whether the text could not even be read here, so that what else is said of its line may be wrong.
    syntax: bool,
}

/// A place in the text: the first of a problem is where it is, the others what it has to do with.
#[derive(Debug)]
struct Mark {
    span: Range<usize>,
    label: String,
}

/// Everything that is wrong with one file.
#[derive(Debug)]
pub struct Report {
    file: String,
    faults: Vec<Fault>,
    /// How many more there are than are shown.
    more: usize,
}

/// A problem with the lines of the file that it speaks of.
#[derive(Debug)]
struct Fault {
    what: String,
    excerpts: Vec<Excerpt>,
    help: Option<String>,
}

/// One line of the file.
#[derive(Debug)]
struct Excerpt {
    /// Counted from 1.
    line: usize,
    /// In characters, counted from 1.
    column: usize,
    text: String,
    /// Where `text` begins in its line, in bytes, when the line was too long to keep.
    cut: usize,
    mark: Range<usize>,
    label: String,
}

/// More problems than this are only counted.
const MOST_SHOWN: usize = 50;

/// A line longer than this is shown in part.
const LONGEST_LINE: usize = 400;

impl Problem {
    /// Something is wrong here.
    pub(crate) fn at(span: &Range<usize>, what: impl Into<String>) -> Self {
        Self {
            what: what.into(),
            marks: vec![Mark { span: span.clone(), label: String::new() }],
            help: None,
            syntax: false,
        }
    }

    /// The text can't be read here.
    pub(crate) fn syntax(span: &Range<usize>, what: impl Into<String>) -> Self {
        Self { syntax: true, ..Self::at(span, what) }
    }

    /// Something is wrong with the file as a whole.
    pub(crate) fn of_file(what: impl Into<String>) -> Self {
        Self { what: what.into(), marks: Vec::new(), help: None, syntax: false }
    }

    /// A word beside the underlined text.
    pub(crate) fn label(mut self, label: impl Into<String>) -> Self {
        if let Some(mark) = self.marks.first_mut() {
            mark.label = label.into();
        }
        self
    }

    /// Another place that has to do with it.
    pub(crate) fn and(mut self, span: &Range<usize>, label: impl Into<String>) -> Self {
        self.marks.push(Mark { span: span.clone(), label: label.into() });
        self
    }

    /// What would be right.
    pub(crate) fn help(self, help: impl Into<String>) -> Self {
        self.maybe_help(Some(help.into()))
    }

    /// What would be right, where that is known.
    pub(crate) fn maybe_help(mut self, help: Option<String>) -> Self {
        self.help = help.or(self.help);
        self
    }

    fn start(&self) -> usize {
        self.marks.first().map_or(0, |mark| mark.span.start)
    }
}

impl Report {
    /// A report on a file with this text; the problems come out in the order of the text.
    pub(crate) fn new(file: &Path, text: &str, mut problems: Vec<Problem>) -> Self {
        problems.sort_by_key(Problem::start);
        let mut problems = without_echoes(text, problems);
        let more = problems.len().saturating_sub(MOST_SHOWN);
        problems.truncate(MOST_SHOWN);
        let faults = problems
            .into_iter()
            .map(|problem| Fault {
                what: problem.what,
                excerpts: problem.marks.into_iter().map(|mark| Excerpt::new(text, mark)).collect(),
                help: problem.help,
            })
            .collect();
        Self { file: file.display().to_string(), faults, more }
    }

    /// A report on a file that could not be read as text.
    pub(crate) fn unread(file: &Path, what: impl Into<String>, help: Option<String>) -> Self {
        Self::new(file, "", vec![Problem::of_file(what).maybe_help(help)])
    }

    /// How many things are wrong.
    pub fn count(&self) -> usize {
        self.faults.len() + self.more
    }

    /// Line and column of the first problem, both counted from 1; `None` where it is with the whole file.
    pub fn position(&self) -> Option<(usize, usize)> {
        let first = self.faults.first()?.excerpts.first()?;
        Some((first.line, first.column))
    }

    /// The text to print, without a final line break.
    pub fn render(&self, color: bool) -> String {
        let renderer = if color { Renderer::styled() } else { Renderer::plain() };
        let mut blocks: Vec<String> =
            self.faults.iter().map(|fault| renderer.render(&[fault.group(&self.file)])).collect();
        if self.more > 0 {
            blocks.push(format!("… and {} more errors in {}", self.more, self.file));
        }
        blocks.join("\n\n")
    }
}

impl Fault {
    fn group<'a>(&'a self, file: &'a str) -> Group<'a> {
        let mut group = Level::ERROR.primary_title(self.what.as_str()).elements(None::<Origin<'_>>);
        if self.excerpts.is_empty() {
            group = group.element(Origin::path(file));
        }
        let mut rest = self.excerpts.as_slice();
        while let Some((first, behind)) = rest.split_first() {
            // Marks of one line are shown under that one line.
            let same = behind.iter().take_while(|other| other.is_beside(first)).count();
            let primary = rest.len() == self.excerpts.len();
            group = first.show(group, file, &behind[..same], primary);
            rest = &behind[same..];
        }
        match &self.help {
            Some(help) => group.element(Level::HELP.message(help.as_str())),
            None => group,
        }
    }
}

impl Excerpt {
    fn new(text: &str, mark: Mark) -> Self {
        let start = floor(text, mark.span.start);
        let begin = memchr::memrchr(b'\n', &text.as_bytes()[..start]).map_or(0, |at| at + 1);
        let stop = memchr::memchr(b'\n', &text.as_bytes()[start..]).map_or(text.len(), |at| start + at);
        // What spans lines is underlined on its first.
        let end = floor(text, mark.span.end).clamp(start, stop);
        let (from, to) = if stop - begin <= LONGEST_LINE {
            (begin, stop)
        } else {
            (floor(text, begin.max(start.saturating_sub(60))), floor(text, stop.min(start + 100)))
        };
        Self {
            line: memchr::memchr_iter(b'\n', &text.as_bytes()[..begin]).count() + 1,
            column: text[begin..start].chars().count() + 1,
            text: text[from..to].trim_end_matches('\r').to_owned(),
            cut: from - begin,
            mark: start - from..end.min(to) - from,
            label: mark.label,
        }
    }

    fn is_beside(&self, other: &Self) -> bool {
        self.line == other.line && self.cut == 0 && other.cut == 0 && self.text == other.text
    }

    fn show<'a>(&'a self, group: Group<'a>, file: &'a str, beside: &'a [Self], primary: bool) -> Group<'a> {
        let kind = if primary { AnnotationKind::Primary } else { AnnotationKind::Context };
        let mut snippet = Snippet::source(self.text.as_str()).line_start(self.line);
        snippet = snippet.annotation(self.annotation(kind));
        snippet = snippet.annotations(beside.iter().map(|other| other.annotation(AnnotationKind::Context)));
        if self.cut == 0 {
            return group.element(snippet.path(file));
        }
        // The column of a shortened line has to be said apart.
        group.element(Origin::path(file).line(self.line).char_column(self.column)).element(snippet)
    }

    fn annotation(&self, kind: AnnotationKind) -> annotate_snippets::Annotation<'_> {
        let length = self.text.len();
        let annotation = kind.span(self.mark.start.min(length)..self.mark.end.min(length));
        if self.label.is_empty() { annotation } else { annotation.label(self.label.as_str()) }
    }
}

/// Of a line that could not be read only the first thing that is wrong: the rest follows from it.
fn without_echoes(text: &str, sorted: Vec<Problem>) -> Vec<Problem> {
    if !sorted.iter().any(|problem| problem.syntax) {
        return sorted;
    }
    let mut kept: Vec<Problem> = Vec::with_capacity(sorted.len());
    let (mut line, mut at) = (0, 0);
    for problem in sorted {
        let start = floor(text, problem.start()).max(at);
        if memchr::memchr(b'\n', &text.as_bytes()[at..start]).is_some() {
            line = kept.len();
        }
        at = start;
        match kept[line..].iter().any(|other| other.syntax) {
            true => {}
            false if problem.syntax => {
                kept.truncate(line);
                kept.push(problem);
            }
            false => kept.push(problem),
        }
    }
    kept
}

/// The character border at or before an offset.
fn floor(text: &str, at: usize) -> usize {
    let mut at = at.min(text.len());
    while !text.is_char_boundary(at) {
        at -= 1;
    }
    at
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.render(false))
    }
}

impl std::error::Error for Report {}

#[cfg(test)]
mod tests {
    use super::*;

    fn report(text: &str, problem: Problem) -> String {
        Report::new(Path::new("routes.toml"), text, vec![problem]).to_string()
    }

    #[test]
    fn a_problem_shows_its_line_underlined() {
        let text = "a = 1\nb = 70000\n";
        let shown = report(text, Problem::at(&(10..15), "a port is 1 to 65535").help("say 7000"));
        assert_eq!(
            shown,
            "error: a port is 1 to 65535
 --> routes.toml:2:5
  |
2 | b = 70000
  |     ^^^^^
  |
  = help: say 7000"
        );
    }

    #[test]
    fn two_places_are_both_shown() {
        let mut text = String::from("a = 1\n");
        text.push_str(&"# nothing\n".repeat(1000));
        let second = text.len();
        text.push_str("a = 2\n");
        let problem = Problem::at(&(second..second + 1), "`a` stands here twice").label("again").and(&(0..1), "first");
        assert_eq!(
            report(&text, problem),
            "error: `a` stands here twice
    --> routes.toml:1002:1
     |
1002 | a = 2
     | ^ again
     |
    ::: routes.toml:1:1
     |
   1 | a = 1
     | - first"
        );
    }

    #[test]
    fn a_line_of_megabytes_is_shown_in_part_and_its_column_is_right() {
        let text = format!("{}X{}", "ü".repeat(500_000), "y".repeat(1_000_000));
        let shown = report(&text, Problem::at(&(1_000_000..1_000_001), "here"));
        assert!(shown.contains("routes.toml:1:500001"), "{shown}");
        assert!(shown.len() < 1000, "{}", shown.len());
    }

    #[test]
    fn odd_spans_never_panic() {
        for text in ["", "\n", "ü", "a\r\nb", "\n\n\u{7}\t"] {
            for start in 0..6 {
                for end in 0..6 {
                    report(text, Problem::at(&(start..end), "x").and(&(end..start), "y"));
                }
            }
        }
    }

    #[test]
    fn thousands_of_problems_are_counted_not_printed() {
        let problems = (0..3000).map(|_| Problem::at(&(0..1), "x")).collect();
        let report = Report::new(Path::new("r"), "a", problems);
        assert_eq!(report.count(), 3000);
        assert!(report.to_string().ends_with("… and 2950 more errors in r"));
    }
}
