//! Surroundings of following, backfill and repair.

use std::sync::Arc;

use neve_store::{Identity, Retention};

use super::evidence::Evidence;
#[cfg(feature = "archive")]
use crate::archive::ArchiveSource;
use crate::config::settings::{BackfillTarget, FetchConfig, LiveRates};
use crate::config::{Endpoint, StartAt};
use crate::ingest::Ingest;
use crate::shared::{IngestBudget, Serving, StageTimes, Status};
use crate::upstream::PoolSlot;

/// Follows the heads of the upstreams, and fetches the blocks that the store lacks.
pub(crate) struct Follower {
    pub(crate) endpoints: Vec<Endpoint>,
    pub(crate) tls: rustls::ClientConfig,
    pub(crate) config: FetchConfig,
    pub(crate) rates: LiveRates,
    pub(crate) start: StartAt,
    pub(crate) backfill: BackfillTarget,
    pub(crate) retention: Retention,
    /// Newest bytes that stay unpacked; `None`: nothing is packed.
    pub(crate) unpacked_bytes: Option<u64>,
    /// The chain that the upstreams must serve, if that is known.
    pub(crate) expected: Option<Identity>,
    /// True if the last endpoint is a neve to be a copy of.
    pub(crate) mirror: bool,
    pub(crate) serving: Arc<Serving>,
    pub(crate) status: Arc<Status>,
    pub(crate) ingest: Ingest,
    pub(crate) budget: IngestBudget,
    pub(crate) evidence: Evidence,
    pub(crate) busy: Arc<StageTimes>,
    /// Archive that whole segments come from.
    #[cfg(feature = "archive")]
    pub(crate) archive: Option<Arc<ArchiveSource>>,
    /// Place of the pool, for others who ask its upstreams.
    pub(crate) pool: PoolSlot,
}
