//! Who watches the requests of a site, and what they are told: `carom tap`.
//!
//! Where nobody watches, a request looks at one number. Who watches gets what has room in a line of a bounded length; what
//! has none is counted, and no request waits for it.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, Weak};
use std::task::{Context, Poll};
use std::time::{Duration, SystemTime};

use tokio::sync::mpsc;
use tokio::sync::mpsc::error::TrySendError;

/// The most bytes of a head that are copied.
pub const LONGEST_HEAD: usize = 16 * 1024;

/// As much may wait for one who watches.
const LINE: usize = 256;

/// Who watches a site. Made when somebody first does: most nobody ever watches.
#[derive(Debug, Default)]
pub struct Taps(OnceLock<Arc<Watchers>>);

/// Those who watch it.
#[derive(Debug, Default)]
pub(crate) struct Watchers {
    count: AtomicUsize,
    /// Locked only while somebody watches, for as long as it takes to put something in line: they come and go.
    all: Mutex<Vec<Watcher>>,
    requests: AtomicU64,
}

#[derive(Debug)]
struct Watcher {
    line: mpsc::Sender<Event>,
    missed: Arc<AtomicU64>,
    what: What,
}

/// What one wants to be told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum What {
    /// All.
    All,
    /// Only what is answered with 4xx or 5xx, or breaks off.
    Errors,
}

/// What one who watches is told. Ends its part when dropped.
#[derive(Debug)]
pub struct Tap {
    line: mpsc::Receiver<Event>,
    missed: Arc<AtomicU64>,
    watchers: Weak<Watchers>,
}

/// Something has happened to a request.
#[derive(Clone, Debug)]
pub enum Event {
    /// It goes to an instance, or would have, had we not answered it ourselves.
    Request(Arc<Request>),
    /// It is answered: the response's head goes to the client.
    Response(Arc<Request>, Arc<Response>),
    /// It has broken off.
    Broken(Arc<Request>, Broken),
}

/// A request.
#[derive(Debug)]
pub struct Request {
    /// Its number among those that were watched.
    pub number: u64,
    /// When its head had been read.
    pub time: SystemTime,
    /// The peer of the connection that it came on.
    pub client: SocketAddr,
    /// The instance that it goes to; `None` where it was answered without one.
    pub backend: Option<String>,
    /// How often one has been tried, with this time.
    pub tries: u32,
    /// As the instance gets it; where there is none, as far as it has got.
    pub head: Head,
}

/// A response.
#[derive(Debug)]
pub struct Response {
    /// Its status.
    pub status: u16,
    /// Since the request's head.
    pub after: Duration,
    /// It is our own, and no instance's.
    pub is_own: bool,
    /// Why we answer by ourselves, where something has gone wrong.
    pub reason: Option<&'static str>,
    /// As the client gets it; one that came by HTTP/2 gets its translation.
    pub head: Head,
}

/// The end of a request that has gone wrong.
#[derive(Clone, Copy, Debug)]
pub struct Broken {
    /// What has happened.
    pub reason: &'static str,
    /// Since the request's head.
    pub after: Duration,
    /// There was a response before.
    pub was_answered: bool,
}

/// A copy of a head, the empty line included.
#[derive(Debug)]
pub struct Head {
    /// Its bytes, [`LONGEST_HEAD`] at most.
    pub bytes: Box<[u8]>,
    /// How many more there were.
    pub left_out: usize,
}

impl Taps {
    /// Watches.
    pub fn watch(&self, what: What) -> Tap {
        let watchers = self.0.get_or_init(Arc::default);
        let (sender, line) = mpsc::channel(LINE);
        let missed = Arc::<AtomicU64>::default();
        let mut all = watchers.all();
        all.push(Watcher { line: sender, missed: Arc::clone(&missed), what });
        watchers.count.store(all.len(), Ordering::Relaxed);
        Tap { line, missed, watchers: Arc::downgrade(watchers) }
    }

    /// Those who watch, where somebody does.
    pub(crate) fn watchers(&self) -> Option<&Arc<Watchers>> {
        self.0.get().filter(|watchers| watchers.count.load(Ordering::Relaxed) > 0)
    }

    /// How many watch.
    pub fn count(&self) -> usize {
        self.0.get().map_or(0, |watchers| watchers.count.load(Ordering::Relaxed))
    }

    /// Whether this is one of those who watch here.
    pub fn has(&self, tap: &Tap) -> bool {
        self.0.get().is_some_and(|watchers| Weak::ptr_eq(&Arc::downgrade(watchers), &tap.watchers))
    }
}

