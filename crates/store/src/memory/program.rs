//! The program's own pages, which are read from a disk like any others, and go like any others.
//!
//! Where memory is far too short for the store, what a serving thread waited for in the end was its
//! own code (docs/decisions/0022). Locked, a page of it stays once it was used; nothing is read for
//! it.

use std::fs;
use std::io;
use std::ops::Range;

use rustix::process::{Resource, getrlimit};
use rustix::thread::{CapabilitySet, capabilities};

use super::map;

/// Has what the program and its libraries are of stay in memory once it was used, unless that would
/// leave less than `beside` bytes that may be locked. Returns how many bytes that are, used or not;
/// on an error nothing stays locked.
pub fn lock_program(beside: u64) -> io::Result<u64> {
    let maps = fs::read_to_string("/proc/self/maps")?;
    let constant: Vec<_> = maps.lines().filter_map(constant).collect();
    let bytes = constant.iter().map(|range| range.len() as u64).sum();
    if !may_lock(beside.saturating_add(bytes)) {
        return Ok(0);
    }
    let locked = constant.iter().cloned().try_for_each(map::lock);
    if locked.is_err() {
        constant.into_iter().for_each(map::unlock); // what is left of the limit is for the blocks
    }
    locked.map(|()| bytes)
}

/// The addresses of a line of proc(5)'s `maps`, if it is of a file that is mapped for this process
/// alone and not to be written to. Segments are mapped as files that others may write to.
fn constant(line: &str) -> Option<Range<usize>> {
    let mut words = line.split_whitespace();
    let (start, end) = words.next()?.split_once('-')?;
    let permissions = words.next()?;
    // What can be written to is anonymous memory, which has no disk to come back from.
    let wanted = ["r--p", "r-xp"].contains(&permissions) && words.nth(3)?.starts_with('/');
    let address = |hex| usize::from_str_radix(hex, 16).ok();
    wanted.then_some(address(start)?..address(end)?)
}

/// True if this process may lock so much.
fn may_lock(bytes: u64) -> bool {
    let privileged =
        capabilities(None).is_ok_and(|sets| sets.effective.contains(CapabilitySet::IPC_LOCK));
    privileged || getrlimit(Resource::Memlock).current.is_none_or(|limit| bytes <= limit)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn code_and_constants_are_locked_and_nothing_else() {
        let range = Some(0x55d0_0000_0000..0x55d0_002e_2000);
        let line = |permissions, file| {
            constant(&format!(
                "55d000000000-55d0002e2000 {permissions} 00000000 fe:00 1234    {file}"
            ))
        };
        assert_eq!(line("r-xp", "/usr/bin/neve"), range);
        assert_eq!(line("r--p", "/usr/lib/with a blank.so"), range);
        assert_eq!(line("rw-p", "/usr/bin/neve"), None);
        assert_eq!(line("r--s", "/var/lib/neve/store/00000000000000000000.seg"), None);
        assert_eq!(line("r-xp", "[vdso]"), None);
        assert_eq!(line("r--p", ""), None);
    }

    #[test]
    #[cfg_attr(miri, ignore = "it has no limits")]
    fn program_stays_unlocked_where_the_limit_is_too_low() {
        assert!(may_lock(0));
        let unlimited =
            capabilities(None).is_ok_and(|sets| sets.effective.contains(CapabilitySet::IPC_LOCK));
        let limit = getrlimit(Resource::Memlock).current;
        assert_eq!(may_lock(u64::MAX), unlimited || limit.is_none());
    }
}
