//! A file's bytes as text: bounded, UTF-8, without a byte order mark.

use std::fs::File;
use std::io::{self, Read};
use std::path::Path;

use super::report::{Problem, Report};

/// No configuration file is larger than this, in bytes.
pub const LARGEST_FILE: usize = 64 * 1024 * 1024;

/// The text of a file.
pub(crate) struct Text<'t> {
    pub(crate) content: &'t str,
    named_json: bool,
}

impl<'t> Text<'t> {
    /// Checks the bytes of a file. `path` names it in errors.
    pub(crate) fn new(path: &Path, bytes: &'t [u8]) -> Result<Self, Report> {
        if bytes.len() > LARGEST_FILE {
            return Err(Report::unread(path, "the file is larger than 64 MiB", None));
        }
        let content = std::str::from_utf8(bytes).map_err(|error| {
            let valid = bytes.get(..error.valid_up_to()).unwrap_or_default();
            let valid = std::str::from_utf8(valid).unwrap_or_default();
            let problem = Problem::at(&(valid.len()..valid.len()), "the file is not UTF-8 from here on");
            Report::new(path, valid, vec![problem])
        })?;
        let content = content.strip_prefix('\u{feff}').unwrap_or(content);
        let named_json = path.extension().is_some_and(|extension| extension.eq_ignore_ascii_case("json"));
        Ok(Self { content, named_json })
    }

    /// Whether it is JSON: by its name, or because no TOML begins with a brace.
    pub(crate) fn is_json(&self) -> bool {
        self.named_json || self.content.trim_start().starts_with('{')
    }
}

/// Reads a file, bounded.
pub(crate) fn read(path: &Path) -> Result<Vec<u8>, Report> {
    read_bounded(path).map_err(|error| {
        let help = match error.kind() {
            io::ErrorKind::PermissionDenied => Some("it has to be readable by the user that carom runs as".to_owned()),
            io::ErrorKind::NotFound => Some("name another, or create it: \"beep.example.com\" = 8001".to_owned()),
            _ => None,
        };
        Report::unread(path, format!("the file can't be read: {error}"), help)
    })
}

/// Reads a regular file of at most [`LARGEST_FILE`] bytes.
pub(crate) fn read_bounded(path: &Path) -> io::Result<Vec<u8>> {
    // Opening a pipe would wait for its writer.
    if !path.metadata()?.is_file() {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, "it is not a file"));
    }
    let mut bytes = Vec::new();
    let most = u64::try_from(LARGEST_FILE).unwrap_or(u64::MAX);
    File::open(path)?.take(most.saturating_add(1)).read_to_end(&mut bytes)?;
    if bytes.len() > LARGEST_FILE {
        return Err(io::Error::new(io::ErrorKind::FileTooLarge, "it is larger than 64 MiB"));
    }
    Ok(bytes)
}
