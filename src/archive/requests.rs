//! Requests to the object store, counted by operation.

use std::time::{Duration, Instant};

use metrics::{counter, histogram};
use object_store::Error;
use tokio::time::timeout;

use super::connector::time_max;
use super::error::Failed;

/// Time that a request without bytes may take with all its attempts: the crate begins none after three minutes.
pub(super) const PATIENCE: Duration = Duration::from_mins(4);

/// An error of a request.
pub(super) trait RequestError {
    /// True if it is an answer of a store that works: an absent object, or a condition.
    fn is_answer(&self) -> bool;

    /// Error of a request without an end.
    fn slow(limit: Duration) -> Self;
}

impl RequestError for Error {
    fn is_answer(&self) -> bool {
        matches!(
            self,
            Self::NotFound { .. }
                | Self::AlreadyExists { .. }
                | Self::Precondition { .. }
                | Self::NotModified { .. }
        )
    }

    fn slow(limit: Duration) -> Self {
        Self::Generic { store: "archive", source: Box::new(Failed::Slow(limit)) }
    }
}

impl RequestError for Failed {
    fn is_answer(&self) -> bool {
        match self {
            Self::Objects(error) => error.is_answer(),
            Self::Changed(_) => true,
            _ => false,
        }
    }

    fn slow(limit: Duration) -> Self {
        Self::Slow(limit)
    }
}

/// Ends a request that moves `bytes`: neither a store that sends nothing nor a stalled mount holds a writer.
pub(super) async fn within<T, E: RequestError>(
    bytes: u64,
    patience: Duration,
    request: impl Future<Output = Result<T, E>>,
) -> Result<T, E> {
    let limit = patience + time_max(bytes).saturating_sub(time_max(0));
    timeout(limit, request).await.unwrap_or_else(|_| Err(E::slow(limit)))
}

/// Counts a request of `operation` that moves `bytes`, and its time and outcome.
pub(super) async fn counted<T, E: RequestError>(
    operation: &'static str,
    bytes: u64,
    request: impl Future<Output = Result<T, E>>,
) -> Result<T, E> {
    let begun = Instant::now();
    let answer = request.await;
    histogram!("neve_archive_request_duration_seconds", "operation" => operation)
        .record(begun.elapsed());
    let is_done = answer.as_ref().err().is_none_or(RequestError::is_answer);
    let outcome = if is_done { "done" } else { "failed" };
    counter!("neve_archive_requests_total", "operation" => operation, "outcome" => outcome)
        .increment(1);
    if answer.is_ok() {
        counter!("neve_archive_request_bytes_total", "operation" => operation).increment(bytes);
    }
    answer
}
