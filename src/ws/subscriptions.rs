//! What one connection has subscribed to.

use std::ops::RangeInclusive;

use neve_jsonrpc::{LogFilter, LogRange, RpcError, Subscription};

/// The subscriptions of a connection.
#[derive(Default)]
pub(crate) struct Subscriptions {
    held: Vec<Held>,
    /// How many there may be.
    max: usize,
}

/// One of them.
pub(super) struct Held {
    pub(super) id: String,
    pub(super) topic: Topic,
    /// The height that it is to hear of next; `None` until there is a first one.
    next: Option<u64>,
    /// Whether it has heard of all there was: from then on it must keep up.
    live: bool,
}

/// What it is to hear of.
pub(super) enum Topic {
    /// Each head.
    Heads,
    /// The logs that match, of heights up to the last one.
    Logs(LogFilter, Option<u64>),
}

/// Why there is no new subscription.
pub(crate) enum NotOpened {
    /// The caller is told.
    Error(RpcError),
    /// The height to begin at is not held.
    Missing(u64),
}

impl Subscriptions {
    pub(crate) fn new(max: usize) -> Self {
        Self { held: Vec::new(), max }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.held.is_empty()
    }

    /// Opens one, which hears of what comes after `served`, or from a height on that is served.
    pub(crate) fn open(
        &mut self,
        wanted: Subscription,
        served: Option<RangeInclusive<u64>>,
    ) -> Result<&str, NotOpened> {
        if self.held.len() >= self.max {
            return Err(NotOpened::Error(too_many(self.max)));
        }
        let (topic, from) = match wanted {
            Subscription::NewHeads { from_block } => (Topic::Heads, from_block),
            Subscription::Logs { query, from_block } => {
                (Topic::Logs(query.filter, last(query.range)), from_block)
            }
            Subscription::Unsubscribe(_) => {
                return Err(NotOpened::Error(RpcError::SUBSCRIPTION_NOT_FOUND));
            }
        };
        let after_head = served.as_ref().map(|served| served.end() + 1);
        let next = match (from, after_head.zip(served)) {
            (None, _) => after_head,
            (Some(from), Some((after, held))) if held.contains(&from) || from == after => {
                Some(from)
            }
            (Some(from), _) => return Err(NotOpened::Missing(from)),
        };
        self.held.push(Held { id: new_id(), topic, next, live: next == after_head });
        Ok(self.held.last().map_or("", |held| &held.id))
    }

    /// Ends one; false if there is none of this id.
    pub(crate) fn close(&mut self, id: &str) -> bool {
        let before = self.held.len();
        self.held.retain(|held| held.id != id);
        self.held.len() < before
    }

    /// The lowest height that somebody is to hear of, if it is there.
    pub(super) fn due(&self, first: u64, head: u64) -> Option<u64> {
        let next = self.held.iter().map(|held| held.next.unwrap_or(first));
        next.min().filter(|next| *next <= head)
    }

    /// The heights that the slowest of those who were at the head is behind it now.
    pub(super) fn lag(&self, head: u64) -> u64 {
        let live = self.held.iter().filter(|held| held.live).filter_map(|held| held.next);
        live.map(|next| (head + 1).saturating_sub(next)).max().unwrap_or(0)
    }

    /// Those who are to hear of `height`, which counts as told.
    pub(super) fn tell(&mut self, height: u64, first: u64, head: u64) -> Vec<&Held> {
        let due = |held: &&mut Held| held.next.unwrap_or(first) == height;
        let told = self.held.iter_mut().filter(due).map(|held| {
            held.next = Some(height + 1);
            held.live |= height == head;
            &*held
        });
        told.collect()
    }
}

impl Topic {
    /// Whether it is about a height at all.
    pub(super) fn covers(&self, height: u64) -> bool {
        !matches!(self, Self::Logs(_, Some(through)) if height > *through)
    }
}

/// The last height that a subscription is about, if a number says so.
fn last(range: LogRange) -> Option<u64> {
    match range {
        LogRange::Range { to, .. } => to.number(),
        LogRange::Block(_) => None,
    }
}

fn too_many(max: usize) -> RpcError {
    let message = format!("too many subscriptions on this connection, allowed are {max}");
    RpcError { code: -32000, message: message.into() }
}

/// An id as the node makes them: 128 random bits in hex, without leading zeros.
fn new_id() -> String {
    format!("{:#x}", fastrand::u128(..))
}
