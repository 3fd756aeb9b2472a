//! Deadlines without timers: one coarse sweep a worker over stamps in its connections.
//!
//! A timer registered and cancelled for each request costs more than the request's parsing. So a connection only
//! writes down when it is due, and a sweep every [`TICK`] wakes those that are. A deadline is never early, and late by
//! at most a little over one tick.

use std::cell::{Cell, RefCell};
use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::rc::Rc;
use std::sync::LazyLock;
use std::task::{Poll, Waker};
use std::time::{Duration, Instant, SystemTime};

use tokio::sync::Notify;

/// How often connections are looked at.
pub(crate) const TICK: Duration = Duration::from_millis(100);

/// When nothing is waited for.
const NEVER: u64 = u64::MAX;

/// From where milliseconds are counted: the same for all workers, which tell each other times.
static EPOCH: LazyLock<Instant> = LazyLock::new(Instant::now);

/// The time, in milliseconds since a moment that all have in common. Reading it is not free: see [`Sweep::now`].
pub(crate) fn now() -> u64 {
    u64::try_from(EPOCH.elapsed().as_millis()).unwrap_or(NEVER)
}

/// The connections of one worker, with what each is due for.
#[derive(Debug)]
pub(crate) struct Sweep {
    slots: RefCell<Slots>,
    /// Milliseconds since [`EPOCH`], as of the last tick.
    now: Cell<u64>,
    /// One moment, the last tick's, by both clocks.
    both: Cell<(Instant, SystemTime)>,
    draining: Cell<bool>,
    over: Cell<bool>,
    /// Told when the first connection comes and when the last one goes.
    turn: Notify,
}

#[derive(Debug, Default)]
struct Slots {
    all: Vec<Slot>,
    free: Vec<u32>,
}

#[derive(Debug)]
struct Slot {
    due: u64,
    /// Since when it waits for a request; [`NEVER`] while it has one.
    idle: u64,
    /// It has been asked to make room for another.
    evicted: bool,
    waker: Option<Waker>,
}

impl Slot {
    const FREE: Self = Self { due: NEVER, idle: NEVER, evicted: false, waker: None };
}

/// One connection's place in the sweep; gives it back when dropped.
#[derive(Debug)]
pub(crate) struct Ticket {
    sweep: Rc<Sweep>,
    slot: u32,
}

/// The deadline has passed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Elapsed;

impl Sweep {
    pub(crate) fn new() -> Rc<Self> {
        Rc::new(Self {
            slots: RefCell::default(),
            now: Cell::new(0),
            both: Cell::new((Instant::now(), SystemTime::now())),
            draining: Cell::new(false),
            over: Cell::new(false),
            turn: Notify::new(),
        })
    }

    /// Takes a connection in.
    pub(crate) fn enter(self: &Rc<Self>) -> Ticket {
        let mut slots = self.slots.borrow_mut();
        if slots.all.len() == slots.free.len() {
            // Nobody was here, so nobody kept the time.
            self.keep_time();
            self.turn.notify_waiters();
        }
        let slot = slots.free.pop().unwrap_or_else(|| {
            slots.all.push(Slot::FREE);
            u32::try_from(slots.all.len() - 1).unwrap_or(u32::MAX)
        });
        Ticket { sweep: Rc::clone(self), slot }
    }

    /// How many connections there are.
    pub(crate) fn len(&self) -> usize {
        let slots = self.slots.borrow();
        slots.all.len() - slots.free.len()
    }

    /// Waits until there is a connection.
    pub(crate) async fn any(&self) {
        while self.len() == 0 {
            self.turn.notified().await;
        }
    }

    /// Waits until there is none.
    pub(crate) async fn none(&self) {
        while self.len() > 0 {
            self.turn.notified().await;
        }
    }

    /// The time as of the last tick, in milliseconds since [`EPOCH`].
    pub(crate) fn now(&self) -> u64 {
        self.now.get()
    }

    /// What people's clock said at that moment, of a time when there was a connection. Without reading it.
    pub(crate) fn wall(&self, at: Instant) -> SystemTime {
        let (then, wall) = self.both.get();
        match at.checked_duration_since(then) {
            Some(later) => wall + later,
            None => wall - (then - at),
        }
    }

    /// Looks at every connection and wakes those that are due.
    pub(crate) fn tick(&self) {
        self.keep_time();
        let now = self.now.get();
        for slot in self.slots.borrow_mut().all.iter_mut().filter(|slot| slot.due <= now) {
            if let Some(waker) = &slot.waker {
                waker.wake_by_ref();
            }
        }
    }

    /// Tells every connection that the proxy is stopping.
    pub(crate) fn drain(&self) {
        self.draining.set(true);
        self.wake_all();
    }

