//! Wakes of a connection of hyper by the end of its body.
//!
//! hyper wakes a connection when a part of the body that it received is taken. Behind the last part there is nothing
//! to do, and the connection would be polled in vain, with the request that it carries.

use std::cell::RefCell;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Wake, Waker};

use bytes::Bytes;
use hyper::body::{Body, Frame, Incoming};

/// State of the thread's wakes.
#[derive(Default)]
enum WakeHold {
    /// A wake goes to its task.
    #[default]
    None,
    /// A part of a body is being taken, and no connection was woken yet.
    Next,
    /// A connection was woken meanwhile: its waker.
    Woken(Arc<ConnectionWaker>),
}

thread_local! {
    static HELD: RefCell<WakeHold> = const { RefCell::new(WakeHold::None) };
}

/// Waker of the task of a connection.
struct ConnectionWaker(Waker);

impl Wake for ConnectionWaker {
    fn wake(self: Arc<Self>) {
        let holds = HELD.try_with(|held| matches!(*held.borrow(), WakeHold::Next));
        if holds.unwrap_or(false) {
            HELD.set(WakeHold::Woken(self));
        } else {
            self.0.wake_by_ref();
        }
    }
}

/// Wakes of one connection.
#[derive(Default)]
pub(crate) struct ConnectionWakes {
    /// Waker of its task, and the one that it is polled with.
    wakers: Option<(Waker, Waker)>,
}

impl ConnectionWakes {
    /// Returns the context with which the connection is polled.
    pub(crate) fn context(&mut self, context: &Context<'_>) -> Context<'_> {
        let task = context.waker();
        let kept = self.wakers.take().filter(|(known, _)| known.will_wake(task));
        let new = || (task.clone(), Arc::new(ConnectionWaker(task.clone())).into());
        let (_, waker) = self.wakers.insert(kept.unwrap_or_else(new));
        Context::from_waker(waker)
    }
}

/// Ends the hold of wakes, also if hyper panics, and lets go the wake that it has.
struct HoldGuard;

impl HoldGuard {
    fn begin() -> Self {
        HELD.set(WakeHold::Next);
        Self
    }
}

impl Drop for HoldGuard {
    fn drop(&mut self) {
        if let WakeHold::Woken(waker) = HELD.take() {
            waker.0.wake_by_ref();
        }
    }
}

/// Polls the next part of a body. If it is the last one, the connection of the body stays asleep: hyper has read all
/// of the message by then, and its next poll of the body ends it (`proto/h1/conn.rs`, `poll_read_body`;
/// `proto/h1/dispatch.rs`, `poll_read`).
pub(crate) fn poll_part(
    body: &mut Incoming,
    context: &mut Context<'_>,
) -> Poll<Option<Result<Frame<Bytes>, hyper::Error>>> {
    let _hold = HoldGuard::begin();
    let part = Pin::new(&mut *body).poll_frame(context);
    let is_last = matches!(part, Poll::Ready(Some(Ok(_)))) && body.is_end_stream();
    if is_last {
        HELD.set(WakeHold::None);
    }
    part
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;
    use std::future::poll_fn;
    use std::sync::atomic::{AtomicUsize, Ordering};

    use http_body_util::Empty;
    use hyper::header::CONTENT_LENGTH;
    use hyper::server::conn::http1::Builder;
    use hyper::service::service_fn;
    use hyper::{Request, Response};
    use hyper_util::rt::TokioIo;
    use tokio::io::{AsyncWriteExt, DuplexStream, duplex};
    use tokio::task::yield_now;

    use super::*;

    /// Bytes of a body that were taken, and polls of its request from the end of the body on.
    #[derive(Default)]
    struct Seen {
        taken: AtomicUsize,
        polls: AtomicUsize,
    }

    /// Serves a connection whose requests read their bodies and have no response.
    fn serve(server: DuplexStream, seen: &Arc<Seen>) {
        let seen = Arc::clone(seen);
        let respond = service_fn(move |mut request: Request<Incoming>| {
            let seen = Arc::clone(&seen);
            async move {
                while let Some(part) =
                    poll_fn(|context| poll_part(request.body_mut(), context)).await
                {
                    let data = part.expect("a whole body").into_data().expect("no trailers");
                    seen.taken.fetch_add(data.len(), Ordering::Relaxed);
                }
                poll_fn(|_| {
                    seen.polls.fetch_add(1, Ordering::Relaxed);
                    Poll::<()>::Pending
                })
                .await;
                Ok::<_, Infallible>(Response::new(Empty::<Bytes>::new()))
            }
        });
        let mut connection = Builder::new().serve_connection(TokioIo::new(server), respond);
        let mut wakes = ConnectionWakes::default();
        tokio::spawn(poll_fn(move |context| {
            Pin::new(&mut connection).poll(&mut wakes.context(context))
        }));
    }

    /// Head of a request whose body has three bytes.
    fn head() -> String {
        format!("POST / HTTP/1.1\r\nHost: x\r\n{CONTENT_LENGTH}: 3\r\n\r\n")
    }

    /// Has all tasks run until each of them waits.
    async fn settle() {
        for _ in 0..99 {
            yield_now().await;
        }
    }

    #[tokio::test]
    async fn connection_sleeps_behind_the_last_part_of_a_body() {
        let (mut client, server) = duplex(4096);
        let seen = Arc::new(Seen::default());
        serve(server, &seen);
        client.write_all((head() + "abc").as_bytes()).await.expect("room for a request");
        settle().await;
        assert_eq!(seen.taken.load(Ordering::Relaxed), 3);
        assert_eq!(seen.polls.load(Ordering::Relaxed), 1, "nothing wakes it at the end");
    }

    #[tokio::test]
    async fn connection_is_woken_behind_each_other_part_of_a_body() {
        let (mut client, server) = duplex(4096);
        let seen = Arc::new(Seen::default());
        serve(server, &seen);
        let parts = [head() + "a", "b".to_owned(), "c".to_owned()];
        for (at, part) in parts.into_iter().enumerate() {
            client.write_all(part.as_bytes()).await.expect("room for a part");
            settle().await;
            assert_eq!(seen.taken.load(Ordering::Relaxed), at + 1, "the part is taken");
        }
    }
}
