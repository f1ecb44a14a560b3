//! Requests to the object store, counted by operation.

use std::time::Instant;

use metrics::{counter, histogram};
use object_store::Error;

use super::error::Failed;

/// An error of a request.
pub(super) trait RequestError {
    /// True if it is an answer of a store that works: an absent object, or a condition.
    fn is_answer(&self) -> bool;
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
}

impl RequestError for Failed {
    fn is_answer(&self) -> bool {
        match self {
            Self::Objects(error) => error.is_answer(),
            Self::Changed(_) => true,
            _ => false,
        }
    }
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
