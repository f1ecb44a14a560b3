//! Names of unfinished files that a thread writes.
//!
//! A transfer may be given up while a thread still writes its file, or looks at it. The next thread with the same name waits
//! for that thread: two of them would write, and remove, one file.

use std::collections::BTreeSet;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// Time to wait for the thread that has the name. A segment of the largest size is verified in less.
const WAIT_MAX: Duration = Duration::from_mins(1);

/// Names in use. All writers of a store share them.
#[derive(Default)]
pub(super) struct Claims {
    names: Mutex<BTreeSet<String>>,
    freed: Condvar,
}

/// A name in use, until this is dropped.
pub(crate) struct Claim {
    claims: Arc<Claims>,
    name: String,
}

impl Claims {
    /// Waits until no thread has the name. `None` if that takes over a minute.
    pub(super) fn take(self: &Arc<Self>, name: &str) -> Option<Claim> {
        let is_taken = |names: &mut BTreeSet<String>| names.contains(name);
        let waited = self.freed.wait_timeout_while(self.names(), WAIT_MAX, is_taken);
        self.insert(waited.unwrap_or_else(PoisonError::into_inner).0, name)
    }

    /// Takes the name if no thread has it.
    pub(super) fn take_if_free(self: &Arc<Self>, name: &str) -> Option<Claim> {
        self.insert(self.names(), name)
    }

    fn insert(
        self: &Arc<Self>,
        mut names: MutexGuard<'_, BTreeSet<String>>,
        name: &str,
    ) -> Option<Claim> {
        let claim = || Claim { claims: Arc::clone(self), name: name.to_owned() };
        names.insert(name.to_owned()).then(claim)
    }

    fn names(&self) -> MutexGuard<'_, BTreeSet<String>> {
        // A panic while holding it leaves the set as usable as before.
        self.names.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Claim {
    fn drop(&mut self) {
        // The guard ends with this statement: a waiter that wakes needs the lock.
        self.claims.names().remove(&self.name);
        // All: waiters for different names share the condition.
        self.claims.freed.notify_all();
    }
}
