//! The trial of a bucket: a store that keeps no conditions is refused with what it did.

use std::sync::Arc;
use std::time::Duration;

use neve_archive::{Chain, Digest, Manifest};
use object_store::ObjectStoreExt;
use object_store::path::Path;

use super::fault_store::{Fault, FaultStore, Point};
use super::packed_dir::PackedDir;
use super::support::{archive, plain, run, whole};
use crate::archive::error::Failed;
use crate::archive::write::change::{WriteOptions, Writer};
use crate::archive::write::{GcOptions, NamedChain, gc, init, push};

fn single() -> WriteOptions {
    WriteOptions { is_single: true, ..WriteOptions::default() }
}

fn chain() -> Chain {
    Chain { chain_id: 43_112, genesis: Digest([7; 32]), range: 4 }
}

#[test]
fn store_that_holds_stands_in_the_manifest_and_keeps_nothing_of_the_trial() {
    for fault in [Fault::None, Fault::LostAnswers] {
        let store = Arc::new(FaultStore::new(fault));
        run(async {
            let made = init(&archive(&store), &plain(), chain().into()).await.expect("it holds");
            assert!(made.is_new, "{fault:?}");
            let trial = made.trial().expect("it was tried");
            assert!(trial.holds && trial.at > 0 && trial.endpoint == "test", "{trial:?}");
            assert_eq!(store.names().await, ["manifest.json"]);
            let again =
                init(&archive(&store), &plain(), NamedChain::default()).await.expect("it holds");
            assert_eq!((again.is_new, again.manifest.sequence), (false, 2));
            let other = Chain { range: 8, ..chain() };
            let other = init(&archive(&store), &plain(), other.into()).await;
            assert!(matches!(other, Err(Failed::FixedRange { there: 4, named: 8 })), "{other:?}");
        });
    }
}

#[test]
fn manifest_that_is_not_there_needs_a_chain() {
    let store = Arc::new(FaultStore::new(Fault::None));
    let made = run(init(&archive(&store), &plain(), NamedChain::default()));
    assert!(matches!(made, Err(Failed::NoChain)), "{made:?}");
}

#[test]
fn store_that_does_not_hold_is_refused_with_what_it_did() {
    for (fault, why) in [
        (Fault::NoConditions, "8 of 8 writers created one object"),
        (Fault::NoIfMatch, "of 81 changes of one object"),
        (Fault::TornReads, "has other bytes than its creator's"),
        (Fault::NoneUnderstood, "it refuses them"),
    ] {
        let store = Arc::new(FaultStore::new(fault));
        run(async {
            let refused = init(&archive(&store), &plain(), chain().into()).await;
            let text = refused.expect_err("it does not hold").to_string();
            assert!(text.contains(why) && text.contains("--archive-single-writer"), "{text}");
            assert!(store.names().await.is_empty(), "{fault:?}");
        });
    }
}

#[test]
fn store_that_does_not_hold_takes_one_writer_that_says_so() {
    let packed = PackedDir::new(2);
    for fault in [Fault::NoConditions, Fault::NoneUnderstood] {
        let store = Arc::new(FaultStore::new(fault));
        run(async {
            let archive = archive(&store);
            let (single, other) = (single(), plain());
            let made =
                init(&archive, &single, packed.chain().into()).await.expect("it is accepted");
            assert!(made.trial().is_some_and(|trial| !trial.holds), "{fault:?}");
            let other = Writer::begin(&archive, &other).await;
            assert!(matches!(other, Err(Failed::NoConditions(_))), "{other:?}");
            for dir in [packed.some([0]).path(), packed.path()] {
                let writer = Writer::begin(&archive, &single).await.expect("it says so");
                push(&writer, dir, |_| ()).await.expect("it can be pushed");
            }
            assert_eq!(whole(&archive).await, (0, 7), "{fault:?}");
        });
    }
}

#[test]
fn trial_without_the_right_to_delete_leaves_its_object() {
    let store = Arc::new(FaultStore::new(Fault::KeepsAll));
    run(async {
        init(&archive(&store), &plain(), chain().into()).await.expect("it holds");
        let names = store.names().await;
        assert!(names.len() == 2 && names[1].starts_with("trial-"), "{names:?}");
    });
}

/// A trial that is cut off leaves its object too. A young one may be that of a running trial.
#[test]
fn objects_that_trials_left_are_deleted_once_they_are_old() {
    let (packed, store) = (PackedDir::new(1), Arc::new(FaultStore::new(Fault::KeepsAll)));
    let all = |is_dry| GcOptions { older_than: Duration::ZERO, is_dry };
    run(async {
        let archive = archive(&store);
        init(&archive, &plain(), packed.chain().into()).await.expect("it holds");
        store.set(Fault::None);
        let other = Path::from("trial-notes.txt");
        store.inner.put(&other, "of another one".into()).await.expect("it is in memory");
        let before = store.names().await;
        assert_eq!(before.len(), 3, "{before:?}");
        let young = gc(&archive, &plain(), all(false), |_| ()).await.expect("it can be listed");
        assert_eq!((young.trials, store.names().await), (0, before.clone()));
        for is_dry in [true, false] {
            store.set(Fault::None);
            let aging = store.before((Point::List, 0), async { store.set(Fault::ClockBehind) });
            let by = plain();
            let ((), old) = tokio::join!(aging, gc(&archive, &by, all(is_dry), |_| ()));
            assert_eq!(old.expect("it can be listed").trials, 1);
            assert_eq!(store.names().await == before, is_dry);
        }
        assert_eq!(store.names().await, ["manifest.json", "trial-notes.txt"]);
    });
}

#[test]
fn writer_tries_a_store_once() {
    let store = Arc::new(FaultStore::new(Fault::None));
    run(async {
        let archive = archive(&store);
        init(&archive, &plain(), chain().into()).await.expect("it holds");
        // A trial would fail.
        store.set(Fault::NoConditions);
        assert!(Writer::begin(&archive, &plain()).await.is_ok());
        let held = archive.manifest().await.expect("it can be read").expect("it is there");
        let next = Manifest { trial: None, ..held.manifest.following(held.digest) };
        assert!(archive.replace(Some(&held), &next).await.expect("it can be written"));
        let options = plain();
        let untried = Writer::begin(&archive, &options).await;
        assert!(matches!(untried, Err(Failed::NoConditions(_))), "{untried:?}");
    });
}
