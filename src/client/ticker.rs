//! Ticks of a thread: one timer for all that look now and then at the clock or at their clients.
//!
//! A timer of its own for each request takes locks, and if it is the next one to fire, tokio also
//! wakes the thread that sets it: a write to an eventfd and one more turn of the runtime.

use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Waker};

use slab::Slab;
use tokio::time::{Instant, sleep};

use crate::shared::GONE_INTERVAL;
use crate::shared::lock::lock;

/// Ticks of one thread. Its timer runs while anything waits for a tick.
#[derive(Debug, Clone, Default)]
pub(crate) struct Ticker(Arc<Mutex<Waits>>);

#[derive(Debug, Default)]
struct Waits {
    all: Slab<Wait>,
    /// True while the timer runs.
    runs: bool,
}

#[derive(Debug)]
struct Wait {
    waker: Waker,
    age: Age,
}

#[derive(Debug, PartialEq, Eq)]
enum Age {
    /// Began after the last tick: the next one comes too soon for it.
    New,
    Old,
    Over,
}

/// Wait for a tick: ready one to two intervals after it is first polled, and then again.
#[derive(Debug)]
pub(crate) struct Tick {
    ticker: Ticker,
    place: Option<usize>,
}

impl Ticker {
    pub(crate) fn tick(&self) -> Tick {
        Tick { ticker: self.clone(), place: None }
    }

    /// Awaits work as long as its client is there. `None` if the client has gone.
    pub(crate) async fn while_here<T>(
        &self,
        mut work: Pin<&mut impl Future<Output = T>>,
        mut has_gone: impl FnMut() -> bool,
    ) -> Option<T> {
        let mut tick = self.tick();
        poll_fn(|context| match work.as_mut().poll(context) {
            Poll::Ready(done) => Poll::Ready(Some(done)),
            Poll::Pending => tick.poll_until(context, &mut has_gone).map(|()| None),
        })
        .await
    }

    /// Awaits work until `deadline`, which is noticed up to two intervals late.
    pub(crate) async fn until<T>(
        &self,
        deadline: Instant,
        work: Pin<&mut impl Future<Output = T>>,
    ) -> Option<T> {
        self.while_here(work, || Instant::now() >= deadline).await
    }

    /// Begins a wait; returns its place.
    fn begin(&self, context: &Context<'_>) -> usize {
        let mut waits = lock(&self.0);
        // The task ends when nothing waits, so that an idle thread sleeps.
        if !std::mem::replace(&mut waits.runs, true) {
            tokio::spawn(self.clone().run());
        }
        waits.all.insert(Wait { waker: context.waker().clone(), age: Age::New })
    }

    async fn run(self) {
        loop {
            sleep(GONE_INTERVAL).await;
            let over = {
                let mut waits = lock(&self.0);
                waits.runs = !waits.all.is_empty();
                if !waits.runs {
                    return;
                }
                waits.ring()
            };
            // Without the lock, which tasks that wake up take.
            over.into_iter().for_each(Waker::wake);
        }
    }
}

impl Waits {
    /// Ends the waits that are old enough.
    fn ring(&mut self) -> Vec<Waker> {
        let mut over = Vec::new();
        for (_, wait) in &mut self.all {
            match wait.age {
                Age::New => wait.age = Age::Old,
                Age::Old => {
                    wait.age = Age::Over;
                    over.push(wait.waker.clone());
                }
                Age::Over => {}
            }
        }
        over
    }
}

impl Tick {
    /// Ready once `is_over` says so at a tick.
    pub(crate) fn poll_until(
        &mut self,
        context: &mut Context<'_>,
        mut is_over: impl FnMut() -> bool,
    ) -> Poll<()> {
        while self.poll(context).is_ready() {
            if is_over() {
                return Poll::Ready(());
            }
        }
        Poll::Pending
    }

    fn poll(&mut self, context: &Context<'_>) -> Poll<()> {
        let Some(place) = self.place else {
            self.place = Some(self.ticker.begin(context));
            return Poll::Pending;
        };
        let mut waits = lock(&self.ticker.0);
        let wait = &mut waits.all[place];
        if wait.age == Age::Over {
            waits.all.remove(place);
            self.place = None;
            return Poll::Ready(());
        }
        wait.waker.clone_from(context.waker());
        Poll::Pending
    }
}

impl Drop for Tick {
    fn drop(&mut self) {
        if let Some(place) = self.place {
            // The task would wake work that has ended.
            lock(&self.ticker.0).all.remove(place);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;
    use std::future::{pending, ready};
    use std::pin::pin;

    use super::*;

    #[tokio::test]
    async fn work_ends_with_its_client_or_its_time() {
        let ticker = Ticker::default();
        assert_eq!(ticker.while_here(pin!(pending::<()>()), || true).await, None);
        let (began, limit) = (Instant::now(), 3 * GONE_INTERVAL);
        assert_eq!(ticker.until(began + limit, pin!(pending::<()>())).await, None);
        assert!(began.elapsed() >= limit);
        assert_eq!(ticker.until(began, pin!(ready(1))).await, Some(1));
    }

    #[tokio::test]
    async fn client_is_looked_for_again_and_again() {
        let (ticker, looks) = (Ticker::default(), Cell::new(0));
        // Nothing but the tick wakes it.
        let work = pin!(poll_fn(|_| if looks.get() < 3 { Poll::Pending } else { Poll::Ready(()) }));
        let here = ticker.while_here(work, || {
            looks.set(looks.get() + 1);
            false
        });
        assert_eq!((here.await, looks.get()), (Some(()), 3));
    }

    #[tokio::test]
    async fn timer_runs_only_while_something_waits() {
        let ticker = Ticker::default();
        for _ in 0..3 {
            let waits = (0..9).map(|_| ticker.clone()).map(|ticker| async move {
                ticker.while_here(pin!(pending::<()>()), || true).await
            });
            futures_util::future::join_all(waits).await;
            assert!(lock(&ticker.0).all.is_empty());
            while lock(&ticker.0).runs {
                sleep(GONE_INTERVAL).await;
            }
        }
    }
}
