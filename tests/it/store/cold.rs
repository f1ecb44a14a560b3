//! Data that is on disk and not in memory: other threads wait for it than those that serve.

use std::fs::{self, File};
use std::io::{BufReader, Write};
use std::net::TcpStream;
use std::path::Path;
use std::thread;
use std::time::Duration;

use neve_devnet::{ChainConfig, Config, DevnetThread};
use rustix::fs::{Advice, fadvise};
use rustix::thread::{
    CapabilitySet, capabilities, capability_is_in_bounding_set,
    remove_capability_from_bounding_set, set_capabilities,
};

use crate::support::client::read;
use crate::support::neve::{LIMIT, Neve, fresh_dir};
use crate::support::node::wait::{Miss, wait_until};
use crate::support::ws::Ws;

const HEAD: u64 = 200;
/// A thread that waits where it must not does so every time.
const TRIES: u32 = 8;
/// Three times that is longer than serving threads expect pages to go after the last sign of it.
const QUIET: Duration = Duration::from_secs(4);

/// Faults of the serving threads for which a disk was read (proc(5), `stat`: field 12).
fn waits(neve: &Neve) -> u64 {
    // A thread names itself once it runs, which may be after the first response.
    wait_until("two workers of two threads", LIMIT, || {
        let counts = waits_of_threads(neve);
        if counts.len() == 4 {
            return Ok(counts.iter().sum());
        }
        Err(Miss::NotYet(format!("{} threads", counts.len())))
    })
    .unwrap()
}

fn waits_of_threads(neve: &Neve) -> Vec<u64> {
    let tasks = fs::read_dir(format!("/proc/{}/task", neve.pid())).unwrap();
    let of = |task: &Path| {
        let name = fs::read_to_string(task.join("comm")).ok()?;
        let stat = fs::read_to_string(task.join("stat")).ok()?;
        let fields: Vec<&str> = stat.rsplit_once(')')?.1.split_whitespace().collect();
        let serves = name.starts_with("http-");
        serves.then(|| fields[9].parse::<u64>().unwrap())
    };
    tasks.filter_map(|task| of(&task.unwrap().path())).collect()
}

/// Has the system forget what it read of the files in `dir`. No process may have them mapped.
fn forget(dir: &Path) {
    for entry in fs::read_dir(dir).unwrap() {
        let file = File::open(entry.unwrap().path()).unwrap();
        file.sync_all().unwrap();
        fadvise(&file, 0, None, Advice::DontNeed).unwrap();
    }
}

/// Has the system read the program, whose pages count too and may not have been used for long.
fn load_program() {
    fs::read(env!("CARGO_BIN_EXE_neve")).unwrap();
}

/// Questions of every kind that lead to mapped bytes, of which some name `height`.
fn ask(neve: &Neve, height: u64) -> Vec<String> {
    let mut client = neve.client();
    let number = format!("\"{height:#x}\"");
    let block = client.result("eth_getBlockByNumber", &format!("[{number},false]"));
    let (hash, transactions) = (block["hash"].clone(), block["transactions"].clone());
    let mut answers = vec![block.to_string()];
    let mut call = |method: &str, params: &str| {
        let answer = client.call(method, params);
        assert_eq!(answer.status, 200, "{method}{params}: {}", answer.text());
        answers.push(answer.text());
    };
    call("eth_getBlockByHash", &format!("[{hash},true]"));
    call("eth_getBlockReceipts", &format!("[{number}]"));
    call("debug_getRawReceipts", &format!("[{number}]"));
    call("eth_getHeaderByNumber", &format!("[{number}]"));
    call("eth_feeHistory", &format!("[\"0x2\",{number},[50]]"));
    call("eth_getLogs", &format!("[{{\"blockHash\":{hash}}}]"));
    let earlier = format!("\"{:#x}\"", height.saturating_sub(30));
    let topic = format!("\"0x{}\"", "11".repeat(32));
    let filter = format!("{{\"fromBlock\":{earlier},\"toBlock\":{number},\"topics\":[{topic}]}}");
    call("eth_getLogs", &format!("[{filter}]"));
    for transaction in transactions.as_array().unwrap().iter().take(9) {
        call("eth_getTransactionByHash", &format!("[{transaction}]"));
        call("eth_getTransactionReceipt", &format!("[{transaction}]"));
        call("eth_getRawTransactionByHash", &format!("[{transaction}]"));
    }
    for path in [format!("/v1/block/{height}"), format!("/v1/receipts/{height}")] {
        let document = neve.client().request("GET", &path, &[("Accept-Encoding", "gzip")], b"");
        assert_eq!(document.status, 200, "{path}");
        answers.push(String::from_utf8_lossy(&document.body).into_owned());
    }
    answers
}

