//! Answers about archived heights: to the byte, and with as few reads as there must be.

use std::path::{Path, PathBuf};

use neve_devnet::Helicon;
use serde_json::json;

use super::bucket::{Bucket, FIRST, reads};
use super::object_server::{Mode, ObjectServer};
use crate::support::neve::{Neve, fresh_dir};
use crate::support::served::serves;
use crate::support::ws::{Ws, wait_for_answers};

#[test]
fn replica_without_a_node_answers_archived_heights_to_the_byte() {
    for helicon in [Helicon::Never, Helicon::At(20)] {
        let bucket = Bucket::new(helicon);
        let dir = fresh_dir();
        let replica = bucket.replica(dir.path(), &[]);
        let (mut ours, mut theirs) = (replica.client(), bucket.source.client());
        for height in 0..FIRST {
            let block = bucket.node.block(height).expect("the chain has it");
            let number = format!("\"{height:#x}\"");
            for (method, params) in [
                ("eth_getBlockByNumber", format!("[{number},true]")),
                ("eth_getBlockByNumber", format!("[{number},false]")),
                ("eth_getHeaderByNumber", format!("[{number}]")),
                ("eth_getBlockReceipts", format!("[{number}]")),
                ("eth_getBlockTransactionCountByNumber", format!("[{number}]")),
                ("eth_getTransactionByBlockNumberAndIndex", format!("[{number},\"0x0\"]")),
                ("eth_getUncleCountByBlockNumber", format!("[{number}]")),
                ("eth_getBlockByHash", format!("[\"{:#x}\",true]", block.hash())),
            ] {
                let ours = ours.call(method, &params);
                assert_eq!(ours.status, 200, "{method} {params}: {}", ours.text());
                assert_eq!(ours.header("x-neve"), Some("hit"), "{method} {params}");
                assert_eq!(ours.text(), theirs.call(method, &params).text(), "{method} {params}");
            }
        }
        let head = replica.health()["blocks"]["head"].as_u64().expect("a number");
        serves(&replica, &bucket.node, 0..=head);
        // By the manifest that it read, of an archive that others push to.
        let put_at = replica.metric("neve_archive_manifest_put_timestamp_seconds");
        assert!(put_at > Some(1.7e9), "{put_at:?}");
        let log = replica.log();
        assert!(log.contains(" heights=\"0 to ") && !log.contains("=None"), "{log}");
        replica.stop_in_time();
    }
}

