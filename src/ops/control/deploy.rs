//! A deploy, as far as a running carom has to do with it: new targets are asked whether they are up, and a site goes over
//! to them. The steps are the asker's, who may stop after each.

use std::sync::Arc;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use tokio::sync::oneshot;
use tokio::task::JoinSet;
use tokio::time::timeout;

use crate::ops::health;
use crate::table::backend::Backend;
use crate::table::health::Check;

/// A site that is to go over to other targets.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub struct Deploy {
    /// The site, as the routes compare keys.
    pub site: String,
    /// Its targets from then on, as they are written in the routes.
    pub to: Vec<String>,
    /// What is asked for, in place of the site's own check.
    #[serde(default)]
    pub health: Option<String>,
    /// How long they have to answer, in milliseconds; less, where the check says so.
    #[serde(default)]
    pub within_ms: Option<u64>,
}

/// A target as it would be, were the site sent to it.
#[derive(Debug)]
pub struct Planned {
    /// Where it is, and how it is spoken to.
    pub backend: Arc<Backend>,
    /// How it is asked.
    pub check: Check,
}

/// What an asked target has answered.
#[derive(Clone, Debug, Deserialize, Serialize, PartialEq, Eq)]
pub struct Answer {
    /// Which one.
    pub target: String,
    /// What was asked for.
    pub asked: String,
    /// Why it is not healthy; absent where it is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub wrong: Option<String>,
}

/// What has become of a deploy.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub struct Done {
    /// What has changed, for people.
    pub text: String,
    /// The key of the line that was changed: [`Leaving::site`](super::status::Leaving::site) of those that leave it.
    pub site: String,
}

/// Where the plan for a deploy goes: an error is why it can't be.
pub type PlanReply = oneshot::Sender<Result<Vec<Planned>, String>>;

/// Where the outcome goes: an error is why nothing has changed.
pub type DoneReply = oneshot::Sender<Result<Done, String>>;

/// Asks every target once, all at the same time.
pub(super) async fn ask(plan: Vec<Planned>, within: Option<Duration>) -> Vec<Answer> {
    let mut asking = JoinSet::new();
    for (index, Planned { backend, check }) in plan.into_iter().enumerate() {
        asking.spawn_local(async move {
            let longest = within.map_or(check.timeout, |within| within.min(check.timeout));
            let wrong = match timeout(longest, health::ask(&backend, &check.probe)).await {
                Ok(Ok(())) => {
                    // What requests have found out when it was here before is of the past.
                    backend.standing().forget();
                    None
                }
                Ok(Err(unwell)) => Some(unwell.to_string()),
                Err(_) => Some(format!("no answer within {}", humantime::format_duration(longest))),
            };
            (index, Answer { target: backend.to_string(), asked: check.probe.to_string(), wrong })
        });
    }
    // A task that has panicked has said so, and its target is missing: whoever counts sees it.
    let mut answers: Vec<_> = asking.join_all().await;
    answers.sort_by_key(|(index, _)| *index);
    answers.into_iter().map(|(_, answer)| answer).collect()
}
