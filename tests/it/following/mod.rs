//! Following, and filling below: upstreams that fail, lie, lag or change.

pub(crate) mod backfill;
mod false_answers;
mod faults;
mod follow;
mod helicon_switch;
mod latest_tag;
mod prices;
mod secrets;
mod stale;
mod start;
mod unproven_head;
mod upstreams;
