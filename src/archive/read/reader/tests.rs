//! Requests of clients, without a store, and what they leave to others.

use std::fs::File;
use std::io::Write;
use std::net::IpAddr;
use std::path::Path;
use std::sync::mpsc;
use std::thread;

use futures_util::FutureExt;
use futures_util::future::join;
use neve_archive::{Chain, IndexEntry, SegmentEntry};
use neve_store::Options;
use rustix::fs::{CWD, FileType, Mode, mknodat};

use super::*;
use crate::archive::read::read_thread::ReadThread;
use crate::archive::read::turns::AllTurns;
use crate::archive::signature::SigningKey;
use crate::config::settings::Config;

/// Another attempt of a batch finds what this one brought. One that could bring nothing is as large then.
#[test]
fn batch_that_needs_too_many_reads_may_come_again_if_it_has_read() {
    let lent = |reads, failed| {
        let budget = Budget::of_a_request(Payer::Neve, 4);
        budget.take((reads, reads)).expect("it is little");
        lent([Ok(Borrowed::default()), Err(failed)].into_iter(), &budget).try_again
    };
    assert!(lent(1, ObjectNotRead::TooMany) && !lent(0, ObjectNotRead::TooMany));
    assert!(lent(0, ObjectNotRead::Refused) && lent(0, ObjectNotRead::Failed));
    assert!(!lent(1, ObjectNotRead::Unknown) && !lent(1, ObjectNotRead::Absent));
}

/// A reader of an empty archive in a directory, and its thread.
fn reader(dir: &Path, more: &[String]) -> (Arc<ArchiveReader>, ReadThread) {
    let (place, anchor) = (dir.display(), "ab".repeat(32));
    let flags = [
        "--config=none".to_owned(),
        format!("--data-dir={place}"),
        format!("--archive=file://{place}"),
        format!("--archive-anchor=7:0x{anchor}"),
    ];
    let flags: Vec<_> = flags.iter().chain(more).map(String::as_str).collect();
    let (config, _) = Config::from_flags(&flags).expect("they are allowed");
    let options = Options { segment_bytes: 1 << 20, disk_reserve_bytes: 0, ..config.store };
    let opened = neve_store::open(&dir.join("store"), options).expect("an empty store");
    let (serving, archive) = (Arc::new(Serving::new(opened.reader)), config.archive);
    let archive = archive.expect("there is one");
    let source = ArchiveSource::open(&archive, &Arc::default()).expect("a directory");
    let thread = ReadThread::start().expect("a thread starts");
    let at = PagePlace { store: dir.to_owned(), evidence: Evidence::new(dir), files_max: 9 };
    let proof = NeighborProof::default();
    let source = Arc::new(source);
    let reader = ArchiveReader::new(&source, &serving, &archive, at, proof, thread.runtime());
    (reader.expect("a directory"), thread)
}

#[test]
fn request_is_worked_for_on_the_thread_of_reads_alone() {
    let dir = tempfile::tempdir().expect("a directory can be made");
    let (reader, thread) = reader(dir.path(), &[]);
    let reader: Arc<dyn Below> = reader;

    let (go, told) = mpsc::channel();
    thread.runtime().spawn(async move { told.recv() }); // holds the thread up
    let address = ClientAddress::from(IpAddr::from([10, 0, 0, 1]));
    let mut lending = reader.lend(vec![Want::Height(3)], address);
    assert!(lending.as_mut().now_or_never().is_none(), "the thread that waits did it");
    // Another request of this thread is answered meanwhile, and only then the thread of reads goes on.
    let other = async { go.send(()).expect("it waits") };
    let here = tokio::runtime::Builder::new_current_thread().build().expect("a runtime");
    let (lent, ()) = here.block_on(join(lending, other));
    assert!(lent.try_again, "nothing is known yet");
}

/// A key in a file.
fn key(dir: &Path) -> SigningKey {
    let pem = "-----BEGIN PRIVATE KEY-----\n\
               MC4CAQAwBQYDK2VwBCIEIJ1hsZ3v/VpguoRK9JLsLMREScVpezJpGXA7rAMcrn9g\n\
               -----END PRIVATE KEY-----\n";
    let path = dir.join("key");
    File::create(&path).and_then(|mut file| file.write_all(pem.as_bytes())).expect("a file");
    SigningKey::read(&path).expect("it is a key")
}

