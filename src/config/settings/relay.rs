//! Misses: refused, or relayed to an upstream.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use clap::ValueEnum;
use neve_jsonrpc::default_methods;

use crate::config::endpoint::Endpoint;
use crate::config::error::ConfigError;
use crate::config::relay_rule::RelayRule;
use crate::config::setting::{Group, SWITCH, Setting, bytes, count, duration, one_of, rate, text};
use crate::config::units::Rate;
use crate::config::values::Values;

/// Settings of misses.
pub(super) const MISSES: Group = Group {
    title: "Misses",
    settings: &[
        Setting::new(
            "on-miss",
            one_of::<OnMiss>("refuse|relay"),
            "Treatment of a call that neve cannot answer: `refuse` it with HTTP 421, or `relay` it \
             to an upstream and stream the response back.",
        )
        .or("refuse"),
        Setting::new(
            "batch-miss",
            one_of::<BatchMiss>("whole|split"),
            "Treatment of a batch with a miss: refuse or relay it `whole`, or `split` it. A split \
             batch is HTTP 200; each missing call is relayed, or gets the error of a miss.",
        )
        .otherwise("split with --on-miss relay, else whole"),
        Setting::new(
            "relay-methods",
            text::<String>("METHOD").many(),
            "Methods that may be relayed; `default` stands for a node's default API without \
             eth_sendTransaction, eth_sign, eth_signTransaction, eth_fillTransaction and \
             eth_resend. admin_*, personal_* and keystore methods are refused.",
        )
        .or("default"),
        Setting::new(
            "relay-to",
            text::<RelayRule>("METHODS[@HEIGHTS]=URL").many().secret(),
            "An upstream for relayed calls only, first choice for some methods and heights. For \
             example debug_*+trace_*=http://tracer:9650, or *@0-49999999=http://archive:9650 for \
             calls that name a height up to 49999999.",
        ),
        Setting::new(
            "relay-paths",
            text::<String>("PATH").many(),
            "Other paths of the node that are relayed, such as /ext/info, /ext/health or /ext/bc/P. \
             Each is one exact path, behind what the upstream's address has before /ext/bc/C/rpc; \
             paths of admin, of keystore and of neve itself are refused.",
        ),
        Setting::new(
            "relay-broadcast",
            SWITCH,
            "Send each eth_sendRawTransaction to all upstreams, also those of a batch. The first \
             result is the response.",
        ),
        Setting::new(
            "relay-requests-per-second",
            rate("0.01", "1000000").or_none("RATE|none"),
            "Relayed requests a second to each upstream; a client address that has a quarter of them \
             leaves a quarter to others. Beyond it: HTTP 429.",
        )
        .otherwise("half of --upstream-requests-per-second")
        .reloads(),
        Setting::new(
            "relay-hedge-percent",
            count("0", "100"),
            "Relayed reads in a hundred that may go to a second upstream too, because the first is \
             slower than 95 % of its last responses. The first good response counts; 0 is none.",
        )
        .or("5"),
        Setting::new(
            "relayed-requests-total-max",
            count("1", "65536"),
            "Relayed requests in flight, where a batch counts once. Beyond it: HTTP 429.",
        )
        .or("256"),
        Setting::new(
            "relayed-requests-address-max",
            count("1", "65536"),
            "Relayed requests in flight of one client address, where a batch counts once. Beyond it: \
             HTTP 429.",
        )
        .otherwise("a quarter of --relayed-requests-total-max, rounded up"),
        Setting::new(
            "relay-timeout",
            duration("100ms", "1h"),
            "Time that a relayed request may take, up to the last byte of its response; beyond it: HTTP 504, or the end of \
             the connection. If the client does not read the response, --write-timeout ends it.",
        )
        .or("35s"),
        Setting::new(
            "relay-response-bytes-max",
            bytes("1KiB", "4GiB"),
            "Bytes of a relayed response. Beyond it: HTTP 502, or the end of the connection.",
        )
        .or("64MiB"),
        Setting::new(
            "relayed-sockets-total-max",
            count("0", "65536"),
            "WebSockets to upstreams, one for each client with relayed subscriptions. Beyond it: \
             the error -32005; 0 relays no subscriptions.",
        )
        .or("256"),
        Setting::new(
            "relayed-sockets-address-max",
            count("0", "65536"),
            "WebSockets to upstreams of one client address. Beyond it: the error -32005.",
        )
        .otherwise("a quarter of --relayed-sockets-total-max, rounded up"),
        Setting::new(
            "relayed-message-bytes-max",
            bytes("1KiB", "64MiB"),
            "Bytes of a message of a relayed subscription. Beyond it: neve closes the client's \
             connection.",
        )
        .or("1MiB"),
        Setting::new(
            "relayed-unsent-bytes-max",
            bytes("1KiB", "1GiB"),
            "Bytes of relayed notifications that wait for one client. Beyond it: neve closes the \
             connection.",
        )
        .or("4MiB"),
    ],
};

