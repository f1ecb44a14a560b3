//! Deleting objects beside writers that sleep, are cut off, and come again.

use std::sync::Arc;
use std::time::Duration;

use super::fault_store::{Fault, FaultStore};
use super::packed_dir::PackedDir;
use super::support::{PLAIN, archive, pushed, run, whole};
use crate::archive::error::Failed;
use crate::archive::store::ArchiveStore;
use crate::archive::write::{Collected, GcOptions, gc};

const ALL: GcOptions = GcOptions { older_than: Duration::ZERO, is_dry: false };

async fn collected(archive: &ArchiveStore) -> Result<Collected, Failed> {
    gc(archive, &PLAIN, ALL, |_| ()).await
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
        let counted = gc(&archive, &PLAIN, dry, |_| ()).await.expect("it can be listed");
        assert_eq!((counted.listed, counted.unnamed, counted.deleted), (15, 8, 0));
        let day = GcOptions { older_than: Duration::from_hours(24), ..ALL };
        let young = gc(&archive, &PLAIN, day, |_| ()).await.expect("it can be listed");
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

#[test]
fn objects_that_are_being_deleted_are_not_named() {
    let (packed, store) = (PackedDir::new(3), Arc::new(FaultStore::new(Fault::None)));
    run(async {
        let archive = archive(&store);
        pushed(&archive, packed.some([0]).path()).await.expect("it can be pushed");
        // The segments of a push that was cut off before the manifest.
        store.cut_after(Some(2));
        assert!(pushed(&archive, packed.path()).await.is_err());
        // A deletion that is cut off behind its first change.
        store.cut_after(Some(1));
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
            assert_eq!(store.names().await.len(), 1 + 3 + 4, "{changes} changes");
            if !was_cut {
                assert_eq!(changes, 1 + 8 + 1);
                break;
            }
        }
    });
}

/// A second deletion ends what the first one began, and the first one deletes nothing more.
#[test]
fn deletion_stops_when_another_one_has_ended_it() {
    let (packed, store) = (PackedDir::new(3), Arc::new(FaultStore::new(Fault::None)));
    run(async {
        let archive = grown(&store, &packed).await;
        // The second one begins with a manifest that the first one is about to replace.
        let second = store.before_the_manifest(async {
            assert_eq!(collected(&archive).await.expect("it is first").deleted, 8);
        });
        let ((), late) = tokio::join!(second, collected(&archive));
        assert_eq!(late.expect("nothing is left").deleted, 0);
        assert_eq!(whole(&archive).await, (0, 11));
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
                        Err(Failed::BeingDeleted(_)) => tokio::task::yield_now().await,
                        Err(failed) => panic!("{failed}"),
                    }
                }
            }
        });
        let deleting = async {
            for _ in 0..8 {
                match collected(&archive).await {
                    Ok(_) | Err(Failed::OtherDeletion) => tokio::task::yield_now().await,
                    Err(failed) => panic!("{failed}"),
                }
            }
        };
        tokio::join!(futures_util::future::join_all(writers), deleting);
        assert_eq!(whole(&archive).await, (0, 23));
    });
}
