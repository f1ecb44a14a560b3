//! Bounds of reads, the breaker, and second reads.

use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt;
use futures_util::future::join;
use neve_archive::{Chain, Digest, Kind, Manifest, ObjectName};
use tokio::task::unconstrained;
use tokio::time::timeout;

use super::script_store::{Mode, ScriptStore};
use crate::archive::read::fetch::object_reader::ObjectReader;
use crate::archive::read::fetch::read_gate::{READS_MAX, ReadGate};
use crate::archive::read::fetch::read_queue::{ADDRESS_MAX, WAITING_MAX};
use crate::archive::read::fetch::store_breaker::{BreakerState, FAILURES_MAX};
use crate::archive::read::fetch::{ObjectNotRead, Payer, ReadRates};
use crate::archive::source::ArchiveSource;
use crate::archive::store::ArchiveStore;
use crate::shared::ClientAddress;

/// Longest time of anything, on a busy machine.
const LIMIT: Duration = Duration::from_mins(1);
const OBJECT_BYTES: usize = 4 << 20;
const MANY: ReadRates = ReadRates { reads: 1_000_000, bytes: 1 << 40 };

fn name() -> ObjectName {
    ObjectName { chain_id: 7, kind: Kind::Segment, first: 0, digest: Digest([1; 32]) }
}

fn at(last: u8) -> Payer {
    Payer::Client(ClientAddress::from(IpAddr::from([10, 0, 0, last])))
}

/// A reader of a store with an object, and the store.
async fn reader(rates: ReadRates, gate: ReadGate) -> (Arc<ObjectReader>, Arc<ScriptStore>) {
    let store = Arc::new(ScriptStore::default());
    let archive = ArchiveStore::over(Arc::clone(&store));
    archive.put(&name(), vec![7; OBJECT_BYTES]).await.expect("it is in memory");
    (Arc::new(ObjectReader::with_gate(archive, rates, gate)), store)
}

/// Reads that have begun and wait, up to `count`. Ends at the first one that has an outcome.
fn begun<'r>(
    reader: &'r ObjectReader,
    name: &'r ObjectName,
    payer: Payer,
    count: usize,
) -> (Vec<impl Future<Output = Result<bytes::Bytes, ObjectNotRead>> + 'r>, Option<ObjectNotRead>) {
    let mut waiting = Vec::new();
    while waiting.len() < count {
        // Else tokio has a task wait that was polled often.
        let mut read = Box::pin(unconstrained(reader.read(name, 0..10, payer)));
        match read.as_mut().now_or_never() {
            None => waiting.push(read),
            Some(outcome) => return (waiting, outcome.err()),
        }
    }
    (waiting, None)
}

#[tokio::test]
async fn reads_that_wait_are_bounded_in_total_and_by_address() {
    let (reader, store) = reader(MANY, ReadGate::default()).await;
    store.set(Mode::Silent);
    let name = name();
    let (first, refused) = begun(&reader, &name, at(1), 2 * WAITING_MAX);
    assert_eq!((first.len(), refused), (READS_MAX / 2 + ADDRESS_MAX, Some(ObjectNotRead::Refused)));
    let (second, refused) = begun(&reader, &name, at(2), 2 * WAITING_MAX);
    let left = READS_MAX / 2 + WAITING_MAX - ADDRESS_MAX;
    assert_eq!((second.len(), refused), (left, Some(ObjectNotRead::Refused)));
    let (third, refused) = begun(&reader, &name, at(3), 1);
    assert_eq!((third.len(), refused), (0, Some(ObjectNotRead::Refused)));
    let (own, _) = begun(&reader, &name, Payer::Neve, 1);
    assert_eq!(own.len(), 1, "neve itself");
    drop((first, second));
    assert_eq!(begun(&reader, &name, at(3), 10).0.len(), 10);
}

#[tokio::test]
async fn reads_beyond_the_rate_wait_for_nothing() {
    let rates = ReadRates { reads: 2 * READS_MAX as u32 + 20, ..MANY };
    let (reader, store) = reader(rates, ReadGate::default()).await;
    store.set(Mode::Silent);
    let name = name();
    let (waiting, refused) = begun(&reader, &name, at(1), 2 * WAITING_MAX);
    assert_eq!(refused, Some(ObjectNotRead::Refused));
    // More on a slow machine, as time pays back, and fewer than fill the address's share of the queue.
    let of_queue = READS_MAX / 2 + ADDRESS_MAX;
    assert!((READS_MAX + 10..of_queue).contains(&waiting.len()), "{} wait", waiting.len());
}

#[tokio::test]
async fn read_waits_for_its_place_for_bounded_time() {
    let (reader, store) = reader(MANY, ReadGate::new(Duration::from_millis(10))).await;
    store.set(Mode::Silent);
    let name = name();
    let gets = store.gets();
    let under_way = [at(1), at(3)].map(|at| begun(&reader, &name, at, READS_MAX / 2).0);
    assert_eq!(store.gets() - gets, READS_MAX);
    let refused = timeout(LIMIT, reader.read(&name, 0..10, at(2))).await.expect("it ends");
    assert_eq!(refused, Err(ObjectNotRead::Refused), "before those under way end");
    drop(under_way);
    store.set(Mode::Serves);
    assert_eq!(reader.read(&name, 0..10, at(2)).await.map(|bytes| bytes.len()), Ok(10));
}

