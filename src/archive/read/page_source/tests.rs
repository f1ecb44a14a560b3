//! Objects in a store in memory, and their pages on the disk.

use std::net::IpAddr;
use std::path::Path;
use std::pin::pin;

use futures_util::future::join;
use neve_archive::{Kind, object_digest};
use tokio::task::yield_now;

use super::*;
use crate::archive::read::fetch::ReadRates;
use crate::archive::read::fetch::tests::script_store::ScriptStore;
use crate::archive::store::ArchiveStore;
use crate::shared::ClientAddress;

/// An object in a store, and the source of its pages.
pub(crate) async fn stored(
    dir: &Path,
    object: &[u8],
    rates: ReadRates,
) -> (Arc<PageSource>, Arc<ScriptStore>, ObjectName) {
    stored_within(dir, object, rates, OpenPages::new(6, LIST_BYTES_MAX)).await
}

async fn stored_within(
    dir: &Path,
    object: &[u8],
    rates: ReadRates,
    open: Arc<OpenPages>,
) -> (Arc<PageSource>, Arc<ScriptStore>, ObjectName) {
    let store = Arc::new(ScriptStore::default());
    let archive = ArchiveStore::over(Arc::clone(&store));
    let digest = object_digest(object);
    let name = ObjectName { chain_id: 7, kind: Kind::Filter, first: 0, digest };
    archive.put(&name, object.to_vec()).await.expect("it is in memory");
    let source = PageSource {
        objects: ObjectReader::new(archive, rates),
        dir: PageDir::open(dir.join("pages"), 1 << 30),
        evidence: Evidence::new(dir),
        runtime: Handle::current(),
        open,
        files: Mutex::default(),
        segments: Mutex::default(),
    };
    (Arc::new(source), store, name)
}

/// A read of 1 GiB would have all places at the store for minutes.
#[tokio::test]
async fn large_object_is_read_in_parts_and_kept_once_it_is_whole() {
    let dir = tempfile::tempdir().expect("a directory can be made");
    let object = vec![7; (9 << 20) + 1];
    let rates = ReadRates { reads: 1_000_000, bytes: 1 << 40 };
    let (source, store, name) = stored(dir.path(), &object, rates).await;
    let before = store.gets();
    for _ in 0..2 {
        let (gets, bytes) = (store.gets(), object.len() as u64);
        let found = source.whole(name, bytes, Payer::Neve).await.expect("it is there");
        assert!(found == object);
        let is_first = gets == before;
        assert_eq!((store.longest(), store.gets() - gets), (4 << 20, if is_first { 3 } else { 0 }));
    }
}

/// A proof brings a segment whole of which clients have read pages.
#[tokio::test]
async fn object_that_is_brought_whole_counts_as_on_the_disk_whatever_pages_were_kept() {
    let dir = tempfile::tempdir().expect("a directory can be made");
    let object: Vec<u8> = (0..4 * PAGE_BYTES).map(|at| (at / PAGE_BYTES) as u8 + 1).collect();
    let rates = ReadRates { reads: 1000, bytes: 1 << 40 };
    let (source, _, name) = stored(dir.path(), &object, rates).await;
    let (list, bytes) = (PageList::of(&object), object.len() as u64);
    let file = source.file(name, bytes, &list).await.expect("the disk gives it");
    let on_disk = || PageDir::open(dir.path().join("pages"), 1 << 30).bytes();
    let second = BTreeSet::from([1]);
    assert_eq!(source.ensure_pages(&file, &second, RUN_PAGES_MAX, Payer::Neve).await, Ok(()));
    assert_eq!((source.dir.bytes(), on_disk()), (PAGE_BYTES as u64, PAGE_BYTES as u64));
    assert!(source.whole(name, bytes, Payer::Neve).await.expect("it is there") == object);
    assert_eq!((source.dir.bytes(), on_disk()), (bytes, bytes));
    // A read that was in flight meanwhile writes its pages again.
    assert_eq!(source.take_in(&file, &(0..4), &object.into()), [0; 0]);
    assert_eq!((source.dir.bytes(), on_disk()), (bytes, bytes));
}

