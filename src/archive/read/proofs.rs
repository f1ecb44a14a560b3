//! Segments that this replica has proven, remembered beyond their eviction, and the newest manifest that it took.

use std::collections::HashMap;
use std::fs::{self, File};
use std::io::{self, ErrorKind, Write};
use std::ops::RangeInclusive;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::Mutex;

use neve_archive::{Digest, Manifest, SegmentEntry};
use neve_record::packed::Codec;
use neve_store::SealedFile;
use tracing::warn;

use super::turns;
use crate::shared::lock::lock;

/// Segments whose packed file was in the store, which has proven heights only, and those that were proven for clients. So
/// the blocks of one with an equal digest are proven, and linked to the blocks above it.
pub(super) struct Proofs {
    /// Directory of the store.
    store: PathBuf,
    path: PathBuf,
    state: Mutex<State>,
}

/// A segment to prove, and its neighbors.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct ProofCandidate {
    /// The segment below it.
    pub(super) below: Option<SegmentEntry>,
    /// The segment to prove.
    pub(super) segment: SegmentEntry,
    /// The segment above it, which is proven.
    pub(super) above: SegmentEntry,
}

/// Words with which the lines of the file begin.
const SEGMENT: &str = "segment ";
const SEQUENCE: &str = "sequence ";
/// Length of [`end_of`] each line.
const END_LEN: usize = 11;

#[derive(Default)]
struct State {
    segments: HashMap<u64, Digest>,
    /// Segments of the archive that the packed file of the store does not equal: it is not read for them again.
    others: HashMap<u64, Digest>,
    /// Segment that has the anchor and is linked to it, and whether all of it is proven.
    anchored: Option<(Digest, bool)>,
    /// Proven segments that lead to the anchor. The disk does not remember them: the next run may have another anchor.
    leading: HashMap<u64, Digest>,
    sequence: u64,
    /// Reason why a higher sequence may have been noted than is known.
    doubt: Option<String>,
}

/// A line of the file.
enum Note {
    Segment(u64, Digest),
    Sequence(u64),
}

impl Note {
    /// Reads a line without its line break. `None` if no run wrote it as it is.
    fn read(line: &[u8]) -> Option<Self> {
        let line = str::from_utf8(line).ok()?;
        let (text, end) = line.split_at_checked(line.len().checked_sub(END_LEN)?)?;
        // A flipped bit of a sequence would let an earlier manifest pass, or none.
        if end != end_of(text) {
            return None;
        }
        if let Some(sequence) = text.strip_prefix(SEQUENCE) {
            return Some(Self::Sequence(sequence.parse().ok()?));
        }
        let (first, digest) = text.strip_prefix(SEGMENT)?.split_once(' ')?;
        Some(Self::Segment(first.parse().ok()?, digest.parse().ok()?))
    }

    /// The line of this note.
    fn line(&self) -> String {
        let text = match self {
            Self::Segment(first, digest) => format!("{SEGMENT}{first} {digest}"),
            Self::Sequence(sequence) => format!("{SEQUENCE}{sequence}"),
        };
        let end = end_of(&text);
        text + &end + "\n"
    }
}

/// End of a line with this text: its CRC-32, and a point, without which the line is cut off.
fn end_of(text: &str) -> String {
    format!(" {:08x} .", crc32fast::hash(text.as_bytes()))
}

impl State {
    fn has_proven(&self, entry: &SegmentEntry) -> bool {
        let proven = [&self.segments, &self.leading];
        proven.iter().any(|proven| proven.get(&entry.first) == Some(&entry.digest))
    }

    /// Takes the lines of the file, and returns the number of damaged ones. One that is cut off at the end counts for
    /// nothing: what it notes was not used yet. Any other may have had a sequence, but none above that of a later line.
    fn take_lines(&mut self, text: &[u8]) -> usize {
        self.doubt = None;
        let mut damaged = 0;
        for (number, line) in (1..).zip(text.split_inclusive(|byte| *byte == b'\n')) {
            let whole = line.strip_suffix(b"\n");
            let line = whole.unwrap_or_else(|| written(line));
            match Note::read(line) {
                Some(Note::Segment(first, digest)) => _ = self.segments.insert(first, digest),
                Some(Note::Sequence(sequence)) => {
                    self.sequence = self.sequence.max(sequence);
                    self.doubt = None;
                }
                None if whole.is_none() && is_cut_off(line) => {}
                None => {
                    damaged += 1;
                    self.doubt = Some(format!("line {number} is damaged"));
                }
            }
        }
        damaged
    }
}

/// The last bytes of the file without zeros at their end, which were never written.
fn written(end: &[u8]) -> &[u8] {
    let len = end.iter().rposition(|byte| *byte != 0).map_or(0, |last| last + 1);
    &end[..len]
}

