//! A fresh mirror beside a copy of the same files: how long until it serves, how long until it has
//! everything, and how late a head is one hop on.
//!
//! `cargo run --release --example mirror [BLOCKS [ROUNDS]]` starts target/release/neve behind a
//! development node with blocks of mainnet's size, lets it store them all, and then, in each round,
//! copies its directory with `cp -r` and fills a new mirror from it, in turn. The mirror proves every
//! record and syncs it; `cp` does neither, so that it is also timed with a `sync` of the copied files
//! behind it. Needs room for three stores of 110 kB a block in the target directory.

use std::error::Error;
use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use neve_devnet::{Config, DevnetThread, Profile};
use serde_json::Value;
use tokio_tungstenite::tungstenite::{Message, connect};

type Failed = Box<dyn Error + Send + Sync>;

const LOOK: Duration = Duration::from_millis(5);
const HOPS: usize = 200;
const SUBSCRIBE: &str =
    r#"{"jsonrpc":"2.0","id":1,"method":"eth_subscribe","params":["newHeads"]}"#;

fn main() -> Result<(), Failed> {
    let mut arguments = std::env::args().skip(1).map(|text| text.parse::<u64>());
    let blocks = arguments.next().transpose()?.unwrap_or(4000);
    let rounds = arguments.next().transpose()?.unwrap_or(3);
    let mut config = Config::test().with_head(blocks);
    config.chain.profile = Profile::c_chain();
    let devnet = DevnetThread::start(config)?;
    let here = tempfile::Builder::new().prefix("mirror-").tempdir_in("target")?;
    let (there, url) = (here.path().join("source"), devnet.base_url());
    let source = Neve::start(&there, &["--upstream", &url, "--start", "0", "--serve-mirrors"])?;
    source.wait(|blocks_now| blocks_now["max_contiguous_height"] == blocks)?;
    for round in 0..rounds {
        println!("round {round}: {}", copy(&there, &here.path().join("copy"))?);
        let dir = here.path().join("mirror");
        println!("round {round}: {}", mirror(&dir, source.address, blocks)?);
        fs::remove_dir_all(dir)?;
    }
    let dir = here.path().join("hop");
    let follower = Neve::start(&dir, &["--mirror-from", &format!("http://{}", source.address)])?;
    follower.wait(|blocks_now| blocks_now["min_height"] == 0)?;
    println!("{}", hops(&devnet, source.address, follower.address)?);
    Ok(())
}

fn copy(from: &Path, to: &Path) -> Result<String, Failed> {
    let begun = Instant::now();
    let copied = Command::new("cp").arg("-r").arg(from).arg(to).status()?;
    let took = begun.elapsed();
    // What is copied and not synced is gone with the power; what a mirror has published is not.
    let files = fs::read_dir(to)?.collect::<Result<Vec<_>, _>>()?;
    let synced = Command::new("sync").args(files.iter().map(fs::DirEntry::path)).status()?;
    let safe = begun.elapsed();
    let bytes = fs::read_dir(to)?.flatten().filter_map(|entry| entry.metadata().ok());
    let bytes: u64 =
        bytes.map(|metadata| std::os::unix::fs::MetadataExt::blocks(&metadata) * 512).sum();
    fs::remove_dir_all(to)?;
    let all = bytes >> 20;
    Ok(format!("cp -r: {took:.2?} for {all} MB, {copied}; with sync: {safe:.2?}, {synced}"))
}

fn mirror(dir: &Path, of: SocketAddr, head: u64) -> Result<String, Failed> {
    let begun = Instant::now();
    let neve = Neve::start(dir, &["--mirror-from", &format!("http://{of}")])?;
    neve.wait(|blocks| blocks["max_contiguous_height"].is_u64())?;
    let first = begun.elapsed();
    neve.wait(|blocks| blocks["max_contiguous_height"] == head && blocks["min_height"] == 0)?;
    let (whole, cpu) = (begun.elapsed(), neve.cpu()?);
    Ok(format!("mirror: first block after {first:.2?}, all after {whole:.2?}, {cpu:.2} s of CPU"))
}

/// Measures how much later a subscriber of the mirror hears of a head than one of its source.
fn hops(devnet: &DevnetThread, there: SocketAddr, here: SocketAddr) -> Result<String, Failed> {
    let open = |address: SocketAddr| -> Result<_, Failed> {
        let mut socket = connect(format!("ws://{address}/ws"))?.0;
        socket.send(Message::text(SUBSCRIBE))?;
        socket.read()?;
        Ok(socket)
    };
    let (mut there, mut here) = (open(there)?, open(here)?);
    let mut late = Vec::new();
    for _ in 0..HOPS {
        devnet.advance(1);
        there.read()?;
        let begun = Instant::now();
        here.read()?;
        late.push(begun.elapsed());
    }
    late.sort_unstable();
    let at = |share: usize| late[(HOPS - 1) * share / 100];
    Ok(format!("one hop: p50 {:.2?}, p99 {:.2?}, max {:.2?}", at(50), at(99), at(100)))
}

struct Neve {
    child: Child,
    address: SocketAddr,
}

impl Neve {
    fn start(dir: &Path, arguments: &[&str]) -> Result<Self, Failed> {
        let mut child = Command::new("target/release/neve")
            .args(["serve", "--config", "none", "--listen", "127.0.0.1:0", "--data-dir"])
            .arg(dir)
            .args(arguments)
            .stdout(Stdio::piped())
            .env("RUST_LOG", "warn")
            .spawn()?;
        let mut line = String::new();
        BufReader::new(child.stdout.take().ok_or("no output")?).read_line(&mut line)?;
        let address = line.split("http://").nth(1).ok_or("no address")?;
        let address = address.trim_end().trim_end_matches('/').parse()?;
        Ok(Self { child, address })
    }

    /// Waits until /health's `blocks` are as wanted.
    fn wait(&self, done: impl Fn(&Value) -> bool) -> Result<(), Failed> {
        loop {
            let mut stream = TcpStream::connect(self.address)?;
            stream.write_all(b"GET /health HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")?;
            let mut answer = String::new();
            stream.read_to_string(&mut answer)?;
            let body = answer.split_once("\r\n\r\n").map_or("", |(_, body)| body);
            let health: Value = serde_json::from_str(body)?;
            if done(&health["blocks"]) {
                return Ok(());
            }
            std::thread::park_timeout(LOOK);
        }
    }

    /// Seconds of processor time so far (proc(5), `stat`: fields 14 and 15).
    fn cpu(&self) -> Result<f64, Failed> {
        let stat = fs::read_to_string(format!("/proc/{}/stat", self.child.id()))?;
        let fields: Vec<&str> = stat.rsplit(')').next().unwrap_or("").split_whitespace().collect();
        let ticks = fields[11].parse::<f64>()? + fields[12].parse::<f64>()?;
        Ok(ticks / 100.0)
    }
}

impl Drop for Neve {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
