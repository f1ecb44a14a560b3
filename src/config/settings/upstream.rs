//! Upstreams, and the limits of requests to them.

use std::num::NonZeroUsize;
use std::path::PathBuf;
use std::time::Duration;

use neve_chain::AdmittedKeys;
use neve_record::coding::Coding;

use super::ingest::{Senders, admitted_keys};
use super::relay::{relayed_only, relays};
use super::store::codings;
use crate::config::endpoint::Endpoint;
use crate::config::error::ConfigError;
use crate::config::network::Network;
use crate::config::relay_rule::RelayRule;
use crate::config::setting::{Group, SWITCH, Setting, bytes, count, duration, one_of, rate, text};
use crate::config::units::Rate;
use crate::config::values::Values;

/// Settings of the upstreams.
pub(super) const UPSTREAM: Group = Group {
    title: "Upstream",
    settings: &[
        Setting::new(
            "upstream",
            text::<String>("URL").many().secret(),
            "A node: its base address (http://HOST:9650) or the URL of its C-chain. Of several, neve \
             requests each height from the one that will likely respond first.",
        )
        .brief()
        .reloads(),
        Setting::new(
            "network",
            one_of::<Network>("mainnet|fuji"),
            "A public network, whose chain neve expects. Its public API is the upstream, unless one \
             is named.",
        )
        .brief(),
        Setting::new(
            "upstream-ws",
            text::<String>("URL|none").many().secret(),
            "WebSocket of the node, if it is not the one that belongs to the upstream's URL; \
             `none` to poll instead. The n-th is the n-th upstream's.",
        )
        .reloads(),
        Setting::new(
            "upstream-header-file",
            text::<PathBuf>("FILE").many(),
            "A file of at most 64 KiB with a line `Name: value` for each HTTP header that goes with \
             every request to the upstreams: for keys. One is for all that are followed; else the n-th \
             (or `none`) is the n-th upstream's, then that of --mirror-from, then those of --relay-to, \
             which may be left out.",
        )
        .reloads(),
        Setting::new(
            "upstream-ca",
            text::<PathBuf>("FILE"),
            "A certificate authority of your own (PEM) for an https upstream.",
        )
        .reloads(),
        Setting::new(
            "upstream-quorum",
            count("1", "100"),
            "Upstreams that must have the same block at a height before neve serves it.",
        )
        .or("1"),
        Setting::new(
            "upstream-requests-per-second",
            rate("0.01", "1000000").or_none("RATE|none"),
            "Requests a second to each upstream. Beyond it: the requests wait.",
        )
        .otherwise("20 to Avalanche's public API, else none")
        .reloads(),
        Setting::new(
            "upstream-concurrency-max",
            count("1", "1024"),
            "Heights in flight of each upstream. neve uses fewer while more would not be quicker.",
        )
        .or("64"),
        Setting::new(
            "upstream-response-bytes-max",
            bytes("1B", "4GiB"),
            "Bytes of an upstream's response. Beyond it: neve discards the response.",
        )
        .or("64MiB"),
        Setting::new(
            "relayed-bytes-max",
            bytes("64B", "1MiB"),
            "Bytes of a result that only the upstream knows: client version, chain configuration, \
             modules, prices, peers. Beyond it: a miss.",
        )
        .or("16KiB"),
        Setting::new(
            "upstream-connect-timeout",
            duration("10ms", "10m"),
            "Time that connecting to an upstream may take.",
        )
        .or("5s"),
        Setting::new(
            "upstream-request-timeout",
            duration("100ms", "1h"),
            "Time that an upstream's response may take.",
        )
        .or("35s"),
        Setting::new(
            "upstream-ws-idle-timeout",
            duration("100ms", "1d"),
            "Time that the WebSocket to an upstream may be silent, pings included. Beyond it: \
             neve connects again.",
        )
        .or("30s"),
        Setting::new(
            "upstream-poll-interval",
            duration("10ms", "1d"),
            "Time between requests for the head without a WebSocket; with one, ten times as long.",
        )
        .or("500ms"),
    ],
};

