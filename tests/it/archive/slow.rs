//! A store that is slow, and reads beyond the budget.

use std::fs;
use std::thread;
use std::time::Instant;

use neve_devnet::Helicon;

use super::bucket::{Bucket, FIRST, LAST, reads};
use super::object_server::{DELAY, Mode, ObjectServer};
use crate::support::client::Client;
use crate::support::neve::{LIMIT, Neve, fresh_dir};
use crate::support::node::wait::{Miss, wait_until};
use crate::support::served::serves;
use crate::support::ws::Ws;

fn status(neve: &Neve, height: u64) -> u16 {
    let params = format!("[\"{height:#x}\",true]");
    neve.client().call("eth_getBlockByNumber", &params).status
}

#[test]
fn second_read_answers_when_the_first_one_stalls() {
    let bucket = Bucket::of_ranges(24);
    let server = ObjectServer::start(bucket.dir.path());
    let dir = fresh_dir();
    let replica = bucket.replica_of(dir.path(), &server, &[]);
    // Times of reads, of which 95 % are known then.
    (0..18).for_each(|segment| assert_eq!(status(&replica, segment * 32), 200));
    let counts = || {
        let hedges = ["neve_archive_hedges_total", "neve_archive_hedges_won_total"];
        (reads(&replica, "segment"), hedges.map(|series| replica.count(series)), server.gets())
    };
    let (before, [hedges, won], gets) = counts();
    server.set(Mode::Stalls);
    (18..22).for_each(|segment| assert_eq!(status(&replica, segment * 32), 200));
    let (after, [hedges_after, won_after], gets_after) = counts();
    let second = hedges_after - hedges;
    assert!(second >= 4, "{second}");
    assert_eq!((won_after - won, after - before), (second, 2 * second), "one more for each");
    assert!(gets_after - gets >= 2 * second as usize);
    serves(&replica, &bucket.node, bucket.first()..bucket.first() + 28);
    replica.stop_in_time();
}

/// Median times of a height and of a bare read of as many bytes, with a distant store. The times are shown only, as
/// they depend on the machine: what holds on each is that one read comes after the other never.
#[test]
fn height_of_a_distant_store_waits_for_one_read() {
    let bucket = Bucket::of_ranges(24);
    let server = ObjectServer::start(bucket.dir.path());
    let dir = fresh_dir();
    let replica = bucket.replica_of(dir.path(), &server, &[]);
    assert_eq!(status(&replica, 0), 200, "the page lists");
    server.set(Mode::Delays);
    let (mut client, mut bare) =
        (replica.client(), Client::new(([127, 0, 0, 1], server.port()).into()));
    let (mut heights, mut reads_alone) = (Vec::new(), Vec::new());
    for (segment, path) in (1..22).zip(bucket.objects("segment").iter().skip(1)) {
        let gets = server.gets();
        let begun = Instant::now();
        let params = format!("[\"{:#x}\",true]", segment * 32);
        assert_eq!(client.call("eth_getBlockByNumber", &params).status, 200);
        heights.push(begun.elapsed());
        assert!(server.gets() - gets <= 2, "one, or a second one for it");
        let name = path.strip_prefix(bucket.dir.path()).expect("it is in there");
        let begun = Instant::now();
        assert_eq!(bare.get(&format!("/bucket/{}", name.display())).status, 200);
        reads_alone.push(begun.elapsed());
    }
    let [height, read] = [heights, reads_alone].map(|mut times| {
        times.sort_unstable();
        times[times.len() / 2]
    });
    assert!(height >= DELAY && read >= DELAY, "{height:?}, {read:?}");
    println!("median of a height {height:?}, of a read alone {read:?}");
    replica.stop_in_time();
}

/// Holds up more requests than may wait for the archive, beside one serving thread.
#[test]
fn heights_of_the_tail_are_answered_while_others_wait_for_the_store() {
    const WAITING: u64 = 80;
    let bucket = Bucket::of_ranges(8);
    let server = ObjectServer::start(bucket.dir.path());
    let dir = fresh_dir();
    let replica = bucket.replica_of(dir.path(), &server, &["--threads", "1"]);
    let (requests, first) = ("neve_http_requests_total", bucket.first());
    server.set(Mode::Holds);
    let arrived = replica.count(requests) + WAITING;
    thread::scope(|threads| {
        let cold: Vec<_> = (0..WAITING)
            .map(|number| {
                let params = format!("[\"{:#x}\",true]", number % first);
                let replica = &replica;
                threads.spawn(move || replica.client().call("eth_getBlockByNumber", &params))
            })
            .collect();
        replica.wait("all requests", |_| (replica.count(requests) >= arrived).then_some(()));
        serves(&replica, &bucket.node, first..first + 28);
        server.set(Mode::Serves);
        for cold in cold {
            let answer = cold.join().expect("no panic");
            let again = (answer.status, answer.header("retry-after"));
            assert!(again.0 == 200 || again == (421, Some("1")), "{again:?}");
        }
    });
    serves(&replica, &bucket.node, 0..4);
    replica.stop_in_time();
}

