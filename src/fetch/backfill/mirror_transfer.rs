//! An upstream that is a neve and is mirrored: its segments' files in place of history that is asked
//! for height by height.

use std::ops::Range;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use metrics::counter;
use neve_store::{PartialSegment, SealedPage};
use tokio::sync::{Semaphore, mpsc};
use tracing::{info, warn};

use super::error::BackfillError;
use super::segment_verifier::{SegmentError, VerifiedSegment};
use super::transfer::{
    BackfillStep, SegmentSource, TransferError, take_all, verify, wanted_heights,
};
use crate::client::Backoff;
use crate::fetch::{Follower, HeightFetcher};
use crate::mirror::{ByteStream, Channel, Form, Listed, Listing, MirrorSource, SourceError};

/// Files that are taken before the list is read again.
const FILES_MAX: usize = 1024;
/// Wait after an attempt that failed: the first, and the longest.
const AGAIN_FIRST: Duration = Duration::from_millis(100);
const AGAIN_MAX: Duration = Duration::from_secs(5);
/// Wait before a list without a wanted file is requested again: the first, and the longest. It has up to 2.3 MB.
const LIST_AGAIN_FIRST: Duration = Duration::from_secs(1);
const LIST_AGAIN_MAX: Duration = Duration::from_mins(1);
/// Attempts at a segment's file, each from where the one before ended.
const ATTEMPTS_MAX: u32 = 8;
/// Segments of a store with which it takes no short ones: each takes a map of the kernel, which has 65,530 for a process.
const SHORT_MAX: usize = 4096;
/// A segment with a smaller part of a range's heights is short.
const SHORT_PART: u32 = 64;
/// Chunks of a file that wait for the disk.
const PIECES_AHEAD: usize = 16;

/// Reason why the bytes of a file are not taken.
const NO_SEGMENT: &str =
    "no segment, longer than it says, or over twice as long as those of this --segment-bytes";

/// Step after a list in which no file is wanted, and the time until which it stands.
pub(super) struct QuietSource {
    backoff: Backoff,
    last: Option<(u64, BackfillStep, Instant)>,
}

impl QuietSource {
    pub(super) fn new() -> Self {
        Self { backoff: Backoff::new(LIST_AGAIN_FIRST, LIST_AGAIN_MAX), last: None }
    }

    /// Returns the step below height `first`, unless the list is due to be requested.
    fn step(&self, first: u64, now: Instant) -> Option<BackfillStep> {
        let (below, step, until) = self.last?;
        (below == first && now < until).then_some(step)
    }

    /// Notes the step below height `first`, and returns it. Until other heights are wanted, the waits grow.
    fn note(&mut self, first: u64, step: BackfillStep, now: Instant) -> BackfillStep {
        if self.last.is_none_or(|(below, ..)| below != first) {
            self.backoff.reset();
        }
        self.last = Some((first, step, now + self.backoff.wait()));
        step
    }
}

/// Takes segments of the peer that lie below the first height, newest first.
pub(super) async fn fill(
    follower: &Follower,
    source: &HeightFetcher,
    peer: &Arc<MirrorSource>,
    quiet: &mut QuietSource,
) -> Result<BackfillStep, BackfillError> {
    let heights = match wanted_heights(follower) {
        Ok(heights) => heights,
        Err(step) => return Ok(step),
    };
    if let Some(step) = quiet.step(heights.end, Instant::now()) {
        return Ok(step);
    }
    let Some(listing) = own_list(follower, peer).await else {
        return Ok(BackfillStep::Ask { from: 0 });
    };
    let segments = MirrorSegments::new(follower, source, peer, &listing);
    segments.take_below(&listing, heights, quiet).await
}

/// Returns the list of the peer, if it comes and is of this chain.
async fn own_list(follower: &Follower, peer: &MirrorSource) -> Option<Listing> {
    let listing = peer.list().await;
    let listing = listing.inspect_err(|why| peer.say(Channel::Files, Some(why))).ok()?;
    // Of another chain the monitor has said so.
    Some(listing).filter(|listing| listing.identity() == follower.serving.identity())
}

/// Removes what has arrived of files whose first height `keeps` does not take.
pub(super) async fn forget_others(
    follower: &Follower,
    keeps: impl Fn(u64) -> bool + Send + 'static,
) -> Result<(), BackfillError> {
    let history = follower.ingest.raw_history().await??;
    Ok(tokio::task::spawn_blocking(move || history.forget_arriving(keeps)).await??)
}

