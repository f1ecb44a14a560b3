//! Speed of making and serving blocks, and their size.
//! `cargo run --release -p neve-devnet --example speed`

#![expect(clippy::cast_precision_loss, reason = "figures for people")]

use std::{
    array,
    hint::black_box,
    io::{self, Read, Write},
    net::{SocketAddr, TcpStream},
    thread,
    time::Instant,
};

use neve_devnet::{Chain, ChainConfig, Config, DevnetThread, Helicon, Part, Profile, Signatures};
use neve_jsonrpc::Rules;

const BLOCKS: usize = 3_000;
/// Connections that ask, and heights that each asks for: block, then receipts.
const CLIENTS: usize = 4;
const HEIGHTS: u64 = 2_000;

fn main() -> io::Result<()> {
    let c_chain = ChainConfig::c_chain(1);
    let filler = ChainConfig { signatures: Signatures::Filler, ..c_chain.clone() };
    let helicon = ChainConfig { helicon: Helicon::FromGenesis, ..filler.clone() };
    let many_logs = ChainConfig { profile: Profile::many_logs(), ..filler.clone() };
    let start = Instant::now();
    black_box(Chain::new(c_chain.clone()));
    println!("a chain with real keys is ready after {:?}", start.elapsed());
    for (name, config) in [
        ("c_chain, filler", filler.clone()),
        ("c_chain, filler, Helicon", helicon),
        ("c_chain, real", c_chain),
        ("many_logs, filler", many_logs),
        ("small, real", ChainConfig::small(1)),
    ] {
        make(name, config);
    }
    let kept = Config { chain: filler, keep_heights: 500, head: 499, ..Config::test() };
    serve("kept blocks", kept.clone())?;
    serve("blocks made again", Config { keep_heights: 1, ..kept })
}

fn make(name: &str, config: ChainConfig) {
    let start = Instant::now();
    let (mut block, mut hashes, mut receipts, mut transactions) = (0, 0, 0, 0);
    for made in Chain::new(config).take(BLOCKS) {
        block += made.answer(Part::Full, Rules::Helicon).len();
        hashes += made.answer(Part::Hashes, Rules::Helicon).len();
        receipts += made.receipts().len();
        transactions += made.transactions().len();
    }
    let rate = BLOCKS as f64 / start.elapsed().as_secs_f64();
    let mean = |sum: usize| sum as f64 / BLOCKS as f64;
    println!(
        "{name}: {rate:.0} blocks/s; {:.1} transactions, {:.0} bytes with transactions, {:.0} with \
         hashes, {:.0} of receipts",
        mean(transactions),
        mean(block),
        mean(hashes),
        mean(receipts),
    );
}

/// Clients and node share the machine, and the node has one thread.
fn serve(name: &str, config: Config) -> io::Result<()> {
    let devnet = DevnetThread::start(config)?;
    let (address, head) = (devnet.address(), devnet.latest());
    let start = Instant::now();
    let bytes: io::Result<Vec<usize>> = thread::scope(|scope| {
        let clients: [_; CLIENTS] =
            array::from_fn(|of| scope.spawn(move || client(address, of as u64, head)));
        let done = clients.into_iter().map(thread::ScopedJoinHandle::join);
        done.map(|bytes| bytes.unwrap_or_else(|_| Err(io::ErrorKind::Other.into()))).collect()
    });
    let elapsed = start.elapsed().as_secs_f64();
    let megabytes = bytes?.iter().sum::<usize>() as f64 / 1e6;
    let heights = (CLIENTS as u64 * HEIGHTS) as f64;
    println!("{name}: {:.0} heights/s, {:.0} MB/s", heights / elapsed, megabytes / elapsed);
    Ok(())
}

/// Asks for its heights; the bytes that came.
fn client(address: SocketAddr, of: u64, head: u64) -> io::Result<usize> {
    let mut stream = TcpStream::connect(address)?;
    stream.set_nodelay(true)?;
    let (mut bytes, mut buffer) = (0, vec![0; 1 << 20]);
    for step in 0..HEIGHTS {
        let height = 1 + (step * CLIENTS as u64 + of) % head;
        for (method, rest) in [("eth_getBlockByNumber", ",true"), ("eth_getBlockReceipts", "")] {
            let body = format!(
                r#"{{"jsonrpc":"2.0","id":1,"method":"{method}","params":["{height:#x}"{rest}]}}"#
            );
            let head = format!(
                "POST / HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n\
                 Content-Length: {}\r\n\r\n{body}",
                body.len()
            );
            stream.write_all(head.as_bytes())?;
            bytes += answer(&mut stream, &mut buffer)?;
        }
    }
    Ok(bytes)
}

/// Reads to the end of an answer: of one in chunks, or of a short one, which comes at once.
fn answer(stream: &mut TcpStream, buffer: &mut [u8]) -> io::Result<usize> {
    let mut bytes = 0;
    loop {
        let read = stream.read(buffer)?;
        if read == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        bytes += read;
        let end = buffer.get(..read).unwrap_or_default();
        let short = end.windows(15).take(400).any(|piece| piece == b"content-length:");
        if short || end.ends_with(b"\r\n0\r\n\r\n") || end == b"0\r\n\r\n" {
            return Ok(bytes);
        }
    }
}
