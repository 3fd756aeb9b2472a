//! The instances of a site that one request may go to, and its wait for one where none can take it.

use std::future::pending;
use std::time::{Duration, Instant};

use crate::http::refuse::Refusal;
use crate::settings::StickyKey;
use crate::table::backend::Claim;
use crate::table::queue::{Place, Turn};
use crate::table::site::{BUSY, Pick, Site, Tried};

/// After so long who waits looks again, whatever has happened: an instance that comes up, or is put back, tells nobody.
const MOMENT: Duration = Duration::from_millis(100);

/// Instances of a site, each once, for one request.
pub(super) struct Choosing<'a> {
    site: &'a Site,
    /// What the request is chosen by.
    key: u64,
    /// It came over TLS, as far as that matters here.
    tls: bool,
    tried: Tried,
    /// Somebody could have served, but for being full.
    busy: bool,
    /// It has waited, and is first of those who wait.
    turn: Option<Turn<'a>>,
    /// It is among those who wait.
    place: Option<Place<'a>>,
    /// It has been given an instance and failed: it lets a moment pass before it stands in line again.
    rests: bool,
}

/// A request's wait, bounded by what the site says.
pub(super) struct Wait {
    /// So many may wait.
    most: usize,
    begun: Instant,
}

impl<'a> Choosing<'a> {
    pub(super) fn new(site: &'a Site, key: u64) -> Self {
        Self { site, key, tls: false, tried: Tried::default(), busy: false, turn: None, place: None, rests: false }
    }

    /// For a request that came over TLS, to us or to a proxy in front.
    pub(super) fn over_tls(mut self, tls: bool) -> Self {
        self.tls = tls;
        self
    }

    /// The next one, by that time, claimed.
    pub(super) fn next(&mut self, now: u64) -> Option<Claim> {
        match self.site.pick(&mut self.tried, self.key, now) {
            Pick::One(claim) => {
                // Who is next may be as lucky. Where nobody can be full, it waits to hear how this one fares.
                if self.site.is_bounded() {
                    self.turn = None;
                    self.rests = true;
                }
                Some(claim)
            }
            Pick::Busy => {
                self.busy = true;
                None
            }
            Pick::None => None,
        }
    }

    /// An instance has been reached: who is next may try, and the place is free for another, however long the answer takes.
    pub(super) fn settle(&mut self) {
        self.turn = None;
        self.place = None;
    }

    /// Forgets who has been tried.
    pub(super) fn forget(&mut self) {
        self.tried = Tried::default();
    }

    /// The cookie that its client gets from who has claimed it.
    pub(super) fn session(&self, claim: &Claim, signed: &StickyKey) -> Option<Box<str>> {
        self.site.session(claim, self.key, signed, self.tls)
    }

    pub(super) fn site(&self) -> &'a Site {
        self.site
    }

    /// Whether it would overtake others who wait for room.
    pub(super) fn has_to_queue(&mut self) -> bool {
        self.busy |= self.site.is_bounded() && !self.site.has_nobody_waiting();
        self.busy
    }

    /// Why nobody was left to try, where the last who was failed for this reason.
    pub(super) fn why(&self, last: Refusal) -> Refusal {
        if self.busy { Refusal::BackendBusy } else { last }
    }

    /// Whether it waits, now that nobody is left.
    pub(super) fn waits(&self) -> bool {
        self.busy || !self.site.rules().wait.is_zero()
    }

    /// Begins to wait, where fewer than so many do.
    pub(super) fn wait(&mut self, most: usize) -> Result<Wait, Refusal> {
        self.stand_in_line(most)?;
        Ok(Wait { most, begun: Instant::now() })
    }

    /// Takes a place, where it has none: it has been given up once an instance was reached.
    fn stand_in_line(&mut self, most: usize) -> Result<(), Refusal> {
        if self.place.is_none() {
            self.place = Some(self.site.queue(most).ok_or(Refusal::QueueFull)?);
        }
        Ok(())
    }

    /// For how long the next [`Choosing::chance`] is worth waiting for. An error when the wait is over.
    pub(super) fn patience(&mut self, wait: &Wait) -> Result<Duration, Refusal> {
        self.stand_in_line(wait.most)?;
        let whole = match self.site.rules().wait {
            Duration::ZERO if self.busy => BUSY,
            wait => wait,
        };
        match whole.checked_sub(wait.begun.elapsed()) {
            Some(left) if !left.is_zero() => match self.turn.is_some() || self.rests {
                true => Ok(left.min(MOMENT)),
                false => Ok(left),
            },
            _ => Err(self.why(Refusal::NoBackend)),
        }
    }

    /// Waits until another look is worth while: until all who came before have gone, and then until there may be room.
    pub(super) async fn chance(&mut self) {
        match (&self.turn, &self.place) {
            (Some(turn), _) => turn.room().await,
            (None, Some(place)) if !self.rests => self.turn = Some(place.turn().await),
            (None, _) => pending().await,
        }
    }

    /// Begins again with all instances, after that wait; `false` where others are before it.
    pub(super) fn begin_again(&mut self) -> bool {
        self.tried = Tried::default();
        self.busy &= self.turn.is_none();
        self.rests = false;
        self.turn.is_some()
    }
}
