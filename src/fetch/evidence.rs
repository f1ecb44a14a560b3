//! Evidence: rejected data, and the data accepted in its place, kept for people under `evidence/`.
//!
//! A file has a line of JSON that says what it is, then the block, then its receipts, as they came. One of a page of
//! an archive has the page behind that line.
//! Data of upstreams and pages of an archive have a quota each: number and bytes are bounded, and the oldest of the
//! same quota go.

use std::collections::{HashSet, VecDeque};
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::{Duration, SystemTime};

use bytes::Bytes;
use metrics::counter;
use serde_json::json;
use tracing::warn;

use crate::shared::lock::lock;

/// Files of a quota at most.
const FILES_MAX: usize = 64;
/// Files of a quota that wait for the disk at most. Beyond it they are not kept. An accepted payload is offered only once,
/// so it may wait beside as many refused ones.
const WAITING_MAX: usize = 8;
/// Verdict on the payload that was served in place of a refused one.
pub(crate) const ACCEPTED: &str = "accepted";
/// Number of rejections of a quota that are remembered and not kept again: a height is requested until it is
/// proven.
const KNOWN_MAX: usize = 1024;

/// Origin of rejected data. Each has a quota of its own, so that none drives out the evidence of another.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum EvidenceOrigin {
    Upstream,
    Archive,
}

impl EvidenceOrigin {
    /// Bytes of all files of the quota at most.
    fn bytes_max(self) -> usize {
        match self {
            Self::Upstream => 64 << 20,
            Self::Archive => 16 << 20,
        }
    }

    /// Highest size of one file. What is longer is cut.
    fn file_bytes_max(self) -> usize {
        match self {
            Self::Upstream => 8 << 20,
            Self::Archive => 1 << 20,
        }
    }

    /// Origin of a file of an earlier run.
    fn of_file(name: &str) -> Self {
        if name.ends_with(ARCHIVE_PAGE) { Self::Archive } else { Self::Upstream }
    }
}

/// Keeps answers. Clones write to the same directory.
#[derive(Clone)]
pub(crate) struct Evidence(Arc<Inner>);

struct Inner {
    dir: PathBuf,
    /// Held for moments only: tasks that may not wait for the disk ask it.
    admitted: Mutex<Rooms<Admitted>>,
    /// Held while a file is written.
    kept: Mutex<EvidenceFiles>,
}

/// A value for each of the two rooms.
#[derive(Default)]
struct Rooms<T> {
    upstream: T,
    archive: T,
}

/// Rejections that were taken to be kept.
#[derive(Default)]
struct Admitted {
    known: HashSet<(u64, String, &'static str)>,
    /// Files that are not written yet.
    waiting: usize,
}

/// Files on disk.
#[derive(Default)]
struct EvidenceFiles {
    /// Names and lengths, oldest first.
    files: Rooms<VecDeque<(String, usize)>>,
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
pub(crate) struct RejectedPage<'b> {
    /// Name of the object.
    pub(crate) object: String,
    /// Number of the page.
    pub(crate) page: usize,
    pub(crate) bytes: &'b [u8],
}

/// Verdict on such a page, which ends the name of its file.
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
        let mut kept = EvidenceFiles::default();
        for file in files {
            kept.files.room(EvidenceOrigin::of_file(&file.0)).push_back(file);
        }
        Self(Arc::new(Inner { dir, admitted: Mutex::default(), kept: Mutex::new(kept) }))
    }

    /// Keeps an answer, on a thread that may wait for the disk.
    pub(crate) fn keep(&self, answer: RejectedPayload, verdict: &'static str, why: &str) {
        let key = (answer.height, answer.upstream.clone(), verdict);
        let (height, why) = (answer.height, why.to_owned());
        if self.admit(EvidenceOrigin::Upstream, key) {
            self.write_later(
                EvidenceOrigin::Upstream,
                format!("{height}-{verdict}"),
                move |unix| contents(&answer, verdict, &why, unix),
            );
        }
    }

    /// Keeps a page of an archive in this way.
    #[cfg(feature = "archive")]
    pub(crate) fn keep_page(&self, page: &RejectedPage<'_>) {
        let number = page.page;
        let key = (number as u64, page.object.clone(), ARCHIVE_PAGE);
        if self.admit(EvidenceOrigin::Archive, key) {
            // A copy, as the page is a part of all that was read.
            let contents = page_contents(page, unix_now().as_secs());
            self.write_later(EvidenceOrigin::Archive, format!("{number}-{ARCHIVE_PAGE}"), |_| {
                contents
            });
        }
    }

    /// True if it is to be kept: it is new, and few others wait for the disk.
    fn admit(&self, origin: EvidenceOrigin, key: (u64, String, &'static str)) -> bool {
        let mut admitted = lock(&self.0.admitted);
        let room = admitted.room(origin);
        let waiting_max = if key.2 == ACCEPTED { 2 * WAITING_MAX } else { WAITING_MAX };
        if room.waiting >= waiting_max {
            return false; // most come again
        }
        if room.known.len() >= KNOWN_MAX {
            // Costs at most a second file of each, and bounds what an upstream can make neve
            // remember.
            room.known.clear();
        }
        // An upstream repeats a lie at each attempt, and one file of it is enough.
        let is_new = room.known.insert(key);
        room.waiting += usize::from(is_new);
        is_new
    }

    fn write_later(
        &self,
        origin: EvidenceOrigin,
        name: String,
        contents: impl FnOnce(u64) -> Vec<u8> + Send + 'static,
    ) {
        let inner = Arc::clone(&self.0);
        tokio::task::spawn_blocking(move || {
            if let Err(error) = inner.write(origin, &name, contents) {
                warn!(%error, dir = %inner.dir.display(), "evidence cannot be kept");
            }
            lock(&inner.admitted).room(origin).waiting -= 1;
        });
    }
}

