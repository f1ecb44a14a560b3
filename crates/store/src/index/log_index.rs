//! Place where a segment's index of logs is: in memory while it is active, in its file once sealed.
//!
//! In memory it is a few runs of [`crate::index::postings`], each of the heights after the one
//! before: every record adds a run of one height, and as soon as eight have the same length
//! they become one. Readers take the list of runs as it is; nothing in it ever changes.
//!
//! Memory: 4 bytes a posting, 12 a distinct key of a run, 4 a height. With mainnet's 3.8 postings
//! a log and terms that repeat, 25 bytes a log in long runs and some 40 in short ones.

use std::sync::{Arc, OnceLock};

use super::postings::{Builder, Postings};
use crate::format::{SECTION_LOGS, Seal, Section, Terms};
use crate::memory::Map;
use crate::memory::residency::{Cold, probe};
use crate::sync::ArcSwap;

/// Runs that are merged into one.
const FANOUT: usize = 8;

/// Index of the logs of a segment.
pub(crate) enum LogIndex {
    /// The writer is still adding.
    Active(ActiveLogs),
    /// The section written at sealing.
    Sealed(SealedLogs),
    /// No index: the terms in the records are asked.
    Absent,
}

impl LogIndex {
    pub(crate) fn of(seal: &Seal) -> Self {
        // A later release may write another encoding: then the terms of the records answer.
        let section = seal.section(SECTION_LOGS).filter(|section| section.encoding == 0);
        section.map_or(Self::Absent, |section| {
            let heights = seal.count;
            Self::Sealed(SealedLogs { section, heights, intact: OnceLock::new() })
        })
    }

    /// The index of a file whose last records are no longer served. Those that are not in the
    /// active segment's memory any more are found again when the file is rewritten.
    pub(crate) fn cut(&self) -> Self {
        match self {
            Self::Sealed(sealed) => Self::Sealed(sealed.clone()),
            Self::Active(_) | Self::Absent => Self::Absent,
        }
    }

    /// Calls `with` with the index of a run that has slot `slot`, and the run's first slot.
    /// `None` if there is none, or it is damaged; [`Cold`] if a thread that must not wait cannot tell.
    pub(crate) fn at<T>(
        &self,
        map: &Map,
        slot: u32,
        with: impl FnOnce(u32, Postings<'_>) -> T,
    ) -> Result<Option<T>, Cold> {
        match self {
            Self::Active(active) => Ok(active.at(slot).and_then(|run| {
                let postings = run.postings()?;
                Some(with(run.first, postings))
            })),
            Self::Sealed(sealed) => Ok(sealed.postings(map)?.map(|postings| with(0, postings))),
            Self::Absent => Ok(None),
        }
    }
}

/// The section of a sealed segment.
#[derive(Clone)]
pub(crate) struct SealedLogs {
    section: Section,
    heights: u32,
    /// True if its checksum is good; empty before the first use. A damaged index would hide logs without
    /// a sign. So the whole index is read before its first use.
    intact: OnceLock<bool>,
}

impl SealedLogs {
    fn postings<'m>(&self, map: &'m Map) -> Result<Option<Postings<'m>>, Cold> {
        let Section { offset, length, crc, .. } = self.section;
        let end = offset.checked_add(length);
        let Some(bytes) = end.and_then(|end| map.bytes(offset..end)) else { return Ok(None) };
        // Before the checksum, which touches all bytes.
        probe(map, bytes)?;
        // Once for each segment: the checksum of an index takes milliseconds.
        let intact = *self.intact.get_or_init(|| {
            let intact = crc32fast::hash(bytes) == crc;
            if !intact {
                tracing::warn!(offset, "log index damaged, records searched");
            }
            intact
        });
        Ok(if intact { Postings::parse(bytes, self.heights) } else { None })
    }
}

/// Neighbouring heights of the active segment.
struct PostingsRun {
    first: u32,
    heights: u32,
    bytes: Vec<u8>,
}

