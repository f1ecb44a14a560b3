//! Pushing to a store that cuts off and loses answers, and dropping heights again.

use std::fs;
use std::sync::Arc;
use std::time::Duration;

use neve_archive::MANIFEST_NAME;
use object_store::path::Path;
use object_store::{ObjectStoreExt, PutPayload};

use super::fault_store::{Fault, FaultStore, Point};
use super::packed_dir::{PackedDir, write};
use super::signing::{held, options};
use super::support::{archive, cut_push, plain, pushed, run, whole};
use crate::archive::error::Failed;
use crate::archive::verify::{ArchiveCheck, CheckEvent, Proving, verify, verify_from};
use crate::archive::write::change::{WriteOptions, Writer};
use crate::archive::write::{GcOptions, NamedChain, Progress, gc, init, push, retain};

/// Cuts off pushes of so many ranges, of which the first one is there, from a number of changes on. Each goes on to the end,
/// and a whole push makes `all` changes.
fn cut_off_anywhere(ranges: usize, from: i64, all: i64) {
    let packed = PackedDir::new(ranges);
    run(async {
        for changes in from.. {
            let store = Arc::new(FaultStore::new(Fault::None));
            let archive = archive(&store);
            pushed(&archive, packed.some([0]).path()).await.expect("it can be pushed");
            let was_cut = cut_push(&store, &archive, packed.path(), changes).await;
            whole(&archive).await;
            pushed(&archive, packed.path()).await.expect("it goes on");
            assert_eq!(whole(&archive).await, (0, 4 * ranges as u64 - 1), "{changes} changes");
            if !was_cut {
                assert_eq!(changes, all, "segments, objects of spans, manifests");
                break;
            }
        }
    });
}

#[test]
fn push_that_is_cut_off_anywhere_goes_on() {
    cut_off_anywhere(3, 0, 2 + 4 + 1);
}

/// While the objects of a group are made, the segments of the next one are put.
#[test]
fn push_of_several_groups_that_is_cut_off_anywhere_goes_on() {
    cut_off_anywhere(66, 60, 65 + 2 * (4 + 1));
}

#[test]
fn lost_answers_of_conditional_puts_lose_and_double_nothing() {
    let (packed, store) = (PackedDir::new(3), Arc::new(FaultStore::new(Fault::LostAnswers)));
    run(async {
        let archive = archive(&store);
        for ranges in 1..=3 {
            let done = pushed(&archive, packed.some(0..ranges).path()).await.expect("it is there");
            assert_eq!((done.segments, done.sequence), (1, ranges as u64));
        }
        assert_eq!(whole(&archive).await, (0, 11));
    });
}

/// That of the whole history has 26 MB.
#[test]
fn push_to_a_whole_archive_reads_the_manifest_once() {
    let (packed, store) = (PackedDir::new(3), Arc::new(FaultStore::new(Fault::None)));
    run(async {
        let archive = archive(&store);
        for by in [plain(), options(0)] {
            if by.signer.is_some() {
                let digest = held(&archive).await.digest;
                let signing = WriteOptions { signs: Some(digest), ..options(0) };
                init(&archive, &signing, NamedChain::default()).await.expect("it is wanted");
            }
            for ranges in [0..2, 0..3] {
                let before = store.manifests();
                let writer = Writer::begin(&archive, &by).await.expect("it can be read");
                let pushing = push(&writer, packed.some(ranges).path(), |_| ()).await;
                pushing.expect("it can be pushed");
                archive.show_put_at().await;
                assert!(store.manifests() - before <= 1, "{}", store.manifests() - before);
            }
        }
        assert_eq!(whole(&archive).await, (0, 11));
    });
}

#[test]
fn half_an_upload_is_put_again() {
    let (packed, store) = (PackedDir::new(2), Arc::new(FaultStore::new(Fault::None)));
    run(async {
        let archive = archive(&store);
        pushed(&archive, packed.some([0]).path()).await.expect("it can be pushed");
        store.set(Fault::HalfUploads);
        assert!(pushed(&archive, packed.path()).await.is_err());
        store.set(Fault::None);
        assert_eq!(whole(&archive).await, (0, 3));
        let done = pushed(&archive, packed.path()).await.expect("it goes on");
        assert_eq!((done.segments, done.present), (1, 1));
        assert_eq!(whole(&archive).await, (0, 7));
    });
}