/// True if the last bytes of the file may be the beginning of a line: neve, or the power, ended.
fn is_cut_off(end: &[u8]) -> bool {
    [SEGMENT, SEQUENCE].map(str::as_bytes).iter().any(|word| {
        let is_part = |byte: &u8| matches!(byte, b'0'..=b'9' | b'a'..=b'f' | b' ');
        word.starts_with(end)
            || end.strip_prefix(*word).is_some_and(|rest| rest.iter().all(is_part))
    })
}

impl Proofs {
    /// Reads what an earlier run has noted. Of a file that is damaged it keeps what can be read.
    pub(super) fn open(store: PathBuf, path: PathBuf) -> Self {
        let proofs = Self { store, path, state: Mutex::default() };
        proofs.read_file();
        proofs
    }

    fn read_file(&self) {
        let (text, file) = (fs::read(&self.path), self.path.display());
        let mut state = lock(&self.state);
        match text {
            Ok(text) => {
                let lines = state.take_lines(&text);
                if lines > 0 {
                    warn!(%file, lines, "archive proofs damaged");
                }
            }
            Err(error) if error.kind() == ErrorKind::NotFound => state.doubt = None,
            Err(error) => {
                warn!(%file, %error, "archive proofs unreadable");
                state.doubt = Some(error.to_string());
            }
        }
    }

    /// Notes the segments that equal packed files of the store, which begin at these heights.
    pub(super) fn compare(&self, manifest: &Manifest, stored: &[(u64, u32)]) {
        for (first, heights) in stored {
            let Some(entry) = manifest.segment_of(*first) else { continue };
            if self.is_compared(*first, entry.digest)
                || entry.first != *first
                || *heights != manifest.range
            {
                continue;
            }
            // Equal bytes prove the archived file, since this store proved its own. Others are
            // remembered so that they are not read again.
            if digest_of(&self.store, *first, entry.bytes) == Some(entry.digest) {
                self.add(entry);
            } else {
                lock(&self.state).others.insert(*first, entry.digest);
            }
        }
    }

    fn is_compared(&self, first: u64, digest: Digest) -> bool {
        let state = lock(&self.state);
        [&state.segments, &state.others].iter().any(|known| known.get(&first) == Some(&digest))
    }

    /// Notes the sequence of a manifest; an error if a later one was noted before, if that is not known, or if the disk
    /// does not take the note.
    pub(super) fn take_newest(&self, sequence: u64) -> Result<(), String> {
        if self.take(sequence)? {
            return Ok(());
        }
        let file = self.path.display();
        Err(format!(
            "manifest {sequence} is earlier than one that {file} names; remove that file if the archive was begun anew"
        ))
    }

    /// Notes the sequence of a manifest. False if a later one was noted before; an error if that is not known, or if the
    /// disk does not take the note. In doubt the file is read again, which an operator may have mended.
    fn take(&self, sequence: u64) -> Result<bool, String> {
        if lock(&self.state).doubt.is_some() {
            self.read_file();
        }
        let (known, doubt) = {
            let state = lock(&self.state);
            (state.sequence, state.doubt.clone())
        };
        if let Some(doubt) = doubt {
            return Err(self.doubted(&doubt, sequence));
        }
        if sequence > known {
            // On the disk first: after a crash no lower one may pass.
            append(&self.path, &Note::Sequence(sequence).line()).map_err(|error| {
                let file = self.path.display();
                format!("{file}: {error}; manifest {sequence} is taken once that file names it")
            })?;
            lock(&self.state).sequence = sequence;
        }
        Ok(sequence >= known)
    }

    /// Says why a manifest is not taken while a later one may have been noted.
    fn doubted(&self, doubt: &str, sequence: u64) -> String {
        let file = self.path.display();
        format!(
            "{file}: {doubt}; it says which manifests are earlier ones: put a copy back, or remove it if \
             manifest {sequence} is the newest"
        )
    }

    /// Heights of proven segments from the served range on downward, without a gap.
    pub(super) fn heights(&self, manifest: &Manifest, end: u64) -> Option<RangeInclusive<u64>> {
        let newest = manifest.segment_of(end.checked_sub(1)?)?;
        let state = lock(&self.state);
        let below = manifest.segments.iter().rev().skip_while(|entry| entry.first > newest.first);
        let proven = below.take_while(|entry| state.has_proven(entry));
        let first = proven.last()?.first;
        Some(first..=newest.first + u64::from(manifest.range) - 1)
    }

