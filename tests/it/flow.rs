//! Bodies that are large, slow, or come in pieces: passed on as they come, and never kept in memory.

use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::support::{CHUNKED, Carom, Gate, Origin, pattern, poll_until, reply, request, with_body};

const MANY: usize = 50 << 20;

#[test]
fn fifty_megabytes_arrive_unchanged_in_both_directions() {
    let body = Arc::new(pattern(MANY));
    let sent = Arc::clone(&body);
    let a = Origin::new(move |conn| {
        while let Some(request) = conn.request() {
            assert!(request.body == *sent, "the upload arrived changed");
            conn.send(format!("HTTP/1.1 200 OK\r\nContent-Length: {MANY}\r\n\r\n"));
            conn.send(&*sent);
        }
    });
    let carom = Carom::to(a.port()).start();
    let idle = carom.memory();
    let mut client = carom.client();
    client.send(request("POST /", "a.test", &[&format!("Content-Length: {MANY}")]));
    client.send(&*body);
    let response = client.response_to("POST");
    assert!(response.body == *body, "the download arrived changed");
    let grown = carom.memory().saturating_sub(idle);
    assert!(grown < 8 << 20, "memory grew by {grown} bytes");
}

#[test]
fn fifty_megabytes_of_chunks_arrive_unchanged() {
    let block = Arc::new(pattern(100_003));
    let sent = Arc::clone(&block);
    let a = Origin::new(move |conn| {
        while let Some(request) = conn.request() {
            assert!(request.body.chunks(sent.len()).all(|piece| piece == &sent[..]), "the upload arrived changed");
            conn.send("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n");
            for piece in request.body.chunks(sent.len()) {
                conn.send([format!("{:x}\r\n", piece.len()).as_bytes(), piece, b"\r\n"].concat());
            }
            conn.send("0\r\n\r\n");
        }
    });
    let carom = Carom::to(a.port()).start();
    let mut client = carom.client();
    client.send(request("POST /", "a.test", &[CHUNKED]));
    for _ in 0..100 {
        client.send([format!("{:x}\r\n", block.len()).as_bytes(), &block, b"\r\n"].concat());
    }
    client.send("0\r\n\r\n");
    let response = client.response_to("POST");
    assert_eq!(response.body.len(), 100 * block.len());
    assert!(response.body.chunks(block.len()).all(|piece| piece == &block[..]), "the download arrived changed");
}

