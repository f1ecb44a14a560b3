//! Surroundings of a query.

use std::sync::Arc;

use super::fee_cache::FeeCache;
use super::lending::{Below, LogsBeyond};
use crate::config::settings::Limits;
use crate::rpc::cursors::{Filters, UndoLog};
use crate::shared::{Began, Meter, Serving, Status, Work};

/// Sources of responses, and their limits.
pub(crate) struct QueryContext<'a> {
    pub(crate) serving: &'a Serving,
    pub(crate) status: &'a Status,
    pub(crate) filters: &'a Filters,
    pub(crate) fees: &'a FeeCache,
    pub(crate) limits: &'a Limits,
    pub(crate) work: &'a Work<'a>,
    /// Memory of the response.
    pub(crate) memory: &'a Meter<'a>,
    /// Changes to filters that the query made.
    pub(crate) changes: UndoLog,
    /// Heights below the served range, if there are any.
    pub(crate) below: Option<&'a dyn Below>,
    /// Values and heights that were fetched for the body.
    pub(crate) fetched: &'a Fetched,
}

/// Values and heights that were fetched for one body. Each is fetched once: what did not come is a miss.
#[derive(Clone, Default)]
pub(crate) struct Fetched {
    /// Begin of the request, if prices were requested for it. Calls before a price may take longer than a price stays
    /// new, so one that came since then is new for all of the body.
    pub(crate) prices_since: Option<Began>,
    /// True if the heights below the served range that the body names were lent.
    pub(crate) has_lent: bool,
    /// True if some of them could not be had: another attempt may succeed.
    pub(crate) try_again: bool,
    /// Calls for logs that need too many reads of them.
    pub(crate) beyond: Arc<[LogsBeyond]>,
}
