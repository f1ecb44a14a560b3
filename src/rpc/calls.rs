//! Outcomes of the calls of a body.

use smallvec::SmallVec;

use crate::shared::{MethodLabel, Outcome, ThreadCounters};

/// How the calls of a body ended. They are counted when the answer goes out: what is given up to
/// be done again is not.
#[derive(Debug, Default)]
pub(crate) struct Calls(SmallVec<[(MethodLabel, Outcome); 4]>);

impl Calls {
    pub(super) fn note(&mut self, method: MethodLabel, outcome: Outcome) {
        self.0.push((method, outcome));
    }

    /// Counts them.
    pub(crate) fn count(self, tally: &ThreadCounters) {
        self.0.into_iter().for_each(|(method, outcome)| tally.call(method, outcome));
    }
}
