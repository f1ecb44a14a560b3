//! Things that an upstream lacks, learnt from the errors that it answers with. Pure: the time comes
//! from the caller.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use serde::Deserialize;

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

/// Thing that an upstream lacks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Lack {
    Method,
    State,
}

impl Lack {
    /// Reads it from a response to one call.
    pub(super) fn of(response: &[u8]) -> Option<Self> {
        #[derive(Deserialize)]
        struct LackingResponse {
            error: Option<Refusal>,
        }
        #[derive(Deserialize)]
        struct Refusal {
            code: i64,
            message: String,
        }
        memchr::memmem::find(response, b"\"error\"")?; // nearly always
        let Refusal { code, message } =
            serde_json::from_slice::<LackingResponse>(response).ok()?.error?;
        let message = message.to_ascii_lowercase();
        match code {
            NO_METHOD => Some(Self::Method),
            code if EXECUTION.contains(&code) || message.contains(REVERTED) => None,
            _ if PRUNED.iter().any(|words| message.contains(words)) => Some(Self::State),
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
            (Lack::State, _, Some(height)) => {
                let known = self.states.filter(|(_, until)| now < *until);
                // Nearly always: a node prunes from below. A wrong guess only makes it asked last.
                let height = known.map_or(height, |(known, _)| known.max(height));
                self.states = Some((height, until));
            }
            _ => {}
        }
    }

    /// True if an upstream most likely lacks what a call needs.
    pub(super) fn has(&self, call: &CallFacts, now: Instant) -> bool {
        let method = |name: &str| self.methods.get(name).is_some_and(|until| now < *until);
        let state = |height: u64| {
            self.states.is_some_and(|(highest, until)| height <= highest && now < until)
        };
        call.methods.iter().any(|name| method(name))
            || call.reads_state && call.height.is_some_and(state)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn call(method: &str, height: Option<u64>) -> CallFacts {
        let methods = vec![method.into()];
        CallFacts { methods, height, reads_state: true, ..CallFacts::default() }
    }

    #[test]
    fn lack_is_read_from_the_error_of_a_response() {
        let error = |code: i32, message: &str| {
            let error = format!(r#"{{"code":{code},"message":"{message}"}}"#);
            Lack::of(format!(r#"{{"jsonrpc":"2.0","error":{error},"id":1}}"#).as_bytes())
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
            assert_eq!(Lack::of(other), None);
        }
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
