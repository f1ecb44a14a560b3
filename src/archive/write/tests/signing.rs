//! Signing: a writer with a key vouches for no manifest that another writer put there.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use neve_archive::{Deletion, MANIFEST_NAME, Manifest, ObjectName};
use object_store::path::Path as Location;
use object_store::{ObjectStoreExt, PutPayload};

use super::fault_store::{Fault, FaultStore};
use super::packed_dir::{PackedDir, write};
use super::support::{archive, plain, pushed, run, whole};
use crate::archive::error::Failed;
use crate::archive::signature::SigningKey;
use crate::archive::store::{ArchiveStore, HeldManifest};
use crate::archive::write::change::{WriteOptions, Writer, own_manifest};
use crate::archive::write::{GcOptions, NamedChain, gc, init, push, retain};

/// Keys as `openssl genpkey -algorithm ed25519` writes them; the second one has other bytes.
const KEYS: [&str; 2] = [
    "MC4CAQAwBQYDK2VwBCIEIJ1hsZ3v/VpguoRK9JLsLMREScVpezJpGXA7rAMcrn9g",
    "MC4CAQAwBQYDK2VwBCIEIAABAgMEBQYHCAkKCwwNDg8QERITFBUWFxgZGhscHR4f",
];

pub(super) fn options(key: usize) -> WriteOptions {
    let dir = tempfile::tempdir().expect("a directory can be made");
    let path = dir.path().join("key.pem");
    let pem = format!("-----BEGIN PRIVATE KEY-----\n{}\n-----END PRIVATE KEY-----\n", KEYS[key]);
    write(&path, pem);
    let signer = Some(SigningKey::read(&path).expect("it is a key"));
    WriteOptions { signer, ..WriteOptions::default() }
}

pub(super) async fn signed_push(
    archive: &ArchiveStore,
    dir: &Path,
    by: &WriteOptions,
) -> Result<(), Failed> {
    let writer = Writer::begin(archive, by).await?;
    push(&writer, dir, |_| ()).await.map(drop)
}

pub(super) async fn held(archive: &ArchiveStore) -> HeldManifest {
    archive.manifest().await.expect("it can be read").expect("it is there")
}

async fn manifest(archive: &ArchiveStore) -> Manifest {
    held(archive).await.manifest
}

/// Signs the manifest that is there.
async fn sign(archive: &ArchiveStore, key: usize) {
    let signing = WriteOptions { signs: Some(held(archive).await.digest), ..options(key) };
    init(archive, &signing, NamedChain::default()).await.expect("it is wanted");
}

#[test]
fn manifest_of_another_signer_is_refused_until_it_is_signed_on_purpose() {
    let (packed, store) = (PackedDir::new(3), Arc::new(FaultStore::new(Fault::None)));
    let (own, other) = (options(0), options(1));
    run(async {
        let archive = archive(&store);
        pushed(&archive, packed.some([0]).path()).await.expect("it can be pushed");
        let names = store.names().await;
        for round in ["no signature", "another signature"] {
            let before = manifest(&archive).await;
            let refused = [
                signed_push(&archive, packed.path(), &own).await,
                init(&archive, &own, NamedChain::default()).await.map(drop),
                retain(&archive, &own, 4).await.map(drop),
            ];
            for refused in refused {
                let text = refused.expect_err("another one signed it").to_string();
                let key = own.signer.as_ref().expect("a key").public();
                let words = [round, &key, "--sign-existing", "has 1 segments"];
                assert!(words.iter().all(|word| text.contains(word)), "{text}");
            }
            assert_eq!(manifest(&archive).await, before);
            assert_eq!(store.names().await, names, "nothing is put");
            if round == "no signature" {
                sign(&archive, 1).await;
                init(&archive, &other, NamedChain::default()).await.expect("it is its own");
            }
        }
        sign(&archive, 0).await;
        signed_push(&archive, packed.path(), &own).await.expect("it is its own");
        assert!(own.signer.as_ref().expect("a key").has_signed(&manifest(&archive).await));
        assert_eq!(whole(&archive).await, (0, 11));
    });
}

