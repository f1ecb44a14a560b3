use std::time::Duration;

use neve_archive::{Chain, IndexEntry};

use super::*;
use crate::archive::read::fetch::ReadRates;
use crate::archive::read::page_source::tests::stored;

fn digest(number: u64) -> Digest {
    let mut bytes = [0; 32];
    bytes[..8].copy_from_slice(&number.to_le_bytes());
    Digest(bytes)
}

/// Spans that all have a filter which is left alone, but the last one.
fn spans(count: u64) -> (LoadedFilters, Vec<SpanEntry>) {
    let index = |number| IndexEntry { bytes: 10, digest: digest(number) };
    let span = |number| SpanEntry {
        first: number * 2048,
        segments: 64,
        bytes: 10,
        digest: digest(number),
        pages: index(number),
        filter: index(number),
        terms: None,
    };
    let filters = LoadedFilters::new(1 << 40);
    let left = (0..count - 1).map(|number| (digest(number), Instant::now()));
    *lock(&filters.left) = left.collect();
    (filters, (0..count).map(span).collect())
}

/// Time of one plan: the least of many, as other programs may run in between.
fn time(count: u64) -> Duration {
    let (filters, spans) = spans(count);
    let once = || {
        let begun = Instant::now();
        let plan = filters.plan(&Loaded::default(), spans.iter());
        assert_eq!(plan.next.map(|span| span.first), Some((count - 1) * 2048));
        assert!(plan.has_gap && plan.reach.is_none());
        begun.elapsed()
    };
    (0..50).map(|_| once()).min().expect("there are some")
}

#[test]
fn sixteen_times_the_spans_take_far_less_than_256_times_the_time() {
    let (few, many) = (time(500), time(8000));
    assert!(many < few * 64, "{few:?}, {many:?}");
}

fn filter() -> HashFilter {
    HashFilter::of(&neve_archive::Span::empty(0, 32, 1).expect("it is one"))
}

/// A filter that has this hash alone.
fn filter_with(hash: [u8; 32]) -> HashFilter {
    let at = neve_archive::Spot { height: 0, transaction: None };
    let span = neve_archive::Span::empty(0, 32, 1);
    let span = span.and_then(|span| span.with(None, &[neve_archive::Key::new(&hash, at)]));
    HashFilter::of(&span.expect("it is one"))
}

/// These filters, of spans that are whole.
fn loaded(filters: impl IntoIterator<Item = (u64, HashFilter)>) -> Loaded {
    let add = |all: Loaded, (at, filter)| all.with(filter, digest(at), true);
    filters.into_iter().fold(Loaded::default(), add)
}

/// 660 filters, those of mainnet in 4 GiB, take about 50 us to say no of a hash until they are merged.
#[test]
fn more_filters_than_a_serving_thread_asks_are_left_to_other_threads() {
    let filters = LoadedFilters::new(1 << 40);
    for (count, are_many) in [(0, false), (512, false), (513, true), (660, true)] {
        filters.loaded.store(Arc::new(loaded((0..count).map(|at| (at, filter())))));
        assert_eq!((filters.are_many(), filters.may_have(&[7; 32])), (are_many, false));
    }
}

#[test]
fn newest_span_is_asked_first_and_those_below_it_afterwards() {
    let (filters, spans) = spans(4);
    let some = [(0, filter_with([7; 32])), (1, filter()), (2, filter_with([7; 32]))];
    filters.loaded.store(Arc::new(loaded(some)));
    assert_eq!(filters.last_span(&spans, &[7; 32]), Some(2), "that of 3 is not here");
    assert_eq!(filters.last_span(&spans[..2], &[7; 32]), Some(0));
    assert_eq!(filters.last_span(&spans, &[8; 32]), None);
}

#[test]
fn filters_reach_down_to_the_first_one_that_is_left_alone() {
    let (filters, spans) = spans(4);
    let loaded = loaded([(3, filter()), (1, filter())]);
    let plan = filters.plan(&loaded, spans.iter().rev());
    assert_eq!((plan.reach, plan.has_gap), (Some(3 * 2048), true));
    assert!(plan.next.is_none() && plan.kept.len() == 2);
    lock(&filters.left).remove(&digest(2));
    let plan = filters.plan(&loaded, spans.iter().rev());
    assert_eq!(plan.next.map(|span| span.first), Some(2 * 2048));
    let small = LoadedFilters::new(15);
    assert!(small.plan(&loaded, spans.iter().rev()).next.is_none(), "one of 10 bytes fits");
}

fn kept(numbers: impl IntoIterator<Item = u64>) -> HashSet<Digest> {
    numbers.into_iter().map(digest).collect()
}

fn hash(number: u64) -> [u8; 32] {
    digest(number.wrapping_mul(0x9e37_79b9_7f4a_7c15)).0
}

/// Filters that have the hash of their number, sixteen of them in one table.
fn merged() -> Loaded {
    let all = loaded((0..20).map(|at| (at, filter_with(hash(at)))));
    let (merging, members) = all.alike(usize::MAX).expect("there are enough");
    all.merged(merging.finish(), members)
}

#[test]
fn sixteen_filters_become_one_table_and_their_hashes_stay() {
    let all = merged();
    assert_eq!(all.tables(), 5);
    assert!(all.alike(usize::MAX).is_none(), "four are left");
    for at in 0..20 {
        assert!(all.has(&digest(at)) && all.may_have(&hash(at)), "{at}");
        assert_eq!(all.with_hash(&hash(at)), [digest(at)]);
    }
    assert!(!all.may_have(&hash(20)) && !all.has(&digest(20)));
    assert!(!all.has_others_than(&kept(0..20)));
}

