//! Turns of the subscribers of a thread that replay stored heights.
//!
//! A replay waits for nothing. A thousand of them, one turn each, would hold up all other requests of
//! the thread for the sum of their turns. So between any two turns the thread looks for other work and
//! does it.

use std::sync::Arc;

use tokio::sync::Semaphore;

/// The turn of a thread, which goes around in the order of the requests for it.
#[derive(Clone)]
pub(crate) struct Replays(Arc<Semaphore>);

impl Default for Replays {
    fn default() -> Self {
        Self(Arc::new(Semaphore::new(1)))
    }
}

impl Replays {
    /// Waits for a turn. It ends at once, so no subscriber can keep it.
    pub(crate) async fn turn(&self) {
        let turn = self.0.acquire().await; // the semaphore is never closed
        // This comes back after the runtime has looked at its sockets (tokio defers the wake-up until
        // then), with what they have for it before the next turn.
        tokio::task::yield_now().await;
        drop(turn);
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use tokio::io::{AsyncReadExt, AsyncWriteExt, duplex};

    use super::*;

    #[tokio::test(flavor = "current_thread")]
    async fn other_work_is_done_between_any_two_turns() {
        let (replays, turns) = (Replays::default(), Cell::new(0));
        let replay = async {
            for _ in 0..10 {
                replays.turn().await;
                turns.set(turns.get() + 1);
            }
        };
        let many = futures_util::future::join_all((0..1).map(|_| replay_of(&replays, &turns)));
        let (mut near, mut far) = duplex(1);
        let other = async {
            let mut seen = Vec::new();
            for _ in 0..5 {
                near.write_all(b"x").await.unwrap();
                far.read_exact(&mut [0]).await.unwrap();
                seen.push(turns.get());
                tokio::task::yield_now().await;
            }
            seen
        };
        let ((), _, seen) = tokio::join!(replay, many, other);
        assert!(seen.windows(2).all(|pair| pair[1] - pair[0] <= 2), "{seen:?}");
    }

    async fn replay_of(replays: &Replays, turns: &Cell<i32>) {
        for _ in 0..10 {
            replays.turn().await;
            turns.set(turns.get() + 1);
        }
    }
}
