//! Directories that vanish beside a writer without a key, as an unmounted one does.

use std::fs;

use super::packed_dir::PackedDir;
use super::support::{plain, run, whole};
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
