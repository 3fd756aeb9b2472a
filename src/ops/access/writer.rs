//! The thread that writes access lines, and the files that they go to.

use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// How often it is looked whether a file is still where it was, while nothing else happens.
const LOOK: Duration = Duration::from_secs(1);

/// Batches whose memory is kept for others.
const MOST_SPARE: usize = 4;

/// What workers and the writer tell each other beside lines.
#[derive(Debug, Default)]
pub(super) struct Signs {
    /// Lines that nobody could take.
    pub(super) dropped: AtomicU64,
    /// Files are to be opened anew.
    pub(super) reopen: AtomicBool,
    /// Memory of batches that have been written.
    spare: Mutex<Vec<Vec<u8>>>,
}

impl Signs {
    /// Memory for a batch: used before, where there is some.
    pub(super) fn spare(&self) -> Vec<u8> {
        self.spares().pop().unwrap_or_default()
    }

    fn give_back(&self, mut batch: Vec<u8>) {
        batch.clear();
        let mut spare = self.spares();
        if spare.len() < MOST_SPARE {
            spare.push(batch);
        }
    }

    fn spares(&self) -> MutexGuard<'_, Vec<Vec<u8>>> {
        self.spare.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// One place that lines go to.
#[derive(Debug)]
pub(super) struct Sink {
    out: Out,
    /// It could not be written, which has been said.
    broken: bool,
}

#[derive(Debug)]
enum Out {
    Stdout,
    File { path: PathBuf, file: File, identity: (u64, u64) },
}

impl Sink {
    pub(super) fn stdout() -> Self {
        Self { out: Out::Stdout, broken: false }
    }

    /// Appends to a file.
    pub(super) fn file(path: &Path) -> io::Result<Self> {
        let (file, identity) = open(path)?;
        Ok(Self { out: Out::File { path: path.to_owned(), file, identity }, broken: false })
    }

    fn write(&mut self, batch: &[u8]) {
        let written = match &mut self.out {
            Out::Stdout => io::stdout().write_all(batch).and_then(|()| io::stdout().flush()),
            Out::File { file, .. } => file.write_all(batch),
        };
        self.note(written);
    }

    /// Says that something is wrong once, and not again before it was right.
    fn note(&mut self, done: io::Result<()>) {
        match done {
            Ok(()) => self.broken = false,
            Err(error) if !self.broken => {
                self.broken = true;
                let file = match &self.out {
                    Out::Stdout => Path::new("standard output"),
                    Out::File { path, .. } => path,
                };
                tracing::error!(
                    file = %file.display(), %error,
                    "the access log can't be written; lines are lost until it can"
                );
            }
            Err(_) => {}
        }
    }

    /// Opens the file again where it has been renamed away or deleted, or where that is asked for. One that can't be opened
    /// stays as it is.
    fn look(&mut self, asked: bool) {
        let Out::File { path, file, identity } = &mut self.out else { return };
        let stands = path.metadata().is_ok_and(|found| (found.dev(), found.ino()) == *identity);
        if stands && !asked {
            return;
        }
        let opened = open(path).map(|(fresh, id)| (*file, *identity) = (fresh, id));
        self.note(opened);
    }
}

fn open(path: &Path) -> io::Result<(File, (u64, u64))> {
    let file = OpenOptions::new().append(true).create(true).open(path)?;
    let found = file.metadata()?;
    Ok((file, (found.dev(), found.ino())))
}

/// Writes what comes until nobody is left who could send more.
pub(super) fn write(mut sinks: Vec<Sink>, batches: &Receiver<Vec<u8>>, signs: &Arc<Signs>) {
    loop {
        let received = batches.recv_timeout(LOOK);
        if received == Err(RecvTimeoutError::Disconnected) {
            return;
        }
        let asked = signs.reopen.swap(false, Ordering::Relaxed);
        for sink in &mut sinks {
            sink.look(asked);
            if let Ok(batch) = &received {
                sink.write(batch);
            }
        }
        match received {
            Ok(batch) => signs.give_back(batch),
            // Nobody has much to say.
            Err(_) => signs.spares().clear(),
        }
        match signs.dropped.swap(0, Ordering::Relaxed) {
            0 => {}
            lines => tracing::warn!(lines, "the access log could not be written fast enough; lines were dropped"),
        }
    }
}
