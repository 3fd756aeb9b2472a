//! What we answer by ourselves, and how a connection ends.

use std::future::poll_fn;
use std::pin::pin;
use std::time::Duration;

use super::notes::Notes;
use super::{Connection, Next};
use crate::conn::answer::{self, Manner};
use crate::conn::tls;
use crate::http::refuse::Refusal;
use crate::record::Side;
use crate::table::{Answer, Redirect};
use crate::upstream::exchange::Exchange;

/// How long a connection is listened to after we have said that it ends: closing it while the client still sends would
/// reset it, and the client might never read why.
const LINGER: Duration = Duration::from_secs(2);

impl Connection {
    /// Gets what is left of the request body out of the way of the next request.
    pub(super) async fn skip_body(&mut self, exchange: &mut Exchange) -> bool {
        if exchange.is_received() {
            return true;
        }
        let settings = &self.worker.shared.settings;
        let skipping = pin!(exchange.skip_body(&mut self.stream, &settings.limits));
        self.ticket.within(settings.timeouts.body, skipping).await == Ok(true)
    }

    pub(super) async fn redirect(&mut self, exchange: &mut Exchange, redirect: &Redirect) -> Next {
        let target = exchange.head.target(exchange.from_client.data()).to_vec();
        let write = |out: &mut _, manner: Manner<'_>| answer::redirect(out, redirect, &target, manner);
        self.answer(exchange, redirect.status, write).await
    }

    pub(super) async fn respond(&mut self, exchange: &mut Exchange, fixed: &Answer) -> Next {
        self.answer(exchange, fixed.status, |out, manner| answer::fixed(out, fixed, manner)).await
    }

    /// Answers with a failure.
    pub(super) async fn refuse(&mut self, exchange: &mut Exchange, refusal: Refusal, notes: &mut Notes) -> Next {
        let row = refusal.row();
        notes.reason = Some((row.code, row.fault));
        if let Some(tap) = &mut exchange.tap {
            tap.fails(row.code);
        }
        self.recall(exchange, notes);
        let ambiguous = matches!(row.status, 400 | 408) || exchange.head.length == 0;
        if ambiguous || matches!(refusal, Refusal::BackendGarbled(_)) {
            // Where this request ends is not known, so neither is where the next one begins. And a client whose
            // backend breaks the framing gets the same end whether or not the broken part came with the head.
            exchange.head.keep_alive = false;
            notes.closed = Some(Side::Proxy);
        }
        let text = match refusal {
            Refusal::PlainHttp => self.instead(exchange).map(|address| format!("{}: {address}", row.text)),
            Refusal::Paused => notes.message(),
            _ => None,
        };
        let write = |out: &mut _, manner: Manner<'_>| answer::refusal(out, refusal, text.as_deref(), manner);
        self.answer(exchange, row.status, write).await
    }

    /// The address that a client should have used, where it is known.
    fn instead(&self, exchange: &Exchange) -> Option<String> {
        if exchange.head.length == 0 {
            return None;
        }
        let port = self.stream.local_address().map(|address| address.port()).filter(|&port| port != tls::HTTPS);
        let port = port.map(|port| format!(":{port}")).unwrap_or_default();
        exchange.head.host().map(|host| format!("https://{host}{port}/"))
    }

    /// Sends an answer of our own, and reads what is left of the request.
    async fn answer(
        &mut self,
        exchange: &mut Exchange,
        status: u16,
        write: impl FnOnce(&mut Vec<u8>, Manner<'_>),
    ) -> Next {
        let nothing_follows = self.ended && exchange.is_last();
        let keep = exchange.head.keep_alive
            && !nothing_follows
            && !self.ticket.is_draining()
            && exchange.rest_can_be_skipped(&self.settings().limits);
        let head = &exchange.head;
        // What is left of the last head says nothing of one that could not be read.
        let known = head.length > 0;
        let hsts = exchange.hsts.take();
        let manner = Manner {
            hsts: hsts.as_deref(),
            close: !keep,
            http10: known && head.minor == 0,
            to_head: known && head.is_head,
            html: known && head.wants_html,
            error_field: self.settings().error_field,
        };
        let mut out = Vec::with_capacity(512);
        write(&mut out, manner);
        exchange.counts.status = status;
        exchange.tell_answer(&out, status);
        if !self.send(&out).await {
            return Next::Close;
        }
        exchange.counts.sent += out.len() as u64;
        if self.worker.told.of_all() {
            exchange.counts.sent_head = memchr::memmem::find(&out, b"\r\n\r\n").map_or(0, |at| at as u64 + 4);
        }
        match keep {
            true if self.skip_body(exchange).await => Next::Keep,
            _ => Next::Linger,
        }
    }

    /// Sends bytes of our own. `false` when the client does not take them.
    async fn send(&mut self, bytes: &[u8]) -> bool {
        let stream = &mut self.stream;
        let mut sent = 0;
        let sending = pin!(async {
            while sent < bytes.len() {
                match poll_fn(|cx| stream.poll_write(cx, &bytes[sent..])).await {
                    Ok(0) | Err(_) => return false,
                    Ok(count) => sent += count,
                }
            }
            poll_fn(|cx| stream.poll_flush(cx)).await.is_ok()
        });
        self.ticket.within(self.worker.shared.settings.timeouts.send, sending).await == Ok(true)
    }

    /// Tells a TLS client that the end is meant.
    pub(super) async fn part(&mut self) {
        let stream = &mut self.stream;
        let parting = poll_fn(|cx| stream.poll_part(cx));
        let _ = self.ticket.within(LINGER, parting).await;
    }

    /// Says that nothing more will come, and reads for a moment what the client still sends.
    pub(super) async fn linger(&mut self, exchange: &mut Exchange) {
        if self.ended {
            return;
        }
        let stream = &mut self.stream;
        let lingering = pin!(async {
            let _ = poll_fn(|cx| stream.poll_shutdown(cx)).await;
            loop {
                exchange.from_client.clear();
                if !matches!(poll_fn(|cx| stream.poll_read(cx, &mut exchange.from_client)).await, Ok(1..)) {
                    break;
                }
            }
        });
        let _ = self.ticket.within(LINGER, lingering).await;
    }
}
