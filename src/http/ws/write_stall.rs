//! Writing of responses and notifications, and detection of a slow client.

use std::future::{Future, poll_fn};
use std::io;
use std::pin::pin;
use std::task::Poll;
use std::time::{Duration, Instant};

use futures_util::SinkExt;
use tokio_tungstenite::tungstenite::Error;

use super::message_reader::Socket;
use crate::body::BodyBuilder;
use crate::http::response::ResponseWriter;

/// Bytes after which notifications are written though more are to come. At the end of a height they are written in
/// any case. This bounds the memory of a range that is replayed.
const WRITE_BUFFER: usize = 64 << 10;

/// Time that writing has waited for the client since the connection was last at the head.
///
/// Being behind alone says little: when the store itself catches up after an outage, every
/// subscriber is behind, and most of them only wait for their turn.
#[derive(Debug, Default)]
pub(crate) struct WriteStall {
    waiting_since: Option<Instant>,
    waited: Duration,
}

impl WriteStall {
    /// Awaits a write, and adds the time that it waited for the client.
    pub(crate) async fn of<T>(&mut self, write: impl Future<Output = T>) -> T {
        // A first poll without the clock: most writes need no wait.
        let mut write = pin!(write);
        let first = poll_fn(|context| Poll::Ready(write.as_mut().poll(context))).await;
        if let Poll::Ready(done) = first {
            return done; // nearly always
        }
        let start = Instant::now();
        self.waiting_since.get_or_insert(start);
        let done = write.await;
        self.waited += start.elapsed();
        done
    }

    /// All that there was has been told.
    pub(crate) fn at_head(&mut self) {
        *self = Self::default();
    }

    /// True if the client is slow and by now behind by more heights than it may be.
    pub(crate) fn is_too_slow(&self, lag: u64, lag_max: u64) -> bool {
        lag > lag_max && self.is_slow()
    }

    /// True if most of the time since the first wait was spent in waits.
    fn is_slow(&self) -> bool {
        self.waiting_since.is_some_and(|since| self.waited * 2 > since.elapsed())
    }
}

/// Writes a response behind what tungstenite has to write. Should this be dropped before the end,
/// what tungstenite writes next comes behind the rest.
pub(super) async fn write(socket: &mut Socket, out: ResponseWriter) -> Result<(), Error> {
    socket.flush().await?;
    socket.get_mut().begin(out);
    Ok(poll_fn(|context| socket.get_mut().poll_send(context)).await?)
}

/// Writes notifications if they are many. Returns true if it did.
pub(super) async fn write_much(
    news: &mut BodyBuilder,
    socket: &mut Socket,
    pace: &mut WriteStall,
) -> Result<bool, Error> {
    let are_many = news.len() >= WRITE_BUFFER;
    if are_many {
        write_news(news, socket, pace).await?;
    }
    Ok(are_many)
}

pub(super) async fn write_news(
    news: &mut BodyBuilder,
    socket: &mut Socket,
    pace: &mut WriteStall,
) -> Result<(), Error> {
    let body = std::mem::take(news).finish().map_err(io::Error::other)?;
    pace.of(write(socket, ResponseWriter::with_head(Vec::new(), body))).await
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pace(since_ms: u64, waited_ms: u64) -> WriteStall {
        let since = Instant::now().checked_sub(Duration::from_millis(since_ms));
        WriteStall { waiting_since: since, waited: Duration::from_millis(waited_ms) }
    }

    #[test]
    fn slow_is_who_lets_wait() {
        assert!(!WriteStall::default().is_slow());
        assert!(pace(1000, 900).is_slow());
        assert!(!pace(10_000, 900).is_slow());
        let mut caught_up = pace(1000, 900);
        caught_up.at_head();
        assert!(!caught_up.is_slow());
    }

    #[test]
    fn the_limit_itself_is_allowed() {
        let slow = pace(1000, 900);
        assert!(!slow.is_too_slow(100, 100));
        assert!(slow.is_too_slow(101, 100));
        assert!(!slow.is_too_slow(0, 0));
        assert!(slow.is_too_slow(1, 0));
        assert!(!pace(10_000, 900).is_too_slow(u64::MAX, 100), "it only waits for its turn");
    }

    #[tokio::test]
    async fn only_waits_count() {
        let mut pace = WriteStall::default();
        assert_eq!(pace.of(std::future::ready(7)).await, 7);
        assert!(pace.waiting_since.is_none());
        pace.of(tokio::time::sleep(Duration::from_millis(20))).await;
        assert!(pace.waited >= Duration::from_millis(20) && pace.is_slow());
    }
}
