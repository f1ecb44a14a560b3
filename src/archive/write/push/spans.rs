//! The span of a group of segments: that of the manifest with new segments, or a new one.

use std::sync::Arc;

use neve_archive::{
    Manifest, PageLists, SegmentEntry, SegmentPages, Span, SpanEntry, Terms, span_groups,
};

use super::group::SegmentGroup;
use super::putting::Putting;
use crate::archive::error::Failed;
use crate::archive::index_objects::entry_of;
use crate::archive::store::ArchiveStore;
use crate::archive::write::change::{get_span, put_span_objects};

/// Makes and puts the span of a group, its page lists, its filter and its terms.
pub(super) async fn put_span_of(
    putting: Putting<'_>,
    before: &Manifest,
    next: &Manifest,
    group: &Arc<SegmentGroup>,
) -> Result<SpanEntry, Failed> {
    let (number, range, group) = (group.number, next.range, Arc::clone(group));
    let of_group = move |first: u64| span_groups(first, range) == number;
    let segments = next.segments.iter().copied().filter(|segment| of_group(segment.first));
    let segments: Vec<SegmentEntry> = segments.collect();
    let old = match before.spans.iter().find(|span| of_group(span.first)) {
        Some(old) => Some(OldSpan::get(putting.archive, before, old).await?),
        None => None,
    };
    let making = move || span_objects(range, &segments, old.as_ref(), &group);
    let (entry, objects) = putting.work(making).await??;
    put_span_objects(putting.archive, next, &entry, objects).await?;
    Ok(entry)
}

/// Span of a group as it was, and its objects.
struct OldSpan {
    span: Span,
    pages: PageLists,
    /// `None` if an earlier writer made the span.
    terms: Option<Terms>,
}

impl OldSpan {
    async fn get(
        archive: &ArchiveStore,
        manifest: &Manifest,
        entry: &SpanEntry,
    ) -> Result<Self, Failed> {
        let (span, pages) = get_span(archive, manifest, entry).await?;
        let terms = match manifest.terms_name(entry).zip(entry.terms) {
            Some((name, at)) => Some(Terms::read(&archive.get(&name, at.bytes).await?)?),
            None => None,
        };
        Ok(Self { span, pages, terms })
    }
}

/// Makes the objects of the span of these segments, of which a group is new.
fn span_objects(
    range: u32,
    segments: &[SegmentEntry],
    old: Option<&OldSpan>,
    group: &SegmentGroup,
) -> Result<(SpanEntry, Vec<Vec<u8>>), Failed> {
    let first = segments.first().map(|segment| segment.first).unwrap_or_default();
    let span = Span::empty(first, range, segments.len() as u32)?;
    let span = span.with(old.map(|old| &old.span).into_iter().chain(&group.spans), &[])?;
    let old_pages = old.map(|old| &old.pages);
    let pages = segments.iter().map(|segment| pages_of(segment, old_pages, group));
    // A span of an earlier writer does not get those of its new segments alone.
    let has_terms = old.is_none_or(|old| old.terms.is_some());
    let old_terms = old.and_then(|old| old.terms.as_ref());
    let terms = has_terms.then(|| Terms::new(&span, old_terms, group.terms.iter().copied()));
    let terms = terms.transpose()?;
    let pages = PageLists::new(&span, pages.collect::<Result<_, _>>()?, terms.as_ref())?;
    Ok(entry_of(&span, &pages, terms.as_ref()))
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
