//! Attacks on memory as they were found, with default limits of memory. Their figures are in docs/RELIABILITY.md.

use std::io::Write;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use neve_devnet::DevnetThread;

use super::memory::{
    Attack, MIB, Peak, WHOLE, all_logs, attacker, batch, call, connect, fee_histories, frame,
    long_id, long_id_of_a_long_batch, only, others_are_served, part_of_a_body, part_of_a_head,
    part_of_a_message, post, receipts, start, start_growing,
};
use crate::store::packed::wait_for_packed;
use crate::support::client::read;
use crate::support::neve::Neve;

/// Bound of memory besides mapped files under each attack. docs/operating/size.md documents a higher ceiling, the sum of all
/// parts at their bounds: no attack fills all of them at once.
const CEILING: u64 = 512;
/// Runs only attacks whose line of the output contains this text.
const ONLY: &str = "NEVE_ATTACKS";
/// They favor the attackers: connections stay, and one address may have all of them.
const FLAGS: [&str; 7] = [
    "--idle-timeout",
    "10m",
    "--write-timeout",
    "10m",
    "--connections-address-max",
    "10000",
    "--serve-mirrors",
];
/// Heights that are packed of a store that packs all that it may.
const PACKED: u64 = 256;
const PACKING: [&str; 4] = ["--segment-blocks", "64", "--unpacked-bytes", "0B"];
/// A chain with so many new blocks a second, each with some 40 kB of logs, and the smallest ranges of neve.
const GROWTH: f64 = 20.0;
const PACKING_ON: [&str; 4] = ["--segment-blocks", "32", "--unpacked-bytes", "0B"];
/// Heights that are packed after the attackers have sent all.
const PACKED_MEANWHILE: u64 = 64;
/// Pause of the client of packed heights.
const PAUSE: Duration = Duration::from_millis(1);

/// State of the ranges of a store.
#[derive(Clone, Copy, PartialEq)]
enum Ranges {
    /// None is packed.
    Sealed,
    /// All were packed before the attack.
    Packed,
    /// The chain grows, and one is packed after the other while the attack lasts.
    Packing,
}

impl Ranges {
    fn start(self) -> (DevnetThread, tempfile::TempDir, Neve) {
        match self {
            Self::Sealed => start(&FLAGS),
            Self::Packed => start(&[&FLAGS[..], &PACKING].concat()),
            Self::Packing => start_growing(GROWTH, &[&FLAGS[..], &PACKING_ON].concat()),
        }
    }

    fn name(self) -> &'static str {
        match self {
            Self::Sealed => "",
            Self::Packed => ", packed",
            Self::Packing => ", while packing",
        }
    }
}

