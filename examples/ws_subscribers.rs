//! Many subscribers to `newHeads`: how late the last one hears of a block, what that costs, and
//! what a subscriber takes in memory.
//!
//! `cargo run --release --example ws_subscribers [SUBSCRIBERS [BLOCKS]]` starts target/release/neve
//! with one serving thread behind a development node of its own, subscribes, and has the node
//! accept blocks of mainnet's size, four a second. The clock of a block starts when the node
//! accepts it, so its way into the store counts too; the spread is counted from the first
//! subscriber that heard.

#![allow(
    clippy::cast_precision_loss,
    clippy::cast_sign_loss,
    reason = "figures for people, all of them small"
)]

use std::error::Error;
use std::io::{BufRead, BufReader, Read};
use std::net::SocketAddr;
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use neve_devnet::{Config, DevnetThread, Profile};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

type Failed = Box<dyn Error + Send + Sync>;

const HANDSHAKE: &[u8] = b"GET /ws HTTP/1.1\r\nHost: localhost\r\nUpgrade: websocket\r\n\
    Connection: Upgrade\r\nSec-WebSocket-Version: 13\r\n\
    Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n";
const SUBSCRIBE: &[u8] =
    br#"{"jsonrpc":"2.0","id":1,"method":"eth_subscribe","params":["newHeads"]}"#;
const PAUSE: Duration = Duration::from_millis(250);
const HEAD: u64 = 20;

/// Time when each subscriber heard of each block.
type Heard = Arc<Mutex<Vec<Vec<Instant>>>>;

fn main() -> Result<(), Failed> {
    let mut arguments = std::env::args().skip(1).map(|text| text.parse::<usize>());
    let subscribers = arguments.next().transpose()?.unwrap_or(10_000);
    let blocks = arguments.next().transpose()?.unwrap_or(40);
    let most = getrlimit(Resource::Nofile).maximum;
    setrlimit(Resource::Nofile, Rlimit { current: most, maximum: most })?;
    let mut config = Config::test().with_head(HEAD);
    config.chain.profile = Profile::c_chain();
    let devnet = DevnetThread::start(config)?;
    let dir = tempfile::tempdir()?;
    let mut server = Server::start(&devnet, &dir.path().display().to_string())?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let measured = runtime.block_on(measure(&mut server, &devnet, subscribers, blocks));
    server.child.kill()?;
    server.child.wait()?;
    measured
}

async fn measure(
    server: &mut Server,
    devnet: &DevnetThread,
    subscribers: usize,
    blocks: usize,
) -> Result<(), Failed> {
    while server.metric("neve_head_height").await.unwrap_or(0.0) < HEAD as f64 {
        tokio::time::sleep(PAUSE).await;
    }
    let heard: Heard = Arc::new(Mutex::new(vec![Vec::with_capacity(subscribers); blocks]));
    let before = server.memory().await?;
    for _ in 0..subscribers {
        let stream = subscribe(server.address).await?;
        let heard = Arc::clone(&heard);
        tokio::spawn(async move {
            if let Err(error) = listen(stream, &heard).await {
                eprintln!("a subscriber ended: {error}");
            }
        });
    }
    let (idle, cpu) = (server.memory().await?, server.cpu()?);
    let mut accepted = Vec::new();
    for _ in 0..blocks {
        accepted.push(Instant::now());
        devnet.advance(1);
        tokio::time::sleep(PAUSE).await;
    }
    tokio::time::sleep(Duration::from_secs(2)).await;
    let (busy, cpu) = (server.memory().await?, server.cpu()? - cpu);
    let resident = server.metric("process_resident_memory_bytes").await? / 1e6;
    report(&heard.lock().map_err(|_| "poisoned")?, &accepted, subscribers);
    let notifications = (subscribers * blocks) as f64;
    println!(
        "CPU of the server for each notification, everything included: {:.1} us",
        1e6 * cpu / notifications
    );
    println!("anonymous memory: {before:.1} MB, with subscribers {idle:.1} MB, after {busy:.1} MB");
    println!("  that is {:.1} kB for each subscriber", (busy - before) * 1e3 / subscribers as f64);
    println!("resident memory: {resident:.1} MB");
    Ok(())
}

