//! `carom deploy SITE --to TARGET,…`: a site goes over to new instances once they are healthy, and the old ones are
//! watched until they are idle.

use std::process::ExitCode;
use std::thread::sleep;
use std::time::{Duration, Instant};

use carom::ops::control::deploy::{Answer, Deploy, Done};
use carom::ops::control::status::{Leaving, Status};

use super::To;
use super::serve::{Failure, WRONG};
use super::talk::Talk;

/// How often new targets are asked, and old ones looked at.
const OFTEN: Duration = Duration::from_millis(200);

/// How soon an idle one is looked at again.
const AGAIN: Duration = Duration::from_millis(20);

/// How long each step may take.
pub(super) struct Patience {
    /// Until the new targets are healthy.
    pub(super) healthy: Duration,
    /// Until the old ones are idle.
    pub(super) drain: Duration,
}

/// 0 when the site is served by the new targets and the old ones are idle. 1 when nothing has changed, and why; or when old
/// ones still have requests, which go on.
pub(super) fn run(deploy: &Deploy, patience: &Patience, to: To) -> ExitCode {
    let deployed = Talk::with(to).and_then(|carom| {
        until_healthy(&carom, deploy, patience.healthy)?;
        let done: Done = carom.post("/v1/deploy", deploy).map_err(|failure| match failure.code {
            WRONG => unchanged(failure),
            _ => {
                Failure { text: format!("{}\ncarom: whether it is done says `carom status`", failure.text), ..failure }
            }
        })?;
        tell!("{}", done.text);
        until_idle(&carom, &done.site, patience.drain)
    });
    match deployed {
        Ok(busy) if busy.is_empty() => {
            say!("carom: deployed");
            ExitCode::SUCCESS
        }
        Ok(busy) => {
            let drain = humantime::format_duration(patience.drain);
            say!(
                "carom: the new targets serve; after {drain} the old ones still have requests, which go on: {}",
                list(&busy)
            );
            ExitCode::FAILURE
        }
        Err(failure) => failure.exit(),
    }
}

/// Asks the new targets until all are healthy. What has changed since the last answer is said.
fn until_healthy(carom: &Talk, deploy: &Deploy, longest: Duration) -> Result<(), Failure> {
    let begun = Instant::now();
    let mut said: Vec<Answer> = Vec::new();
    loop {
        let left = longest.saturating_sub(begun.elapsed());
        let within_ms = u64::try_from(left.as_millis()).ok().map(|left| left.max(1));
        let asked = Deploy { within_ms, ..deploy.clone() };
        let answers: Vec<Answer> = carom.post("/v1/deploy/ask", &asked).map_err(unchanged)?;
        for answer in answers.iter().filter(|answer| !said.contains(answer)) {
            match &answer.wrong {
                None => say!("carom: {} is healthy ({})", answer.target, answer.asked),
                Some(why) => say!("carom: {} is not healthy yet: {why}", answer.target),
            }
        }
        let mut wrong = answers.iter().filter_map(|answer| Some((&answer.target, answer.wrong.as_ref()?))).peekable();
        if wrong.peek().is_none() {
            return Ok(());
        }
        if begun.elapsed() + OFTEN >= longest {
            let wrong: Vec<String> = wrong.map(|(target, why)| format!("{target}: {why}")).collect();
            let longest = humantime::format_duration(longest);
            let text = format!("carom: within {longest} these were not healthy: {}", wrong.join("; "));
            return Err(unchanged(Failure { text, code: WRONG }));
        }
        said = answers;
        sleep(OFTEN);
    }
}

/// Waits until nothing is with those that leave; gives those that something still is with.
fn until_idle(carom: &Talk, site: &str, longest: Duration) -> Result<Vec<Leaving>, Failure> {
    let begun = Instant::now();
    let (mut said, mut idle) = (String::new(), false);
    loop {
        let status: Status = carom.get("/v1/status")?;
        let busy: Vec<Leaving> = status.leaving.into_iter().filter(|leaving| leaving.site == site).collect();
        // A request that had its target before the switch may come to it just after: twice is sure.
        if (busy.is_empty() && idle) || begun.elapsed() >= longest {
            return Ok(busy);
        }
        idle = busy.is_empty();
        let now = list(&busy);
        if !busy.is_empty() && now != said {
            say!("carom: still busy: {now}");
            said = now;
        }
        sleep(if idle { AGAIN } else { OFTEN });
    }
}

fn list(busy: &[Leaving]) -> String {
    let one = |leaving: &Leaving| {
        let s = if leaving.in_flight == 1 { "" } else { "s" };
        format!("{} with {} request{s}", leaving.name, leaving.in_flight)
    };
    busy.iter().map(one).collect::<Vec<_>>().join(", ")
}

fn unchanged(failure: Failure) -> Failure {
    Failure { text: format!("{}\ncarom: nothing has changed", failure.text.trim_end()), ..failure }
}
