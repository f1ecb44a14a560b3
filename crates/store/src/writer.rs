//! The one writer: append, roll, seal, evict, withdraw, merge.

use std::fs::File;
use std::ops::Range;
use std::sync::Arc;

use arc_swap::ArcSwap;

use crate::active::Active;
use crate::disk::{Latch, Op};
use crate::error::Error;
use crate::format::{RecordHead, SegmentHeader};
use crate::merge::{self, FANOUT, Merged, MergedHeader};
use crate::options::Options;
use crate::record::{Hash, Record};
use crate::retention::{Held, Retention};
use crate::rewrite::rewrite;
use crate::segment::{Segment, UNFINISHED, segment_name};
use crate::stamp::{Identity, Rules, STAMP_NAME, Stamp};
use crate::table::Table;
use crate::view::View;

/// What an eviction took away.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Evicted {
    /// Segment files removed.
    pub segments: usize,
    /// Heights that are no longer served.
    pub heights: u64,
    /// Bytes given back, once the last reply that uses them is sent.
    pub bytes: u64,
}

/// Appends to a store. There is one a directory, and it belongs to one thread.
pub struct Writer {
    pub(crate) latch: Latch,
    pub(crate) options: Options,
    pub(crate) view: Arc<ArcSwap<View>>,
    pub(crate) stamp: Option<Stamp>,
    pub(crate) active: Option<Active>,
    /// Height and hash of the newest record.
    pub(crate) head: Option<(u64, Hash)>,
    /// The last segment was cut and its file still has what was withdrawn.
    pub(crate) rewrite_due: bool,
    /// Held as long as the writer lives.
    pub(crate) _lock: File,
}

impl Writer {
    /// The chain that the directory belongs to, once bound.
    pub fn stamp(&self) -> Option<Stamp> {
        self.stamp
    }

    /// Height and hash of the newest record.
    pub fn head(&self) -> Option<(u64, Hash)> {
        self.head
    }

    /// Binds the directory to a chain, for good, and notes the caller's rules. Refuses another
    /// chain than before.
    pub fn bind(&mut self, identity: Identity, rules: Rules) -> Result<(), Error> {
        let stamp = Stamp { identity, rules };
        match self.stamp {
            Some(found) if found.identity != identity => Err(Error::WrongChain {
                dir: self.latch.dir().to_owned(),
                found: found.identity,
                expected: identity,
            }),
            Some(found) if found == stamp => Ok(()),
            _ => self.write_stamp(stamp),
        }
    }

    pub(crate) fn write_stamp(&mut self, stamp: Stamp) -> Result<(), Error> {
        let text = stamp.to_text();
        let unfinished = format!("{STAMP_NAME}{UNFINISHED}");
        self.latch.apply(Op::Allocate { name: &unfinished, len: text.len() as u64 })?;
        self.latch.apply(Op::Write { name: &unfinished, offset: 0, bytes: text.as_bytes() })?;
        self.latch.apply(Op::Sync { name: &unfinished })?;
        self.latch.apply(Op::Rename { from: &unfinished, to: STAMP_NAME })?;
        self.latch.apply(Op::SyncDir)?;
        self.stamp = Some(stamp);
        Ok(())
    }

    /// Adds the next height. When this returns, readers see it; [`Writer::sync`] makes it
    /// survive power loss.
    pub fn append(&mut self, record: &Record) -> Result<(), Error> {
        record.check_limits()?;
        self.check_next(record)?;
        let mut active = match self.active.take() {
            Some(active) if active.fits(record) => active,
            full => self.roll(full, record)?,
        };
        let appended = active.append(&mut self.latch, record, record.encode());
        self.active = Some(active);
        appended?;
        self.head = Some((record.height, record.hash));
        Ok(())
    }

    fn check_next(&self, record: &Record) -> Result<(), Error> {
        let Some((height, head)) = self.head else { return Ok(()) };
        if record.height != height + 1 {
            return Err(Error::WrongHeight { height: record.height, expected: height + 1 });
        }
        if record.parent != head {
            let (height, parent) = (record.height, record.parent);
            return Err(Error::WrongParent { height, parent, head });
        }
        Ok(())
    }

