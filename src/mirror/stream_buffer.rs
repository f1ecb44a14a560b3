//! Records that came over the stream and that no task has taken yet.
//!
//! A task that needs a height waits here for it while the stream approaches it. Otherwise it requests the height
//! over JSON-RPC. The waiting records are bounded in bytes. Beyond the bound the stream is not read until there
//! is space.

use std::collections::BTreeMap;
use std::ops::RangeBounds;
use std::sync::{Mutex, MutexGuard};
use std::time::Duration;

use bytes::Bytes;
use tokio::sync::watch;
use tokio::time::error::Elapsed;
use tokio::time::timeout;

use crate::shared::lock::lock;

/// Bytes that may wait. One record more always may.
const BYTES_MAX: usize = 4 << 20;
/// Memory of a waiting record beside its texts. Nodes of the map may be half empty.
const ENTRY_BYTES: usize = 256;
const _: () = assert!(ENTRY_BYTES >= 3 * size_of::<(u64, StreamedPayload)>());
/// A stream that brings nothing for so long is not waited for.
const PATIENCE: Duration = Duration::from_secs(2);
/// Time after which a record that was not taken came from elsewhere.
const UNWANTED_AFTER: Duration = Duration::from_secs(1);

/// A block and its receipts, as they came.
type StreamedPayload = (Bytes, Bytes);

/// Bytes that a waiting record takes.
fn memory_of(texts: &StreamedPayload) -> usize {
    ENTRY_BYTES + texts.0.len() + texts.1.len()
}

/// Records between the stream and the tasks that need them.
#[derive(Debug)]
pub(crate) struct StreamBuffer {
    state: Mutex<State>,
    /// Changes whenever the state does.
    changes: watch::Sender<u64>,
}

#[derive(Debug, Default)]
struct State {
    live: bool,
    /// The height that the stream brings next.
    next: u64,
    waiting: BTreeMap<u64, StreamedPayload>,
    bytes: usize,
}

impl State {
    fn remove(&mut self, height: u64) -> Option<StreamedPayload> {
        let texts = self.waiting.remove(&height)?;
        self.bytes -= memory_of(&texts);
        Some(texts)
    }

    /// Drops records. Looks at no others: it is called for each record that comes.
    fn remove_all(&mut self, heights: impl RangeBounds<u64> + Clone) {
        let next = |state: &Self| state.waiting.range(heights.clone()).next().map(|(at, _)| *at);
        while let Some(height) = next(self) {
            self.remove(height);
        }
    }
}

impl Default for StreamBuffer {
    fn default() -> Self {
        Self { state: Mutex::default(), changes: watch::Sender::new(0) }
    }
}

impl StreamBuffer {
    fn change<T>(&self, change: impl FnOnce(&mut State) -> T) -> T {
        let changed = change(&mut self.state());
        self.changes.send_modify(|count| *count += 1);
        changed
    }

