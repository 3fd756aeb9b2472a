//! After a 101, or of a connection that is passed through: bytes both ways until both sides have ended. Parses nothing.
//!
//! What fills its reads is carried by the kernel where it can ([`Haul`]). A buffer or a pipe is held only while it has
//! something in it: an idle tunnel costs two descriptors and a task.

use std::future::poll_fn;
use std::ops::ControlFlow;
use std::task::{Context, Poll, ready};

use crate::conn::spare::Spare;
use crate::http::refuse::Cut;
use crate::net::buffer::{Buffer, SMALL};
use crate::net::deadline::Ticket;
use crate::net::haul::{Broken, Haul};
use crate::net::stream::Stream;
use crate::record::Side;
use crate::settings::Timeouts;

/// How a tunnel ended, and what it carried.
#[derive(Clone, Copy, Debug)]
pub(super) struct Over {
    pub(super) to_backend: u64,
    pub(super) to_client: u64,
    /// Why, where it was not both sides that ended it.
    pub(super) why: Option<Cut>,
    /// Who has ended it first.
    pub(super) first: Option<Side>,
}

/// One direction.
#[derive(Debug)]
struct Lane {
    buffer: Option<Buffer>,
    /// In place of the buffer, where the kernel carries.
    haul: Option<Haul>,
    /// Reads fill their buffer, or nearly: the next ones are worth a haul, or a large buffer.
    fills: bool,
    state: State,
    carried: u64,
}

/// Which side of a lane has broken off.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Gone {
    /// The one that is read from.
    Reader,
    /// The one that is written to.
    Writer,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Open,
    /// Its reader has seen the end, which is still to be passed on.
    Ending,
    Ended,
}

/// Carries bytes both ways. What was read early is in the buffers.
pub(super) async fn run(
    client: &mut Stream,
    backend: &mut Stream,
    early: (Buffer, Buffer),
    spare: &Spare,
    ticket: &Ticket,
    timeouts: &Timeouts,
) -> Over {
    let mut up = Lane::new(early.0);
    let mut down = Lane::new(early.1);
    let (mut before, mut first) = (None, None);
    let why = poll_fn(|cx| {
        let sent_up = up.poll(cx, client, backend, spare);
        let sent_down = down.poll(cx, backend, client, spare);
        first = first.or_else(|| match (sent_up.is_ready(), sent_down.is_ready()) {
            (true, _) => Some(Side::Client),
            (false, true) => Some(Side::Backend),
            (false, false) => None,
        });
        match (&sent_up, &sent_down) {
            (Poll::Ready(Err(Gone::Reader)), _) | (_, Poll::Ready(Err(Gone::Writer))) => {
                return Poll::Ready(Some(Cut::ClientGone));
            }
            (Poll::Ready(Err(Gone::Writer)), _) | (_, Poll::Ready(Err(Gone::Reader))) => {
                return Poll::Ready(Some(Cut::BackendGone));
            }
            _ => {}
        }
        if sent_up.is_ready() && sent_down.is_ready() {
            return Poll::Ready(None);
        }
        let now = (up.carried, down.carried, sent_up.is_ready() || sent_down.is_ready());
        if before != Some(now) {
            before = Some(now);
            // Once one side has said all it has to say, the other is not waited for without end.
            match if now.2 { Some(timeouts.half_closed) } else { timeouts.tunnel } {
                Some(patience) => ticket.arm(patience),
                None => ticket.disarm(),
            }
        } else if ticket.is_due() {
            return Poll::Ready(Some(if ticket.is_over() { Cut::Draining } else { Cut::IdleTimeout }));
        }
        Poll::Pending
    })
    .await;
    ticket.disarm();
    Over { to_backend: up.carried, to_client: down.carried, why, first }
}

impl Lane {
    fn new(early: Buffer) -> Self {
        Self { buffer: Some(early), haul: None, fills: false, state: State::Open, carried: 0 }
    }

