//! The span of a group of segments: that of the manifest with new segments, or a new one.

use neve_archive::{
    Manifest, PageLists, SegmentEntry, SegmentPages, Span, SpanEntry, Terms, span_groups,
};

use super::SegmentGroup;
use crate::archive::error::Failed;
use crate::archive::store::ArchiveStore;
use crate::archive::write::change::{get_span, put_span};

/// Makes and puts the span of a group, its page lists, its filter and its terms.
pub(super) async fn put_span_of(
    archive: &ArchiveStore,
    before: &Manifest,
    next: &Manifest,
    group: &SegmentGroup,
) -> Result<SpanEntry, Failed> {
    let of_group = |first: u64| span_groups(first, next.range) == group.number;
    let segments: Vec<_> = next.segments.iter().filter(|segment| of_group(segment.first)).collect();
    let first = segments.first().map(|segment| segment.first).unwrap_or_default();
    let old = before.spans.iter().find(|span| of_group(span.first));
    let there = match old {
        Some(old) => Some(get_span(archive, before, old).await?),
        None => None,
    };
    let (old_span, old_pages) = there.unzip();
    let span = Span::empty(first, next.range, segments.len() as u32)?;
    let span = span.with(old_span.as_ref(), &group.keys)?;
    let pages = segments.iter().map(|segment| pages_of(segment, old_pages.as_ref(), group));
    let terms = terms(archive, before, old, &span, group).await?;
    let pages = PageLists::new(&span, pages.collect::<Result<_, _>>()?, terms.as_ref())?;
    put_span(archive, next, (&span, &pages, terms.as_ref())).await
}

/// Terms of a span. One of an earlier writer, which has none, does not get those of its new segments alone.
async fn terms(
    archive: &ArchiveStore,
    before: &Manifest,
    old: Option<&SpanEntry>,
    span: &Span,
    group: &SegmentGroup,
) -> Result<Option<Terms>, Failed> {
    let old = match old.map(|old| (before.terms_name(old), old.terms)) {
        Some((Some(name), Some(at))) => Some(Terms::read(&archive.get(&name, at.bytes).await?)?),
        Some(_) => return Ok(None),
        None => None,
    };
    Ok(Some(Terms::new(span, old.as_ref(), group.terms.iter().copied())?))
}

/// Pages of a segment, which is new or was there.
fn pages_of(
    segment: &SegmentEntry,
    old: Option<&PageLists>,
    group: &SegmentGroup,
) -> Result<SegmentPages, Failed> {
    let is_it = |pages: &&SegmentPages| pages.pages.object_digest() == segment.digest;
    let old = old.and_then(|old| old.segment(segment.first)).filter(is_it);
    let found = old.or_else(|| group.pages.iter().find(is_it));
    found.cloned().ok_or(Failed::NoPages(segment.first))
}