fn unix_now() -> Duration {
    SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default()
}

impl Inner {
    fn write(
        &self,
        origin: EvidenceOrigin,
        what: &str,
        contents: impl FnOnce(u64) -> Vec<u8>,
    ) -> io::Result<()> {
        let now = unix_now();
        let bytes = contents(now.as_secs());
        // Locked over the write: the oldest file is removed by the order of names, which the count
        // decides.
        let mut kept = lock(&self.kept);
        fs::create_dir_all(&self.dir)?;
        kept.count += 1;
        let name = format!("{:013}-{:04}-{what}", now.as_millis(), kept.count);
        let path = self.dir.join(&name);
        // A part of it would be beside the files that are bounded.
        fs::write(&path, &bytes).inspect_err(|_| drop(fs::remove_file(&path)))?;
        counter!("neve_evidence_files_total").increment(1);
        let files = kept.files.room(origin);
        files.push_back((name, bytes.len()));
        self.remove_oldest(files, origin.bytes_max());
        Ok(())
    }

    /// Removes the oldest files of a quota until the rest is within its bounds.
    fn remove_oldest(&self, files: &mut VecDeque<(String, usize)>, bytes_max: usize) {
        let all_bytes = |files: &VecDeque<_>| files.iter().map(|(_, len)| len).sum::<usize>();
        while files.len() > FILES_MAX || all_bytes(files) > bytes_max {
            let Some((oldest, _)) = files.pop_front() else { break };
            let _ = fs::remove_file(self.dir.join(oldest)); // the operator may have removed it
        }
    }
}

impl<T> Rooms<T> {
    fn room(&mut self, origin: EvidenceOrigin) -> &mut T {
        match origin {
            EvidenceOrigin::Upstream => &mut self.upstream,
            EvidenceOrigin::Archive => &mut self.archive,
        }
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
        let room = EvidenceOrigin::Upstream.file_bytes_max().saturating_sub(bytes.len());
        // An upstream decides how long its texts are: a file is cut at its bound.
        bytes.extend_from_slice(&text[..text.len().min(room)]);
        bytes.push(b'\n');
    }
    bytes
}

#[cfg(feature = "archive")]
fn page_contents(rejected: &RejectedPage<'_>, unix: u64) -> Vec<u8> {
    let RejectedPage { object, page, bytes } = rejected;
    let head = json!({
        "object": object,
        "page": page,
        "verdict": ARCHIVE_PAGE,
        "unix": unix,
        "bytes": bytes.len(),
    });
    let mut contents = format!("{head}\n").into_bytes();
    let room = EvidenceOrigin::Archive.file_bytes_max().saturating_sub(contents.len());
    contents.extend_from_slice(&bytes[..bytes.len().min(room)]);
    contents
}

#[cfg(test)]
mod tests {
    use super::*;

