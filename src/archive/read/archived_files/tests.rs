//! Page lists of spans whose lengths a manifest names falsely, or truly, and segments that do not open.

use std::net::IpAddr;
use std::pin::pin;
use std::time::Duration;

use futures_util::FutureExt;
use neve_archive::{Chain, IndexEntry, PageList, SegmentPages, Span, Terms};
use tokio::task::unconstrained;
use tokio::time::sleep;

use super::*;
use crate::archive::read::fetch::tests::script_store::{Mode, ScriptStore};
use crate::archive::read::fetch::{Payer, ReadRates};
use crate::archive::read::page_source::tests::stored;
use crate::archive::read::turns::AllTurns;
use crate::shared::ClientAddress;

fn span(number: u8, bytes: u64) -> SpanEntry {
    let (first, digest) = (u64::from(number) * 64 * 32, Digest([number; 32]));
    let index = IndexEntry { bytes, digest };
    let (pages, filter) = (index, index);
    SpanEntry { first, segments: 64, bytes: 1, digest, pages, filter, terms: None }
}

/// A manifest of spans with page lists of so many bytes, of segments of so many.
fn manifest(spans: u8, lists_bytes: u64, segment_bytes: u64) -> Manifest {
    let digest = Digest([7; 32]);
    let entry = |at| SegmentEntry {
        first: at * 32,
        bytes: segment_bytes,
        digest,
        last: digest,
        parent: digest,
    };
    let empty = Manifest::empty(Chain { chain_id: 7, genesis: digest, range: 32 });
    let segments = (0..u64::from(spans) * 64).map(entry).collect();
    Manifest {
        segments,
        spans: (0..spans).map(|number| span(number, lists_bytes)).collect(),
        ..empty
    }
}

fn budget(last: u8) -> Budget<'static> {
    let address = ClientAddress::from(IpAddr::from([10, 0, 0, last]));
    Budget::of_a_request(Payer::Client(address), 256)
}

fn over(pages: Arc<PageSource>) -> ArchivedFiles {
    let codec = Arc::new(Codec::new(TABLES_BYTES_MAX));
    let (filters, lists) = (Arc::new(LoadedFilters::new(0)), Mutex::default());
    let (logs_reads_max, trusts_terms, look_ups) = (256, false, Arc::new(Semaphore::new(1)));
    ArchivedFiles { pages, filters, logs_reads_max, trusts_terms, codec, lists, look_ups }
}

const MANY: ReadRates = ReadRates { reads: 1_000_000, bytes: 1 << 40 };

#[test]
fn page_lists_are_bounded_by_what_the_manifest_says_of_them() {
    let mut lists = Lists::default();
    (0..200).for_each(|number| drop(lists.cell(&span(number, 260 << 10))));
    assert!(lists.bytes <= LISTS_BYTES_MAX && lists.cells.len() > 50, "{}", lists.bytes);
    let (bytes, first) = (lists.bytes, lists.cell(&span(199, 260 << 10)));
    assert!(Arc::ptr_eq(&first, &lists.cell(&span(199, 260 << 10))) && lists.bytes == bytes);
    (0..5).for_each(|number| drop(lists.cell(&span(number, SPAN_LISTS_BYTES_MAX))));
    assert_eq!((lists.cells.len(), lists.bytes), (1, SPAN_LISTS_BYTES_MAX));
}

#[tokio::test]
async fn page_lists_that_are_longer_than_those_of_the_segments_cost_no_read() {
    let dir = tempfile::tempdir().expect("a directory can be made");
    let (pages, store, _) = stored(dir.path(), &[7], MANY).await;
    let files = over(pages);
    let before = store.gets();
    // A page each, of 64 segments and the span.
    let form = 32 + 64 * (8 + 32) + 38;
    let short = SPAN_LISTS_BYTES_MIN + 1;
    for (lists_bytes, segment_bytes) in [(64 << 20, 1), (short, 1), (20 << 20, 1 << 30)] {
        let manifest = manifest(1, lists_bytes, segment_bytes);
        let lists = files.lists(&manifest, &manifest.spans[0], &budget(1)).await;
        assert_eq!(lists.err(), Some(ObjectNotRead::Changed), "{lists_bytes}");
        assert_eq!((store.gets() - before, lock(&files.lists).bytes), (0, 0), "{lists_bytes}");
    }
    let manifest = manifest(1, form, 1);
    let lists = files.lists(&manifest, &manifest.spans[0], &budget(1)).await;
    assert_eq!((lists.err(), store.gets() - before), (Some(ObjectNotRead::Absent), 1));
}