/// Reads of all pages after a start before which the disk lost some, and the bytes of the longest.
async fn restarted(dir: &Path, object: &[u8], lost: Range<usize>) -> (usize, u64) {
    let (list, bytes) = (PageList::of(object), object.len() as u64);
    let rates = ReadRates { reads: 1000, bytes: 1 << 40 };
    let (source, store, name) = stored(dir, object, rates).await;
    let file = source.file(name, bytes, &list).await.expect("the disk gives it");
    let kept = source.dir.file(&name, bytes).expect("the disk gives it");
    let zeros = vec![0; lost.len() * PAGE_BYTES];
    kept.write_all_at(&zeros, file.extent(&lost).start).expect("the disk takes them");
    let (before, pages) = (store.gets(), (0..list.len()).collect());
    assert_eq!(source.ensure_pages(&file, &pages, RUN_PAGES_MAX, Payer::Neve).await, Ok(()));
    (store.gets() - before, store.longest())
}

/// After a start no page is known, so that one flight has all of them.
#[tokio::test]
async fn pages_that_the_disk_lost_are_read_without_those_beside_them_after_a_restart() {
    let dir = tempfile::tempdir().expect("a directory can be made");
    let object = vec![7; 24 * PAGE_BYTES];
    for lost in [0..24, 9..10, 9..12, 0..0] {
        let expected = (usize::from(!lost.is_empty()), (lost.len() * PAGE_BYTES) as u64);
        assert_eq!(restarted(dir.path(), &object, lost).await, expected);
    }
}

/// A hole of the file has the bytes of such a page.
#[tokio::test]
async fn pages_of_zeros_need_no_store_after_a_restart() {
    let dir = tempfile::tempdir().expect("a directory can be made");
    for reads in [1, 0] {
        assert_eq!(restarted(dir.path(), &vec![0; 3 * PAGE_BYTES], 0..0).await.0, reads);
    }
}

/// Else each request gives up at the same part.
#[tokio::test]
async fn object_beyond_the_rate_of_an_address_is_read_whole() {
    let dir = tempfile::tempdir().expect("a directory can be made");
    let object = vec![7; 4 << 20];
    let rates = ReadRates { reads: 1000, bytes: 64 << 10 };
    let (source, store, name) = stored(dir.path(), &object, rates).await;
    let payer = Payer::Client(ClientAddress::from(IpAddr::from([10, 0, 0, 1])));
    let (before, bytes) = (store.gets(), object.len() as u64);
    let found = source.whole(name, bytes, payer).await.expect("it is there");
    assert!(found == object);
    assert_eq!((store.longest(), store.gets() - before), (PAGE_BYTES as u64, 64));
    let next = source.objects.read(&name, 0..1, payer).await;
    assert_eq!(next, Err(ObjectNotRead::Refused), "two minutes of its rate are a debt");
}

#[tokio::test]
async fn request_brings_pages_that_a_read_ahead_was_refused() {
    let dir = tempfile::tempdir().expect("a directory can be made");
    let object = vec![7; 8 * PAGE_BYTES];
    let rates = ReadRates { reads: 1000, bytes: 1 << 20 };
    let (source, store, name) = stored(dir.path(), &object, rates).await;
    let (list, pages) = (PageList::of(&object), (0..8).collect());
    let file = source.file(name, object.len() as u64, &list).await.expect("the disk gives it");
    let address = ClientAddress::from(IpAddr::from([10, 0, 0, 1]));
    let run_max = source.run_pages_max();
    let ahead = source.ensure_pages(&file, &pages, run_max, Payer::Ahead(address));
    let request = source.ensure_pages(&file, &pages, run_max, Payer::Client(address));
    assert_eq!(join(ahead, request).await, (Err(ObjectNotRead::Refused), Ok(())));
    assert_eq!(store.longest(), 4 * PAGE_BYTES as u64, "a quarter of a second");
    assert_eq!(file.absent(&pages, RUN_PAGES_MAX), (0, 0));
}