/// Measures an attack from one address, from five, and from five on a store that is packed or that packs.
pub(super) fn stays_below_the_ceiling(name: &str, attack: &dyn Fn(&mut Attack<'_>)) {
    let wanted = std::env::var(ONLY).unwrap_or_default();
    for (addresses, ranges) in
        [(1, Ranges::Sealed), (5, Ranges::Sealed), (5, Ranges::Packed), (5, Ranges::Packing)]
    {
        let label = format!("{name}, {addresses} addresses{}", ranges.name());
        if label.contains(&wanted) {
            let most = measured(addresses, ranges, attack);
            eprintln!("{label}: {most} MiB");
            assert!(most <= CEILING, "{label}: {most} MiB");
        }
    }
}

/// Returns the most memory in MiB.
fn measured(addresses: usize, ranges: Ranges, attack: &dyn Fn(&mut Attack<'_>)) -> u64 {
    let (_devnet, _dir, neve) = ranges.start();
    if ranges == Ranges::Packed {
        wait_for_packed(&neve, PACKED);
    }
    let peak = Peak::watch(&neve);
    let mut open = Attack::new(&neve, if addresses == 1 { only } else { attacker });
    let over = AtomicBool::new(ranges != Ranges::Packed);
    let most = thread::scope(|scope| {
        scope.spawn(|| ask_for_packed_heights(&neve, &over));
        attack(&mut open);
        if ranges == Ranges::Packing {
            wait_for_packed(&neve, neve.count("neve_store_packed_heights") + PACKED_MEANWHILE);
        }
        let most = peak.settled() / MIB;
        over.store(true, Ordering::Relaxed);
        most
    });
    // A packed height needs memory, of which five addresses may use all.
    if ranges == Ranges::Sealed {
        others_are_served(&neve, addresses == 1);
    }
    most
}

/// Asks for one packed height after the other. While an attack lasts, neve may refuse.
fn ask_for_packed_heights(neve: &Neve, over: &AtomicBool) {
    let started = Instant::now();
    let heights = (1..PACKED).cycle().step_by(7);
    for height in heights.take_while(|_| !over.load(Ordering::Relaxed)) {
        if started.elapsed() > Duration::from_mins(10) {
            return; // the attack failed
        }
        let mut stream = connect(neve, [127, 0, 0, 2]);
        let asked = call("eth_getBlockReceipts", &format!("[\"{height:#x}\"]"));
        if stream.write_all(&post(&asked)).is_ok() {
            let _ = read(&mut std::io::BufReader::new(stream), false);
        }
        thread::park_timeout(PAUSE);
    }
}

/// A batch that is refused, with a name of four megabytes. Its errors had repeated it, six bytes for one.
fn long_name() -> String {
    let name = format!("eth_{}_subscribe", "<".repeat(4_000_000));
    let calls = batch(&call("eth_chainId", "[]"), 499);
    format!("[{},{}", call(&name, "[\"newPendingTransactions\"]"), &calls[1..])
}

/// A search for any of so many topics: 4.9 MB.
fn topic_list() -> String {
    let topics: Vec<_> = (0..70_000).map(|at| format!("\"0x{at:064x}\"")).collect();
    let topics = topics.join(",");
    call(
        "eth_getLogs",
        &format!(r#"[{{"fromBlock":"0x1","toBlock":"latest","topics":[[{topics}]]}}]"#),
    )
}

/// Ten filters of 63 kB each.
fn filters() -> Vec<u8> {
    let addresses: Vec<_> = (0..1400).map(|at| format!("\"0x{at:040x}\"")).collect();
    let filter = format!(r#"[{{"address":[{}]}}]"#, addresses.join(","));
    post(&call("eth_newFilter", &filter)).repeat(10)
}

/// A batch of 98 kB whose searches look at everything and find nothing.
fn costly() -> Vec<u8> {
    let topic = format!(r#"["0x{:064x}"]"#, 7);
    let params = format!(r#"[{{"fromBlock":"0x1","toBlock":"latest","topics":[[],[],{topic}]}}]"#);
    post(&batch(&call("eth_getLogs", &params), 500))
}

/// A request of a mirror.
fn mirrored(path: &str) -> Vec<u8> {
    format!("GET /mirror/v1/{path} HTTP/1.1\r\nHost: x\r\n\r\n").into_bytes()
}

fn through_hyper(body: &str) -> Vec<u8> {
    let request = String::from_utf8(post(body)).expect("text");
    request.replacen("\r\n", "\r\nOrigin: http://a.example\r\n", 1).into_bytes()
}

type Full = fn(&mut Attack<'_>);
const ATTACKS: [(&str, Full); 18] = [
    ("10 sockets, a name of 4 MB in a batch", |a| {
        a.send_frames(10, &frame(WHOLE, long_name().as_bytes()));
    }),
    ("10 batches with a name of 4 MB", |a| a.send(10, &post(&long_name()))),
    ("60 sockets, logs", |a| a.send_frames(60, &frame(WHOLE, all_logs().as_bytes()))),
    ("120 sockets, batches of receipts", |a| {
        a.send_frames(120, &frame(WHOLE, receipts().as_bytes()));
    }),
    ("60 batches of eth_feeHistory", |a| a.send(60, &post(&fee_histories()))),
    ("60 ids of 5 MB of <", |a| a.send(60, &post(&long_id(5_000_000)))),
    ("10 sockets, an id of 30 MB of < in a batch that is too long", |a| {
        a.send_frames(10, &frame(WHOLE, long_id_of_a_long_batch(30_000_000).as_bytes()));
    }),
    ("9,900 heads of 60 kB", |a| a.send(9900, &part_of_a_head(60_000))),
    ("9,900 heads of 16 kB", |a| a.send(9900, &part_of_a_head(16_000))),
    ("bodies and messages", |a| {
        a.send(120, &part_of_a_body());
        a.send_frames(60, &part_of_a_message());
    }),
    ("5,000 answers through hyper", |a| a.send(5000, &through_hyper(&receipts()))),
    ("5,000 subscribers", |a| {
        let logs = call("eth_subscribe", r#"["logs",{"fromBlock":"0x1"}]"#);
        a.send_frames(5000, &frame(WHOLE, logs.as_bytes()));
    }),
    ("990 replays of heads", |a| {
        let heads = call("eth_subscribe", r#"["newHeads",{"fromBlock":"0x1"}]"#);
        a.send_frames(990, &frame(WHOLE, heads.as_bytes()).repeat(16));
    }),
    ("9,800 idle connections", |a| a.send(9800, b"")),
    ("60 lists of 70,000 topics", |a| a.send(60, &post(&topic_list()))),
    ("500 clients with ten filters of 63 kB", |a| a.send(500, &filters())),
    ("340 costly batches, closed at once", |a| a.send_and_leave(340, &costly())),
    ("200 streams and downloads for mirrors", |a| {
        a.send(100, &mirrored("records?from=0"));
        a.send(100, &mirrored("segment/0"));
    }),
];

#[test]
#[ignore = "takes minutes: ./check attacks"]
fn attacks_at_their_full_size_stay_below_the_documented_ceiling() {
    for (name, attack) in ATTACKS {
        stays_below_the_ceiling(name, &attack);
    }
}
