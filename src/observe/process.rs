//! Facts and limits of this process, by the kernel.

use std::fs;

use metrics::{counter, gauge};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use tracing::info;

/// Memory that is in use.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Memory {
    /// Resident bytes, mapped files included.
    pub resident: u64,
    /// Resident bytes that belong to no file.
    pub anonymous: u64,
}

impl Memory {
    /// Reads the present values; `None` where there is no `/proc`.
    pub(crate) fn now() -> Option<Self> {
        let text = fs::read_to_string("/proc/self/status").ok()?;
        let resident = kib(&text, "VmRSS:")? << 10;
        Some(Self { resident, anonymous: kib(&text, "RssAnon:")? << 10 })
    }
}

/// Ticks a second of the kernel's times for programs: `USER_HZ`, on every processor that neve runs on.
const TICKS_A_SECOND: f64 = 100.0;

/// Counts of the process since its start, and its virtual memory.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct ProcessStat {
    /// Page faults that went to the disk.
    pub major_faults: u64,
    /// Time in user and in system mode.
    pub cpu_seconds: f64,
    /// Bytes of virtual memory.
    pub virtual_bytes: u64,
}

impl ProcessStat {
    /// Reads the present values; `None` where there is no `/proc`.
    pub(crate) fn now() -> Option<Self> {
        Self::of(&fs::read_to_string("/proc/self/stat").ok()?)
    }

    #[expect(clippy::cast_precision_loss, reason = "samples of Prometheus are doubles")]
    fn of(text: &str) -> Option<Self> {
        // The second field, in parentheses, may hold anything. The first number counts from behind it.
        let fields: Vec<_> = text.rsplit_once(')')?.1.split_whitespace().collect();
        let number = |at: usize| fields.get(at)?.parse::<u64>().ok();
        let ticks = number(11)? + number(12)?;
        Some(Self {
            major_faults: number(9)?,
            cpu_seconds: ticks as f64 / TICKS_A_SECOND,
            virtual_bytes: number(20)?,
        })
    }
}

/// Open descriptors of the process, and the highest number of them; `None` if it is not known.
pub(crate) fn descriptors() -> (Option<u64>, Option<u64>) {
    // The directory is one of them itself.
    let open = fs::read_dir("/proc/self/fd").ok().map(|all| all.count().saturating_sub(1) as u64);
    (open, getrlimit(Resource::Nofile).current)
}

/// Publishes memory, times and descriptors.
pub(super) fn publish() {
    let memory = Memory::now();
    set("process_resident_memory_bytes", memory.map(|memory| memory.resident));
    set("neve_memory_anonymous_bytes", memory.map(|memory| memory.anonymous));
    if let Some(stat) = ProcessStat::now() {
        counter!("neve_major_page_faults_total").absolute(stat.major_faults);
        gauge!("process_cpu_seconds_total").set(stat.cpu_seconds);
        set("process_virtual_memory_bytes", Some(stat.virtual_bytes));
    }
    let (open, most) = descriptors();
    set("process_open_fds", open);
    set("process_max_fds", most);
}

#[expect(clippy::cast_precision_loss, reason = "gauges are doubles")]
fn set(name: &'static str, value: Option<u64>) {
    if let Some(value) = value {
        gauge!(name).set(value as f64);
    }
}

/// Allows this process as many descriptors as it may have: a connection is one, and so is a file of
/// the store. Where nothing was set up they are 1,024, for the sake of programs that know no larger
/// ones (select(2)).
pub(crate) fn raise_descriptors() {
    let limit = getrlimit(Resource::Nofile);
    if let Err(error) = setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, ..limit }) {
        info!(%error, ?limit, "descriptor limit unchanged");
    }
}

/// Descriptors that clients leave for upstreams, for the admin listener, and for the process
/// itself.
const DESCRIPTORS_LEFT: u64 = 128;

/// Files of pages of an archive that are open, half of them also while no request needs them.
const PAGE_FILES_MAX: u64 = 2048;
/// Connections to an archive, and files that are opened for a moment.
const ARCHIVE_LEFT: u64 = 128;

/// Connections of clients that the limit on descriptors allows.
pub(crate) fn connections_max(has_archive: bool) -> usize {
    connections_among(all_descriptors(), has_archive)
}

/// Files of pages of an archive that may be open.
#[cfg(feature = "archive")]
pub(crate) fn page_files_max() -> usize {
    page_files_among(all_descriptors()).max(1) as usize
}

fn all_descriptors() -> u64 {
    getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX)
}

fn page_files_among(all: u64) -> u64 {
    PAGE_FILES_MAX.min(all / 8)
}

/// Connections of clients among `all` descriptors. Files of the store take half of them at most,
/// others than clients `DESCRIPTORS_LEFT`, or a quarter if that is less, and an archive has a share too.
fn connections_among(all: u64, has_archive: bool) -> usize {
    let archive = page_files_among(all) + ARCHIVE_LEFT.min(all / 16);
    let left = DESCRIPTORS_LEFT.min(all / 4) + if has_archive { archive } else { 0 };
    let connections = (all / 2).saturating_sub(left);
    usize::try_from(connections.max(1)).unwrap_or(usize::MAX)
}

fn kib(text: &str, key: &str) -> Option<u64> {
    let line = text.lines().find_map(|line| line.strip_prefix(key))?;
    line.trim().strip_suffix(" kB")?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clients_have_a_quarter_of_few_descriptors_and_nearly_half_of_many() {
        let connections = |all| connections_among(all, false);
        let allowed = [0, 2, 96, 512, 513, 1_024, 65_536].map(connections);
        assert_eq!(allowed, [1, 1, 24, 128, 128, 384, 32_640]);
        assert_eq!(connections(u64::MAX) as u64, u64::MAX / 2 - DESCRIPTORS_LEFT);
    }

    /// Else accept(2) fails on the admin listener, too.
    #[test]
    fn clients_leave_descriptors_to_the_store_its_archive_and_the_admin_listener() {
        for all in [64, 512, 1_024, 4_096, 8_192, 20_000, 65_536] {
            let connections = connections_among(all, true) as u64;
            let archive = page_files_among(all) + ARCHIVE_LEFT.min(all / 16);
            let left = all - all / 2 - connections;
            assert!(left >= DESCRIPTORS_LEFT.min(all / 4) + archive, "{all}: {connections}");
            assert!(connections >= all / 16, "{all}: {connections}");
        }
        assert_eq!([1_024, 65_536].map(page_files_among), [128, 2_048]);
    }

    #[test]
    fn process_uses_memory() {
        let memory = Memory::now().unwrap();
        assert!(memory.resident > 1 << 20 && memory.anonymous > 1 << 16, "{memory:?}");
        assert!(memory.resident >= memory.anonymous);
        let stat = ProcessStat::now().unwrap();
        assert!(stat.virtual_bytes >= memory.resident, "{stat:?}");
        let (open, most) = descriptors();
        assert!(open.unwrap() >= 3 && open < most, "{open:?} of {most:?}");
    }

    #[test]
    fn name_of_the_program_does_not_shift_the_fields() {
        let text = "7 (a) 9 b) S 1 2 3 4 5 6 7 8 99 10 150 250 13 14 15 16 17 18 4096 300 21";
        let expected = ProcessStat { major_faults: 99, cpu_seconds: 4.0, virtual_bytes: 300 };
        assert_eq!(ProcessStat::of(text), Some(expected));
        assert_eq!(ProcessStat::of("7 (neve) S 1 2"), None);
    }
}