#[tokio::test]
async fn store_that_fails_gets_no_read_until_a_probe_is_answered() {
    let (reader, store) = reader(MANY, ReadGate::default()).await;
    let (name, states) = (name(), reader.watch());
    let read = || reader.read(&name, 0..10, at(1));
    store.set(Mode::Forbidden);
    for _ in 0..2 * FAILURES_MAX {
        assert_eq!(read().await, Err(ObjectNotRead::Failed));
    }
    assert_eq!(*states.borrow(), BreakerState::Closed, "S3 says so of an absent object too");
    store.set(Mode::Silent);
    let mut under_way = Box::pin(read());
    assert!(under_way.as_mut().now_or_never().is_none());
    store.set(Mode::Fails);
    for _ in 0..FAILURES_MAX {
        assert_eq!(*states.borrow(), BreakerState::Closed);
        assert_eq!(read().await, Err(ObjectNotRead::Failed));
    }
    assert_eq!(*states.borrow(), BreakerState::Open);
    assert_eq!(under_way.now_or_never(), Some(Err(ObjectNotRead::Failed)), "it waits no longer");
    let gets = store.gets();
    store.set(Mode::Serves);
    assert_eq!(read().now_or_never(), Some(Err(ObjectNotRead::Failed)), "no read begins");
    assert_eq!(store.gets(), gets);
}

/// A store whose manifest is absent or forbidden answers, and its objects are there.
#[tokio::test]
async fn answer_of_any_kind_to_a_probe_closes_the_breaker() {
    for mode in [Mode::Serves, Mode::ForbidsManifest] {
        let (reader, store) = reader(MANY, ReadGate::default()).await;
        let (name, mut states) = (name(), reader.watch());
        store.set(Mode::Fails);
        for _ in 0..FAILURES_MAX {
            assert_eq!(reader.read(&name, 0..10, at(1)).await, Err(ObjectNotRead::Failed));
        }
        let probing = Arc::clone(&reader);
        let probing = tokio::spawn(async move { probing.keep_probing().await });
        assert_eq!(*states.borrow_and_update(), BreakerState::Open);
        timeout(LIMIT, states.changed()).await.expect("a probe begins").expect("it lives");
        let open = states.wait_for(|state| *state == BreakerState::Open);
        timeout(LIMIT, open).await.expect("it fails").expect("it lives");
        store.set(mode); // no manifest was ever put
        let closed = states.wait_for(|state| *state == BreakerState::Closed);
        timeout(LIMIT, closed).await.expect("a probe is answered").expect("it lives");
        assert_eq!(reader.read(&name, 0..10, at(1)).await.map(|bytes| bytes.len()), Ok(10));
        probing.abort();
    }
}

#[tokio::test]
async fn second_read_begins_once_the_first_takes_longer_than_usual() {
    let (reader, store) = reader(MANY, ReadGate::default()).await;
    let name = name();
    store.set(Mode::StallsFirst);
    let (mut few, _) = begun(&reader, &name, at(1), 1);
    assert!(timeout(Duration::from_millis(100), &mut few[0]).await.is_err(), "too few are known");
    drop(few);
    store.set(Mode::Serves);
    for _ in 0..32 {
        assert!(reader.read(&name, 0..10, at(1)).await.is_ok());
    }
    store.set(Mode::StallsFirst);
    let gets = store.gets();
    let read = timeout(LIMIT, reader.read(&name, 0..10, at(1))).await.expect("it ends");
    assert_eq!((read.map(|bytes| bytes.len()), store.gets()), (Ok(10), gets + 2));
    store.set(Mode::StallsFirst);
    let long = timeout(Duration::from_millis(200), reader.read(&name, 0..2 << 20, at(1))).await;
    assert!(long.is_err(), "one of over 1 MiB takes as long as its bytes do");
    assert_eq!(store.gets(), gets + 3);
}

#[tokio::test]
async fn second_read_is_within_the_rate() {
    let (reader, store) = reader(ReadRates { bytes: 1024, ..MANY }, ReadGate::default()).await;
    let name = name();
    for _ in 0..32 {
        assert!(reader.read(&name, 0..10, Payer::Neve).await.is_ok());
    }
    store.set(Mode::StallsFirst);
    let gets = store.gets();
    // Its bytes are the rate of half an hour.
    let read = timeout(Duration::from_millis(300), reader.read(&name, 0..1 << 20, at(1))).await;
    assert!(read.is_err(), "nothing is left for a second one");
    assert_eq!(store.gets(), gets + 1);
}

#[tokio::test]
async fn body_that_is_longer_than_the_range_is_not_read_to_its_end() {
    let (reader, store) = reader(MANY, ReadGate::default()).await;
    store.set(Mode::Floods);
    assert_eq!(reader.read(&name(), 0..10, at(1)).await, Err(ObjectNotRead::Failed));
    assert!(store.sent() <= 2, "{} MiB of 10 bytes", store.sent());
}

/// That of the whole chain has 25 MB of text.
#[tokio::test]
async fn manifest_that_two_tasks_need_is_read_once() {
    let objects = Arc::new(ScriptStore::default());
    let store = ArchiveStore::over(Arc::clone(&objects));
    let chain = Chain { chain_id: 7, genesis: Digest([7; 32]), range: 32 };
    let manifest = Manifest { sequence: 1, ..Manifest::empty(chain) };
    assert!(store.replace(None, &manifest).await.expect("it is in memory"));
    let (source, before) = (ArchiveSource::over(store), objects.gets());
    let (one, other) = join(source.manifest(), source.manifest()).await;
    assert!(Arc::ptr_eq(&one.expect("it is there"), &other.expect("it is there")));
    assert_eq!(objects.gets() - before, 1);
}
