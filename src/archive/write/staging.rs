//! Files that a writer leaves in a directory when it is killed: an object is written beside its name, and renamed. The
//! client of directories lists none of them.

use std::fs;
use std::io::{self, ErrorKind};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use neve_archive::{MANIFEST_NAME, ObjectName};
use tokio::task::spawn_blocking;

use crate::archive::error::Failed;
use crate::archive::listing::is_trial;
use crate::archive::store::ArchiveStore;

/// Folders of an object: one of its chain, and one of its digest.
const FOLDERS: u32 = 2;

/// Deletes such files of a chain that were written until `youngest`, in seconds since 1970. Returns the number.
pub(super) async fn without_staged(
    archive: &ArchiveStore,
    chain_id: u64,
    youngest: i64,
    is_dry: bool,
) -> Result<u64, Failed> {
    let Some(root) = archive.directory().map(Path::to_owned) else { return Ok(0) };
    let deleting = spawn_blocking(move || {
        let mut staged = Vec::new();
        let file = |error| Failed::File { path: root.clone(), error };
        collect(&root, &root, FOLDERS, &mut staged).map_err(file)?;
        let mut count = 0;
        for path in staged.into_iter().filter(|path| is_staged(&root, path, chain_id)) {
            count += u64::from(is_deleted(&path, youngest, is_dry).map_err(file)?);
        }
        Ok(count)
    });
    deleting.await.map_err(|source| object_store::Error::JoinError { source })?
}

/// Collects the files of a folder whose names end as those that are renamed.
fn collect(root: &Path, dir: &Path, folders: u32, found: &mut Vec<PathBuf>) -> io::Result<()> {
    for entry in dir.read_dir()? {
        let (entry, is_root) = (entry?, dir == root);
        let name = entry.file_name();
        let name = name.to_str().unwrap_or_default();
        let is_folder = entry.file_type()?.is_dir();
        if is_folder && folders > 0 && (!is_root || name.parse::<u64>().is_ok()) {
            collect(root, &entry.path(), folders - 1, found)?;
        } else if !is_folder && final_name(name).is_some() {
            found.push(entry.path());
        }
    }
    Ok(())
}

/// Name that a file would get: its own one ends with `#` and a number.
fn final_name(name: &str) -> Option<&str> {
    let (name, number) = name.rsplit_once('#')?;
    let is_number = !number.is_empty() && number.bytes().all(|byte| byte.is_ascii_digit());
    is_number.then_some(name)
}

/// True if the file would be an object of the archive: others may keep files there too.
fn is_staged(root: &Path, path: &Path, chain_id: u64) -> bool {
    let name = path.strip_prefix(root).ok().and_then(Path::to_str).and_then(final_name);
    name.is_some_and(|name| {
        let is_object = |object: ObjectName| object.chain_id == chain_id;
        name == MANIFEST_NAME || is_trial(name) || name.parse().is_ok_and(is_object)
    })
}

/// Deletes a file that is old enough. False if it is younger, or gone.
fn is_deleted(path: &Path, youngest: i64, is_dry: bool) -> io::Result<bool> {
    let is_gone = |error: &io::Error| error.kind() == ErrorKind::NotFound;
    let is_old = match path.symlink_metadata() {
        Err(error) if is_gone(&error) => false, // its writer renamed it
        found => found?.mtime() <= youngest,
    };
    if !is_old || is_dry {
        return Ok(is_old);
    }
    match fs::remove_file(path) {
        Err(error) if is_gone(&error) => Ok(false),
        removed => removed.map(|()| true),
    }
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, SystemTime};

    use neve_archive::{Chain, Digest, Manifest};

    use super::*;
    use crate::archive::store::ArchiveAddress;
    use crate::archive::write::change::WriteOptions;
    use crate::archive::write::{GcOptions, gc};

    #[test]
    fn gc_deletes_old_files_of_a_writer_that_was_killed_and_no_others() {
        let dir = tempfile::tempdir().expect("a directory can be made");
        let digits = "ab".repeat(32);
        let [staged, others] = [
            [
                "manifest.json#1".to_owned(),
                format!("7/ab/segment-32-{digits}#2"),
                format!("trial-{}#1", "0".repeat(32)),
            ],
            ["notes#1".to_owned(), format!("8/ab/segment-32-{digits}#2"), "7/ab/my#1".to_owned()],
        ];
        let write = |name: &String, age: Duration| {
            let path = dir.path().join(name);
            fs::create_dir_all(path.parent().expect("it has one")).expect("it can be made");
            let file = fs::File::create(&path).expect("it can be made");
            file.set_modified(SystemTime::now() - age).expect("it is ours");
        };
        let is_there = |name: &String| dir.path().join(name).exists();
        let day = Duration::from_hours(24);
        staged.iter().chain(&others).for_each(|name| write(name, day));
        let young = "manifest.json#3".to_owned();
        write(&young, Duration::from_mins(1));
        let place =
            ArchiveAddress { url: format!("file://{}", dir.path().display()), endpoint: None };
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        let archive = ArchiveStore::open(&place).expect("it is there");
        runtime.expect("a runtime starts").block_on(async {
            let chain = Chain { chain_id: 7, genesis: Digest([1; 32]), range: 32 };
            let first = Manifest { sequence: 1, ..Manifest::empty(chain) };
            assert!(archive.replace(None, &first).await.expect("it can be written"));
            for is_dry in [true, false] {
                let how = GcOptions { older_than: Duration::ZERO, is_dry };
                let done = gc(&archive, &WriteOptions::default(), how, |_| ()).await;
                assert_eq!(done.expect("it can be listed").staged, 3);
                assert!(staged.iter().all(|name| is_there(name) == is_dry), "{is_dry}");
            }
        });
        assert!(others.iter().chain([&young]).all(is_there));
    }
}