    fn write(evidence: &Evidence, answer: &RejectedPayload) {
        let what = format!("{}-header_hash", answer.height);
        let contents = |unix| contents(answer, "header_hash", "w", unix);
        evidence.0.write(EvidenceOrigin::Upstream, &what, contents).unwrap();
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
        let (all, one) =
            (EvidenceOrigin::Upstream.bytes_max(), EvidenceOrigin::Upstream.file_bytes_max());
        assert!(kept.iter().map(|(_, len)| len).sum::<u64>() <= all as u64);
        assert!(kept.iter().all(|(_, len)| *len <= one as u64 + 4), "{kept:?}");
    }

    #[cfg(feature = "archive")]
    fn write_page(evidence: &Evidence, page: usize, len: usize) {
        let bytes = vec![b'p'; len];
        let page = RejectedPage { object: "segment-0".to_owned(), page, bytes: &bytes };
        let contents = |unix| page_contents(&page, unix);
        let name = format!("{}-{ARCHIVE_PAGE}", page.page);
        evidence.0.write(EvidenceOrigin::Archive, &name, contents).unwrap();
    }

    #[cfg(feature = "archive")]
    #[test]
    fn pages_of_an_archive_drive_out_pages_only() {
        let dir = tempfile::tempdir().unwrap();
        let evidence = Evidence::new(dir.path());
        (0..50).for_each(|height| write(&evidence, &answer(height, 10)));
        let counts = || {
            let files = files(dir.path());
            let (pages, others): (Vec<_>, Vec<_>) =
                files.into_iter().partition(|(name, _)| name.ends_with(ARCHIVE_PAGE));
            (pages.len(), others.len(), pages.iter().map(|(_, len)| *len as usize).max())
        };
        (0..100).for_each(|page| write_page(&evidence, page, 1000));
        assert_eq!((counts().0, counts().1), (FILES_MAX, 50));
        let evidence = Evidence::new(dir.path());
        (0..50).for_each(|page| write_page(&evidence, page, 2 << 20));
        let (pages, others, longest) = counts();
        assert_eq!(
            (pages, others, longest),
            (16, 50, Some(EvidenceOrigin::Archive.file_bytes_max()))
        );
        (50..120).for_each(|height| write(&evidence, &answer(height, 10)));
        assert_eq!((counts().0, counts().1), (16, FILES_MAX), "over a restart too");
    }

    #[test]
    fn few_answers_wait_for_the_disk() {
        let dir = tempfile::tempdir().unwrap();
        let evidence = Evidence::new(dir.path());
        let key = |height| (height, "http://node".to_owned(), "header_hash");
        let admitted =
            |origin| (0..100).filter(|height| evidence.admit(origin, key(*height))).count();
        assert_eq!(
            [EvidenceOrigin::Archive, EvidenceOrigin::Upstream].map(admitted),
            [WAITING_MAX; 2]
        );
        let accepted = |height: &u64| {
            evidence.admit(EvidenceOrigin::Upstream, (*height, "http://other".to_owned(), ACCEPTED))
        };
        assert_eq!((0..100).filter(accepted).count(), WAITING_MAX, "beside the refused ones");
        lock(&evidence.0.admitted).archive.waiting = 0;
        assert!(!evidence.admit(EvidenceOrigin::Archive, key(0)), "it is known");
        assert!(evidence.admit(EvidenceOrigin::Archive, key(99)), "it was not kept before");
    }

    #[test]
    fn answer_is_admitted_while_a_file_is_written() {
        let dir = tempfile::tempdir().unwrap();
        let evidence = Evidence::new(dir.path());
        let _writing = lock(&evidence.0.kept);
        assert!(evidence.admit(EvidenceOrigin::Upstream, (1, "http://node".into(), "header_hash")));
    }

    #[test]
    fn evidence_file_names_height_upstream_and_verdict() {
        let text = String::from_utf8(contents(&answer(7, 3), "receipts_root", "no", 5)).unwrap();
        let (head, rest) = text.split_once('\n').unwrap();
        let head: serde_json::Value = serde_json::from_str(head).unwrap();
        assert_eq!((&head["height"], &head["upstream"]), (&json!(7), &json!("http://node")));
        assert_eq!((&head["verdict"], &head["why"]), (&json!("receipts_root"), &json!("no")));
        assert_eq!(rest, "bbb\n[]\n");
    }
}