/// True if misses are relayed.
pub(super) fn relays(values: &Values) -> Result<bool, ConfigError> {
    Ok(values.word::<OnMiss>("on-miss")? == OnMiss::Relay)
}

/// Treatment of a miss.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum OnMiss {
    /// The client is told to ask a full node.
    Refuse,
    /// An upstream is asked.
    Relay,
}

/// Treatment of a batch with a miss.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum BatchMiss {
    /// All of its calls are misses.
    Whole,
    /// Each call is treated as if it stood alone.
    Split,
}

/// Treatment of misses.
#[derive(Debug, Clone)]
pub struct MissConfig {
    /// The relay, if there is one.
    pub relay: Option<RelayConfig>,
    /// True if a batch with a miss is split.
    pub split: bool,
    /// Relayed requests a second to each upstream; `None` for what suits it. Also given without a relay: a reload
    /// takes it, and the relay of the start goes on until a restart.
    pub requests_per_second: Option<Option<f64>>,
}

/// Treatment of misses, as far as a call needs it.
#[derive(Debug, Clone, Default)]
pub(crate) struct MissPolicy {
    /// Methods that are relayed, if misses are.
    pub(crate) relay: Option<RelayMethods>,
    /// True if a batch with a miss is split.
    pub(crate) split: bool,
    /// True if a relayed transaction goes to all upstreams.
    pub(crate) broadcasts: bool,
}

impl MissPolicy {
    /// True if a call of `method` that is a miss is relayed.
    pub(crate) fn relays(&self, method: &str) -> bool {
        let relay = self.relay.as_ref();
        relay.is_some_and(|methods| !is_subscription(method) && methods.allow(method))
    }

    /// True if a subscription of a kind that neve does not have is relayed.
    pub(crate) fn relays_subscription(&self, method: &str) -> bool {
        let relay = self.relay.as_ref();
        relay.is_some_and(|methods| is_subscription(method) && methods.allow(method))
    }
}

/// Settings of the relay of misses.
#[derive(Debug, Clone)]
pub struct RelayConfig {
    /// Methods that may be relayed.
    pub(crate) methods: RelayMethods,
    /// Upstreams of some methods and heights.
    pub(crate) rules: Arc<[RelayRule]>,
    /// Other paths of the node.
    pub(crate) paths: Arc<[String]>,
    /// True if a transaction goes to all upstreams.
    pub broadcast: bool,
    /// Reads in a hundred that may go to a second upstream.
    pub hedge_percent: u64,
    /// Requests in flight.
    pub in_flight_total_max: usize,
    /// Requests in flight of one address.
    pub in_flight_address_max: usize,
    /// Time up to the last byte of a response.
    pub timeout: Duration,
    /// Bytes of a response.
    pub response_bytes_max: usize,
    /// Limits of relayed subscriptions.
    pub(crate) sockets: SocketLimits,
}

/// Limits of WebSockets to upstreams for relayed subscriptions.
#[derive(Debug, Clone, Copy)]
pub(crate) struct SocketLimits {
    /// Sockets of all clients.
    pub(crate) total_max: usize,
    /// Sockets of one address.
    pub(crate) address_max: usize,
    /// Bytes of a message from the upstream.
    pub(crate) message_bytes_max: usize,
    /// Bytes that wait for one client.
    pub(crate) unsent_bytes_max: usize,
    /// Time without a word from the upstream after which it counts as gone.
    pub(crate) idle_timeout: Duration,
}