/// A manifest of the whole chain has 26 MB, and a wrong key makes neve look every two seconds.
#[test]
fn signature_of_a_manifest_is_checked_once_and_a_refusal_said_once() {
    let dir = tempfile::tempdir().expect("a directory can be made");
    let key = key(dir.path());
    let trust = format!("--archive-trust={}", key.public());
    let (reader, _thread) = reader(dir.path(), &[trust]);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let runtime = runtime.expect("a runtime");
    let take = |manifest: &Manifest| {
        let (digest, manifest) = (digest_of(manifest), Arc::new(manifest.clone()));
        assert_eq!(runtime.block_on(reader.take(manifest, digest)), None);
        let sequence = reader.known.load().as_ref().map(|known| known.manifest.sequence);
        (sequence, lock(&reader.judged).checks)
    };
    let unsigned = manifest(1);
    let mut signed = unsigned.clone();
    key.sign(&mut signed).expect("it has a form");
    assert_eq!([&unsigned; 3].map(take), [(None, 1); 3]);
    assert!(!lock(&reader.judged).refuse(digest_of(&unsigned)), "it was said");
    assert_eq!([&signed; 3].map(take), [(Some(1), 2); 3]);
    assert_eq!(take(&unsigned), (Some(1), 3), "another one is checked anew");
    assert!(lock(&reader.judged).refuse(digest_of(&signed)), "another one is said");
}

/// A disk that takes long stands for itself as a FIFO without a reader.
#[test]
fn sequence_of_a_manifest_is_noted_on_a_thread_that_may_wait() {
    let dir = tempfile::tempdir().expect("a directory can be made");
    let (key, fifo) = (key(dir.path()), dir.path().join("archive-proofs"));
    let trust = format!("--archive-trust={}", key.public());
    let (reader, _thread) = reader(dir.path(), &[trust]);
    let chain = Chain { chain_id: 7, genesis: Digest([7; 32]), range: 32 };
    let mut manifest = Manifest { sequence: 1, ..Manifest::empty(chain) };
    key.sign(&mut manifest).expect("it has a form");
    let made = mknodat(CWD, &fifo, FileType::Fifo, Mode::RUSR | Mode::WUSR, 0);
    made.expect("a FIFO can be made");

    let (done, is_done) = mpsc::channel::<()>();
    let path = fifo.clone();
    let guard = thread::spawn(move || {
        let is_late = is_done.recv_timeout(Duration::from_mins(1)).is_err();
        is_late.then(|| File::open(path)) // lets it go on
    });
    let opening = async {
        sleep(Duration::from_millis(50)).await; // the thread that answers goes on
        File::options().read(true).write(true).open(&fifo)
    };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let manifest = Arc::new(manifest);
    let answering = reader.answered(&manifest, Digest([1; 32]));
    let (_, opened) = runtime.expect("a runtime").block_on(join(answering, opening));
    let _ = done.send(()); // the guard may be late
    assert!(guard.join().expect("no panic").is_none(), "it waited for the disk");
    opened.expect("it is ours");
}

/// A manifest of one segment, which no object has.
fn manifest(bytes: u64) -> Manifest {
    let digest = Digest([1; 32]);
    let index = IndexEntry { bytes: 1, digest };
    let segment = SegmentEntry { first: 0, bytes, digest, last: digest, parent: digest };
    let (pages, filter) = (index, index);
    let span = SpanEntry { first: 0, segments: 1, bytes: 1, digest, pages, filter, terms: None };
    let chain = Chain { chain_id: 7, genesis: Digest([7; 32]), range: 32 };
    let (segments, spans) = (vec![segment], vec![span]);
    Manifest { sequence: 1, segments, spans, ..Manifest::empty(chain) }
}

fn digest_of(manifest: &Manifest) -> Digest {
    Digest::of(&manifest.to_bytes().expect("it has a form"))
}

