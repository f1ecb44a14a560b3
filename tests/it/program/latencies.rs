//! Times and misses of calls in /metrics.

use neve_devnet::{Config, DevnetThread};
use tempfile::TempDir;

use crate::support::client::Client;
use crate::support::neve::{Neve, fresh_dir};

fn misses(method: &str, reason: &str) -> String {
    format!("neve_rpc_misses_total{{method=\"{method}\",reason=\"{reason}\"}}")
}

/// Checks the number of times of a method's calls. The fast path counts a time after the response.
fn assert_times(neve: &Neve, method: &str, outcome: &str, count: u64) {
    let labels = format!("{{method=\"{method}\",outcome=\"{outcome}\"");
    let look = || {
        let page = neve.admin().get("/metrics").text();
        let value = |name: &str| {
            let name = format!("neve_rpc_call_duration_seconds_{name}}} ");
            page.lines().find_map(|line| line.strip_prefix(&name)).unwrap_or("0")
        };
        let counts = [format!("count{labels}"), format!("bucket{labels},le=\"+Inf\"")];
        let [count, all] = counts.map(|name| value(&name).parse::<u64>().expect("a count"));
        assert_eq!(count, all);
        (count, value(&format!("sum{labels}")) != "0")
    };
    neve.wait(outcome, |_| (look() >= (count, count > 0)).then_some(()));
    assert_eq!(look(), (count, count > 0), "{method} {outcome}");
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
        neve.wait_for_count(&misses(method, reason), count);
    }
    assert_times(&neve, by_number, "hit", 2);
    assert_times(&neve, by_number, "miss", 6);
    assert_times(&neve, by_number, "error", 1);
    assert_times(&neve, "eth_getBlockByHash", "miss", 1);
    assert_times(&neve, "eth_getBalance", "miss", 1);
    assert_times(&neve, "eth_getBalance", "relay", 0);
    assert_times(&neve, "other", "miss", 0);
}

/// A neve that relays to a node of 31 blocks, and has the last eleven itself.
fn relaying() -> (DevnetThread, TempDir, Neve) {
    let node = DevnetThread::start(Config::test().with_head(30)).expect("free ports");
    let dir = fresh_dir();
    let upstream = node.base_url();
    let relays = ["--upstream", &upstream, "--start", "20", "--on-miss", "relay"];
    let neve = Neve::start(dir.path(), &relays);
    neve.wait_for_head(30);
    (node, dir, neve)
}

#[test]
fn relayed_call_has_a_time_of_its_own_outcome_on_both_paths() {
    let (_node, _dir, neve) = relaying();
    let mut client = neve.client();
    block(&mut client, "0x1");
    block(&mut client, "0x14");
    assert_times(&neve, "eth_getBlockByNumber", "hit", 1);
    assert_times(&neve, "eth_getBlockByNumber", "relay", 1);
    assert_times(&neve, "eth_getBlockByNumber", "miss", 0);
    neve.wait_for_count(&misses("eth_getBlockByNumber", "below_range"), 1);
}

/// The page of the admin listener shows these series by their labels.
#[test]
fn relayed_call_of_an_unserved_method_has_times_under_its_own_name() {
    let (_node, _dir, neve) = relaying();
    let mut client = neve.client();
    let call = r#"[{"to":"0x0000000000000000000000000000000000000001"},"latest"]"#;
    assert_eq!(client.call("eth_call", call).status, 200);
    assert_eq!(client.call("txpool_status", "[]").status, 421);
    assert_eq!(client.call("eth_nonsense", "[]").status, 200);
    assert_times(&neve, "eth_call", "relay", 1);
    assert_times(&neve, "eth_call", "miss", 0);
    // Names that few call, or no node knows, share a series: clients cannot add to them.
    assert_times(&neve, "other", "miss", 1);
    assert_times(&neve, "other", "error", 1);
    assert_times(&neve, "other", "relay", 0);
}

#[test]
fn responses_are_counted_by_status_on_both_paths() {
    let node = DevnetThread::start(Config::test().with_head(30)).expect("free ports");
    let dir = fresh_dir();
    let neve = Neve::start(dir.path(), &["--upstream", &node.base_url(), "--start", "20"]);
    neve.wait_for_head(30);
    let mut client = neve.client();
    (0..3).for_each(|_| block(&mut client, "latest"));
    (0..2).for_each(|_| block(&mut client, "0x1"));
    // A search takes another thread; a path that nothing has takes the full path.
    client.call("eth_getLogs", r#"[{"fromBlock":"0x14","toBlock":"0x1e"}]"#);
    client.call("eth_getLogs", r#"[{"fromBlock":"0x1","toBlock":"0x1e"}]"#);
    assert_eq!(client.get("/nothing").status, 404);
    assert_eq!(client.get("/ready").status, 200);
    let count =
        |status: u16| neve.count(&format!("neve_http_responses_total{{status=\"{status}\"}}"));
    assert_eq!([200, 421, 404].map(count), [5, 3, 1], "{}", neve.admin().get("/metrics").text());
    assert_eq!(neve.count("neve_http_requests_total"), 9);
    assert_eq!(neve.count("neve_http_fast_requests_total"), 7);
}

#[test]
fn metrics_of_the_process_and_of_the_room_that_is_left_are_there() {
    let node = DevnetThread::start(Config::test().with_head(30)).expect("free ports");
    let dir = fresh_dir();
    let arguments = ["--upstream", &node.base_url(), "--start", "0", "--retain-bytes", "10GiB"];
    let neve = Neve::start(dir.path(), &arguments);
    neve.wait_for_head(30);
    let value = |name: &str| neve.metric(name).unwrap_or_else(|| panic!("no {name}"));
    assert!(value("process_cpu_seconds_total") > 0.0);
    assert!(value("process_virtual_memory_bytes") >= value("process_resident_memory_bytes"));
    let (open, most) = (value("process_open_fds"), value("process_max_fds"));
    assert!(open > 3.0 && open < most, "{open} of {most}");
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap();
    let age = now.as_secs_f64() - value("process_start_time_seconds");
    assert!((-1.0..3600.0).contains(&age), "{age}");
    assert_eq!(neve.count("neve_store_bound_bytes"), 10 << 30);
    // The blocks of this chain have times, so that they have a pace.
    assert!(value("neve_store_time_to_full_seconds") > 0.0);
    let health = neve.health();
    let storage = &health["storage"];
    assert_eq!(storage["bound_bytes"], 10_u64 << 30);
    assert!(storage["time_to_full_seconds"].as_f64().is_some_and(|left| left > 0.0), "{health}");
    assert!(["disk", "retention"].iter().any(|by| storage["full_by"] == *by), "{health}");
    assert_eq!(storage["tiers"], serde_json::json!([{ "tier": "active", "heights": 31 }]));
    assert_eq!(health["memory"]["client_bytes_max"], 256 << 20);
    assert!(health["connections_max"].as_u64().is_some_and(|most| most > 0), "{health}");
}

/// Samples that Prometheus does not scrape would stay in memory. The log alone shows that neve counts them: a scrape
/// does it too.
#[test]
fn samples_are_counted_though_nobody_scrapes() {
    let (node, dir) = (DevnetThread::start(Config::test()).expect("free ports"), fresh_dir());
    let arguments = ["--upstream", &node.base_url(), "--start", "0"];
    let neve = Neve::start_by(&["env", "RUST_LOG=neve=debug"], dir.path(), &arguments);
    neve.wait_for_log("histogram samples counted");
}