impl SocketLimits {
    fn of(values: &Values) -> Result<Self, ConfigError> {
        let total_max: usize = values.count("relayed-sockets-total-max")?;
        let message_bytes_max = values.bytes("relayed-message-bytes-max")?;
        let unsent_bytes_max = values.bytes("relayed-unsent-bytes-max")?;
        // The longest message that is allowed could never be passed on.
        if unsent_bytes_max < message_bytes_max {
            let why = format!("allowed: {message_bytes_max} or more, --relayed-message-bytes-max");
            return values.refuse("relayed-unsent-bytes-max", why);
        }
        let address_max =
            values.share("relayed-sockets-address-max", "relayed-sockets-total-max", 0)?;
        let idle_timeout = values.duration("upstream-ws-idle-timeout")?;
        Ok(Self { total_max, address_max, message_bytes_max, unsent_bytes_max, idle_timeout })
    }
}

/// Method of subscriptions that is relayed by default.
const SUBSCRIBE: &str = "eth_subscribe";

/// True if a method opens a subscription, which belongs to a connection.
pub(crate) fn is_subscription(method: &str) -> bool {
    method.ends_with("_subscribe")
}

/// Methods that may be relayed.
#[derive(Debug, Clone)]
pub(crate) struct RelayMethods(Arc<HashSet<String>>);

impl RelayMethods {
    /// True if `method` may be relayed.
    pub(crate) fn allow(&self, method: &str) -> bool {
        self.0.contains(method)
    }
}

impl MissConfig {
    pub(super) fn of(values: &Values) -> Result<Self, ConfigError> {
        let relay = RelayConfig::of(values)?; // also if it is not used: a mistake is told at once
        let used = relays(values)?;
        let given = values.words::<BatchMiss>("batch-miss")?.pop();
        let split = given.map_or(used, |given| given == BatchMiss::Split);
        let requests_per_second = requests_per_second(values)?.map(|rate| rate.0);
        Ok(Self { relay: used.then_some(relay), split, requests_per_second })
    }

    /// The treatment of misses.
    pub(crate) fn policy(&self) -> MissPolicy {
        let relay = self.relay.as_ref().map(|relay| relay.methods.clone());
        let broadcasts = self.relay.as_ref().is_some_and(|relay| relay.broadcast);
        MissPolicy { relay, split: self.split, broadcasts }
    }
}

impl RelayConfig {
    fn of(values: &Values) -> Result<Self, ConfigError> {
        let methods = methods(values)?;
        Ok(Self {
            rules: rules(values, &methods)?,
            methods,
            paths: paths(values)?,
            broadcast: values.switch("relay-broadcast"),
            hedge_percent: values.count("relay-hedge-percent")?,
            in_flight_total_max: values.count("relayed-requests-total-max")?,
            in_flight_address_max: values.share(
                "relayed-requests-address-max",
                "relayed-requests-total-max",
                1,
            )?,
            timeout: values.duration("relay-timeout")?,
            response_bytes_max: values.bytes("relay-response-bytes-max")?,
            sockets: SocketLimits::of(values)?,
        })
    }
}

/// Rules of `--relay-to`: each relayed call looks at all of them.
const RULES_MAX: usize = 64;

/// Namespaces that reach a node's keys and settings.
const REFUSED: [&str; 3] = ["admin", "personal", "keystore"];

/// True if a method reaches a node's keys or settings: it is not relayed, even when named.
pub(crate) fn is_never_relayed(method: &str) -> bool {
    let space = method.split(['_', '.']).next().unwrap_or_default();
    REFUSED.iter().any(|refused| space.eq_ignore_ascii_case(refused))
}

/// The node's paths of the API that neve has itself: `--relay-methods` bounds it.
const OWN_API: [&str; 4] = ["bc/C/rpc", "bc/C/ws", "bc/evm/rpc", "bc/evm/ws"];

/// Paths that neve answers itself, and folders of such paths.
const OWN_PATHS: [&str; 5] = ["", "health", "ready", "metrics", "ws"];
const OWN_FOLDERS: [&str; 2] = ["v1", "mirror"];

fn methods(values: &Values) -> Result<RelayMethods, ConfigError> {
    let mut methods = HashSet::new();
    for name in values.texts("relay-methods") {
        if name == "default" {
            methods.extend(default_methods().chain([SUBSCRIBE]).map(str::to_owned));
        } else {
            check_method(name).map_err(|why| values.wrong("relay-methods", name, why))?;
            methods.insert(name.clone());
        }
    }
    Ok(RelayMethods(Arc::new(methods)))
}

