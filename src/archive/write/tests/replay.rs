//! Earlier manifests that the own key signed, put back by an attacker.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use neve_archive::{MANIFEST_NAME, Manifest};
use object_store::ObjectStoreExt;
use object_store::path::Path as ObjectPath;
use tempfile::TempDir;

use super::fault_store::{Fault, FaultStore, Point};
use super::packed_dir::PackedDir;
use super::signing::{held, options, signed_push};
use super::support::{archive, run, whole};
use crate::archive::error::Failed;
use crate::archive::store::{ArchiveAddress, ArchiveStore};
use crate::archive::write::change::WriteOptions;
use crate::archive::write::newest::Newest;
use crate::archive::write::{GcOptions, NamedChain, gc, init, retain};

const ALL: GcOptions = GcOptions { older_than: Duration::ZERO, is_dry: false };

/// Packed files in so many ranges, an empty store, and a directory that remembers manifests.
fn begun(ranges: usize) -> (PackedDir, Arc<FaultStore>, TempDir) {
    let memory = tempfile::tempdir().expect("a directory can be made");
    (PackedDir::new(ranges), Arc::new(FaultStore::new(Fault::None)), memory)
}

/// A writer with a key that remembers manifests in a directory. Each call stands for a process.
fn writer(dir: Option<&Path>, at_least: u64) -> WriteOptions {
    let place = ArchiveAddress { url: "s3://bucket/prefix".to_owned(), endpoint: None };
    WriteOptions { newest: Newest::of_archive(&place, dir, at_least), ..options(0) }
}

/// Bytes of the manifest.
async fn bytes(store: &FaultStore) -> Vec<u8> {
    let manifest = store.inner.get(&ObjectPath::from(MANIFEST_NAME)).await.expect("it is there");
    manifest.bytes().await.expect("it can be read").to_vec()
}

async fn put_back(store: &FaultStore, bytes: &[u8]) {
    let manifest = ObjectPath::from(MANIFEST_NAME);
    store.inner.put(&manifest, bytes.to_vec().into()).await.expect("it is in memory");
}

/// Reason why a `gc` that remembers manifests in a directory is refused.
async fn refusal(archive: &ArchiveStore, dir: Option<&Path>) -> String {
    let refused = gc(archive, &writer(dir, 0), ALL, |_| ()).await;
    refused.expect_err("it is an earlier one").to_string()
}

/// Expects that no command of a writer changes anything.
async fn refuses(
    archive: &ArchiveStore,
    store: &FaultStore,
    packed: &PackedDir,
    by: &WriteOptions,
) {
    let names = store.names().await;
    let refused = [
        gc(archive, by, ALL, |_| ()).await.map(drop),
        signed_push(archive, packed.path(), by).await,
        retain(archive, by, 4).await.map(drop),
        init(archive, by, packed.chain().into()).await.map(drop),
    ];
    for refused in refused {
        assert!(matches!(refused, Err(Failed::Earlier { .. })), "{refused:?}");
    }
    assert_eq!(store.names().await, names);
}

/// Else `gc` deletes what later pushes added, and a push goes on from there.
#[test]
fn earlier_manifest_of_the_own_key_is_refused_by_each_writer_that_has_seen_a_later_one() {
    let (packed, store, memory) = begun(3);
    let dir = Some(memory.path());
    run(async {
        let archive = archive(&store);
        let part = packed.some([0]);
        signed_push(&archive, part.path(), &writer(dir, 0)).await.expect("it can be pushed");
        let first = bytes(&store).await;
        // Another machine, or one without a directory.
        signed_push(&archive, packed.path(), &options(0)).await.expect("it can be pushed");
        gc(&archive, &writer(dir, 0), ALL, |_| ()).await.expect("it is the newest one");
        let newest = (held(&archive).await.manifest.sequence, bytes(&store).await);
        put_back(&store, &first).await;
        refuses(&archive, &store, &packed, &writer(dir, 0)).await;
        refuses(&archive, &store, &packed, &writer(None, newest.0)).await;
        put_back(&store, &newest.1).await;
        assert_eq!(whole(&archive).await, (0, 11), "nothing is lost");
        for by in [writer(dir, 0), writer(None, newest.0)] {
            gc(&archive, &by, ALL, |_| ()).await.expect("it is the newest one");
        }
        // The manifest of a writer that signs nothing is no earlier one either.
        let plain =
            WriteOptions { newest: writer(None, newest.0 + 1).newest, ..WriteOptions::default() };
        let refused = gc(&archive, &plain, ALL, |_| ()).await;
        let text = refused.expect_err("it is an earlier one").to_string();
        assert!(text.contains("--archive-at-least"), "{text}");
    });
}