/// Files of an unbroken run down from the end of `heights`: one below a gap could not be proven.
fn unbroken(listing: &Listing, peer: &MirrorSource, heights: Range<u64>) -> Vec<(Form, Listed)> {
    let below = |end: u64| {
        let found = listing.file_below(end).filter(|_| end > heights.start);
        found.filter(|(_, listed)| !peer.is_refused(listed.base))
    };
    let next = |(_, above): &(Form, Listed)| below(above.base);
    std::iter::successors(below(heights.end), next).take(FILES_MAX).collect()
}

/// True if a store with so many segments may have a file. Each takes a map of the kernel: a source with files of one
/// height would use up all maps. Packed files stay as they came, so they must have the length of own ones. Short
/// segments are packed together, but not all at once.
fn may_take((form, listed): &(Form, Listed), own: u32, segments: usize) -> bool {
    match form {
        Form::Packed => listed.records == own,
        Form::Sealed => listed.records >= own / SHORT_PART || segments < SHORT_MAX,
    }
}

fn not_taken(form: Form, found: u32, own: u32) -> SourceError {
    match form {
        Form::Packed => SourceError::OtherRange { found, own },
        Form::Sealed => SourceError::ShortSegments { found },
    }
}

/// Next step for heights that no whole file has: they are fetched, as far as an upstream has them.
fn below(listing: &Listing, first: u64, alone: bool) -> BackfillStep {
    let last = first.saturating_sub(1);
    let mut files = listing.segments.iter().chain(&listing.packed);
    let holder = files.find(|listed| (listed.base..listed.end()).contains(&last));
    let lowest = listing.first.unwrap_or(first);
    match holder {
        Some(holder) => BackfillStep::Ask { from: holder.base },
        None if alone && lowest >= first => BackfillStep::Nothing,
        None if alone => BackfillStep::Ask { from: lowest },
        None => BackfillStep::Ask { from: 0 },
    }
}

/// Segments of a peer.
struct MirrorSegments<'f> {
    follower: &'f Follower,
    source: &'f HeightFetcher,
    peer: &'f Arc<MirrorSource>,
    /// The lowest height that the peer has.
    lowest: u64,
    /// Segments that the store has.
    held: usize,
    /// A place for one download: those before it are proven meanwhile.
    downloads: Semaphore,
}

impl<'f> MirrorSegments<'f> {
    fn new(
        follower: &'f Follower,
        source: &'f HeightFetcher,
        peer: &'f Arc<MirrorSource>,
        listing: &Listing,
    ) -> Self {
        let lowest = listing.first.unwrap_or_default();
        let held = follower.serving.reader.usage().segments;
        Self { follower, source, peer, lowest, held, downloads: Semaphore::new(1) }
    }

    /// Takes files of an unbroken run down from the end of `heights`. Returns the next step.
    async fn take_below(
        &self,
        listing: &Listing,
        heights: Range<u64>,
        quiet: &mut QuietSource,
    ) -> Result<BackfillStep, BackfillError> {
        let end = heights.end;
        let run = unbroken(listing, self.peer, heights);
        let wanted = self.taken(&run);
        let bases: Vec<u64> = wanted.iter().map(|(_, listed)| listed.base).collect();
        // A source that begins other files each time would fill the disk with beginnings.
        forget_others(self.follower, move |base| bases.contains(&base)).await?;
        let Some(first) = run.first() else {
            let step = below(listing, end, self.follower.endpoints.len() == 1);
            return Ok(quiet.note(end, step, Instant::now()));
        };
        if wanted.is_empty() {
            return Ok(self.step_over(first, &run));
        }
        self.peer.say(Channel::Files, None);
        let ahead = self.follower.config.prove_threads.min(8) + 1;
        take_all(self.follower, self.source, self, wanted, ahead).await
    }

    /// Files of a run that are taken, down to the first one that is not.
    fn taken(&self, run: &[(Form, Listed)]) -> Vec<(Form, Listed)> {
        let (own, held) = (self.follower.ingest.range_blocks(), self.held);
        let is_taken = |(place, file): &(usize, &(Form, Listed))| may_take(file, own, held + place);
        run.iter().enumerate().take_while(is_taken).map(|(_, file)| *file).collect()
    }

    /// Says why the first file of a run is not taken. Returns the step down to the next file that is.
    fn step_over(&self, (form, first): &(Form, Listed), run: &[(Form, Listed)]) -> BackfillStep {
        let own = self.follower.ingest.range_blocks();
        self.peer.say(Channel::Files, Some(&not_taken(*form, first.records, own)));
        // An interval becomes a segment, and must not be as short as theirs.
        let others = run.iter().take_while(|file| !may_take(file, own, self.held));
        BackfillStep::Ask { from: others.last().map_or(0, |(_, lowest)| lowest.base) }
    }
}

