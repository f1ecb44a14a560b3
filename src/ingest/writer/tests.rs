use std::io;
use std::path::Path;
use std::sync::atomic::AtomicBool;

use neve_chain::{AdmittedKeys, Checks};
use neve_devnet::{Block, Chain, ChainConfig, Config, Part};
use neve_record::assemble::assemble;
use neve_record::packed::Codec;
use neve_store::disk::{Disk, Op, RealDisk};
use neve_store::{Hash, Opened, open_on, open_on_with};
use tempfile::TempDir;
use tokio::time::sleep;

use super::*;
use crate::ingest::queue::QueuedBytes;
use crate::shared::IngestReservation;

const IDENTITY: Identity = Identity { chain_id: 43_112, genesis: Hash([9; 32]) };
/// Time that a write takes, in which a sync ends.
const WRITE: Duration = Duration::from_micros(200);

/// A disk that is full for segments when the test says so, until one is removed, and whose syncs take no time.
struct TestDisk {
    real: RealDisk,
    is_full: AtomicBool,
    syncs: AtomicU64,
    /// Syncs before the last write.
    syncs_between: AtomicU64,
    /// Syncs before the last file was made.
    syncs_before_file: AtomicU64,
}

impl Disk for TestDisk {
    fn dir(&self) -> &Path {
        self.real.dir()
    }

    #[allow(clippy::disallowed_methods, reason = "a slow disk, and the writer has its own thread")]
    fn apply(&self, op: Op<'_>) -> io::Result<()> {
        match op {
            Op::Allocate { name, .. }
                if self.is_full.load(Ordering::Relaxed) && !name.contains(".pack") =>
            {
                return Err(io::ErrorKind::StorageFull.into());
            }
            Op::Allocate { .. } => {
                self.syncs_before_file.store(self.syncs.load(Ordering::Relaxed), Ordering::Relaxed);
            }
            Op::Remove { name } if name.contains(".seg") => {
                self.is_full.store(false, Ordering::Relaxed);
            }
            Op::Sync { .. } => {
                self.syncs.fetch_add(1, Ordering::Relaxed);
                return Ok(());
            }
            Op::Write { .. } => {
                self.syncs_between.store(self.syncs.load(Ordering::Relaxed), Ordering::Relaxed);
                thread::sleep(WRITE);
            }
            _ => {}
        }
        self.real.apply(op)
    }

    fn free_bytes(&self) -> io::Result<u64> {
        self.real.free_bytes()
    }
}

/// A writer of an empty store with segments of so many heights.
fn setup(fsync_interval: Duration, segment_blocks: u32) -> (Arc<TestDisk>, Setup, TempDir) {
    setup_on(fsync_interval, segment_blocks, open_on)
}

fn setup_on(
    fsync_interval: Duration,
    segment_blocks: u32,
    open: impl Fn(Arc<dyn Disk>, Options) -> Result<Opened, Error>,
) -> (Arc<TestDisk>, Setup, TempDir) {
    let dir = tempfile::tempdir().unwrap();
    let disk = Arc::new(TestDisk {
        real: RealDisk::new(dir.path()),
        is_full: AtomicBool::new(false),
        syncs: AtomicU64::new(0),
        syncs_between: AtomicU64::new(0),
        syncs_before_file: AtomicU64::new(0),
    });
    let options = Options {
        segment_bytes: 1 << 20,
        segment_blocks,
        disk_reserve_bytes: 0,
        ..Options::default()
    };
    let mut opened = open(Arc::clone(&disk) as Arc<dyn Disk>, options).unwrap();
    opened.writer.bind(IDENTITY, 0).unwrap();
    let setup = Setup {
        writer: opened.writer,
        serving: Arc::new(Serving::new(opened.reader)),
        status: Arc::default(),
        retention: Retention::default(),
        unpushed_bytes_max: None,
        fsync_interval,
        queued: Arc::default(),
        unpacked_bytes: None,
        nice: 19,
        options,
        busy: Arc::default(),
    };
    (disk, setup, dir)
}

