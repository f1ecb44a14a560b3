//! Surroundings of a query.

use super::fee_cache::FeeCache;
use super::lending::{Below, LogsBeyond};
use crate::config::settings::Limits;
use crate::rpc::cursors::{Filters, UndoLog};
use crate::shared::{Meter, Serving, Status, Work};

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
    /// Calls for logs that need too many reads of those.
    pub(crate) beyond: &'a [LogsBeyond],
}
