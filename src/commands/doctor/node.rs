//! Upstreams: reachable, of the right chain, with the methods, at the right time, of a known release.

use std::io;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use serde_json::Value;

use super::releases;
use super::report::Finding;
use super::storage;
use crate::client::{CallError, PeerText, RpcClient};
use crate::commands::start::Upstreams;
use crate::config::settings::{Config, UpstreamConfig};
use crate::config::{Network, StartAt};
use crate::upstream::NodeInfo;

/// Methods that neve fetches by, each with parameters. `{}` is the head.
const METHODS: [(&str, &str); 3] =
    [("eth_blockNumber", "[]"), ("eth_getBlockByNumber", "[\"{}\",true]"), (RECEIPTS, "[\"{}\"]")];
/// The one of them that neve can do without.
const RECEIPTS: &str = "eth_getBlockReceipts";
/// Seconds that a block may be ahead of this machine's clock: consensus allows its producer 10.
const AHEAD_SECONDS_MAX: u64 = 10;
/// Age of the newest block of mainnet from which it is no longer new: the default of --ready-age-max.
const AGE_MAX: Duration = Duration::from_mins(1);

pub(super) fn check(config: &Config) -> Vec<Finding> {
    if matches!(config.source, UpstreamConfig::Dev { .. }) {
        return vec![Finding::ok("upstream", "the development chain of --dev")];
    }
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    runtime.map_or_else(|error| vec![no_runtime(&error)], |runtime| runtime.block_on(all(config)))
}

fn no_runtime(error: &io::Error) -> Finding {
    Finding::problem("upstream", format!("cannot start a runtime: {error}"), "see ulimit -a")
}

async fn all(config: &Config) -> Vec<Finding> {
    let rules = config.misses.relay.as_ref().map_or(&[][..], |relay| &relay.rules[..]);
    match Upstreams::of(&config.source, rules).await {
        Ok(upstreams) => checked(config, &upstreams).await,
        Err(error) => vec![Finding::problem("upstream", error.to_string(), "correct the setting")],
    }
}

/// Checks upstreams, those that are followed first.
async fn checked(config: &Config, upstreams: &Upstreams) -> Vec<Finding> {
    let patience = config.fetch.connect_timeout + config.fetch.request_timeout;
    // All must be of one chain: that of the setting or of the store, else that of the first upstream.
    let mut known = known_chain(config, upstreams);
    let start = first_height(config);
    let mut findings = Vec::new();
    let followed = upstreams.endpoints.iter().map(|endpoint| (endpoint, true));
    let relayed_only = upstreams.relayed_only.iter().map(|endpoint| (endpoint, false));
    for (endpoint, is_followed) in followed.chain(relayed_only) {
        let node = Node {
            name: &endpoint.name,
            is_followed,
            start: start.filter(|_| is_followed),
            rpc: RpcClient::new(endpoint, upstreams.tls.clone(), config.fetch, Arc::default()),
            info: NodeInfo::new(endpoint, upstreams.tls.clone(), patience),
        };
        let (found, chain) = node.check(known).await;
        findings.extend(found);
        known = known.or(chain);
    }
    findings
}

/// Chain of the setting or of the store.
fn known_chain(config: &Config, upstreams: &Upstreams) -> Option<u64> {
    let known = upstreams.network.map(chain_of);
    known.or_else(|| {
        config.data_dir.as_deref().and_then(storage::identity).map(|store| store.chain_id)
    })
}

/// Fixed height at which the store begins; `None` if it has its first height.
fn first_height(config: &Config) -> Option<u64> {
    let is_empty = config.data_dir.as_deref().and_then(storage::identity).is_none();
    match config.start {
        StartAt::Height(height) if is_empty => Some(height),
        _ => None,
    }
}

/// Height and time of a block.
struct NodeHead {
    height: String,
    seconds: u64,
}

/// An upstream that is checked, and the ways to it.
struct Node<'a> {
    name: &'a str,
    /// False if it gets relayed calls only.
    is_followed: bool,
    /// Height at which an empty store begins, if it is a fixed one.
    start: Option<u64>,
    rpc: RpcClient,
    /// Facts of its own, if it is a node.
    info: Option<NodeInfo>,
}

