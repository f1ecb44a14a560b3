//! Evidence: rejected data, and the data accepted in its place, kept for people under `evidence/`.
//!
//! A file has a line of JSON that says what it is, then the block, then its receipts, as they came. One of a page of
//! an archive has the page behind that line.
//! Their number and bytes are bounded; the oldest go.

use std::collections::{HashSet, VecDeque};
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::SystemTime;

use bytes::Bytes;
use metrics::counter;
use serde_json::json;
use tracing::warn;

use crate::shared::lock::lock;

/// Files at most.
const FILES_MAX: usize = 64;
/// Bytes of all files at most. A larger answer is cut.
const BYTES_MAX: usize = 64 << 20;
/// Highest size of one file.
const FILE_BYTES_MAX: usize = 8 << 20;
/// Number of rejections that are remembered and not kept again: a height is requested until it is
/// proven.
const KNOWN_MAX: usize = 1024;

/// Keeps answers. Clones write to the same directory.
#[derive(Clone)]
pub(crate) struct Evidence(Arc<Inner>);

struct Inner {
    dir: PathBuf,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    /// Names and lengths, oldest first.
    files: VecDeque<(String, usize)>,
    known: HashSet<(u64, String, &'static str)>,
    count: u64,
}

/// An answer about a height.
#[derive(Debug, Clone)]
pub(crate) struct RejectedPayload {
    pub(crate) height: u64,
    /// Upstream that gave it.
    pub(crate) upstream: String,
    /// The block's text, and the receipts'.
    pub(crate) texts: (Bytes, Bytes),
}

/// Page of an archive that differs from its digest.
#[cfg(feature = "archive")]
#[derive(Debug, Clone)]
pub(crate) struct RejectedPage {
    /// Name of the object.
    pub(crate) object: String,
    /// Number of the page.
    pub(crate) page: usize,
    pub(crate) bytes: Bytes,
}

/// Verdict on such a page.
#[cfg(feature = "archive")]
const ARCHIVE_PAGE: &str = "archive_page";

impl Evidence {
    /// Evidence of earlier runs in the directory counts towards the bounds.
    pub(crate) fn new(store: &Path) -> Self {
        let dir = store.join("evidence");
        let entries = fs::read_dir(&dir).into_iter().flatten().flatten();
        let mut files: Vec<_> = entries
            .filter_map(|entry| {
                let len = entry.metadata().ok()?.len();
                Some((entry.file_name().into_string().ok()?, len as usize))
            })
            .collect();
        files.sort_unstable(); // names begin with the time
        let state = State { files: files.into(), ..State::default() };
        Self(Arc::new(Inner { dir, state: Mutex::new(state) }))
    }

    /// Keeps an answer, on a thread that may wait for the disk.
    pub(crate) fn keep(&self, answer: RejectedPayload, verdict: &'static str, why: &str) {
        let key = (answer.height, answer.upstream.clone(), verdict);
        let (height, why) = (answer.height, why.to_owned());
        self.keep_new(key, format!("{height}-{verdict}"), move |unix| {
            contents(&answer, verdict, &why, unix)
        });
    }

    /// Keeps a page of an archive in this way.
    #[cfg(feature = "archive")]
    pub(crate) fn keep_page(&self, page: RejectedPage) {
        let number = page.page;
        let key = (number as u64, page.object.clone(), ARCHIVE_PAGE);
        self.keep_new(key, format!("{number}-{ARCHIVE_PAGE}"), move |unix| {
            page_contents(&page, unix)
        });
    }

