//! The next step of the writer on a full disk. Pure.

use neve_store::Evicted;

/// Next step on a full disk.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Step {
    /// Tries again at once: something went.
    Append,
    /// Tries again after a pause.
    Pause,
    /// Deletes the oldest range that waits for the archive, and tries again.
    EvictHeld,
}

impl Step {
    /// Returns the step after an eviction. `has_paused`: the last try came right after a pause.
    ///
    /// A deleted file may give its bytes back late, or another program takes them. So no range goes without a
    /// copy unless the disk was still full after a pause in which nothing else went.
    pub(super) fn after(evicted: &Evicted, has_paused: bool) -> Self {
        match evicted {
            // The disk refuses removals: with more files nothing would be gained.
            Evicted { waiting: true, .. } => Self::Pause,
            // Something went, so there may be space at once.
            Evicted { segments, quarantined, .. } if segments + quarantined > 0 => Self::Append,
            Evicted { held: 1.., .. } if has_paused => Self::EvictHeld,
            _ => Self::Pause,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Steps of a disk that stays full, with so many bytes held and so many segments and quarantined files due.
    fn steps(held: u64, due: &[(usize, usize)]) -> Vec<Step> {
        let (mut steps, mut has_paused) = (Vec::new(), false);
        for at in 0..7 {
            let (segments, quarantined) = due.get(at).copied().unwrap_or_default();
            let evicted = Evicted { segments, quarantined, held, ..Evicted::default() };
            let step = Step::after(&evicted, has_paused);
            has_paused = step == Step::Pause;
            steps.push(step);
        }
        steps
    }

    #[test]
    fn range_without_a_copy_goes_only_after_a_pause_of_its_own() {
        use Step::{EvictHeld, Pause};
        let each = [Pause, EvictHeld, Pause, EvictHeld, Pause, EvictHeld, Pause];
        assert_eq!(steps(100, &[]), each);
    }

    #[test]
    fn append_is_tried_after_all_that_went_by_the_rule() {
        use Step::{Append, EvictHeld, Pause};
        let quarantined = [Append, Append, Pause, EvictHeld, Pause, EvictHeld, Pause];
        assert_eq!(steps(100, &[(0, 1), (2, 0)]), quarantined);
        let amid = [Pause, Append, Pause, EvictHeld, Pause, EvictHeld, Pause];
        assert_eq!(steps(100, &[(0, 0), (0, 1)]), amid, "the pause before counts no more");
    }

    #[test]
    fn disk_that_refuses_removals_is_waited_out() {
        for segments in [0, 1] {
            let evicted = Evicted { segments, held: 100, waiting: true, ..Evicted::default() };
            let steps = [false, true].map(|has_paused| Step::after(&evicted, has_paused));
            assert_eq!(steps, [Step::Pause; 2]);
        }
    }

    #[test]
    fn disk_that_others_fill_is_waited_out() {
        assert_eq!(steps(0, &[]), [Step::Pause; 7]);
    }
}
