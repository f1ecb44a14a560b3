//! Things that an upstream lacks, learnt from the errors that it answers with. Pure: the time comes
//! from the caller.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use serde::Deserialize;
use serde::de::IgnoredAny;

use crate::rpc::CallFacts;

/// Time for which it is remembered: an operator may have changed the upstream since.
const LEARNT: Duration = Duration::from_mins(10);
/// Methods of one upstream that are remembered.
const METHODS_MAX: usize = 256;
/// Code of an error about a method that is not there.
const NO_METHOD: i64 = -32601;
/// Codes of an execution that ended by itself: geth and coreth, Nethermind. A contract chooses the words.
const EXECUTION: [i64; 2] = [3, -32015];
/// Word that precedes a contract's own text, with any code.
const REVERTED: &str = "revert";
/// Words of nodes that have pruned a state: geth and coreth, Erigon, Nethermind, Besu.
const PRUNED: [&str; 6] = [
    "missing trie node",
    "historical state",
    "state is not available",
    "state not available",
    "pruned",
    "world state unavailable",
];

/// Words of nodes about a block or transaction that they do not have, or not yet: geth and coreth.
const ABSENT: [&str; 3] = ["not found", "unfinalized", "indexing is in progress"];
/// Begins of the methods that look up a block, a transaction or a receipt, and give `null` without it.
const LOOKUPS: [&str; 7] = [
    "eth_getBlock",
    "eth_getHeader",
    "eth_getTransactionBy",
    "eth_getTransactionReceipt",
    "eth_getRawTransaction",
    "eth_getUncleCount",
    "debug_getRaw",
];

/// Thing that an upstream lacks. Of the responses of several the one with the greatest is the best.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Lack {
    Method,
    State,
    /// Block or transaction, which it may have later.
    Absent,
    /// Block or transaction, which it does not know or has pruned.
    Block,
}

/// Response that may name a lack.
#[derive(Deserialize)]
struct LackingResponse {
    result: Option<IgnoredAny>,
    error: Option<LackingError>,
}

/// Error that may name a lack.
#[derive(Deserialize)]
struct LackingError {
    code: i64,
    message: String,
}

impl Lack {
    /// True for a block or transaction.
    pub(super) fn is_of_block(self) -> bool {
        self >= Self::Absent
    }

    /// Reads it from a response to one call. Above `head` no upstream need have a block.
    pub(super) fn of(response: &[u8], call: &CallFacts, head: u64) -> Option<Self> {
        let has = |word: &[u8]| memchr::memmem::find(response, word).is_some();
        let is_lookup = matches!(&call.methods[..], [method] if looks_up(method))
            && call.height.is_none_or(|height| height <= head);
        if !(has(b"\"error\"") || is_lookup && has(b"null")) {
            return None; // nearly always
        }
        let LackingResponse { result, error } = serde_json::from_slice(response).ok()?;
        let Some(LackingError { code, message }) = error else {
            return (is_lookup && result.is_none()).then_some(Self::Block);
        };
        let message = message.to_ascii_lowercase();
        let says = |words: &[&str]| words.iter().any(|words| message.contains(words));
        match code {
            NO_METHOD => Some(Self::Method),
            code if EXECUTION.contains(&code) || message.contains(REVERTED) => None,
            _ if says(&PRUNED) => Some(if is_lookup { Self::Block } else { Self::State }),
            _ if is_lookup && says(&ABSENT) => Some(Self::Absent),
            _ => None,
        }
    }
}

/// Things that one upstream lacks.
#[derive(Debug, Default)]
pub(super) struct Lacks {
    /// Methods, and the time until which each counts as absent.
    methods: HashMap<Box<str>, Instant>,
    /// Height up to which it has no states, and the time until which that is believed.
    states: Option<(u64, Instant)>,
    /// Height up to which it has no blocks, and this time.
    blocks: Option<(u64, Instant)>,
}

