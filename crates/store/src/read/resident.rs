//! Reader for threads that must not wait for a disk.

use super::view::View;
use crate::id::Hash;
use crate::memory::residency::Cold;
use crate::segment::{Found, RecordRef, Wanted};
use crate::sync::ArcSwap;

/// Reads committed records. Each call fails with [`Cold`] if it needs bytes that are not in memory,
/// inside [`if_resident`](crate::residency::if_resident) and the like; elsewhere it waits for them.
#[derive(Clone, Copy)]
pub struct Resident<'r> {
    pub(super) view: &'r ArcSwap<View>,
}

impl Resident<'_> {
    /// The newest served record.
    pub fn head(self) -> Result<Option<RecordRef>, Cold> {
        let view = self.view.load();
        view.newest().map_or(Ok(None), |head| view.record(head))
    }

    /// The record at `height`, if it is in the served range.
    pub fn record(self, height: u64) -> Result<Option<RecordRef>, Cold> {
        self.view.load().record(height)
    }

    /// The record of the block with `hash`.
    pub fn block(self, hash: &Hash) -> Result<Option<RecordRef>, Cold> {
        self.view.load().find(hash, |record, locator| {
            let same = locator.position().is_none() && record.is_block(hash)?;
            Ok(same.then_some(record))
        })
    }

    /// The record that holds the transaction with `hash`, and its position there.
    pub fn transaction(self, hash: &Hash) -> Result<Option<(RecordRef, usize)>, Cold> {
        self.view.load().find(hash, |record, locator| {
            let Some(at) = locator.position() else { return Ok(None) };
            // Tables have 8 bytes of a hash: only the record has all of it.
            let same = record.is_transaction(at, hash)?;
            Ok(same.then_some((record, at)))
        })
    }

    /// Reads a height. In a segment it is the record; of a packed height what is wanted is appended to
    /// `out`, to which nothing is appended otherwise.
    pub fn read(
        self,
        height: u64,
        wanted: Wanted<'_>,
        out: &mut Vec<u8>,
    ) -> Result<Option<Found>, Cold> {
        self.view.load().read(height, wanted, out)
    }

    /// Reads the newest served height in this way.
    pub fn read_head(self, wanted: Wanted<'_>, out: &mut Vec<u8>) -> Result<Option<Found>, Cold> {
        let view = self.view.load();
        view.newest().map_or(Ok(None), |head| view.read(head, wanted, out))
    }

    /// Reads the block with `hash` in this way.
    pub fn read_block(
        self,
        hash: &Hash,
        wanted: Wanted<'_>,
        out: &mut Vec<u8>,
    ) -> Result<Option<Found>, Cold> {
        self.view.load().read_block(hash, wanted, out)
    }

    /// Reads the stretch of a part that is of the transaction with `hash` in this way. Also returns the
    /// position of the transaction.
    pub fn read_transaction(
        self,
        hash: &Hash,
        part: usize,
        out: &mut Vec<u8>,
    ) -> Result<Option<(Found, usize)>, Cold> {
        self.view.load().read_transaction(hash, part, out)
    }
}