    fn state(&self) -> MutexGuard<'_, State> {
        // Nothing panics while it is held.
        lock(&self.state)
    }

    /// A stream begins with `next`.
    pub(crate) fn begin(&self, next: u64) {
        self.change(|state| *state = State { live: true, next, ..State::default() });
    }

    /// Notes that the stream has ended.
    pub(crate) fn end(&self) {
        self.change(|state| *state = State::default());
    }

    /// Takes a height from the stream, once there is space. What is below `stored` is not needed.
    pub(crate) async fn put(&self, height: u64, texts: StreamedPayload, stored: u64) {
        while self.room(|| !self.is_full(stored)).await.is_err() {
            // No task takes them: the heights were fetched otherwise, and the stream would stand
            // still.
            self.change(|state| state.remove_all(..));
        }
        // They are slices of the buffer that they came in, which may be far longer than they are.
        let texts = (Bytes::copy_from_slice(&texts.0), Bytes::copy_from_slice(&texts.1));
        self.change(|state| {
            state.next = height + 1;
            state.bytes += memory_of(&texts);
            state.waiting.insert(height, texts);
        });
    }

    /// Waits until there is space. Fails if nothing changes for a while.
    async fn room(&self, has_room: impl Fn() -> bool) -> Result<(), Elapsed> {
        let mut changes = self.changes.subscribe();
        loop {
            changes.borrow_and_update(); // before the look: a change after it ends the wait
            if has_room() {
                return Ok(());
            }
            let _: Result<(), _> = timeout(UNWANTED_AFTER, changes.changed()).await?;
        }
    }

    fn is_full(&self, stored: u64) -> bool {
        let mut state = self.state();
        state.remove_all(..stored);
        state.bytes >= BYTES_MAX
    }

    /// Heights from `from` on were taken back.
    pub(crate) fn withdraw(&self, from: u64) {
        self.change(|state| {
            state.remove_all(from..);
            state.next = state.next.min(from);
        });
    }

    /// The texts of a height; `None` if the stream does not bring it.
    pub(crate) async fn take(&self, height: u64) -> Option<StreamedPayload> {
        let mut changes = self.changes.subscribe();
        loop {
            changes.borrow_and_update();
            {
                let mut state = self.state();
                if !state.live || height < state.next {
                    let texts = state.remove(height);
                    // `change` takes the lock, too.
                    drop(state);
                    if texts.is_some() {
                        self.change(|_| {}); // there is space
                    }
                    return texts;
                }
            }
            timeout(PATIENCE, changes.changed()).await.ok()?.ok()?;
        }
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use futures_util::FutureExt;

    use super::*;

    fn texts(len: usize) -> StreamedPayload {
        (Bytes::from(vec![b'b'; len]), Bytes::from_static(b"[]"))
    }

    #[tokio::test]
    async fn a_height_is_waited_for_while_the_stream_is_on_its_way_there() {
        let feed = StreamBuffer::default();
        assert_eq!(feed.take(7).await, None, "there is no stream");
        feed.begin(5);
        let (five, seven, ()) = tokio::join!(feed.take(5), feed.take(7), async {
            for height in 5..8 {
                feed.put(height, texts(height as usize), 0).await;
            }
        });
        assert_eq!((five, seven), (Some(texts(5)), Some(texts(7))));
        assert_eq!(feed.take(6).await, Some(texts(6)));
        assert_eq!(feed.take(6).await, None, "it was taken");
        assert_eq!(feed.take(8).await, None, "nothing comes");
        let (eight, ()) = tokio::join!(feed.take(8), async { feed.end() });
        assert_eq!(eight, None, "it has ended");
    }

    #[tokio::test]
    async fn waiting_payloads_are_bounded_and_stored_ones_dropped() {
        let feed = StreamBuffer::default();
        feed.begin(0);
        for height in 0..8 {
            feed.put(height, texts(1 << 20), 0).await;
            assert!(feed.state().bytes <= BYTES_MAX + (1 << 20) + 2 * ENTRY_BYTES);
        }
        feed.put(8, texts(1), 8).await;
        assert_eq!(feed.state().waiting.len(), 1, "what is stored is not needed");
    }

    #[tokio::test]
    async fn room_that_comes_during_the_look_ends_the_wait() {
        let feed = StreamBuffer::default();
        let looks = Cell::new(0);
        let has_room = || {
            feed.change(|_| looks.set(looks.get() + 1));
            looks.get() == 2
        };
        assert!(feed.room(has_room).await.is_ok());
        assert_eq!(looks.get(), 2);
    }

    #[tokio::test]
    async fn records_without_bytes_are_bounded_too() {
        let feed = StreamBuffer::default();
        feed.begin(0);
        let put = |height, stored| feed.put(height, StreamedPayload::default(), stored);
        let first_to_wait = (0..100_000).find(|height| put(*height, 0).now_or_never().is_none());
        assert_eq!(first_to_wait, Some((BYTES_MAX / ENTRY_BYTES) as u64));
        assert_eq!(feed.state().bytes, BYTES_MAX);
        put(16_384, 7).await;
        let heights = feed.state().waiting.keys().copied().collect::<Vec<_>>();
        assert_eq!(heights, (7..=16_384).collect::<Vec<_>>());
        feed.withdraw(9);
        let state = feed.state();
        assert_eq!((state.waiting.len(), state.bytes), (2, 2 * ENTRY_BYTES));
    }

    #[tokio::test]
    async fn waiting_texts_hold_no_longer_buffer() {
        let feed = StreamBuffer::default();
        feed.begin(0);
        let buffer = Bytes::from(vec![b'b'; 1 << 20]);
        feed.put(0, (buffer.slice(..9), buffer.slice(9..11)), 0).await;
        assert!(buffer.is_unique(), "a megabyte waits for 11 bytes");
        assert_eq!(feed.take(0).await, Some((buffer.slice(..9), buffer.slice(9..11))));
    }

    #[tokio::test]
    async fn withdrawn_height_comes_again() {
        let feed = StreamBuffer::default();
        feed.begin(1);
        feed.put(1, texts(1), 0).await;
        feed.put(2, texts(2), 0).await;
        feed.withdraw(2);
        let (two, ()) = tokio::join!(feed.take(2), feed.put(2, texts(3), 0));
        assert_eq!((feed.take(1).await, two), (Some(texts(1)), Some(texts(3))));
    }
}