    fn keep_new(
        &self,
        key: (u64, String, &'static str),
        name: String,
        contents: impl FnOnce(u64) -> Vec<u8> + Send + 'static,
    ) {
        {
            let mut state = lock(&self.0.state);
            if state.known.len() >= KNOWN_MAX {
                state.known.clear();
            }
            if !state.known.insert(key) {
                return;
            }
        }
        let inner = Arc::clone(&self.0);
        tokio::task::spawn_blocking(move || {
            if let Err(error) = inner.write(&name, contents) {
                warn!(%error, dir = %inner.dir.display(), "evidence cannot be kept");
            }
        });
    }
}

impl Inner {
    fn write(&self, what: &str, contents: impl FnOnce(u64) -> Vec<u8>) -> std::io::Result<()> {
        let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
        let bytes = contents(now.as_secs());
        let mut state = lock(&self.state);
        fs::create_dir_all(&self.dir)?;
        state.count += 1;
        let name = format!("{:013}-{:04}-{what}", now.as_millis(), state.count);
        fs::write(self.dir.join(&name), &bytes)?;
        counter!("neve_evidence_files_total").increment(1);
        state.files.push_back((name, bytes.len()));
        while state.files.len() > FILES_MAX || state.bytes() > BYTES_MAX {
            let Some((oldest, _)) = state.files.pop_front() else { break };
            let _ = fs::remove_file(self.dir.join(oldest)); // somebody may have tidied up
        }
        Ok(())
    }
}

impl State {
    fn bytes(&self) -> usize {
        self.files.iter().map(|(_, len)| len).sum()
    }
}

fn contents(answer: &RejectedPayload, verdict: &str, why: &str, unix: u64) -> Vec<u8> {
    let RejectedPayload { height, upstream, texts: (block, receipts) } = answer;
    let head = json!({
        "height": height,
        "upstream": upstream,
        "verdict": verdict,
        "why": why,
        "unix": unix,
        "block_bytes": block.len(),
        "receipts_bytes": receipts.len(),
    });
    let mut bytes = format!("{head}\n").into_bytes();
    for text in [block, receipts] {
        let room = FILE_BYTES_MAX.saturating_sub(bytes.len());
        bytes.extend_from_slice(&text[..text.len().min(room)]);
        bytes.push(b'\n');
    }
    bytes
}

#[cfg(feature = "archive")]
fn page_contents(rejected: &RejectedPage, unix: u64) -> Vec<u8> {
    let RejectedPage { object, page, bytes } = rejected;
    let head = json!({
        "object": object,
        "page": page,
        "verdict": ARCHIVE_PAGE,
        "unix": unix,
        "bytes": bytes.len(),
    });
    let mut contents = format!("{head}\n").into_bytes();
    let room = FILE_BYTES_MAX.saturating_sub(contents.len());
    contents.extend_from_slice(&bytes[..bytes.len().min(room)]);
    contents
}

#[cfg(test)]
mod tests {
    use super::*;

    fn write(evidence: &Evidence, answer: &RejectedPayload) {
        let what = format!("{}-header_hash", answer.height);
        let contents = |unix| contents(answer, "header_hash", "w", unix);
        evidence.0.write(&what, contents).unwrap();
    }

    fn answer(height: u64, len: usize) -> RejectedPayload {
        let texts = (Bytes::from(vec![b'b'; len]), Bytes::from_static(b"[]"));
        RejectedPayload { height, upstream: "http://node".into(), texts }
    }

    fn files(dir: &Path) -> Vec<(String, u64)> {
        let entries = fs::read_dir(dir.join("evidence")).unwrap().map(Result::unwrap);
        let mut files: Vec<_> = entries
            .map(|entry| {
                (entry.file_name().into_string().unwrap(), entry.metadata().unwrap().len())
            })
            .collect();
        files.sort();
        files
    }

    #[test]
    fn files_and_bytes_are_bounded_over_restarts() {
        let dir = tempfile::tempdir().unwrap();
        for round in 0..2 {
            let evidence = Evidence::new(dir.path());
            for height in 0..50 {
                write(&evidence, &answer(100 * round + height, 10));
            }
        }
        let kept = files(dir.path());
        assert_eq!(kept.len(), FILES_MAX);
        // Names of one millisecond are in the order of their numbers, which begin anew.
        assert!(kept.iter().any(|(name, _)| name.ends_with("-149-header_hash")), "{kept:?}");
        let evidence = Evidence::new(dir.path());
        for height in 0..12 {
            write(&evidence, &answer(height, 20 << 20));
        }
        let kept = files(dir.path());
        assert!(kept.iter().map(|(_, len)| len).sum::<u64>() <= BYTES_MAX as u64);
        assert!(kept.iter().all(|(_, len)| *len <= FILE_BYTES_MAX as u64 + 4), "{kept:?}");
    }

    #[test]
    fn a_file_tells_what_it_is() {
        let text = String::from_utf8(contents(&answer(7, 3), "receipts_root", "no", 5)).unwrap();
        let (head, rest) = text.split_once('\n').unwrap();
        let head: serde_json::Value = serde_json::from_str(head).unwrap();
        assert_eq!((&head["height"], &head["upstream"]), (&json!(7), &json!("http://node")));
        assert_eq!((&head["verdict"], &head["why"]), (&json!("receipts_root"), &json!("no")));
        assert_eq!(rest, "bbb\n[]\n");
    }
}
