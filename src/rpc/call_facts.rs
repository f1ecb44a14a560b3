//! Facts of calls that decide which upstream can answer them.

use std::ops::Range;

use neve_jsonrpc::{Method, elements, is_key, members};

/// Filters of one batch that are remembered.
const OPENING_MAX: usize = 64;
/// Bytes of the id of a call that opens one.
const ID_LEN_MAX: usize = 64;
/// Characters of the id of a filter. A node's have 34.
const FILTER_LEN_MAX: usize = 66;

/// Method that sends a transaction.
pub(super) const SEND: &str = "eth_sendRawTransaction";

/// Call or notification of a batch that names a filter.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct NamedFilter {
    pub(super) filter: Box<str>,
    /// Number of the call among the calls; `None` of a notification.
    pub(super) number: Option<usize>,
    /// Place of its text in the body, without the comma before it.
    pub(super) span: Range<usize>,
}

/// Facts of one call, or of all calls of a batch.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct CallFacts {
    /// True for a batch, however few calls it has.
    pub(crate) in_batch: bool,
    /// Methods, each once and in the order of their names.
    pub(crate) methods: Vec<Box<str>>,
    /// Lowest block that is named by its number; `earliest` is 0.
    pub(crate) height: Option<u64>,
    /// True if a block is named by another tag, or by none where that stands for the head.
    pub(crate) at_head: bool,
    /// True if that block's state is read.
    pub(crate) reads_state: bool,
    /// First filter that is named, in lower case: only its issuer knows it.
    pub(crate) filter: Option<Box<str>>,
    /// Calls and notifications of a batch that name filters.
    pub(crate) named: Vec<NamedFilter>,
    /// Ids of the calls whose results are ids of new filters, as the upstream gets them.
    pub(crate) opening: Vec<Box<[u8]>>,
}

impl CallFacts {
    /// True if one of the methods sends a transaction.
    pub(crate) fn sends(&self) -> bool {
        self.methods.iter().any(|method| **method == *SEND)
    }

    /// Adds those of a call; it has no id if it is a notification. Returns the filter that it names.
    pub(super) fn add(
        &mut self,
        id: Option<&[u8]>,
        method: &str,
        parameters: Option<&[u8]>,
    ) -> Option<Box<str>> {
        let named = named_filter(method, parameters);
        if self.filter.is_none() {
            self.filter.clone_from(&named);
        }
        self.add_block(method, parameters);
        if opens_filter(method) && self.opening.len() < OPENING_MAX {
            let id = id.filter(|id| id.len() <= ID_LEN_MAX);
            self.opening.extend(id.map(Box::from));
        }
        // All of them: the rule of one that is left out would not hold for a transaction of the batch.
        if let Err(place) = self.methods.binary_search_by(|one| (**one).cmp(method)) {
            self.methods.insert(place, method.into());
        }
        named
    }

    fn add_block(&mut self, method: &str, parameters: Option<&[u8]>) {
        let Some((place, reads_state)) = block_place(method) else { return };
        match block(parameter(parameters, place)) {
            Block::Number(height) => {
                // Of a batch the lowest counts: an upstream that has it has the others, too.
                self.height = Some(self.height.map_or(height, |lowest| lowest.min(height)));
                self.reads_state |= reads_state;
            }
            Block::Head => self.at_head = true,
            Block::Unknown => {}
        }
    }
}

/// Filter that a call names, in lower case.
fn named_filter(method: &str, parameters: Option<&[u8]>) -> Option<Box<str>> {
    let id = parameter(parameters, filter_place(method)?).and_then(text)?;
    (id.len() <= FILTER_LEN_MAX).then(|| Box::from(id.to_ascii_lowercase()))
}

