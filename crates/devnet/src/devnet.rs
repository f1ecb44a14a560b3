//! A running development node.

use std::{io, net::SocketAddr, sync::Arc, thread, time::Duration};

use neve_jsonrpc::Rules;
use tokio::{
    runtime::{Builder, Handle, Runtime},
    sync::{oneshot, watch},
};

use crate::chain::Block;
use crate::config::Config;
use crate::counters::Counters;
use crate::faults::Faults;
use crate::node::Node;
use crate::server::{Shared, listen, serve};

/// A running development node. It ends when this is dropped.
///
/// ```
/// # tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(async {
/// use neve_devnet::{Config, Devnet, Fault};
///
/// let devnet = Devnet::start(Config::test()).await?;
/// devnet.faults().inject(Fault::LyingReceipts.at(12));
/// assert_eq!(devnet.advance(3), 13);
/// println!("ask {} for block 12", devnet.http_url());
/// # Ok::<(), std::io::Error>(())
/// # }).unwrap();
/// ```
///
/// No method waits, and all may be called from any thread.
#[derive(Debug)]
pub struct Devnet {
    node: Arc<Node>,
    counters: Arc<Counters>,
    address: SocketAddr,
    shutdown: watch::Sender<bool>,
}

impl Devnet {
    /// Makes the blocks that exist at the start, then listens. Runs on the runtime that this is
    /// called on.
    pub async fn start(config: Config) -> io::Result<Self> {
        let (listener, address) = listen(config.listen).await?;
        let runtime = Handle::current();
        let made = runtime.clone();
        let node = move || Node::new(config, Faults::new(), made);
        // The first blocks take a second of computation, which must not hold the runtime up.
        let node = Arc::new(runtime.spawn_blocking(node).await.map_err(io::Error::other)?);
        let counters = Arc::new(Counters::default());
        let (shutdown, ended) = watch::channel(false);
        let shared = Shared::new(Arc::clone(&node), Arc::clone(&counters), ended.clone());
        runtime.spawn(serve(listener, address, shared));
        runtime.spawn(run_clock(Arc::clone(&node), ended));
        Ok(Self { node, counters, address, shutdown })
    }

    /// Place where it listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Address as a client of the node writes it, without a path.
    pub fn base_url(&self) -> String {
        format!("http://{}", self.address)
    }

    /// Place where it takes JSON-RPC.
    pub fn http_url(&self) -> String {
        format!("http://{}/ext/bc/C/rpc", self.address)
    }

    /// Place where it takes WebSockets.
    pub fn ws_url(&self) -> String {
        format!("ws://{}/ext/bc/C/ws", self.address)
    }

    /// Returns its faults.
    pub fn faults(&self) -> &Faults {
        &self.node.faults
    }

    /// Returns the counts of requests.
    pub fn counters(&self) -> &Counters {
        &self.counters
    }

    /// Accepts so many blocks, and executes them as configured. Gives the last accepted height.
    pub fn advance(&self, blocks: u64) -> u64 {
        self.node.advance(blocks)
    }

    /// True if blocks that are accepted from now on stay unexecuted, and with them those who ask
    /// for their receipts. False executes all.
    ///
    /// Headers settle by their own times, whatever this holds back: accept no more than two blocks
    /// behind the last executed one, or they settle what is not executed.
    pub fn hold_execution(&self, held: bool) {
        self.node.hold_execution(held);
    }

    /// Executes all accepted blocks. Gives the last height.
    pub fn execute(&self) -> u64 {
        self.node.execute_all()
    }

    /// Changes how many blocks a second it accepts by itself.
    pub fn set_rate(&self, rate: f64) {
        self.node.set_rate(rate);
    }

    /// The last accepted height.
    pub fn accepted(&self) -> u64 {
        self.node.accepted()
    }

    /// The last executed height, which clients call `latest`.
    pub fn latest(&self) -> u64 {
        self.node.latest()
    }

    /// The last settled height, which clients call `finalized` since Helicon.
    pub fn settled(&self) -> u64 {
        self.node.settled()
    }

    /// Rules by which it answers.
    pub fn rules(&self) -> Rules {
        self.node.rules()
    }

    /// A true block, whatever faults show of it.
    pub fn block(&self, height: u64) -> Option<Arc<Block>> {
        self.node.block(height)
    }

    /// Cuts all WebSockets, without a close frame.
    pub fn cut_websockets(&self) {
        self.node.cut_websockets();
    }

    /// Goes over to Helicon, as a node does at the transition block: WebSockets are cut, requests
    /// wait for `hold`, then all blocks are shown by the new rules. The next block is asynchronous.
    /// Nothing happens if it has gone over before, or is about to.
    pub fn go_over(&self, hold: Duration) {
        self.node.go_over_now(hold);
    }

    /// Replaces the blocks from a height on, as many as there are, by those that another seed
    /// makes. Subscribers hear nothing of it.
    pub fn branch(&self, height: u64, seed: u64) {
        self.node.branch(height, seed);
    }
}

impl Drop for Devnet {
    fn drop(&mut self) {
        self.shutdown.send_replace(true);
    }
}

async fn run_clock(node: Arc<Node>, mut shutdown: watch::Receiver<bool>) {
    tokio::select! {
        () = node.run_clock() => {}
        _ = shutdown.wait_for(|end| *end) => {}
    }
}

/// A development node with a thread and a runtime of its own, for a caller that has none.
#[derive(Debug)]
pub struct DevnetThread {
    // In this order they are dropped: the node first, then what it runs on.
    devnet: Devnet,
    _runtime: RuntimeThread,
}

impl DevnetThread {
    /// Starts it, and waits until it listens.
    pub fn start(config: Config) -> io::Result<Self> {
        let runtime = Builder::new_current_thread().enable_all().build()?;
        let devnet = runtime.block_on(Devnet::start(config))?;
        Ok(Self { devnet, _runtime: RuntimeThread::start(runtime)? })
    }
}

impl std::ops::Deref for DevnetThread {
    type Target = Devnet;

    fn deref(&self) -> &Devnet {
        &self.devnet
    }
}

/// A thread that drives a runtime until this is dropped.
#[derive(Debug)]
struct RuntimeThread {
    end: Option<oneshot::Sender<()>>,
    thread: Option<thread::JoinHandle<()>>,
}

impl RuntimeThread {
    fn start(runtime: Runtime) -> io::Result<Self> {
        let (end, ended) = oneshot::channel::<()>();
        let run = move || {
            // It ends by an error, when the sender is dropped.
            let _ = runtime.block_on(ended);
        };
        let thread = thread::Builder::new().name("devnet".to_owned()).spawn(run)?;
        Ok(Self { end: Some(end), thread: Some(thread) })
    }
}

impl Drop for RuntimeThread {
    fn drop(&mut self) {
        drop(self.end.take());
        if let Some(thread) = self.thread.take() {
            // If it panicked, that was printed.
            let _ = thread.join();
        }
    }
}
