//! Surroundings of a query.

use super::fee_cache::FeeCache;
use crate::config::settings::Limits;
use crate::rpc::cursors::{Filters, UndoLog};
use crate::shared::{Meter, Serving, Status, Work};

/// Where answers come from, and what they may cost.
pub(crate) struct QueryContext<'a> {
    pub(crate) serving: &'a Serving,
    pub(crate) status: &'a Status,
    pub(crate) filters: &'a Filters,
    pub(crate) fees: &'a FeeCache,
    pub(crate) limits: &'a Limits,
    pub(crate) work: &'a Work<'a>,
    /// Of the response.
    pub(crate) memory: &'a Meter<'a>,
    /// What answering changed.
    pub(crate) changes: UndoLog,
}