impl Watchers {
    /// A number for a request.
    pub(crate) fn number(&self) -> u64 {
        self.requests.fetch_add(1, Ordering::Relaxed) + 1
    }

    /// Tells all who want to know.
    pub(crate) fn tell(&self, event: &Event) {
        for watcher in self.all().iter() {
            if watcher.what == What::Errors && !event.is_error() {
                continue;
            }
            if let Err(TrySendError::Full(_)) = watcher.line.try_send(event.clone()) {
                watcher.missed.fetch_add(1, Ordering::Relaxed);
            }
        }
    }

    fn all(&self) -> MutexGuard<'_, Vec<Watcher>> {
        self.all.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Tap {
    /// What happens next; `None` once the site is gone.
    pub fn poll_next(&mut self, cx: &mut Context<'_>) -> Poll<Option<Event>> {
        self.line.poll_recv(cx)
    }

    /// How much has found no room in the line since this was asked last.
    pub fn missed(&self) -> u64 {
        self.missed.swap(0, Ordering::Relaxed)
    }
}

impl Drop for Tap {
    fn drop(&mut self) {
        let Some(watchers) = self.watchers.upgrade() else { return };
        // The line is closed first: that is how its other end is told from others.
        self.line.close();
        let mut all = watchers.all();
        all.retain(|watcher| !watcher.line.is_closed());
        watchers.count.store(all.len(), Ordering::Relaxed);
    }
}

impl Event {
    fn is_error(&self) -> bool {
        match self {
            Self::Request(_) => false,
            Self::Response(_, response) => response.status >= 400 || response.reason.is_some(),
            Self::Broken(..) => true,
        }
    }
}

impl Head {
    /// A copy of the head that these bytes begin with.
    pub(crate) fn at(bytes: &[u8]) -> Self {
        let length = memchr::memmem::find(bytes, b"\r\n\r\n").map_or(bytes.len(), |at| at + 4);
        let kept = length.min(LONGEST_HEAD);
        Self { bytes: bytes[..kept].into(), left_out: length - kept }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn event(status: Option<u16>) -> Event {
        let request = Arc::new(Request {
            number: 1,
            time: SystemTime::UNIX_EPOCH,
            client: SocketAddr::from(([127, 0, 0, 1], 1)),
            backend: None,
            tries: 1,
            head: Head::at(b"GET / HTTP/1.1\r\nHost: a\r\n\r\nbody"),
        });
        let Some(status) = status else { return Event::Request(request) };
        let head = Head::at(b"HTTP/1.1 200 OK\r\n\r\n");
        let response = Response { status, after: Duration::ZERO, is_own: false, reason: None, head };
        Event::Response(request, Arc::new(response))
    }

    fn queued(tap: &mut Tap) -> usize {
        std::iter::from_fn(|| tap.line.try_recv().ok()).count()
    }

    #[test]
    fn those_who_watch_get_what_they_want_and_nobody_is_told_afterwards() {
        let taps = Taps::default();
        assert!(taps.watchers().is_none());
        let (mut all, mut errors) = (taps.watch(What::All), taps.watch(What::Errors));
        for event in [event(None), event(Some(200)), event(Some(404))] {
            taps.watchers().unwrap().tell(&event);
        }
        assert_eq!((queued(&mut all), queued(&mut errors)), (3, 1));
        assert!(taps.has(&all) && !Taps::default().has(&all));
        drop(all);
        assert!(taps.watchers().is_some(), "one still does");
        drop(errors);
        assert!(taps.watchers().is_none());
    }

    #[test]
    fn what_has_no_room_is_counted_and_holds_nobody_up() {
        let taps = Taps::default();
        let mut tap = taps.watch(What::All);
        (0..LINE + 12).for_each(|_| taps.watchers().unwrap().tell(&event(None)));
        assert_eq!((tap.missed(), tap.missed(), queued(&mut tap)), (12, 0, LINE));
        drop(taps);
        assert!(matches!(tap.line.try_recv(), Err(mpsc::error::TryRecvError::Disconnected)));
    }

    #[test]
    fn a_head_ends_where_it_ends_and_is_cut_where_it_is_long() {
        let Event::Request(request) = event(None) else { panic!() };
        assert_eq!((&*request.head.bytes, request.head.left_out), (&b"GET / HTTP/1.1\r\nHost: a\r\n\r\n"[..], 0));
        let long = [b"GET /", "x".repeat(LONGEST_HEAD).as_bytes(), b" HTTP/1.1\r\n\r\n"].concat();
        let head = Head::at(&long);
        assert_eq!((head.bytes.len(), head.left_out), (LONGEST_HEAD, long.len() - LONGEST_HEAD));
    }
}
