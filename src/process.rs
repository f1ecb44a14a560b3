//! What the kernel says of this process, and allows it.

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
    /// As it is now; `None` where there is no `/proc`.
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

/// Allows this process as many descriptors as it may have: a connection is one, and so is a file of the store.
/// Where nothing was set up they are 1,024, for the sake of programs that know no larger ones (select(2)).
pub(crate) fn raise_descriptors() {
    let limit = getrlimit(Resource::Nofile);
    if let Err(error) = setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, ..limit }) {
        info!(%error, ?limit, "the limit on descriptors stays as it is");
    }
}

fn kib(text: &str, key: &str) -> Option<u64> {
    let line = text.lines().find_map(|line| line.strip_prefix(key))?;
    line.trim().strip_suffix(" kB")?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_process_uses_memory() {
        let memory = Memory::now().unwrap();
        assert!(memory.resident > 1 << 20 && memory.anonymous > 1 << 16, "{memory:?}");
        assert!(memory.resident >= memory.anonymous);
        assert!(Memory::major_faults().is_some());
    }
}
