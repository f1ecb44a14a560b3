//! Where a segment's index of logs is: in memory while it is active, in its file once sealed.
//!
//! In memory it is a few stretches of [`crate::postings`], each of the heights after the one
//! before: every record adds a stretch of one height, and as soon as eight have the same length
//! they become one. Readers take the list of stretches as it is; nothing in it ever changes.
//!
//! Memory: 4 bytes a posting, 12 a distinct key of a stretch, 4 a height. With mainnet's 3.8 postings
//! a log and terms that repeat, 25 bytes a log in long stretches and some 40 in short ones.

use std::sync::{Arc, OnceLock};

use arc_swap::ArcSwap;

use crate::format::{SECTION_LOGS, Seal, Section, Terms};
use crate::map::Map;
use crate::postings::{Builder, Postings};
use crate::residency::look;

/// How many stretches are merged into one.
const FANOUT: usize = 8;

/// How the logs of a segment are found.
pub(crate) enum LogIndex {
    /// The writer is still adding.
    Active(ActiveLogs),
    /// The section written at sealing.
    Sealed(SealedLogs),
    /// Not at all: the terms in the records are asked.
    Absent,
}

impl LogIndex {
    pub(crate) fn of(seal: &Seal) -> Self {
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

    /// Calls `with` with the index of a stretch that has slot `slot`, and the stretch's first slot.
    /// `None` if there is none, or it is damaged.
    pub(crate) fn at<T>(
        &self,
        map: &Map,
        slot: u32,
        with: impl FnOnce(u32, Postings<'_>) -> T,
    ) -> Option<T> {
        match self {
            Self::Active(active) => {
                let stretch = active.at(slot)?;
                Some(with(stretch.first, stretch.postings()?))
            }
            Self::Sealed(sealed) => Some(with(0, sealed.postings(map)?)),
            Self::Absent => None,
        }
    }
}

/// The section of a sealed segment.
#[derive(Clone)]
pub(crate) struct SealedLogs {
    section: Section,
    heights: u32,
    /// Whether its checksum is good, once somebody asked. A damaged index would hide logs, and
    /// nobody could tell: so it is read whole before it is used first.
    intact: OnceLock<bool>,
}

impl SealedLogs {
    fn postings<'m>(&self, map: &'m Map) -> Option<Postings<'m>> {
        let Section { offset, length, crc, .. } = self.section;
        let bytes = map.bytes(offset..offset.checked_add(length)?)?;
        if !look(bytes) {
            return None;
        }
        let intact = *self.intact.get_or_init(|| {
            let intact = crc32fast::hash(bytes) == crc;
            if !intact {
                tracing::warn!(offset, "a log index fails its checksum; records are asked instead");
            }
            intact
        });
        if intact { Postings::parse(bytes, self.heights) } else { None }
    }
}

/// Neighbouring heights of the active segment.
struct Stretch {
    first: u32,
    heights: u32,
    bytes: Vec<u8>,
}

impl Stretch {
    fn postings(&self) -> Option<Postings<'_>> {
        Postings::parse(&self.bytes, self.heights)
    }
}

/// The logs of the active segment. One thread adds, others look up.
pub(crate) struct ActiveLogs {
    stretches: ArcSwap<Vec<Arc<Stretch>>>,
}

impl ActiveLogs {
    pub(crate) fn new() -> Self {
        Self { stretches: ArcSwap::from_pointee(Vec::new()) }
    }

    /// Adds the next height. Only the one writer calls this.
    pub(crate) fn push(&self, logs: impl Iterator<Item = Terms>) {
        let mut stretches = Vec::clone(&self.stretches.load());
        let first = stretches.last().map_or(0, |last| last.first + last.heights);
        let mut builder = Builder::default();
        builder.push_height(logs);
        stretches.push(Arc::new(Stretch { first, heights: 1, bytes: builder.build() }));
        while let Some(newest) = stretches.last_chunk::<FANOUT>()
            && newest.iter().all(|one| one.heights == newest[0].heights)
        {
            let merged = merge(newest);
            stretches.truncate(stretches.len() - FANOUT);
            stretches.push(Arc::new(merged));
        }
        self.stretches.store(Arc::new(stretches));
    }

    fn at(&self, slot: u32) -> Option<Arc<Stretch>> {
        let stretches = self.stretches.load();
        let after = stretches.partition_point(|stretch| stretch.first <= slot);
        let stretch = stretches.get(after.checked_sub(1)?)?;
        (slot - stretch.first < stretch.heights).then(|| Arc::clone(stretch))
    }

    /// Bytes that [`ActiveLogs::build`] makes at most.
    pub(crate) fn len_max(&self) -> u64 {
        let stretches = self.stretches.load();
        stretches.iter().map(|stretch| stretch.bytes.len() as u64).sum()
    }

    /// Logs of all heights.
    pub(crate) fn logs(&self) -> u64 {
        let count = |stretch: &Arc<Stretch>| {
            let before = stretch.postings()?.before;
            before.get(before.len() - 1)
        };
        self.stretches.load().iter().filter_map(count).map(u64::from).sum()
    }

    /// The index of all heights.
    pub(crate) fn build(&self) -> Vec<u8> {
        merge(&self.stretches.load()).bytes
    }
}

fn merge(stretches: &[Arc<Stretch>]) -> Stretch {
    let mut builder = Builder::default();
    stretches
        .iter()
        .filter_map(|stretch| stretch.postings())
        .for_each(|postings| builder.push_stretch(&postings));
    Stretch {
        first: stretches.first().map_or(0, |stretch| stretch.first),
        heights: stretches.iter().map(|stretch| stretch.heights).sum(),
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
        let active = ActiveLogs::new();
        for height in 0..1000 {
            active.push(logs(height));
            assert!(active.stretches.load().len() <= 7 * 4);
            assert!(active.at(height + 1).is_none());
        }
        for height in 0..1000 {
            let stretch = active.at(height).unwrap();
            let index = stretch.postings().unwrap();
            let at = (height - stretch.first) as usize;
            let first = index.before.get(at).unwrap();
            let found: Vec<u32> = index.of(u64::from(height) + 1).iter().collect();
            assert_eq!(found, (first..first + height % 4).collect::<Vec<_>>(), "{height}");
        }
        let mut builder = Builder::default();
        (0..1000).for_each(|height| builder.push_height(logs(height)));
        let all = builder.build();
        assert_eq!(active.build(), all);
        assert!(active.len_max() >= all.len() as u64);
        assert_eq!(active.logs(), 1500);
    }
}