#[test]
fn dropped_heights_stay_away_until_they_are_wanted_again() {
    let (packed, store) = (PackedDir::new(4), Arc::new(FaultStore::new(Fault::None)));
    run(async {
        let archive = archive(&store);
        pushed(&archive, packed.path()).await.expect("it can be pushed");
        let above = retain(&archive, &plain(), 16).await;
        assert!(matches!(above, Err(Failed::AboveAll { height: 16, .. })), "{above:?}");
        let done = retain(&archive, &plain(), 9).await.expect("it can be changed");
        assert_eq!((done.segments, done.heights, done.sequence), (2, Some((8, 15)), 2));
        assert_eq!(whole(&archive).await, (8, 15));
        let again = retain(&archive, &plain(), 9).await.expect("nothing is left to do");
        assert_eq!((again.segments, again.sequence), (0, 2));
        let push = pushed(&archive, packed.path()).await.expect("there is nothing to push");
        assert_eq!((push.below, push.segments, push.present), (2, 0, 2));
        let none = pushed(&archive, packed.some(0..2).path()).await.expect("all are below");
        assert_eq!((none.below, none.segments), (2, 0));
        retain(&archive, &plain(), 0).await.expect("it can be changed");
        let back = pushed(&archive, packed.path()).await.expect("it can be pushed");
        assert_eq!((back.segments, back.heights), (0, Some((0, 15))), "the objects were there");
        assert_eq!(whole(&archive).await, (0, 15));
    });
}

/// A writer that pushes below while heights are dropped begins again, and adds none below.
#[test]
fn writer_that_wakes_after_heights_were_dropped_adds_none_of_them() {
    let (packed, store) = (PackedDir::new(4), Arc::new(FaultStore::new(Fault::None)));
    run(async {
        let archive = archive(&store);
        pushed(&archive, packed.some(2..4).path()).await.expect("it can be pushed");
        let dropping = store.before_the_manifest(async {
            retain(&archive, &plain(), 12).await.expect("it can be changed");
        });
        let ((), late) = tokio::join!(dropping, pushed(&archive, packed.path()));
        let late = late.expect("it goes on");
        assert_eq!((late.below, late.segments), (3, 0), "{late:?}");
        assert_eq!(whole(&archive).await, (12, 15));
    });
}

#[test]
fn earlier_manifest_that_was_put_back_is_pushed_to_again() {
    let (packed, store) = (PackedDir::new(3), Arc::new(FaultStore::new(Fault::None)));
    run(async {
        let (archive, path) = (archive(&store), Path::from(MANIFEST_NAME));
        pushed(&archive, packed.some([0]).path()).await.expect("it can be pushed");
        let earlier = store.inner.get(&path).await.expect("it is there").bytes().await;
        pushed(&archive, packed.path()).await.expect("it can be pushed");
        let earlier = PutPayload::from(earlier.expect("it can be read"));
        store.inner.put(&path, earlier).await.expect("it can be written");
        let again = pushed(&archive, packed.path()).await.expect("it can be pushed");
        assert_eq!((again.segments, again.sequence), (0, 2), "their objects were there");
        assert_eq!(whole(&archive).await, (0, 11));
    });
}

/// A damaged file, one that is no packed file, and one of another length.
#[test]
fn bad_packed_file_does_not_hold_up_the_others() {
    let packed = PackedDir::new(4);
    let longer = PackedDir::of_ranges(1, 8);
    let good = fs::read(&packed.files[1]).expect("it can be read");
    let mut flipped = good.clone();
    flipped[good.len() / 2] ^= 1;
    let other = fs::read(&longer.files[0]).expect("it can be read");
    for (bad, why) in [
        (&flipped[..], "checksum does not fit"),
        (&good[..20], "short"),
        (&[0; 4096][..], ""),
        (&other[..], "another length of ranges"),
    ] {
        let store = Arc::new(FaultStore::new(Fault::None));
        run(async {
            let archive = archive(&store);
            pushed(&archive, packed.some([0]).path()).await.expect("it can be pushed");
            let dir = packed.some([0, 2, 3]);
            let path = dir.path().join("0000000004.pack");
            write(&path, bad);
            let mut aside = Vec::new();
            let options = plain();
            let writer = Writer::begin(&archive, &options).await.expect("it holds");
            let note = |event: Progress<'_>| {
                if let Progress::SetAside(bad) = event {
                    aside.push(bad.clone());
                }
            };
            let done = push(&writer, dir.path(), note).await.expect("the others are fine");
            assert_eq!((done.bad, done.apart, done.heights), (1, 2, Some((0, 3))), "{why}");
            assert!(aside.len() == 1 && aside[0].path == path, "{aside:?}");
            assert!(aside[0].why.contains(why), "{aside:?}");
            // It was repaired.
            write(&path, &good);
            let done = pushed(&archive, dir.path()).await.expect("all are fine");
            assert_eq!((done.bad, done.heights), (0, Some((0, 15))));
            assert_eq!(whole(&archive).await, (0, 15));
        });
    }
}

/// The bad file is the last one of its group, or the second one of a group that is put ahead.
#[test]
fn segments_that_were_put_before_a_bad_file_count_as_pushed() {
    for (ranges, bad) in [(4, 3), (66, 65)] {
        let (packed, store) = (PackedDir::new(ranges), Arc::new(FaultStore::new(Fault::None)));
        let mut bytes = fs::read(&packed.files[bad]).expect("it is there");
        let middle = bytes.len() / 2;
        bytes[middle] ^= 1;
        write(&packed.files[bad], bytes);
        run(async {
            let archive = archive(&store);
            let done = pushed(&archive, packed.path()).await.expect("the others are pushed");
            assert_eq!((done.segments, done.bad), (ranges as u64 - 1, 1), "{done:?}");
            assert_eq!(whole(&archive).await.1, 4 * bad as u64 - 1);
        });
    }
}

