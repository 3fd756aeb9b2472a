//! What this process takes of the machine: from /proc, where there is one.

use std::fs;

/// `None` for what is not known here.
#[derive(Clone, Copy, Debug)]
pub(super) struct Process {
    /// Seconds.
    pub(super) cpu: Option<f64>,
    /// Bytes.
    pub(super) resident: Option<u64>,
    /// Bytes.
    pub(super) virtual_: Option<u64>,
    pub(super) descriptors: Option<u64>,
    pub(super) most_descriptors: Option<u64>,
}

impl Process {
    pub(super) fn now() -> Self {
        let stat = fs::read_to_string("/proc/self/stat").unwrap_or_default();
        let descriptors = fs::read_dir("/proc/self/fd").ok();
        Self {
            cpu: cpu(&stat),
            resident: field(&stat, 21).map(|pages| pages * rustix::param::page_size() as u64),
            virtual_: field(&stat, 20),
            // One of them is the folder's own.
            descriptors: descriptors.map(|all| (all.count() as u64).saturating_sub(1)),
            most_descriptors: rustix::process::getrlimit(rustix::process::Resource::Nofile).current,
        }
    }
}

#[expect(clippy::cast_precision_loss, reason = "as precise as a clock tick for longer than machines run")]
fn cpu(stat: &str) -> Option<f64> {
    let ticks = field(stat, 11)? + field(stat, 12)?;
    Some(ticks as f64 / rustix::param::clock_ticks_per_second() as f64)
}

/// A field of proc_pid_stat(5), counted from 0 behind the program's name, which may hold anything.
fn field(stat: &str, index: usize) -> Option<u64> {
    stat.rsplit_once(')')?.1.split_ascii_whitespace().nth(index)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_are_found_behind_whatever_name() {
        let stat = "7 (a) b) S 1 7 7 0 -1 4194304 95 0 0 0 250 150 0 0 20 0 1 0 5 1000 30 99";
        assert_eq!(
            (field(stat, 11), field(stat, 12), field(stat, 20), field(stat, 21)),
            (Some(250), Some(150), Some(1000), Some(30))
        );
        assert_eq!(field("", 11), None);
    }
}
