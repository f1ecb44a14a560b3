//! Votes of upstreams on the block of a height.

use metrics::counter;
use neve_store::Record;
use tracing::warn;

use crate::client::CallError;
use crate::upstream::Upstream;

/// Places of the upstreams that have a block, and of those that have another one at its height.
pub(super) struct Votes {
    pub(super) agreed: Vec<usize>,
    pub(super) denied: Vec<usize>,
}

impl Votes {
    /// True if the upstream at this place has voted.
    pub(super) fn has(&self, place: usize) -> bool {
        self.agreed.contains(&place) || self.denied.contains(&place)
    }

    /// Asks an upstream for its hash at the height of a record.
    pub(super) async fn ask(&mut self, place: usize, upstream: &Upstream, record: &Record) {
        upstream.charge(1);
        match upstream.client.hash(record.height).await {
            Ok(Some(hash)) if hash == record.hash => self.agreed.push(place),
            Ok(Some(hash)) => {
                let upstream = &upstream.name;
                warn!(record.height, ours = %record.hash, theirs = %hash, upstream, "upstreams disagree");
                counter!("neve_upstream_disagreements_total").increment(1);
                self.denied.push(place);
            }
            Err(CallError::Throttled { after, .. }) => upstream.throttles(after),
            // Not yet, or its monitor will notice: it may never give a height that ends its bad luck.
            Ok(None) | Err(_) => {}
        }
    }
}
