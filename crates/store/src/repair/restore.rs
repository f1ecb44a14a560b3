//! Writing anew from memory what another program removed, and ending what waited for space on the disk.

use std::io::ErrorKind;
use std::sync::Arc;

use crate::error::Error;
use crate::reads;
use crate::segment::{Segment, note_tables, rewrite};
use crate::write::Writer;

impl Writer {
    /// Writes the first segment anew, from its map, whose file another program removed. Returns its
    /// base height, or `None` if all files are there. To be called from time to time: readers do
    /// not notice, but the next opening would. Seals an active segment with a damaged record first. Names and
    /// removes files for which the disk had no space to do that.
    pub fn restore_lost(&mut self) -> Result<Option<u64>, Error> {
        self.latch.settle_if_room()?;
        match self.set_kept_aside() {
            Err(error) if error.is_disk_full() => tracing::warn!(%error, "files not set aside yet"),
            done => done?,
        }
        self.drop_unreadable_tables()?;
        self.name_first_parts()?;
        // Only sealed segments are repaired.
        if self.active.as_ref().is_some_and(|active| active.segment.checked.has_damage()) {
            self.seal()?;
        }
        self.restore_first_lost()
    }

    /// Writes the first segment anew whose file is gone. Returns its base height.
    fn restore_first_lost(&mut self) -> Result<Option<u64>, Error> {
        let (mut segments, tables) = self.lists();
        let dir = self.latch.dir().to_owned();
        let is_lost = |segment: &Arc<Segment>| {
            let found = reads::facts(&dir.join(segment.name()));
            found.is_err_and(|error| error.kind() == ErrorKind::NotFound)
        };
        let Some(at) = segments.iter().position(is_lost) else { return Ok(None) };
        let base = segments[at].base();
        if segments[at].is_active() {
            return self.restore_active().map(|()| Some(base));
        }
        // Tables of such a segment cover it still: the new file has the same blocks.
        segments[at] = Arc::new(rewrite(&mut self.latch, &segments[at])?);
        self.publish(segments, tables);
        Ok(Some(base))
    }

    /// Removes damaged merged tables. Look-ups then read the tables of the segments, and a later merge writes a new one.
    fn drop_unreadable_tables(&mut self) -> Result<(), Error> {
        let (segments, mut tables) = self.lists();
        let lost: Vec<_> = tables.extract_if(.., |table| table.is_unreadable()).collect();
        if lost.is_empty() {
            return Ok(());
        }
        lost.iter()
            .for_each(|table| tracing::warn!(file = table.name(), "damaged hash table removed"));
        note_tables(lost.len());
        // Readers first: they must not meet a table whose file is gone.
        self.publish(segments, tables);
        self.remove_tables(&lost)
    }

    /// Writes the active segment anew, sealed.
    pub(crate) fn restore_active(&mut self) -> Result<(), Error> {
        let Some(active) = self.active.take() else { return Ok(()) };
        let (mut segments, tables) = self.lists();
        segments.pop();
        // An empty one is dropped: the next record begins a new file anyway.
        if active.tip.is_some() {
            match rewrite(&mut self.latch, &active.segment) {
                Ok(sealed) => segments.push(Arc::new(sealed)),
                Err(error) => {
                    self.active = Some(active);
                    return Err(error);
                }
            }
        }
        self.publish(segments, tables);
        Ok(())
    }
}