/// Lists are in memory whole, so that a place for the part in flight would bound nothing.
#[tokio::test]
async fn page_lists_under_way_have_places_for_all_their_bytes_and_those_they_are_parsed_to() {
    let dir = tempfile::tempdir().expect("a directory can be made");
    let (pages, store, _) = stored(dir.path(), &[7], MANY).await;
    let files = over(pages);
    let manifest = manifest(12, 8 << 20, 256 << 20);
    store.set(Mode::Silent);
    let before = store.gets();
    let budgets: Vec<_> = (0..12).map(budget).collect();
    let spans = manifest.spans.iter().zip(&budgets);
    let reads = spans.map(|(span, budget)| files.lists(&manifest, span, budget));
    tokio::select! {
        _ = join_all(reads) => {}
        () = begun(&store, before + 4) => {}
    }
    assert_eq!(store.gets() - before, 4, "64 MiB, for 8 MiB twice each");
}

/// Waits until so many reads have begun, and for those that would be too many.
async fn begun(store: &ScriptStore, reads: usize) {
    while store.gets() < reads {
        sleep(Duration::from_millis(10)).await;
    }
    sleep(Duration::from_millis(200)).await;
}

#[tokio::test]
async fn page_lists_beyond_the_rate_of_an_address_wait_for_no_place() {
    let dir = tempfile::tempdir().expect("a directory can be made");
    let (pages, store, _) = stored(dir.path(), &[7], MANY).await;
    let files = over(pages);
    let manifest = manifest(5, 8 << 20, 256 << 20);
    store.set(Mode::Silent);
    let before = store.gets();
    let budgets: Vec<_> = (0..5).map(budget).collect();
    let spans = manifest.spans.iter().zip(&budgets).take(4);
    let reads = spans.map(|(span, budget)| files.lists(&manifest, span, budget));
    let mut reads = pin!(join_all(reads));
    tokio::select! {
        _ = &mut reads => panic!("the store is silent"),
        () = begun(&store, before + 4) => {}
    }
    // More than an address has in a second, and less than all have. Just before the read: time pays it back.
    let paid = files.pages.objects.pay(1, 3 << 38, budgets[4].payer);
    assert_eq!(paid, Ok(()));
    let lists = files.lists(&manifest, &manifest.spans[4], &budgets[4]);
    let lists = unconstrained(lists).now_or_never();
    assert_eq!(lists.map(Result::err), Some(Some(ObjectNotRead::Refused)), "all places are taken");
}

/// A manifest may name a million segments that cannot be opened.
#[tokio::test]
async fn segments_that_do_not_open_leave_no_place_behind() {
    let dir = tempfile::tempdir().expect("a directory can be made");
    let (pages, store, _) = stored(dir.path(), &[7], MANY).await;
    let files = over(pages);
    let manifest = manifest(1, 1, 1);
    let (budget, of) = (budget(1), &manifest.segments);
    let opened = files.open(&manifest, &of[0], ReadExtent::Needed, &budget).await;
    assert_eq!(opened.err(), Some(ObjectNotRead::Absent));
    assert!(lock(&files.pages.segments).is_empty(), "its page lists are absent");
    store.set(Mode::Silent);
    let before = store.gets();
    let opening = [0, 0].map(|at| files.open(&manifest, &of[at], ReadExtent::Needed, &budget));
    let mut opening = Box::pin(join_all(opening));
    tokio::select! {
        _ = &mut opening => panic!("the store is silent"),
        () = begun(&store, before + 1) => {}
    }
    assert_eq!(lock(&files.pages.segments).len(), 1);
    drop(opening);
    assert!(lock(&files.pages.segments).is_empty(), "the requests ended before");
}

/// Lists of a span of long segments have megabytes, and their place at the gate is no more.
#[tokio::test]
async fn page_lists_are_not_kept_by_a_read_of_terms() {
    let dir = tempfile::tempdir().expect("a directory can be made");
    let (pages, store, _) = stored(dir.path(), &[7], MANY).await;
    let files = ArchivedFiles { trusts_terms: true, ..over(pages) };
    let span = Span::empty(0, 32, 64).expect("it is one");
    let terms = Terms::new(&span, None, [(0, 5)].into_iter()).expect("one term");
    let segment = || SegmentPages { front: 1, pages: PageList::of(&[7]) };
    let lists = PageLists::new(&span, (0..64).map(|_| segment()).collect(), Some(&terms));
    let lists = Arc::new(lists.expect("one list each"));
    let mut manifest = manifest(1, 1, 1);
    let bytes = terms.to_bytes();
    let digest = PageList::of(&bytes).object_digest();
    manifest.spans[0].terms = Some(IndexEntry { bytes: bytes.len() as u64, digest });
    let cell = lock(&files.lists).cell(&manifest.spans[0]);
    cell.set(Arc::clone(&lists)).expect("it is empty");
    let known = Known { manifest: Arc::new(manifest), heights: 0..=2047, anchored: None };
    store.set(Mode::Silent);
    let (before, keys, budget) = (store.gets(), Keys::from(vec![vec![5]]), budget(1));
    let mut reading = pin!(files.logs(&known, 0..=2047, &keys, &budget));
    tokio::select! {
        _ = &mut reading => panic!("the store is silent"),
        () = begun(&store, before + 1) => {}
    }
    assert_eq!(Arc::strong_count(&lists), 2, "that of the cell, and the one here");
}

