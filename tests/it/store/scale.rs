//! Many heights in many segments: opening is quick, and memory does not grow with what is stored,
//! served or followed.

use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use neve_devnet::{Config, DevnetThread, Helicon, Profile, Signatures};

use crate::support::neve::{LIMIT, Neve, fresh_dir};

const HEIGHTS: u64 = 16_400;
const SEGMENT_BLOCKS: u64 = 16;
const SEGMENTS: u64 = HEIGHTS.div_ceil(SEGMENT_BLOCKS);
/// Time of processors, which other programs do not change.
const OPEN_MAX: Duration = Duration::from_millis(200);
/// Served heights and bytes after which growth of memory would show.
const HEAD_MIN: u64 = 200;
const SERVED_MIN: u64 = 100 << 20;
const MEMORY_MAX: u64 = 64 << 20;

fn memory(neve: &Neve) -> u64 {
    neve.health()["memory"]["anonymous_bytes"].as_u64().expect("/health has it")
}

/// Processor time of the process until the line that says where it listens.
fn opening(dir: &Path, arguments: &[&str]) -> (Neve, Duration) {
    let neve = Neve::start(dir, arguments);
    let took = neve.processor_time();
    (neve, took)
}

#[test]
#[ignore = "takes many seconds of a processor: ./check"]
fn a_thousand_segments_open_at_once_and_take_no_memory() {
    let mut config = Config::test().with_head(HEIGHTS - 1).with_helicon(Helicon::FromGenesis);
    config.chain.profile = Profile::empty();
    let devnet = DevnetThread::start(config).expect("loopback has free ports");
    let (dir, url, blocks) = (fresh_dir(), devnet.base_url(), SEGMENT_BLOCKS.to_string());
    let segments = ["--segment-blocks", &blocks, "--segment-bytes", "1MiB"];
    let arguments = [&["--upstream", &url, "--start", "0"], &segments[..]].concat();
    let neve = Neve::start(dir.path(), &arguments);
    neve.wait_for_head(HEIGHTS - 1);
    assert_eq!(neve.health()["storage"]["segments"], SEGMENTS);
    neve.kill();
    // The best of five: it also begins to follow meanwhile.
    let times = (0..5).map(|_| {
        let (neve, took) = opening(dir.path(), &arguments);
        neve.kill();
        took
    });
    let best = times.min().expect("there are five");
    assert!(best < OPEN_MAX, "opening takes {best:?}");
    let (neve, _) = opening(dir.path(), &arguments);
    let mut client = neve.client();
    for height in [0, SEGMENT_BLOCKS - 1, SEGMENT_BLOCKS, 10_000, HEIGHTS - 1] {
        let hash = devnet.block(height).expect("the chain has it").hash();
        let block = client.result("eth_getBlockByHash", &format!("[\"{hash}\",false]"));
        assert_eq!(block["number"], format!("{height:#x}"));
    }
    assert!(memory(&neve) < MEMORY_MAX, "{} bytes", memory(&neve));
    eprintln!("opened in {best:?}; {} bytes of memory", memory(&neve));
}

/// Clients ask for large batches of everything while blocks of mainnet's size come in.
#[test]
#[ignore = "takes many seconds of a processor: ./check"]
fn memory_is_bounded_while_it_serves_and_follows() {
    let mut config = Config::test().with_head(100).with_helicon(Helicon::FromGenesis);
    config.chain.profile = Profile::c_chain();
    config.chain.signatures = Signatures::Filler;
    let devnet = DevnetThread::start(Config { rate: 50.0, ..config }).expect("free ports");
    let (dir, url) = (fresh_dir(), devnet.base_url());
    let arguments = ["--upstream", &url, "--start", "0", "--retain-bytes", "64MiB"];
    let neve = Neve::start(dir.path(), &[&arguments[..], &["--recover-senders", "never"]].concat());
    neve.wait_for_head(100);
    let (end, served) = (AtomicBool::new(false), AtomicU64::new(0));
    let largest = thread::scope(|scope| {
        for _ in 0..8 {
            scope.spawn(|| ask(&neve, &end, &served));
        }
        let (start, mut largest) = (Instant::now(), 0);
        let seen = || {
            let head = neve.health()["blocks"]["head"].as_u64();
            head > Some(HEAD_MIN) && served.load(Ordering::Relaxed) > SERVED_MIN
        };
        let is_over = |time| time > Duration::from_secs(8) && seen() || time > 3 * LIMIT;
        while !is_over(start.elapsed()) {
            largest = largest.max(memory(&neve));
            thread::park_timeout(Duration::from_millis(50));
        }
        end.store(true, Ordering::Relaxed);
        largest
    });
    let (head, served) = (neve.health()["blocks"]["head"].clone(), served.into_inner());
    eprintln!("{largest} bytes of memory at most; head {head}, {served} bytes served");
    assert!(largest < MEMORY_MAX, "{largest} bytes of memory");
    let much = head.as_u64() > Some(HEAD_MIN) && served > SERVED_MIN;
    assert!(much, "head {head}, {served} bytes served");
}

/// Asks for receipts of a hundred heights at once until `end`.
fn ask(neve: &Neve, end: &AtomicBool, served: &AtomicU64) {
    let mut client = neve.client();
    while !end.load(Ordering::Relaxed) {
        let head = neve.health()["blocks"]["head"].as_u64().expect("there is one");
        let call = |height: u64| {
            format!(
                r#"{{"jsonrpc":"2.0","id":1,"method":"eth_getBlockReceipts","params":["{height:#x}"]}}"#
            )
        };
        let calls: Vec<_> = (head - 99..=head).map(call).collect();
        let answer = client.post(&format!("[{}]", calls.join(",")));
        assert_eq!(answer.status, 200);
        served.fetch_add(answer.body.len() as u64, Ordering::Relaxed);
    }
}