fn record(height: u8) -> Record {
    let [hash, parent] = [height, height.wrapping_sub(1)].map(|of| Hash([of; 32]));
    Record { height: height.into(), hash, parent, ..Record::default() }
}

fn append(record: Record, queued: &Arc<AtomicU64>) -> QueuedWork {
    let bytes = QueuedBytes::new(queued, record.encoded_len());
    QueuedWork::Append(Box::new(record), Rules::BeforeHelicon, IngestReservation::Forced, bytes)
}

async fn head(ingest: &Ingest) -> Option<u64> {
    ingest.barrier().await.expect("the writer goes on").map(|(height, _)| height)
}

#[tokio::test]
async fn change_of_rules_waits_for_space() {
    let (disk, setup, _dir) = setup(Duration::from_mins(1), 4096);
    let (serving, status) = (Arc::clone(&setup.serving), Arc::clone(&setup.status));
    let (ingest, _) = start(setup).unwrap();
    let append = |height, rules| ingest.append(record(height), rules, IngestReservation::Forced);
    append(0, Rules::BeforeHelicon).await.unwrap();
    assert_eq!(head(&ingest).await, Some(0));
    disk.is_full.store(true, Ordering::Relaxed);
    append(1, Rules::Helicon).await.unwrap();
    let begun = Instant::now();
    while status.words().store_error.is_none() {
        assert!(begun.elapsed() < Duration::from_mins(1), "nothing is refused");
        sleep(Duration::from_millis(10)).await;
    }
    assert_eq!((serving.head(), serving.rules()), (Some(0), Rules::BeforeHelicon));
    disk.is_full.store(false, Ordering::Relaxed);
    assert_eq!(head(&ingest).await, Some(1));
    assert_eq!((serving.rules(), status.words().store_error), (Rules::Helicon, None));
}

#[tokio::test]
async fn records_before_one_that_waits_for_space_are_synced_meanwhile() {
    let (disk, setup, _dir) = setup(Duration::from_secs(2), 4096);
    let status = Arc::clone(&setup.status);
    let (ingest, _) = start(setup).unwrap();
    let append = |height, rules| ingest.append(record(height), rules, IngestReservation::Forced);
    append(0, Rules::BeforeHelicon).await.unwrap();
    assert_eq!(head(&ingest).await, Some(0));
    disk.is_full.store(true, Ordering::Relaxed);
    append(1, Rules::Helicon).await.unwrap(); // no space for the rules, before any seal
    let limit = Instant::now() + Duration::from_mins(1);
    while status.words().store_error.is_none() {
        assert!(Instant::now() < limit, "nothing is refused");
        sleep(Duration::from_millis(10)).await;
    }
    let syncs = disk.syncs.load(Ordering::Relaxed);
    while disk.syncs.load(Ordering::Relaxed) == syncs {
        assert!(Instant::now() < limit, "no sync");
        sleep(Duration::from_millis(10)).await;
    }
    assert!(status.words().store_error.is_some(), "the disk has space again");
    disk.is_full.store(false, Ordering::Relaxed);
    assert_eq!(head(&ingest).await, Some(1));
}

/// Without that, the first sync would never end for the writer, and no other would begin.
#[tokio::test]
async fn queue_that_is_never_empty_holds_up_no_sync() {
    let (disk, setup, _dir) = setup(Duration::ZERO, 4096);
    let (queue, incoming) = mpsc::channel(200);
    for height in 0..200 {
        queue.send(append(record(height), &setup.queued)).await.unwrap();
    }
    drop(queue);
    Loop::new(setup).run(incoming).await;
    let syncs = disk.syncs_between.load(Ordering::Relaxed);
    assert!(syncs > 2, "{syncs}");
}

/// Segments of one height, of which another program removed one, and the first height after them.
fn losing(setup: &mut Setup, dir: &TempDir) -> u8 {
    for height in 0..3 {
        setup.writer.append(&record(height)).unwrap();
    }
    let mut files = std::fs::read_dir(dir.path()).unwrap().map(|file| file.unwrap().path());
    let sealed = |file: &std::path::PathBuf| file.to_string_lossy().contains("0000.seg");
    std::fs::remove_file(files.find(sealed).expect("the first segment")).unwrap();
    3
}