    /// Makes every wait due: the time for draining has passed.
    pub(crate) fn end(&self) {
        self.over.set(true);
        self.wake_all();
    }

    fn wake_all(&self) {
        for waker in self.slots.borrow().all.iter().filter_map(|slot| slot.waker.as_ref()) {
            waker.wake_by_ref();
        }
    }

    pub(crate) fn is_draining(&self) -> bool {
        self.draining.get()
    }

    /// Asks the connection that has waited longest for a request to make room. `false` when none waits.
    pub(crate) fn evict_longest_idle(&self) -> bool {
        let mut slots = self.slots.borrow_mut();
        let idle = slots.all.iter_mut().filter(|slot| slot.idle != NEVER && !slot.evicted && slot.waker.is_some());
        let Some(slot) = idle.min_by_key(|slot| slot.idle) else {
            return false;
        };
        slot.evicted = true;
        if let Some(waker) = &slot.waker {
            waker.wake_by_ref();
        }
        true
    }

    fn keep_time(&self) {
        self.now.set(now());
        self.both.set((Instant::now(), SystemTime::now()));
    }
}

impl Ticket {
    /// Must be called once from the connection's own task: that is who is woken.
    pub(crate) async fn attend(&self) {
        poll_fn(|cx| {
            self.with(|slot| slot.waker = Some(cx.waker().clone()));
            Poll::Ready(())
        })
        .await;
    }

    /// Sets the deadline, in place of the last one.
    pub(crate) fn arm(&self, after: Duration) {
        // The time that we keep may be a tick old.
        let after = after.saturating_add(TICK);
        let after = after.as_secs().saturating_mul(1000).saturating_add(u64::from(after.subsec_millis()));
        let due = self.sweep.now.get().saturating_add(after);
        self.with(|slot| slot.due = due);
    }

    /// Forgets the deadline.
    pub(crate) fn disarm(&self) {
        self.with(|slot| slot.due = NEVER);
    }

    /// Whether the deadline has passed.
    pub(crate) fn is_due(&self) -> bool {
        let now = self.sweep.now.get();
        self.is_over() || self.with(|slot| slot.due <= now)
    }

    /// Whether everything has to end now.
    pub(crate) fn is_over(&self) -> bool {
        self.sweep.over.get()
    }

    /// Whether the proxy is stopping.
    pub(crate) fn is_draining(&self) -> bool {
        self.sweep.is_draining()
    }

    /// Waits for a request from now on: it may be asked to make room for others.
    pub(crate) fn begin_idling(&self) {
        let now = self.sweep.now.get();
        self.with(|slot| slot.idle = now);
    }

    /// The wait is over.
    pub(crate) fn end_idling(&self) {
        self.with(|slot| slot.idle = NEVER);
    }

    /// Whether it has to make room.
    pub(crate) fn is_evicted(&self) -> bool {
        self.with(|slot| slot.evicted)
    }

    /// Waits for something, no longer than this.
    pub(crate) async fn within<F: Future + Unpin>(&self, after: Duration, future: F) -> Result<F::Output, Elapsed> {
        self.arm(after);
        self.until_due(future).await
    }

    /// Waits for something, no longer than the deadline that is set. It is pinned by the caller, so that nobody holds room
    /// for it twice.
    pub(crate) async fn until_due<F: Future + Unpin>(&self, mut future: F) -> Result<F::Output, Elapsed> {
        let result = poll_fn(|cx| match Pin::new(&mut future).poll(cx) {
            Poll::Ready(output) => Poll::Ready(Ok(output)),
            Poll::Pending if self.is_due() => Poll::Ready(Err(Elapsed)),
            Poll::Pending => Poll::Pending,
        })
        .await;
        self.disarm();
        result
    }

    fn with<T>(&self, use_slot: impl FnOnce(&mut Slot) -> T) -> T {
        use_slot(&mut self.sweep.slots.borrow_mut().all[self.slot as usize])
    }
}

impl Drop for Ticket {
    fn drop(&mut self) {
        let mut slots = self.sweep.slots.borrow_mut();
        slots.all[self.slot as usize] = Slot::FREE;
        slots.free.push(self.slot);
        if slots.all.len() == slots.free.len() {
            self.sweep.turn.notify_waiters();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_moment_has_the_time_that_peoples_clock_said() {
        let sweep = Sweep::new();
        let (then, wall) = sweep.both.get();
        assert_eq!(sweep.wall(then + TICK), wall + TICK);
        assert_eq!(sweep.wall(then - TICK), wall - TICK);
        std::thread::yield_now();
        sweep.tick();
        assert!(sweep.both.get().0 > then, "no tick has set it anew");
    }
}
