//! Descent of manifests: from each one to the first, beside deletions and cuts, and from no other archive.

use std::sync::Arc;
use std::time::Duration;

use neve_archive::{Digest, LINKS_MAX, Links, Manifest, object_digest};
use object_store::ObjectStoreExt;
use object_store::path::Path;

use super::fault_store::{Fault, FaultStore};
use super::packed_dir::PackedDir;
use super::signing::held;
use super::support::{archive, cut_push, plain, pushed, run, whole};
use crate::archive::error::Failed;
use crate::archive::store::{ArchiveStore, HeldManifest};
use crate::archive::verify::{descends, verify};
use crate::archive::write::{GcOptions, gc, retain};

const ALL: GcOptions = GcOptions { older_than: Duration::ZERO, is_dry: false };

async fn descends_from(archive: &ArchiveStore, manifest: &Manifest, from: Digest) -> bool {
    descends(archive, manifest, &[from]).await.expect("its links are there")
}

#[test]
fn each_manifest_descends_from_those_before_it_and_from_no_other_archive() {
    let packed = PackedDir::new(3);
    run(async {
        let [archive, other] = [(); 2].map(|()| archive(&Arc::new(FaultStore::new(Fault::None))));
        let mut seen = Vec::new();
        for ranges in 1..=3 {
            pushed(&archive, packed.some(0..ranges).path()).await.expect("it can be pushed");
            seen.push(held(&archive).await);
        }
        gc(&archive, &plain(), ALL, |_| ()).await.expect("former spans can be deleted");
        seen.push(held(&archive).await);
        retain(&archive, &plain(), 4).await.expect("heights can be dropped");
        seen.push(held(&archive).await);
        let sequences: Vec<_> = seen.iter().map(|held| held.manifest.sequence).collect();
        assert_eq!(sequences, [1, 2, 3, 5, 6]);
        for HeldManifest { manifest, .. } in &seen {
            for before in &seen {
                let is_before = before.manifest.sequence < manifest.sequence;
                let found = descends_from(&archive, manifest, before.digest).await;
                assert_eq!(found, is_before, "{} {}", manifest.sequence, before.manifest.sequence);
            }
        }
        // Another beginning of the same chain.
        for ranges in 2..=3 {
            pushed(&other, packed.some(0..ranges).path()).await.expect("it can be pushed");
        }
        let fork = held(&other).await;
        assert!(!descends_from(&other, &fork.manifest, seen[0].digest).await);
        assert!(!descends_from(&archive, &seen[4].manifest, fork.digest).await);
        // Descent is no authorship: each writer can go on from a manifest as it likes.
        let theirs = fork.manifest.following(seen[0].digest);
        assert!(descends_from(&other, &theirs, seen[0].digest).await);
        // A link that was added later leads elsewhere.
        let mut forged = seen[4].manifest.clone();
        forged.descent.links[0] = fork.digest;
        let refused = descends(&archive, &forged, &[fork.digest]).await;
        assert!(matches!(refused, Err(Failed::BrokenDescent(6))), "{refused:?}");
    });
}

/// Replaces the manifest by one with as many links as it may have. Returns it and the digest of the one before.
async fn filled(archive: &ArchiveStore) -> (HeldManifest, Digest) {
    let before = held(archive).await;
    let mut next = before.manifest.following(before.digest);
    while next.descent.links.len() < LINKS_MAX {
        next = next.following(Digest::of(&next.sequence.to_le_bytes()));
    }
    assert!(archive.replace(Some(&before), &next).await.expect("it can be written"));
    (held(archive).await, before.digest)
}

