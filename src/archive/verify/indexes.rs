//! The objects that are made of the segments of a span, compared with them.

use neve_archive::{HashFilter, Manifest, ObjectName, PageLists, Span, SpanEntry, Terms};

use super::{Content, Fault, fault};
use crate::archive::error::Failed;
use crate::archive::index_objects::entry_of;
use crate::archive::store::ArchiveStore;

/// Object that is made of segments.
#[derive(Debug, Clone, Copy)]
pub(super) enum Index {
    Span,
    Pages,
    Filter,
    Terms,
}

impl Index {
    /// Name of the object, if the span has it.
    pub(super) fn name(self, manifest: &Manifest, span: &SpanEntry) -> Option<ObjectName> {
        match self {
            Self::Span => Some(manifest.span_name(span)),
            Self::Pages => Some(manifest.pages_name(span)),
            Self::Filter => Some(manifest.filter_name(span)),
            Self::Terms => manifest.terms_name(span),
        }
    }

    fn bytes(self, span: &SpanEntry) -> u64 {
        match self {
            Self::Span => span.bytes,
            Self::Pages => span.pages.bytes,
            Self::Filter => span.filter.bytes,
            Self::Terms => span.terms.map_or(0, |terms| terms.bytes),
        }
    }

    /// Checks the form of an object.
    fn read(self, bytes: &[u8]) -> Result<(), Fault> {
        let read = match self {
            Self::Span => Span::read(bytes).map(drop),
            Self::Pages => PageLists::read(bytes).map(drop),
            Self::Filter => HashFilter::read(bytes.to_vec()).map(drop),
            Self::Terms => Terms::read(bytes).map(drop),
        };
        read.map_err(|error| (self.kind(), error.to_string()))
    }

    fn kind(self) -> &'static str {
        match self {
            Self::Span => "span",
            Self::Pages => "pages",
            Self::Filter => "filter",
            Self::Terms => "terms",
        }
    }
}

/// Makes the objects of a span of segments.
pub(super) fn made(
    manifest: &Manifest,
    entry: &SpanEntry,
    content: Content,
) -> Result<Vec<Vec<u8>>, Failed> {
    let empty = Span::empty(entry.first, manifest.range, entry.segments)?;
    let span = empty.with(None, &content.keys)?;
    // A span of an earlier writer has none.
    let terms = entry.terms.map(|_| Terms::new(&span, None, content.terms.into_iter()));
    let terms = terms.transpose()?;
    let pages = PageLists::new(&span, content.pages, terms.as_ref())?;
    Ok(entry_of(&span, &pages, terms.as_ref()).1)
}

/// Compares an object with the one that the segments make, if they are whole.
pub(super) async fn check_index(
    archive: &ArchiveStore,
    name: &ObjectName,
    span: &SpanEntry,
    index: Index,
    made: Option<&Vec<u8>>,
) -> Result<Result<(), Fault>, Failed> {
    let bytes = match archive.get(name, index.bytes(span)).await {
        Ok(bytes) => bytes,
        Err(failed) => return fault(failed),
    };
    if let Err(fault) = index.read(&bytes) {
        return Ok(Err(fault));
    }
    // With a segment missing, only the form is known.
    let same = made.is_none_or(|made| *made == bytes);
    let other = || (index.kind(), "it has other hashes or pages than its segments".to_owned());
    Ok(if same { Ok(()) } else { Err(other()) })
}