/// Settings of the embedded development chain.
pub(super) const DEVELOPMENT: Group = Group {
    title: "Development",
    settings: &[
        Setting::new(
            "dev",
            SWITCH,
            "Run on an embedded development chain, a new one at each start. Without --data-dir \
             the store is in a temporary directory.",
        )
        .flag_only()
        .brief(),
        Setting::new("dev-rate", rate("0", "1000"), "Blocks a second of the development chain.")
            .otherwise("1")
            .flag_only(),
    ],
};

/// Source of blocks.
#[derive(Debug)]
pub enum UpstreamConfig {
    /// Nodes, or what answers like them.
    Upstream {
        /// Endpoints of the upstreams, in their order.
        endpoints: Vec<Endpoint>,
        /// True if the last endpoint is the mirror source.
        mirror: bool,
        /// The network that they must be on.
        network: Option<Network>,
        /// A certificate authority to trust.
        ca: Option<PathBuf>,
        /// Files with HTTP headers: none, one for all endpoints, or one for each.
        header_files: Vec<PathBuf>,
    },
    /// The embedded development chain.
    Dev {
        /// Blocks a second.
        rate: f64,
    },
}

/// Settings of fetching from upstreams.
#[derive(Debug, Clone, Copy)]
pub struct FetchConfig {
    /// Heights asked for at a time, of each upstream, at most. At 100 ms a round trip 64 are 640 a
    /// second; next door the window stays smaller by itself.
    pub concurrency: usize,
    /// Bytes of blocks on their way. 32 MiB are some hundred blocks of mainnet, which
    /// are counted three times while they are made.
    pub ingest_bytes_max: usize,
    /// Threads that prove while catching up.
    pub prove_threads: usize,
    /// Upstreams that must agree on a hash.
    pub quorum: usize,
    /// Requests a second to each upstream; `None` for what suits it.
    pub requests_per_second: Option<Option<f64>>,
    /// Bytes of one answer. The largest block of mainnet with receipts is below 2 MiB.
    pub response_bytes_max: usize,
    /// Bytes of a result that only the upstream knows. The longest of a node has 1.2 kB.
    pub relayed_bytes_max: usize,
    /// Time to connect.
    pub connect_timeout: Duration,
    /// Time for an answer: a node gives up after 30 s.
    pub request_timeout: Duration,
    /// Time without a frame after which a WebSocket is dead.
    pub ws_idle_timeout: Duration,
    /// Time between requests for the head.
    pub poll_interval: Duration,
    /// Blocks whose senders are recovered.
    pub recover_senders: Senders,
    /// Keys that answers may have besides the known ones. None unless asked for: clients that
    /// ignore case could take an unknown key for a known one.
    pub admitted: AdmittedKeys,
    /// Codings in which large parts are stored as well. None by default: a node sends uncompressed
    /// bytes to every client, and a front often compresses already.
    pub precompress: &'static [Coding],
}

impl FetchConfig {
    pub(super) fn of(values: &Values) -> Result<Self, ConfigError> {
        let cores = std::thread::available_parallelism().map_or(1, NonZeroUsize::get);
        Ok(Self {
            concurrency: values.count("upstream-concurrency-max")?,
            ingest_bytes_max: values.bytes("ingest-bytes-max")?,
            prove_threads: values.get::<usize>("prove-threads")?.unwrap_or(cores),
            quorum: values.count("upstream-quorum")?,
            requests_per_second: rate_of(values)?.map(|rate| rate.0),
            response_bytes_max: values.bytes("upstream-response-bytes-max")?,
            relayed_bytes_max: values.bytes("relayed-bytes-max")?,
            connect_timeout: values.duration("upstream-connect-timeout")?,
            request_timeout: values.duration("upstream-request-timeout")?,
            ws_idle_timeout: values.duration("upstream-ws-idle-timeout")?,
            poll_interval: values.duration("upstream-poll-interval")?,
            recover_senders: values.word::<Senders>("recover-senders")?,
            admitted: admitted(values)?,
            precompress: codings(values)?,
        })
    }
}

