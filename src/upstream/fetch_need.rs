//! Heights that are needed, and what for.

use std::time::{Duration, Instant};

use neve_store::Hash;

/// Purpose of a height, in the order in which heights are served.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Priority {
    /// Following the head.
    Follow,
    /// Between the store's head and the upstream's.
    CatchUp,
    /// Below the first served height.
    Backfill,
}

impl Priority {
    /// True if an upstream may be asked for one more height, of which `in_flight` are, `following`
    /// of them to follow.
    pub(super) fn has_room(self, in_flight: usize, following: usize, window: usize) -> bool {
        match self {
            Self::Follow => true,
            // Any other request makes the upstream slower with the head. One at a time goes on,
            // because heads may come as fast as responses.
            Self::Backfill if following > 0 => in_flight == following,
            Self::CatchUp | Self::Backfill => in_flight < window,
        }
    }
}

/// A height that is needed.
#[derive(Debug, Clone)]
pub(crate) struct FetchNeed {
    pub(crate) height: u64,
    pub(crate) purpose: Priority,
    /// The hash of its block, if that is known.
    pub(crate) hash: Option<Hash>,
    /// Upstreams, by place, that are not asked for it before then.
    pub(crate) not: Vec<(usize, Instant)>,
}

impl FetchNeed {
    pub(crate) fn new(height: u64, purpose: Priority) -> Self {
        Self { height, purpose, hash: None, not: Vec::new() }
    }

    /// Lets an upstream alone with it for a while.
    pub(crate) fn not(&mut self, place: usize, wait: Duration) {
        self.not.retain(|(other, _)| *other != place);
        self.not.push((place, Instant::now() + wait));
    }

    pub(super) fn not_before(&self, place: usize, now: Instant) -> Option<Instant> {
        let until = self.not.iter().find(|(other, _)| *other == place)?.1;
        (until > now).then_some(until)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn history_comes_one_height_at_a_time_while_a_head_is_under_way() {
        let history = |in_flight, following| Priority::Backfill.has_room(in_flight, following, 8);
        assert!(history(7, 0) && !history(8, 0), "as many as the window has");
        assert!(history(1, 1) && history(3, 3), "but one, beside heads");
        assert!(!history(2, 1) && !history(7, 1), "and no more");
        assert!(Priority::CatchUp.has_room(7, 1, 8) && !Priority::CatchUp.has_room(8, 1, 8));
        assert!(Priority::Follow.has_room(100, 1, 8), "a head waits for nothing");
    }
}
