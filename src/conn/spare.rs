//! Memory that a worker's connections have used and that nobody uses now: taking it costs less than asking for new.

use std::cell::RefCell;

use super::http1::Kept;
use crate::net::buffer::Buffer;
use crate::net::system::Pipe;
use crate::upstream::exchange::Exchange;

/// As many of each kind: enough for a busy moment, little enough to forget.
const MOST: usize = 256;

/// As many of them may be large.
const MOST_LARGE: usize = 16;

/// All of one worker's.
#[derive(Default)]
pub(crate) struct Spare {
    small: RefCell<Vec<Buffer>>,
    large: RefCell<Vec<Buffer>>,
    pipes: RefCell<Vec<Pipe>>,
    #[expect(clippy::vec_box, reason = "they move between here and connections, and are large")]
    exchanges: RefCell<Vec<Box<Exchange>>>,
    notes: RefCell<Vec<Kept>>,
}

impl Spare {
    pub(super) fn buffer(&self) -> Buffer {
        self.small.borrow_mut().pop().unwrap_or_else(Buffer::new)
    }

    pub(super) fn large_buffer(&self) -> Buffer {
        self.large.borrow_mut().pop().unwrap_or_else(Buffer::large)
    }

    pub(super) fn give_buffer(&self, mut buffer: Buffer) {
        let (mut kept, most) = match buffer.is_large() {
            true => (self.large.borrow_mut(), MOST_LARGE),
            false => (self.small.borrow_mut(), MOST),
        };
        if kept.len() < most && (buffer.is_small() || buffer.is_large()) {
            buffer.clear();
            kept.push(buffer);
        }
    }

    /// An empty pipe, where the system has such and there are descriptors for it.
    pub(super) fn pipe(&self) -> Option<Pipe> {
        self.pipes.borrow_mut().pop().or_else(Pipe::new)
    }

    pub(super) fn give_pipe(&self, pipe: Pipe) {
        let mut pipes = self.pipes.borrow_mut();
        if pipe.held() == 0 && pipes.len() < MOST_LARGE {
            pipes.push(pipe);
        }
    }

    pub(super) fn exchange(&self) -> Box<Exchange> {
        self.exchanges.borrow_mut().pop().unwrap_or_else(|| Box::new(Exchange::new()))
    }

    pub(super) fn give_exchange(&self, mut exchange: Box<Exchange>) {
        let mut exchanges = self.exchanges.borrow_mut();
        if exchanges.len() < MOST {
            exchange.tidy(exchanges.len() < MOST_LARGE);
            exchanges.push(exchange);
        }
    }

    /// For what is kept of a head.
    pub(super) fn notes(&self) -> Kept {
        self.notes.borrow_mut().pop().unwrap_or_default()
    }

    pub(super) fn give_notes(&self, mut notes: Kept) {
        let mut kept = self.notes.borrow_mut();
        if kept.len() < MOST && notes.clear() {
            kept.push(notes);
        }
    }
}