/// A range that is replayed to subscribers, and calls between.
fn replay(neve: &Neve) -> Vec<String> {
    let mut socket = Ws::open(neve);
    let heads = socket.subscribe("[\"newHeads\",{\"fromBlock\":\"0x5\"}]");
    let mut told: Vec<String> = socket.heads(&heads, 100).iter().map(ToString::to_string).collect();
    let mut other = Ws::open(neve);
    other.subscribe("[\"logs\",{\"fromBlock\":\"0x7\"}]");
    told.push(other.notification().height("blockNumber").to_string());
    let batch = r#"[{"jsonrpc":"2.0","id":1,"method":"eth_subscribe","params":["newHeads"]},
        {"jsonrpc":"2.0","id":2,"method":"eth_getBlockByNumber","params":["0x9",true]}]"#;
    let mut third = Ws::open(neve);
    third.send(batch);
    told.push(third.text().split_once("},{").unwrap().1.to_owned());
    told
}

#[test]
fn no_serving_thread_waits_for_the_disk() {
    // Of mainnet's size, else the system reads whole segments ahead.
    let config = Config { chain: ChainConfig::c_chain(1), ..Config::test() };
    let devnet = DevnetThread::start(config.with_head(HEAD)).unwrap();
    let (dir, url) = (fresh_dir(), devnet.base_url());
    let arguments = ["--upstream", &url, "--start", "0", "--segment-blocks", "40"];
    let more = ["--threads", "2", "--api", "debug-raw", "--precompress", "gzip"];
    let start = || Neve::start(dir.path(), &[&arguments[..], &more].concat());
    let heights = [0, 3, 39, 40, 77, 121, 150, 199];
    let neve = start();
    neve.wait_for_head(HEAD);
    let warm: Vec<_> = heights.map(|height| ask(&neve, height)).into();
    // Raw forms of long texts are handed over even so.
    let long = neve.count("neve_http_offloaded_requests_total");
    let told = replay(&neve);
    neve.stop();

    let cold = |_| {
        forget(&dir.path().join("store"));
        load_program();
        let neve = start();
        neve.wait_for_head(HEAD);
        let before = waits(&neve);
        assert_eq!(neve.count("neve_http_offloaded_requests_total"), 0);
        let replayed = replay(&neve);
        let cold: Vec<_> = heights.map(|height| ask(&neve, height)).into();
        let waited = waits(&neve) - before;
        let handed_over = neve.count("neve_http_offloaded_requests_total");
        assert!(handed_over > long, "nothing was cold: does the file system keep all in memory?");
        assert!(cold == warm && replayed == told, "other answers than when all was in memory");
        (waited == 0).then_some(neve)
    };
    // Systems also take pages that were used just now, the program's own among them.
    let neve = (0..TRIES).find_map(cold).expect("a serving thread read the disk");
    let again: Vec<_> = heights.map(|height| ask(&neve, height)).into();
    assert!(again == warm, "copies differ from what they are of");
    let stays = |_| {
        // So much was missing that others are expected to go, for a while.
        thread::park_timeout(QUIET);
        let before = neve.count("neve_http_offloaded_requests_total");
        let again: Vec<_> = heights.map(|height| ask(&neve, height)).into();
        assert!(again == warm);
        neve.count("neve_http_offloaded_requests_total") == before + long
    };
    assert!((0..TRIES).any(stays), "what was just read is not in memory");
}