/// True if a method changes nothing at the node, so that it may be called twice.
pub(super) fn only_reads(method: &str) -> bool {
    let known = matches!(
        method,
        "eth_call"
            | "eth_callDetailed"
            | "eth_estimateGas"
            | "eth_createAccessList"
            | "eth_blockNumber"
            | "eth_chainId"
            | "eth_syncing"
            | "eth_feeHistory"
            | "eth_gasPrice"
            | "eth_maxPriorityFeePerGas"
            | "eth_baseFee"
            | "eth_suggestPriceOptions"
    );
    let named = ["eth_get", "net_", "web3_", "debug_trace", "debug_getRaw"];
    let named = named.iter().any(|start| method.starts_with(start));
    // Changes that a filter has told once it does not tell again.
    (known || named) && method != "eth_getFilterChanges"
}

fn opens_filter(method: &str) -> bool {
    matches!(method, "eth_newFilter" | "eth_newBlockFilter" | "eth_newPendingTransactionFilter")
}

fn filter_place(method: &str) -> Option<usize> {
    let names = ["eth_getFilterChanges", "eth_getFilterLogs", "eth_uninstallFilter"];
    names.contains(&method).then_some(0)
}

/// Place of the block among the parameters, and whether its state is read.
fn block_place(method: &str) -> Option<(usize, bool)> {
    match Method::from_name(method) {
        Some(served) => served_block_place(served).map(|place| (place, false)),
        None => unserved_block_place(method),
    }
}

/// Place of the block, or of the range of logs, among the parameters of a method that neve serves.
fn served_block_place(method: Method) -> Option<usize> {
    match method {
        Method::BlockByNumber
        | Method::HeaderByNumber
        | Method::BlockReceipts
        | Method::TransactionCountByNumber
        | Method::UncleByNumberAndIndex
        | Method::UncleCountByNumber
        | Method::TransactionByNumberAndIndex
        | Method::RawTransactionByNumberAndIndex
        | Method::DebugRawBlock
        | Method::DebugRawHeader
        | Method::DebugRawReceipts
        | Method::Logs => Some(0),
        Method::FeeHistory => Some(1),
        // These name no height. All are named so that the compiler names a new method without an arm.
        Method::BlockByHash
        | Method::HeaderByHash
        | Method::TransactionCountByHash
        | Method::TransactionByHash
        | Method::TransactionByBlockHashAndIndex
        | Method::TransactionReceipt
        | Method::RawTransactionByHash
        | Method::RawTransactionByBlockHashAndIndex
        | Method::UncleCountByHash
        | Method::UncleByBlockHashAndIndex
        | Method::DebugRawTransaction
        | Method::BlockNumber
        | Method::ChainId
        | Method::NetVersion
        | Method::Sha3
        | Method::ClientVersion
        | Method::Listening
        | Method::PeerCount
        | Method::Syncing
        | Method::ChainConfig
        | Method::Modules
        | Method::GasPrice
        | Method::BaseFee
        | Method::MaxPriorityFeePerGas
        | Method::SuggestPriceOptions
        | Method::NewFilter
        | Method::NewBlockFilter
        | Method::NewPendingTransactionFilter
        | Method::FilterChanges
        | Method::FilterLogs
        | Method::UninstallFilter => None,
    }
}

/// Place of the block of a method that neve only relays, and whether it reads the state of that block.
fn unserved_block_place(method: &str) -> Option<(usize, bool)> {
    Some(match method {
        "eth_getBalance"
        | "eth_getAssetBalance"
        | "eth_getCode"
        | "eth_getTransactionCount"
        | "eth_call"
        | "eth_callDetailed"
        | "eth_estimateGas"
        | "eth_createAccessList"
        | "debug_traceCall" => (1, true),
        "eth_getStorageAt" | "eth_getProof" => (2, true),
        "debug_traceBlockByNumber" => (0, true),
        _ => return None,
    })
}

/// Returns a parameter. No list of all is made, which would take many times the client's text.
fn parameter(parameters: Option<&[u8]>, place: usize) -> Option<&[u8]> {
    elements(parameters.filter(|parameters| parameters.starts_with(b"["))?).nth(place)
}

/// Text of a string without escapes.
fn text(value: &[u8]) -> Option<&str> {
    serde_json::from_slice(value).ok()
}

/// Block that a parameter names.
enum Block {
    Number(u64),
    Head,
    /// By its hash, or in a way that no node takes.
    Unknown,
}