fn report(heard: &[Vec<Instant>], accepted: &[Instant], subscribers: usize) {
    let (mut lags, mut spreads) = (Vec::new(), Vec::new());
    for (block, accepted) in heard.iter().zip(accepted) {
        assert_eq!(block.len(), subscribers, "somebody has not heard");
        let first = block.iter().min().expect("somebody has heard");
        let ms = |since: &Instant, at: &Instant| at.duration_since(*since).as_secs_f64() * 1e3;
        lags.extend(block.iter().map(|at| ms(accepted, at)));
        spreads.extend(block.iter().map(|at| ms(first, at)));
    }
    for (what, mut all) in [("acceptance", lags), ("first subscriber", spreads)] {
        all.sort_by(f64::total_cmp);
        let at = |share: f64| all[((all.len() - 1) as f64 * share) as usize];
        let (half, most, last) = (at(0.5), at(0.99), at(1.0));
        println!("ms from the {what}: p50 {half:.1}, p99 {most:.1}, max {last:.1}");
    }
}

async fn subscribe(address: SocketAddr) -> Result<TcpStream, Failed> {
    let mut stream = TcpStream::connect(address).await?;
    stream.write_all(HANDSHAKE).await?;
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        head.push(stream.read_u8().await?);
    }
    // A text frame with a mask of zeros.
    let lead = [0x81, 0x80 | SUBSCRIBE.len() as u8, 0, 0, 0, 0];
    stream.write_all(&[&lead, SUBSCRIBE].concat()).await?;
    frame(&mut stream, &mut Vec::new()).await?;
    Ok(stream)
}

async fn listen(mut stream: TcpStream, heard: &Heard) -> Result<(), Failed> {
    let mut text = Vec::new();
    loop {
        frame(&mut stream, &mut text).await?;
        let now = Instant::now();
        let text = std::str::from_utf8(&text)?;
        let Some((_, rest)) = text.split_once("\"number\":\"0x") else { continue };
        let digits = rest.split('"').next().unwrap_or_default();
        let block = u64::from_str_radix(digits, 16)? - HEAD - 1;
        if let Some(block) = heard.lock().map_err(|_| "poisoned")?.get_mut(block as usize) {
            block.push(now);
        }
    }
}

/// Reads a frame from the server, which is not masked.
async fn frame(stream: &mut TcpStream, into: &mut Vec<u8>) -> Result<(), Failed> {
    stream.read_u8().await?;
    let len = match stream.read_u8().await? {
        126 => stream.read_u16().await?.into(),
        len => usize::from(len),
    };
    into.resize(len, 0);
    stream.read_exact(into).await?;
    Ok(())
}

/// The server, and what it says of itself.
struct Server {
    child: Child,
    address: SocketAddr,
    /// Address of /metrics.
    admin: SocketAddr,
}

impl Server {
    fn start(devnet: &DevnetThread, dir: &str) -> Result<Self, Failed> {
        let url = devnet.base_url();
        let mut command = Command::new("target/release/neve");
        command.args(["serve", "--config", "none", "--data-dir", dir]);
        command.args(["--upstream", &url, "--start", "0"]);
        command.args(["--threads", "1", "--listen", "127.0.0.1:0"]);
        command.args(["--connections-max", "100000", "--connections-address-max", "100000"]);
        let mut child = command.stdout(Stdio::piped()).stderr(Stdio::null()).spawn()?;
        let lines = BufReader::new(child.stdout.take().ok_or("not piped")?).lines().take(3);
        let greeting = lines.collect::<Result<Vec<_>, _>>()?;
        let address = |line: usize| -> Result<SocketAddr, Failed> {
            let rest = greeting.get(line).and_then(|line| line.split("http://").nth(1));
            Ok(rest.and_then(|rest| rest.split('/').next()).ok_or("no address")?.parse()?)
        };
        Ok(Self { address: address(0)?, admin: address(2)?, child })
    }

    async fn metric(&self, name: &str) -> Result<f64, Failed> {
        let mut stream = TcpStream::connect(self.admin).await?;
        stream.write_all(b"GET /metrics HTTP/1.0\r\nHost: localhost\r\n\r\n").await?;
        let mut page = String::new();
        stream.read_to_string(&mut page).await?;
        let line = page.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
        Ok(line.ok_or("no such metric")?.parse()?)
    }

    async fn memory(&self) -> Result<f64, Failed> {
        Ok(self.metric("neve_memory_anonymous_bytes").await? / 1e6)
    }

    /// Seconds of processor time so far, of all threads.
    fn cpu(&self) -> Result<f64, Failed> {
        let mut text = String::new();
        std::fs::File::open(format!("/proc/{}/stat", self.child.id()))?
            .read_to_string(&mut text)?;
        let fields = text.rsplit(')').next().ok_or("no fields")?;
        let fields: Vec<_> = fields.split_whitespace().collect();
        let ticks = fields[11].parse::<f64>()? + fields[12].parse::<f64>()?;
        Ok(ticks / 100.0) // USER_HZ is 100 everywhere
    }
}