/// Notes that something is lacking up to a height.
fn raise(known: &mut Option<(u64, Instant)>, height: u64, now: Instant) {
    let before = known.filter(|(_, until)| now < *until);
    // Nearly always: a node prunes from below. A wrong guess only makes it asked last.
    let height = before.map_or(height, |(before, _)| before.max(height));
    *known = Some((height, now + LEARNT));
}

fn looks_up(method: &str) -> bool {
    LOOKUPS.iter().any(|begin| method.starts_with(begin))
}

impl Lacks {
    /// Notes the method or state that an upstream lacked for a call. A block that is not named by its number
    /// teaches nothing.
    pub(super) fn learn(&mut self, lack: Lack, call: &CallFacts, now: Instant) {
        let until = now + LEARNT;
        match (lack, &call.methods[..], call.height) {
            (Lack::Method, [method], _) => {
                // Names come from clients, who can make up any number. A forgotten one costs an
                // attempt.
                if self.methods.len() >= METHODS_MAX {
                    self.methods.clear();
                }
                self.methods.insert(method.clone(), until);
            }
            (Lack::State, _, Some(height)) => raise(&mut self.states, height, now),
            // A block may be there without a transaction of that number.
            (Lack::Block, [method], Some(height)) if !method.ends_with("AndIndex") => {
                raise(&mut self.blocks, height, now);
            }
            _ => {}
        }
    }

