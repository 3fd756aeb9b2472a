//! `/`, `/10k` and `/1m` are answered with so many bytes, a body is swallowed first, an upgrade gets its bytes back.
//! It knows just enough HTTP/1 for what proxies send to a backend: lengths, no chunks, no pipelining.

use std::collections::VecDeque;
use std::io::{self, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::fd::AsRawFd;

use crate::epoll::{Epoll, READ, WRITE, would_block};

const LISTENER: usize = usize::MAX;

struct Client {
    stream: TcpStream,
    head: Vec<u8>,
    /// Of a request body, what is still to come.
    body: usize,
    answer: &'static [u8],
    echoed: VecDeque<u8>,
    echoes: bool,
    closes: bool,
    /// Waits until it can write, not until it can read.
    blocked: bool,
}

/// What is answered, by length.
struct Answers {
    small: &'static [u8],
    middle: &'static [u8],
    large: &'static [u8],
}

pub fn run(listener: TcpListener) -> io::Result<()> {
    let answers = Answers { small: answer(13), middle: answer(10 * 1024), large: answer(1024 * 1024) };
    let mut epoll = Epoll::new()?;
    epoll.add(&listener, LISTENER, READ)?;
    let mut clients: Vec<Option<Client>> = Vec::new();
    let mut buffer = vec![0; 256 * 1024];
    loop {
        for number in epoll.wait(None)? {
            if number == LISTENER {
                while let Ok((stream, _)) = listener.accept() {
                    stream.set_nonblocking(true)?;
                    stream.set_nodelay(true)?;
                    let number = stream.as_raw_fd() as usize;
                    epoll.add(&stream, number, READ)?;
                    clients.resize_with(clients.len().max(number + 1), || None);
                    clients[number] = Some(Client::new(stream));
                }
            } else if let Some(client) = &mut clients[number] {
                let was_blocked = client.blocked;
                match client.serve(&mut buffer, &answers) {
                    Ok(()) if client.blocked == was_blocked => {}
                    Ok(()) => epoll.change(&client.stream, number, if was_blocked { READ } else { WRITE })?,
                    Err(_) => clients[number] = None,
                }
            }
        }
    }
}

fn answer(length: usize) -> &'static [u8] {
    let head = format!("HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nContent-Length: {length}\r\n\r\n");
    [head.into_bytes(), vec![b'x'; length]].concat().leak()
}

impl Client {
    fn new(stream: TcpStream) -> Self {
        Self {
            stream,
            head: Vec::new(),
            body: 0,
            answer: b"",
            echoed: VecDeque::new(),
            echoes: false,
            closes: false,
            blocked: false,
        }
    }

    /// An error ends the connection.
    fn serve(&mut self, buffer: &mut [u8], answers: &Answers) -> io::Result<()> {
        if !self.blocked {
            let count = self.stream.read(buffer);
            if would_block(&count) {
                return Ok(());
            }
            let count = count?;
            if count == 0 {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
            self.take(&buffer[..count], answers)?;
        }
        self.send()
    }

    fn take(&mut self, bytes: &[u8], answers: &Answers) -> io::Result<()> {
        if self.echoes {
            // Straight out again, as far as it goes.
            let sent = if self.echoed.is_empty() { self.stream.write(bytes) } else { Ok(0) };
            let sent = if would_block(&sent) { 0 } else { sent? };
            self.echoed.extend(&bytes[sent..]);
            return Ok(());
        }
        if self.body > 0 {
            self.body = self.body.saturating_sub(bytes.len());
        } else {
            self.head.extend_from_slice(bytes);
            let Some(end) = self.head.windows(4).position(|four| four == b"\r\n\r\n") else { return Ok(()) };
            let come = self.head.len() - end - 4;
            let head = str::from_utf8(&self.head[..end + 2]).map_err(io::Error::other)?;
            self.body = field(head, "content-length").and_then(|text| text.parse().ok()).unwrap_or(0).max(come) - come;
            self.closes = field(head, "connection").is_some_and(|text| text.eq_ignore_ascii_case("close"));
            self.echoes = field(head, "upgrade").is_some();
            self.answer = match head.split(' ').nth(1) {
                _ if self.echoes => b"HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: echo\r\n\r\n",
                Some("/10k") => answers.middle,
                Some("/1m") => answers.large,
                _ => answers.small,
            };
            self.head.clear();
        }
        Ok(())
    }

    fn send(&mut self) -> io::Result<()> {
        self.blocked = false;
        while self.body == 0 && !self.answer.is_empty() {
            let sent = self.stream.write(self.answer);
            if would_block(&sent) {
                self.blocked = true;
                return Ok(());
            }
            self.answer = &self.answer[sent?..];
            if self.answer.is_empty() && self.closes {
                return Err(io::ErrorKind::ConnectionAborted.into());
            }
        }
        while !self.echoed.is_empty() {
            let sent = self.stream.write(self.echoed.as_slices().0);
            if would_block(&sent) {
                self.blocked = true;
                return Ok(());
            }
            self.echoed.drain(..sent?);
        }
        Ok(())
    }
}

/// The value of a field, which is given in lower case.
fn field<'a>(head: &'a str, name: &str) -> Option<&'a str> {
    head.split("\r\n").find_map(|line| {
        let (found, value) = line.split_once(':')?;
        found.eq_ignore_ascii_case(name).then(|| value.trim())
    })
}