#[test]
fn table_whose_filters_are_not_all_kept_is_split() {
    let all = merged();
    assert!(all.has_others_than(&kept((0..20).filter(|at| *at != 3))));
    let left = all.keep(&kept((0..20).filter(|at| *at != 3)));
    assert_eq!(left.tables(), 19);
    for at in 0..20 {
        assert_eq!((left.has(&digest(at)), left.may_have(&hash(at))), (at != 3, at != 3), "{at}");
    }
    assert_eq!(
        left.alike(usize::MAX).map(|(_, members)| members.len()),
        Some(16),
        "they merge again"
    );
    assert_eq!(all.keep(&kept(16..18)).tables(), 2, "a table without kept ones is dropped");
}

#[test]
fn tables_are_split_one_after_the_other_and_merged_within_a_bound() {
    let all = loaded((0..32).map(|at| (at, filter_with(hash(at)))));
    let bytes = 16 * filter_with(hash(0)).into_table().size();
    assert!(all.alike(bytes - 1).is_none());
    let merge = |all: Loaded, _| {
        let (merging, members) = all.alike(bytes).expect("there are enough");
        all.merged(merging.finish(), members)
    };
    let all = (0..2).fold(all, merge);
    assert_eq!(all.tables(), 2);
    let kept = kept(1..31); // whichever tables they are in
    let (mut left, mut steps) = (all, 0);
    while left.has_others_than(&kept) {
        (left, steps) = (left.keep(&kept), steps + 1);
    }
    assert_eq!(steps, left.tables() / 14, "a step a table");
    assert!((1..31).all(|at| left.with_hash(&hash(at)) == [digest(at)]));
}

#[test]
fn filters_of_spans_that_grow_stay_alone() {
    let growing = |all: Loaded, at| all.with(filter(), digest(at), false);
    let all = (0..15).fold(loaded([(20, filter())]), growing);
    assert!(all.alike(usize::MAX).is_none());
    assert!(loaded((0..16).map(|at| (at, filter()))).alike(usize::MAX).is_some());
}

#[tokio::test]
async fn filters_are_merged_once_all_are_here_and_go_with_their_spans() {
    let dir = tempfile::tempdir().expect("a directory can be made");
    let (source, _, _) = stored(dir.path(), &[7], ReadRates { reads: 1, bytes: 1 }).await;
    let manifest = Manifest::empty(Chain { chain_id: 7, genesis: digest(7), range: 32 });
    let (filters, spans) = spans(20);
    filters.loaded.store(Arc::new(loaded((0..20).map(|at| (at, filter_with(hash(at)))))));
    let tables = || filters.loaded.load().tables();
    let next = async |spans: &[SpanEntry]| {
        filters.next(&source, &manifest, spans.iter().rev()).await.expect("no read is needed")
    };
    assert_eq!((next(&spans).await, tables()), ((Some(0), false), 5));
    assert_eq!((next(&spans).await, tables()), ((Some(0), true), 5), "four are left");
    assert!((0..20).all(|at| filters.last_span(&spans, &hash(at)) == Some(at as usize)));
    // The lowest span goes, then its table.
    let lowest = Some(spans[1].first);
    assert_eq!(next(&spans[1..]).await, (lowest, false));
    assert!(!filters.may_have(&hash(0)) && (1..20).all(|at| filters.may_have(&hash(at))));
    assert_eq!((next(&spans[1..]).await, tables()), ((lowest, false), 4), "merged again");
    assert_eq!((next(&spans[18..]).await.0, filters.may_have(&hash(17))), (Some(18 * 2048), false));
}

/// A filter with this many entries in its only bucket, which a look-up would read one by one.
fn false_filter(entries: u32) -> Vec<u8> {
    let mut bytes = filter().as_bytes().to_vec();
    bytes[28..32].copy_from_slice(&entries.to_le_bytes());
    bytes.resize(bytes.len() + entries.div_ceil(2) as usize * 5, 0);
    bytes
}

#[tokio::test]
async fn filter_that_no_writer_makes_is_left_alone_and_kept_as_evidence() {
    let dir = tempfile::tempdir().expect("a directory can be made");
    let (object, rates) = (false_filter(100_000), ReadRates { reads: 1000, bytes: 1 << 40 });
    let (source, store, name) = stored(dir.path(), &object, rates).await;
    let archive = crate::archive::store::ArchiveStore::over(Arc::clone(&store));
    let manifest = Manifest::empty(Chain { chain_id: 7, genesis: digest(7), range: 32 });
    let (filters, mut spans) = spans(2);
    lock(&filters.left).clear();
    // The newer one is false, and its first height is that of the object.
    spans[1] = SpanEntry { first: 0, ..spans[1] };
    spans[1].filter = IndexEntry { bytes: object.len() as u64, digest: name.digest };
    let good = filter_with(hash(1)).as_bytes().to_vec();
    spans[0].filter =
        IndexEntry { bytes: good.len() as u64, digest: neve_archive::object_digest(&good) };
    archive.put(&manifest.filter_name(&spans[0]), good).await.expect("it is in memory");
    let next = async || filters.next(&source, &manifest, spans.iter().rev()).await;
    assert_eq!(next().await, Ok((None, false)));
    assert!(lock(&filters.left).contains_key(&name.digest), "it is left alone");
    let gets = store.gets();
    assert_eq!(next().await, Ok((None, false)), "the one below it is brought");
    assert_eq!((store.gets() - gets, filters.loaded.load().tables()), (1, 1));
    assert!(filters.may_have(&hash(1)) && !filters.may_have(&hash(2)));
    let kept = || std::fs::read_dir(dir.path().join("evidence")).map_or(0, Iterator::count);
    let waiting = async {
        while kept() == 0 {
            sleep(Duration::from_millis(10)).await;
        }
    };
    tokio::time::timeout(Duration::from_mins(1), waiting).await.expect("it is written");
}
