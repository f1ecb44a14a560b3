//! Manifests that a writer without a key does not find, though they are there.

use std::fs;
use std::sync::Arc;

use object_store::Error;

use super::fault_store::{Fault, FaultStore};
use super::packed_dir::PackedDir;
use super::support::{archive, plain, pushed, run, whole};
use crate::archive::error::Failed;
use crate::archive::store::{ArchiveAddress, ArchiveStore};
use crate::archive::write::change::{WriteOptions, Writer};
use crate::archive::write::push;

async fn pushed_by(
    options: &WriteOptions,
    archive: &ArchiveStore,
    dir: &std::path::Path,
) -> Result<(), Failed> {
    let writer = Writer::begin(archive, options).await?;
    push(&writer, dir, |_| ()).await.map(drop)
}

#[test]
fn directory_that_vanishes_gets_no_other_archive() {
    let (packed, parent) = (PackedDir::new(3), tempfile::tempdir().expect("a directory"));
    let [dir, away] = ["archive", "away"].map(|name| parent.path().join(name));
    fs::create_dir(&dir).expect("it can be made");
    let place = ArchiveAddress { url: format!("file://{}", dir.display()), endpoint: None };
    run(async {
        let (archive, options) = (ArchiveStore::open(&place).expect("it is there"), plain());
        pushed_by(&options, &archive, packed.some([0]).path()).await.expect("it can be pushed");
        fs::rename(&dir, &away).expect("it is ours");
        // Also a writer that has seen nothing yet.
        for by in [&options, &plain()] {
            let refused = pushed_by(by, &archive, packed.some([2]).path()).await;
            let text = refused.expect_err("the directory is gone").to_string();
            assert!(text.contains("not there any more"), "{text}");
            assert!(!dir.exists(), "it is made again");
        }
        // A mount point is there, and empty.
        fs::create_dir(&dir).expect("it can be made");
        let refused = pushed_by(&options, &archive, packed.some([2]).path()).await;
        assert!(matches!(refused, Err(Failed::Earlier { .. })), "{refused:?}");
        let found = fs::read_dir(&dir).expect("it is there").count();
        assert_eq!(found, 0, "objects are put there");
        fs::remove_dir(&dir).expect("it is empty");
        fs::rename(&away, &dir).expect("it is ours");
        pushed_by(&options, &archive, packed.path()).await.expect("it goes on");
        assert_eq!(whole(&archive).await, (0, 11));
    });
}

/// A cache that answers 304 to a request without `If-None-Match` is no proof that the bucket is empty.
#[test]
fn store_that_says_not_modified_to_a_first_read_gets_no_other_archive() {
    let (packed, store) = (PackedDir::new(3), Arc::new(FaultStore::new(Fault::None)));
    run(async {
        let archive = archive(&store);
        pushed(&archive, packed.some([0]).path()).await.expect("it can be pushed");
        let before = store.names().await;
        store.set(Fault::AlwaysNotModified);
        let refused = pushed(&archive, packed.some([2]).path()).await;
        let is_named = matches!(refused, Err(Failed::Objects(Error::NotModified { .. })));
        assert!(is_named, "{refused:?}");
        assert_eq!(store.names().await, before, "objects are put there");
        store.set(Fault::None);
        pushed(&archive, packed.path()).await.expect("it goes on");
        assert_eq!(whole(&archive).await, (0, 11));
    });
}