/// A server pushes while the answer to a `gc` with its directory is in flight.
#[test]
fn manifest_that_is_overtaken_by_another_process_of_the_directory_is_read_again() {
    let (packed, store, memory) = begun(3);
    let dir = Some(memory.path());
    run(async {
        let archive = archive(&store);
        signed_push(&archive, packed.some([0]).path(), &writer(dir, 0)).await.expect("a push");
        let (server, by) = (writer(dir, 0), writer(dir, 0));
        let pushing = async {
            signed_push(&archive, packed.path(), &server).await.expect("a push");
        };
        let pushing = store.before((Point::GotManifest, 0), pushing);
        let ((), collected) = tokio::join!(pushing, gc(&archive, &by, ALL, |_| ()));
        collected.expect("the next answer is the newest one");
        assert_eq!(whole(&archive).await, (0, 11), "nothing is lost");
    });
}

#[test]
fn absent_and_empty_manifests_are_earlier_ones() {
    let (packed, store, memory) = begun(2);
    let dir = Some(memory.path());
    run(async {
        let archive = archive(&store);
        signed_push(&archive, packed.path(), &writer(dir, 0)).await.expect("it can be pushed");
        let newest = bytes(&store).await;
        let manifest = ObjectPath::from(MANIFEST_NAME);
        store.inner.delete(&manifest).await.expect("it is there");
        refuses(&archive, &store, &packed, &writer(dir, 0)).await;
        refuses(&archive, &store, &packed, &writer(None, 1)).await;
        assert!(refusal(&archive, dir).await.starts_with("the archive has no manifest;"));
        // One without anything in it needs no signature.
        let empty = Manifest { sequence: 1, ..Manifest::empty(packed.chain()) };
        put_back(&store, &empty.to_bytes().expect("it has a form")).await;
        refuses(&archive, &store, &packed, &writer(dir, 0)).await;
        let text = refusal(&archive, dir).await;
        assert!(text.starts_with("manifest 1 is there, empty and without the signature"), "{text}");
        put_back(&store, &newest).await;
        signed_push(&archive, packed.path(), &writer(dir, 0)).await.expect("all of it is there");
    });
}

#[test]
fn empty_manifest_that_was_seen_without_a_key_holds_up_no_signed_push() {
    let (packed, store, memory) = begun(1);
    let dir = Some(memory.path());
    run(async {
        let archive = archive(&store);
        let empty = Manifest { sequence: 1, ..Manifest::empty(packed.chain()) };
        put_back(&store, &empty.to_bytes().expect("it has a form")).await;
        let held = archive.manifest().await.expect("it can be read");
        writer(dir, 0).newest.take(held.as_ref(), false).expect("it is the first one");
        signed_push(&archive, packed.path(), &writer(dir, 0)).await.expect("none was before it");
    });
}

/// An attacker replaces the manifest between two looks of one run.
#[test]
fn manifest_that_goes_back_during_a_deletion_ends_it() {
    let (packed, store) = (PackedDir::new(3), Arc::new(FaultStore::new(Fault::None)));
    run(async {
        let archive = archive(&store);
        signed_push(&archive, packed.some([0]).path(), &options(0)).await.expect("a push");
        let first = bytes(&store).await;
        signed_push(&archive, packed.path(), &options(0)).await.expect("a push");
        let newest = bytes(&store).await;
        let names = store.names().await;
        // Behind the clock and before the listing is compared.
        let putting = store.before((Point::List, 0), put_back(&store, &first));
        let by = options(0);
        let ((), refused) = tokio::join!(putting, gc(&archive, &by, ALL, |_| ()));
        assert!(matches!(refused, Err(Failed::Earlier { .. })), "{refused:?}");
        let text = refused.expect_err("it is an earlier one").to_string();
        assert!(text.contains("start this writer again"), "no file remembers it: {text}");
        assert_eq!(store.names().await, names);
        put_back(&store, &newest).await;
        assert_eq!(whole(&archive).await, (0, 11));
    });
}

#[test]
fn earlier_manifest_that_is_wanted_is_signed_on_purpose() {
    let (packed, store, memory) = begun(3);
    let dir = Some(memory.path());
    run(async {
        let archive = archive(&store);
        let part = packed.some([0]);
        signed_push(&archive, part.path(), &writer(dir, 0)).await.expect("it can be pushed");
        let first = bytes(&store).await;
        signed_push(&archive, packed.some([0, 1]).path(), &writer(dir, 0)).await.expect("a push");
        signed_push(&archive, packed.path(), &writer(dir, 0)).await.expect("a push");
        put_back(&store, &first).await;
        let digest = held(&archive).await.digest;
        let refused = signed_push(&archive, packed.path(), &writer(dir, 0)).await;
        let text = refused.expect_err("it is an earlier one").to_string();
        let directory = memory.path().display();
        let advice = format!("init --sign-existing sha256:{digest} --data-dir {directory}");
        assert!(text.ends_with(&advice), "{text}");
        let signing = WriteOptions { signs: Some(digest), ..writer(dir, 0) };
        init(&archive, &signing, NamedChain::default()).await.expect("it is wanted");
        signed_push(&archive, packed.path(), &writer(dir, 0)).await.expect("it goes on from there");
        assert_eq!(held(&archive).await.manifest.sequence, 3);
        assert_eq!(whole(&archive).await, (0, 11));
    });
}
