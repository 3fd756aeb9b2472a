//! Asks, and checks every answer: its status, its length and its bytes' kind. Prints one line of JSON.
//!
//! `get`, `10k`, `1m`, `upload`, `close`, `tunnel-BYTES`: each client asks again as soon as it has its answer, for AMOUNT
//! `2.5s` or `20000n` answers. `rate-PERSECOND`: asks at fixed moments, whatever is still unanswered, and counts time from
//! the moment that was due, so that a stall is not hidden. `users-GETS`: CLIENTS users come evenly over AMOUNT; each asks
//! GETS times on a connection of its own and leaves. `site` and `site-rate-PERSECOND`: like `get` and `rate`, for answers of
//! any length. `idle`: each client asks once; then a line, and nothing until standard input ends.

use std::collections::VecDeque;
use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::ops::ControlFlow;
use std::os::fd::OwnedFd;
use std::time::{Duration, Instant};

use rustix::time::{
    Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, Timespec, timerfd_create, timerfd_settime,
};

use crate::epoll::{Epoll, READ, WRITE, would_block};

const TIMER: usize = usize::MAX;

/// How long answers may still take when all has been asked for.
const PATIENCE: Duration = Duration::from_secs(10);

/// What is asked for, again and again.
struct Plan {
    to: SocketAddr,
    /// The first bytes of a connection of a tunnel.
    hello: Vec<u8>,
    request: Vec<u8>,
    /// Of the body, where it is known.
    length: Option<usize>,
    tunnel: bool,
    closes: bool,
}

struct Client {
    stream: TcpStream,
    greeting: bool,
    sent: usize,
    head: Vec<u8>,
    /// What is missing of the body, once the head is there.
    missing: Option<usize>,
    asked: Instant,
    answers: usize,
    busy: bool,
    /// Whether there is more to send, and whether the epoll knows.
    writes: bool,
    waits_to_write: bool,
}

struct Load<'a> {
    plan: &'a Plan,
    pace: Pace,
    epoll: Epoll,
    timer: OwnedFd,
    /// `None`: a user who has left.
    clients: Vec<Option<Client>>,
    /// Clients with nothing to do, and moments at which one should have asked.
    free: Vec<usize>,
    due: VecDeque<Instant>,
    /// When the timer's next moment is.
    next: Instant,
    asked: usize,
    micros: Vec<u32>,
    wrong: usize,
}

enum Pace {
    /// At once, for so long or until there are so many answers.
    Again { time: Duration, most: usize },
    /// At fixed moments.
    Timed { every: Duration, left: usize },
    /// New users at fixed moments, each of them asking so often.
    Users { every: Duration, left: usize, each: usize },
}

pub fn run(to: SocketAddr, kind: &str, clients: usize, amount: &str) -> io::Result<()> {
    if kind == "idle" {
        return idle(&Plan::new(to, "get"), clients);
    }
    let (kind, number) = match kind.rsplit_once('-') {
        Some((kind, number)) => (kind, number.parse().map_err(io::Error::other)?),
        None => (kind, 0_usize),
    };
    let time = |text: &str| text.parse().map(Duration::from_secs_f64).map_err(io::Error::other);
    let pace = match (kind, amount.strip_suffix('s')) {
        ("rate" | "site-rate", Some(seconds)) => {
            let left = (time(seconds)?.as_secs_f64() * number as f64) as usize;
            Pace::Timed { every: Duration::from_secs(1) / number as u32, left }
        }
        ("users", Some(seconds)) => Pace::Users { every: time(seconds)? / clients as u32, left: clients, each: number },
        (_, Some(seconds)) => Pace::Again { time: time(seconds)?, most: usize::MAX },
        (_, None) => {
            let most = amount.strip_suffix('n').and_then(|count| count.parse().ok());
            Pace::Again { time: Duration::from_secs(3600), most: most.ok_or(io::ErrorKind::InvalidInput)? }
        }
    };
    let plan = match kind {
        "tunnel" => Plan::tunnel(to, number),
        kind => Plan::new(to, kind),
    };
    let mut load = Load::new(&plan, pace)?;
    load.connect(clients)?;
    let begun = Instant::now();
    load.work()?;
    load.print(begun.elapsed().as_secs_f64());
    Ok(())
}