/// Reads a block: a number or a tag, alone or in an object; in a filter of logs, its first block.
fn block(value: Option<&[u8]>) -> Block {
    let Some(value) = value.filter(|value| *value != b"null") else { return Block::Head };
    if !value.starts_with(b"{") {
        return named_block(value); // nearly always; serde would write an error first
    }
    let (mut number, mut hash) = (None, None);
    for (key, value) in members(value) {
        // As in Go: upper and lower case are equal, and the last of equal names counts.
        let member = if is_key(key, "fromblock") || is_key(key, "blocknumber") {
            &mut number
        } else if is_key(key, "blockhash") {
            &mut hash
        } else {
            continue;
        };
        *member = (value != b"null").then_some(value);
    }
    match (number, hash) {
        (Some(number), _) => named_block(number),
        (None, None) => Block::Head,
        (None, Some(_)) => Block::Unknown,
    }
}

fn named_block(value: &[u8]) -> Block {
    match text(value) {
        Some("earliest") => Block::Number(0),
        Some("latest" | "pending" | "safe" | "finalized" | "accepted") => Block::Head,
        Some(digits) => {
            let digits = digits.strip_prefix("0x");
            // A hash stands here, too: it does not fit, and its height is unknown.
            let number = digits.and_then(|digits| u64::from_str_radix(digits, 16).ok());
            number.map_or(Block::Unknown, Block::Number)
        }
        None => Block::Unknown,
    }
}

#[cfg(test)]
mod tests {
    use neve_jsonrpc::{Request, parse};

    use super::*;

