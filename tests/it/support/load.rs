//! A steady load: clients that ask one after the other on connections that they keep, and what became of each request.

use std::collections::BTreeMap;
use std::io::Write;
use std::net::{SocketAddr, TcpStream};
use std::ops::RangeInclusive;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use super::wire::{Fault, Message, Wire};
use super::{Carom, PATIENCE, Watched, request, with_body};

/// Clients at work. Each GETs twice and POSTs twice, in turn, so that no method falls to one instance for ever.
pub struct Load {
    stage: Arc<Watched<Stage>>,
    clients: Vec<JoinHandle<()>>,
}

#[derive(Default)]
struct Stage {
    paused: bool,
    /// Clients that have nothing under way.
    at_rest: usize,
    over: bool,
    outcomes: Vec<Outcome>,
}

/// What became of a request.
#[derive(Clone, Debug)]
pub struct Outcome {
    pub method: &'static str,
    /// Why it failed: a reason code, or `cut` where the answer broke off.
    pub failed: Option<String>,
    /// The first word of the answer.
    pub by: String,
    pub took: Duration,
}

/// What became of all.
pub struct Outcomes(pub Vec<Outcome>);

impl Load {
    /// So many clients of `a.test`.
    pub fn on(carom: &Carom, clients: usize) -> Self {
        let stage = Arc::new(Watched::new(Stage::default()));
        let address = carom.address();
        let begin = |_| {
            let stage = Arc::clone(&stage);
            std::thread::spawn(move || client(address, &stage))
        };
        let clients = (0..clients).map(begin).collect();
        Self { stage, clients }
    }

    /// How many requests have been answered.
    pub fn answered(&self) -> usize {
        self.stage.look(|stage| stage.outcomes.len())
    }

    /// Waits until so many more requests have been answered.
    #[track_caller]
    pub fn run(&self, more: usize) {
        let wanted = self.answered() + more;
        let came = self.stage.wait_for(PATIENCE, |stage| (stage.outcomes.len() >= wanted).then_some(()));
        assert!(came.is_some(), "no {more} requests were answered");
    }

    /// Waits until nothing is under way; nothing begins before [`Load::resume`].
    #[track_caller]
    pub fn pause(&self) {
        self.stage.change(|stage| stage.paused = true);
        let all = self.clients.len();
        let rest = self.stage.wait_for(PATIENCE, |stage| (stage.at_rest == all).then_some(()));
        assert!(rest.is_some(), "a request does not end");
    }

    pub fn resume(&self) {
        self.stage.change(|stage| stage.paused = false);
    }

    /// Ends it, and waits for what is under way.
    pub fn end(self) -> Outcomes {
        self.stage.change(|stage| stage.over = true);
        for client in self.clients {
            client.join().expect("a client");
        }
        Outcomes(self.stage.change(|stage| std::mem::take(&mut stage.outcomes)))
    }
}

impl Outcomes {
    /// How many failed, of this method or of any.
    pub fn failed(&self, method: Option<&str>) -> usize {
        let of = self.0.iter().filter(|outcome| method.is_none_or(|method| outcome.method == method));
        of.filter(|outcome| outcome.failed.is_some()).count()
    }

    /// How many an instance has answered.
    pub fn by(&self, name: &str) -> usize {
        self.0.iter().filter(|outcome| outcome.by == name).count()
    }

    /// The time within which so many of a hundred had their answer.
    pub fn percentile(&self, percent: usize) -> Duration {
        let mut times: Vec<_> = self.0.iter().map(|outcome| outcome.took).collect();
        times.sort();
        times[(times.len() - 1) * percent / 100]
    }

    /// Says in one line how many failed and how many were expected to, and holds them to it.
    #[track_caller]
    pub fn hold(&self, scenario: &str, gets: RangeInclusive<usize>, posts: RangeInclusive<usize>) {
        let told = [("GET", gets), ("POST", posts)].map(|(method, expected)| {
            let all = self.0.iter().filter(|outcome| outcome.method == method).count();
            let failed = self.failed(Some(method));
            let bounds = match expected.start() == expected.end() {
                true => expected.start().to_string(),
                false => format!("{} to {}", expected.start(), expected.end()),
            };
            (expected.contains(&failed), format!("{failed} of {all} {method}s failed ({bounds} expected)"))
        });
        let mut reasons: BTreeMap<&str, usize> = BTreeMap::new();
        for reason in self.0.iter().filter_map(|outcome| outcome.failed.as_deref()) {
            *reasons.entry(reason).or_default() += 1;
        }
        let line = format!("chaos: {scenario}: {}, {}; {reasons:?}", told[0].1, told[1].1);
        say(&line);
        assert!(told.iter().all(|(held, _)| *held), "{line}");
    }
}

/// Says something also where the test passes: what a macro prints is shown only where it fails.
pub fn say(line: &str) {
    writeln!(std::io::stderr(), "{line}").ok();
}

fn client(address: SocketAddr, stage: &Watched<Stage>) {
    let mut connection = None;
    for method in ["GET", "GET", "POST", "POST"].iter().cycle() {
        if !goes_on(stage) {
            return;
        }
        let begun = Instant::now();
        let mut wire = connection
            .take()
            .unwrap_or_else(|| Wire::tcp(TcpStream::connect(address).expect("connect to carom, which is there")));
        let answer = ask(&mut wire, method);
        let took = begun.elapsed();
        let (failed, by) = match answer {
            Ok(answer) => {
                // A connection in doubt is closed by whoever says so.
                if answer.field("connection") != Some("close") {
                    connection = Some(wire);
                }
                let reason = answer.field("carom-error").map(str::to_owned);
                let failed = reason.or_else(|| (answer.status() != 200).then(|| answer.start.clone()));
                (failed, answer.text().split(' ').next().unwrap_or_default().to_owned())
            }
            Err(Fault::Ended(_)) => (Some("cut".to_owned()), String::new()),
            Err(other) => panic!("{other:?} instead of an answer"),
        };
        stage.change(|stage| stage.outcomes.push(Outcome { method, failed, by, took }));
    }
}

/// Waits while there is a pause; whether there is another request to be made.
fn goes_on(stage: &Watched<Stage>) -> bool {
    if stage.look(|stage| !stage.paused && !stage.over) {
        return true;
    }
    stage.change(|stage| stage.at_rest += 1);
    let over = stage.wait_for(PATIENCE, |stage| (!stage.paused || stage.over).then_some(stage.over));
    stage.change(|stage| stage.at_rest -= 1);
    over == Some(false)
}

fn ask(wire: &mut Wire, method: &str) -> Result<Message, Fault> {
    let bytes = match method {
        "GET" => request("GET /", "a.test", &[]),
        _ => with_body("POST /", "a.test", "body"),
    };
    wire.send(bytes.as_bytes());
    let mut answer = wire.response_head()?;
    wire.response_body(method, &mut answer)?;
    Ok(answer)
}
