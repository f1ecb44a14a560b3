//! Adding a group of segments to the manifest.

use std::ops::Deref;
use std::path::PathBuf;
use std::sync::Arc;

use neve_archive::{Chain, Manifest, SpanEntry, span_groups};

use super::group::SegmentGroup;
use super::order::unbroken;
use super::putting::Putting;
use super::spans::put_span_of;
use crate::archive::error::Failed;
use crate::archive::store::HeldManifest;
use crate::archive::write::change::Writer;

/// Copy of the manifest that is held, or one without segments. One that is shared goes: it may have 30 MB.
pub(super) fn manifest_of(
    held: Option<impl Deref<Target = HeldManifest>>,
    chain: Chain,
) -> Manifest {
    held.map_or_else(|| Manifest::empty(chain), |held| held.manifest.clone())
}

/// Adds a group to the manifest that is there, as often as another writer comes first. Returns the manifest,
/// and false if objects or heights were removed since `known`: those of the group may be among them.
pub(super) async fn add(
    writer: &Writer<'_>,
    known: &Manifest,
    group: &Arc<SegmentGroup>,
    putting: Putting<'_>,
) -> Result<(Manifest, bool), Failed> {
    let mut overtaken = None;
    let added = writer.change(async |held| {
        let state = |manifest: &Manifest| (manifest.deleted_since(), manifest.from);
        if held.map_or((0, 0), |held| state(&held.manifest)) != state(known) {
            overtaken = held.map(|held| held.manifest.clone());
            return Ok(None);
        }
        joined(held, known, (group, putting)).await.map(Some)
    });
    match (added.await?, overtaken) {
        (Some(manifest), _) => Ok((manifest, true)),
        (None, Some(manifest)) => Ok((manifest, false)),
        (None, None) => Err(Failed::NoManifest), // it was removed by hand
    }
}

async fn joined(
    held: Option<&HeldManifest>,
    empty: &Manifest,
    (group, putting): (&Arc<SegmentGroup>, Putting<'_>),
) -> Result<Manifest, Failed> {
    let before = manifest_of(held, empty.chain());
    if before.chain() != empty.chain() {
        return Err(Failed::OtherChain(PathBuf::from("what is pushed")));
    }
    let mut next = match held {
        Some(held) => before.following(held.digest),
        None => Manifest { sequence: 1, ..before.clone() },
    };
    add_segments(&before, &mut next, group)?;
    let span = put_span_of(putting, &before, &next, group).await?;
    let number = |span: &SpanEntry| span_groups(span.first, before.range);
    next.spans.retain(|span| number(span) != group.number);
    next.spans.push(span);
    next.spans.sort_by_key(|span| span.first);
    Ok(next)
}

/// Adds those segments of a group to the next manifest that the one before lacks.
fn add_segments(
    before: &Manifest,
    next: &mut Manifest,
    group: &SegmentGroup,
) -> Result<(), Failed> {
    for segment in &group.segments {
        match before.segment_of(segment.first) {
            None => next.segments.push(*segment),
            // The same blocks, perhaps packed by another writer: that file stays.
            Some(there) if (there.last, there.parent) == (segment.last, segment.parent) => {}
            Some(there) => return Err(Failed::OtherBlocks(there.first)),
        }
    }
    next.segments.sort_by_key(|segment| segment.first);
    linked(next)
}

fn linked(manifest: &Manifest) -> Result<(), Failed> {
    unbroken(manifest, std::iter::empty())?;
    for pair in manifest.segments.windows(2) {
        let [below, above] = pair else { continue };
        if above.parent != below.last {
            return Err(Failed::OtherBlocks(above.first));
        }
    }
    Ok(())
}
