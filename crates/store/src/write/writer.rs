//! The one writer: append, roll, seal, prepend, evict, withdraw, merge.

use std::collections::BTreeSet;
use std::path::Path;
use std::sync::Arc;

use super::backfill_writer::BackfillWriter;
use super::built_segments::{BuiltSegments, FirstPart};
use super::options::{Options, range_blocks};
use super::quarantine::{Aside, Quarantine, Whole};
use crate::disk::{Latch, Locks, Op, STAMP_NAME, Stamp, UNFINISHED};
use crate::error::Error;
use crate::format::{Record, RecordHeader, SegmentHeader};
use crate::id::{Hash, Identity, Rules};
use crate::index::merged_table::Merged;
use crate::memory::residency;
use crate::read::View;
use crate::reads;
use crate::segment::{Active, PackedCodec, Segment, rewrite};
use crate::sync::ArcSwap;

/// Appends to a store. There is one a directory, and it belongs to one thread.
pub struct Writer {
    pub(crate) latch: Latch,
    pub(crate) options: Options,
    pub(crate) view: Arc<ArcSwap<View>>,
    pub(crate) stamp: Option<Stamp>,
    pub(crate) active: Option<Active>,
    pub(crate) quarantine: Quarantine,
    /// Codec of packed files, if the caller has one.
    pub(crate) codec: Option<Arc<dyn PackedCodec>>,
    /// First heights of ranges that cannot be packed.
    pub(crate) unpackable: BTreeSet<u64>,
    /// Height and hash of the newest record.
    pub(crate) head: Option<(u64, Hash)>,
    /// The last segment was cut and its file still has what was withdrawn.
    pub(crate) rewrite_due: bool,
    /// Names of published segments wait for a sync of the directory.
    pub(crate) names_due: bool,
    /// First parts of split segments for whose names the disk had no space.
    pub(crate) first_parts: Vec<FirstPart>,
    /// Held as long as the writer lives.
    pub(crate) _locks: Locks,
}

impl Writer {
    /// Makes the writer of a store without a chain and without records.
    pub(super) fn new(
        latch: Latch,
        options: Options,
        view: Arc<ArcSwap<View>>,
        locks: Locks,
    ) -> Self {
        Self {
            latch,
            options,
            view,
            stamp: None,
            active: None,
            quarantine: Quarantine::default(),
            codec: None,
            unpackable: BTreeSet::new(),
            head: None,
            rewrite_due: false,
            names_due: false,
            first_parts: Vec::new(),
            _locks: locks,
        }
    }

    /// The chain that the directory belongs to, once bound.
    pub fn stamp(&self) -> Option<Stamp> {
        self.stamp
    }

    /// Height and hash of the newest record.
    pub fn head(&self) -> Option<(u64, Hash)> {
        // The disk may have failed at a withdrawal.
        self.head.or_else(|| self.newest().ok().flatten())
    }

