//! A writer, a runtime, and the check of an archive.

use std::path::Path;
use std::sync::Arc;

use super::fault_store::FaultStore;
use crate::archive::error::Failed;
use crate::archive::store::ArchiveStore;
use crate::archive::verify::verify;
use crate::archive::write::change::{WriteOptions, Writer};
use crate::archive::write::push::{Pushed, push};

/// Options of a writer beside others, without a key. Each call stands for a process.
pub(super) fn plain() -> WriteOptions {
    WriteOptions::default()
}

pub(in crate::archive) fn run<T>(work: impl Future<Output = T>) -> T {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    runtime.expect("a runtime starts").block_on(work)
}

pub(in crate::archive) fn archive(store: &Arc<FaultStore>) -> ArchiveStore {
    ArchiveStore::over(Arc::clone(store) as Arc<dyn object_store::ObjectStore>)
}

/// Pushes to a store that is cut off behind so many changes, and works again afterwards. True if it was cut off.
pub(super) async fn cut_push(
    store: &FaultStore,
    archive: &ArchiveStore,
    dir: &Path,
    changes: i64,
) -> bool {
    store.cut_after(Some(changes));
    let pushed = pushed(archive, dir).await;
    let was_cut = store.is_cut();
    assert_eq!(pushed.is_err(), was_cut, "{pushed:?}");
    store.cut_after(None);
    was_cut
}

pub(in crate::archive) async fn pushed(
    archive: &ArchiveStore,
    dir: &Path,
) -> Result<Pushed, Failed> {
    let options = plain();
    let writer = Writer::begin(archive, &options).await?;
    push(&writer, dir, |_| ()).await
}

/// Reads all of an archive and expects no fault. Returns its heights.
pub(super) async fn whole(archive: &ArchiveStore) -> (u64, u64) {
    let mut faults = Vec::new();
    let verified = verify(archive, None, None, |fault| faults.push(fault)).await;
    let verified = verified.expect("it can be read");
    assert!(faults.is_empty(), "{faults:?}");
    verified.heights.expect("it has some")
}
