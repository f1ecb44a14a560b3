//! Deleting objects beside writers that sleep, are cut off, and come again.

use std::sync::Arc;
use std::time::Duration;

use object_store::ObjectStoreExt;
use object_store::path::Path;
use tokio::task::yield_now;
use tokio::time::timeout;

use super::fault_store::{Fault, FaultStore, Point};
use super::packed_dir::PackedDir;
use super::support::{archive, plain, pushed, run, whole};
use crate::archive::error::Failed;
use crate::archive::store::ArchiveStore;
use crate::archive::write::{Collected, GcOptions, gc};

const ALL: GcOptions = GcOptions { older_than: Duration::ZERO, is_dry: false };

async fn collected(archive: &ArchiveStore) -> Result<Collected, Failed> {
    gc(archive, &plain(), ALL, |_| ()).await
}

/// An archive of three segments that were pushed one after the other: two former spans are left.
async fn grown(store: &Arc<FaultStore>, packed: &PackedDir) -> ArchiveStore {
    let archive = archive(store);
    for ranges in 1..=3 {
        pushed(&archive, packed.some(0..ranges).path()).await.expect("it can be pushed");
    }
    archive
}

#[test]
fn former_spans_are_deleted_and_nothing_else() {
    let (packed, store) = (PackedDir::new(3), Arc::new(FaultStore::new(Fault::None)));
    run(async {
        let archive = grown(&store, &packed).await;
        assert_eq!(store.names().await.len(), 1 + 3 + 12);
        let dry = GcOptions { is_dry: true, ..ALL };
        let counted = gc(&archive, &plain(), dry, |_| ()).await.expect("it can be listed");
        assert_eq!((counted.listed, counted.unnamed, counted.deleted), (15, 8, 0));
        let day = GcOptions { older_than: Duration::from_hours(24), ..ALL };
        let young = gc(&archive, &plain(), day, |_| ()).await.expect("it can be listed");
        assert_eq!((young.young, young.deleted, young.sequence), (8, 0, 3));
        let done = collected(&archive).await.expect("they can be deleted");
        assert_eq!((done.deleted, done.sequence), (8, 5));
        assert_eq!(store.names().await.len(), 1 + 3 + 4);
        assert_eq!(whole(&archive).await, (0, 11));
        let again = collected(&archive).await.expect("there is nothing");
        assert_eq!((again.deleted, again.sequence), (0, 5));
    });
}

/// A writer puts its objects, sleeps while they are deleted, and wakes.
#[test]
fn writer_that_wakes_after_a_deletion_puts_its_objects_again() {
    let (packed, store) = (PackedDir::new(3), Arc::new(FaultStore::new(Fault::None)));
    run(async {
        let archive = archive(&store);
        pushed(&archive, packed.some([0]).path()).await.expect("it can be pushed");
        let deleting = store.before_the_manifest(async {
            let done = collected(&archive).await.expect("they can be deleted");
            assert_eq!(done.deleted, 2 + 4, "two segments, and their span");
        });
        let ((), late) = tokio::join!(deleting, pushed(&archive, packed.path()));
        let late = late.expect("it goes on");
        assert_eq!((late.segments, late.heights), (2, Some((0, 11))));
        assert_eq!(whole(&archive).await, (0, 11));
    });
}

/// The manifest of the first group waits until the segments of the second one are put, and all that no manifest names is
/// deleted.
#[test]
fn segments_that_were_put_ahead_and_deleted_are_put_again() {
    let (packed, store) = (PackedDir::new(66), Arc::new(FaultStore::new(Fault::None)));
    run(async {
        let archive = archive(&store);
        pushed(&archive, packed.some([0]).path()).await.expect("it can be pushed");
        let deleting = store.before_the_manifest(async {
            let all_are_put = async {
                while store.names().await.iter().filter(|name| name.contains("/segment-")).count()
                    < 66
                {
                    yield_now().await;
                }
            };
            timeout(Duration::from_mins(1), all_are_put).await.expect("the next group is put");
            let done = collected(&archive).await.expect("they can be deleted");
            assert_eq!(done.deleted, 65 + 4, "segments, and the span of the first group");
        });
        let ((), late) = tokio::join!(deleting, pushed(&archive, packed.path()));
        let late = late.expect("it goes on");
        assert_eq!((late.segments, late.heights), (65, Some((0, 263))));
        assert_eq!(whole(&archive).await, (0, 263));
    });
}

#[test]
fn objects_that_are_being_deleted_are_not_named() {
    let (packed, store) = (PackedDir::new(3), Arc::new(FaultStore::new(Fault::None)));
    run(async {
        let archive = archive(&store);
        pushed(&archive, packed.some([0]).path()).await.expect("it can be pushed");
        // The segments of a push that was cut off before the manifest.
        store.cut_after(Some(2));
        assert!(pushed(&archive, packed.path()).await.is_err());
        // A deletion that is cut off behind its first change of the manifest.
        store.cut_after(Some(2 + 1));
        assert!(collected(&archive).await.is_err());
        store.cut_after(None);
        let early = pushed(&archive, packed.path()).await;
        assert!(matches!(early, Err(Failed::BeingDeleted(_))), "{early:?}");
        assert_eq!(whole(&archive).await, (0, 3));
        assert_eq!(collected(&archive).await.expect("it goes on").deleted, 2);
        pushed(&archive, packed.path()).await.expect("they are gone");
        assert_eq!(whole(&archive).await, (0, 11));
    });
}

