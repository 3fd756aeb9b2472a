//! A request on its way to a backend: which one, over which connection, and what becomes of it when that fails.

use std::sync::Arc;
use std::time::Instant;

use super::notes::Notes;
use super::{Connection, Followed, Next};
use crate::conn::choosing::{Choosing, Wait};
use crate::http::head::Head;
use crate::http::refuse::{Cut, Fault, Refusal};
use crate::http::rewrite::{Changes, Origin};
use crate::net::stream::Stream;
use crate::table::backend::{Backend, Claim};
use crate::table::retries::{Allowance, Retries};
use crate::upstream::connect;
use crate::upstream::exchange::{Ended, Exchange};

/// A backend's connection that waits for the next request of one client.
pub(super) struct Own {
    stream: Stream,
    /// The backend's.
    id: u64,
    /// The backend's, from before it was made.
    generation: u64,
    since: Instant,
}

/// The backends that a request may go to.
pub(super) enum Choice<'a> {
    /// The instances of a site.
    Site(Choosing<'a>),
    One(Option<Arc<Backend>>),
}

impl Choice<'_> {
    /// The next one, by that time, claimed.
    fn next(&mut self, now: u64) -> Option<Claim> {
        match self {
            Self::Site(choosing) => choosing.next(now),
            Self::One(backend) => backend.take().map(|backend| backend.claim()),
        }
    }

    /// Whether others have to go first.
    fn has_to_queue(&mut self) -> bool {
        match self {
            Self::Site(choosing) => choosing.has_to_queue(),
            Self::One(_) => false,
        }
    }

    /// Why nobody is left, where the last who was tried failed for this reason.
    fn why(&self, last: Refusal) -> Refusal {
        match self {
            Self::Site(choosing) => choosing.why(last),
            Self::One(_) => last,
        }
    }

    /// It has been reached.
    fn settle(&mut self) {
        if let Self::Site(choosing) = self {
            choosing.settle();
        }
    }

    /// Forgets who has been tried.
    fn forget(&mut self) {
        if let Self::Site(choosing) = self {
            choosing.forget();
        }
    }
}

/// How often a request may be tried again, and for what.
struct Tries<'a> {
    /// Where its site has something to say about it, and it is one of those that this covers.
    by: Option<(&'a Arc<Retries>, &'a Allowance)>,
    /// How many more there may be.
    left: u32,
}

/// What became of a request that was given to one instance.
enum Given {
    Over(Result<Followed, Refusal>),
    /// Nothing of it has been sent.
    Unreachable(Refusal),
    /// It may have been sent, and may be sent again.
    Lost,
}

impl<'a> Tries<'a> {
    fn of(choice: &Choice<'a>, exchange: &Exchange) -> Self {
        let Choice::Site(choosing) = choice else { return Self { by: None, left: 0 } };
        let site = choosing.site();
        let Some(retries) = &site.rules().retries else { return Self { by: None, left: 0 } };
        let allowance = site.lasting().allowance();
        allowance.earn(retries.budget);
        let head = Head::new(exchange.from_client.data(), &exchange.head);
        let by = retries.cover(head.method()).then_some((retries, allowance));
        Self { by, left: retries.tries.saturating_sub(1) }
    }

    /// Whether there may be another try although this one may have reached a backend.
    fn are_left(&self) -> bool {
        self.left > 0 && self.by.is_some_and(|(_, allowance)| allowance.has())
    }

    /// Whether this end of a try is one for another.
    fn forgive(&mut self, ended: &Ended, exchange: &Exchange) -> bool {
        let Some((retries, allowance)) = self.by else { return false };
        let forgiven = match ended {
            // It has been asked for while one was left; the response is gone, also where another was faster since.
            Ended::Declined => true,
            _ if !self.are_left() => false,
            Ended::Stale | Ended::Refused(Refusal::BackendClosed | Refusal::BackendClosedMidHead) => {
                retries.reset && exchange.may_repeat()
            }
            Ended::Refused(Refusal::ResponseTimeout) => retries.timeout && exchange.may_repeat(),
            _ => false,
        };
        if forgiven {
            self.left = self.left.saturating_sub(1);
            allowance.take();
        }
        forgiven
    }

