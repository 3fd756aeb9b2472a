//! The decision: where a request bounces.
//!
//! [`Decide`] is the seam between carrying requests and knowing where they go. The routing table is one
//! implementation of it; a closure is another.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;

use arc_swap::ArcSwap;

use crate::http::head::Head;
use crate::http::refuse::Refusal;
use crate::table::{Route, Table};

/// Says where each request goes. Called once a request, on the worker that carries it.
pub trait Decide: Send + Sync + 'static {
    /// Decides about one request, by its head.
    fn decide<'a>(&'a self, head: &'a Head<'a>) -> Decision<'a>;
}

/// A decision, or one that takes its time.
pub enum Decision<'a> {
    /// Decided.
    Now(Bounce),
    /// To be awaited. Other requests go on meanwhile.
    Later(Pin<Box<dyn Future<Output = Bounce> + 'a>>),
}

/// Where a request bounces.
#[derive(Clone, Debug)]
pub enum Bounce {
    /// What this route says happens.
    Route(Arc<Route>),
    /// The client gets this failure.
    Refuse(Refusal),
}

impl<F> Decide for F
where
    F: Fn(&Head<'_>) -> Bounce + Send + Sync + 'static,
{
    fn decide<'a>(&'a self, head: &'a Head<'a>) -> Decision<'a> {
        Decision::Now(self(head))
    }
}

/// The published routing table. Publishing another one takes effect at every connection's next request.
#[derive(Debug)]
pub struct Routes(ArcSwap<Table>);

impl Routes {
    /// Publishes a first table.
    pub fn new(table: Arc<Table>) -> Self {
        Self(ArcSwap::new(table))
    }

    /// Publishes a table in place of the last one, which is given back: dropping a large one takes a while.
    pub fn publish(&self, table: Arc<Table>) -> Arc<Table> {
        self.0.swap(table)
    }

    /// The table that requests are routed by now.
    pub fn current(&self) -> Arc<Table> {
        self.0.load_full()
    }
}

impl Decide for Routes {
    fn decide<'a>(&'a self, head: &'a Head<'a>) -> Decision<'a> {
        let table = self.0.load();
        Decision::Now(match table.find(head.host(), head.target()) {
            Some(route) => Bounce::Route(Arc::clone(route)),
            None => Bounce::Refuse(Refusal::NoRoute),
        })
    }
}

impl Decide for Arc<Routes> {
    fn decide<'a>(&'a self, head: &'a Head<'a>) -> Decision<'a> {
        (**self).decide(head)
    }
}

impl fmt::Debug for Decision<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Now(bounce) => f.debug_tuple("Now").field(bounce).finish(),
            Self::Later(_) => f.write_str("Later"),
        }
    }
}
