//! The one writer: append, roll, seal, prepend, evict, withdraw, merge.

use std::fs::File;
use std::io::ErrorKind;
use std::ops::Range;
use std::sync::Arc;

use arc_swap::ArcSwap;

use crate::active::Active;
use crate::disk::{Latch, Op};
use crate::error::Error;
use crate::format::{RecordHead, SegmentHeader};
use crate::history::{Built, History};
use crate::map::will_need;
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
    /// Names of published segments wait for a sync of the directory.
    pub(crate) names_due: bool,
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
        if let Some((height, head)) = self.head {
            record.check_follows(height, head)?;
        }
        let mut active = match self.active.take() {
            Some(active) if active.fits(record) => active,
            full => self.roll(full, record)?,
        };
        let appended = active.append(&mut self.latch, record);
        self.active = Some(active);
        appended?;
        self.head = Some((record.height, record.hash));
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

    /// For building an interval of heights below the served range, on any thread.
    pub fn history(&self) -> Result<History, Error> {
        let identity = self.stamp.ok_or(Error::Unbound)?.identity;
        Ok(History::new(&self.latch, self.options, identity))
    }

    /// Publishes what was built below the served range, if its last block is the parent of the
    /// first served one; the newest segment first, so that the range grows without a gap. Gives
    /// how many heights it published. [`Writer::sync`] makes them survive power loss.
    pub fn prepend(&mut self, mut built: Built) -> Result<u64, Error> {
        self.check_joins(&built)?;
        let mut heights = 0;
        while let Some((segment, unfinished)) = built.segments.pop() {
            let name = segment_name(segment.base());
            let renamed = self.latch.apply(Op::Rename { from: &unfinished, to: &name });
            if let Err(error) = renamed {
                built.segments.push((segment, unfinished));
                return Err(error);
            }
            self.names_due = true;
            heights += segment.end_height() - segment.base();
            self.put_first(segment)?;
        }
        Ok(heights)
    }

    fn check_joins(&self, built: &Built) -> Result<(), Error> {
        let view = self.view.load();
        let first = view.first_height().and_then(|first| view.record(first));
        let joins = |last: &(u64, Hash)| {
            let first = first.as_ref();
            first.is_some_and(|first| first.height() == last.0 + 1 && first.parent() == last.1)
        };
        if built.last.as_ref().is_some_and(joins) {
            return Ok(());
        }
        let first = first.map(|first| (first.height(), first.parent()));
        Err(Error::DoesNotJoin { last: built.last, first })
    }

    /// Puts a segment before all others. A table that reaches below them was made before an
    /// eviction; it would overlap those that are made of what comes now.
    fn put_first(&mut self, segment: Arc<Segment>) -> Result<(), Error> {
        let (mut segments, mut tables) = self.lists();
        let end = segment.end_height();
        let stale: Vec<_> = tables.extract_if(.., |table| table.header.first < end).collect();
        segments.insert(0, segment);
        self.publish(segments, tables);
        self.remove_tables(&stale)
    }

    /// Makes every record appended so far, and all that was prepended, survive power loss.
    pub fn sync(&mut self) -> Result<(), Error> {
        let syncing = self.begin_sync();
        let synced = syncing.run();
        self.end_sync(synced)
    }

    /// The same on another thread, since it may take long: what this returns is to be run, and its
    /// result given to [`Writer::end_sync`].
    pub fn begin_sync(&mut self) -> Syncing {
        Syncing {
            latch: self.latch.beside(),
            names: std::mem::take(&mut self.names_due),
            active: self.active.as_ref().map(|active| active.name().to_owned()),
        }
    }

    /// Takes the result of [`Syncing::run`]. After a sync that failed nothing more is written.
    pub fn end_sync(&mut self, synced: Result<(), Error>) -> Result<(), Error> {
        synced.inspect_err(|error| self.latch.stop(error))
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
        while let Some(due) = self.begin_merge() {
            let merged = due.run();
            if !self.end_merge(merged)? {
                break;
            }
            written += 1;
        }
        Ok(written)
    }

    /// One merge that is due, to be run on another thread, since it may take long, and its result
    /// given to [`Writer::end_merge`] before another is begun.
    pub fn begin_merge(&self) -> Option<Merging> {
        let due = self.due_merge()?;
        let heights = due.heights();
        let view = self.view.load();
        let last_hash =
            view.record(heights.end - 1).map_or(Hash::default(), |record| record.hash());
        let header = MergedHeader {
            level: due.level(),
            first: heights.start,
            last: heights.end - 1,
            chain_id: view.segments.first()?.header.identity.chain_id,
            length: 0,
            last_hash,
            table_crc: 0,
        };
        Some(Merging { latch: self.latch.beside(), header, due })
    }

    /// Takes the result of [`Merging::run`]. False if there was no room for it, or if what it
    /// was made of is no longer there.
    pub fn end_merge(&mut self, merged: Result<NewTable, Error>) -> Result<bool, Error> {
        let NewTable(merged, due) = match merged {
            Ok(merged) => merged,
            Err(error) if error.is_disk_full() => return Ok(false),
            Err(error) => {
                self.latch.stop(&error);
                return Err(error);
            }
        };
        let (segments, mut tables) = self.lists();
        if !due.is_part_of(&segments, &tables) {
            let stale = [Arc::new(merged)];
            return self.remove_tables(&stale).map(|()| false);
        }
        let old: Vec<_> = tables
            .extract_if(.., |table| merged.covers(table.header.first, table.header.last))
            .collect();
        tables.push(Arc::new(merged));
        tables.sort_by_key(|table| table.header.first);
        self.publish(segments, tables);
        self.remove_tables(&old)?;
        Ok(true)
    }

    /// Neighbours only: segments that were prepended lie on the other side of the tables.
    fn due_merge(&self) -> Option<Due> {
        let view = self.view.load();
        let sealed: Vec<_> = view.loose.iter().filter(|segment| !segment.is_active()).collect();
        let segments = sealed
            .windows(FANOUT)
            .find(|all| all.windows(2).all(|pair| pair[0].end_height() == pair[1].base()));
        if let Some(all) = segments {
            return Some(Due::Segments(all.iter().map(|one| Arc::clone(one)).collect()));
        }
        let mut tables = view.tables.windows(FANOUT);
        Some(Due::Tables(tables.find(|all| mergeable(all))?.to_vec()))
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

/// Whether these are neighbours of one level.
fn mergeable(tables: &[Arc<Merged>]) -> bool {
    tables.windows(2).all(|pair| {
        let (one, next) = (&pair[0].header, &pair[1].header);
        one.level == next.level && one.last + 1 == next.first
    })
}

/// A merge that is due: neighbours of one level.
enum Due {
    Segments(Vec<Arc<Segment>>),
    Tables(Vec<Arc<Merged>>),
}

/// A sync that is due.
pub struct Syncing {
    latch: Latch,
    names: bool,
    active: Option<String>,
}

impl Syncing {
    /// Makes what was written before it was begun survive power loss.
    pub fn run(mut self) -> Result<(), Error> {
        if self.names {
            self.latch.apply(Op::SyncDir)?;
        }
        let Some(name) = &self.active else { return Ok(()) };
        match self.latch.apply(Op::Sync { name }) {
            // Withdrawn meanwhile.
            Err(Error::Write { source, .. }) if source.kind() == ErrorKind::NotFound => Ok(()),
            synced => synced,
        }
    }
}

/// A merge that is due.
pub struct Merging {
    latch: Latch,
    header: MergedHeader,
    due: Due,
}

/// A merged table that readers do not see yet.
pub struct NewTable(Merged, Due);

impl Merging {
    /// Writes the merged table.
    pub fn run(mut self) -> Result<NewTable, Error> {
        self.due.bytes().for_each(will_need); // they are read from end to end
        let merged = merge::write(&mut self.latch, self.header, &self.due.tables())?;
        Ok(NewTable(merged, self.due))
    }
}

impl Due {
    /// Whether all that it is made of is still there.
    fn is_part_of(&self, segments: &[Arc<Segment>], tables: &[Arc<Merged>]) -> bool {
        match self {
            Self::Segments(all) => {
                all.iter().all(|one| segments.iter().any(|other| Arc::ptr_eq(one, other)))
            }
            Self::Tables(all) => {
                all.iter().all(|one| tables.iter().any(|other| Arc::ptr_eq(one, other)))
            }
        }
    }

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
        self.bytes().map(Table::new).collect()
    }

    fn bytes(&self) -> Box<dyn Iterator<Item = &[u8]> + '_> {
        match self {
            Self::Segments(all) => Box::new(all.iter().map(|one| one.table_bytes())),
            Self::Tables(all) => Box::new(all.iter().map(|one| one.bytes())),
        }
    }
}