    /// Ready when this direction has ended and its end has been passed on.
    fn poll(
        &mut self,
        cx: &mut Context<'_>,
        from: &mut Stream,
        to: &mut Stream,
        spare: &Spare,
    ) -> Poll<Result<(), Gone>> {
        loop {
            if let Some(buffer) = &mut self.buffer {
                while !buffer.is_empty() {
                    let sent = ready!(to.poll_write(cx, buffer.data())).map_err(|_| Gone::Writer)?;
                    buffer.eat(sent);
                    self.carried += sent as u64;
                }
                ready!(to.poll_flush(cx)).map_err(|_| Gone::Writer)?;
            }
            if let Some(wrong_size) = self.buffer.take_if(|buffer| buffer.is_large() != self.fills) {
                spare.give_buffer(wrong_size);
            }
            match self.state {
                State::Ended => return Poll::Ready(Ok(())),
                State::Ending => {
                    if let Some(buffer) = self.buffer.take() {
                        spare.give_buffer(buffer);
                    }
                    // A side that is gone needs not be told.
                    let _ = ready!(to.poll_shutdown(cx));
                    self.state = State::Ended;
                }
                State::Open if self.haul.is_some() => {
                    if ready!(self.poll_haul(cx, from, to, spare))?.is_break() {
                        self.state = State::Ending;
                    }
                }
                State::Open => {
                    let mut buffer = match self.buffer.take() {
                        Some(buffer) => buffer,
                        None => {
                            ready!(from.poll_readable(cx)).map_err(|_| Gone::Reader)?;
                            if self.fills && self.begin_haul(from, to, spare) {
                                continue;
                            }
                            if self.fills { spare.large_buffer() } else { spare.buffer() }
                        }
                    };
                    match from.poll_read(cx, &mut buffer) {
                        Poll::Ready(Ok(0)) => self.state = State::Ending,
                        Poll::Ready(Ok(_)) => {
                            self.fills = buffer.is_full() || self.fills && buffer.len() > SMALL / 2;
                            self.buffer = Some(buffer);
                        }
                        Poll::Ready(Err(_)) => return Poll::Ready(Err(Gone::Reader)),
                        Poll::Pending => {
                            spare.give_buffer(buffer);
                            return Poll::Pending;
                        }
                    }
                }
            }
        }
    }

    /// Whether the kernel carries from now on.
    fn begin_haul(&mut self, from: &Stream, to: &Stream, spare: &Spare) -> bool {
        self.haul = spare.pipe().and_then(|pipe| {
            let unfit = |pipe| spare.give_pipe(pipe);
            Haul::endless(pipe, from, to).map_err(unfit).ok()
        });
        self.haul.is_some()
    }

    /// Lets the kernel carry for as long as more comes than is worth less. Breaks at the reader's end.
    fn poll_haul(
        &mut self,
        cx: &mut Context<'_>,
        from: &Stream,
        to: &Stream,
        spare: &Spare,
    ) -> Poll<Result<ControlFlow<()>, Gone>> {
        let Some(haul) = &mut self.haul else {
            return Poll::Ready(Ok(ControlFlow::Continue(())));
        };
        let mut carried = 0;
        let polled = haul.poll(cx, from, to, &mut carried);
        self.carried += carried;
        if polled.is_pending() && haul.has_more_for_writer() {
            return Poll::Pending;
        }
        self.fills = carried > SMALL as u64 / 2 || carried == 0 && self.fills;
        if let Some(haul) = self.haul.take() {
            spare.give_pipe(haul.into_pipe());
        }
        match ready!(polled) {
            Ok(()) | Err(Broken::Ended) => Poll::Ready(Ok(ControlFlow::Break(()))),
            Err(Broken::Reader) => Poll::Ready(Err(Gone::Reader)),
            Err(Broken::Writer) => Poll::Ready(Err(Gone::Writer)),
        }
    }
}