impl SegmentSource for MirrorSegments<'_> {
    type Entry = (Form, Listed);
    type Failure = SourceError;

    fn name(&self) -> &str {
        &self.peer.name
    }

    fn heights(&self, (_, listed): Self::Entry) -> Range<u64> {
        listed.base..listed.end()
    }

    async fn take(&self, (form, listed): Self::Entry) -> Result<VerifiedSegment, MirrorError> {
        let Self { follower, source, peer, .. } = *self;
        let downloading = self.downloads.acquire().await.ok();
        let transfer = MirrorTransfer { follower, peer, form, listed };
        let incoming = transfer.download().await?;
        // Others may download while this one is checked, which takes a processor and no network.
        drop(downloading);
        let page = transfer.sensible(&incoming)?;
        // What is below all that the peer has cannot be had, nor proven.
        let before = listed.base.checked_sub(1).filter(|before| *before >= self.lowest);
        verify(follower, source, incoming, page, before).await
    }

    fn accepted(&self) {
        self.follower.status.change_mirror(|mirror| mirror.accepted += 1);
        counter!("neve_mirror_received_segments_total", "outcome" => "accepted").increment(1);
    }

    fn failed(&self, (_, listed): Self::Entry, why: &SourceError) {
        let upstream = &self.peer.name;
        warn!(base = listed.base, upstream, error = %why, "segment not downloaded");
    }

    fn reject(&self, (_, listed): Self::Entry, wrong: &SegmentError) {
        warn!(base = listed.base, upstream = self.peer.name, error = %wrong, "segment rejected");
        counter!("neve_mirror_received_segments_total", "outcome" => "rejected").increment(1);
        self.peer.refuse(listed.base);
    }
}

type MirrorError = TransferError<SourceError>;

/// A file on its way: a sealed segment, or a packed file.
struct MirrorTransfer<'f> {
    follower: &'f Follower,
    peer: &'f Arc<MirrorSource>,
    form: Form,
    listed: Listed,
}

impl MirrorTransfer<'_> {
    /// Nothing is to be kept of it.
    async fn forget(&self) -> Result<(), MirrorError> {
        let mut incoming = self.incoming().await?;
        let forgotten = tokio::task::spawn_blocking(move || incoming.restart());
        Ok(forgotten.await??)
    }

    /// The file as far as it is here.
    async fn incoming(&self) -> Result<PartialSegment, MirrorError> {
        let history = self.follower.ingest.raw_history().await??;
        let (form, base) = (self.form, self.listed.base);
        let opened = tokio::task::spawn_blocking(move || match form {
            Form::Sealed => history.receive(base).map(Some),
            Form::Packed => history.receive_packed(base),
        });
        let no_codec = || SourceError::Malformed("packed files cannot be read here".into());
        opened.await??.ok_or_else(|| TransferError::Source(no_codec()))
    }

    /// Checks its header page, as far as that is possible without the rest.
    fn sensible(&self, incoming: &PartialSegment) -> Result<SealedPage, MirrorError> {
        let page = incoming.page().filter(|page| {
            Some(page.identity) == self.follower.serving.identity()
                && (page.base, page.records) == (self.listed.base, self.listed.records)
        });
        page.cloned().ok_or_else(|| {
            TransferError::Source(SourceError::Malformed(
                "a segment that is not the one in its list".into(),
            ))
        })
    }

    /// Gets the file, from where it is, in several attempts if need be.
    async fn download(&self) -> Result<PartialSegment, MirrorError> {
        let mut backoff = Backoff::new(AGAIN_FIRST, AGAIN_MAX);
        let mut attempts = 0;
        loop {
            let why = match self.attempt().await {
                Ok(Some(incoming)) => return Ok(incoming),
                Ok(None) => SourceError::Unreachable("its file ended early".into()),
                // A further attempt would bring the same.
                Err(TransferError::Source(why))
                    if why.is_lasting() || matches!(why, SourceError::Malformed(_)) =>
                {
                    return Err(TransferError::Source(why));
                }
                Err(TransferError::Source(why)) => why,
                Err(failed) => return Err(failed),
            };
            attempts += 1;
            if attempts >= ATTEMPTS_MAX {
                return Err(TransferError::Source(why));
            }
            tokio::time::sleep(backoff.wait()).await;
        }
    }

    /// `None` if it is not whole yet.
    async fn attempt(&self) -> Result<Option<PartialSegment>, MirrorError> {
        let incoming = self.incoming().await?;
        if incoming.is_whole() {
            return Ok(Some(incoming));
        }
        let (incoming, mut pieces) = self.requested(incoming).await?;
        let (out, arrived) = mpsc::channel(PIECES_AHEAD);
        let writing = tokio::task::spawn_blocking(move || write(incoming, arrived));
        let broken = pass_on(&mut pieces, out).await;
        let Some(incoming) = writing.await?? else {
            self.forget().await?;
            return Err(TransferError::Source(SourceError::Malformed(NO_SEGMENT.into())));
        };
        // A whole file counts, however its transfer ended.
        match broken {
            _ if incoming.is_whole() => Ok(Some(incoming)),
            Some(why) => Err(TransferError::Source(why)),
            None => Ok(None),
        }
    }

    /// Requests the rest of the file. Returns the beginning that it continues, and its bytes as they come.
    async fn requested(
        &self,
        mut incoming: PartialSegment,
    ) -> Result<(PartialSegment, ByteStream), MirrorError> {
        let (form, base) = (self.form, self.listed.base);
        let (have, tag) = (incoming.have(), incoming.page().map(|page| page.tag.clone()));
        let asked = self.peer.file(form, base, have, tag.as_deref()).await;
        let (from, pieces) = asked.map_err(TransferError::Source)?;
        // The source has another file of this name by now, so the beginning here does not belong to it.
        if from != have {
            incoming = tokio::task::spawn_blocking(move || incoming.restart().map(|()| incoming))
                .await??;
        }
        info!(base, from, upstream = self.peer.name, "segment requested");
        Ok((incoming, pieces))
    }
}

