//! Filters, subscriptions and new heads: positions in the chain that outlive a call.

mod filter_id;
mod filters;
mod head_cache;
mod replays;
mod subscriptions;

pub(crate) use filter_id::{is_filter_id, new_filter_id};
pub(crate) use filters::{Change, FilterKind, Filters, UndoLog};
pub(crate) use head_cache::HeadCache;
pub(crate) use replays::Replays;
pub(crate) use subscriptions::{
    OpenSubscription, SubscriptionKind, SubscriptionRefused, Subscriptions,
};
