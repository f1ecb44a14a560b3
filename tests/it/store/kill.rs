//! `kill -9` again and again, at random moments, while heights are appended, segments rolled and
//! sealed, the oldest evicted and disproved heights withdrawn, and while clients read: the store is
//! whole each time, and what was served before is served after.

use std::net::SocketAddr;
use std::path::Path;
use std::thread;
use std::time::Duration;

use neve_devnet::{Config, DevnetThread, Fault, Helicon};
use serde_json::Value;

use crate::support::client::{Client, Response};
use crate::support::neve::{Neve, fresh_dir, run};

/// Names the number of kills, for more than the usual ones.
const KILLS: &str = "NEVE_KILLS";
const KILLS_USUAL: u32 = 50;
/// Names the longest life at first, for a slow processor.
const LIFE: &str = "NEVE_KILL_LIFE_MS";
/// Heights of a few segments, see `ARGUMENTS`.
const HEIGHTS_BACK_MAX: u64 = 3 * 8;
/// The longest life, at first and at most. It grows by lives that appended nothing, as a busy machine has, and shrinks
/// by others.
const LIFE_MS: u64 = 300;
const LIFE_MS_MAX: u64 = 10_000;
/// Few blocks a segment and few segments: every life rolls and evicts.
const ARGUMENTS: [&str; 10] = [
    "--start",
    "0",
    "--segment-blocks",
    "8",
    "--retain-blocks",
    "48",
    "--fsync-interval",
    "20ms",
    "--segment-bytes",
    "1MiB",
];

/// Blocks faster than they can be followed: there is always something to append.
fn busy_chain() -> DevnetThread {
    let config = Config::test().with_helicon(Helicon::FromGenesis).with_head(100);
    DevnetThread::start(Config { rate: 500.0, ..config }).expect("loopback has free ports")
}

/// Clients that read while a server lives.
const READERS: usize = 2;

/// Calls of a reader.
const CALLS: [&str; 3] = [
    r#"{"jsonrpc":"2.0","id":1,"method":"eth_getBlockByNumber","params":["latest",true]}"#,
    r#"{"jsonrpc":"2.0","id":1,"method":"eth_getBlockReceipts","params":["latest"]}"#,
    r#"{"jsonrpc":"2.0","id":1,"method":"eth_getLogs","params":[{"fromBlock":"earliest"}]}"#,
];

/// End of a life.
struct Killed {
    /// Range that was served just before.
    first: Option<u64>,
    head: Option<u64>,
    /// Responses that the readers got.
    responses: usize,
}

/// Lives so long with clients that read, and is killed.
fn life(dir: &Path, url: &str, time: Duration) -> Killed {
    let neve = Neve::start(dir, &[&["--upstream", url], &ARGUMENTS[..]].concat());
    let address = neve.address;
    // A scope would wake this thread from its next wait.
    let readers = [(); READERS].map(|()| thread::spawn(move || read_on(address)));
    thread::park_timeout(time);
    let blocks = neve.health()["blocks"].take();
    neve.kill();
    let responses = readers.map(|reader| reader.join().expect("it gets hits and misses"));
    let (first, head) = (blocks["min_height"].as_u64(), blocks["head"].as_u64());
    Killed { first, head, responses: responses.iter().sum() }
}

/// Reads until the server is gone; returns the number of responses, each a hit or a miss.
fn read_on(address: SocketAddr) -> usize {
    let mut client = Client::new(address);
    let request = |call: &str| {
        let head = "POST / HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n";
        format!("{head}Content-Length: {}\r\n\r\n{call}", call.len())
    };
    let responses =
        CALLS.iter().cycle().map_while(|call| client.raw(request(call).as_bytes()).ok());
    let seen = |response: Response| assert!([200, 421].contains(&response.status), "{response:?}");
    responses.map(seen).count()
}

/// Verifies, and gives the summary.
pub(crate) fn verify(dir: &Path, round: u32) -> Value {
    let store = dir.join("store").display().to_string();
    let output = run(&["verify", "--json", "--data-dir", &store]);
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let said = format!("round {round}: {text}{}", String::from_utf8_lossy(&output.stderr));
    assert_eq!(output.status.code(), Some(0), "{said}");
    let last = text.lines().last().expect("a summary");
    serde_json::from_str(last).unwrap_or_else(|why| panic!("{why}: {said}"))
}

#[test]
#[ignore = "takes many seconds of a processor: ./check"]
fn kills_leave_a_whole_store() {
    let kills = std::env::var(KILLS).map_or(KILLS_USUAL, |text| text.parse().expect(KILLS));
    let life_ms = std::env::var(LIFE).map_or(LIFE_MS, |text| text.parse().expect(LIFE));
    let (devnet, dir) = (busy_chain(), fresh_dir());
    let seed = fastrand::u64(..);
    eprintln!("seed {seed}");
    let mut random = fastrand::Rng::with_seed(seed);
    let (mut evicted, mut grown, mut read) = (0, 0, 0);
    let (mut before, mut longest) = ((0, 0), life_ms);
    // A life may be shorter than the wait for the first block, and without one there is no store to verify.
    let first =
        Neve::start(dir.path(), &[&["--upstream", &devnet.base_url()], &ARGUMENTS[..]].concat());
    first.wait_for_head(1);
    first.kill();
    for round in 0..kills {
        let lies = round % 4 == 3;
        if lies {
            devnet.faults().inject(Fault::LyingReceipts.times(2));
        }
        let time = Duration::from_millis(random.u64(0..longest));
        let Killed { first, head, responses } = life(dir.path(), &devnet.base_url(), time);
        read += responses;
        devnet.faults().clear();
        let summary = verify(dir.path(), round);
        let (stored_first, stored_head) = (summary["first"].as_u64(), summary["last"].as_u64());
        // Evicting goes on after the question, appending too; nothing that was served is lost,
        // unless it was withdrawn. Files go after readers stopped seeing them: what was evicted
        // just before the kill may be back, which is no more than a few segments.
        let back = first.unwrap_or(0).saturating_sub(stored_first.unwrap_or(0));
        assert!(back <= HEIGHTS_BACK_MAX, "round {round}: {stored_first:?}, was {first:?}");
        assert!(lies || stored_head >= head, "round {round}: {stored_head:?} < {head:?}");
        let now = (stored_first.unwrap_or(0), stored_head.unwrap_or(0));
        evicted += u32::from(now.0 > before.0);
        grown += u32::from(now.1 > before.1);
        longest = if now.1 <= before.1 {
            (longest * 5 / 4).min(LIFE_MS_MAX)
        } else {
            (longest * 19 / 20).max(life_ms)
        };
        before = now;
    }
    // tests/arm-binary looks for the number.
    eprintln!(
        "{kills} kills: {grown} lives appended, {evicted} evicted; {read} responses; last {before:?}"
    );
    assert!(read > kills as usize, "{read} responses");
    assert!(grown > kills / 2 && evicted > kills / 3, "{grown} appended, {evicted} evicted");
}
