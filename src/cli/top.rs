//! `carom top`: the sites of a carom that runs, live in a terminal.
//!
//! It asks over the control socket as anybody may, once a second, and reckons rates from two answers. Keys, answers and
//! signals come by one channel, each from a thread of its own: a carom that hangs holds no key back.

mod draw;
mod one;
mod rates;
mod view;

use std::io::IsTerminal;
use std::process::ExitCode;
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, Sender};
use std::time::{Duration, Instant};

use ratatui::DefaultTerminal;
use ratatui::crossterm::event::{self, Event, KeyEvent};
use tokio::signal::unix::{SignalKind, signal};

use super::To;
use super::serve::{Failure, REFUSED, WRONG, colors_are_welcome};
use super::talk::Talk;

use rates::{Answer, Rates};
use view::{Next, View};

/// So often at least what is shown is drawn again: it says how long ago something was.
const TICK: Duration = Duration::from_secs(1);

/// What is heard of.
enum News {
    Key(KeyEvent),
    /// The terminal has another size, or something else has happened to it.
    Terminal,
    Answer(Result<Box<Answer>, String>),
    /// The terminal is gone, or a signal asks for the end.
    End,
}

/// What is known of the carom.
struct Seen {
    answer: Box<Answer>,
    rates: Rates,
    /// Since when it does not answer, and why.
    trouble: Option<(Instant, String)>,
}

/// Shows it until somebody has seen enough: 0, unless there was nothing to show or nowhere to show it.
pub(super) fn run(interval: Duration, to: To) -> ExitCode {
    match watch(interval, to) {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => failure.exit(),
    }
}

fn watch(interval: Duration, to: To) -> Result<(), Failure> {
    if !std::io::stdout().is_terminal() {
        let text = "carom: top draws on a terminal, and standard output is none\nhelp: carom status --json".to_owned();
        return Err(Failure { text, code: WRONG });
    }
    let carom = Talk::with(to)?;
    // The first answer comes before the terminal is taken: what is wrong is read where it stays.
    let answer = Box::new(Answer::of(&carom)?);
    let news = listen(carom, interval);
    // Also has it given back by a panic.
    let mut terminal = ratatui::try_init().map_err(|error| no_terminal(&error))?;
    let shown = show(&mut terminal, &news, Seen { answer, rates: Rates::default(), trouble: None });
    ratatui::restore();
    shown.map_err(|error| no_terminal(&error))
}

fn no_terminal(error: &std::io::Error) -> Failure {
    Failure { text: format!("carom: the terminal can't be drawn on: {error}\nhelp: carom status"), code: REFUSED }
}

fn show(terminal: &mut DefaultTerminal, news: &Receiver<News>, mut seen: Seen) -> std::io::Result<()> {
    let mut view = View::default();
    let colors = colors_are_welcome();
    loop {
        terminal.draw(|frame| draw::draw(frame, &seen, &mut view, colors))?;
        match news.recv_timeout(TICK) {
            Ok(News::Key(key)) => {
                if view.key(key, &seen) == Next::End {
                    return Ok(());
                }
            }
            Ok(News::Answer(Ok(answer))) => seen.hear(answer),
            Ok(News::Answer(Err(why))) => seen.miss(why),
            Ok(News::Terminal) | Err(RecvTimeoutError::Timeout) => {}
            Ok(News::End) | Err(RecvTimeoutError::Disconnected) => return Ok(()),
        }
    }
}

impl Seen {
    fn hear(&mut self, answer: Box<Answer>) {
        self.rates = Rates::between(&self.answer, &answer);
        self.answer = answer;
        self.trouble = None;
    }

    fn miss(&mut self, why: String) {
        let since = self.trouble.take().map_or_else(Instant::now, |(since, _)| since);
        self.trouble = Some((since, why));
        // Of now, nothing is known.
        self.rates = Rates::default();
    }
}

/// Has all that is heard of come by one channel.
fn listen(carom: Talk, interval: Duration) -> Receiver<News> {
    let (tell, news) = mpsc::channel();
    let (keys, signals) = (tell.clone(), tell.clone());
    std::thread::spawn(move || hear_keys(&keys));
    std::thread::spawn(move || hear_signals(&signals));
    std::thread::spawn(move || {
        loop {
            std::thread::sleep(interval);
            let answer = Answer::of(&carom).map(Box::new).map_err(|failure| failure.text);
            if tell.send(News::Answer(answer)).is_err() {
                return;
            }
        }
    });
    news
}

fn hear_keys(tell: &Sender<News>) {
    loop {
        let heard = match event::read() {
            Ok(Event::Key(key)) => News::Key(key),
            Ok(_) => News::Terminal,
            Err(_) => News::End,
        };
        let ends = matches!(heard, News::End);
        if tell.send(heard).is_err() || ends {
            return;
        }
    }
}

fn hear_signals(tell: &Sender<News>) {
    let Ok(runtime) = tokio::runtime::Builder::new_current_thread().enable_all().build() else { return };
    runtime.block_on(async {
        let signals = (signal(SignalKind::interrupt()), signal(SignalKind::terminate()), signal(SignalKind::hangup()));
        let (Ok(mut interrupt), Ok(mut terminate), Ok(mut hangup)) = signals else { return };
        tokio::select! {
            _ = interrupt.recv() => {}
            _ = terminate.recv() => {}
            _ = hangup.recv() => {}
        }
        // Who would hear it has ended already.
        let _ = tell.send(News::End);
    });
}
