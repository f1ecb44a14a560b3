//! Number of maps, which the kernel limits: one for each file of a store.

#![cfg(not(miri))] // miri maps no files

use std::fs;
use std::path::Path;
use std::sync::Arc;

use neve_store::Opened;
use neve_store::disk::RealDisk;

use crate::support::{IDENTITY, block, open_as, pack, small};

const PACKED: usize = 40;

fn open(dir: &Path) -> Opened {
    open_as(Arc::new(RealDisk::new(dir)), small(), true)
}

/// Counts the maps of files of a directory. Others come and go: those of the allocator, or of a sanitizer.
fn maps_of(dir: &Path) -> usize {
    let maps = fs::read_to_string("/proc/self/maps").unwrap();
    maps.lines().filter(|line| line.contains(dir.to_str().unwrap())).count()
}

/// Other tests of this program map files of their own directories meanwhile.
#[test]
fn packed_file_takes_one_map() {
    let dir = tempfile::tempdir().unwrap();
    let mut filled = open(dir.path());
    filled.writer.bind(IDENTITY, 1).unwrap();
    (0..=4 * PACKED as u64).for_each(|at| filled.writer.append(&block(at, 0)).unwrap());
    assert_eq!(pack(&mut filled, 4 * PACKED as u64).unwrap(), 4 * PACKED as u64);
    drop(filled);
    let opened = open(dir.path());
    assert_eq!(opened.reader.packed().len(), PACKED);
    let (files, taken) = (fs::read_dir(dir.path()).unwrap().count(), maps_of(dir.path()));
    assert!((PACKED..=files).contains(&taken), "{taken} maps of {files} files");
}