/// A byte that says the same afterwards would be no change.
#[test]
fn every_changed_byte_of_a_signed_manifest_takes_the_signature_away() {
    let (packed, store) = (PackedDir::new(2), Arc::new(FaultStore::new(Fault::None)));
    let own = options(0);
    run(async {
        let (archive, path) = (archive(&store), Location::from(MANIFEST_NAME));
        signed_push(&archive, packed.path(), &own).await.expect("it can be pushed");
        let good = manifest(&archive).await;
        let bytes = store.inner.get(&path).await.expect("it is there").bytes().await;
        let bytes = bytes.expect("it can be read");
        let signer = own.signer.as_ref().expect("a key");
        for (at, flip) in (0..bytes.len()).flat_map(|at| [(at, 0x01), (at, 0x20), (at, 0x80)]) {
            let mut bad = bytes.to_vec();
            bad[at] ^= flip;
            store.inner.put(&path, PutPayload::from(bad)).await.expect("it can be written");
            if let Ok(Some(held)) = archive.manifest().await {
                let is_taken = signer.has_signed(&held.manifest);
                assert!(!is_taken || held.manifest == good, "byte {at}, {flip:#x}");
            }
        }
        assert!(bytes.len() > 500, "{} bytes", bytes.len());
    });
}

/// An attacker who may put objects can name all of them as being deleted, in a manifest without segments.
#[test]
fn deletion_that_another_one_began_is_not_completed() {
    let (packed, store) = (PackedDir::new(2), Arc::new(FaultStore::new(Fault::None)));
    let own = options(0);
    run(async {
        let archive = archive(&store);
        signed_push(&archive, packed.path(), &own).await.expect("it can be pushed");
        let held = archive.manifest().await.expect("it can be read").expect("it is there");
        let named = |(name, _): (ObjectName, u64)| name.to_string();
        let mut objects: Vec<_> = held.manifest.objects().map(named).collect();
        objects.sort();
        let mut forged = held.manifest.following(held.digest);
        (forged.segments, forged.spans, forged.signature) = (Vec::new(), Vec::new(), None);
        forged.deletion = Some(Deletion { since: forged.sequence, objects });
        assert!(archive.replace(Some(&held), &forged).await.expect("it can be written"));
        let names = store.names().await;
        let all = GcOptions { older_than: Duration::ZERO, is_dry: false };
        let refused = gc(&archive, &own, all, |_| ()).await;
        let text = refused.expect_err("another one began it").to_string();
        assert!(text.contains("has a deletion of 6 objects and no signature"), "{text}");
        assert_eq!(store.names().await, names);
    });
}

#[test]
fn manifest_without_segments_is_signed_by_its_first_signer() {
    let (packed, store) = (PackedDir::new(1), Arc::new(FaultStore::new(Fault::None)));
    let own = options(0);
    run(async {
        let archive = archive(&store);
        init(&archive, &plain(), packed.chain().into()).await.expect("it holds");
        signed_push(&archive, packed.path(), &own).await.expect("nothing is vouched for");
        assert!(own.signer.as_ref().expect("a key").has_signed(&manifest(&archive).await));
        let unsigned = pushed(&archive, PackedDir::new(2).path()).await;
        assert!(matches!(unsigned, Err(Failed::Unsigned)), "{unsigned:?}");
    });
}