    /// True if an upstream most likely lacks what a call needs.
    pub(super) fn has(&self, call: &CallFacts, now: Instant) -> bool {
        let method = |name: &str| self.methods.get(name).is_some_and(|until| now < *until);
        let is_below = |known: Option<(u64, Instant)>| {
            let height = call.height.zip(known).filter(|(_, (_, until))| now < *until);
            height.is_some_and(|(height, (highest, _))| height <= highest)
        };
        call.methods.iter().any(|name| method(name))
            || is_below(self.blocks)
            || call.reads_state && is_below(self.states)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn call(method: &str, height: Option<u64>) -> CallFacts {
        let methods = vec![method.into()];
        CallFacts { methods, height, reads_state: true, ..CallFacts::default() }
    }

    fn lookup(method: &str, height: Option<u64>) -> CallFacts {
        CallFacts { reads_state: false, ..call(method, height) }
    }

    #[test]
    fn lack_is_read_from_the_error_of_a_response() {
        let error = |code: i32, message: &str| {
            let error = format!(r#"{{"code":{code},"message":"{message}"}}"#);
            let response = format!(r#"{{"jsonrpc":"2.0","error":{error},"id":1}}"#);
            Lack::of(response.as_bytes(), &call("eth_call", Some(1)), 9)
        };
        let no_method = "the method debug_x does not exist/is not available";
        assert_eq!(error(-32601, no_method), Some(Lack::Method));
        for pruned in [
            "missing trie node 1a (path ) state 0x1a is not available",
            "Pruned history unavailable",
            "required historical state unavailable (reexec=128)",
        ] {
            assert_eq!(error(-32000, pruned), Some(Lack::State), "{pruned}");
        }
        // A contract reverts with the words that it likes.
        for (code, words) in [
            (3, "execution reverted: pruned"),
            (3, "missing trie node"),
            (-32000, "execution reverted: missing trie node"),
            (-32015, "VM execution error: pruned"),
            (-32000, "VM Exception: Reverted with historical state"),
        ] {
            assert_eq!(error(code, words), None, "{code} {words}");
        }
        assert_eq!(error(-32000, "header not found"), None);
        let result = br#"{"jsonrpc":"2.0","id":1,"result":"\"error\" pruned"}"#;
        for other in [&result[..], b"", b"{\"error\"", br#"{"error":null}"#, br#"[{"error":1}]"#] {
            assert_eq!(Lack::of(other, &call("eth_call", Some(1)), 9), None);
        }
    }

    #[test]
    fn block_that_is_not_there_is_read_from_null_and_from_errors() {
        let of = |method: &str, height, response: &str| {
            Lack::of(response.as_bytes(), &lookup(method, height), 9)
        };
        let null = r#"{"jsonrpc":"2.0","id":1,"result":null}"#;
        for (method, height) in [
            ("eth_getBlockByNumber", Some(9)),
            ("eth_getBlockReceipts", Some(0)),
            ("eth_getTransactionReceipt", None),
            ("eth_getTransactionByHash", None),
            ("debug_getRawHeader", None),
        ] {
            assert_eq!(of(method, height, null), Some(Lack::Block), "{method}");
        }
        for (method, height, response) in [
            ("eth_getBlockByNumber", Some(10), null),
            ("eth_getTransactionCount", Some(1), null),
            ("eth_getLogs", Some(1), null),
            ("eth_getBlockByHash", None, r#"{"id":1,"result":{"to":null}}"#),
            ("eth_getBlockByHash", None, r#"[{"id":1,"result":null}]"#),
            ("eth_getBlockByHash", None, r#"{"id":1,"error":{"code":1,"message":"x"}}"#),
        ] {
            assert_eq!(of(method, height, response), None, "{method} {response}");
        }
        let error = |words: &str| {
            let error = format!(r#"{{"id":1,"error":{{"code":-32000,"message":"{words}"}}}}"#);
            of("eth_getTransactionReceipt", None, &error)
        };
        assert_eq!(error("cannot query unfinalized data"), Some(Lack::Absent));
        assert_eq!(error("transaction indexing is in progress"), Some(Lack::Absent));
        assert_eq!(error("pruned history unavailable"), Some(Lack::Block));
        assert_eq!(error("execution reverted: not found"), None);
    }

    #[test]
    fn block_that_is_not_there_is_remembered_for_a_while() {
        let (now, mut lacks) = (Instant::now(), Lacks::default());
        lacks.learn(Lack::Absent, &lookup("eth_getBlockByNumber", Some(9)), now);
        lacks.learn(Lack::Block, &lookup("eth_getBlockByHash", None), now);
        let by_index = "eth_getTransactionByBlockNumberAndIndex";
        lacks.learn(Lack::Block, &lookup(by_index, Some(9)), now);
        assert!(!lacks.has(&lookup("eth_getBlockByNumber", Some(0)), now));
        lacks.learn(Lack::Block, &lookup("eth_getBlockByNumber", Some(5)), now);
        for one in [lookup("eth_getBlockReceipts", Some(5)), call("eth_call", Some(4))] {
            assert!(lacks.has(&one, now) && !lacks.has(&one, now + LEARNT));
        }
        assert!(!lacks.has(&lookup("eth_getBlockReceipts", Some(6)), now));
        assert!(!lacks.has(&lookup("eth_getBlockByHash", None), now));
    }

    #[test]
    fn lack_is_remembered_for_a_while() {
        let (now, mut lacks) = (Instant::now(), Lacks::default());
        lacks.learn(Lack::Method, &call("debug_x", None), now);
        lacks.learn(Lack::State, &call("eth_call", None), now);
        assert!(lacks.has(&call("debug_x", None), now));
        assert!(!lacks.has(&call("eth_call", Some(0)), now), "a tag teaches nothing");
        for height in [20, 10] {
            lacks.learn(Lack::State, &call("eth_call", Some(height)), now);
        }
        assert!(lacks.has(&call("eth_getBalance", Some(20)), now));
        assert!(!lacks.has(&call("eth_getBalance", Some(21)), now));
        assert!(!lacks.has(&call("eth_getBalance", None), now));
        let block = CallFacts { reads_state: false, ..call("eth_getBlockByNumber", Some(1)) };
        assert!(!lacks.has(&block, now), "blocks are no states");
        let later = now + LEARNT;
        assert!(!lacks.has(&call("debug_x", None), later));
        assert!(!lacks.has(&call("eth_getBalance", Some(20)), later));
    }

    #[test]
    fn remembered_methods_are_bounded() {
        let (now, mut lacks) = (Instant::now(), Lacks::default());
        for number in 0..3 * METHODS_MAX {
            lacks.learn(Lack::Method, &call(&format!("x_{number}"), None), now);
            assert!(lacks.methods.len() <= METHODS_MAX);
        }
    }
}