fn rate_of(values: &Values) -> Result<Option<Rate>, ConfigError> {
    values.get("upstream-requests-per-second")
}

fn admitted(values: &Values) -> Result<AdmittedKeys, ConfigError> {
    let parsed = admitted_keys(values.texts("admit-keys"));
    parsed.map_err(|(name, why)| values.wrong("admit-keys", &name, why))
}

/// Settings that name an upstream, and so do not go with the development chain.
const SOURCES: [&str; 7] = [
    "upstream",
    "network",
    "mirror-from",
    "archive",
    "upstream-ws",
    "upstream-header-file",
    "upstream-ca",
];

impl UpstreamConfig {
    pub(super) fn of(values: &Values) -> Result<Self, ConfigError> {
        let rate = values.get::<f64>("dev-rate")?;
        if values.switch("dev") {
            return Self::dev(values, rate);
        }
        if rate.is_some() {
            return values.refuse("dev-rate", "needs --dev");
        }
        let network = values.words("network")?.pop();
        let mirror = values.get::<String>("mirror-from")?;
        let endpoints = endpoints(values, network, mirror.as_deref())?;
        check_upstreams(values, &endpoints)?;
        Ok(Self::Upstream {
            endpoints,
            mirror: mirror.is_some(),
            network,
            ca: values.get("upstream-ca")?,
            header_files: values.list("upstream-header-file")?,
        })
    }

    /// Returns the development chain.
    fn dev(values: &Values, rate: Option<f64>) -> Result<Self, ConfigError> {
        match SOURCES.into_iter().find(|name| values.is_given(name)) {
            Some(name) => values.refuse(name, "cannot be used with --dev; leave one of them out"),
            None => Ok(Self::Dev { rate: rate.unwrap_or(1.0) }),
        }
    }
}

/// Checks the settings that go with some upstreams only.
fn check_upstreams(values: &Values, endpoints: &[Endpoint]) -> Result<(), ConfigError> {
    if endpoints.is_empty() {
        without_upstream(values)?;
    }
    let relayed_only = relayed_only(&values.list::<RelayRule>("relay-to")?, endpoints);
    header_files(values, endpoints.len(), relayed_only.len())?;
    other_paths(values, endpoints)?;
    let upstreams = endpoints.len().max(1);
    // More than there are could never agree, and no height would be believed.
    if !(1..=upstreams).contains(&values.count("upstream-quorum")?) {
        let why = format!("allowed: 1 to {upstreams}, the number of upstreams");
        return values.refuse("upstream-quorum", why);
    }
    Ok(())
}

impl UpstreamConfig {
    /// Returns no upstream, only the network.
    pub(super) fn none(values: &Values) -> Result<Self, ConfigError> {
        if values.switch("dev") {
            return values.refuse("dev", "starts a chain of its own; leave it out");
        }
        Ok(Self::Upstream {
            endpoints: Vec::new(),
            mirror: false,
            network: values.words("network")?.pop(),
            ca: None,
            header_files: Vec::new(),
        })
    }
}

/// Returns the upstreams in their order, the one that is mirrored last.
fn endpoints(
    values: &Values,
    network: Option<Network>,
    mirror: Option<&str>,
) -> Result<Vec<Endpoint>, ConfigError> {
    let urls = urls(values, network, mirror)?;
    let websockets = values.texts("upstream-ws");
    if let Some(ws) = websockets.get(urls.len()) {
        let why = format!("there are {} upstreams; leave it out", urls.len());
        return Err(values.wrong("upstream-ws", ws, why));
    }
    let endpoints = urls.iter().enumerate();
    let endpoints = endpoints.map(|(at, url)| endpoint(values, url, websockets.get(at)));
    let mut endpoints: Vec<Endpoint> = endpoints.collect::<Result<_, _>>()?;
    if let Some(url) = mirror {
        let parsed = Endpoint::parse(url).map_err(|why| values.wrong("mirror-from", url, why));
        endpoints.push(parsed?);
    }
    each_once(values, &endpoints, urls.len())?;
    Endpoint::number_names(&mut endpoints);
    Ok(endpoints)
}

