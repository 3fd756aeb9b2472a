//! Looks up the names of backends again and again, so that an instance that is given by a name is where its name says.
//!
//! One thread for all, away from those who carry requests. It follows the published table, asks for each name once,
//! however many instances have it, and asks again when the answer is no longer good. What it finds it leaves with the
//! backends; where nothing is found, what was known before stays.

mod resolver;

use std::cell::RefCell;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::rc::Rc;
use std::sync::Arc;
use std::time::{Duration, Instant};

use hashbrown::HashMap;
use tokio::task::AbortHandle;
use tokio::time::sleep;

use super::own_thread::OwnThread;
use crate::bounce::Routes;
use crate::table::Table;
use crate::table::backend::{Address, Backend};
use resolver::Resolver;

/// However short an answer is good: not more often than this is asked.
const SHORTEST: Duration = Duration::from_secs(1);

/// And however long: an address that is gone must not be used for a day because somebody's zone file says so.
const LONGEST: Duration = Duration::from_secs(5 * 60);

/// How long to wait after a first failure, twice as long after each further one, up to the last.
const PAUSES: (Duration, Duration) = (Duration::from_secs(1), Duration::from_secs(30));

/// Who looks them up. Stops when dropped.
///
/// ```
/// use carom::{Routes, config, ops::names::Names};
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let file = br#""beep.example.com" = "app.internal:8001""#;
/// let routes = Routes::new(config::routes::parse("routes.toml".as_ref(), file, &[], None)?);
/// let names = Names::follow(routes.clone(), Vec::new())?; // for as long as it is held
/// # drop(names);
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub struct Names {
    _thread: OwnThread,
}

impl Names {
    /// Begins to look up what these routes name, at these servers; at the system's where there are none. From now on a
    /// request to a name that has not been looked up yet waits for that.
    ///
    /// Without it, a name is looked up by the system's resolver whenever a connection to it is made.
    ///
    /// # Errors
    /// A thread or a runtime that can't be made.
    pub fn follow(routes: Routes, servers: Vec<SocketAddr>) -> io::Result<Self> {
        let followed = routes.clone();
        let thread = OwnThread::start("names", move || follow(followed, Rc::new(Resolver::new(servers))))?;
        routes.names_are_asked();
        Ok(Self { _thread: thread })
    }
}

/// A name, and who has it.
struct Name {
    text: Box<str>,
    backends: RefCell<Vec<Arc<Backend>>>,
    /// What was found last.
    known: RefCell<Vec<IpAddr>>,
}

/// A name that is asked for until the task is stopped.
struct Asked {
    name: Rc<Name>,
    task: AbortHandle,
}

async fn follow(routes: Routes, resolver: Rc<Resolver>) {
    let mut changes = routes.changes();
    let mut asked: HashMap<Box<str>, Asked> = HashMap::new();
    loop {
        changes.mark_unchanged();
        let wanted = wanted(&routes.current());
        asked.retain(|text, asked| {
            wanted.contains_key(text) || {
                asked.task.abort();
                false
            }
        });
        for (text, backends) in wanted {
            if let Some(asked) = asked.get(&text) {
                asked.name.is_of(backends);
                continue;
            }
            let name = Rc::new(Name { text: text.clone(), backends: backends.into(), known: RefCell::default() });
            let task = tokio::task::spawn_local(ask_for_ever(Rc::clone(&name), Rc::clone(&resolver))).abort_handle();
            asked.insert(text, Asked { name, task });
        }
        if changes.changed().await.is_err() {
            return;
        }
    }
}

/// The names in a table, with the backends that have them.
fn wanted(table: &Table) -> HashMap<Box<str>, Vec<Arc<Backend>>> {
    let mut wanted: HashMap<Box<str>, Vec<Arc<Backend>>> = HashMap::new();
    for backend in table.named_backends() {
        if let Address::Name(text, _) = backend.address() {
            let backends = wanted.entry(text.clone()).or_default();
            if !backends.iter().any(|other| Arc::ptr_eq(other, backend)) {
                backends.push(Arc::clone(backend));
            }
        }
    }
    wanted
}

async fn ask_for_ever(name: Rc<Name>, resolver: Rc<Resolver>) {
    let (first, last) = PAUSES;
    let (mut pause, mut failing_since) = (first, None);
    loop {
        let known = name.known.borrow().clone();
        let wait = match resolver.ask(&name.text, &known).await {
            Ok(found) => {
                name.found(found.addresses);
                if let Some(since) = failing_since.take() {
                    let seconds = Instant::now().saturating_duration_since(since).as_secs();
                    tracing::info!(name = name.text, seconds, "a backend's name resolves again");
                }
                pause = first;
                found.good_for.clamp(SHORTEST, LONGEST)
            }
            Err(why) => {
                name.found_nothing();
                if failing_since.is_none() {
                    failing_since = Some(Instant::now());
                    let meanwhile = match known.as_slice() {
                        [] => "its requests are refused".to_owned(),
                        known => format!("{} stay in use", listed(known)),
                    };
                    tracing::warn!(name = name.text, why, meanwhile, "a backend's name does not resolve");
                }
                let now = pause;
                pause = (pause * 2).min(last);
                now
            }
        };
        sleep(wait).await;
    }
}

impl Name {
    fn found(&self, addresses: Vec<IpAddr>) {
        let first = self.known.replace(addresses).is_empty();
        let mut moved = None;
        for backend in self.backends.borrow().iter() {
            // The same for all who have the name.
            moved = self.tell(backend).or(moved);
        }
        if let Some((came, went)) = moved.filter(|_| !first) {
            tracing::info!(name = self.text, came, went, "a backend's name has moved");
        }
    }

    /// Gives a backend what is known; says what that changes.
    fn tell(&self, backend: &Backend) -> Option<(String, String)> {
        let (Some(named), Address::Name(_, port)) = (backend.named(), backend.address()) else { return None };
        let moved = named.found(&self.known.borrow(), *port)?;
        Some((listed(&moved.came), listed(&moved.went)))
    }

    fn found_nothing(&self) {
        for backend in self.backends.borrow().iter() {
            if let Some(named) = backend.named() {
                named.found_nothing();
            }
        }
    }

    /// A save may give the name to others, who need not wait where it is known.
    fn is_of(&self, backends: Vec<Arc<Backend>>) {
        if !self.known.borrow().is_empty() {
            for backend in &backends {
                self.tell(backend);
            }
        }
        self.backends.replace(backends);
    }
}

fn listed(addresses: &[IpAddr]) -> String {
    addresses.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ")
}