#[test]
fn deletion_that_is_cut_off_anywhere_is_completed() {
    let packed = PackedDir::new(3);
    run(async {
        for changes in 0.. {
            let store = Arc::new(FaultStore::new(Fault::None));
            let archive = grown(&store, &packed).await;
            store.cut_after(Some(changes));
            let first = collected(&archive).await;
            let was_cut = store.is_cut();
            assert_eq!(first.is_err(), was_cut, "{first:?}");
            store.cut_after(None);
            assert_eq!(whole(&archive).await, (0, 11), "{changes} changes");
            collected(&archive).await.expect("it goes on");
            assert_eq!(whole(&archive).await, (0, 11), "{changes} changes");
            // The object that told the time may be left of a deletion that was cut off.
            let named = store.names().await.into_iter().filter(|name| !name.contains("trial-"));
            assert_eq!(named.count(), 1 + 3 + 4, "{changes} changes");
            if !was_cut {
                assert_eq!(changes, 2 + 1 + 8 + 1, "clock, manifest, objects, manifest");
                break;
            }
        }
    });
}

/// The first deletion sleeps before its last look at the manifest. Meanwhile a second one deletes the objects, and
/// a writer puts one of them again.
#[test]
fn deletion_stops_when_another_one_has_ended_it() {
    let (packed, store) = (PackedDir::new(3), Arc::new(FaultStore::new(Fault::None)));
    run(async {
        let archive = grown(&store, &packed).await;
        let before = store.names().await;
        let again = before.iter().find(|name| name.contains("/filter-0-"));
        let again = Path::from(again.expect("three spans were pushed").as_str());
        let bytes = store.inner.get(&again).await.expect("it is there").bytes().await;
        let bytes = bytes.expect("it can be read");
        let second = store.before((Point::GetManifest, 5), async {
            assert_eq!(begun(&archive).await, 8, "the first one has named the objects");
            assert_eq!(collected(&archive).await.expect("it ends it").deleted, 8);
            store.inner.put(&again, bytes.into()).await.expect("it can be put");
        });
        let ((), first) = tokio::join!(second, collected(&archive));
        assert!(matches!(first, Err(Failed::OtherDeletion)), "{first:?}");
        assert!(store.names().await.contains(&again.to_string()), "it belongs to another one");
        assert_eq!(whole(&archive).await, (0, 11));
    });
}

/// Number of objects that are being deleted.
async fn begun(archive: &ArchiveStore) -> usize {
    let held = archive.manifest().await.expect("it can be read").expect("it is there");
    held.manifest.deletion.map_or(0, |deletion| deletion.objects.len())
}

/// Their age is that by the clock of the store.
#[test]
fn young_objects_of_a_store_with_a_slow_clock_stay() {
    let (packed, store) = (PackedDir::new(3), Arc::new(FaultStore::new(Fault::None)));
    run(async {
        let archive = grown(&store, &packed).await;
        store.set(Fault::ClockBehind);
        let day = GcOptions { older_than: Duration::from_hours(24), ..ALL };
        let done = gc(&archive, &plain(), day, |_| ()).await.expect("it can be listed");
        assert_eq!((done.unnamed, done.young, done.deleted), (8, 8, 0));
        assert_eq!(store.names().await.len(), 1 + 3 + 12, "no object of its own is left");
    });
}

/// A listing of a large archive takes longer than a push: it is not begun again.
#[test]
fn objects_that_are_pushed_during_a_listing_stay() {
    let (packed, store) = (PackedDir::new(3), Arc::new(FaultStore::new(Fault::None)));
    run(async {
        let archive = archive(&store);
        for ranges in 1..=2 {
            pushed(&archive, packed.some(0..ranges).path()).await.expect("it can be pushed");
        }
        let pushing = store.before((Point::List, 0), async {
            pushed(&archive, packed.path()).await.expect("it can be pushed");
        });
        let ((), done) = tokio::join!(pushing, collected(&archive));
        let done = done.expect("they can be deleted");
        assert_eq!((done.listed, done.deleted), (2 + 8, 8), "the two spans that were there");
        assert_eq!(store.listings(), 1);
        assert_eq!(whole(&archive).await, (0, 11));
        assert_eq!(store.names().await.len(), 1 + 3 + 4);
    });
}

#[test]
fn listing_without_an_end_is_given_up() {
    let (packed, store) = (PackedDir::new(1), Arc::new(FaultStore::new(Fault::None)));
    run(async {
        let mut archive = archive(&store);
        pushed(&archive, packed.path()).await.expect("it can be pushed");
        store.set(Fault::SilentListing);
        archive.patience = Duration::from_millis(10);
        let error = archive.listed(43_112).await.expect_err("nothing comes").to_string();
        assert!(error.contains("did not complete a request within 10ms"), "{error}");
    });
}

#[test]
fn writers_and_deletions_together_lose_nothing() {
    let (packed, store) = (PackedDir::new(6), Arc::new(FaultStore::new(Fault::None)));
    run(async {
        let archive = archive(&store);
        pushed(&archive, packed.some([0]).path()).await.expect("it can be pushed");
        let writers = (0..8).map(|writer| {
            let (archive, dir) = (archive.clone(), packed.some(0..=1 + writer % 5));
            async move {
                loop {
                    match pushed(&archive, dir.path()).await {
                        Ok(pushed) => break pushed,
                        Err(Failed::BeingDeleted(_)) => yield_now().await,
                        Err(failed) => panic!("{failed}"),
                    }
                }
            }
        });
        let deleting = async {
            for _ in 0..8 {
                match collected(&archive).await {
                    Ok(_) | Err(Failed::OtherDeletion) => yield_now().await,
                    Err(failed) => panic!("{failed}"),
                }
            }
        };
        tokio::join!(futures_util::future::join_all(writers), deleting);
        assert_eq!(whole(&archive).await, (0, 23));
    });
}