/// Returns the addresses of upstreams that are not mirrored, in their order.
fn urls(
    values: &Values,
    network: Option<Network>,
    mirror: Option<&str>,
) -> Result<Vec<String>, ConfigError> {
    let public = match network {
        Some(Network::Fuji) => "https://api.avax-test.network",
        // Without a network this address is not used.
        _ => "https://api.avax.network",
    };
    Ok(match (values.texts("upstream"), mirror, network) {
        // With a mirror source the public API is not asked unless it is named.
        ([], Some(_), _) => Vec::new(),
        // A replica may have no upstream: `without_upstream` checks the rest.
        ([], None, None) if values.is_given("archive") => Vec::new(),
        ([], None, None) => return Err(ConfigError::NoSource),
        ([], None, Some(_)) => vec![public.to_owned()],
        (urls, ..) => urls.to_vec(),
    })
}

/// Checks the settings of a replica without an upstream.
fn without_upstream(values: &Values) -> Result<(), ConfigError> {
    if !values.is_given("archive-anchor") {
        let why = "needs --upstream or --mirror-from, or --archive-anchor HEIGHT:HASH to begin at";
        return values.refuse("archive", why);
    }
    if relays(values)? {
        return values.refuse("on-miss", "relay needs an --upstream");
    }
    Ok(())
}

fn endpoint(values: &Values, url: &str, ws: Option<&String>) -> Result<Endpoint, ConfigError> {
    let mut endpoint = Endpoint::parse(url).map_err(|why| values.wrong("upstream", url, why))?;
    if let Some(ws) = ws {
        endpoint.ws = Endpoint::parse_ws(ws).map_err(|why| values.wrong("upstream-ws", ws, why))?;
    }
    Ok(endpoint)
}

/// Fails if an upstream is named twice: it would agree with itself. The last of `endpoints` may be
/// mirrored.
fn each_once(values: &Values, endpoints: &[Endpoint], urls: usize) -> Result<(), ConfigError> {
    for (at, endpoint) in endpoints.iter().enumerate() {
        if endpoints[..at].iter().any(|other| other.is_same(endpoint)) {
            let name = if at < urls { "upstream" } else { "mirror-from" };
            let why = "named twice; name each upstream once, also with --mirror-from";
            return Err(values.wrong(name, &endpoint.rpc.to_string(), why));
        }
    }
    Ok(())
}

/// Checks that the place of other paths is known at each upstream that is followed.
fn other_paths(values: &Values, endpoints: &[Endpoint]) -> Result<(), ConfigError> {
    if values.texts("relay-paths").is_empty() {
        return Ok(());
    }
    match endpoints.iter().find(|endpoint| endpoint.node_path("/").is_none()) {
        None => Ok(()),
        Some(other) => {
            let why = format!(
                "the address of the upstream {} does not end with /ext/bc/C/rpc, so the place of other \
                 paths is not known; leave --relay-paths out, or name a node",
                other.name
            );
            values.refuse("relay-paths", why)
        }
    }
}

/// Checks the number of header files. Those of `relayed_only` upstreams come last, or not at all.
fn header_files(values: &Values, upstreams: usize, relayed_only: usize) -> Result<(), ConfigError> {
    let files = values.texts("upstream-header-file").len();
    if files <= 1 || files == upstreams || files == upstreams + relayed_only {
        return Ok(());
    }
    let why = format!(
        "there are {files} files; allowed: one file, or one (or none) for each of {upstreams} \
         upstreams"
    );
    values.refuse("upstream-header-file", why)
}