    /// Binds the directory to a chain, for good, and notes the caller's rules. Refuses another
    /// chain than before.
    pub fn bind(&mut self, identity: Identity, rules: Rules) -> Result<(), Error> {
        let stamp = Stamp { identity, rules };
        match self.stamp {
            Some(found) if found.identity != identity => Err(Error::WrongChain {
                path: self.latch.dir().to_owned(),
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
        // Synced before the rename: otherwise power loss could leave an empty stamp.
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
        if self.head.is_none() {
            self.head = self.newest()?; // the disk may have failed at a withdrawal
        }
        if let Some((height, head)) = self.head {
            record.check_follows(height, head)?;
        }
        // Another program removed the active file. Its map still has all bytes: write them anew once.
        let mut appended = self.append_next(record);
        if appended.as_ref().is_err_and(Error::is_gone) {
            self.restore_active()?;
            appended = self.append_next(record);
        }
        appended?;
        self.head = Some((record.height, record.hash));
        Ok(())
    }

    fn append_next(&mut self, record: &Record) -> Result<(), Error> {
        let mut active = match self.active.take() {
            Some(active) if self.takes(&active, record) => active,
            full => self.roll(full, record)?,
        };
        let appended = active.append(&mut self.latch, record);
        // Also after an error: a full disk is waited out, and the record written again.
        self.active = Some(active);
        appended
    }

    /// True if the record goes into the active segment. A segment without records, which a full disk
    /// leaves, takes only its first height.
    fn takes(&self, active: &Active, record: &Record) -> bool {
        let is_new = active.tip.is_none();
        active.segment.end_height() == record.height
            && active.fits(record)
            && (is_new || !self.begins_range(record.height))
    }

    fn begins_range(&self, height: u64) -> bool {
        self.codec.is_some()
            && height.is_multiple_of(range_blocks(self.options.segment_blocks).into())
    }

    /// Sets files aside that a start kept, and serves segments again for whose names there was no space.
    pub(crate) fn set_kept_aside(&mut self) -> Result<(), Error> {
        self.quarantine.set_kept_aside(&mut self.latch, self.codec.as_ref())?;
        if self.quarantine.is_due { self.rejoin().map(drop) } else { Ok(()) }
    }

    /// Seals the full segment, if there is one, and begins the next with `record`'s height.
    fn roll(&mut self, full: Option<Active>, record: &Record) -> Result<Active, Error> {
        self.active = full; // still the active one, should sealing or allocating fail
        let identity = self.stamp.ok_or(Error::Unbound)?.identity;
        // A withdrawal that failed half-way must be done before heights come above it.
        self.rewrite_last()?;
        // So must removals: what was withdrawn would be the newest after a crash.
        self.latch.settle()?;
        self.set_kept_aside()?;
        if self.active.as_ref().is_some_and(|active| active.tip.is_none()) {
            self.forget_active()?;
        }
        self.seal()?;
        // A record that is longer than a segment gets a segment of its own.
        let alone = Active::bytes_for(record.encoded_len(), &RecordHeader::of(record));
        let bytes = self.options.segment_bytes.max(alone);
        let header =
            SegmentHeader::new(identity, record.height, self.options.segment_blocks, bytes);
        let active = Active::create(&mut self.latch, header)?;
        let (mut segments, tables) = self.lists();
        segments.push(Arc::clone(&active.segment));
        self.publish(segments, tables);
        Ok(active)
    }

    /// Removes the active segment, which has no record.
    fn forget_active(&mut self) -> Result<(), Error> {
        let Some(active) = self.active.take() else { return Ok(()) };
        let (mut segments, tables) = self.lists();
        segments.pop();
        self.publish(segments, tables);
        self.latch.remove(active.name())
    }

    /// Seals the active segment, if there is one with records.
    pub fn seal(&mut self) -> Result<(), Error> {
        let Some(active) = self.active.as_ref().filter(|active| active.tip.is_some()) else {
            return Ok(());
        };
        let sealed = active.seal(&mut self.latch)?;
        let (mut segments, tables) = self.lists();
        segments.pop();
        segments.push(Arc::new(sealed));
        self.publish(segments, tables);
        // Last: after an error above the segment is still the active one.
        self.active = None;
        Ok(())
    }

    /// Returns what builds an interval of heights below the served range, on any thread.
    pub fn history(&self) -> Result<BackfillWriter, Error> {
        let identity = self.stamp.ok_or(Error::Unbound)?.identity;
        Ok(BackfillWriter::new(&self.latch, self.options, identity, self.codec.clone()))
    }

    /// Publishes segments that were built below the served range, if their last block is the parent of the
    /// first served one. The newest segment comes first, so that the range grows without a gap. Returns the
    /// number of published heights. [`Writer::sync`] makes them survive power loss.
    pub fn prepend(&mut self, mut built: BuiltSegments) -> Result<u64, Error> {
        self.check_joins(&built)?;
        let mut heights = 0;
        while let Some((segment, unfinished)) = built.segments.pop() {
            let name = segment.name();
            let renamed = self.latch.apply(Op::Rename { from: &unfinished, to: &name });
            if let Err(error) = renamed {
                // Back to the others: what is not published is removed with them.
                built.segments.push((segment, unfinished));
                return Err(error);
            }
            self.names_due = true;
            heights += segment.end_height() - segment.base();
            self.put_first(segment)?;
        }
        self.rejoin()?;
        Ok(heights)
    }

    /// Serves segments again that were set aside, as far as they join the served range from below. Returns how many heights.
    /// On a full disk the rest waits for [`Writer::restore_lost`].
    pub(crate) fn rejoin(&mut self) -> Result<u64, Error> {
        let mut heights = 0;
        self.quarantine.is_due = false;
        while !self.quarantine.is_due
            && let Ok(Some((first, parent))) = self.first()
            && let Some(aside) = self.quarantine.take(first, parent)
        {
            heights += self.serve_again(aside)?;
        }
        self.quarantine.show(self.view.load().first_height());
        Ok(heights)
    }

    /// Serves a segment again that was taken out of quarantine. Returns how many heights, 0 if it cannot be served. On a
    /// full disk it goes back, and [`Quarantine::is_due`] ends [`Self::rejoin`].
    fn serve_again(&mut self, aside: Aside) -> Result<u64, Error> {
        // A file without a whole header and seal cannot join; it stays in quarantine.
        let Some(name) = aside.whole.as_ref().map(Whole::name) else { return Ok(0) };
        match self.latch.apply(Op::Rename { from: &aside.name, to: &name }) {
            Err(error) if error.is_gone() => return Ok(0), // an operator removed it
            Err(error) if error.is_disk_full() => {
                tracing::warn!(%error, segment = name, "segment does not rejoin yet");
                self.quarantine.put_back(aside);
                return Ok(0);
            }
            renamed => renamed?,
        }
        self.names_due = true;
        let Some(whole) = aside.whole else { return Ok(0) };
        let segment = whole.open(self.latch.dir())?;
        let heights = segment.end_height() - segment.base();
        tracing::info!(segment = name, "segment rejoins the served range");
        self.put_first(Arc::new(segment))?;
        Ok(heights)
    }

    /// The lowest served height, and the parent of its block.
    fn first(&self) -> Result<Option<(u64, Hash)>, Error> {
        let view = self.view.load();
        let Some(first) = view.segments.first() else { return Ok(None) };
        let parent = || Some((first.base(), first.peek(first.base())?.parent()));
        let read = reads::again(|_| true, || residency::with_blocking_reads(parent));
        read.map_err(|_| Error::not_delivered(self.latch.dir().join(first.name())))
    }

    fn check_joins(&self, built: &BuiltSegments) -> Result<(), Error> {
        let first = self.first()?;
        let joins = |last: &(u64, Hash)| first.is_some_and(|first| first == (last.0 + 1, last.1));
        if built.last.as_ref().is_some_and(joins) {
            return Ok(());
        }
        Err(Error::DoesNotJoin { last: built.last, first })
    }

    /// Puts a segment before all others. A table that reaches below them was made before an eviction. It would
    /// overlap the tables of the segments that come now.
    fn put_first(&mut self, segment: Arc<Segment>) -> Result<(), Error> {
        let (mut segments, mut tables) = self.lists();
        let end = segment.end_height();
        let stale: Vec<_> = tables.extract_if(.., |table| table.header.first < end).collect();
        segments.insert(0, segment);
        self.publish(segments, tables);
        self.remove_tables(&stale)
    }

    /// Time of the newest block of which it is known.
    pub fn newest_timestamp(&self) -> Option<u64> {
        let active = self.active.as_ref().and_then(|active| Some(active.tip?.timestamp));
        let view = self.view.load();
        let sealed = view.segments.iter().rev().map(|segment| segment.last_timestamp);
        active.into_iter().chain(sealed).find(|time| *time > 0)
    }

    /// Takes heights from `from` on back: readers stop seeing them at once, then the files follow.
    /// The next record must have height `from`, or may have any if nothing is left.
    pub fn withdraw(&mut self, from: u64) -> Result<(), Error> {
        let (mut segments, mut tables) = self.lists();
        // The view and not the head, which is unknown if the disk failed at the withdrawal before.
        if segments.last().is_none_or(|newest| newest.end_height() <= from) {
            return Ok(());
        }
        let stale: Vec<_> = tables.extract_if(.., |table| table.header.last >= from).collect();
        let gone: Vec<_> = segments.extract_if(.., |segment| segment.base() >= from).collect();
        let cut = segments.pop_if(|segment| segment.end_height() > from);
        if let Some(cut) = &cut {
            segments.push(Arc::new(cut.cut((from - cut.base()) as u32)));
        }
        // Readers stop seeing the heights before a file changes.
        self.active = None;
        self.publish(segments, tables);
        // Files follow in any case: those of a withdrawn height must not come back.
        self.head = self.newest().ok().flatten();
        self.rewrite_due = cut.is_some();
        self.remove_tables(&stale)?;
        // The newest file first: a crash in between leaves an unbroken range.
        self.remove_segments(gone.iter().rev().map(|segment| segment.name()))?;
        self.rewrite_last()
    }

    /// Reads height and hash of the newest record.
    fn newest(&self) -> Result<Option<(u64, Hash)>, Error> {
        newest(self.latch.dir(), &self.view.load())
    }

    /// Replaces the file of the last segment, if it was cut, by one that ends where it was cut.
    fn rewrite_last(&mut self) -> Result<(), Error> {
        if !self.rewrite_due {
            return Ok(());
        }
        self.latch.settle()?; // a file above a shorter one would be above a gap after a crash
        let (mut segments, tables) = self.lists();
        let Some(cut) = segments.pop() else { return Ok(()) };
        let rewritten = rewrite(&mut self.latch, &cut)?;
        segments.push(Arc::new(rewritten));
        self.publish(segments, tables);
        self.rewrite_due = false;
        Ok(())
    }

    pub(crate) fn lists(&self) -> (Vec<Arc<Segment>>, Vec<Arc<Merged>>) {
        let view = self.view.load();
        (view.segments.clone(), view.tables.clone())
    }

    pub(crate) fn publish(&self, segments: Vec<Arc<Segment>>, tables: Vec<Arc<Merged>>) {
        self.view.store(Arc::new(View::new(segments, tables)));
    }

    pub(crate) fn remove_tables(&mut self, tables: &[Arc<Merged>]) -> Result<(), Error> {
        for table in tables {
            self.latch.remove(&table.name())?;
        }
        Ok(())
    }

    pub(crate) fn remove_segments(
        &mut self,
        names: impl Iterator<Item = String>,
    ) -> Result<(), Error> {
        for name in names {
            self.latch.remove(&name)?;
        }
        // Without it power loss could bring some of them back.
        self.latch.apply(Op::SyncDir)
    }
}

/// Reads height and hash of the newest record of a view.
pub(crate) fn newest(dir: &Path, view: &View) -> Result<Option<(u64, Hash)>, Error> {
    let Some(last) = view.segments.last() else { return Ok(None) };
    last.read_tip().map_err(|_| Error::not_delivered(dir.join(last.name())))
}