impl PostingsRun {
    fn postings(&self) -> Option<Postings<'_>> {
        Postings::parse(&self.bytes, self.heights)
    }
}

/// The logs of the active segment. One thread adds, others look up.
pub(crate) struct ActiveLogs {
    runs: ArcSwap<Vec<Arc<PostingsRun>>>,
}

impl ActiveLogs {
    pub(crate) fn new() -> Self {
        Self { runs: ArcSwap::from_pointee(Vec::new()) }
    }

    /// Adds the next height. Only the one writer calls this.
    pub(crate) fn push(&self, logs: impl Iterator<Item = Terms>) {
        // Copied, because readers hold the old list. Merging keeps it short.
        let mut runs = Vec::clone(&self.runs.load());
        let first = runs.last().map_or(0, |last| last.first + last.heights);
        let mut builder = Builder::default();
        builder.push_height(logs);
        runs.push(Arc::new(PostingsRun { first, heights: 1, bytes: builder.build() }));
        while let Some(newest) = runs.last_chunk::<FANOUT>()
            && newest.iter().all(|one| one.heights == newest[0].heights)
        {
            let merged = merge(newest);
            runs.truncate(runs.len() - FANOUT);
            runs.push(Arc::new(merged));
        }
        // At once: a reader has either the runs from before or all of these.
        self.runs.store(Arc::new(runs));
    }

    fn at(&self, slot: u32) -> Option<Arc<PostingsRun>> {
        let runs = self.runs.load();
        let after = runs.partition_point(|run| run.first <= slot);
        let run = runs.get(after.checked_sub(1)?)?;
        (slot - run.first < run.heights).then(|| Arc::clone(run))
    }

    /// Bytes that [`ActiveLogs::build`] makes at most.
    pub(crate) fn len_max(&self) -> u64 {
        let runs = self.runs.load();
        runs.iter().map(|run| run.bytes.len() as u64).sum()
    }

    /// Logs of all heights.
    pub(crate) fn logs(&self) -> u64 {
        let count = |run: &Arc<PostingsRun>| {
            let before = run.postings()?.before;
            before.get(before.len() - 1)
        };
        self.runs.load().iter().filter_map(count).map(u64::from).sum()
    }

    /// The index of all heights.
    pub(crate) fn build(&self) -> Vec<u8> {
        merge(&self.runs.load()).bytes
    }
}

fn merge(runs: &[Arc<PostingsRun>]) -> PostingsRun {
    let mut builder = Builder::default();
    runs.iter().filter_map(|run| run.postings()).for_each(|postings| builder.push_run(&postings));
    PostingsRun {
        first: runs.first().map_or(0, |run| run.first),
        heights: runs.iter().map(|run| run.heights).sum(),
        bytes: builder.build(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn logs(height: u32) -> impl Iterator<Item = Terms> {
        (0..height % 4)
            .map(move |at| [u64::from(height) + 1, u64::from(at) + 1_000_000, 2_000_000, 0, 0])
    }

    #[test]
    fn every_height_is_in_one_of_few_stretches() {
        let count = if cfg!(miri) { 80 } else { 1000 };
        let active = ActiveLogs::new();
        for height in 0..count {
            active.push(logs(height));
            assert!(active.runs.load().len() <= 7 * 4);
            assert!(active.at(height + 1).is_none());
        }
        for height in 0..count {
            let run = active.at(height).unwrap();
            let index = run.postings().unwrap();
            let at = (height - run.first) as usize;
            let first = index.before.get(at).unwrap();
            let found: Vec<u32> = index.of(u64::from(height) + 1).iter().collect();
            assert_eq!(found, (first..first + height % 4).collect::<Vec<_>>(), "{height}");
        }
        let mut builder = Builder::default();
        (0..count).for_each(|height| builder.push_height(logs(height)));
        let all = builder.build();
        assert_eq!(active.build(), all);
        assert!(active.len_max() >= all.len() as u64);
        assert_eq!(active.logs(), u64::from(count / 2 * 3));
    }
}
