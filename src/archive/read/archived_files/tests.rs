//! Page lists of spans whose lengths a manifest names falsely, or truly.

use std::net::IpAddr;
use std::time::Duration;

use neve_archive::{Chain, IndexEntry};
use tokio::time::sleep;

use super::*;
use crate::archive::read::fetch::tests::script_store::Mode;
use crate::archive::read::fetch::{Payer, ReadRates};
use crate::archive::read::page_source::tests::stored;
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

/// Lists are in memory whole, so that a place for the part under way would bound nothing.
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
    let more = async {
        while store.gets() - before < 4 {
            sleep(Duration::from_millis(10)).await;
        }
        sleep(Duration::from_millis(200)).await;
    };
    tokio::select! {
        _ = join_all(reads) => {}
        () = more => {}
    }
    assert_eq!(store.gets() - before, 4, "64 MiB, for 8 MiB twice each");
}