    /// Heights of proven segments that lead to the anchor, which is in `entry`.
    pub(super) fn anchored_heights(
        &self,
        manifest: &Manifest,
        entry: &SegmentEntry,
    ) -> Option<RangeInclusive<u64>> {
        let is_whole = self.is_anchored(entry)?;
        let own = if is_whole { u64::from(manifest.range) } else { 0 };
        self.heights(manifest, entry.first + own)
    }

    /// True if the anchor proves all of its segment, which is linked to it. `None` if it is not.
    pub(super) fn is_anchored(&self, entry: &SegmentEntry) -> Option<bool> {
        let anchored = lock(&self.state).anchored;
        anchored.filter(|(digest, _)| *digest == entry.digest).map(|(_, is_whole)| is_whole)
    }

    /// Notes that a segment is linked to the anchor, and whether all of it is proven.
    pub(super) fn anchor(&self, entry: &SegmentEntry, is_whole: bool) {
        lock(&self.state).anchored = Some((entry.digest, is_whole));
        if is_whole {
            self.add_leading(entry);
        }
    }

    /// Notes for this run that a segment is proven, and leads to the anchor.
    pub(super) fn add_leading(&self, entry: &SegmentEntry) {
        lock(&self.state).leading.insert(entry.first, entry.digest);
    }

    /// Returns the segment below the proven ones that reach up to `end`: the served range begins there, or the `linked`
    /// segment with the anchor.
    pub(super) fn candidate(
        &self,
        manifest: &Manifest,
        end: u64,
        linked: Option<Digest>,
    ) -> Option<ProofCandidate> {
        let state = lock(&self.state);
        let is_proven =
            |entry: &&SegmentEntry| linked == Some(entry.digest) || state.has_proven(entry);
        let segments = &manifest.segments;
        let mut count = segments.partition_point(|entry| entry.first <= end);
        // One that begins where the served range does need not be proven: nothing of it is answered from the archive.
        let newest = segments.get(..count)?.last()?;
        if newest.first + u64::from(manifest.range) < end {
            return None; // between them are heights that neither store nor archive has
        }
        if newest.first == end && !is_proven(&newest) {
            count -= 1;
        }
        let proven = segments[..count].iter().rev().take_while(is_proven).count();
        let lowest = count.checked_sub(proven).filter(|_| proven > 0)?;
        let at = lowest.checked_sub(1)?;
        let below = at.checked_sub(1).map(|below| segments[below]);
        Some(ProofCandidate { below, segment: segments[at], above: segments[lowest] })
    }

    /// Notes that a segment is proven, and linked to the proven one above it.
    pub(super) fn add(&self, entry: &SegmentEntry) {
        let line = Note::Segment(entry.first, entry.digest).line();
        if let Err(error) = append(&self.path, &line) {
            // The next run proves it anew.
            warn!(file = %self.path.display(), %error, "proof of archived segment not kept");
        }
        lock(&self.state).segments.insert(entry.first, entry.digest);
    }
}

fn append(path: &Path, line: &str) -> io::Result<()> {
    let mut file = File::options().append(true).create(true).open(path)?;
    let begin = begin_line(path, &file)?;
    file.write_all(format!("{begin}{line}").as_bytes())?;
    file.sync_data()
}

/// Removes a last line that is cut off, and makes the name of a new file durable. Returns the bytes that end a line which
/// is whole otherwise.
fn begin_line(path: &Path, file: &File) -> io::Result<&'static str> {
    let Some(last) = file.metadata()?.len().checked_sub(1) else {
        // A new file: without its name a crash would forget all of its lines.
        path.parent().map_or(Ok(()), |dir| File::open(dir)?.sync_all())?;
        return Ok("");
    };
    let mut end = [0];
    File::open(path)?.read_exact_at(&mut end, last)?;
    if end == *b"\n" {
        return Ok("");
    }
    let text = fs::read(path)?;
    let begin = text.iter().rposition(|byte| *byte == b'\n').map_or(0, |end| end + 1);
    let line = written(&text[begin..]);
    // A damaged line stays: it may have had the highest sequence, which must not be forgotten.
    let is_lost = Note::read(line).is_none() && is_cut_off(line);
    let end = if is_lost { begin } else { begin + line.len() };
    file.set_len(end as u64)?;
    Ok(if end > begin { "\n" } else { "" })
}

/// Digest of a packed file of the store, if it has so many bytes.
fn digest_of(store: &Path, first: u64, bytes: u64) -> Option<Digest> {
    let file = SealedFile::open_packed(store, first, &Codec::default()).ok()??;
    let whole = (file.page.bytes == bytes).then(|| file.read(0, bytes as usize))?;
    Some(turns::object_digest(&whole.ok()?))
}

#[cfg(test)]
mod tests;