#[test]
fn a_reader_that_does_not_read_costs_little_and_slows_the_backend() {
    let sent = Arc::new(crate::support::Watched::new(0_usize));
    let counted = Arc::clone(&sent);
    let a = Origin::new(move |conn| {
        conn.request();
        conn.send(format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n", 500 << 20));
        let block = pattern(64 * 1024);
        while conn.send(&block) {
            counted.change(|sent| *sent += block.len());
        }
    });
    let carom = Carom::to(a.port()).start();
    let idle = carom.memory();
    let clients: Vec<_> = (0..20)
        .map(|_| {
            let mut client = carom.client();
            client.send(request("GET /", "a.test", &[]));
            assert_eq!(client.response_head().status(), 200);
            client
        })
        .collect();
    // Until nothing moves any more: the queues of the kernel are full.
    let (mut before, mut still) = (0, 0);
    poll_until("that the backend is slowed down", || {
        let now = sent.look(|sent| *sent);
        still = if now == before { still + 1 } else { 0 };
        before = now;
        still > 40
    });
    let grown = carom.memory().saturating_sub(idle);
    assert!(grown < 20 * 400 * 1024, "20 slow readers cost {grown} bytes");
    drop(clients);
}

#[test]
fn an_upload_reaches_the_backend_as_it_is_sent() {
    let a = Origin::named("a");
    let carom = Carom::to(a.port()).start();
    let mut client = carom.client();
    client.send(request("POST /", "a.test", &["Content-Length: 100000000"]));
    a.wait("the head before the body", |seen| seen.requests.first().map(|_| ()));
    let mut expected = b"".to_vec();
    for byte in 0..20_u8 {
        client.send([byte; 10]);
        expected.extend([byte; 10]);
        let tail = expected.clone();
        a.wait("ten bytes more", |seen| seen.connections[0].bytes.ends_with(&tail).then_some(()));
    }
}

#[test]
fn events_are_not_held_back_whatever_their_type() {
    for kind in ["text/event-stream", "text/event-stream; charset=utf-8", "application/json", "image/png"] {
        let told = Arc::new(Gate::default());
        let next = Arc::new(crate::support::Watched::new(0_usize));
        let (opened, wanted) = (Arc::clone(&told), Arc::clone(&next));
        let a = Origin::new(move |conn| {
            conn.request();
            conn.send(format!("HTTP/1.1 200 OK\r\nContent-Type: {kind}\r\nTransfer-Encoding: chunked\r\n\r\n"));
            opened.open();
            for event in 0..10 {
                // Each is sent only when the client has the one before.
                wanted.wait_for(crate::support::PATIENCE, |wanted| (*wanted == event).then_some(()));
                conn.send(format!("9\r\ndata: {event}\n\n\r\n"));
            }
            conn.send("0\r\n\r\n");
        });
        let carom = Carom::to(a.port()).start();
        let mut client = carom.client();
        client.send(request("GET /", "a.test", &[]));
        assert_eq!(client.response_head().status(), 200);
        told.wait();
        let began = Instant::now();
        for event in 0..10 {
            client.expect(format!("9\r\ndata: {event}\n\n\r\n"));
            next.change(|wanted| *wanted = event + 1);
        }
        client.expect("0\r\n\r\n");
        assert!(began.elapsed() < Duration::from_secs(2), "{kind}: ten events took {:?}", began.elapsed());
    }
}

#[test]
fn a_message_in_single_bytes_is_the_same_message() {
    let a = Origin::new(|conn| {
        while conn.request().is_some() {
            conn.drip(
                "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nX-A: b\r\n\r\n5;x\r\nhello\r\n0\r\nX-T: v\r\n\r\n",
            );
        }
    });
    let carom = Carom::to(a.port()).start();
    let mut client = carom.client();
    let bytes = request("POST /1", "a.test", &[CHUNKED, "X-A: b"]) + "5\r\nhello\r\n0\r\n\r\n";
    for byte in (bytes + &request("GET /2", "a.test", &[])).bytes() {
        client.send([byte]);
    }
    for method in ["POST", "GET"] {
        let response = client.response_to(method);
        assert_eq!((response.text().as_str(), response.trailers.len()), ("hello", 1));
    }
    assert_eq!(a.lines(), ["POST /1", "GET /2"]);
    assert_eq!(a.requests()[0].text(), "hello");
}

#[test]
fn requests_cut_anywhere_are_the_same_requests() {
    let a = Origin::named("a");
    let b = Origin::named("b");
    let carom = Carom::serving(format!("\"a.test\" = {}\n\"b.test\" = {}\n", a.port(), b.port())).start();
    let bytes = request("GET /1", "a.test", &[])
        + &with_body("POST /2", "b.test", "hello")
        + &request("PUT /3", "a.test", &[CHUNKED])
        + "5\r\nhello\r\n0\r\n\r\n";
    for size in [1, 2, 3, 5, 7, 11, 23, 64] {
        let mut client = carom.client();
        for piece in bytes.as_bytes().chunks(size) {
            client.send(piece);
            std::thread::yield_now();
        }
        for answer in ["a GET /1", "b POST /2", "a PUT /3"] {
            assert_eq!(client.response().text(), answer, "in pieces of {size}");
        }
    }
}

#[test]
fn both_directions_flow_at_once() {
    // Sends back each piece as it comes, so that neither side ends before the other.
    let a = Origin::new(|conn| {
        if conn.head().is_none() {
            return;
        }
        conn.send(format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n", 20 << 20));
        let mut left: usize = 20 << 20;
        while let Some(bytes) = (left > 0).then(|| conn.some()).flatten() {
            left -= bytes.len();
            conn.send(bytes);
        }
    });
    let carom = Carom::to(a.port()).start();
    let mut client = carom.client();
    client.send(request("POST /", "a.test", &[&format!("Content-Length: {}", 20 << 20)]));
    let bytes = pattern(20 << 20);
    let mut sender = client.second_hand();
    let sent = bytes.clone();
    let sending = std::thread::spawn(move || sender.send(&sent));
    let response = client.response_to("POST");
    assert!(response.body == bytes, "the body came back changed");
    sending.join().unwrap();
}

#[test]
fn heads_of_every_length_around_a_buffers_end_are_the_same_heads() {
    let a = Origin::new(|conn| {
        while let Some(request) = conn.request() {
            let size = request.field("x-answer").map_or(0, |size| size.parse().unwrap());
            conn.send(reply("200 OK", &[&format!("X-Pad: {}", "p".repeat(size))], &request.text()));
        }
    });
    let carom = Carom::to(a.port()).start();
    let mut client = carom.client();
    for power in [2048, 4096, 8192, 16384, 32768] {
        for length in power - 3..=power + 3_usize {
            let fields = |pad: usize| ["Content-Length: 5".to_owned(), format!("X-Pad: {}", "p".repeat(pad))];
            let bare = request("PUT /", "a.test", &fields(0).each_ref().map(String::as_str)).len();
            let answer = format!("X-Answer: {}", length - 60);
            if length < 32760 {
                let fields = fields(length - bare);
                let bytes = request("PUT /", "a.test", &fields.each_ref().map(String::as_str)) + "hello";
                assert_eq!(client.ask(bytes).text(), "hello", "a request head of {length}");
            }
            let bytes = request("PUT /", "a.test", &["Content-Length: 5", &answer]) + "hello";
            let response = client.ask(bytes);
            assert_eq!(response.text(), "hello", "a response head of about {length}");
            assert_eq!(response.field("x-pad").map(str::len), Some(length - 60));
        }
    }
}

/// Numbers that are the same in every run.
struct Dice(u64);

impl Dice {
    fn below(&mut self, limit: usize) -> usize {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) as usize % limit
    }

    /// A body in some framing: its field and its bytes.
    fn framed(&mut self, body: &[u8]) -> (String, Vec<u8>) {
        if self.below(2) == 0 {
            return (format!("Content-Length: {}", body.len()), body.to_vec());
        }
        let mut bytes = Vec::new();
        let mut rest = body;
        while !rest.is_empty() {
            let size = (1 + self.below(rest.len().min(9000))).min(rest.len());
            let extension = ["", ";x", ";name=\"value\""][self.below(3)];
            let zeros = "0".repeat(self.below(3));
            bytes.extend(format!("{zeros}{size:x}{extension}\r\n").bytes());
            bytes.extend(&rest[..size]);
            bytes.extend(b"\r\n");
            rest = &rest[size..];
        }
        bytes.extend(["0\r\n\r\n", "000\r\nX-T: v\r\n\r\n", "0;x\r\n\r\n"][self.below(3)].bytes());
        (CHUNKED.to_owned(), bytes)
    }

    fn size(&mut self) -> usize {
        let limit = [1, 20, 5000, 70_000][self.below(4)];
        self.below(limit)
    }
}

#[test]
fn random_messages_in_random_pieces_arrive_unchanged() {
    let a = Origin::new(|conn| {
        let mut dice = Dice(conn.index as u64 + 99);
        while let Some(request) = conn.request() {
            let (field, body) = dice.framed(&request.body);
            let bytes = [format!("HTTP/1.1 200 OK\r\n{field}\r\n\r\n").as_bytes(), &body].concat();
            let mut rest = bytes.as_slice();
            while !rest.is_empty() {
                let size = (1 + dice.size()).min(rest.len());
                conn.send(&rest[..size]);
                rest = &rest[size..];
            }
        }
    });
    let carom = Carom::to(a.port()).start();
    for seed in 0..12 {
        let mut dice = Dice(seed);
        let mut client = carom.client();
        for round in 0..20 {
            let size = dice.size();
            let body = pattern(size + round)[round..].to_vec();
            let (field, framed) = dice.framed(&body);
            let bytes = [request("PUT /", "a.test", &[&field]).as_bytes(), &framed].concat();
            let mut rest = bytes.as_slice();
            while !rest.is_empty() {
                let size = (1 + dice.size()).min(rest.len());
                client.send(&rest[..size]);
                rest = &rest[size..];
            }
            let response = client.response_to("PUT");
            assert_eq!(response.body.len(), body.len(), "seed {seed}, round {round}");
            assert!(response.body == body, "seed {seed}, round {round}: changed");
        }
    }
}