impl Plan {
    fn new(to: SocketAddr, kind: &str) -> Self {
        let (path, length) = match kind {
            "10k" => ("/10k", Some(10 * 1024)),
            "1m" => ("/1m", Some(1024 * 1024)),
            "site" | "site-rate" | "users" => ("/", None),
            _ => ("/", Some(13)),
        };
        let closes = kind == "close";
        let body = if kind == "upload" { 1024 * 1024 } else { 0 };
        let head = format!(
            "{} {path} HTTP/1.1\r\nHost: beep.example.com\r\nUser-Agent: rig\r\nAccept: */*\r\n{}{}\r\n",
            if body > 0 { "POST" } else { "GET" },
            if body > 0 { format!("Content-Length: {body}\r\n") } else { String::new() },
            if closes { "Connection: close\r\n" } else { "" },
        );
        let request = [head.into_bytes(), vec![b'x'; body]].concat();
        Self { to, hello: Vec::new(), request, length, tunnel: false, closes }
    }

    fn tunnel(to: SocketAddr, length: usize) -> Self {
        let hello =
            b"GET /tunnel HTTP/1.1\r\nHost: beep.example.com\r\nConnection: Upgrade\r\nUpgrade: echo\r\n\r\n".to_vec();
        Self { to, hello, request: vec![b'x'; length], length: Some(length), tunnel: true, closes: false }
    }
}

impl Client {
    fn connect(plan: &Plan) -> io::Result<Self> {
        let stream = TcpStream::connect(plan.to)?;
        stream.set_nodelay(true)?;
        stream.set_nonblocking(true)?;
        Ok(Self {
            stream,
            greeting: plan.tunnel,
            sent: 0,
            head: Vec::new(),
            missing: None,
            asked: Instant::now(),
            answers: 0,
            busy: false,
            writes: false,
            waits_to_write: false,
        })
    }

    fn ask(&mut self, plan: &Plan, asked: Instant) -> io::Result<()> {
        self.asked = asked;
        self.sent = 0;
        self.busy = true;
        self.head.clear();
        self.missing = plan.length.filter(|_| plan.tunnel && !self.greeting);
        self.send(plan)
    }

    fn send(&mut self, plan: &Plan) -> io::Result<()> {
        let bytes = if self.greeting { &plan.hello } else { &plan.request };
        while self.sent < bytes.len() {
            let sent = self.stream.write(&bytes[self.sent..]);
            if would_block(&sent) {
                break;
            }
            self.sent += sent?;
        }
        self.writes = self.sent < bytes.len();
        Ok(())
    }

    /// Breaks when an answer is whole. An error is a wrong answer.
    fn receive(&mut self, plan: &Plan, buffer: &mut [u8]) -> io::Result<ControlFlow<()>> {
        let count = self.stream.read(buffer);
        if would_block(&count) {
            return Ok(ControlFlow::Continue(()));
        }
        let mut bytes = &buffer[..count?];
        if bytes.is_empty() {
            return match plan.closes && self.missing == Some(0) {
                true => Ok(ControlFlow::Break(())),
                false => Err(io::ErrorKind::UnexpectedEof.into()),
            };
        }
        let missing = match self.missing {
            Some(missing) => missing,
            None => {
                let before = self.head.len();
                self.head.extend_from_slice(&bytes[..bytes.len().min(8192)]);
                let Some(end) = self.head.windows(4).position(|four| four == b"\r\n\r\n") else {
                    return Ok(ControlFlow::Continue(()));
                };
                bytes = &bytes[end + 4 - before..];
                let head = str::from_utf8(&self.head[..end + 2]).map_err(io::Error::other)?.to_ascii_lowercase();
                let right = if self.greeting { "http/1.1 101 " } else { "http/1.1 200 " };
                let length =
                    head.split("\r\n").find_map(|line| line.strip_prefix("content-length:")?.trim().parse().ok());
                if !head.starts_with(right) || plan.length.is_some_and(|known| !self.greeting && length != Some(known))
                {
                    return Err(io::ErrorKind::InvalidData.into());
                }
                length.unwrap_or(0)
            }
        };
        if bytes.len() > missing || plan.length.is_some() && bytes.last().is_some_and(|&byte| byte != b'x') {
            return Err(io::ErrorKind::InvalidData.into());
        }
        self.missing = Some(missing - bytes.len());
        match self.missing {
            // Where the connection is to be closed, that belongs to the answer.
            Some(0) if !plan.closes => Ok(ControlFlow::Break(())),
            _ => Ok(ControlFlow::Continue(())),
        }
    }
}

