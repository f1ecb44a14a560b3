//! The objects that a manifest names, and those that it deletes.

use std::collections::HashSet;

use super::{DELETED_MAX, Deletion, Manifest, SpanEntry, WHAT};
use crate::digest::{Digest, PAGE_BYTES};
use crate::error::ArchiveError;
use crate::links::LINKS_BYTES;
use crate::name::ObjectName;
use crate::page_lists::bytes_of;

impl Manifest {
    /// Returns the names of all objects with their lengths: segments, then the objects of each span, then those
    /// with links.
    pub fn objects(&self) -> impl Iterator<Item = (ObjectName, u64)> + '_ {
        let segments = self.segments.iter();
        let segments = segments.map(|segment| (self.segment_name(segment), segment.bytes));
        let spans = self.spans.iter().flat_map(|span| self.span_objects(span));
        segments.chain(spans).chain(self.link_objects().map(|name| (name, LINKS_BYTES)))
    }

    /// Returns the names of the objects of a span with their lengths: span, page lists, filter, and terms if
    /// it has them.
    pub fn span_objects(
        &self,
        span: &SpanEntry,
    ) -> impl Iterator<Item = (ObjectName, u64)> + use<> {
        // All members: an object that is left out here would be deleted as unnamed.
        let SpanEntry { first: _, segments: _, bytes, digest: _, pages, filter, terms } = *span;
        let objects = [
            (self.span_name(span), bytes),
            (self.pages_name(span), pages.bytes),
            (self.filter_name(span), filter.bytes),
        ];
        objects.into_iter().chain(self.terms_name(span).zip(terms.map(|terms| terms.bytes)))
    }

    /// Returns the bytes that the page lists of a span have, by the lengths of the objects that they are of.
    pub fn pages_bytes(&self, span: &SpanEntry) -> u64 {
        let pages = |bytes: u64| bytes.div_ceil(PAGE_BYTES as u64) as usize;
        let from = self.segments.partition_point(|segment| segment.first < span.first);
        let segments = self.segments.iter().skip(from).take(span.segments as usize);
        let segments = segments.map(|segment| pages(segment.bytes));
        bytes_of(segments, pages(span.bytes), span.terms.map(|terms| pages(terms.bytes))) as u64
    }

    /// Returns the sequence of the manifest that began the last deletion; 0 before the first.
    pub fn deleted_since(&self) -> u64 {
        self.deletion.as_ref().map_or(0, |deletion| deletion.since)
    }

    /// True if the object is being deleted: no writer may name it before the deletion has ended.
    pub fn deletes(&self, name: &ObjectName) -> bool {
        let deleted = self.deletion.as_ref().map_or(&[][..], |deletion| &deletion.objects);
        deleted.binary_search(&name.to_string()).is_ok()
    }

    pub(super) fn check_deletion(&self) -> Result<(), ArchiveError> {
        let Some(Deletion { since, objects }) = &self.deletion else { return Ok(()) };
        if *since == 0 || *since > self.sequence {
            return Err(malformed("a sequence that is not there yet"));
        }
        if objects.len() > DELETED_MAX || !objects.is_sorted_by(|a, b| a < b) {
            return Err(malformed("too many names, or names that do not ascend"));
        }
        let deleted = self.read_names(objects)?;
        let is_named = |(name, _): (ObjectName, u64)| deleted.contains(&(name.digest, name.first));
        // The deletion would take away what readers of this manifest need.
        if !objects.is_empty() && self.objects().any(is_named) {
            return Err(malformed("an object that the manifest names"));
        }
        Ok(())
    }

    /// Reads the names of objects of this chain. Returns the digest and the first height of each.
    fn read_names(&self, objects: &[String]) -> Result<HashSet<(Digest, u64)>, ArchiveError> {
        let mut names = HashSet::new();
        for object in objects {
            let name: ObjectName = object.parse()?;
            if name.chain_id != self.chain_id {
                return Err(malformed("an object of another chain"));
            }
            names.insert((name.digest, name.first));
        }
        Ok(names)
    }
}

fn malformed(why: &str) -> ArchiveError {
    ArchiveError::malformed(WHAT, format!("deletion: {why}"))
}