#[test]
fn logs_fees_batches_documents_and_messages_are_those_of_the_tail() {
    let bucket = Bucket::new(Helicon::Never);
    let dir = fresh_dir();
    let replica = bucket.replica(dir.path(), &[]);
    let (mut ours, mut theirs) = (replica.client(), bucket.source.client());
    let all = theirs.result("eth_getLogs", r#"[{"fromBlock":"0x0","toBlock":"0x3f"}]"#);
    let log = &all.as_array().expect("a list")[0];
    let (address, topic) = (log["address"].clone(), log["topics"][0].clone());
    let (block, hash) = (log["blockNumber"].clone(), log["blockHash"].clone());
    let calls = [
        ("eth_getLogs", r#"[{"fromBlock":"0x0","toBlock":"0x3f"}]"#.to_owned()),
        ("eth_getLogs", r#"[{"fromBlock":"earliest","toBlock":"0x2f"}]"#.to_owned()),
        ("eth_getLogs", r#"[{"fromBlock":"0x8","toBlock":"0x5f"}]"#.to_owned()),
        ("eth_getLogs", format!(r#"[{{"fromBlock":"0x1","toBlock":"0x5f","address":{address}}}]"#)),
        ("eth_getLogs", format!(r#"[{{"fromBlock":"0x1","toBlock":"0x3e","topics":[{topic}]}}]"#)),
        (
            "eth_getLogs",
            format!(r#"[{{"fromBlock":{block},"toBlock":{block},"topics":[{topic}]}}]"#),
        ),
        ("eth_getLogs", format!(r#"[{{"blockHash":{hash}}}]"#)),
        ("eth_getLogs", format!(r#"[{{"blockHash":{hash},"address":{address}}}]"#)),
        ("eth_feeHistory", r#"["0x10","0x20",[10,90]]"#.to_owned()),
        ("eth_feeHistory", r#"["0x10","0x45",[]]"#.to_owned()),
        ("eth_getBlockByNumber", r#"["earliest",false]"#.to_owned()),
    ];
    for (method, params) in &calls {
        let theirs = theirs.call(method, params).text();
        let ours = ours.call(method, params);
        assert_eq!((ours.status, ours.text()), (200, theirs), "{method} {params}");
    }
    let tx = bucket.node.block(7).expect("it is there").transactions()[0];
    let batch = format!(
        r#"[{{"jsonrpc":"2.0","id":1,"method":"eth_getBlockByNumber","params":["0x2",true]}},
            {{"jsonrpc":"2.0","id":2,"method":"eth_getBlockByNumber","params":["0x50",true]}},
            {{"jsonrpc":"2.0","id":3,"method":"eth_getTransactionByHash","params":["{tx:#x}"]}},
            {{"jsonrpc":"2.0","id":4,"method":"eth_getBlockReceipts","params":["0x3f"]}}]"#
    );
    assert_eq!(ours.post(&batch).text(), theirs.post(&batch).text());
    // Other threads read a body over 32 KiB.
    let long = batch.replacen(',', &format!(",{}", " ".repeat(40 << 10)), 1);
    let (our_answer, their_answer) = (ours.post(&long), theirs.post(&long));
    assert_eq!((our_answer.status, our_answer.text()), (200, their_answer.text()));
    for path in ["/v1/block/5", "/v1/receipts/40", "/v1/header/63", &format!("/v1/tx/{tx:#x}")] {
        let (ours, theirs) = (ours.get(path), theirs.get(path));
        assert_eq!((ours.status, ours.text()), (200, theirs.text()), "{path}");
        assert_eq!(ours.header("etag"), theirs.header("etag"), "{path}");
    }
    let [mut our_socket, mut their_socket] = [&replica, &bucket.source].map(Ws::open);
    for (method, params) in &calls {
        assert_eq!(our_socket.call(method, params), their_socket.call(method, params), "{method}");
    }
    our_socket.send(&long);
    their_socket.send(&long);
    assert_eq!(our_socket.text(), their_socket.text());
    drop((our_socket, their_socket));
    let unknown = format!("[\"0x{}\"]", "12".repeat(32));
    assert_eq!(ours.call("eth_getTransactionByHash", &unknown).status, 421);
    replica.stop_in_time();
}

/// A replica that follows the node, with a tail from 70 on.
fn following(bucket: &Bucket, dir: &Path) -> Neve {
    following_of(bucket, dir, &[], &["--archive", &bucket.place()])
}

/// A replica in this way, started by a command that becomes the binary.
fn following_of(bucket: &Bucket, dir: &Path, starter: &[&str], place: &[&str]) -> Neve {
    let (url, trust) = (bucket.node.base_url(), bucket.trust());
    let from = ["--archive-trust", &trust, "--upstream", &url];
    let tail = ["--start", "70", "--backfill-to", "none"];
    let replica = Neve::start_by(starter, dir, &[place, &from, &tail].concat());
    replica.wait_for_head(bucket.node.latest());
    replica.wait("archived heights and filters", |health| {
        let answers = &health["archive"]["answers"];
        (answers["max_height"] == 95 && answers["hashes_from_height"] == 0).then_some(())
    });
    replica
}

/// Such a batch waits for the archive and for the upstream. Either may take longer than a price stays new.
#[test]
fn batch_of_archived_heights_and_prices_is_answered_in_any_order() {
    let bucket = Bucket::new(Helicon::Never);
    let dir = fresh_dir();
    let options = ["--archive", &bucket.place(), "--price-age-max", "1ms"];
    let replica = following_of(&bucket, dir.path(), &[], &options);
    let low = r#"{"jsonrpc":"2.0","id":1,"method":"eth_getBlockByNumber","params":["0x5",true]}"#;
    let price = r#"{"jsonrpc":"2.0","id":2,"method":"eth_gasPrice"}"#;
    let has_both = |text: &str| text.matches("\"result\":").count() == 2;
    for batch in [format!("[{low},{price}]"), format!("[{price},{low}]")] {
        wait_for_answers(&replica, &batch, has_both);
    }
    replica.stop_in_time();
}

#[test]
fn filters_reach_archived_heights_as_logs_do() {
    let bucket = Bucket::new(Helicon::Never);
    let dir = fresh_dir();
    let replica = following(&bucket, dir.path());
    let (mut ours, mut theirs) = (replica.client(), bucket.source.client());
    let [mut our_socket, mut their_socket] = [&replica, &bucket.source].map(Ws::open);
    let all = theirs.result("eth_getLogs", r#"[{"fromBlock":"0x0","toBlock":"0x3f"}]"#);
    let log = &all.as_array().expect("a list")[0];
    let (address, topic) = (log["address"].clone(), log["topics"][0].clone());
    let (block, hash) = (log["blockNumber"].clone(), log["blockHash"].clone());
    for filter in [
        r#"{"fromBlock":"0x0","toBlock":"0x5f"}"#.to_owned(),
        format!(r#"{{"fromBlock":"0x1","toBlock":"0x30","address":{address}}}"#),
        format!(r#"{{"fromBlock":"0x1","toBlock":"latest","topics":[{topic}]}}"#),
        format!(r#"{{"fromBlock":{block},"toBlock":{block}}}"#),
        format!(r#"{{"blockHash":{hash},"address":{address}}}"#),
    ] {
        let params = format!("[{filter}]");
        let logs = theirs.result("eth_getLogs", &params);
        assert!(logs.as_array().is_some_and(|logs| !logs.is_empty()), "{filter}: {logs}");
        let [our_id, their_id] =
            [&mut ours, &mut theirs].map(|client| client.result("eth_newFilter", &params));
        let [our_id, their_id] = [our_id, their_id].map(|id| format!("[{id}]"));
        let (our_logs, their_logs) =
            (ours.call("eth_getFilterLogs", &our_id), theirs.call("eth_getFilterLogs", &their_id));
        assert_eq!((our_logs.status, our_logs.text()), (200, their_logs.text()), "{filter}");
        assert_eq!(ours.result("eth_getFilterLogs", &our_id), logs, "{filter}");
        let their_message = their_socket.call("eth_getFilterLogs", &their_id);
        assert_eq!(our_socket.call("eth_getFilterLogs", &our_id), their_message, "{filter}");
        assert_eq!(ours.result("eth_getFilterChanges", &our_id), json!([]), "{filter}");
    }
    replica.stop_in_time();
}

/// A full node does not know the filter, and would say that it is gone.
#[test]
fn filter_of_archived_logs_is_not_relayed_while_the_archive_fails() {
    let bucket = Bucket::new(Helicon::Never);
    let (server, dir) = (ObjectServer::start(bucket.dir.path()), fresh_dir());
    let env = ["env", "AWS_ACCESS_KEY_ID=a", "AWS_SECRET_ACCESS_KEY=b", "AWS_REGION=c"];
    let endpoint = server.endpoint();
    let place = ["--archive", "s3://bucket", "--archive-endpoint", &endpoint, "--on-miss", "relay"];
    let replica = following_of(&bucket, dir.path(), &env, &place);
    let (mut ours, mut theirs) = (replica.client(), bucket.source.client());
    let filter = r#"[{"fromBlock":"0x0","toBlock":"0x1f"}]"#;
    let id = ours.result("eth_newFilter", filter);
    server.set(Mode::Closes);
    let missed = ours.call("eth_getFilterLogs", &format!("[{id}]"));
    assert_eq!(
        (missed.status, missed.header("retry-after")),
        (421, Some("1")),
        "{}",
        missed.text()
    );
    let call = |id: u64, method: &str, params: &str| {
        format!(r#"{{"jsonrpc":"2.0","id":{id},"method":"{method}","params":{params}}}"#)
    };
    let logs = call(1, "eth_getFilterLogs", &format!("[{id}]"));
    let batch = format!("[{logs},{}]", call(2, "eth_blockNumber", "[]"));
    let both = ours.post(&batch).text();
    assert!(both.contains("header not found") && !both.contains("filter not found"), "{both}");
    assert_eq!(bucket.node.counters().calls("eth_getFilterLogs"), 0);
    // Another id may be a full node's.
    assert_eq!(ours.call("eth_getFilterLogs", r#"["0x1"]"#).header("x-neve"), Some("relay"));
    assert_eq!(bucket.node.counters().calls("eth_getFilterLogs"), 1);
    server.set(Mode::Serves);
    let logs = theirs.result("eth_getLogs", filter);
    replica.wait("the filter", |_| {
        let answer = ours.call("eth_getFilterLogs", &format!("[{id}]"));
        (answer.status == 200).then(|| assert_eq!(answer.json()["result"], logs))
    });
    replica.stop_in_time();
}

#[test]
fn logs_reach_from_the_archive_into_a_segment_that_the_tail_has_in_part() {
    let bucket = Bucket::new(Helicon::Never);
    let dir = fresh_dir();
    let replica = following(&bucket, dir.path());
    let (mut ours, mut theirs) = (replica.client(), bucket.source.client());
    let all = theirs.result("eth_getLogs", r#"[{"fromBlock":"0x0","toBlock":"0x5f"}]"#);
    for log in all.as_array().expect("a list").iter().step_by(7) {
        let (address, topic) = (&log["address"], &log["topics"][0]);
        for filter in
            [String::new(), format!(r#","address":{address}"#), format!(r#","topics":[{topic}]"#)]
        {
            let params = format!(r#"[{{"fromBlock":"0x1","toBlock":"0x60"{filter}}}]"#);
            let (ours, theirs) =
                (ours.call("eth_getLogs", &params), theirs.call("eth_getLogs", &params));
            assert_eq!((ours.status, ours.text()), (200, theirs.text()), "{params}");
        }
    }
    serves(&replica, &bucket.node, 0..=bucket.node.latest());
    replica.stop_in_time();
}

#[test]
fn height_takes_one_read_once_the_segment_is_known_and_a_hash_one_more() {
    let bucket = Bucket::new(Helicon::Never);
    let dir = fresh_dir();
    let replica = bucket.replica(dir.path(), &[]);
    let mut client = replica.client();
    let mut get = |method: &str, params: &str| {
        assert_eq!(client.call(method, params).status, 200, "{method} {params}");
        ["segment", "span", "pages"].map(|kind| reads(&replica, kind))
    };
    // A segment of the test has fewer pages than one of mainnet: the front and the first frames share some.
    assert_eq!(get("eth_getBlockByNumber", "[\"0x3\",true]"), [1, 0, 1]);
    assert_eq!(get("eth_getBlockByNumber", "[\"0x3\",true]"), [1, 0, 1]);
    let hash = bucket.node.block(3).expect("it is there").hash();
    assert_eq!(get("eth_getBlockByHash", &format!("[\"{hash:#x}\",false]")), [1, 1, 1]);
    let hash = bucket.node.block(40).expect("it is there").transactions()[0];
    assert_eq!(get("eth_getTransactionReceipt", &format!("[\"{hash:#x}\"]")), [2, 1, 1]);
    replica.stop_in_time();
}

#[test]
fn unknown_hash_costs_no_read() {
    let bucket = Bucket::new(Helicon::Never);
    let dir = fresh_dir();
    let replica = bucket.replica(dir.path(), &[]);
    let mut client = replica.client();
    for number in 0..200_u64 {
        let hash = format!("[\"0x{:064x}\"]", number.wrapping_mul(0x9e37_79b9_7f4a_7c15));
        let hash = hash.replacen("0x0000", &format!("0x{:04x}", number * 257), 1);
        assert_eq!(client.call("eth_getTransactionByHash", &hash).status, 421, "{hash}");
    }
    let all = ["segment", "span", "pages"].map(|kind| reads(&replica, kind));
    assert_eq!(all, [0, 0, 0]);
    replica.stop_in_time();
}

#[test]
fn cold_batch_reads_each_object_and_page_once() {
    let bucket = Bucket::large();
    let dir = fresh_dir();
    let replica = bucket.replica(dir.path(), &[]);
    let call = |height: u64| {
        format!(
            r#"{{"jsonrpc":"2.0","id":{height},"method":"eth_getBlockByNumber","params":["{height:#x}",false]}}"#
        )
    };
    let batch = format!("[{}]", (0..64).map(call).collect::<Vec<_>>().join(","));
    let (ours, theirs) = (replica.client().post(&batch), bucket.source.client().post(&batch));
    assert_eq!((ours.status, ours.text()), (200, theirs.text()));
    assert_eq!(reads(&replica, "pages"), 1, "page lists");
    let bytes = replica.count("neve_archive_read_bytes_total");
    let sizes = |kind| -> Vec<u64> {
        let size = |path: &PathBuf| path.metadata().expect("it is there").len();
        bucket.objects(kind).iter().map(size).collect()
    };
    let segments = sizes("segment").into_iter().take(2);
    let most: u64 = segments.chain(sizes("pages")).chain(sizes("filter")).sum();
    assert!(bytes <= most, "{bytes} bytes were read of {most}");
    replica.stop_in_time();
}

/// The node is away when the replica starts.
#[test]
fn archive_fills_the_tail_while_no_upstream_answers() {
    for helicon in [Helicon::Never, Helicon::At(20)] {
        let (bucket, dir) = (Bucket::new(helicon), fresh_dir());
        let own = ["--start", "96", "--segment-blocks", "32", "--backfill-to"];
        let upstream = bucket.node.base_url();
        let follow = [&["--upstream", &upstream], &own[..], &["none"]].concat();
        let neve = Neve::start(dir.path(), &follow);
        neve.wait_for_head(110);
        neve.stop_in_time();
        let place = bucket.place();
        let away = ["--upstream", "http://127.0.0.1:1", "--archive", &place];
        let replica = Neve::start(dir.path(), &[&away, &own[..], &["0"]].concat());
        replica.wait("heights of the archive", |health| {
            (health["blocks"]["min_height"] == 0).then_some(())
        });
        replica.stop_in_time();
    }
}

/// Each search of a hash reads pages of 64 KiB, and compares them with their digests.
#[test]
fn batch_of_one_hash_a_thousand_times_reads_its_index_once() {
    let (bucket, dir) = (Bucket::new(Helicon::Never), fresh_dir());
    let replica = bucket.replica(dir.path(), &[]);
    let hash = bucket.node.block(40).expect("it is there").transactions()[0];
    let call = format!(
        r#"{{"jsonrpc":"2.0","id":1,"method":"eth_getTransactionByHash","params":["{hash:#x}"]}}"#
    );
    let hits = || {
        let hits = "neve_archive_cache_pages_total{outcome=\"hit\"}";
        if replica.metric(hits).is_some() { replica.count(hits) } else { 0 }
    };
    let mut counts = Vec::new();
    for count in [1, 1, 1000] {
        let before = hits();
        let answer = replica.client().post(&format!("[{}]", vec![&*call; count].join(",")));
        assert_eq!(answer.status, 200, "{}", answer.text());
        assert_eq!(answer.json().as_array().map(Vec::len), Some(count));
        counts.push(hits() - before);
    }
    assert_eq!(counts[2], counts[1], "pages that were needed: {counts:?}");
    assert!(counts[1] > 0, "{counts:?}");
    replica.stop_in_time();
}