    /// Seals the full segment, if there is one, and begins the next with `record`'s height.
    fn roll(&mut self, full: Option<Active>, record: &Record) -> Result<Active, Error> {
        self.active = full; // still the active one, should sealing or allocating fail
        let identity = self.stamp.ok_or(Error::Unbound)?.identity;
        self.rewrite_last()?;
        self.seal()?;
        let alone = Active::bytes_for(record.encoded_len(), &RecordHead::of(record));
        let bytes = self.options.segment_bytes.max(alone);
        let header = SegmentHeader::new(identity, record.height, self.options.span, bytes);
        let active = Active::create(&mut self.latch, header)?;
        let (mut segments, tables) = self.lists();
        segments.push(Arc::clone(&active.segment));
        self.publish(segments, tables);
        Ok(active)
    }

    /// Seals the active segment, if there is one.
    pub fn seal(&mut self) -> Result<(), Error> {
        let Some(active) = &self.active else { return Ok(()) };
        let sealed = active.seal(&mut self.latch)?;
        let (mut segments, tables) = self.lists();
        segments.pop();
        segments.push(Arc::new(sealed));
        self.publish(segments, tables);
        self.active = None;
        Ok(())
    }

    /// Makes every record appended so far survive power loss.
    pub fn sync(&mut self) -> Result<(), Error> {
        let Some(active) = &self.active else { return Ok(()) };
        active.sync(&mut self.latch)
    }

    /// Evicts the oldest segments that `retention` does not keep. `now` in seconds since 1970.
    pub fn evict(&mut self, retention: &Retention, now: u64) -> Result<Evicted, Error> {
        let (mut segments, mut tables) = self.lists();
        let end_height = self.head.map_or(0, |(height, _)| height + 1);
        let held: Vec<Held> = segments
            .iter()
            .filter(|segment| !segment.is_active())
            .map(|segment| Held {
                end_height: segment.end_height(),
                disk_bytes: segment.disk_bytes,
                last_timestamp: segment.last_timestamp,
            })
            .collect();
        let bytes = self.view.load().disk_bytes();
        let due = retention.evictable(&held, end_height, bytes, now);
        let count = due.min(segments.len().saturating_sub(1)); // the head is always served
        if count == 0 {
            return Ok(Evicted::default());
        }
        let gone: Vec<_> = segments.drain(..count).collect();
        let first = segments.first().map_or(end_height, |segment| segment.base());
        let stale: Vec<_> = tables.extract_if(.., |table| table.header.last < first).collect();
        self.publish(segments, tables);
        self.remove_tables(&stale)?;
        self.remove_segments(gone.iter().map(|segment| segment.base()))?;
        Ok(Evicted {
            segments: gone.len(),
            heights: first - gone[0].base(),
            bytes: gone.iter().map(|segment| segment.disk_bytes).sum(),
        })
    }

    /// Takes heights from `from` on back: readers stop seeing them at once, then the files follow.
    /// The next record must have height `from`, or may have any if nothing is left.
    pub fn withdraw(&mut self, from: u64) -> Result<(), Error> {
        if self.head.is_none_or(|(height, _)| height < from) {
            return Ok(());
        }
        let (mut segments, mut tables) = self.lists();
        let stale: Vec<_> = tables.extract_if(.., |table| table.header.last >= from).collect();
        let gone: Vec<_> = segments.extract_if(.., |segment| segment.base() >= from).collect();
        let cut = segments.pop_if(|segment| segment.end_height() > from);
        if let Some(cut) = &cut {
            segments.push(Arc::new(cut.cut((from - cut.base()) as u32)));
        }
        self.active = None;
        self.publish(segments, tables);
        self.head =
            self.view.load().record(from.wrapping_sub(1)).map(|head| (from - 1, head.hash()));
        self.remove_tables(&stale)?;
        self.remove_segments(gone.iter().rev().map(|segment| segment.base()))?;
        self.rewrite_due = cut.is_some();
        self.rewrite_last()
    }

