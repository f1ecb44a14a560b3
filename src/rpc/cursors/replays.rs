//! Turns of the subscribers of a thread that replay stored heights, or have many notifications of one height.
//!
//! A replay waits for nothing. A thousand of them, one turn each, would hold up all other requests of
//! the thread for the sum of their turns. So between any two turns the thread looks for other work and
//! does it.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::Semaphore;
use tokio::time::Instant;

/// Time that a subscriber may work before others of its thread go on.
const WORK_TIME: Duration = Duration::from_micros(100);

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

    /// Waits for a turn if the subscriber worked for long since `began`, which it sets anew.
    pub(crate) async fn give_way(&self, began: &mut Instant) {
        if Self::is_long(*began) {
            self.turn().await;
            *began = Instant::now();
        }
    }

    /// True if a subscriber that began then has others of its thread wait.
    pub(crate) fn is_long(began: Instant) -> bool {
        began.elapsed() > WORK_TIME
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

    #[tokio::test(flavor = "current_thread")]
    async fn long_work_gives_way_and_short_work_does_not() {
        let (replays, others) = (Replays::default(), Cell::new(0));
        let other = async {
            others.set(1);
            tokio::task::yield_now().await;
            others.set(2);
        };
        let work = async {
            let mut began = Instant::now() + Duration::from_mins(1);
            replays.give_way(&mut began).await;
            assert_eq!(others.get(), 0);
            began = Instant::now().checked_sub(2 * WORK_TIME).unwrap();
            replays.give_way(&mut began).await;
            assert!(others.get() > 0 && began.elapsed() < Duration::from_mins(1));
        };
        tokio::join!(work, other);
    }

    async fn replay_of(replays: &Replays, turns: &Cell<i32>) {
        for _ in 0..10 {
            replays.turn().await;
            turns.set(turns.get() + 1);
        }
    }
}
