//! Bodies that are large enough for the kernel to carry: whole, in turn with small ones, and broken in every way.

use crate::support::{Carom, Origin, pattern, request};

const SIZE: usize = 3 << 20;

/// Answers a GET with a large body and a POST with the size of its own.
fn large() -> Origin {
    Origin::new(|conn| {
        while let Some(request) = conn.request() {
            match request.body.len() {
                0 => {
                    conn.send(format!("HTTP/1.1 200 OK\r\nContent-Length: {SIZE}\r\n\r\n"));
                    conn.send(pattern(SIZE));
                }
                size => {
                    assert!(request.body == pattern(size), "changed on the way");
                    let text = size.to_string();
                    conn.send(format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n{text}", text.len()));
                }
            }
        }
    })
}

/// A request with a body of this size.
fn post(size: usize) -> Vec<u8> {
    [request("POST /", "a.test", &[&format!("Content-Length: {size}")]).into_bytes(), pattern(size)].concat()
}

#[test]
fn large_and_small_bodies_take_turns_on_one_connection() {
    let a = large();
    let carom = Carom::to(a.port()).start();
    let mut client = carom.client();
    for round in 0..4 {
        assert!(client.get("a.test", "/").body == pattern(SIZE), "round {round}");
        for size in [1, SIZE + round, 70_000] {
            client.send(post(size));
            assert_eq!(client.response_to("POST").text(), size.to_string());
        }
    }
    assert_eq!(a.connections(), 1, "the backend's connection was kept");
    let entry = carom.logged("the first request", |entry| entry["method"] == "GET");
    assert_eq!(
        entry["sent"].as_u64().unwrap() as usize,
        SIZE + "HTTP/1.1 200 OK\r\nContent-Length: 3145728\r\n\r\n".len()
    );
}

#[test]
fn a_pipelined_request_behind_a_large_body_is_the_next_request() {
    let a = large();
    let carom = Carom::to(a.port()).start();
    let mut client = carom.client();
    let mut bytes = post(SIZE);
    bytes.extend(request("GET /", "a.test", &[]).bytes());
    client.send(bytes);
    assert_eq!(client.response_to("POST").text(), SIZE.to_string());
    assert!(client.response().body == pattern(SIZE));
}

#[test]
fn a_large_response_that_breaks_off_breaks_off_at_the_client() {
    for reset in [false, true] {
        let a = Origin::new(move |conn| {
            conn.request();
            conn.send(format!("HTTP/1.1 200 OK\r\nContent-Length: {SIZE}\r\n\r\n"));
            conn.send(pattern(SIZE / 2));
            if reset {
                conn.reset();
            }
        });
        let carom = Carom::to(a.port()).start();
        let mut client = carom.client();
        client.send(request("GET /x", "a.test", &[]));
        let (response, _) = client.cut_response();
        assert!(response.body.len() <= SIZE / 2);
        assert!(response.body == pattern(SIZE)[..response.body.len()]);
        assert_eq!(carom.logged_path("/x")["reason"], "backend-closed-mid-body");
    }
}

#[test]
fn a_large_upload_that_ends_early_is_never_completed() {
    let a = large();
    let carom = Carom::to(a.port()).start();
    let mut client = carom.client();
    let bytes = post(SIZE);
    client.send(&bytes[..bytes.len() - 1]);
    client.half_close();
    assert_eq!(client.response_to("POST").status(), 400);
    a.wait_over(0);
    assert!(a.requests().iter().all(|request| request.body.len() < SIZE), "a broken body looked whole");
}

#[test]
fn a_backend_that_answers_a_large_upload_early_is_heard() {
    let a = Origin::new(|conn| {
        conn.head();
        conn.send("HTTP/1.1 413 Too Large\r\nContent-Length: 3\r\nConnection: close\r\n\r\nno\n");
    });
    let carom = Carom::to(a.port()).start();
    let mut client = carom.client();
    client.try_send(post(20 << 20));
    assert_eq!(client.response_to("POST").status(), 413);
}

#[test]
fn a_client_that_leaves_a_large_response_ends_the_backends_work() {
    let a = Origin::new(|conn| {
        conn.request();
        conn.send(format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n", 1_u64 << 40));
        let block = pattern(1 << 20);
        while conn.send(&block) {}
    });
    let carom = Carom::to(a.port()).start();
    let mut client = carom.client();
    client.send(request("GET /x", "a.test", &[]));
    client.exactly(SIZE);
    client.reset();
    a.wait_over(0);
    assert_eq!(carom.logged_path("/x")["reason"], "client-gone");
}

#[test]
fn a_large_response_that_goes_silent_is_cut() {
    // Made before there is somebody who waits for it: it takes its time, and must not be the silence.
    let half = pattern(SIZE / 2);
    let a = Origin::new(move |conn| {
        conn.request();
        conn.send(format!("HTTP/1.1 200 OK\r\nContent-Length: {SIZE}\r\n\r\n"));
        conn.send(&half);
        conn.wait_end();
    });
    let carom = Carom::to(a.port()).config("[timeouts]\nresponse_body = \"1s\"").start();
    let mut client = carom.client();
    client.send(request("GET /x", "a.test", &[]));
    let (response, _) = client.cut_response();
    assert_eq!(response.body.len(), SIZE / 2);
    a.wait_over(0);
}