#[tokio::test]
async fn lost_file_is_written_anew_although_each_record_begins_a_segment() {
    let (_disk, mut setup, dir) = setup(Duration::from_mins(1), 1);
    let next = losing(&mut setup, &dir);
    let mut writing = Loop::new(setup);
    writing.looked_at = Instant::now().checked_sub(LOOK_INTERVAL).unwrap() + WAIT_PAUSE;
    writing.setup.writer.append(&record(next)).unwrap();
    writing.upkeep().unwrap();
    sleep(2 * WAIT_PAUSE).await;
    writing.upkeep().unwrap();
    assert_eq!(writing.setup.writer.restore_lost().unwrap(), None, "still lost");
}

/// neve may be ended while it writes thousands of them.
#[tokio::test]
async fn records_are_synced_before_lost_files_are_written_anew() {
    let (disk, mut setup, dir) = setup(Duration::from_mins(1), 1);
    losing(&mut setup, &dir);
    let syncs = disk.syncs.load(Ordering::Relaxed);
    let (queue, incoming) = mpsc::channel(1);
    drop(queue);
    Loop::new(setup).run(incoming).await;
    let before = disk.syncs_before_file.load(Ordering::Relaxed);
    assert!(before > syncs, "{syncs} syncs before the stop, {before} before the file");
}

#[tokio::test]
async fn records_after_one_that_a_full_disk_dropped_are_dropped_too() {
    let (disk, mut setup, _dir) = setup(Duration::from_mins(1), 1);
    let (status, queued) = (Arc::clone(&setup.status), Arc::clone(&setup.queued));
    setup.writer.append(&record(0)).unwrap();
    disk.is_full.store(true, Ordering::Relaxed);
    let (queue, incoming) = mpsc::channel(2);
    for height in 1..3 {
        queue.send(append(record(height), &queued)).await.unwrap();
    }
    drop(queue);
    let syncs = disk.syncs.load(Ordering::Relaxed);
    Loop::new(setup).run(incoming).await;
    let words = status.words();
    assert!(!matches!(words.phase, Phase::Stopped), "{:?}", words.store_error);
    assert!(disk.syncs.load(Ordering::Relaxed) > syncs, "no last sync");
    assert_eq!(queued.load(Ordering::Relaxed), 0);
}

/// Records of a made chain from height 0 on.
fn chain(config: ChainConfig, heights: usize) -> Vec<Record> {
    let checks =
        Checks { chain_id: config.chain_id, senders: false, admitted: AdmittedKeys::default() };
    let mut chain = Chain::new(config);
    let record = |block: Block| {
        let text = block.answer(Part::Full, Rules::BeforeHelicon);
        assemble(&text, block.receipts(), &checks).expect("the block is right").record
    };
    (0..heights).map(|_| record(chain.next_block())).collect()
}

/// Eviction has nothing to take, and packing would give most of the disk back.
#[tokio::test]
async fn full_disk_gets_space_by_packing_also_while_neve_is_behind() {
    let open = |disk, options| open_on_with(disk, options, Arc::new(Codec::default()));
    let (disk, mut setup, _dir) = setup_on(Duration::from_mins(1), 4, open);
    setup.unpacked_bytes = Some(0);
    let mut records = chain(Config::test().chain, 13).into_iter();
    records.by_ref().take(12).for_each(|record| setup.writer.append(&record).unwrap());
    setup.status.set_phase(Phase::CatchingUp);
    setup.status.set_verified(Some(11));
    disk.is_full.store(true, Ordering::Relaxed);
    let (ingest, _) = start(setup).unwrap();
    let (record, room) = (records.next().unwrap(), IngestReservation::Forced);
    ingest.append(record, Rules::BeforeHelicon, room).await.unwrap();
    let limit = Duration::from_mins(1);
    let head = tokio::time::timeout(limit, head(&ingest)).await;
    assert_eq!(head, Ok(Some(12)), "the disk is full for good");
}