/// Passes bytes on to the thread that writes them, which ends once the sender is gone. Returns the error that ended them.
async fn pass_on(pieces: &mut ByteStream, out: mpsc::Sender<Bytes>) -> Option<SourceError> {
    loop {
        match pieces.next().await {
            Ok(Some(bytes)) => {
                counter!("neve_mirror_received_segment_bytes_total").increment(bytes.len() as u64);
                if out.send(bytes).await.is_err() {
                    return None; // writing says why
                }
            }
            Ok(None) => return None,
            Err(why) => return Some(why),
        }
    }
}

/// Writes what arrives. `None` if it cannot be a segment.
fn write(
    mut incoming: PartialSegment,
    mut arrived: mpsc::Receiver<Bytes>,
) -> Result<Option<PartialSegment>, neve_store::Error> {
    while let Some(bytes) = arrived.blocking_recv() {
        if !incoming.write(&bytes)? {
            return Ok(None);
        }
    }
    Ok(Some(incoming))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn packed_files_of_another_length_are_not_taken() {
        let of = |form, records| may_take(&(form, Listed { base: 0, records }), 64, 9);
        assert!(of(Form::Packed, 64) && [1, 20, 64, 1024].iter().all(|n| of(Form::Sealed, *n)));
        assert!(![1, 32, 63, 65, 128, 1024].iter().any(|records| of(Form::Packed, *records)));
    }

    #[test]
    fn short_segments_are_taken_up_to_a_number() {
        let of = |records, segments| {
            may_take(&(Form::Sealed, Listed { base: 0, records }), 1024, segments)
        };
        assert!(of(1, SHORT_MAX - 1) && !of(1, SHORT_MAX) && !of(15, SHORT_MAX));
        assert!(of(16, SHORT_MAX) && of(16, 60_000));
    }

    #[test]
    fn list_without_a_wanted_file_is_requested_less_often_until_other_heights_are_wanted() {
        let (mut source, begun) = (QuietSource::new(), Instant::now());
        let at = |seconds| begun + Duration::from_secs(seconds);
        let mut lists = 0;
        for now in (0..3600).map(at) {
            if source.step(100, now).is_none() {
                source.note(100, BackfillStep::Nothing, now);
                lists += 1;
            }
        }
        assert!((60..140).contains(&lists), "{lists} in an hour");
        assert!(source.step(99, at(3600)).is_none());
        source.note(99, BackfillStep::Ask { from: 7 }, at(3600));
        assert!(matches!(source.step(99, at(3600)), Some(BackfillStep::Ask { from: 7 })));
        assert!(source.step(99, at(3601)).is_none(), "the first wait is short again");
    }
}
