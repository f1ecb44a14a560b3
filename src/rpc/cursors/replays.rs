//! Turns of the subscribers of a thread that replay what is stored.
//!
//! A replay has nothing to wait for. A thousand of them, each with its turn, would hold up all other
//! requests of the thread for as long as all of those take together. So between two turns, of whichever
//! subscribers, the thread looks for other work and does it.

use std::sync::Arc;

use tokio::sync::Semaphore;

/// Whose turn it is: the turns come in the order in which they were wanted.
#[derive(Clone)]
pub(crate) struct Replays(Arc<Semaphore>);

impl Default for Replays {
    fn default() -> Self {
        Self(Arc::new(Semaphore::new(1)))
    }
}

impl Replays {
    /// Waits for a turn. Whoever has it must not keep others waiting: it ends by itself.
    pub(crate) async fn turn(&self) {
        let turn = self.0.acquire().await; // nobody closes it
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