#[test]
fn call_that_waits_for_the_disk_is_not_overtaken() {
    let config = Config { chain: ChainConfig::c_chain(1), ..Config::test() };
    let devnet = DevnetThread::start(config.with_head(HEAD)).unwrap();
    let (dir, url) = (fresh_dir(), devnet.base_url());
    let arguments = ["--upstream", &url, "--start", "0", "--segment-blocks", "40"];
    let start = || Neve::start(dir.path(), &arguments);
    let neve = start();
    neve.wait_for_head(HEAD);
    neve.stop();
    forget(&dir.path().join("store"));
    let neve = start();
    neve.wait_for_head(HEAD);
    let mut line = BufReader::new(TcpStream::connect(neve.address).unwrap());
    line.get_ref().set_nodelay(true).unwrap();
    for height in (0..HEAD).rev() {
        let block = format!(r#""eth_getBlockByNumber","params":["{height:#x}",false]"#);
        for (id, call) in [(1, block.as_str()), (2, r#""eth_chainId","params":[]"#)] {
            let body = format!(r#"{{"jsonrpc":"2.0","id":{id},"method":{call}}}"#);
            let head = "POST / HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n";
            write!(line.get_mut(), "{head}Content-Length: {}\r\n\r\n{body}", body.len()).unwrap();
        }
        for id in [1, 2] {
            let answer = read(&mut line, false).unwrap().text();
            assert!(answer.contains(&format!("\"id\":{id},")), "{height}: {answer}");
        }
    }
    assert!(neve.count("neve_http_offloaded_requests_total") > 0, "nothing was cold");
}

/// More than sockets take at once: some of it is sent by who waited for the disk, and some later.
#[test]
fn a_slow_client_gets_all_of_what_was_cold() {
    let config = Config { chain: ChainConfig::c_chain(1), ..Config::test() };
    let devnet = DevnetThread::start(config.with_head(HEAD)).unwrap();
    let (dir, url) = (fresh_dir(), devnet.base_url());
    // What is not sealed is read at the start.
    let arguments = ["--upstream", &url, "--start", "0", "--segment-blocks", "40"];
    let start = || Neve::start(dir.path(), &arguments);
    let call = |height| {
        let params = format!(r#""params":["{height:#x}",true]"#);
        format!(r#"{{"jsonrpc":"2.0","id":{height},"method":"eth_getBlockByNumber",{params}}}"#)
    };
    // Short enough to be plain.
    let batch = format!("[{}]", (1..=150).map(call).collect::<Vec<_>>().join(","));
    let neve = start();
    neve.wait_for_head(HEAD);
    let warm = neve.client().post(&batch).body;
    neve.stop();
    forget(&dir.path().join("store"));
    let neve = start();
    neve.wait_for_head(HEAD);
    let mut line = BufReader::new(TcpStream::connect(neve.address).unwrap());
    let head = "POST / HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n";
    write!(line.get_mut(), "{head}Content-Length: {}\r\n\r\n{batch}", batch.len()).unwrap();
    neve.wait("it is made", |_| {
        (neve.count("neve_http_offloaded_requests_total") > 0).then_some(())
    });
    thread::park_timeout(Duration::from_millis(300)); // nothing is read meanwhile
    let cold = read(&mut line, false).unwrap().body;
    assert!(warm.len() > 4 << 20, "{} bytes", warm.len());
    assert!(cold == warm, "{} bytes where {} were to come", cold.len(), warm.len());
    write!(line.get_mut(), "{head}Content-Length: 2\r\n\r\n[]").unwrap();
    assert_eq!(read(&mut line, false).unwrap().status, 200);
}

#[test]
fn offloaded_filter_calls_happen_once() {
    let devnet = DevnetThread::start(Config::test()).unwrap();
    let (dir, url) = (fresh_dir(), devnet.base_url());
    let neve = Neve::start(dir.path(), &["--upstream", &url, "--start", "0", "--filters-max", "1"]);
    neve.wait_for_head(devnet.latest());
    let mut client = neve.client();
    let filter = client.result("eth_newBlockFilter", "[]").to_string();
    assert_eq!(neve.count("neve_http_offloaded_requests_total"), 1);
    neve.wait_for_head(devnet.advance(2));
    let changes = client.result("eth_getFilterChanges", &format!("[{filter}]"));
    assert_eq!(changes.as_array().unwrap().len(), 2);
    let changes = client.result("eth_getFilterChanges", &format!("[{filter}]"));
    assert_eq!(changes.as_array().unwrap().len(), 0);
    // It is counted when the client may have the answer already.
    let name = "neve_rpc_calls_total{method=\"eth_getFilterChanges\",outcome=\"hit\"}";
    neve.wait("both are counted", |_| (neve.count(name) == 2).then_some(()));
    assert!(client.result("eth_uninstallFilter", &format!("[{filter}]")).as_bool().unwrap());
}

#[test]
fn the_newest_blocks_stay_in_memory() {
    let config = Config { chain: ChainConfig::c_chain(1), ..Config::test() };
    let devnet = DevnetThread::start(config.with_head(HEAD)).unwrap();
    let url = devnet.base_url();
    // As much as is allowed where nothing was changed: 8 MiB.
    for (wanted, mib) in [("8MiB", 8), ("2MiB", 2), ("3000000", 2), ("none", 0)] {
        let dir = fresh_dir();
        let arguments = ["--upstream", &url, "--start", "0", "--lock-newest-bytes", wanted];
        let neve = Neve::start(dir.path(), &arguments);
        neve.wait_for_head(HEAD);
        neve.wait("the newest blocks are locked", |_| {
            (neve.metric("neve_store_locked_bytes") == Some(f64::from(mib << 20))).then_some(())
        });
        // The program is locked as well where locked memory has no limit; not if nothing is wanted.
        let program = neve.metric("neve_program_locked_bytes").unwrap_or_default() as i32 >> 10;
        assert!(wanted != "none" || program == 0, "{program} kB");
        assert_eq!(locked_kb(&neve) - program, mib << 10, "--lock-newest-bytes {wanted}");
    }
}

fn locked_kb(neve: &Neve) -> i32 {
    let status = fs::read_to_string(format!("/proc/{}/status", neve.pid())).unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmLck:")).unwrap();
    line.trim().trim_end_matches(" kB").parse().unwrap()
}

/// Locks as much memory as the limit allows, and names the remedy.
#[test]
fn less_is_locked_where_that_is_the_limit() {
    let config = Config { chain: ChainConfig::c_chain(1), ..Config::test() };
    let devnet = DevnetThread::start(config.with_head(HEAD)).unwrap();
    let limited = ["sh", "-c", "ulimit -l 4096 && exec \"$0\" \"$@\""];
    give_up_locking_without_limit();
    let (dir, url) = (fresh_dir(), devnet.base_url());
    let arguments = ["--upstream", &url, "--start", "0", "--lock-newest-bytes", "8MiB"];
    let neve = Neve::start_by(&limited, dir.path(), &arguments);
    neve.wait_for_head(HEAD);
    neve.wait_for_log("fewer newest bytes locked");
    let log = neve.log();
    assert!(log.contains("wanted=8.0 MiB") && log.contains("raise the limit"), "{log}");
    let kb = locked_kb(&neve);
    assert!((1..=4096).contains(&kb), "{kb} kB");
    neve.wait("its metric", |_| {
        (neve.metric("neve_store_locked_bytes") == Some(f64::from(kb << 10))).then_some(())
    });
    assert_eq!(neve.metric("neve_program_locked_bytes"), Some(0.0), "the blocks come first");
    assert_eq!(neve.client().result("eth_blockNumber", "[]"), format!("{HEAD:#x}"));
}

/// Takes from this thread, and so from its children, the right of root to lock memory beyond the limit.
fn give_up_locking_without_limit() {
    let has = capability_is_in_bounding_set(CapabilitySet::IPC_LOCK).expect("it can be asked");
    if rustix::process::geteuid().is_root() && has {
        let mut sets = capabilities(None).expect("a thread may read its own");
        sets.inheritable -= CapabilitySet::IPC_LOCK;
        set_capabilities(None, sets).expect("a thread may have fewer");
        remove_capability_from_bounding_set(CapabilitySet::IPC_LOCK).expect("root may");
    }
}