#[test]
fn descendant_of_the_trusted_manifest_is_taken_and_never_an_earlier_one() {
    let dir = tempfile::tempdir().expect("a directory can be made");
    let next = |manifest: &Manifest| manifest.following(digest_of(manifest));
    let mut line = vec![manifest(1)];
    let mut fork = vec![manifest(2)];
    for at in 0..5 {
        line.push(next(&line[at]));
        fork.push(next(&fork[at]));
    }
    let trusted = digest_of(&line[0]);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let runtime = runtime.expect("a runtime");
    let take = |reader: &Arc<ArchiveReader>, manifest: &Manifest| {
        let (digest, manifest) = (digest_of(manifest), Arc::new(manifest.clone()));
        runtime.block_on(reader.takes_descendant(&manifest, digest, trusted))
    };
    let trust = [format!("--archive-trust=sha256:{trusted}")];
    for (manifests, refused) in [(&line[0..4], 2), (&line[4..5], 3)] {
        let (reader, _thread) = reader(dir.path(), &trust);
        for manifest in manifests {
            assert_eq!(take(&reader, manifest), Ok(()), "{}", manifest.sequence);
        }
        let refused = take(&reader, &line[refused]).expect_err("an earlier one");
        assert!(refused.contains("is earlier than one that"), "{refused}");
        let why = take(&reader, &fork[5]).expect_err("it has another beginning");
        let expected = format!("does not descend from sha256:{trusted} of --archive-trust");
        assert!(why.contains(&expected), "{why}");
        let mut lost = line[5].clone();
        lost.descent.links[4] = Digest([9; 32]);
        let why = take(&reader, &lost).expect_err("a link that was changed");
        assert!(why.contains("manifest 6: its links do not lead"), "{why}");
    }
}

#[test]
fn segment_beyond_the_bytes_of_a_proof_is_not_read() {
    let dir = tempfile::tempdir().expect("a directory can be made");
    let (reader, thread) = reader(dir.path(), &[]);
    let opened = |bytes| {
        let manifest = Arc::new(manifest(bytes));
        thread.runtime().block_on(reader.opened(&manifest, manifest.segments[0]))
    };
    let max = NeighborProof::default().bytes_max;
    let absent = opened(max).err().expect("no object has it");
    assert_eq!(absent.to_string(), "absent", "it is read");
    let large = opened(max + 1).err().expect("it is not read");
    let why = "segment of 25165825 bytes, over --archive-proof-bytes-max 25165824";
    assert_eq!((large.to_string().as_str(), large.outcome().0), (why, "rejected"));
}

/// Each look-up waits for a turn, and the runtime has 128 threads for all clients.
#[test]
fn unknown_hashes_of_a_request_leave_threads_to_reads_of_others() {
    let dir = tempfile::tempdir().expect("a directory can be made");
    let (reader, thread) = reader(dir.path(), &[]);
    let chain = Chain { chain_id: 7, genesis: Digest([7; 32]), range: 32 };
    let manifest = Arc::new(Manifest::empty(chain));
    let known = Arc::new(Known { manifest, heights: 0..=99, anchored: None });
    let hash = |number: u8, last: u8| {
        let mut hash = [number; 32];
        hash[31] = last;
        Want::Hash(hash)
    };
    let wants = |number| (0..200).map(|last| hash(number, last)).collect();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let turns = AllTurns::take();
    let done = runtime.expect("a runtime").block_on(async {
        let requests = (1..4).map(|last| {
            let address = ClientAddress::from(IpAddr::from([10, 0, 0, last]));
            reader.borrow_from(&known, 100, wants(last), address)
        });
        let other = async {
            sleep(Duration::from_millis(100)).await; // the hashes have what threads they take
            timeout(Duration::from_secs(20), reader.files.pages.off(|| 7)).await
        };
        tokio::select! {
            _ = join_all(requests) => panic!("without a turn"),
            done = other => done,
        }
    });
    drop(turns);
    assert_eq!(done.ok(), Some(Ok(7)), "no thread is left");
    let address = ClientAddress::from(IpAddr::from([10, 0, 0, 1]));
    let lent = thread.runtime().block_on(reader.borrow_from(&known, 100, wants(1), address));
    assert!(lent.places.is_empty() && !lent.try_again, "no span has them");
}