    /// Whether there may be another try after connecting has failed. A site that says nothing tries all of its instances.
    fn forgive_connecting(&mut self) -> bool {
        let Some((retries, _)) = self.by else { return true };
        let forgiven = retries.connect && self.left > 0;
        self.left = self.left.saturating_sub(1);
        forgiven
    }
}

impl Connection {
    /// Forwards a request to a backend, and waits for one where the site says so and none can be reached.
    pub(super) async fn forward(
        &mut self,
        exchange: &mut Exchange,
        mut choice: Choice<'_>,
        changes: &Changes,
        notes: &mut Notes,
    ) -> Result<Followed, Refusal> {
        let mut tries = Tries::of(&choice, exchange);
        self.prepare(exchange, changes, notes)?;
        if tries.by.is_some() {
            exchange.keep_for_replay(self.settings().limits.replay);
        }
        let last = match choice.has_to_queue() {
            true => Refusal::BackendBusy,
            false => match self.reach(exchange, &mut choice, &mut tries, notes).await {
                Ok(reached) => return reached,
                Err(last) => last,
            },
        };
        match &mut choice {
            // Boxed, since it is rare.
            Choice::Site(choosing) if choosing.waits() => {
                let wait = choosing.wait(self.settings().limits.waiting)?;
                Box::pin(self.wait(exchange, choice, wait, tries, notes)).await
            }
            Choice::Site(_) | Choice::One(_) => Err(last),
        }
    }

    /// Tries a site's instances again, in turn with the others that wait, for as long as it says. The backends have nothing
    /// of the request, or may get it once more.
    async fn wait(
        &mut self,
        exchange: &mut Exchange,
        mut choice: Choice<'_>,
        wait: Wait,
        mut tries: Tries<'_>,
        notes: &mut Notes,
    ) -> Result<Followed, Refusal> {
        while let Choice::Site(choosing) = &mut choice {
            let patience = choosing.patience(&wait)?;
            let waiting = Box::pin(async {
                tokio::select! {
                    () = exchange.client_goes(&mut self.stream, &mut self.ended) => true,
                    () = choosing.chance() => false,
                }
            });
            if self.ticket.within(patience, waiting).await == Ok(true) {
                notes.cut(Cut::ClientGone);
                return Ok(Followed::By(Next::Close));
            }
            if self.ticket.is_over() {
                return Err(Refusal::Draining);
            }
            if choosing.begin_again()
                && let Ok(reached) = self.reach(exchange, &mut choice, &mut tries, notes).await
            {
                return reached;
            }
        }
        Err(Refusal::NoBackend)
    }

    /// Forwards a request to a backend, to the next one where that fails and it may be tried again. An error of its own:
    /// none could be reached.
    async fn reach(
        &mut self,
        exchange: &mut Exchange,
        choice: &mut Choice<'_>,
        tries: &mut Tries<'_>,
        notes: &mut Notes,
    ) -> Result<Result<Followed, Refusal>, Refusal> {
        let mut last = Refusal::NoBackend;
        let mut lost = false;
        loop {
            let Some(claim) = choice.next(self.worker.now()) else {
                // Whoever has lost it may be well again.
                if !std::mem::take(&mut lost) {
                    return Err(choice.why(last));
                }
                choice.forget();
                continue;
            };
            match self.give(exchange, choice, claim, tries, notes).await {
                Given::Over(over) => return Ok(over),
                Given::Lost => {
                    exchange.rewind();
                    lost = true;
                }
                Given::Unreachable(refusal) => {
                    last = refusal;
                    if !tries.forgive_connecting() {
                        return Err(last);
                    }
                }
            }
        }
    }

