//! Dropping heights: the manifest names segments below a height no more, and writers add none there.

use std::iter;

use neve_archive::{Manifest, PageLists, SegmentEntry, SpanEntry, Terms};

use super::change::{WriteOptions, Writer, get_span, put_span_objects};
use crate::archive::error::Failed;
use crate::archive::index_objects::entry_of;
use crate::archive::store::{ArchiveStore, HeldManifest};

/// Result of `retain`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Retained {
    /// Segments that the manifest names no more.
    pub(crate) segments: u64,
    /// Bytes of these.
    pub(crate) bytes: u64,
    /// First and last height of the archive.
    pub(crate) heights: Option<(u64, u64)>,
    /// Sequence of the manifest.
    pub(crate) sequence: u64,
}

/// Drops the segments that end below a height. A lower height than before lets writers add segments again.
pub(crate) async fn retain(
    archive: &ArchiveStore,
    options: &WriteOptions,
    from: u64,
) -> Result<Retained, Failed> {
    let writer = Writer::begin(archive, options).await?;
    let mut done = Retained::default();
    let changed = writer.change(async |held| {
        let held = held.ok_or(Failed::NoManifest)?;
        retained(archive, held, from, &mut done).await
    });
    if let Some(manifest) = changed.await? {
        (done.heights, done.sequence) = (manifest.heights(), manifest.sequence);
    }
    Ok(done)
}

/// The next manifest, without the segments that end below `from`. `None` if the archive is retained from there already.
async fn retained(
    archive: &ArchiveStore,
    held: &HeldManifest,
    from: u64,
    done: &mut Retained,
) -> Result<Option<Manifest>, Failed> {
    let before = &held.manifest;
    (done.heights, done.sequence) = (before.heights(), before.sequence);
    if before.from == from {
        return Ok(None);
    }
    let mut next = Manifest { from, ..before.following(held.digest) };
    let dropped = drop_below(&mut next)?;
    done.segments = dropped.len() as u64;
    done.bytes = dropped.iter().map(|segment| segment.bytes).sum();
    if let Some(cut) = cut_span(before, &next)? {
        let entry = put_later_part(archive, before, &next, &cut).await?;
        next.spans.insert(0, entry);
    }
    Ok(Some(next))
}

/// Removes the segments below `from`, and the spans that have one of them. Returns the segments.
fn drop_below(next: &mut Manifest) -> Result<Vec<SegmentEntry>, Failed> {
    let (range, from, heights) = (u64::from(next.range), next.from, next.heights());
    let is_below = |segment: &SegmentEntry| segment.first.saturating_add(range) <= from;
    let kept = next.segments.iter().position(|segment| !is_below(segment));
    if kept.is_none() && !next.segments.is_empty() {
        return Err(Failed::AboveAll { height: from, heights });
    }
    let dropped: Vec<_> = next.segments.drain(..kept.unwrap_or(0)).collect();
    let first = next.segments.first().map_or(0, |segment| segment.first);
    next.spans.retain(|span| span.first >= first);
    Ok(dropped)
}

/// The span of which segments were dropped and others stay.
fn cut_span(before: &Manifest, next: &Manifest) -> Result<Option<SpanEntry>, Failed> {
    let Some(first) = next.segments.first() else { return Ok(None) };
    let span = before.span_of(first).ok_or(Failed::NoPages(first.first))?;
    Ok((span.first < first.first).then_some(*span))
}

/// Puts the objects of the segments that stay of a span.
async fn put_later_part(
    archive: &ArchiveStore,
    before: &Manifest,
    next: &Manifest,
    cut: &SpanEntry,
) -> Result<SpanEntry, Failed> {
    let first = next.segments.first().map_or(0, |segment| segment.first);
    let (span, lists) = get_span(archive, before, cut).await?;
    let part = span.later_part(first)?;
    let dropped = (span.segments() - part.segments()) as usize;
    let kept = lists.segments.into_iter().skip(dropped).collect();
    let terms = match before.terms_name(cut).zip(cut.terms) {
        Some((name, at)) => Some(Terms::read(&archive.get(&name, at.bytes).await?)?),
        None => None,
    };
    let terms = terms.map(|all| Terms::new(&part, Some(&all), iter::empty())).transpose()?;
    let lists = PageLists::new(&part, kept, terms.as_ref())?;
    let (entry, objects) = entry_of(&part, &lists, terms.as_ref());
    put_span_objects(archive, next, &entry, objects).await?;
    Ok(entry)
}
