//! The access log: a line a request.
//!
//! Workers make lines in memory of their own and hand them over ten times a second, or when there are many; a thread
//! writes them (`writer`). When the disk can't follow, lines are dropped and counted: requests are not slowed.

mod json;
mod pretty;
mod redact;
mod template;
mod values;
mod writer;

use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::sync::mpsc::{SyncSender, TrySendError, sync_channel};
use std::thread::JoinHandle;

use crate::record::{Log, Observe, Record};
use values::Stamp;
use writer::{Signs, Sink};

pub use redact::{NAMES, Redact};
pub use template::{BadTemplate, Template};

/// Bytes of lines that one worker holds back at most. Each batch wakes the writer, which may take the worker's core from
/// it: with 32 KiB, that was half of what a log cost.
const BATCH: usize = 512 * 1024;

/// Batches that wait for the writer at most.
const QUEUE: usize = 16;

/// How a line looks.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Format {
    /// For people. `color` says whether the terminal has any.
    Pretty {
        /// Status in color.
        color: bool,
    },
    /// A JSON object: `time` (RFC 3339), `id`, `client`, `scheme`, `protocol`, `method`, `host`, `path`, `status`,
    /// `received` and `sent` (bytes), `route`, `backend`, `tries`, `head_ms`, `connect_ms`, `first_byte_ms`, `total_ms`,
    /// `closed`, `reason`. What is not known is left out.
    #[default]
    Json,
    /// As the operator has written it, or the Combined Log Format.
    Template(Template),
}

/// Where lines go.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum To {
    /// To standard output.
    Stdout,
    /// To the end of a file. It is opened anew when it is renamed away or deleted, and by [`Writer::reopen`].
    File(PathBuf),
}

/// Where the lines of all workers come together.
#[derive(Clone, Debug)]
pub struct Access {
    format: Format,
    redact: Redact,
    batches: SyncSender<Vec<u8>>,
    signs: Arc<Signs>,
}

/// The thread that writes. It ends when the last [`Access`] and all that it has made are gone.
#[derive(Debug)]
pub struct Writer {
    thread: JoinHandle<()>,
    signs: Arc<Signs>,
}

/// Asks for files to be opened anew, as after they have been renamed.
#[derive(Clone, Debug)]
pub struct Reopen(Arc<Signs>);

/// One worker's lines.
struct Lines {
    to: Access,
    lines: Vec<u8>,
    count: u64,
    stamp: Stamp,
}

impl Access {
    /// Writes lines that look like this to all of these.
    ///
    /// # Errors
    /// Which file can't be opened, if any; or the thread that writes can't be made.
    pub fn to(places: &[To], format: Format, redact: Redact) -> Result<(Self, Writer), (Option<PathBuf>, io::Error)> {
        let mut sinks = Vec::new();
        for place in places {
            sinks.push(match place {
                To::Stdout => Sink::stdout(),
                To::File(path) => Sink::file(path).map_err(|error| (Some(path.clone()), error))?,
            });
        }
        let (batches, written) = sync_channel(QUEUE);
        let signs = Arc::new(Signs::default());
        let told = Arc::clone(&signs);
        let thread = std::thread::Builder::new()
            .name("access-log".into())
            .spawn(move || writer::write(sinks, &written, &told))
            .map_err(|error| (None, error))?;
        Ok((Self { format, redact, batches, signs: Arc::clone(&signs) }, Writer { thread, signs }))
    }
}

impl Writer {
    /// Asks for its files to be opened anew.
    pub fn reopen(&self) -> Reopen {
        Reopen(Arc::clone(&self.signs))
    }

    /// Waits until everything has been written.
    pub fn finish(self) {
        // A writer that panicked has nothing more to say.
        let _ = self.thread.join();
    }
}

impl Reopen {
    /// Has each file opened anew before the next line is written.
    pub fn now(&self) {
        self.0.reopen.store(true, Ordering::Relaxed);
    }
}

impl Observe for Access {
    fn for_worker(&self) -> Box<dyn Log> {
        Box::new(Lines { to: self.clone(), lines: Vec::new(), count: 0, stamp: Stamp::default() })
    }

    fn fields(&self) -> &[Box<str>] {
        self.format.fields()
    }
}

impl Log for Lines {
    fn request(&mut self, record: &Record<'_>) {
        if !record.is_logged {
            return;
        }
        let Access { format, redact, .. } = &self.to;
        let (lines, stamp) = (&mut self.lines, &mut self.stamp);
        redact.apply(record, format.fields(), |record| {
            // Writing into a Vec can't fail.
            let _ = match format {
                Format::Json => {
                    json::write(lines, record, stamp);
                    Ok(())
                }
                Format::Pretty { color } => pretty::write(lines, record, *color),
                Format::Template(template) => {
                    template.write(lines, record);
                    Ok(())
                }
            };
        });
        self.count += 1;
        if self.lines.len() >= BATCH {
            self.flush();
        }
    }

    fn flush(&mut self) {
        if self.lines.is_empty() {
            // It has been quiet for a tenth of a second.
            self.lines = Vec::new();
            return;
        }
        let batch = std::mem::replace(&mut self.lines, self.to.signs.spare());
        if let Err(TrySendError::Full(_)) = self.to.batches.try_send(batch) {
            self.to.signs.dropped.fetch_add(self.count, Ordering::Relaxed);
        }
        self.count = 0;
    }
}

impl Format {
    /// The request fields that it names, in lower case.
    fn fields(&self) -> &[Box<str>] {
        match self {
            Self::Template(template) => template.fields(),
            Self::Pretty { .. } | Self::Json => &[],
        }
    }
}

#[cfg(test)]
#[path = "access/tests.rs"]
mod tests;
