//! A DNS server that does as it is told: RFC 1035 as far as questions for addresses need it, over UDP and TCP.

use std::collections::HashMap;
use std::io::{Read, Write};
use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::sync::Arc;
use std::time::Duration;

use super::{PATIENCE, Watched};

/// A scripted DNS server on a port of 127.0.0.1. Names that it was told nothing of do not exist.
pub struct Dns {
    address: SocketAddr,
    told: Arc<Watched<Told>>,
}

#[derive(Default)]
struct Told {
    names: HashMap<String, Answer>,
    /// Each question for a name's IPv4 addresses.
    asked: Vec<String>,
    over: bool,
}

/// What is answered to a question for a name.
#[derive(Clone)]
pub enum Answer {
    /// These addresses, good for so many seconds.
    Addresses(Vec<IpAddr>, u32),
    /// The same, and over UDP only that it has no room for them there.
    OverTcp(Vec<IpAddr>, u32),
    /// IPv6 as for [`Answer::Addresses`], and for IPv4 a failure.
    FailingIpv4(Vec<IpAddr>, u32),
    /// The server has failed.
    Failure,
    /// Nothing.
    Silence,
}

const A: u16 = 1;
const AAAA: u16 = 28;
const NAME_ERROR: u8 = 3;
const SERVER_FAILURE: u8 = 2;

impl Dns {
    pub fn new() -> Self {
        let (udp, tcp) = Self::bind();
        let address = udp.local_addr().expect("address");
        let told = Arc::new(Watched::new(Told::default()));
        let all = Arc::clone(&told);
        udp.set_read_timeout(Some(Duration::from_millis(200))).expect("timeout");
        std::thread::spawn(move || {
            let mut buffer = [0; 4096];
            while !all.look(|told| told.over) {
                let Ok((count, peer)) = udp.recv_from(&mut buffer) else { continue };
                if let Some(answer) = all.change(|told| told.answer(&buffer[..count], false)) {
                    udp.send_to(&answer, peer).ok();
                }
            }
        });
        let all = Arc::clone(&told);
        std::thread::spawn(move || {
            while let Ok((stream, _)) = tcp.accept() {
                if all.look(|told| told.over) {
                    return;
                }
                let all = Arc::clone(&all);
                std::thread::spawn(move || serve(stream, &all));
            }
        });
        Self { address, told }
    }

    /// One port that is free for both.
    fn bind() -> (UdpSocket, TcpListener) {
        loop {
            let udp = UdpSocket::bind("127.0.0.1:0").expect("bind");
            if let Ok(tcp) = TcpListener::bind(udp.local_addr().expect("address")) {
                return (udp, tcp);
            }
        }
    }

    /// `[dns]` of a carom that asks this one.
    pub fn config(&self) -> String {
        format!("[dns]\nservers = [\"{}\"]", self.address)
    }

    pub fn tell(&self, name: &str, answer: Answer) {
        self.told.change(|told| told.names.insert(name.to_owned(), answer));
    }

    /// Says these IPv4 addresses, good for so many seconds.
    pub fn say(&self, name: &str, addresses: &[&str], seconds: u32) {
        let addresses = addresses.iter().map(|ip| ip.parse().expect("address")).collect();
        self.tell(name, Answer::Addresses(addresses, seconds));
    }

    pub fn forget(&self, name: &str) {
        self.told.change(|told| told.names.remove(name));
    }

    /// How often a name was asked for.
    pub fn asked(&self, name: &str) -> usize {
        self.told.look(|told| told.asked.iter().filter(|asked| *asked == name).count())
    }

    /// Waits until it has been asked for so often.
    #[track_caller]
    pub fn wait_asked(&self, name: &str, count: usize) {
        let often = |told: &Told| told.asked.iter().filter(|asked| *asked == name).count() >= count;
        let came = self.told.wait_for(PATIENCE, |told| often(told).then_some(()));
        assert!(came.is_some(), "{name} was asked for {} times, not {count}", self.asked(name));
    }
}

impl Drop for Dns {
    fn drop(&mut self) {
        self.told.change(|told| told.over = true);
        // Wakes the thread that accepts.
        TcpStream::connect(self.address).ok();
    }
}

fn serve(mut stream: TcpStream, told: &Watched<Told>) {
    stream.set_read_timeout(Some(PATIENCE)).expect("timeout");
    let mut length = [0; 2];
    while stream.read_exact(&mut length).is_ok() {
        let mut question = vec![0; usize::from(u16::from_be_bytes(length))];
        if stream.read_exact(&mut question).is_err() {
            return;
        }
        let Some(answer) = told.change(|told| told.answer(&question, true)) else { continue };
        let length = u16::try_from(answer.len()).expect("short").to_be_bytes();
        if stream.write_all(&[&length, answer.as_slice()].concat()).is_err() {
            return;
        }
    }
}

impl Told {
    /// The answer to a message with one question.
    fn answer(&mut self, message: &[u8], tcp: bool) -> Option<Vec<u8>> {
        let (mut name, mut at) = (Vec::new(), 12);
        while message[at] > 0 {
            let end = at + 1 + usize::from(message[at]);
            name.push(String::from_utf8_lossy(&message[at + 1..end]).to_lowercase());
            at = end;
        }
        let (name, question) = (name.join("."), &message[12..at + 5]);
        let kind = u16::from_be_bytes([message[at + 1], message[at + 2]]);
        if kind == A {
            self.asked.push(name.clone());
        }
        let (mut code, mut truncated) = (0, false);
        let (addresses, seconds) = match self.names.get(&name) {
            Some(Answer::Addresses(addresses, seconds)) => (addresses.clone(), *seconds),
            Some(Answer::OverTcp(addresses, seconds)) if tcp => (addresses.clone(), *seconds),
            Some(Answer::FailingIpv4(addresses, seconds)) if kind != A => (addresses.clone(), *seconds),
            Some(Answer::Silence) => return None,
            Some(Answer::OverTcp(..)) => {
                truncated = true;
                (Vec::new(), 0)
            }
            Some(Answer::Failure | Answer::FailingIpv4(..)) => {
                code = SERVER_FAILURE;
                (Vec::new(), 0)
            }
            None => {
                code = NAME_ERROR;
                (Vec::new(), 0)
            }
        };
        let addresses: Vec<_> = addresses.iter().filter(|ip| kind == if ip.is_ipv4() { A } else { AAAA }).collect();
        let count = u16::try_from(addresses.len()).expect("few").to_be_bytes();
        // A response, authoritative, recursion desired; recursion available.
        let flags = [0x85 | if truncated { 2 } else { 0 }, 0x80 | code];
        let mut answer = [&message[..2], &flags, &[0, 1], &count, &[0; 4], question].concat();
        for ip in addresses {
            let octets = match ip {
                IpAddr::V4(ip) => ip.octets().to_vec(),
                IpAddr::V6(ip) => ip.octets().to_vec(),
            };
            // The name is that of the question.
            answer.extend([0xc0, 12]);
            answer.extend(kind.to_be_bytes());
            answer.extend([0, 1]);
            answer.extend(seconds.to_be_bytes());
            answer.extend(u16::try_from(octets.len()).expect("short").to_be_bytes());
            answer.extend(octets);
        }
        Some(answer)
    }
}
