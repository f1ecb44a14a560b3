//! Retention, on the disk and while a client still reads.

use std::fs;
use std::io::{BufReader, Read, Write};
use std::net::TcpStream;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use neve_devnet::{Config, DevnetThread, Profile, Signatures};

use crate::support::client::read;
use crate::support::corpus::MAIN;
use crate::support::neve::{Neve, fresh_dir};
use crate::support::recorded::Recorded;

/// Records and hash table, and before them a page and the index.
const SEGMENT: u64 = (1 << 20) + 4096 + 64 * 4096;
const BOUND: u64 = 8 << 20;
const BOUND_ARGUMENTS: [&str; 6] =
    ["--start", "0", "--retain-bytes", "8MiB", "--segment-bytes", "1MiB"];

/// Blocks of mainnet's size, about 100 kB each.
fn chain(head: u64) -> DevnetThread {
    let mut config = Config::test().with_head(head);
    config.chain.profile = Profile::c_chain();
    config.chain.signatures = Signatures::Filler;
    DevnetThread::start(config).expect("loopback has free ports")
}

/// Returns the bytes of the directory on the disk.
fn disk_use(dir: &Path) -> u64 {
    let entries = fs::read_dir(dir).into_iter().flatten().flatten();
    // A file may go while this looks.
    entries.filter_map(|entry| entry.metadata().ok()).map(|file| file.blocks() * 512).sum()
}

const ARGUMENTS: [&str; 4] = ["--recover-senders", "never", "--fsync-interval", "10ms"];

#[test]
fn retention_by_bytes_bounds_the_disk() {
    let (devnet, dir) = (chain(600), fresh_dir());
    let url = devnet.base_url();
    let arguments = [&["--upstream", &url], &BOUND_ARGUMENTS[..], &ARGUMENTS].concat();
    let neve = Neve::start(dir.path(), &arguments);
    let store = dir.path().join("store");
    let mut largest = 0;
    neve.wait("the head", |health| {
        largest = largest.max(disk_use(&store));
        (health["blocks"]["head"] == 600).then_some(())
    });
    assert!((BOUND / 2..=BOUND + SEGMENT).contains(&largest), "{largest} bytes of disk");
    let health = neve.health();
    let first = health["blocks"]["min_height"].as_u64().unwrap();
    assert!(first > 400, "{first}");
    assert!(health["storage"]["bytes"].as_u64().unwrap() <= BOUND + SEGMENT);
    assert!(neve.count("neve_blocks_evicted_total") >= 400);
}

/// An answer under way is finished from files that are already unlinked.
#[test]
fn slow_reader_gets_all_of_an_evicted_response() {
    let (devnet, dir) = (chain(60), fresh_dir());
    let url = devnet.base_url();
    let arguments = [&["--upstream", &url], &BOUND_ARGUMENTS[..], &ARGUMENTS].concat();
    let neve = Neve::start(dir.path(), &arguments);
    neve.wait_for_head(60);
    let first = neve.health()["blocks"]["min_height"].as_u64().unwrap();
    // All receipts that there are, several times: more than any socket buffers.
    let receipts = |height| {
        format!(
            r#"{{"jsonrpc":"2.0","id":{height},"method":"eth_getBlockReceipts","params":["{height:#x}"]}}"#
        )
    };
    let calls: Vec<_> = (0..8).flat_map(|_| (first..=60).map(receipts)).collect();
    let body = format!("[{}]", calls.join(","));
    let expected = neve.client().post(&body);
    assert!(expected.status == 200 && expected.body.len() > 10 << 20, "{}", expected.body.len());
    let mut stream = TcpStream::connect(neve.address).unwrap();
    let head = format!(
        "POST / HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: {}\r\n\r\n",
        body.len()
    );
    stream.write_all(head.as_bytes()).unwrap();
    stream.write_all(body.as_bytes()).unwrap();
    let mut start = [0; 16];
    stream.read_exact(&mut start).unwrap(); // it has begun
    devnet.advance(200);
    neve.wait("the eviction", |health| {
        (health["blocks"]["min_height"].as_u64()? > 60).then_some(())
    });
    let answer = read(&mut BufReader::new(start.chain(stream)), false).unwrap();
    assert!(answer.body == expected.body, "{} bytes", answer.body.len());
}