#[test]
fn packed_files_below_a_bad_one_are_pushed() {
    let (packed, store) = (PackedDir::new(3), Arc::new(FaultStore::new(Fault::None)));
    let bytes = fs::read(&packed.files[2]).expect("it can be read");
    write(&packed.files[2], &bytes[..bytes.len() - 1]);
    run(async {
        let archive = archive(&store);
        let done = pushed(&archive, packed.path()).await.expect("two are fine");
        assert_eq!((done.bad, done.segments, done.heights), (1, 2, Some((0, 7))));
    });
}

/// A check reads the manifest, and sleeps while heights are dropped and their objects deleted.
#[test]
fn check_beside_a_deletion_finds_no_fault() {
    let (packed, store) = (PackedDir::new(3), Arc::new(FaultStore::new(Fault::None)));
    run(async {
        let archive = archive(&store);
        pushed(&archive, packed.path()).await.expect("it can be pushed");
        let dropping = store.before((Point::GetObject, 0), async {
            retain(&archive, &plain(), 8).await.expect("it can be changed");
            let all = GcOptions { older_than: Duration::ZERO, is_dry: false };
            let done = gc(&archive, &plain(), all, |_| ()).await.expect("they can be deleted");
            assert_eq!(done.deleted, 2 + 4);
        });
        let mut faults = Vec::new();
        let checking = verify(&archive, None, None, |fault| faults.push(fault));
        let ((), checked) = tokio::join!(dropping, checking);
        let checked = checked.expect("it can be read");
        assert_eq!((checked.findings, checked.dropped), (0, 2 + 4));
        assert!(faults.is_empty(), "{faults:?}");
        // An object that is named and absent is a fault as before.
        let names = store.names().await;
        let filter = names.iter().find(|name| name.contains("/filter-")).expect("there is one");
        store.inner.delete(&Path::from(filter.as_str())).await.expect("it can be deleted");
        let checked = verify(&archive, None, None, |_| ()).await.expect("it can be read");
        assert_eq!((checked.findings, checked.dropped), (1, 0));
    });
}

/// Both find an empty archive. The lower one has several groups of heights, of which only the last meets the upper one.
#[test]
fn first_push_goes_on_below_another_one_that_came_first() {
    let (packed, store) = (PackedDir::new(68), Arc::new(FaultStore::new(Fault::None)));
    let [lower, upper] = [packed.some(0..66), packed.some(66..68)];
    run(async {
        let archive = archive(&store);
        let coming = store.before((Point::PutManifest, 0), async {
            let done = pushed(&archive, upper.path()).await.expect("it can be pushed");
            assert_eq!(done.heights, Some((264, 271)));
        });
        let ((), below) = tokio::join!(coming, pushed(&archive, lower.path()));
        let below = below.expect("its heights meet the others");
        assert_eq!((below.heights, below.segments), (Some((0, 271)), 66));
        assert_eq!(whole(&archive).await, (0, 271));
    });
}

#[test]
fn check_says_how_far_it_is_and_goes_on_at_a_height() {
    let (packed, store) = (PackedDir::new(66), Arc::new(FaultStore::new(Fault::None)));
    run(async {
        let archive = archive(&store);
        pushed(&archive, packed.path()).await.expect("it can be pushed");
        let checked = async |from: u64| {
            let mut read = Vec::new();
            let tell = |event: CheckEvent<'_>| match event {
                CheckEvent::Found(fault) => panic!("{fault:?}"),
                CheckEvent::Read(done) => read.push((done.heights, done.segments)),
            };
            let check = ArchiveCheck { local: None, proving: Some(Proving::new(None)), from };
            verify_from(&archive, check, tell).await.map(|done| (done, read))
        };
        let (whole, read) = checked(0).await.expect("it can be read");
        assert_eq!((whole.heights, whole.segments, whole.spans), (Some((0, 263)), 66, 2));
        assert_eq!(read, [(Some((0, 255)), 64)]);
        let (upper, read) = checked(256).await.expect("it can be read");
        assert_eq!((upper.heights, upper.segments, upper.spans), (Some((256, 263)), 2, 1));
        assert_eq!((read, upper.proven), (vec![], Some((256, 263))));
        let (all, _) = checked(255).await.expect("it can be read");
        assert_eq!((all.segments, all.bytes), (66, whole.bytes), "a span is read whole");
        let above = checked(264).await.map(|_| ());
        assert!(matches!(above, Err(Failed::AboveAll { height: 264, .. })), "{above:?}");
    });
}