impl Node<'_> {
    /// Checks it, and returns its chain. Of one that is not followed only chain and head matter.
    async fn check(&self, expected: Option<u64>) -> (Vec<Finding>, Option<u64>) {
        match self.rpc.chain_id().await {
            Ok(chain) => (self.check_chain(chain, expected).await, Some(chain)),
            Err(error) => (vec![self.unanswered(&error)], None),
        }
    }

    async fn check_chain(&self, chain: u64, expected: Option<u64>) -> Vec<Finding> {
        if let Some(expected) = expected.filter(|expected| *expected != chain) {
            let text = format!("{}: chain {chain}, not {expected}", self.name);
            let upstream = "correct --upstream or --network, or use another --data-dir";
            let advice = if self.is_followed { upstream } else { "correct --relay-to" };
            return vec![Finding::problem("upstream", text, advice)];
        }
        let head = match self.head().await {
            Ok(head) => head,
            Err(why) => {
                let text = format!("{}: chain {chain}, no newest block: {why}", self.name);
                let advice = "wait until the node is bootstrapped, or see its log";
                return vec![Finding::problem("upstream", text, advice)];
            }
        };
        let mut findings = vec![self.standing(chain, &head)];
        findings.extend(self.early(&head));
        if self.is_followed {
            findings.push(self.methods(&head).await);
            findings.extend(self.own_facts(network_of(chain)).await);
        }
        findings
    }

    fn unanswered(&self, error: &CallError) -> Finding {
        let name = self.name;
        match error {
            CallError::Unreachable(why) => {
                let text = format!("cannot reach {name}: {why}");
                Finding::problem("upstream", text, "start the node, or correct --upstream")
            }
            CallError::Throttled { .. } => {
                let advice = "use another upstream, or lower --upstream-requests-per-second";
                Finding::problem("upstream", format!("{name}: {error}"), advice)
            }
            _ => {
                let advice = "name the node's address, or the whole address of its C-chain's RPC";
                Finding::problem("upstream", format!("{name}: {error}"), advice)
            }
        }
    }

    async fn head(&self) -> Result<NodeHead, String> {
        let block = self.rpc.call("eth_getBlockByNumber", "[\"latest\",false]").await;
        let block = block.map_err(|error| error.to_string())?;
        let block: Value = serde_json::from_slice(block.as_deref().unwrap_or(b"null"))
            .map_err(|error| error.to_string())?;
        let height = block["number"].as_str().filter(|text| quantity(text).is_some());
        let seconds = block["timestamp"].as_str().and_then(quantity);
        match (height, seconds) {
            (Some(height), Some(seconds)) => Ok(NodeHead { height: height.to_owned(), seconds }),
            _ => Err("it has no number or no time".to_owned()),
        }
    }

    /// Chain, head and age.
    fn standing(&self, chain: u64, head: &NodeHead) -> Finding {
        let name = self.name;
        let height = quantity(&head.height).unwrap_or_default();
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs();
        // Blocks have times of the past, so a head of the future shows a clock that is slow here.
        if head.seconds > now + AHEAD_SECONDS_MAX {
            let ahead = head.seconds - now;
            let text = format!("{name}: its newest block is {ahead} s ahead of this clock");
            return Finding::problem("clock", text, "synchronize the clock: see timedatectl");
        }
        let age = Duration::from_secs(now.saturating_sub(head.seconds));
        let shown = humantime::format_duration(age);
        let text = format!("{name}: chain {chain}, head {height}, {shown} old");
        // Only mainnet is never without blocks for long: on Fuji an old head may be the newest.
        if age > AGE_MAX && network_of(chain) == Some(Network::Mainnet) {
            let advice = "wait until the node has caught up, or see its log and this clock";
            return Finding::warning("upstream", text, advice);
        }
        Finding::ok("upstream", text)
    }

    /// Finds a first height that the node does not have yet.
    fn early(&self, head: &NodeHead) -> Option<Finding> {
        let height = quantity(&head.height)?;
        let start = self.start.filter(|start| *start > height)?;
        let text = format!("{}: head {height} is below --start {start}", self.name);
        let advice = "correct --start, or wait: neve stores nothing before that height";
        Some(Finding::warning("start", text, advice))
    }

    async fn methods(&self, head: &NodeHead) -> Finding {
        let mut lacking = Vec::new();
        for (method, params) in METHODS {
            if let Err(error) = self.rpc.call(method, &params.replace("{}", &head.height)).await {
                lacking.push(format!("{method} ({error})"));
            }
        }
        let name = self.name;
        if lacking.is_empty() {
            let all = METHODS.map(|(method, _)| method).join(", ");
            return Finding::ok("methods", format!("{name}: {all}"));
        }
        let text = format!("{name}: fails {}", lacking.join(", "));
        // neve can do without this one: see `with_each_receipt`.
        if lacking.iter().all(|lacking| lacking.starts_with(RECEIPTS)) {
            let advice = "neve requests receipts one by one; a node of your own is faster";
            return Finding::warning("methods", text, advice);
        }
        Finding::problem("methods", text, "use an upstream that has these methods")
    }

    /// Release of the node and its upgrades, if it says them.
    async fn own_facts(&self, network: Option<Network>) -> Vec<Finding> {
        let (name, now) = (self.name, SystemTime::now());
        let silent = || vec![Finding::ok("release", format!("{name}: does not tell its release"))];
        let Some(info) = &self.info else { return silent() };
        let version = info.call("info.getNodeVersion").await;
        let version = version.as_ref().and_then(|facts| facts["version"].as_str());
        let Some(version) = version else { return silent() };
        let version = PeerText::new(version);
        let mut findings = vec![releases::node(name, version.as_str(), network, now)];
        for (key, time) in info.upgrades().await.unwrap_or_default() {
            findings.extend(releases::scheduled(name, key.as_str(), time.as_str(), now));
        }
        findings
    }
}

fn chain_of(network: Network) -> u64 {
    network.identity().chain_id
}

fn network_of(chain: u64) -> Option<Network> {
    [Network::Mainnet, Network::Fuji].into_iter().find(|one| one.identity().chain_id == chain)
}

fn quantity(text: &str) -> Option<u64> {
    u64::from_str_radix(text.strip_prefix("0x")?, 16).ok()
}