impl<'a> Load<'a> {
    fn new(plan: &'a Plan, pace: Pace) -> io::Result<Self> {
        let epoll = Epoll::new()?;
        let timer = timerfd_create(TimerfdClockId::Monotonic, TimerfdFlags::NONBLOCK)?;
        epoll.add(&timer, TIMER, READ)?;
        let (clients, free, due) = Default::default();
        Ok(Self {
            plan,
            pace,
            epoll,
            timer,
            clients,
            free,
            due,
            next: Instant::now(),
            asked: 0,
            micros: Vec::new(),
            wrong: 0,
        })
    }

    /// Users come later.
    fn connect(&mut self, clients: usize) -> io::Result<()> {
        (0..clients).try_for_each(|number| self.begin(number))
    }

    /// Lets a client in that is there from the start, and has it do what the pace says.
    fn begin(&mut self, number: usize) -> io::Result<()> {
        match self.pace {
            Pace::Users { .. } => {}
            Pace::Timed { .. } => {
                self.enter(number)?;
                self.free.push(number);
            }
            Pace::Again { .. } => {
                self.enter(number)?;
                self.ask(number, Instant::now())?;
            }
        }
        Ok(())
    }

    fn work(&mut self) -> io::Result<()> {
        let begun = Instant::now();
        self.next = begun;
        if let Pace::Timed { every, .. } | Pace::Users { every, .. } = self.pace {
            let every = Timespec::try_from(every).map_err(io::Error::other)?;
            let timer = Itimerspec { it_interval: every, it_value: every };
            timerfd_settime(&self.timer, TimerfdTimerFlags::empty(), &timer)?;
        }
        let mut buffer = vec![0; 256 * 1024];
        let mut last = begun;
        while !self.is_over(begun) {
            if last.elapsed() > PATIENCE {
                self.wrong += self.clients.iter().flatten().filter(|client| client.busy).count();
                break;
            }
            for number in self.epoll.wait(Some(Duration::from_millis(100)))? {
                match number {
                    TIMER => self.tick()?,
                    number => {
                        last = Instant::now();
                        self.serve(number, &mut buffer)?;
                    }
                }
            }
            while !self.due.is_empty()
                && let Some(number) = self.free.pop()
            {
                let due = self.due.pop_front().unwrap_or(last);
                self.ask(number, due)?;
            }
        }
        Ok(())
    }

    fn is_over(&self, begun: Instant) -> bool {
        match self.pace {
            Pace::Again { time, most } => begun.elapsed() >= time || self.micros.len() + self.wrong >= most,
            Pace::Timed { left, .. } => left == 0 && self.due.is_empty() && self.free.len() == self.clients.len(),
            Pace::Users { left, .. } => left == 0 && self.clients.iter().all(Option::is_none),
        }
    }

    fn tick(&mut self) -> io::Result<()> {
        rustix::io::read(&self.timer, &mut [0; 8])?;
        while let Pace::Timed { every, left } | Pace::Users { every, left, .. } = &mut self.pace
            && *left > 0
            && self.next <= Instant::now()
        {
            *left -= 1;
            let due = self.next;
            self.next += *every;
            match self.pace {
                Pace::Users { .. } => {
                    let number = self.clients.len();
                    self.enter(number)?;
                    self.ask(number, Instant::now())?;
                }
                _ => self.due.push_back(due),
            }
        }
        Ok(())
    }

