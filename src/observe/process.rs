//! Facts and limits of this process, by the kernel.

use std::fs;

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

    /// Page faults that went to the disk since the start.
    pub(crate) fn major_faults() -> Option<u64> {
        let text = fs::read_to_string("/proc/self/stat").ok()?;
        // The second field, in parentheses, may hold anything; the twelfth is ten behind it.
        text.rsplit_once(')')?.1.split_whitespace().nth(9)?.parse().ok()
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

/// Connections of clients that the limit on descriptors allows.
pub(crate) fn connections_max() -> usize {
    connections_among(getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX))
}

/// Connections of clients among `all` descriptors. Files of the store take half of them at most,
/// and others than clients `DESCRIPTORS_LEFT`, or a quarter if that is less.
fn connections_among(all: u64) -> usize {
    let connections = (all / 2).saturating_sub(DESCRIPTORS_LEFT.min(all / 4));
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
        let connections = [0, 2, 96, 512, 513, 1_024, 65_536].map(connections_among);
        assert_eq!(connections, [1, 1, 24, 128, 128, 384, 32_640]);
        assert_eq!(connections_among(u64::MAX) as u64, u64::MAX / 2 - DESCRIPTORS_LEFT);
    }

    #[test]
    fn this_process_uses_memory() {
        let memory = Memory::now().unwrap();
        assert!(memory.resident > 1 << 20 && memory.anonymous > 1 << 16, "{memory:?}");
        assert!(memory.resident >= memory.anonymous);
        assert!(Memory::major_faults().is_some());
    }
}