#[test]
fn object_with_links_stays_and_a_missing_one_is_named() {
    let (packed, store) = (PackedDir::new(3), Arc::new(FaultStore::new(Fault::None)));
    run(async {
        let archive = archive(&store);
        for ranges in 1..=2 {
            pushed(&archive, packed.some(0..ranges).path()).await.expect("it can be pushed");
        }
        let (full, first) = filled(&archive).await;
        // A writer that was cut off before the manifest has put them.
        let (name, links) = full.manifest.full_links().expect("it has as many as it may");
        archive.put(&name, links.clone()).await.expect("it is in memory");
        let done = gc(&archive, &plain(), ALL, |_| ()).await.expect("the next one names them");
        assert_eq!(done.deleted, 4, "the former span alone");
        pushed(&archive, packed.path()).await.expect("it can be pushed");
        retain(&archive, &plain(), 4).await.expect("heights can be dropped");
        gc(&archive, &plain(), ALL, |_| ()).await.expect("they can be deleted");
        assert!(store.names().await.contains(&name.to_string()));
        assert_eq!(whole(&archive).await, (4, 11));
        let newest = held(&archive).await.manifest;
        assert_eq!(newest.sequence, full.manifest.sequence + 6);
        assert!(descends_from(&archive, &newest, first).await);
        assert!(!descends_from(&archive, &newest, Digest([9; 32])).await, "to the end");

        let path = Path::from(name.to_string());
        let mut changed = links;
        changed[100] ^= 1;
        store.inner.put(&path, changed.into()).await.expect("it is in memory");
        let refused = descends(&archive, &newest, &[first]).await;
        assert!(matches!(refused, Err(Failed::Changed(of)) if of == name), "{refused:?}");
        assert_eq!(faults(&archive).await, [(name.to_string(), "digest")]);
        store.inner.delete(&path).await.expect("it is there");
        let refused = descends(&archive, &newest, &[first]).await.expect_err("it is not there");
        let refused = refused.to_string();
        assert!(refused.starts_with(&format!("{name} is not in the object store")), "{refused}");
        assert_eq!(faults(&archive).await, [(name.to_string(), "absent")]);
        assert!(descends_from(&archive, &newest, full.digest).await, "needs no object");
    });
}

/// Objects and kinds of the faults of an archive.
async fn faults(archive: &ArchiveStore) -> Vec<(String, &'static str)> {
    let mut faults = Vec::new();
    let found = verify(archive, None, None, |fault| faults.push((fault.object, fault.kind))).await;
    assert_eq!(found.expect("it can be read").findings, faults.len() as u64);
    faults
}

/// All digests are those of the forged bytes.
#[test]
fn links_that_do_not_lead_to_the_manifest_are_refused() {
    let (packed, store) = (PackedDir::new(1), Arc::new(FaultStore::new(Fault::None)));
    run(async {
        let archive = archive(&store);
        pushed(&archive, packed.path()).await.expect("it can be pushed");
        let (full, _) = filled(&archive).await;
        let trusted = Digest([9; 32]);
        let forged = Links { links: vec![trusted; LINKS_MAX], ..full.manifest.newest_links() };
        let mut next = full.manifest.following(full.digest);
        next.descent.objects = vec![object_digest(&forged.to_bytes())];
        let name = next.link_objects().next().expect("it names one");
        archive.put(&name, forged.to_bytes()).await.expect("it is in memory");
        let refused = descends(&archive, &next, &[trusted]).await;
        assert!(matches!(refused, Err(Failed::BrokenLinks(of)) if of == name), "{refused:?}");
        assert!(archive.replace(Some(&full), &next).await.expect("it can be written"));
        assert_eq!(faults(&archive).await, [(name.to_string(), "links")]);
    });
}

#[test]
fn push_with_an_object_of_links_that_is_cut_off_anywhere_goes_on() {
    let packed = PackedDir::new(2);
    run(async {
        for changes in 0.. {
            let store = Arc::new(FaultStore::new(Fault::None));
            let archive = archive(&store);
            pushed(&archive, packed.some([0]).path()).await.expect("it can be pushed");
            let (full, first) = filled(&archive).await;
            let was_cut = cut_push(&store, &archive, packed.path(), changes).await;
            pushed(&archive, packed.path()).await.expect("it goes on");
            assert_eq!(whole(&archive).await, (0, 7), "{changes} changes");
            let newest = held(&archive).await.manifest;
            assert_eq!(newest.sequence, full.manifest.sequence + 1, "{changes} changes");
            assert!(descends_from(&archive, &newest, first).await, "{changes} changes");
            if !was_cut {
                assert_eq!(changes, 1 + 4 + 1 + 1, "segment, span, links, manifest");
                break;
            }
        }
    });
}