    /// Gives a request to one backend.
    async fn give(
        &mut self,
        exchange: &mut Exchange,
        choice: &mut Choice<'_>,
        claim: Claim,
        tries: &mut Tries<'_>,
        notes: &mut Notes,
    ) -> Given {
        if let Choice::Site(choosing) = choice
            && choosing.site().sticky().is_some()
        {
            // By the last of those who are tried: it is who answers.
            exchange.session = choosing.session(&claim, &self.worker.shared.sticky_key);
        }
        let backend = claim.backend();
        notes.backend = Some(Arc::clone(backend));
        exchange.tell_request(backend);
        let generation = backend.generation();
        let mut kept = self.kept(backend, !exchange.head.is_idempotent);
        let mut begun_again = false;
        exchange.declines = tries.by.filter(|_| tries.are_left()).map(|(retries, _)| Arc::clone(retries));
        loop {
            notes.tries += 1;
            notes.connect = None;
            let reused = kept.is_some();
            let mut stream = match kept.take() {
                Some(stream) => stream,
                None => match self.connect(backend, notes).await {
                    Ok(stream) => stream,
                    // Nor could another one be reached.
                    Err(refusal @ Refusal::NoDescriptor) => return Given::Over(Err(refusal)),
                    Err(refusal) => return Given::Unreachable(refusal),
                },
            };
            choice.settle();
            let ended = self.exchange(exchange, &mut stream).await;
            match verdict(&ended, reused) {
                Verdict::Served => self.worker.served(backend),
                Verdict::Failed(why) => self.worker.failed(backend, why),
                Verdict::Neither => {}
            }
            match ended {
                // It had ended before, or at that moment: nobody's fault, and a fresh one will tell.
                Ended::Stale if reused && exchange.may_repeat() => exchange.rewind(),
                // The backend has said so; once, lest it says so for ever.
                Ended::Untouched if !begun_again && exchange.may_begin_again() => {
                    begun_again = true;
                    exchange.rewind();
                }
                Ended::Stale if reused => return Given::Over(Err(Refusal::BackendClosedIdle)),
                Ended::Switched => return Given::Over(Ok(Followed::Switched(stream, Some(claim)))),
                ended if tries.forgive(&ended, exchange) => return Given::Lost,
                ended => {
                    match ended {
                        Ended::Whole { keep_backend: true, .. } => {
                            self.keep(backend, stream, generation, exchange.kept_for());
                        }
                        _ => drop(stream),
                    }
                    // What is left to do is between the client and us, and may take as long as the client likes.
                    drop(claim);
                    return Given::Over(self.after(exchange, ended, notes).await);
                }
            }
        }
    }

    /// Forwards a request over a connection that somebody else has made.
    pub(super) async fn forward_over(
        &mut self,
        exchange: &mut Exchange,
        mut stream: Stream,
        changes: &Changes,
        notes: &mut Notes,
    ) -> Result<Followed, Refusal> {
        self.prepare(exchange, changes, notes)?;
        notes.tries += 1;
        match self.exchange(exchange, &mut stream).await {
            Ended::Switched => Ok(Followed::Switched(stream, None)),
            ended => self.after(exchange, ended, notes).await,
        }
    }

    /// Writes the request as the backend gets it.
    fn prepare(&self, exchange: &mut Exchange, changes: &Changes, notes: &Notes) -> Result<(), Refusal> {
        let forwarding = &self.settings().forwarding;
        let origin = Origin {
            peer: self.arrival.client.ip(),
            trusted: forwarding.trusts(self.arrival.client.ip()),
            scheme: self.arrival.scheme(),
            fields: forwarding.send,
            id: forwarding.request_id.as_deref().map(|name| (name, notes.id())),
        };
        exchange.prepare(&origin, changes, &self.settings().limits)
    }

    async fn exchange(&mut self, exchange: &mut Exchange, backend: &mut Stream) -> Ended {
        let settings = &self.worker.shared.settings;
        exchange.run(&mut self.stream, &mut self.ended, backend, &self.ticket, settings).await
    }

