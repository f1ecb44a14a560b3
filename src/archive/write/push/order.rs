//! Packed files in the order in which they join an archive.

use std::collections::{BTreeMap, BTreeSet};

use neve_archive::{Manifest, span_groups};

use crate::archive::error::Failed;
use crate::archive::local::PackedOnDisk;

/// The unbroken runs of files that meet the archive, or the newest run if that is empty, and the number of
/// the other files. neve packs the newest ranges first, so that a store may have several runs.
pub(super) fn joining(
    files: Vec<PackedOnDisk>,
    manifest: &Manifest,
) -> Result<(Vec<PackedOnDisk>, u64), Failed> {
    let all = files.len();
    let mut runs = unbroken_runs(files);
    let newest = runs.last().map_or((0, 0), |run| (run[0].header.first, end_of(run)));
    let (first, end) =
        manifest.heights().map_or(newest, |(first, last)| (first, last.saturating_add(1)));
    runs.retain(|run| run[0].header.first <= end && end_of(run) >= first);
    if runs.is_empty() && all == 0 {
        return Ok((Vec::new(), 0)); // all are below the retained heights
    }
    if runs.is_empty() {
        let above = Failed::Gap { first: end, last: newest.0.saturating_sub(1) };
        let below = Failed::Gap { first: newest.1, last: first.saturating_sub(1) };
        return Err(if newest.0 > end { above } else { below });
    }
    let joining: Vec<PackedOnDisk> = runs.into_iter().flatten().collect();
    let apart = (all - joining.len()) as u64;
    Ok((joining, apart))
}

fn unbroken_runs(files: Vec<PackedOnDisk>) -> Vec<Vec<PackedOnDisk>> {
    let mut runs: Vec<Vec<PackedOnDisk>> = Vec::new();
    for file in files {
        match runs.last_mut() {
            Some(run) if end_of(run) == file.header.first => run.push(file),
            _ => runs.push(vec![file]),
        }
    }
    runs
}

/// Height after a run of files.
fn end_of(run: &[PackedOnDisk]) -> u64 {
    run.last().map_or(0, |file| file.header.end())
}

/// The files by groups, in the order in which they join the archive: upward, then downward.
pub(super) fn in_order(files: Vec<PackedOnDisk>, manifest: &Manifest) -> Vec<Vec<PackedOnDisk>> {
    let mut groups: BTreeMap<u64, Vec<PackedOnDisk>> = BTreeMap::new();
    for file in files {
        groups.entry(span_groups(file.header.first, manifest.range)).or_default().push(file);
    }
    // Each group must meet the archive, or its manifest would have a gap for a while.
    let Some((first, _)) = manifest.heights() else { return groups.into_values().collect() };
    let above = groups.split_off(&span_groups(first, manifest.range));
    above.into_values().chain(groups.into_values().rev()).collect()
}

/// Fails if segments that begin at these heights would leave a gap.
pub(super) fn unbroken(manifest: &Manifest, more: impl Iterator<Item = u64>) -> Result<(), Failed> {
    let there = manifest.segments.iter().map(|segment| segment.first);
    let firsts: BTreeSet<u64> = there.chain(more).collect();
    let range = u64::from(manifest.range);
    for (below, above) in firsts.iter().zip(firsts.iter().skip(1)) {
        let end = below.saturating_add(range);
        if end < *above {
            return Err(Failed::Gap { first: end, last: above - 1 });
        }
    }
    Ok(())
}
