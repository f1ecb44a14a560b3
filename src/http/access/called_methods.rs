//! Methods that a body calls, as the access log names them.

use bytes::Bytes;
use neve_jsonrpc::{Message, Request, parse_at_most};

use crate::http::Offload;
use crate::rpc::{LONG_BODY, Rpc};
use crate::shared::ClientAddress;

/// Methods that a line names, each once.
const NAMES_MAX: usize = 8;
/// Bytes of a name. The longest name that a node knows has 45.
const NAME_LEN_MAX: usize = 64;

/// Methods that a body calls.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct CalledMethods {
    /// Messages in the body.
    pub(super) calls: usize,
    pub(super) names: Vec<Box<str>>,
}

impl CalledMethods {
    /// Reads the methods of a body. A long one is read on a thread that may take its time; if none is
    /// free, no method is known.
    pub(crate) async fn read(
        rpc: &Rpc,
        offload: &Offload,
        body: &Bytes,
        client: ClientAddress,
    ) -> Self {
        let items_max = rpc.limits.batch_items_max;
        // To parse a longer body takes long enough to hold up the connections of this thread.
        if body.len() <= LONG_BODY {
            return Self::of(body, items_max);
        }
        let (class, body) = (rpc.class(body), body.clone());
        let reading = offload.run(class, client, move || Self::of(&body, items_max));
        // A full pool costs the line its methods, and the client nothing.
        reading.await.unwrap_or_default()
    }

    fn of(body: &[u8], items_max: usize) -> Self {
        let request = parse_at_most(body, items_max);
        let mut found = Self::default();
        match &request {
            Request::Single(message) => found.add(message),
            Request::Batch(messages) => messages.iter().for_each(|message| found.add(message)),
            Request::Empty | Request::Malformed => {}
        }
        found
    }

    fn add(&mut self, message: &Message<'_>) {
        self.calls += 1;
        let method = message.method();
        let name = &method[..method.floor_char_boundary(NAME_LEN_MAX)];
        let is_known = self.names.iter().any(|known| **known == *name);
        if !name.is_empty() && !is_known && self.names.len() < NAMES_MAX {
            self.names.push(name.into());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn call(method: &str) -> String {
        format!(r#"{{"jsonrpc":"2.0","id":1,"method":"{method}"}}"#)
    }

    #[test]
    fn each_method_is_named_once_and_cut() {
        let long = "x".repeat(NAME_LEN_MAX + 1);
        let calls = [call("eth_call"), call("a\\nb"), call("eth_call"), call(&long)];
        let found = CalledMethods::of(format!("[{}]", calls.join(",")).as_bytes(), 100);
        let expected = ["eth_call", "a\nb", &long[1..]].map(Box::from);
        assert_eq!((found.calls, found.names), (4, expected.to_vec()));
        assert_eq!(CalledMethods::of(call("eth_call").as_bytes(), 100).calls, 1);
        assert_eq!(CalledMethods::of(b"{", 100), CalledMethods::default());
    }

    #[test]
    fn few_methods_of_a_long_batch_are_named() {
        let calls: Vec<_> = (0..40).map(|n| call(&format!("m{n}"))).collect();
        let found = CalledMethods::of(format!("[{}]", calls.join(",")).as_bytes(), 100);
        assert_eq!((found.calls, found.names.len()), (40, NAMES_MAX));
    }
}
