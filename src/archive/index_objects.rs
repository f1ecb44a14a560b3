//! The objects that are made of the segments of a span: the span, its page lists, its filter and its terms.

use neve_archive::{HashFilter, IndexEntry, PageLists, Span, SpanEntry, Terms, object_digest};

/// Entry of a span in the manifest, and the bytes of its objects: span, page lists, filter; and terms.
pub(super) fn entry_of(
    span: &Span,
    pages: &PageLists,
    terms: Option<&Terms>,
) -> (SpanEntry, Vec<Vec<u8>>) {
    let objects = [span.to_bytes(), pages.to_bytes(), HashFilter::of(span).as_bytes().to_vec()];
    let index =
        |object: &Vec<u8>| IndexEntry { bytes: object.len() as u64, digest: object_digest(object) };
    let [IndexEntry { bytes, digest }, pages, filter] = objects.each_ref().map(index);
    let (first, segments) = (span.first(), span.segments());
    let of_terms = terms.map(Terms::to_bytes);
    let terms = of_terms.as_ref().map(index);
    let objects = objects.into_iter().chain(of_terms).collect();
    (SpanEntry { first, segments, bytes, digest, pages, filter, terms }, objects)
}