#[test]
fn retention_by_blocks_keeps_the_newest() {
    let node = Recorded::start(MAIN);
    let dir = fresh_dir();
    let url = node.url();
    let arguments =
        ["--upstream", &url, "--start", "0", "--segment-blocks", "8", "--retain-blocks", "100"];
    let neve = Neve::start(dir.path(), &arguments);
    neve.wait_for_head(MAIN.head);
    let first = neve.wait("the eviction", |health| {
        health["blocks"]["min_height"].as_u64().filter(|first| *first > 200)
    });
    assert!((MAIN.head - 100 - 8..=MAIN.head - 99).contains(&first), "{first}");
    assert_eq!(neve.client().call("eth_getBlockByNumber", "[\"0x10\",false]").status, 421);
    let params = format!("[\"{}\",false]", node.height(16).hash);
    assert_eq!(neve.client().call("eth_getBlockByHash", &params).status, 421);
}

#[test]
fn retention_by_age_goes_by_the_blocks_own_time() {
    let node = Recorded::start(MAIN);
    let dir = fresh_dir();
    // The recorded blocks are older than an hour, whenever this runs: all but the newest go.
    let arguments =
        ["--upstream", &node.url(), "--start", "0", "--segment-blocks", "8", "--retain-age", "1s"];
    let neve = Neve::start(dir.path(), &arguments);
    neve.wait_for_head(MAIN.head);
    neve.wait("the eviction", |health| {
        (health["blocks"]["min_height"].as_u64()? > 330).then_some(())
    });
}

/// Each file of the store is a descriptor, and few are allowed where nothing was set up.
#[test]
fn a_store_of_more_files_than_descriptors_are_allowed_at_first_is_served() {
    many_files_are_served_after("ulimit -Sn 64");
}

/// Nor do the files take those of the connections where there are no more.
#[test]
fn a_store_of_more_files_than_descriptors_are_allowed_at_all_is_served() {
    many_files_are_served_after("ulimit -n 96");
}

fn many_files_are_served_after(limit: &str) {
    let devnet = DevnetThread::start(Config::test().with_head(200)).expect("free ports");
    let (dir, url) = (fresh_dir(), devnet.base_url());
    let starter = ["sh", "-c", &format!("{limit} && exec \"$0\" \"$@\"")];
    let arguments = ["--upstream", &url, "--start", "0", "--segment-blocks", "2"];
    for _ in 0..2 {
        let neve = Neve::start_by(&starter, dir.path(), &arguments);
        neve.wait_for_head(200);
        let files = fs::read_dir(dir.path().join("store")).expect("it is there").count();
        assert!(files > 100, "{files} files");
        let mut clients: Vec<_> = (0..10).map(|_| neve.client()).collect();
        for (client, height) in clients.iter_mut().zip([0, 77, 200].into_iter().cycle()) {
            let number = format!("{height:#x}");
            let block = client.result("eth_getBlockByNumber", &format!("[\"{number}\",false]"));
            assert_eq!(block["number"].as_str(), Some(number.as_str()));
        }
        neve.stop();
    }
}

/// Blocks of a catch-up come unpacked, many times as large as the history that they would drive out.
#[test]
#[ignore = "takes many seconds of a processor: ./check"]
fn catch_up_beyond_the_bound_is_packed_and_evicts_nothing() {
    let (devnet, dir) = (chain(400), fresh_dir());
    let url = devnet.base_url();
    let mut at = 400;
    let sizes = ["--segment-blocks", "32", "--segment-bytes", "3MiB", "--unpacked-bytes", "1MiB"];
    let upstream = ["--upstream", &url, "--start", "0", "--retain-bytes", "16MiB"];
    let queue = ["--ingest-bytes-max", "4MiB"];
    // Beside programs that use up the CPUs, a packer of the lowest priority would hold it up.
    let nice = ["--background-nice", "19"];
    let arguments = [&upstream[..], &sizes, &queue, &nice, &ARGUMENTS].concat();
    let store = dir.path().join("store");
    // The second time neve catches up with a store that is packed.
    for head in [400, 800] {
        devnet.advance(head - at);
        at = head;
        let neve = Neve::start(dir.path(), &arguments);
        let mut largest = 0;
        neve.wait("the head", |health| {
            largest = largest.max(disk_use(&store));
            (health["blocks"]["head"] == head).then_some(())
        });
        assert_eq!(neve.count("neve_blocks_evicted_total"), 0);
        assert_eq!(neve.health()["blocks"]["min_height"], 0);
        // A segment, the queue, and a range that is packed until its name is durable.
        assert!(largest < (16 + 4 + 4 + 4) << 20, "{largest} bytes of disk");
        neve.stop();
    }
}
