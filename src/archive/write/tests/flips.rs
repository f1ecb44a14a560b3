//! Every byte of a small archive changed, one after the other.

use std::sync::Arc;

use neve_archive::ObjectName;
use object_store::path::Path;
use object_store::{ObjectStoreExt, PutPayload};

use super::fault_store::{Fault, FaultStore};
use super::packed_dir::PackedDir;
use super::support::{archive, pushed, run, whole};
use crate::archive::error::Failed;
use crate::archive::verify::verify;

/// The check reads all of the archive, so that it is asked about each of so many bytes only.
const CHECKED_EVERY: usize = 997;

#[test]
fn every_changed_byte_of_an_object_is_found() {
    let (packed, store) = (PackedDir::new(2), Arc::new(FaultStore::new(Fault::None)));
    run(async {
        let archive = archive(&store);
        pushed(&archive, packed.path()).await.expect("it can be pushed");
        let held = archive.manifest().await.expect("it can be read").expect("it is there");
        let objects: Vec<(ObjectName, u64)> = held.manifest.objects().collect();
        assert_eq!(objects.len(), 2 + 4, "segments, and the objects of their span");
        let mut bytes_changed = 0;
        for (name, length) in objects {
            let path = Path::from(name.to_string());
            let good = archive.get(&name, length).await.expect("it is whole");
            for at in 0..good.len() {
                let mut bad = good.to_vec();
                bad[at] ^= 1 << (at % 8);
                store.inner.put(&path, PutPayload::from(bad)).await.expect("it can be written");
                let read = archive.get(&name, length).await;
                assert!(matches!(read, Err(Failed::Changed(_))), "byte {at} of {name}");
                bytes_changed += 1;
                if bytes_changed % CHECKED_EVERY == 0 {
                    let checked =
                        verify(&archive, None, None, |_| ()).await.expect("it can be read");
                    assert_eq!(checked.findings, 1, "byte {at} of {name}");
                }
            }
            store.inner.put(&path, PutPayload::from(good)).await.expect("it can be written");
        }
        assert!(bytes_changed > 20_000, "{bytes_changed} bytes");
        assert_eq!(whole(&archive).await, (0, 7));
    });
}
