//! A level-triggered epoll that knows its members by a number.

use std::io;
use std::mem::take;
use std::os::fd::{AsFd, OwnedFd};
use std::time::Duration;

use rustix::buffer::spare_capacity;
use rustix::event::Timespec;
use rustix::event::epoll::{self, CreateFlags, Event, EventData, EventFlags};

pub const READ: EventFlags = EventFlags::IN;
pub const WRITE: EventFlags = EventFlags::OUT;

pub struct Epoll {
    epoll: OwnedFd,
    events: Vec<Event>,
}

impl Epoll {
    pub fn new() -> io::Result<Self> {
        Ok(Self { epoll: epoll::create(CreateFlags::CLOEXEC)?, events: Vec::with_capacity(256) })
    }

    pub fn add(&self, member: &impl AsFd, number: usize, what: EventFlags) -> io::Result<()> {
        Ok(epoll::add(&self.epoll, member, EventData::new_u64(number as u64), what)?)
    }

    pub fn change(&self, member: &impl AsFd, number: usize, what: EventFlags) -> io::Result<()> {
        Ok(epoll::modify(&self.epoll, member, EventData::new_u64(number as u64), what)?)
    }

    /// The numbers of members for which something can be done. A reset counts as all that can be done.
    pub fn wait(&mut self, at_most: Option<Duration>) -> io::Result<Vec<usize>> {
        let at_most = at_most.map(|time| Timespec::try_from(time).unwrap_or_default());
        let mut events = take(&mut self.events);
        events.clear();
        let waited = epoll::wait(&self.epoll, spare_capacity(&mut events), at_most.as_ref());
        if let Err(error) = waited
            && error != rustix::io::Errno::INTR
        {
            return Err(error.into());
        }
        let numbers = events.iter().map(|event| event.data.u64() as usize).collect();
        self.events = events;
        Ok(numbers)
    }
}

/// Whether there is just nothing to do now.
pub fn would_block<T>(result: &io::Result<T>) -> bool {
    result.as_ref().is_err_and(|error| error.kind() == io::ErrorKind::WouldBlock)
}