    /// Replaces the file of the last segment, if it was cut, by one that ends where it was cut.
    fn rewrite_last(&mut self) -> Result<(), Error> {
        if !self.rewrite_due {
            return Ok(());
        }
        let (mut segments, tables) = self.lists();
        let Some(cut) = segments.pop() else { return Ok(()) };
        let rewritten = rewrite(&mut self.latch, &cut)?;
        segments.push(Arc::new(rewritten));
        self.publish(segments, tables);
        self.rewrite_due = false;
        Ok(())
    }

    /// Merges hash tables until none is due, so that look-ups by hash stay cheap. Returns how
    /// many files it wrote. A full disk is no error here: it only means more tables to ask.
    pub fn merge_tables(&mut self) -> Result<usize, Error> {
        let mut written = 0;
        while let Some(due) = self.due_merge() {
            match self.merge(&due) {
                Ok(()) => written += 1,
                Err(error) if error.is_disk_full() => break,
                Err(error) => return Err(error),
            }
        }
        Ok(written)
    }

    fn due_merge(&self) -> Option<Due> {
        let view = self.view.load();
        let sealed: Vec<_> = view.loose.iter().filter(|segment| !segment.is_active()).collect();
        if sealed.len() >= FANOUT {
            let oldest = sealed[..FANOUT].iter().map(|segment| Arc::clone(segment)).collect();
            return Some(Due::Segments(oldest));
        }
        let newest = view.tables.last_chunk::<FANOUT>()?;
        let level = newest[0].header.level;
        let even = newest.iter().all(|table| table.header.level == level);
        even.then(|| Due::Tables(newest.to_vec()))
    }

    fn merge(&mut self, due: &Due) -> Result<(), Error> {
        let heights = due.heights();
        let (segments, mut tables) = self.lists();
        let last_hash = self
            .view
            .load()
            .record(heights.end - 1)
            .map_or(Hash::default(), |record| record.hash());
        let header = MergedHeader {
            level: due.level(),
            first: heights.start,
            last: heights.end - 1,
            chain_id: segments[0].header.identity.chain_id,
            length: 0,
            last_hash,
            table_crc: 0,
        };
        let merged = merge::write(&mut self.latch, header, &due.tables())?;
        let old: Vec<_> = tables
            .extract_if(.., |table| merged.covers(table.header.first, table.header.last))
            .collect();
        tables.push(Arc::new(merged));
        tables.sort_by_key(|table| table.header.first);
        self.publish(segments, tables);
        self.remove_tables(&old)
    }

    fn lists(&self) -> (Vec<Arc<Segment>>, Vec<Arc<Merged>>) {
        let view = self.view.load();
        (view.segments.clone(), view.tables.clone())
    }

    fn publish(&self, segments: Vec<Arc<Segment>>, tables: Vec<Arc<Merged>>) {
        self.view.store(Arc::new(View::new(segments, tables)));
    }

    fn remove_tables(&mut self, tables: &[Arc<Merged>]) -> Result<(), Error> {
        for table in tables {
            self.latch.apply(Op::Remove { name: &table.name() })?;
        }
        Ok(())
    }

    fn remove_segments(&mut self, bases: impl Iterator<Item = u64>) -> Result<(), Error> {
        for base in bases {
            self.latch.apply(Op::Remove { name: &segment_name(base) })?;
        }
        self.latch.apply(Op::SyncDir)
    }
}

/// A merge that is due: neighbours of one level.
enum Due {
    Segments(Vec<Arc<Segment>>),
    Tables(Vec<Arc<Merged>>),
}

impl Due {
    fn level(&self) -> u32 {
        match self {
            Self::Segments(_) => 1,
            Self::Tables(tables) => tables[0].header.level + 1,
        }
    }

    fn heights(&self) -> Range<u64> {
        match self {
            Self::Segments(all) => all[0].base()..all[all.len() - 1].end_height(),
            Self::Tables(all) => all[0].header.first..all[all.len() - 1].header.last + 1,
        }
    }

    fn tables(&self) -> Vec<Table<'_>> {
        match self {
            Self::Segments(all) => all.iter().map(|one| Table::new(one.table_bytes())).collect(),
            Self::Tables(all) => all.iter().map(|one| Table::new(one.bytes())).collect(),
        }
    }
}
