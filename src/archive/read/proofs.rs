//! Segments that this replica has proven, remembered beyond their eviction, and the newest manifest that it took.

use std::collections::HashMap;
use std::fs::{self, File};
use std::io::{self, Write};
use std::ops::RangeInclusive;
use std::path::{Path, PathBuf};
use std::sync::Mutex;

use neve_archive::{Digest, Manifest};
use neve_record::packed::Codec;
use neve_store::SealedFile;
use tracing::warn;

use super::turns;
use crate::shared::lock::lock;

/// Segments whose packed file was in the store, which has proven heights only. So the blocks of one with an
/// equal digest are proven, and linked to the blocks above it.
pub(super) struct Proofs {
    /// Directory of the store.
    store: PathBuf,
    path: PathBuf,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    segments: HashMap<u64, Digest>,
    /// Segments of the archive that the packed file of the store does not equal: it is not read for them again.
    others: HashMap<u64, Digest>,
    sequence: u64,
}

impl Proofs {
    /// Reads what an earlier run has noted. A line that is cut off counts for nothing.
    pub(super) fn open(store: PathBuf, path: PathBuf) -> Self {
        let mut state = State::default();
        for line in fs::read_to_string(&path).unwrap_or_default().lines() {
            let mut words = line.split(' ');
            let words = (words.next(), words.next(), words.next());
            match words {
                (Some("segment"), Some(first), Some(digest)) => {
                    if let (Ok(first), Ok(digest)) = (first.parse(), digest.parse()) {
                        state.segments.insert(first, digest);
                    }
                }
                // The point ends the number: one that is cut off would be another one.
                (Some("sequence"), Some(sequence), Some(".")) => {
                    state.sequence = state.sequence.max(sequence.parse().unwrap_or(0));
                }
                _ => {}
            }
        }
        Self { store, path, state: Mutex::new(state) }
    }

    /// Notes the segments that equal packed files of the store, which begin at these heights.
    pub(super) fn compare(&self, manifest: &Manifest, stored: &[(u64, u32)]) {
        for (first, heights) in stored {
            let Some(entry) = manifest.segment_of(*first) else { continue };
            if self.is_compared(*first, entry.digest)
                || entry.first != *first
                || *heights != manifest.range
            {
                continue;
            }
            if digest_of(&self.store, *first, entry.bytes) == Some(entry.digest) {
                self.note(&format!("segment {first} {}\n", entry.digest));
                lock(&self.state).segments.insert(*first, entry.digest);
            } else {
                lock(&self.state).others.insert(*first, entry.digest);
            }
        }
    }

    fn is_compared(&self, first: u64, digest: Digest) -> bool {
        let state = lock(&self.state);
        [&state.segments, &state.others].iter().any(|known| known.get(&first) == Some(&digest))
    }

    /// Notes the sequence of a manifest. False if a later one was noted before.
    pub(super) fn take(&self, sequence: u64) -> bool {
        let known = lock(&self.state).sequence;
        if sequence > known {
            // On the disk first: after a crash no lower one may pass.
            self.note(&format!("sequence {sequence} .\n"));
            lock(&self.state).sequence = sequence;
        }
        sequence >= known
    }

    /// Heights of proven segments from the served range on downward, without a gap.
    pub(super) fn heights(&self, manifest: &Manifest, end: u64) -> Option<RangeInclusive<u64>> {
        let newest = manifest.segment_of(end.checked_sub(1)?)?;
        let state = lock(&self.state);
        let below = manifest.segments.iter().rev().skip_while(|entry| entry.first > newest.first);
        let proven =
            below.take_while(|entry| state.segments.get(&entry.first) == Some(&entry.digest));
        let first = proven.last()?.first;
        Some(first..=newest.first + u64::from(manifest.range) - 1)
    }

    fn note(&self, line: &str) {
        if let Err(error) = append(&self.path, line) {
            warn!(file = %self.path.display(), %error, "proof of an archived segment not kept");
        }
    }
}

fn append(path: &Path, line: &str) -> io::Result<()> {
    let mut file = File::options().append(true).create(true).open(path)?;
    file.write_all(line.as_bytes())?;
    file.sync_data()
}

/// Digest of a packed file of the store, if it has so many bytes.
fn digest_of(store: &Path, first: u64, bytes: u64) -> Option<Digest> {
    let file = SealedFile::open_packed(store, first, &Codec::default()).ok()??;
    let whole = (file.page.bytes == bytes).then(|| file.read(0, bytes as usize))?;
    Some(turns::object_digest(&whole.ok()?))
}

#[cfg(test)]
mod tests {
    use neve_archive::{Chain, SegmentEntry};

    use super::*;

    fn manifest() -> Manifest {
        let segment = |n: u8| SegmentEntry {
            first: u64::from(n) * 32,
            bytes: 100,
            digest: Digest([n; 32]),
            last: Digest([n + 1; 32]),
            parent: Digest([n; 32]),
        };
        let chain = Chain { chain_id: 7, genesis: Digest([7; 32]), range: 32 };
        Manifest { sequence: 1, segments: (0..4).map(segment).collect(), ..Manifest::empty(chain) }
    }

    #[test]
    fn proven_heights_reach_from_the_tail_down_to_the_first_gap() {
        let dir = tempfile::tempdir().expect("a directory can be made");
        let path = dir.path().join("proofs");
        let manifest = manifest();
        let lines = |segments: &[u8]| {
            let line = |n: &u8| format!("segment {} {}\n", u64::from(*n) * 32, Digest([*n; 32]));
            let text: String = segments.iter().map(line).collect();
            fs::write(&path, text + "segment 0 00").expect("it can be written");
            Proofs::open(dir.path().into(), path.clone())
        };
        assert_eq!(lines(&[0, 1, 2]).heights(&manifest, 96), Some(0..=95));
        assert_eq!(lines(&[0, 2]).heights(&manifest, 96), Some(64..=95));
        assert_eq!(lines(&[0, 2]).heights(&manifest, 70), Some(64..=95), "within a segment");
        assert_eq!(lines(&[0, 1]).heights(&manifest, 96), None, "no link to the tail");
        assert_eq!(lines(&[0, 1]).heights(&manifest, 0), None);
        let mut other = manifest;
        other.segments[1].digest = Digest([9; 32]);
        assert_eq!(lines(&[0, 1, 2]).heights(&other, 96), Some(64..=95), "other bytes");
    }

    #[test]
    fn earlier_manifest_is_refused_after_a_restart() {
        let dir = tempfile::tempdir().expect("a directory can be made");
        let open = || Proofs::open(dir.path().into(), dir.path().join("proofs"));
        assert!(open().take(3) && open().take(3) && !open().take(2) && open().take(4));
        assert!(!open().take(3));
    }
}