    /// What an exchange leaves of the client's connection.
    async fn after(&mut self, exchange: &mut Exchange, ended: Ended, notes: &mut Notes) -> Result<Followed, Refusal> {
        Ok(Followed::By(match ended {
            Ended::Refused(refusal) => return Err(refusal),
            Ended::Stale => return Err(exchange.refusal_of_stale()),
            Ended::Untouched | Ended::Switched | Ended::Declined => return Err(Refusal::BackendClosed),
            Ended::Cut { why, reset } => {
                notes.cut(why);
                if reset {
                    self.stream.reset_on_close();
                }
                Next::Close
            }
            Ended::Whole { keep_client: true, .. } if self.skip_body(exchange).await => Next::Keep,
            // A close behind which something is unread is a reset, which may overtake the response.
            Ended::Whole { keep_client: false, .. }
                if !exchange.head.keep_alive && exchange.is_received() && self.stream.is_quiet() =>
            {
                self.part().await;
                Next::Close
            }
            // The client did not expect the end, or still sends.
            Ended::Whole { .. } => Next::Linger,
        }))
    }

    /// A connection to this backend that waits for a request. With `surely` the kernel is asked whether it still stands.
    fn kept(&mut self, backend: &Backend, surely: bool) -> Option<Stream> {
        if backend.link().http2 {
            return self.worker.lines.take(backend);
        }
        if backend.link().send_proxy.is_none() {
            return self.worker.idle.take(backend, surely, self.worker.now());
        }
        // A client has one such connection: to another backend, this one makes room.
        let Own { stream, id, generation, since } = *self.own.take()?;
        let quiet = if surely { stream.is_surely_quiet() } else { stream.is_quiet() };
        let here = id == backend.id() && generation == backend.generation();
        let fit = here && since.elapsed() < self.settings().timeouts.backend_idle && quiet;
        fit.then_some(stream)
    }

    /// `generation` is the backend's from before the connection was made or taken.
    fn keep(&mut self, backend: &Arc<Backend>, stream: Stream, generation: u64, kept_for: Option<u32>) {
        if backend.link().http2 {
            // The stream is over; the connection is kept by all who share it.
        } else if backend.link().send_proxy.is_none() {
            self.worker.keep(backend, stream, generation, kept_for);
        } else if stream.is_quiet() || stream.settles() {
            self.own = Some(Box::new(Own { stream, id: backend.id(), generation, since: Instant::now() }));
        }
    }

    async fn connect(&self, backend: &Arc<Backend>, notes: &mut Notes) -> Result<Stream, Refusal> {
        let begun = notes.started.map(|_| Instant::now());
        let ends = backend.link().send_proxy.map(|version| (version, self.arrival.ends(&self.stream)));
        let connect = async || match backend.link().http2 {
            false => connect::connect(backend, ends).await,
            true => self.worker.lines.connect(backend, connect::connect(backend, ends)).await,
        };
        let connected = self.worker.connect(backend, &self.ticket, connect).await;
        notes.connect = begun.map(|begun| begun.elapsed());
        connected
    }
}

/// What the end of an exchange says of the backend.
enum Verdict {
    Served,
    Failed(&'static str),
    /// It was the client's fault, or nobody's.
    Neither,
}

fn verdict(ended: &Ended, reused: bool) -> Verdict {
    match ended {
        Ended::Whole { .. } | Ended::Switched => Verdict::Served,
        Ended::Stale if !reused => Verdict::Failed(Refusal::BackendClosed.row().code),
        Ended::Cut { why, .. } if why.fault() == Fault::Backend => Verdict::Failed(why.code()),
        Ended::Refused(refusal) if refusal.row().fault == Fault::Backend => Verdict::Failed(refusal.row().code),
        _ => Verdict::Neither,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_response_that_was_declined_is_followed_by_a_try_though_others_have_spent_what_was_left() {
        let (retries, allowance) = (Arc::new(Retries::default()), Allowance::default());
        let tries = || Tries { by: Some((&retries, &allowance)), left: 1 };
        let exchange = Exchange::new();
        assert!(tries().are_left());
        while allowance.has() {
            allowance.take();
        }
        assert!(tries().forgive(&Ended::Declined, &exchange), "the client would get a 502 instead of it");
        assert!(!tries().forgive(&Ended::Stale, &exchange));
    }
}
