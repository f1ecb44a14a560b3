//! Long work that another thread may do for the writer: syncs, and merges of hash tables.

use std::io::ErrorKind;
use std::path::Path;
use std::sync::Arc;

use super::writer::Writer;
use crate::disk::{Latch, Op};
use crate::error::Error;
use crate::index::Entry;
use crate::index::merged_table::{self, FANOUT, MergeSource, Merged, MergedHeader, uncovered};
use crate::memory::residency::Cold;
use crate::memory::{residency, will_need};
use crate::segment::{Packed, Segment};

impl Writer {
    /// Makes every record appended so far, and all that was prepended, survive power loss.
    pub fn sync(&mut self) -> Result<(), Error> {
        let syncing = self.begin_sync();
        let synced = syncing.run();
        self.end_sync(synced)
    }

    /// Begins a sync on another thread, because it may take long: the caller runs the returned
    /// value, and its result given to [`Writer::end_sync`].
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

    /// A merge that is due. The caller runs it on another thread, because it may take long, and its
    /// result is given to [`Writer::end_merge`] before another is begun.
    pub fn begin_merge(&self) -> Option<Merging> {
        let due = self.due_merge()?;
        let view = self.view.load();
        let (first, last) = due.heights(&view.tables)?;
        // It tells at opening whether a table is of these very blocks: hashes chain.
        let last_hash = view.holder(last)?.read_hash(last).ok()?; // tried again later
        let header = MergedHeader {
            level: due.level(),
            first,
            last,
            chain_id: view.segments.first()?.header.identity.chain_id,
            length: 0,
            last_hash: last_hash.unwrap_or_default(),
            table_crc: 0,
            entries: 0,
            ordinal_bits: 0,
        };
        Some(Merging { latch: self.latch.beside(), header, due })
    }

    /// Takes the result of [`Merging::run`]. False if it failed, if there was no space for it,
    /// or if what it was made of is no longer there.
    pub fn end_merge(&mut self, merged: Result<NewTable, Error>) -> Result<bool, Error> {
        match merged {
            Ok(new) => self.show_table(new),
            Err(error) if error.is_disk_full() => Ok(false),
            Err(error) => {
                // Nothing was published. A table that has its name already is written over.
                tracing::warn!(%error, "hash tables not merged");
                if error.is_latched() { Err(error) } else { Ok(false) }
            }
        }
    }

    /// Shows a merged table to readers, and removes those that it covers.
    fn show_table(&mut self, new: NewTable) -> Result<bool, Error> {
        let NewTable(merged, due) = new;
        // Heights may have been withdrawn or evicted meanwhile; then the table names some that are gone.
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
        // Last: a crash before it leaves both, and opening takes the table with more heights.
        self.remove_tables(&old)?;
        Ok(true)
    }

    /// Neighbours only: segments that were prepended lie on the other side of the tables.
    fn due_merge(&self) -> Option<Due> {
        let view = self.view.load();
        // Damaged ones are written anew before.
        let is_source =
            |segment: &&Arc<Segment>| !segment.is_active() && !segment.checked.has_damage();
        let sealed: Vec<_> = view.loose.iter().filter(is_source).collect();
        let segments = sealed
            .windows(FANOUT)
            .find(|all| all.windows(2).all(|pair| pair[0].end_height() == pair[1].base()));
        if let Some(all) = segments {
            return Some(Due::Segments(all.iter().map(|one| Arc::clone(one)).collect()));
        }
        let mut tables = view.tables.windows(FANOUT);
        Some(Due::Tables(tables.find(|all| mergeable(all))?.to_vec()))
    }
}

/// True if these are neighbours of one level.
fn mergeable(tables: &[Arc<Merged>]) -> bool {
    // A table counts its entries in 32 bits.
    let entries: u64 = tables.iter().map(|table| u64::from(table.header.entries)).sum();
    tables.windows(2).all(|pair| {
        let (one, next) = (&pair[0].header, &pair[1].header);
        one.level == next.level && one.last + 1 == next.first
    }) && !tables.iter().any(|table| table.is_unreadable())
        && entries <= u32::MAX.into()
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
        let (latch, header, due) = (&mut self.latch, self.header, &self.due);
        due.check(latch.dir())?;
        let packed = residency::with_blocking_reads(|| due.packed_entries())??;
        let write = || {
            let sources = due.sources(&packed).map_err(|Cold| residency::ReadFailed)?;
            merged_table::write(latch, header, &sources)
        };
        let merged = residency::with_blocking_reads(write)??;
        Ok(NewTable(merged, self.due))
    }
}

impl Due {
    /// True if all that it is made of is still there.
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

    /// First and last height of the merged table. Tables between them are inside, as none of them
    /// has these two heights: the merged one replaces them.
    fn heights(&self, tables: &[Arc<Merged>]) -> Option<(u64, u64)> {
        match self {
            Self::Segments(all) => {
                uncovered(tables, all[0].base()..all[all.len() - 1].end_height())
            }
            Self::Tables(all) => Some((all[0].header.first, all[all.len() - 1].header.last)),
        }
    }

    /// Compares merged tables with their checksums: a damaged one would become a wrong one with a right checksum.
    fn check(&self, dir: &Path) -> Result<(), Error> {
        let Self::Tables(all) = self else { return Ok(()) };
        for table in all {
            // Tried again later.
            table.check(dir, &mut |_| {}).map_err(|_| residency::ReadFailed)?;
        }
        let is_damaged = all.iter().any(|table| table.is_unreadable());
        if is_damaged { Err(residency::ReadFailed.into()) } else { Ok(()) }
    }

    /// Entries of the packed segments, which have no table.
    fn packed_entries(&self) -> Result<Vec<Vec<Entry>>, Error> {
        let Self::Segments(all) = self else { return Ok(Vec::new()) };
        let packed = all.iter().filter_map(|one| Some((one, one.as_packed()?)));
        let entries = |(one, packed): (&Arc<Segment>, &Packed)| {
            packed.entries().map_err(|damage| {
                // Damage keeps the segment out of merges until it is repaired.
                one.checked.note_sections(one.base(), &damage.to_string());
                residency::ReadFailed.into()
            })
        };
        packed.map(entries).collect()
    }

    /// Entries of all sources, in any order.
    fn sources<'t>(&'t self, packed: &'t [Vec<Entry>]) -> Result<Vec<MergeSource<'t>>, Cold> {
        match self {
            Self::Segments(all) => {
                let unpacked = all.iter().filter(|one| !one.is_packed());
                let unpacked = unpacked.map(|one| Ok(MergeSource::Sealed(one.table()?)));
                unpacked.chain(packed.iter().map(|all| Ok(MergeSource::Packed(all)))).collect()
            }
            Self::Tables(all) => {
                Ok(all.iter().map(|one| MergeSource::Merged(one.table())).collect())
            }
        }
    }

    fn bytes(&self) -> Box<dyn Iterator<Item = &[u8]> + '_> {
        match self {
            Self::Segments(all) => Box::new(all.iter().map(|one| one.table_bytes())),
            Self::Tables(all) => Box::new(all.iter().map(|one| one.bytes())),
        }
    }
}
