//! Space for the store: eviction, and packing that makes eviction needless.
//!
//! Of ranges that are due to be packed the retention counts the bytes that they take when they are packed. Until then the
//! store is beyond its bound, and following waits for the packer rather than go further.

use std::time::{Duration, SystemTime};

use metrics::{counter, gauge};
use neve_store::{Error, Evicted, Hold};
use tracing::{error, info, warn};

use super::{Loop, ended};
use crate::config::Human;
use crate::ingest::full_disk::Step;
use crate::ingest::packer::Packed;
use crate::shared::Phase;

/// Time that a full disk is left alone.
const DISK_FULL_PAUSE: Duration = Duration::from_secs(2);

impl Loop {
    /// Evicts on a full disk, or waits. Evicts also ranges that the archive lacks: the newest heights are
    /// worth more than the oldest. Returns true after a pause.
    pub(super) async fn make_room(&mut self, has_paused: bool) -> Result<bool, Error> {
        // First by the rule: that may free enough.
        let hold = self.hold();
        let evicted = self.evict_unless(hold)?;
        let step = Step::after(&evicted, has_paused);
        match step {
            Step::Append => {}
            Step::Pause => return self.pause().await,
            Step::EvictHeld => {
                let bytes_max = evicted.held - 1; // the oldest goes, and the others as the disk fills again
                self.evict_unless(hold.map(|hold| Hold { bytes_max, ..hold }))?;
            }
        }
        Ok(false)
    }

    /// Waits for space, which packing may give. Returns true if nothing can have changed.
    async fn pause(&mut self) -> Result<bool, Error> {
        self.packer.begin(&self.setup.writer);
        self.begin_sync(); // records before the one that waits must not wait with it
        tokio::select! {
            Some(synced) = ended(&mut self.syncing) => {
                self.setup.writer.end_sync(synced).map(|()| false)
            }
            Some(packed) = self.packer.ended() => self.packed(packed).map(|()| false),
            () = tokio::time::sleep(DISK_FULL_PAUSE) => Ok(!self.packer.is_at_work()),
        }
    }

    pub(super) fn disk_full(&self, error: &Error) {
        // One line when it begins: the append is tried again and again.
        if self.setup.status.words().store_error.is_none() {
            error!(%error, "storing paused");
        }
        self.setup.status.set_store_error(Some(error.to_string()));
    }

    /// Takes work of the packer. What it has packed counts at once.
    pub(super) fn packed(&mut self, packed: Packed) -> Result<(), Error> {
        self.packer.publish(&mut self.setup.writer, packed)?;
        self.evict()
    }

    /// True if nothing is appended before the packer has given space back. Heads do not wait.
    pub(super) fn waits_for_packer(&self) -> bool {
        self.excess > 0
            && self.packer.is_at_work()
            && self.setup.status.phase() == Phase::CatchingUp
    }

    pub(super) fn evict(&mut self) -> Result<(), Error> {
        self.evict_unless(self.hold()).map(drop)
    }

    fn evict_unless(&mut self, hold: Option<Hold>) -> Result<Evicted, Error> {
        let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
        // A clock before 1970 makes no block too old.
        let now = now.map_or(0, |since| since.as_secs());
        let (writer, retention) = (&mut self.setup.writer, &self.setup.retention);
        let packable = self.packer.packable();
        let evicted = writer.evict_unless_held(retention, hold.as_ref(), packable, now)?;
        self.excess = evicted.excess;
        self.packer.press(self.excess > 0 || self.setup.status.words().store_error.is_some());
        let Evicted { segments, quarantined, heights, bytes, uncopied, held, .. } = evicted;
        if let Some(limit) = self.setup.unpushed_bytes_max {
            note_held(held, limit, uncopied);
        }
        if segments + quarantined > 0 {
            counter!("neve_blocks_evicted_total").increment(heights);
            info!(segments, quarantined, heights, bytes = %Human(bytes), "segments evicted");
        }
        Ok(evicted)
    }

    /// Returns the hold on segments that the archive lacks, if neve pushes.
    fn hold(&self) -> Option<Hold> {
        let bytes_max = self.setup.unpushed_bytes_max?;
        let push = self.setup.status.archive().and_then(|archive| archive.push).unwrap_or_default();
        // Right after a start it is not known yet what is in the archive.
        let bytes_max = if push.has_looked() { bytes_max } else { u64::MAX };
        Some(Hold { copied: push.heights, from: push.from, bytes_max })
    }
}

/// Counts segments that wait for the archive, and heights that went without a copy.
#[expect(clippy::cast_precision_loss, reason = "gauges are doubles")]
fn note_held(held_bytes: u64, limit_bytes: u64, uncopied: u64) {
    gauge!("neve_archive_held_bytes").set(held_bytes as f64);
    gauge!("neve_archive_held_limit_bytes").set(limit_bytes as f64);
    counter!("neve_archive_lost_heights_total").increment(uncopied);
    if uncopied > 0 {
        warn!(heights = uncopied, "heights evicted before they were archived");
    }
}
