//! Balance of connections between workers.

use std::collections::BTreeMap;
use std::fs;

use neve_devnet::{Config, DevnetThread};

use crate::support::client::Client;
use crate::support::neve::{LIMIT, Neve, fresh_dir};
use crate::support::node::wait::{Miss, wait_until};

const WORKERS: usize = 4;
/// Requests enough that other work of a thread takes less time meanwhile.
const REQUESTS: usize = 100;

/// Nanoseconds that each thread of the fast path ran (proc(5), `schedstat`). A thread need not sleep between two
/// requests, so the times that it woke say less.
fn run_times(neve: &Neve) -> BTreeMap<String, u64> {
    let tasks = fs::read_dir(format!("/proc/{}/task", neve.pid())).unwrap();
    let of = |task: fs::DirEntry| {
        let name = fs::read_to_string(task.path().join("comm")).ok()?;
        let times = fs::read_to_string(task.path().join("schedstat")).ok()?;
        let ran = times.split(' ').next()?.parse().unwrap();
        name.starts_with("http-fast-").then(|| (name.trim().to_owned(), ran))
    };
    tasks.filter_map(|task| of(task.unwrap())).collect()
}

/// The thread that answers on this connection.
fn thread_of(neve: &Neve, client: &mut Client) -> String {
    let before = run_times(neve);
    (0..REQUESTS).for_each(|_| drop(client.call("eth_chainId", "[]")));
    let after = run_times(neve);
    assert_eq!(after.len(), WORKERS);
    let (name, _) = after.iter().max_by_key(|(name, ran)| *ran - before[*name]).unwrap();
    name.clone()
}

/// Connections by the threads that have them.
fn spread(neve: &Neve, open: &mut [Client]) -> BTreeMap<String, usize> {
    let mut spread = BTreeMap::new();
    for client in open {
        *spread.entry(thread_of(neve, client)).or_default() += 1;
    }
    spread
}

/// True if these connections are spread as evenly as can be.
fn assert_even(neve: &Neve, open: &mut [Client]) {
    let spread = spread(neve, open);
    let count = |at| spread.get(&format!("http-fast-{at}")).copied().unwrap_or_default();
    let counts: Vec<usize> = (0..WORKERS).map(count).collect();
    let (least, most) = (counts.iter().min().unwrap(), counts.iter().max().unwrap());
    assert!(most - least <= 1, "{} connections: {spread:?}", open.len());
}

#[test]
fn connections_are_spread_evenly_whichever_of_them_end() {
    let devnet = DevnetThread::start(Config::test()).unwrap();
    let (dir, url, threads) = (fresh_dir(), devnet.base_url(), WORKERS.to_string());
    let neve =
        Neve::start(dir.path(), &["--upstream", &url, "--start", "0", "--threads", &threads]);
    neve.wait_for_head(devnet.latest());
    let mut asker = neve.admin();
    let mut wait_until_open = |count: usize| {
        let open = || {
            let health = asker.get("/health").json();
            let all = health["connections"] == count + 1;
            if all { Ok(()) } else { Err(Miss::NotYet(health.to_string())) }
        };
        wait_until("no others are open", LIMIT, open).unwrap();
    };
    let open = |count| (0..count).map(|_| neve.client()).collect::<Vec<Client>>();
    for count in 1..=2 * WORKERS + 1 {
        wait_until_open(0);
        assert_even(&neve, &mut open(count));
    }
    wait_until_open(0);
    // All connections of two workers end, and as many come again.
    let mut clients = open(4 * WORKERS);
    let gone = ["http-fast-0", "http-fast-1"];
    clients.retain_mut(|client| !gone.contains(&thread_of(&neve, client).as_str()));
    let left = clients.len();
    wait_until_open(left);
    clients.extend(open(4 * WORKERS - left));
    assert_even(&neve, &mut clients);
}