    /// Connects a client, a new one or in another's place.
    fn enter(&mut self, number: usize) -> io::Result<()> {
        let client = Client::connect(self.plan)?;
        self.epoll.add(&client.stream, number, READ)?;
        self.clients.resize_with(self.clients.len().max(number + 1), || None);
        self.clients[number] = Some(client);
        Ok(())
    }

    fn ask(&mut self, number: usize, due: Instant) -> io::Result<()> {
        let Some(client) = &mut self.clients[number] else { return Ok(()) };
        self.asked += usize::from(!client.greeting);
        match client.ask(self.plan, due) {
            Ok(()) => self.watch(number),
            Err(_) => self.fail(number),
        }
    }

    fn watch(&mut self, number: usize) -> io::Result<()> {
        if let Some(client) = &mut self.clients[number]
            && client.writes != client.waits_to_write
        {
            client.waits_to_write = client.writes;
            self.epoll.change(&client.stream, number, if client.writes { READ | WRITE } else { READ })?;
        }
        Ok(())
    }

    fn serve(&mut self, number: usize, buffer: &mut [u8]) -> io::Result<()> {
        let Some(client) = &mut self.clients[number] else { return Ok(()) };
        let sent = if client.writes { client.send(self.plan) } else { Ok(()) };
        match sent.and_then(|()| client.receive(self.plan, buffer)) {
            Ok(ControlFlow::Continue(())) => self.watch(number),
            Ok(ControlFlow::Break(())) => self.answered(number),
            Err(_) => self.fail(number),
        }
    }

    fn answered(&mut self, number: usize) -> io::Result<()> {
        let Some(client) = &mut self.clients[number] else { return Ok(()) };
        client.busy = false;
        if std::mem::take(&mut client.greeting) {
            return self.ask(number, Instant::now());
        }
        client.answers += 1;
        self.micros.push(client.asked.elapsed().as_micros().try_into().unwrap_or(u32::MAX));
        match self.pace {
            Pace::Timed { .. } => self.free.push(number),
            Pace::Users { each, .. } if client.answers >= each => self.clients[number] = None,
            Pace::Again { most, .. } if self.asked >= most => {}
            Pace::Users { .. } => self.ask(number, Instant::now())?,
            Pace::Again { .. } => {
                if self.plan.closes {
                    self.enter(number)?;
                }
                self.ask(number, Instant::now())?;
            }
        }
        Ok(())
    }

    fn fail(&mut self, number: usize) -> io::Result<()> {
        self.wrong += 1;
        if self.wrong > 10_000 {
            return Err(io::Error::other("10,000 wrong answers are enough"));
        }
        if let Pace::Users { .. } = self.pace {
            self.clients[number] = None;
        }
        self.begin(number)
    }

    fn print(&mut self, seconds: f64) {
        self.micros.sort_unstable();
        let at = |part: usize| self.micros.get(self.micros.len() * part / 100).copied().unwrap_or(0);
        println!(
            r#"{{"answers": {}, "wrong": {}, "seconds": {seconds:.4}, "p50": {}, "p95": {}, "p99": {}}}"#,
            self.micros.len(),
            self.wrong,
            at(50),
            at(95),
            at(99)
        );
    }
}

fn idle(plan: &Plan, count: usize) -> io::Result<()> {
    let mut load = Load::new(plan, Pace::Users { every: Duration::ZERO, left: 0, each: 1 })?;
    let mut buffer = vec![0; 4096];
    for number in 0..count {
        load.enter(number)?;
        load.ask(number, Instant::now())?;
        let Some(client) = &mut load.clients[number] else { continue };
        client.stream.set_nonblocking(false)?;
        while client.receive(plan, &mut buffer)?.is_continue() {}
    }
    println!(r#"{{"answers": {count}, "wrong": 0}}"#);
    io::stdin().read_to_end(&mut Vec::new())?;
    Ok(())
}