#[test]
fn reads_beyond_the_share_of_an_address_are_refused_for_a_while() {
    let bucket = Bucket::of_ranges(8);
    let dir = fresh_dir();
    let replica = bucket.replica(dir.path(), &["--archive-reads-per-second", "2"]);
    let call = |segment: u64| {
        let height = segment * 32;
        format!(
            r#"{{"jsonrpc":"2.0","id":{height},"method":"eth_getBlockByNumber","params":["{height:#x}",false]}}"#
        )
    };
    let batch = format!("[{}]", (0..7).map(call).collect::<Vec<_>>().join(","));
    let refused = "neve_archive_refused_reads_total{reason=\"share\"}";
    let answer = replica.client().post(&batch);
    assert_eq!((answer.status, answer.header("retry-after")), (421, Some("1")));
    assert!(replica.metric(refused) > Some(0.0));
    assert_eq!(replica.health()["archive"]["breaker"], "closed");
    serves(&replica, &bucket.node, bucket.first()..bucket.first() + 28);
    let all = wait_until("an answer", LIMIT, || match replica.client().post(&batch) {
        answer if answer.status == 200 => Ok(answer.text()),
        answer => Err(Miss::NotYet(answer.status.to_string())),
    });
    assert_eq!(all.expect("one after the other"), bucket.source.client().post(&batch).text());
    replica.stop_in_time();
}

#[test]
fn message_that_waits_for_the_archive_holds_up_no_other_one() {
    let bucket = Bucket::new(Helicon::Never);
    let server = ObjectServer::start(bucket.dir.path());
    let dir = fresh_dir();
    let replica = bucket.replica_of(dir.path(), &server, &[]);
    let mut socket = Ws::open(&replica);
    let call = |id: u64, method: &str, params: &str| {
        format!(r#"{{"jsonrpc":"2.0","id":{id},"method":"{method}","params":{params}}}"#)
    };
    let archived = call(1, "eth_getBlockByNumber", "[\"0x28\",true]");
    let newest = call(2, "eth_getBlockByNumber", &format!("[\"{LAST:#x}\",false]"));
    server.set(Mode::Silent);
    socket.send(&archived);
    socket.send(&newest);
    let first = socket.text();
    assert!(first.contains("\"id\":2"), "{first}");
    let second = socket.text();
    assert!(second.contains("\"id\":1") && second.contains("header not found"), "{second}");
    server.set(Mode::Serves);
    serves(&replica, &bucket.node, FIRST..=LAST);
    let answered = wait_until("an answer", LIMIT, || {
        socket.send(&archived);
        let text = socket.text();
        if text.contains("header not found") { Err(Miss::NotYet(text)) } else { Ok(text) }
    });
    let expected = bucket.source.client().post(&archived).text();
    assert_eq!(answered.expect("it comes back").trim(), expected.trim());
    replica.stop_in_time();
}

/// Else the segments that one client might read next are a debt, and all others are refused until it is paid.
#[test]
fn reading_ahead_takes_no_read_from_other_clients() {
    let bucket = Bucket::of_many_logs();
    let dir = fresh_dir();
    let rate = ["--archive-read-bytes-per-second", "1MiB", "--trusted-proxies", "127.0.0.1"];
    let replica = bucket.replica(dir.path(), &rate);
    let as_address = |address: &str, method: &str, params: &str| {
        let body = format!(r#"{{"jsonrpc":"2.0","id":1,"method":"{method}","params":{params}}}"#);
        let headers = [("content-type", "application/json"), ("x-forwarded-for", address)];
        replica.client().request("POST", "/", &headers, body.as_bytes())
    };
    let whole = fs::metadata(&bucket.objects("segment")[0]).expect("it is there").len();
    assert!(whole > 1 << 20, "more than a second of the rate, not {whole} bytes");
    // A reader in order, whom its own rate may refuse now and then.
    for height in 0..6 {
        let params = format!("[\"{height:#x}\",true]");
        let answered = wait_until("a height", LIMIT, || {
            match as_address("10.0.0.1", "eth_getBlockByNumber", &params).status {
                200 => Ok(()),
                status => Err(Miss::NotYet(status.to_string())),
            }
        });
        answered.expect("its debt is paid soon");
    }
    // Another address reads pages that no client has read: those of the hashes.
    let hash = bucket.node.block(30).expect("it is there").hash();
    let hedges = || replica.count("neve_archive_hedges_total");
    let hedged = hedges();
    let other = as_address("10.0.0.2", "eth_getHeaderByHash", &format!("[\"{hash:#x}\"]"));
    let (taken, hedged) = (reads(&replica, "span"), hedges() - hedged);
    assert_eq!(other.status, 200, "{}", other.text());
    assert!((1..=1 + hedged).contains(&taken), "{taken} reads, {hedged} twice");
    replica.stop_in_time();
}
