//! Plan of the reads of a search for a rare term: neve reads some of its segments whole, so that it takes at most 12
//! reads.

use neve_archive::PAGE_BYTES;

use crate::archive::read::archived_files::ReadExtent;

/// Reads that a search takes at most if a plan fits.
pub(super) const PLANNED_READS_MAX: usize = 12;
/// Spans whose terms are read before the first segment, so that one plan has the segments of all.
pub(super) const SPANS_MAX: usize = 4;
/// Reads of a segment that is not read whole: up to its log index, and from its first frame to its last.
const PARTIAL_READS: usize = 2;

/// Pages that a plan may have.
pub(super) struct PlanLimits {
    /// Pages of each segment: one read brings so many.
    pub(super) segment_pages: usize,
    /// Pages of all segments together.
    pub(super) pages: usize,
}

/// Plans the reads of segments of so many bytes, after so many reads for their terms. The smallest segments are read
/// whole, as few as possible. Without a plan that fits, all extents are `Near`.
pub(super) fn plan(reads: usize, segments: &[u64], limits: &PlanLimits) -> Vec<ReadExtent> {
    let pages = |bytes: u64| bytes.div_ceil(PAGE_BYTES as u64) as usize;
    let mut ascending: Vec<_> = segments.iter().copied().enumerate().collect();
    ascending.sort_unstable_by_key(|(_, bytes)| *bytes);
    let whole = (reads + PARTIAL_READS * segments.len()).saturating_sub(PLANNED_READS_MAX);
    let smallest = ascending.get(..whole).unwrap_or_default();
    // One segment needs no plan. Beyond so many, one read each would be too many.
    let has_bound = segments.len() > 1 && reads + segments.len() <= PLANNED_READS_MAX;
    // All pages of all segments: frames may be anywhere. One read must reach from the first to the last, and the rate
    // must not refuse the last read.
    let fits = segments.iter().map(|bytes| pages(*bytes)).sum::<usize>() <= limits.pages
        && segments.iter().all(|bytes| pages(*bytes) <= limits.segment_pages);
    if !has_bound || !fits {
        return vec![ReadExtent::Near; segments.len()];
    }
    let mut extents = vec![ReadExtent::Gaps; segments.len()];
    for (at, _) in smallest {
        extents[*at] = ReadExtent::Whole;
    }
    extents
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Pages of a segment of mainnet.
    const SEGMENT: usize = 70;
    const LIMITS: PlanLimits = PlanLimits { segment_pages: 128, pages: 768 };

    fn bytes(pages: usize) -> u64 {
        (pages * PAGE_BYTES) as u64
    }

    /// Segments that are read whole after so many reads. `None` without a plan.
    fn whole(reads: usize, segments: usize, limits: &PlanLimits) -> Option<usize> {
        let extents = plan(reads, &vec![bytes(SEGMENT); segments], limits);
        assert_eq!(extents.len(), segments);
        let count = |wanted| extents.iter().filter(|extent| **extent == wanted).count();
        let whole = count(ReadExtent::Whole);
        if count(ReadExtent::Near) > 0 {
            assert_eq!(count(ReadExtent::Near), segments, "all or none");
            return None;
        }
        assert_eq!(whole + count(ReadExtent::Gaps), segments);
        assert!(reads + whole + PARTIAL_READS * (segments - whole) <= PLANNED_READS_MAX);
        Some(whole)
    }

    #[test]
    fn fewest_segments_are_read_whole_that_keep_within_twelve_reads() {
        let of_one_span = [2, 5, 6, 8, 10].map(|segments| whole(2, segments, &LIMITS));
        assert_eq!(of_one_span, [0, 0, 2, 6, 10].map(Some));
        let of_two_spans = [4, 5, 8].map(|segments| whole(4, segments, &LIMITS));
        assert_eq!(of_two_spans, [0, 2, 8].map(Some));
        assert_eq!(whole(0, 6, &LIMITS), Some(0), "the terms are here");
    }

    #[test]
    fn search_without_a_bound_has_no_plan() {
        assert_eq!([0, 1, 11].map(|segments| whole(2, segments, &LIMITS)), [Some(0), None, None]);
        assert_eq!((whole(4, 9, &LIMITS), whole(40, 2, &LIMITS)), (None, None));
    }

    #[test]
    fn plan_keeps_within_its_pages() {
        let limits = |segment_pages, pages| PlanLimits { segment_pages, pages };
        assert_eq!(whole(2, 6, &limits(SEGMENT, 6 * SEGMENT)), Some(2));
        assert_eq!(whole(2, 6, &limits(SEGMENT - 1, 6 * SEGMENT)), None, "a longer read");
        assert_eq!(whole(2, 6, &limits(SEGMENT, 6 * SEGMENT - 1)), None);
        assert_eq!(whole(2, 5, &limits(SEGMENT - 1, 5 * SEGMENT)), None, "frames far apart");
    }

    #[test]
    fn smallest_segments_are_read_whole() {
        let segments = [70, 120, 50, 71, 40, 69].map(bytes);
        let of = |reads| plan(reads, &segments, &LIMITS);
        let is_whole = |extents: Vec<ReadExtent>| -> Vec<usize> {
            let whole = extents.iter().enumerate().filter(|(_, how)| **how == ReadExtent::Whole);
            whole.map(|(at, _)| at).collect()
        };
        assert_eq!(is_whole(of(2)), [2, 4]);
        assert_eq!(is_whole(of(5)), [0, 2, 3, 4, 5]);
        assert_eq!(is_whole(of(6)), [0, 1, 2, 3, 4, 5]);
        let long = [70, 200, 50, 71, 40, 69].map(bytes);
        assert_eq!(plan(2, &long, &LIMITS), [ReadExtent::Near; 6], "200 pages are no one read");
    }
}
