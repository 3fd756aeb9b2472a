//! What only Linux has.

use std::fs;
use std::io;
use std::net::TcpListener;
use std::os::fd::OwnedFd;
use std::path::Path;

use rustix::pipe::{PipeFlags, SpliceFlags, fcntl_setpipe_size, pipe_with, splice};
use socket2::Socket;
use tokio::net::TcpStream;

/// A listening socket for each worker: the kernel spreads connections over them, and no worker wakes for another's.
pub(crate) fn listeners(workers: usize, bind: impl Fn() -> io::Result<TcpListener>) -> io::Result<Vec<TcpListener>> {
    (0..workers.max(1)).map(|_| bind()).collect()
}

/// Lets several sockets of this process have one port.
pub(crate) fn share_port(socket: &Socket) -> io::Result<()> {
    socket.set_reuse_port(true)
}

/// Makes the calling thread give way to those that carry requests (setpriority(2); on Linux it is the thread's own).
pub(crate) fn give_way() {
    // Without it the work is done all the same.
    let _ = rustix::process::nice(10);
}

/// Bytes that the kernel holds between two sockets, without a copy into this process (splice(2)).
#[derive(Debug)]
pub(crate) struct Pipe {
    out: OwnedFd,
    into: OwnedFd,
    held: usize,
}

/// What one pipe may hold.
const PIPE_SIZE: usize = 256 * 1024;

impl Pipe {
    /// An empty one; `None` when there are no descriptors left, which is no reason to fail.
    pub(crate) fn new() -> Option<Self> {
        let (out, into) = pipe_with(PipeFlags::CLOEXEC | PipeFlags::NONBLOCK).ok()?;
        // Where that many pages are not allowed, the usual sixteen do.
        let _ = fcntl_setpipe_size(&into, PIPE_SIZE);
        Some(Self { out, into, held: 0 })
    }

    /// How many bytes are in it.
    pub(crate) fn held(&self) -> usize {
        self.held
    }

    /// Takes up to so many bytes from a socket. 0 is its end.
    pub(crate) fn fill(&mut self, from: &TcpStream, most: u64) -> io::Result<usize> {
        let most = usize::try_from(most).unwrap_or(PIPE_SIZE).min(PIPE_SIZE);
        let count = splice(from, None, &self.into, None, most, SpliceFlags::MOVE | SpliceFlags::NONBLOCK)?;
        self.held += count;
        Ok(count)
    }

    /// Gives a socket as much as it takes.
    pub(crate) fn drain(&mut self, to: &TcpStream) -> io::Result<usize> {
        let count = splice(&self.out, None, to, None, self.held, SpliceFlags::MOVE | SpliceFlags::NONBLOCK)?;
        self.held = self.held.saturating_sub(count);
        Ok(count)
    }
}

/// Which process listens on a port, as far as we may see: its id and name.
pub(crate) fn holder_of(port: u16) -> Option<(u32, String)> {
    let inodes: Vec<String> = ["/proc/net/tcp", "/proc/net/tcp6"]
        .iter()
        .filter_map(|table| fs::read_to_string(table).ok())
        .flat_map(|table| listening_inodes(&table, port))
        .collect();
    fs::read_dir("/proc").ok()?.flatten().find_map(|process| {
        let id: u32 = process.file_name().to_str()?.parse().ok()?;
        let holds = fs::read_dir(process.path().join("fd")).ok()?.flatten().any(|descriptor| {
            let target = fs::read_link(descriptor.path()).unwrap_or_default();
            inodes.iter().any(|inode| target == Path::new(&format!("socket:[{inode}]")))
        });
        let name = fs::read_to_string(process.path().join("comm")).unwrap_or_default();
        holds.then(|| (id, name.trim().to_owned()))
    })
}

/// The inodes of sockets in state LISTEN (0A) on a port, from a table of proc(5).
fn listening_inodes(table: &str, port: u16) -> Vec<String> {
    let suffix = format!(":{port:04X}");
    table
        .lines()
        .skip(1)
        .map(|line| line.split_ascii_whitespace().collect::<Vec<_>>())
        .filter(|columns| columns.get(1).is_some_and(|local| local.ends_with(&suffix)) && columns.get(3) == Some(&"0A"))
        .filter_map(|columns| columns.get(9).map(|inode| (*inode).to_owned()))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_holder_of_a_port_is_found() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        assert_eq!(holder_of(port).map(|(id, _)| id), Some(std::process::id()));
    }
}