    fn facts(calls: &[(&str, &str)]) -> CallFacts {
        let mut facts = CallFacts::default();
        for (method, params) in calls {
            let body =
                format!(r#"{{"jsonrpc":"2.0","id":1,"method":"{method}","params":{params}}}"#);
            let Request::Single(message) = parse(body.as_bytes()) else { panic!("{body}") };
            facts.add(Some(message.id()), &message.method(), message.params());
        }
        facts
    }

    #[test]
    fn block_is_found_at_its_place_and_only_as_a_number() {
        let of = |method, params| {
            let facts = facts(&[(method, params)]);
            (facts.height, facts.reads_state)
        };
        for (method, params, found) in [
            ("eth_getBalance", r#"["0x1","0x10"]"#, Some(16)),
            ("eth_getBalance", r#"["0x1",{"blockNumber":"0x10"}]"#, Some(16)),
            ("eth_getStorageAt", r#"["0x1","0x5","0x10"]"#, Some(16)),
            ("eth_call", r#"[{"to":"0x2"}, "0x10",{}]"#, Some(16)),
            ("eth_getBalance", r#"["0x1","earliest"]"#, Some(0)),
            ("eth_getBalance", r#"["0x1","latest"]"#, None),
            ("eth_getBalance", r#"["0x1"]"#, None),
            ("eth_getBalance", r#"["0x1",{"blockHash":"0x10"}]"#, None),
            ("eth_getBalance", r#"["0x1",16]"#, None),
            ("eth_getBalance", r#"["0x1","0x11111111111111111"]"#, None),
            ("eth_getBalance", "{}", None),
        ] {
            assert_eq!(of(method, params), (found, found.is_some()), "{method} {params}");
        }
        let logs = r#"[{"fromBlock":"0x10","toBlock":"0x20"}]"#;
        assert_eq!(of("eth_getLogs", logs), (Some(16), false));
        for logs in [
            r#"[{"fromblock":"0x10"}]"#,
            r#"[{"FROMBLOCK":"0x10","toBlock":"latest"}]"#,
            r#"[{"from\u0042lock": "0x10"}]"#,
            r#"[{"fromBlock":"0x1","fromBlock":"0x10"}]"#,
            r#"[{"fromBlock":"0x1","x":{"fromBlock":"0x2"},"FromBlock":"0x10"}]"#,
        ] {
            assert_eq!(of("eth_getLogs", logs), (Some(16), false), "{logs}");
        }
        assert_eq!(of("eth_getLogs", r#"[{"fromBlock":"0x1","fromBlock":null}]"#), (None, false));
        assert_eq!(of("eth_getLogs", r#"[{"blockHash":"0x10"}]"#), (None, false));
        assert_eq!(of("eth_getBlockByNumber", r#"["0x10",true]"#), (Some(16), false));
        assert_eq!(of("web3_sha3", r#"["0x10"]"#), (None, false));
    }

    #[test]
    fn block_of_each_method_that_names_one_is_found() {
        let by_number = Method::ALL.iter().map(|method| method.name());
        let by_number: Vec<_> = by_number
            .filter(|name| name.contains("ByNumber") || name.contains("ByBlockNumber"))
            .collect();
        assert!(by_number.len() > 6, "{by_number:?}");
        for method in by_number {
            assert_eq!(facts(&[(method, r#"["0x10","0x0"]"#)]).height, Some(16), "{method}");
        }
    }

    #[test]
    fn tag_and_absent_block_stand_for_the_head_and_a_hash_does_not() {
        let at_head = |method, params| facts(&[(method, params)]).at_head;
        for params in [r#"["0x1","latest"]"#, r#"["0x1","safe"]"#, r#"["0x1"]"#, r#"["0x1",null]"#]
        {
            assert!(at_head("eth_call", params), "{params}");
        }
        assert!(at_head("eth_getLogs", r#"[{"address":"0x1"}]"#));
        for params in [r#"["0x1","0x10"]"#, r#"["0x1",{"blockHash":"0x1"}]"#, r#"["0x1","x"]"#] {
            assert!(!at_head("eth_call", params), "{params}");
        }
        assert!(!at_head("net_version", "[]"));
    }

    #[test]
    fn facts_of_a_batch_are_those_of_all_its_calls() {
        let balance = |height: &'static str| ("eth_getBalance", height);
        let batch = [
            balance(r#"["0x1","0x20"]"#),
            balance(r#"["0x1","0x10"]"#),
            ("eth_getFilterChanges", r#"["0xAb"]"#),
            ("eth_getFilterChanges", r#"["0xcd"]"#),
        ];
        let found = facts(&batch);
        assert_eq!(found.methods, ["eth_getBalance", "eth_getFilterChanges"].map(Box::from));
        assert_eq!((found.height, found.filter.as_deref()), (Some(16), Some("0xab")));
        let names: Vec<_> = (0..40).rev().map(|n| format!("x_{n}")).collect();
        let calls = |name| (name, "[]");
        let many: Vec<_> = names.iter().chain(&names).map(|name| calls(name.as_str())).collect();
        let many = facts(&[&many[..], &[calls(SEND)]].concat());
        assert_eq!((many.methods.len(), many.sends()), (41, true));
        let long = format!(r#"["0x{}"]"#, "1".repeat(FILTER_LEN_MAX));
        assert_eq!(facts(&[("eth_getFilterLogs", &long)]).filter, None);
        let opening =
            facts(&[("eth_newFilter", "[{}]"), ("eth_newBlockFilter", "[]"), balance("[]")]);
        assert_eq!(opening.opening, [b"1", b"1"].map(|id| Box::from(&id[..])));
    }

    #[test]
    fn method_with_an_effect_is_not_repeated() {
        for read in [
            "eth_getBalance",
            "eth_call",
            "net_version",
            "eth_getLogs",
            "eth_blockNumber",
            "eth_feeHistory",
            "eth_gasPrice",
            "eth_maxPriorityFeePerGas",
            "eth_baseFee",
            "eth_suggestPriceOptions",
            "debug_traceTransaction",
            "debug_traceCall",
        ] {
            assert!(only_reads(read), "{read}");
        }
        for other in [
            "eth_sendRawTransaction",
            "eth_newFilter",
            "eth_getFilterChanges",
            "eth_uninstallFilter",
            "debug_standardTraceBlockToFile",
            "debug_setHead",
            "x",
        ] {
            assert!(!only_reads(other), "{other}");
        }
    }
}