/// A request that waits for the store has the files that it opened.
#[tokio::test]
async fn heights_of_more_segments_than_an_address_may_have_are_refused() {
    let dir = tempfile::tempdir().expect("a directory can be made");
    let (pages, store, _) = stored(dir.path(), &[7], MANY).await; // six files, three of them for an address
    let files = over(pages);
    let mut manifest = manifest(1, 1, 1);
    for (number, entry) in (0..).zip(&mut manifest.segments) {
        entry.digest = Digest([number; 32]);
    }
    store.set(Mode::Silent);
    let known = Known { manifest: Arc::new(manifest), heights: 0..=2047, anchored: None };
    let (one, other, keys) = (budget(1), budget(2), no_keys());
    let mut waiting = Box::pin(files.heights(&known, 0..=95, &keys, &one));
    assert!(unconstrained(&mut waiting).now_or_never().is_none(), "the store is silent");
    let refused = unconstrained(files.heights(&known, 96..=96, &keys, &one)).now_or_never();
    assert_eq!(refused.map(Result::err), Some(Some(ObjectNotRead::Refused)));
    let of_other = unconstrained(files.heights(&known, 96..=96, &keys, &other)).now_or_never();
    assert!(of_other.is_none(), "it waits for the store");
    drop(waiting);
    let again = unconstrained(files.heights(&known, 96..=96, &keys, &one)).now_or_never();
    assert!(again.is_none(), "it waits for the store");
}

/// Hashes of one page of a span, of which each search reads the page and compares it with its digest.
#[tokio::test]
async fn hashes_of_a_request_that_the_archive_has_leave_threads_to_reads_of_others() {
    let dir = tempfile::tempdir().expect("a directory can be made");
    let hash = |number: u8| [number; 32];
    let at = neve_archive::Spot { height: 99, transaction: None };
    let keys: Vec<_> = (0..200).map(|n| neve_archive::Key::new(&hash(n), at)).collect();
    let index = Span::empty(64, 32, 2).and_then(|span| span.with(None, &keys)).expect("it is one");
    let (pages, object) = (PageList::of(&[1]), index.to_bytes());
    let segment = SegmentPages { front: 1, pages };
    let lists =
        PageLists::new(&index, vec![segment.clone(), segment], None).expect("they are its own");
    let (source, store, _) = stored(dir.path(), &object, MANY).await;
    let archive = crate::archive::store::ArchiveStore::over(Arc::clone(&store));
    let (mut manifest, listed) = (manifest(0, 1, 1), lists.to_bytes());
    let (bytes, digest) = (object.len() as u64, neve_archive::object_digest(&object));
    let pages =
        IndexEntry { bytes: listed.len() as u64, digest: neve_archive::object_digest(&listed) };
    let entry = SpanEntry { first: 64, segments: 2, bytes, digest, pages, ..span(1, 1) };
    manifest.spans = vec![entry];
    archive.put(&manifest.span_name(&entry), object).await.expect("it is in memory");
    archive.put(&manifest.pages_name(&entry), listed).await.expect("it is in memory");
    let (files, budgets) = (over(Arc::clone(&source)), [1, 2, 3].map(budget));
    let known = Known { manifest: Arc::new(manifest), heights: 0..=9, anchored: None };
    let keys = no_keys();
    let ask = |number, budget| files.hash(&known, 100, (hash(number), 0), &keys, budget);
    let first = ask(0, &budgets[0]).await.map(|found| found.unproven);
    assert_eq!(first, Ok(Some(99)), "its page is here");
    let all = || join_all(budgets.iter().flat_map(|budget| (0..200).map(move |n| ask(n, budget))));
    let turns = AllTurns::take();
    let done = tokio::select! {
        _ = all() => panic!("without a turn"),
        done = async {
            sleep(Duration::from_millis(100)).await; // the searches have what threads they take
            tokio::time::timeout(Duration::from_secs(20), source.off(|| 7)).await
        } => done,
    };
    drop(turns);
    assert_eq!(done.ok(), Some(Ok(7)), "no thread is left");
    let found = all()
        .await
        .into_iter()
        .filter(|found| found.as_ref().is_ok_and(|found| found.unproven == Some(99)));
    assert_eq!(found.count(), 600);
}
