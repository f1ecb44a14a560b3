//! A writer, a runtime, and the check of an archive.

use std::path::Path;
use std::sync::Arc;

use super::fault_store::FaultStore;
use crate::archive::error::Failed;
use crate::archive::store::ArchiveStore;
use crate::archive::verify::verify;
use crate::archive::write::change::{WriteOptions, Writer};
use crate::archive::write::newest::Newest;
use crate::archive::write::push::{Pushed, push};

/// Options of a writer beside others.
pub(super) static PLAIN: WriteOptions =
    WriteOptions { signer: None, is_single: false, signs: None, newest: Newest::of_a_run() };

pub(super) fn run<T>(work: impl Future<Output = T>) -> T {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    runtime.expect("a runtime starts").block_on(work)
}

pub(super) fn archive(store: &Arc<FaultStore>) -> ArchiveStore {
    ArchiveStore::over(Arc::clone(store) as Arc<dyn object_store::ObjectStore>)
}

pub(super) async fn pushed(archive: &ArchiveStore, dir: &Path) -> Result<Pushed, Failed> {
    let writer = Writer::begin(archive, &PLAIN).await?;
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