/// Readers that trust the key would refuse the manifest, so that the objects would be put in vain.
#[test]
fn writer_without_the_key_of_the_manifest_puts_nothing() {
    let (packed, store) = (PackedDir::new(3), Arc::new(FaultStore::new(Fault::None)));
    let how = |is_dry| GcOptions { older_than: Duration::ZERO, is_dry };
    run(async {
        let archive = archive(&store);
        signed_push(&archive, packed.some([0]).path(), &options(0)).await.expect("a push");
        signed_push(&archive, packed.some([0, 1]).path(), &options(0)).await.expect("a push");
        let names = store.names().await;
        store.cut_after(Some(0));
        let refused = [
            pushed(&archive, packed.path()).await.map(drop),
            retain(&archive, &plain(), 4).await.map(drop),
            gc(&archive, &plain(), how(false), |_| ()).await.map(drop),
            init(&archive, &plain(), NamedChain::default()).await.map(drop),
        ];
        for refused in refused {
            assert!(matches!(refused, Err(Failed::Unsigned)), "{refused:?}");
        }
        let counted = gc(&archive, &plain(), how(true), |_| ()).await.expect("nothing is put");
        assert_eq!((counted.unnamed, store.names().await), (4, names));
    });
}

/// Eviction would believe it, and let all heights below go without a copy.
#[test]
fn first_height_of_another_one_is_not_believed() {
    let (packed, store) = (PackedDir::new(1), Arc::new(FaultStore::new(Fault::None)));
    let own = options(0);
    run(async {
        let archive = archive(&store);
        init(&archive, &plain(), packed.chain().into()).await.expect("it holds");
        let held = archive.manifest().await.expect("it can be read").expect("it is there");
        let forged =
            Manifest { from: 1_000_000_000_000_000, ..held.manifest.following(held.digest) };
        assert!(archive.replace(Some(&held), &forged).await.expect("it can be written"));
        let refused = own_manifest(&archive, &own).await;
        let text = refused.expect_err("it has no signature").to_string();
        assert!(text.contains("has the lowest height 1000000000000000 and no signature"), "{text}");
        let refused = signed_push(&archive, packed.path(), &own).await;
        assert!(matches!(refused, Err(Failed::OtherSigner { .. })), "{refused:?}");
    });
}

/// Between the look of the operator and the signature another writer may replace the manifest.
#[test]
fn manifest_that_was_not_looked_at_is_not_signed_on_purpose() {
    let (packed, store) = (PackedDir::new(2), Arc::new(FaultStore::new(Fault::None)));
    run(async {
        let archive = archive(&store);
        pushed(&archive, packed.some([0]).path()).await.expect("it can be pushed");
        let looked_at = held(&archive).await.digest;
        pushed(&archive, packed.path()).await.expect("it can be pushed");
        let (there, names) = (held(&archive).await.digest, store.names().await);
        let signing = WriteOptions { signs: Some(looked_at), ..options(0) };
        let refused = init(&archive, &signing, NamedChain::default()).await;
        let text = refused.expect_err("it is another one").to_string();
        let words = [looked_at.to_string(), there.to_string()];
        assert!(words.iter().all(|word| text.contains(word)), "{text}");
        assert_eq!((held(&archive).await.digest, store.names().await), (there, names));
        // Another writer puts it there while the store is tried.
        let looked_at = there;
        let more = PackedDir::new(3);
        let putting = store.before_the_manifest(async {
            pushed(&archive, more.path()).await.expect("it can be pushed");
        });
        let signing = WriteOptions { signs: Some(looked_at), ..options(0) };
        let ((), refused) = tokio::join!(putting, init(&archive, &signing, NamedChain::default()));
        assert!(matches!(refused, Err(Failed::OtherManifest { .. })), "{refused:?}");
        assert_eq!(manifest(&archive).await.signature, None);
        // Nor one that the same key signed.
        let earlier = held(&archive).await.digest;
        sign(&archive, 0).await;
        let there = held(&archive).await.digest;
        let signing = WriteOptions { signs: Some(earlier), ..options(0) };
        let refused = init(&archive, &signing, NamedChain::default()).await;
        assert!(matches!(refused, Err(Failed::OtherManifest { .. })), "{refused:?}");
        assert_eq!(held(&archive).await.digest, there);
    });
}