/// The page of a client is compared with its digest in a turn, beside others of the process.
#[tokio::test]
async fn pages_are_proven_in_turns() {
    let dir = tempfile::tempdir().expect("a directory can be made");
    let object = vec![7; PAGE_BYTES];
    let rates = ReadRates { reads: 1000, bytes: 1 << 20 };
    let (source, _, name) = stored(dir.path(), &object, rates).await;
    let (list, pages) = (PageList::of(&object), (0..1).collect());
    let file = source.file(name, object.len() as u64, &list).await.expect("the disk gives it");
    let held = turns::AllTurns::take();
    let before = turns::AllTurns::waits();
    let mut bringing = pin!(source.ensure_pages(&file, &pages, RUN_PAGES_MAX, Payer::Neve));
    let waiting = async {
        while turns::AllTurns::waits() == before {
            yield_now().await;
        }
    };
    tokio::select! {
        brought = &mut bringing => panic!("{brought:?} without a turn"),
        () = waiting => {}
    }
    drop(held);
    assert_eq!(bringing.await, Ok(()));
}

#[tokio::test]
async fn no_more_files_of_pages_are_open_than_the_descriptors_allow() {
    let dir = tempfile::tempdir().expect("a directory can be made");
    let rates = ReadRates { reads: 1000, bytes: 1 << 20 };
    let (source, _, name) = stored(dir.path(), &[7], rates).await;
    for number in 0..9 {
        let name = ObjectName { digest: Digest([number; 32]), ..name };
        source.file(name, 1, &PageList::of(&[7])).await.expect("the disk gives it");
        assert!((1..=3).contains(&lock(&source.files).len()));
    }
}

/// A source, and files of pages of so many objects that requests have. Without a read, they cost no rate.
async fn opened(
    dir: &Path,
    open: Arc<OpenPages>,
    object: &[u8],
    files: u8,
) -> (Arc<PageSource>, Vec<Result<Arc<PageFile>, ObjectNotRead>>) {
    let rates = ReadRates { reads: 1000, bytes: 1 << 20 };
    let (source, _, name) = stored_within(dir, object, rates, open).await;
    let list = PageList::of(object);
    let mut opened = Vec::new();
    for number in 0..files {
        let name = ObjectName { digest: Digest([number; 32]), ..name };
        opened.push(source.file(name, object.len() as u64, &list).await);
    }
    (source, opened)
}

/// A batch may need a thousand segments, whose files stay open until it is answered.
#[tokio::test]
async fn files_of_pages_that_requests_have_are_within_the_descriptors_too() {
    let dir = tempfile::tempdir().expect("a directory can be made");
    let open = OpenPages::new(6, LIST_BYTES_MAX);
    let (source, mut files) = opened(dir.path(), open, &[7], 9).await;
    let are_open: Vec<_> = files.iter().map(Result::is_ok).collect();
    assert_eq!(are_open, [true, true, true, true, true, true, false, false, false]);
    assert_eq!(files[8].as_ref().err(), Some(&ObjectNotRead::Refused));
    files.remove(0).expect("it is open");
    let name = ObjectName { chain_id: 7, kind: Kind::Filter, first: 0, digest: Digest([8; 32]) };
    let list = PageList::of(&[7]);
    assert!(source.file(name, 1, &list).await.is_ok(), "a request has ended");
}

/// Objects of 1 GiB have lists of 512 KiB, and a manifest may name many.
#[tokio::test]
async fn lists_of_files_of_pages_are_bounded_in_bytes() {
    let object = vec![7; 4 * PAGE_BYTES];
    let list_bytes = PageList::of(&object).bytes();
    let within = || OpenPages::new(100, 8 * list_bytes + 1);
    let dir = tempfile::tempdir().expect("a directory can be made");
    let (_, held) = opened(dir.path(), within(), &object, 10).await;
    assert_eq!(held.iter().filter(|file| file.is_ok()).count(), 8, "{list_bytes} bytes each");
    drop(held);
    let (source, _) = opened(dir.path(), within(), &object, 8).await;
    assert_eq!(lock(&source.files).len(), 8);
    let name = ObjectName { chain_id: 7, kind: Kind::Filter, first: 0, digest: Digest([8; 32]) };
    let ninth = source.file(name, object.len() as u64, &PageList::of(&object)).await;
    assert!(ninth.is_ok(), "no request has the others");
    assert_eq!(lock(&source.files).len(), 1);
}
