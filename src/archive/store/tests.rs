use std::fs;

use neve_archive::{ArchiveError, Chain, Kind};

use super::*;

fn runtime() -> tokio::runtime::Runtime {
    let builder = tokio::runtime::Builder::new_current_thread().enable_all().build();
    builder.expect("a runtime starts")
}

fn manifest(sequence: u64, before: Option<Digest>) -> Manifest {
    let chain = Chain { chain_id: 43_112, genesis: Digest([1; 32]), range: 32 };
    Manifest { sequence, before, ..Manifest::empty(chain) }
}

/// An archive in memory, and one in a directory.
fn archives(dir: &std::path::Path) -> [ArchiveStore; 2] {
    let place = ArchiveAddress { url: format!("file://{}", dir.display()), endpoint: None };
    [ArchiveStore::in_memory(), ArchiveStore::open(&place).expect("the directory is there")]
}

fn name(bytes: &[u8]) -> ObjectName {
    let digest = object_digest(bytes);
    ObjectName { chain_id: 43_112, kind: Kind::Segment, first: 0, digest }
}

#[test]
fn manifest_is_replaced_only_as_it_was_read() {
    let dir = tempfile::tempdir().expect("a directory can be made");
    runtime().block_on(async {
        for archive in archives(dir.path()) {
            assert!(archive.manifest().await.expect("it can be read").is_none());
            let first = manifest(1, None);
            assert!(archive.replace(None, &first).await.expect("it can be written"));
            assert!(archive.replace(None, &first).await.expect("it is there already"));
            let held = archive.manifest().await.expect("it can be read").expect("it is there");
            let second = manifest(2, Some(held.digest));
            assert!(!archive.replace(None, &second).await.expect("another one is there"));
            assert!(archive.replace(Some(&held), &second).await.expect("it can be written"));
            let third = manifest(3, Some(held.digest));
            assert!(!archive.replace(Some(&held), &third).await.expect("it has changed"));
            let held = archive.manifest().await.expect("it can be read").expect("it is there");
            assert_eq!(held.manifest, second);
        }
    });
}

#[test]
fn manifest_that_did_not_change_is_not_read_again() {
    let dir = tempfile::tempdir().expect("a directory can be made");
    runtime().block_on(async {
        for archive in archives(dir.path()) {
            assert!(matches!(archive.newer_manifest(None).await, Err(Failed::NoManifest)));
            let first = manifest(1, None);
            assert!(archive.replace(None, &first).await.expect("it can be written"));
            let held = archive.newer_manifest(None).await.expect("it is there").expect("new");
            assert!(held.tag().is_some());
            assert!(archive.newer_manifest(held.tag()).await.expect("it is there").is_none());
            let second = manifest(2, Some(held.digest));
            assert!(archive.replace(Some(&held), &second).await.expect("it can be written"));
            let newer = archive.newer_manifest(held.tag()).await.expect("it is there");
            assert_eq!(newer.expect("another one").manifest, second);
        }
    });
}

#[test]
fn eight_writers_lose_no_update() {
    let dir = tempfile::tempdir().expect("a directory can be made");
    for archive in archives(dir.path()) {
        let count = |archive: ArchiveStore| {
            runtime().block_on(async {
                for _ in 0..10 {
                    loop {
                        let held = archive.manifest().await.expect("it can be read");
                        let sequence = held.as_ref().map_or(0, |held| held.manifest.sequence);
                        let next = manifest(sequence + 1, held.as_ref().map(|held| held.digest));
                        // The genesis tells the writers apart.
                        let writer = format!("{:?}", std::thread::current().id());
                        let next = Manifest { genesis: Digest::of(writer.as_bytes()), ..next };
                        if archive.replace(held.as_ref(), &next).await.expect("it can be written") {
                            break;
                        }
                    }
                }
            });
        };
        std::thread::scope(|threads| {
            (0..8).for_each(|_| drop(threads.spawn(|| count(archive.clone()))));
        });
        let held = runtime().block_on(archive.manifest()).expect("it can be read");
        assert_eq!(held.expect("it is there").manifest.sequence, 80);
    }
}

#[test]
fn object_is_put_once_and_compared_when_it_is_read() {
    let dir = tempfile::tempdir().expect("a directory can be made");
    runtime().block_on(async {
        for archive in archives(dir.path()) {
            let bytes = vec![5; 100_000];
            let name = name(&bytes);
            assert!(matches!(archive.get(&name, 100_000).await, Err(Failed::Absent(_))));
            assert!(archive.put(&name, bytes.clone()).await.expect("it can be written"));
            assert!(!archive.put(&name, bytes.clone()).await.expect("it is there"));
            assert_eq!(archive.get(&name, 100_000).await.expect("it is there"), bytes);
            assert!(matches!(archive.get(&name, 99_999).await, Err(Failed::Changed(_))));
        }
        let path = dir.path().join(name(&vec![5; 100_000]).to_string());
        let [_, archive] = archives(dir.path());
        let mut bad = vec![5; 100_000];
        bad[70_000] = 6;
        fs::write(&path, &bad).expect("it can be written");
        let name = name(&vec![5; 100_000]);
        assert!(matches!(archive.get(&name, 100_000).await, Err(Failed::Changed(_))));
        // A copy that was cut off is put again.
        fs::write(&path, &bad[..10]).expect("it can be written");
        assert!(archive.put(&name, vec![5; 100_000]).await.expect("it can be written"));
        assert!(archive.get(&name, 100_000).await.is_ok());
    });
}

#[test]
fn wrong_urls_are_refused_with_a_reason() {
    let place = |url: &str| ArchiveAddress { url: url.to_owned(), endpoint: None };
    for url in ["", "/dir", "http://a/b", "s3://", "s3:///x", "s3://b c/a", "file://dir"] {
        assert!(matches!(ArchiveStore::open(&place(url)), Err(Failed::Url { .. })), "{url}");
    }
    let absent = ArchiveStore::open(&place("file:///no/such/dir"));
    assert!(matches!(absent, Err(Failed::NoDirectory(_))), "{absent:?}");
    let wrong = ArchiveAddress { endpoint: Some("127.0.0.1:9000".to_owned()), ..place("s3://b/p") };
    assert!(matches!(ArchiveStore::open(&wrong), Err(Failed::Url { .. })), "no scheme");
}

#[test]
fn manifest_of_a_newer_release_is_named() {
    let dir = tempfile::tempdir().expect("a directory can be made");
    fs::write(dir.path().join(MANIFEST_NAME), r#"{"version":4}"#).expect("it can be written");
    let [_, archive] = archives(dir.path());
    let read = runtime().block_on(archive.manifest());
    assert!(matches!(read, Err(Failed::Form(ArchiveError::Version { version: 4, .. }))));
}
