//! The text of a new head, made once for all subscribers.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, PoisonError};

use neve_chain::{HeadForm, new_head};
use neve_store::{Hash, RecordRef};
use tracing::warn;

use crate::parts::{HEADER, readable};

/// Heads that are kept: subscribers are mostly at the same one.
const KEPT: usize = 32;

/// The newest texts that were asked for.
#[derive(Default)]
pub(crate) struct HeadTexts(Mutex<VecDeque<Made>>);

struct Made {
    hash: Hash,
    form: HeadForm,
    text: Arc<str>,
}

impl HeadTexts {
    /// The `result` of the notification of a block; `None` if it cannot be made. Blocks near the
    /// head are kept: what one subscriber replays must not push out what all are about to hear of.
    pub(crate) fn of(&self, record: &RecordRef, form: HeadForm, head: u64) -> Option<Arc<str>> {
        if head.saturating_sub(record.height()) >= KEPT as u64 {
            return make(record, form).map(Arc::from);
        }
        let hash = record.hash();
        let mut kept = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(made) = kept.iter().find(|made| made.hash == hash && made.form == form) {
            return Some(Arc::clone(&made.text));
        }
        let text: Arc<str> = make(record, form)?.into();
        kept.push_back(Made { hash, form, text: Arc::clone(&text) });
        if kept.len() > KEPT {
            kept.pop_front();
        }
        Some(text)
    }
}

fn make(record: &RecordRef, form: HeadForm) -> Option<String> {
    let header = readable(record, HEADER)?;
    match new_head(header.as_ref(), form) {
        Ok(text) => String::from_utf8(text).ok(),
        Err(error) => {
            warn!(height = record.height(), %error, "a stored header does not parse");
            None
        }
    }
}
