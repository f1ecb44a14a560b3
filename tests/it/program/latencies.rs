//! Times and misses of calls in /metrics.

use neve_devnet::{Config, DevnetThread};

use crate::support::client::Client;
use crate::support::neve::{Neve, fresh_dir};

fn misses(neve: &Neve, method: &str, reason: &str) -> u64 {
    neve.count(&format!("neve_rpc_misses_total{{method=\"{method}\",reason=\"{reason}\"}}"))
}

fn times(neve: &Neve, method: &str, outcome: &str) -> u64 {
    let labels = format!("{{method=\"{method}\",outcome=\"{outcome}\"");
    let count = neve.count(&format!("neve_rpc_call_duration_seconds_count{labels}}}"));
    let all = neve.count(&format!("neve_rpc_call_duration_seconds_bucket{labels},le=\"+Inf\"}}"));
    assert_eq!(count, all);
    let sum = neve.metric(&format!("neve_rpc_call_duration_seconds_sum{labels}}}"));
    assert_eq!(sum.is_some_and(|sum| sum > 0.0), count > 0, "{sum:?}");
    count
}

fn block(client: &mut Client, height: &str) {
    client.call("eth_getBlockByNumber", &format!("[\"{height}\",false]"));
}

#[test]
fn each_call_has_a_time_and_each_miss_a_reason() {
    let node = DevnetThread::start(Config::test().with_head(30)).expect("free ports");
    let dir = fresh_dir();
    let neve = Neve::start(dir.path(), &["--upstream", &node.base_url(), "--start", "20"]);
    neve.wait_for_head(30);
    let mut client = neve.client();
    for height in ["0x14", "latest", "0x1", "0x13", "0x1f"] {
        block(&mut client, height);
    }
    let hash = format!("[\"0x{}\",false]", "1".repeat(64));
    client.call("eth_getBlockByHash", &hash);
    client.call("eth_getBalance", "[\"0x0000000000000000000000000000000000000000\",\"latest\"]");
    client.call("eth_getBlockByNumber", "[1,2,3]");
    // A batch: one call is a miss, and so are the others.
    let call = |id: u8, height: &str| {
        format!(
            "{{\"jsonrpc\":\"2.0\",\"id\":{id},\"method\":\"eth_getBlockByNumber\",\"params\":[\"{height}\",false]}}"
        )
    };
    let batch = format!("[{},{},{}]", call(1, "0x14"), call(2, "0x1f"), call(3, "0x15"));
    client.post(&batch);
    let by_number = "eth_getBlockByNumber";
    let expected = [
        (by_number, "below_range", 2),
        (by_number, "above_head", 2),
        (by_number, "in_batch", 2),
        ("eth_getBlockByHash", "unknown_hash", 1),
        ("eth_getBalance", "not_served", 1),
    ];
    for (method, reason, count) in expected {
        neve.wait(reason, |_| (misses(&neve, method, reason) >= count).then_some(()));
        assert_eq!(misses(&neve, method, reason), count, "{method} {reason}");
    }
    assert_eq!(times(&neve, by_number, "hit"), 2);
    assert_eq!(times(&neve, by_number, "miss"), 6);
    assert_eq!(times(&neve, by_number, "error"), 1);
    assert_eq!(times(&neve, "eth_getBlockByHash", "miss"), 1);
    assert_eq!(times(&neve, "other", "miss"), 1);
    assert_eq!(times(&neve, "other", "relay"), 0);
}

#[test]
fn relayed_call_has_a_time_of_its_own_outcome_on_both_paths() {
    let node = DevnetThread::start(Config::test().with_head(30)).expect("free ports");
    let dir = fresh_dir();
    let upstream = node.base_url();
    let relays = ["--upstream", &upstream, "--start", "20", "--on-miss", "relay"];
    let neve = Neve::start(dir.path(), &relays);
    neve.wait_for_head(30);
    let mut client = neve.client();
    block(&mut client, "0x1");
    block(&mut client, "0x14");
    neve.wait("a time", |_| (times(&neve, "eth_getBlockByNumber", "hit") > 0).then_some(()));
    assert_eq!(times(&neve, "eth_getBlockByNumber", "relay"), 1);
    assert_eq!(times(&neve, "eth_getBlockByNumber", "miss"), 0);
    assert_eq!(misses(&neve, "eth_getBlockByNumber", "below_range"), 1);
}

/// Samples that nobody scrapes would stay in memory. The log alone shows that neve counts them: a scrape does it too.
#[test]
fn samples_are_counted_though_nobody_scrapes() {
    let (node, dir) = (DevnetThread::start(Config::test()).expect("free ports"), fresh_dir());
    let arguments = ["--upstream", &node.base_url(), "--start", "0"];
    let neve = Neve::start_by(&["env", "RUST_LOG=neve=debug"], dir.path(), &arguments);
    neve.wait_for_log("histogram samples counted");
}