fn check_method(name: &str) -> Result<(), &'static str> {
    // Ethereum writes `eth_call`, and Avalanche's own APIs `info.peers`.
    let Some((space, rest)) = name.split_once(['_', '.']) else {
        return Err("no method; write NAMESPACE_NAME, or default");
    };
    if is_never_relayed(name) {
        return Err("never relayed: it reaches the keys or settings of a node");
    }
    let is_word = |text: &str| {
        !text.is_empty() && text.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_')
    };
    if !is_word(space) || !is_word(rest) {
        return Err("no method; allowed: letters, digits and _");
    }
    Ok(())
}

fn rules(values: &Values, methods: &RelayMethods) -> Result<Arc<[RelayRule]>, ConfigError> {
    let rules: Vec<RelayRule> = values.list("relay-to")?;
    for (rule, text) in rules.iter().zip(values.texts("relay-to")) {
        // A rule of a method that is not relayed has no effect, which is hardly meant.
        if !methods.0.iter().any(|method| rule.has_method(method)) {
            let why = "--relay-methods has no such method; name each method there too";
            return Err(values.wrong("relay-to", text, why));
        }
    }
    if rules.len() > RULES_MAX {
        let why = format!("{} rules; allowed: up to {RULES_MAX}", rules.len());
        return values.refuse("relay-to", why);
    }
    Ok(rules.into())
}

/// Returns the upstreams of rules that are not among `followed`, each once.
pub(crate) fn relayed_only(rules: &[RelayRule], followed: &[Endpoint]) -> Vec<Endpoint> {
    let mut all: Vec<Endpoint> = Vec::new();
    for RelayRule { endpoint, .. } in rules {
        if !all.iter().chain(followed).any(|other| other.is_same(endpoint)) {
            all.push(endpoint.clone());
        }
    }
    all
}

fn paths(values: &Values) -> Result<Arc<[String]>, ConfigError> {
    let paths = values.texts("relay-paths");
    for path in paths {
        let checked = check_path(path, values.texts("rpc-paths"));
        checked.map_err(|why| values.wrong("relay-paths", path, why))?;
    }
    Ok(paths.into())
}

fn check_path(path: &str, rpc_paths: &[String]) -> Result<(), &'static str> {
    let rest = path.strip_prefix('/').ok_or("a path begins with /")?;
    let folder = rest.split('/').next().unwrap_or_default();
    let is_rpc = rpc_paths.iter().any(|own| own == path);
    // The relay comes first: neve's own answer would be gone.
    if is_rpc || OWN_PATHS.contains(&rest) || OWN_FOLDERS.contains(&folder) {
        return Err("neve answers it itself; allowed: paths of the node such as /ext/info");
    }
    if !rest.split('/').all(is_clean) {
        return Err("no clean path; allowed: letters, digits and -_.~ between single slashes");
    }
    let is_own = |own: &&str| rest.strip_prefix("ext/").unwrap_or(rest).eq_ignore_ascii_case(own);
    // A whole API passed on by its path would evade the list of methods.
    if OWN_API.iter().any(is_own) {
        return Err("neve's own API; name methods with --relay-methods");
    }
    let is_refused = |element: &str| REFUSED.iter().any(|no| element.eq_ignore_ascii_case(no));
    if rest.split('/').any(is_refused) {
        return Err("never relayed: it reaches the keys or settings of a node");
    }
    Ok(())
}

/// True for an element of a path without escapes: `%61dmin`, or `..`, could reach a refused path.
fn is_clean(element: &str) -> bool {
    let letters = element.bytes().all(|b| b.is_ascii_alphanumeric() || b"-_.~".contains(&b));
    letters && !matches!(element, "" | "." | "..")
}

/// A relay that could take all that an upstream gives would hold up following.
fn requests_per_second(values: &Values) -> Result<Option<Rate>, ConfigError> {
    let whole: Option<Rate> = values.get("upstream-requests-per-second")?;
    let half = whole.map(|Rate(whole)| Rate(whole.map(|whole| whole / 2.0)));
    let given: Option<Rate> = values.get("relay-requests-per-second")?;
    match (given, half) {
        (None, half) => Ok(half),
        (Some(Rate(given)), Some(Rate(Some(half)))) if given.is_none_or(|given| given > half) => {
            let why = format!("allowed: up to {half}, half of --upstream-requests-per-second");
            values.refuse("relay-requests-per-second", why)
        }
        (given, _) => Ok(given),
    }
}
