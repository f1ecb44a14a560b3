//! The end of the thread that pushes. No thread waits for it, so it logs the reason itself.

use std::sync::Arc;

use metrics::gauge;
use tracing::error;

use crate::shared::Status;

/// Says that the thread ended, unless that was wanted. Dropped by a panic too.
pub(super) struct Ending {
    status: Arc<Status>,
    /// Reason of an unexpected end.
    why: Option<String>,
}

impl Ending {
    /// Begins in the thread, before anything can fail.
    pub(super) fn new(status: Arc<Status>) -> Self {
        let why = "the thread that pushes panicked, and the log says where; restart neve";
        Self { status, why: Some(why.to_owned()) }
    }

    /// Notes that the end is wanted.
    pub(super) fn wanted(mut self) {
        self.why = None;
    }

    /// Notes the reason of the end.
    pub(super) fn failed(mut self, why: &dyn std::error::Error) {
        self.why = Some(format!("the thread that pushes cannot start: {why}; restart neve"));
    }
}

impl Drop for Ending {
    fn drop(&mut self) {
        let Some(why) = self.why.take() else { return };
        error!(error = why, "archive push stopped");
        gauge!("neve_archive_push_failing").set(1.0);
        // Eviction waits without a bound as long as neither heights nor an error are known.
        self.status.change_archive(|archive| {
            archive.push.get_or_insert_default().error = Some(why);
        });
    }
}

#[cfg(test)]
mod tests {
    use std::io;
    use std::thread;

    use super::*;

    fn error_after(run: impl FnOnce(Ending) + Send + 'static) -> Option<String> {
        let status = Arc::new(Status::default());
        let ending = Ending::new(Arc::clone(&status));
        let _ = thread::spawn(move || run(ending)).join(); // it may have panicked
        status.archive().and_then(|archive| archive.push).and_then(|push| push.error)
    }

    #[test]
    fn end_that_nobody_wanted_is_an_error_of_pushing() {
        let panicked = error_after(|_ending| panic!("a test"));
        assert!(panicked.expect("an error").contains("panicked"));
        let failed = error_after(|ending| ending.failed(&io::Error::other("no more files")));
        assert!(failed.expect("an error").contains("cannot start: no more files"));
        assert_eq!(error_after(Ending::wanted), None);
    }
}
