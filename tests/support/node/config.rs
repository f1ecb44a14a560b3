//! Settings of a node: flags, the C-chain's configuration, the upgrade file.

use std::path::Path;
use std::time::{Duration, SystemTime};

use serde_json::{Map, Value, json};

/// A network id that accepts an upgrade file; the named networks refuse one.
const CUSTOM_NETWORK: &str = "115115";
/// Time of every upgrade up to Granite on a custom network: the genesis block's own.
const GENESIS_TIME: &str = "2020-12-05T05:00:00Z";

/// Upgrades that are active from genesis on a custom network; Helicon is the one with a choice.
const PAST_UPGRADES: [&str; 14] = [
    "apricotPhase1Time",
    "apricotPhase2Time",
    "apricotPhase3Time",
    "apricotPhase4Time",
    "apricotPhase5Time",
    "apricotPhasePre6Time",
    "apricotPhase6Time",
    "apricotPhasePost6Time",
    "banffTime",
    "cortinaTime",
    "durangoTime",
    "etnaTime",
    "fortunaTime",
    "graniteTime",
];

/// Settings that may differ from one node to the next.
#[derive(Clone, Debug, Default)]
pub(crate) struct Options {
    /// Makes the network a custom one whose Helicon upgrade comes this long after the start;
    /// zero means active from genesis. Only a binary from v1.15 on does anything then.
    pub(crate) helicon_after: Option<Duration>,
    /// Laid over the C-chain's configuration, for example `batch-request-limit`.
    pub(crate) c_chain: Map<String, Value>,
    /// Further flags of avalanchego, for example `--http-write-timeout=2s`.
    pub(crate) flags: Vec<String>,
}

/// The two loopback ports of a node.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Ports {
    /// Port of JSON-RPC.
    pub(crate) http: u16,
    /// Port for peers: no peer ever calls there, but avalanchego listens.
    pub(crate) staking: u16,
}

/// Writes the files that [`flags`] points at.
pub(crate) fn write_files(dir: &Path, options: &Options) {
    write(&dir.join("chains/C/config.json"), &c_chain(options));
    std::fs::create_dir_all(dir.join("plugins")).expect("a fresh directory takes a folder");
    if let Some(after) = options.helicon_after {
        write(&dir.join("upgrade.json"), &upgrades(after));
    }
}

/// Every flag: one node that is its own whole network and speaks on loopback only.
pub(crate) fn flags(dir: &Path, ports: Ports, options: &Options) -> Vec<String> {
    let at = |name: &str| dir.join(name).display().to_string();
    let mut flags = vec![
        "--sybil-protection-enabled=false".to_owned(),
        "--http-host=127.0.0.1".to_owned(),
        "--staking-host=127.0.0.1".to_owned(),
        "--public-ip=127.0.0.1".to_owned(),
        "--bootstrap-ips=".to_owned(),
        "--bootstrap-ids=".to_owned(),
        "--staking-ephemeral-cert-enabled=true".to_owned(),
        "--staking-ephemeral-signer-enabled=true".to_owned(),
        "--snow-sample-size=1".to_owned(),
        "--snow-quorum-size=1".to_owned(),
        "--network-health-min-conn-peers=0".to_owned(),
        "--health-check-frequency=5s".to_owned(),
        "--fd-limit=8192".to_owned(),
        // The node ends itself where less than 3 % of the disk are free: 7 GB of 250.
        "--system-tracker-disk-required-available-space-percentage=0".to_owned(),
        "--system-tracker-disk-warning-available-space-percentage=0".to_owned(),
        format!("--http-port={}", ports.http),
        format!("--staking-port={}", ports.staking),
        format!("--data-dir={}", at("data")),
        format!("--plugin-dir={}", at("plugins")),
        format!("--chain-config-dir={}", at("chains")),
    ];
    flags.extend(network(options.helicon_after.is_some(), &at("upgrade.json")));
    flags.extend(options.flags.iter().cloned());
    flags
}

/// The network's name; only a custom one reads an upgrade file.
fn network(custom: bool, upgrade_file: &str) -> Vec<String> {
    if custom {
        vec![format!("--network-id={CUSTOM_NETWORK}"), format!("--upgrade-file={upgrade_file}")]
    } else {
        vec!["--network-id=local".to_owned()]
    }
}

/// An archive with every read API, under the names of v1.14 (`eth-apis`) and of v1.15 (`apis`).
fn c_chain(options: &Options) -> Value {
    let mut config = json!({
        "eth-apis": [
            "eth", "eth-filter", "net", "web3", "internal-eth", "internal-blockchain",
            "internal-transaction", "internal-tx-pool", "internal-debug", "debug", "debug-tracer"
        ],
        "apis": [
            "web3", "net", "txpool", "price", "chain", "tx", "subscription", "avalanche",
            "trace", "db"
        ],
        "pruning-enabled": false,
        "state-sync-enabled": false,
        "allow-unprotected-txs": true,
    });
    let fields = config.as_object_mut().expect("the literal above is an object");
    if options.helicon_after.is_none() {
        // debug_dumpBlock and its like need it; they are gone with Helicon.
        fields.insert("preimages-enabled".to_owned(), Value::Bool(true));
    }
    fields.extend(options.c_chain.clone());
    config
}

/// All upgrades at genesis, and Helicon `after` from now or, for zero, at genesis as well.
fn upgrades(after: Duration) -> Value {
    let helicon = if after.is_zero() { GENESIS_TIME.to_owned() } else { utc(after) };
    let mut file = json!({
        "apricotPhase4MinPChainHeight": 0,
        "cortinaXChainStopVertexID": "11111111111111111111111111111111LpoYY",
        "graniteEpochDuration": 30_000_000_000_u64,
        "heliconTime": helicon,
    });
    let fields = file.as_object_mut().expect("the literal above is an object");
    fields.extend(PAST_UPGRADES.map(|name| (name.to_owned(), Value::from(GENESIS_TIME))));
    file
}

/// The second `after` from now, as RFC 3339 writes it in UTC.
fn utc(after: Duration) -> String {
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
    let seconds = (now.expect("the clock is past 1970") + after).as_secs();
    let (year, month, day) = civil(seconds / 86_400);
    let (hour, minute, second) = (seconds / 3600 % 24, seconds / 60 % 60, seconds % 60);
    format!("{year}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}Z")
}

/// Year, month and day of the day so many days after 1970-01-01, counted off year by year.
fn civil(mut days: u64) -> (u64, u64, u64) {
    let mut year = 1970;
    while days >= 365 + leap(year) {
        days -= 365 + leap(year);
        year += 1;
    }
    let months = [31, 28 + leap(year), 31, 30, 31, 30, 31, 31, 30, 31, 30, 31];
    let mut month = 1;
    for length in months {
        if days < length {
            break;
        }
        days -= length;
        month += 1;
    }
    (year, month, days + 1)
}

/// Returns 1 in a leap year, else 0.
fn leap(year: u64) -> u64 {
    u64::from(year.is_multiple_of(4) && (!year.is_multiple_of(100) || year.is_multiple_of(400)))
}

/// Writes JSON, making the folders on the way.
fn write(path: &Path, content: &Value) {
    let folder = path.parent().expect("every path here has a folder");
    std::fs::create_dir_all(folder)
        .and_then(|()| std::fs::write(path, content.to_string()))
        .unwrap_or_else(|why| panic!("{}: {why}", path.display()));
}
