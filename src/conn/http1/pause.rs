//! A request whose site is paused.

use std::sync::Arc;
use std::time::Instant;

use super::Connection;
use super::notes::Notes;
use crate::bounce::{Bounce, Destination};
use crate::http::refuse::{Cut, Refusal};
use crate::net::deadline::Elapsed;
use crate::table::{Action, Route};
use crate::tap::Tapped;
use crate::upstream::exchange::Exchange;

/// The route of a decision, where its site is paused.
pub(super) fn paused(bounce: &Bounce) -> Option<Arc<Route>> {
    let Destination::Route(route) = &bounce.to else { return None };
    let Action::Forward(site) = &route.action else { return None };
    site.lasting().pause().now().map(|_| Arc::clone(route))
}

impl Connection {
    /// Lets a request wait while its site is paused, and then decides anew: the routes may have changed meanwhile, and often
    /// that is what the pause was for. `None` when the client has gone.
    pub(super) async fn stand_by(
        &mut self,
        mut bounce: Bounce,
        exchange: &mut Exchange,
        notes: &mut Notes,
    ) -> Option<Bounce> {
        let begun = Instant::now();
        while let Some(route) = paused(&bounce) {
            notes.route = Some(Arc::clone(&route));
            let Action::Forward(site) = &route.action else { break };
            exchange.tap = Tapped::of(site.lasting(), self.arrival.client, exchange.tap.take());
            let Some(paused) = site.lasting().pause().now() else { break };
            let Some(_place) = site.lasting().queue(self.settings().limits.waiting) else {
                return Some(bounce.refuse(Refusal::QueueFull));
            };
            let waiting = Box::pin(async {
                tokio::select! {
                    () = exchange.client_goes(&mut self.stream, &mut self.ended) => true,
                    () = site.lasting().pause().over() => false,
                }
            });
            match self.ticket.within(paused.wait.saturating_sub(begun.elapsed()), waiting).await {
                Ok(true) => {
                    notes.cut(Cut::ClientGone);
                    return None;
                }
                Ok(false) => bounce = self.decide(exchange).await,
                Err(Elapsed) if self.ticket.is_over() => return Some(bounce.refuse(Refusal::Draining)),
                Err(Elapsed) => return Some(bounce.refuse(Refusal::Paused)),
            }
        }
        Some(bounce)
    }
}
