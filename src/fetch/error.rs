//! Failure of an attempt at a height, and the note of data that was rejected.

use metrics::counter;
use neve_chain::{Proof, ProofError};
use tokio::task::JoinError;
use tracing::{debug, warn};

use crate::client::CallError;

/// Reason why an attempt failed.
#[derive(Debug)]
pub(crate) enum FetchError {
    /// The upstream does not have the height yet, or has not executed it.
    NotYet,
    /// The upstream's data fails a proof: a label, and the reason.
    Refused(&'static str, String),
    /// No answer for much longer than it usually takes, while another upstream could be asked.
    Stalled,
    /// The request failed, or its response is an error.
    Call(CallError),
}

impl From<CallError> for FetchError {
    fn from(error: CallError) -> Self {
        // An upstream that has not got there yet is asked again, and not penalized.
        if !error.is_absent() {
            return Self::Call(error);
        }
        debug!(%error, "height not there");
        Self::NotYet
    }
}

impl From<JoinError> for FetchError {
    fn from(error: JoinError) -> Self {
        Self::Call(CallError::Unreachable(error.to_string().into()))
    }
}

impl From<ProofError> for FetchError {
    fn from(refusal: ProofError) -> Self {
        Self::Refused(refusal.reason(), refusal.to_string())
    }
}

/// Says and counts that a height is refused. `upstream` sent it, if that is known.
pub(crate) fn refuse(height: u64, upstream: Option<&str>, reason: &'static str, why: &str) {
    warn!(height, upstream, reason, why, "upstream data rejected");
    counter!("neve_blocks_rejected_total", "reason" => reason).increment(1);
}

/// Says and counts that settled receipts could not be proven, if they could not.
pub(crate) fn note_proof(height: u64, proof: &Proof) {
    if let Proof::Unprovable { from, through } = proof {
        let from = from.map_or("the start".to_owned(), |from| from.to_string());
        warn!(height, from, through, "settled receipts not stored");
        counter!("neve_settlements_unproven_total").increment(1);
    }
}
