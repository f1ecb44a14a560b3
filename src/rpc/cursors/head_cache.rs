//! The text of a new head, made once for all subscribers.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex};

use neve_chain::{HeaderForm, new_head};
use neve_record::parts::{HEADER, readable_part};
use neve_store::{Hash, RecordRef};
use tracing::warn;

use crate::shared::lock::lock;

/// Heads that are kept: subscribers are mostly at the same one.
const KEPT: usize = 32;

/// The newest notifications that were made.
#[derive(Default)]
pub(crate) struct HeadCache(Mutex<VecDeque<Made>>);

struct Made {
    hash: Hash,
    form: HeaderForm,
    text: Arc<str>,
}

impl HeadCache {
    /// Returns the `result` of the notification of a block; `None` if it cannot be made. Only blocks
    /// near the head are kept: a replay must not push out blocks that all subscribers are about to get.
    pub(crate) fn of(&self, record: &RecordRef, form: HeaderForm, head: u64) -> Option<Arc<str>> {
        if head.saturating_sub(record.height()) >= KEPT as u64 {
            return make(record, form).map(Arc::from);
        }
        let hash = record.hash();
        // The text is made under the lock: all subscribers of all threads need the same one now.
        let mut kept = lock(&self.0);
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

fn make(record: &RecordRef, form: HeaderForm) -> Option<String> {
    let header = readable_part(record, HEADER).ok()??;
    match new_head(header.as_ref(), form) {
        Ok(text) => String::from_utf8(text).ok(),
        Err(error) => {
            warn!(height = record.height(), %error, "stored header does not parse");
            None
        }
    }
}
