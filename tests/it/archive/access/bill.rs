//! Random heights and hashes: the requests that the store bills are bounded.

use std::thread;
use std::time::Instant;

use crate::archive::bucket::Bucket;
use crate::archive::object_server::ObjectServer;
use crate::support::neve::{Neve, fresh_dir};
use crate::support::served::serves;

/// Reads a second. One address has half of them.
const RATE: &str = "8";
const ADDRESS_RATE: usize = 4;
const CLIENTS: u64 = 4;
const REQUESTS: u64 = 250;
/// Reads that neve does by itself meanwhile: probes, the manifest, and what is under way at both ends.
const OTHERS: usize = 8;

/// Requests heights and hashes, of which each second one is unknown. Returns the misses.
fn misses_of(seed: u64, bucket: &Bucket, replica: &Neve) -> u64 {
    let mut random = fastrand::Rng::with_seed(seed);
    let (mut client, mut misses, archived) = (replica.client(), 0, bucket.first());
    for number in 0..REQUESTS {
        let height = random.u64(0..archived);
        let block = bucket.node.block(height).expect("it is there");
        let (method, params) = match number % 4 {
            0 => ("eth_getBlockByNumber", format!("[\"{height:#x}\",false]")),
            1 => ("eth_getBlockByHash", format!("[\"{:#x}\",false]", block.hash())),
            2 => {
                let unknown = random.u64(archived + 1000..1 << 40);
                ("eth_getBlockByNumber", format!("[\"{unknown:#x}\",false]"))
            }
            _ => {
                let hash = format!("{:032x}{:032x}", random.u128(..), random.u128(..));
                ("eth_getTransactionByHash", format!("[\"0x{hash}\"]"))
            }
        };
        let answer = client.call(method, &params);
        if answer.status == 200 && number % 4 < 2 {
            let theirs = bucket.source.client().call(method, &params).text();
            assert_eq!(answer.text(), theirs, "{method} {params}");
        }
        misses += u64::from(answer.status == 421);
    }
    misses
}

#[test]
fn random_heights_and_hashes_cost_no_more_reads_than_the_rate() {
    let bucket = Bucket::of_ranges(24);
    let server = ObjectServer::start(bucket.dir.path());
    let dir = fresh_dir();
    let replica = bucket.replica_of(dir.path(), &server, &["--archive-reads-per-second", RATE]);
    let archived = bucket.first();
    let (gets, begun) = (server.gets(), Instant::now());
    let misses: u64 = thread::scope(|threads| {
        let asking = [0, 1, 2, 3].map(|seed| {
            let (bucket, replica) = (&bucket, &replica);
            threads.spawn(move || misses_of(seed, bucket, replica))
        });
        asking.map(|asking| asking.join().expect("no panic")).iter().sum()
    });
    let (gets, seconds) = (server.gets() - gets, begun.elapsed().as_secs() as usize + 1);
    // What is left of the second before, and of the last one.
    let most = ADDRESS_RATE * (seconds + 1) + OTHERS;
    println!("{gets} reads in {seconds} s for {} requests, {misses} misses", CLIENTS * REQUESTS);
    assert!(gets <= most, "{gets} reads in {seconds} s, at most {most}");
    assert!(misses >= CLIENTS * REQUESTS / 2, "{misses}: each second one names nothing");
    assert!(replica.count("neve_archive_refused_reads_total{reason=\"share\"}") > 0);
    assert_eq!(replica.health()["archive"]["breaker"], "closed");
    serves(&replica, &bucket.node, archived..archived + 28);
    replica.stop_in_time();
}
