//! The subscriptions of a WebSocket: to new heads, nothing else.

use bytes::Bytes;
use neve_jsonrpc::{Kind, Message, Request, RpcError};
use serde_json::Value;

use super::rpc::{BATCH_ITEMS_MAX, Given};

/// Subscriptions of one connection.
const SUBSCRIPTIONS_MAX: usize = 1_024;

/// The subscriptions of a connection.
#[derive(Debug)]
pub(crate) struct Subscriptions {
    ids: Vec<String>,
    /// Number from which the next id is made.
    next: u128,
}

impl Subscriptions {
    /// Connections of other numbers have other ids.
    pub(crate) fn new(connection: u64) -> Self {
        // Ids look random, and are the same in every run.
        let next = u128::from(connection).wrapping_mul(0x2545_f491_4f6c_dd1d_8000_0000_0000_0001);
        Self { ids: Vec::new(), next }
    }

    pub(crate) fn len(&self) -> usize {
        self.ids.len()
    }

    /// Answers those calls of a frame that make or end subscriptions. Empty if there are none.
    pub(crate) fn calls(&mut self, request: &Request<'_>, text: &[u8]) -> Box<Given> {
        let messages = match request {
            Request::Single(message) => std::slice::from_ref(message),
            Request::Batch(messages) if messages.len() <= BATCH_ITEMS_MAX => messages,
            _ => return Box::default(),
        };
        if !messages.iter().any(is_own) {
            return Box::default();
        }
        let params = params(text);
        let of = |at: usize| params.get(at).cloned().unwrap_or_default();
        let calls = messages.iter().enumerate();
        calls.map(|(at, message)| is_own(message).then(|| self.call(message, &of(at)))).collect()
    }

    fn call(&mut self, message: &Message<'_>, params: &Value) -> Result<Bytes, RpcError> {
        match message.method().strip_suffix("_subscribe") {
            Some(namespace) => self.subscribe(namespace, params),
            // The namespace of these is not looked at.
            None => self.unsubscribe(params),
        }
    }

    fn subscribe(&mut self, namespace: &str, params: &Value) -> Result<Bytes, RpcError> {
        let params = params.as_array().ok_or_else(|| wrong("non-array args"))?;
        let name = params.first().and_then(Value::as_str);
        let name = name.ok_or_else(|| wrong("expected subscription name as first argument"))?;
        if (namespace, name) != ("eth", "newHeads") {
            let message = format!("no {name:?} subscription in {namespace} namespace");
            return Err(RpcError { code: -32601, message: message.into() });
        }
        if params.len() > 1 {
            return Err(wrong("too many arguments, want at most 1"));
        }
        if self.ids.len() >= SUBSCRIPTIONS_MAX {
            return Err(RpcError { code: -32000, message: "too many subscriptions".into() });
        }
        self.next = self.next.wrapping_mul(0x0fc9_4e3b_f4e9_ab32_8662_06e8_55b2_1a6d) | 1;
        let id = format!("0x{:x}", self.next);
        let result = format!("\"{id}\"");
        self.ids.push(id);
        Ok(result.into())
    }

    fn unsubscribe(&mut self, params: &Value) -> Result<Bytes, RpcError> {
        const ID: &str =
            "invalid argument 0: json: cannot unmarshal non-string into Go value of type rpc.ID";
        let none = Vec::new();
        let params = match params {
            Value::Null => &none,
            Value::Array(params) => params,
            _ => return Err(wrong("non-array args")),
        };
        let id = params.first().ok_or_else(|| wrong("missing value for required argument 0"))?;
        let id = id.as_str().ok_or_else(|| wrong(ID.replace("non-string", kind(id))))?;
        if params.len() > 1 {
            return Err(wrong("too many arguments, want at most 1"));
        }
        let place = self
            .ids
            .iter()
            .position(|own| own == id)
            .ok_or_else(|| RpcError { code: -32000, message: "subscription not found".into() })?;
        self.ids.remove(place);
        Ok(Bytes::from_static(b"true"))
    }

    /// The notifications of a head.
    pub(crate) fn notifications(&self, head: &[u8]) -> impl Iterator<Item = String> {
        let head = String::from_utf8_lossy(head);
        self.ids.iter().map(move |id| {
            format!(
                "{{\"jsonrpc\":\"2.0\",\"method\":\"eth_subscription\",\"params\":{{\
                 \"subscription\":\"{id}\",\"result\":{head}}}}}\n"
            )
        })
    }
}

fn is_own(message: &Message<'_>) -> bool {
    let method = message.method();
    let named = method.ends_with("_subscribe") || method.ends_with("_unsubscribe");
    named && message.kind() == Kind::Call
}

/// The parameters of the messages of a frame. What is nested too deep has none.
fn params(text: &[u8]) -> Vec<Value> {
    let mut values = serde_json::Deserializer::from_slice(text).into_iter::<Value>();
    let params = |message: &Value| message.get("params").cloned().unwrap_or_default();
    match values.next() {
        Some(Ok(Value::Array(messages))) => messages.iter().map(params).collect(),
        Some(Ok(message)) => vec![params(&message)],
        _ => Vec::new(),
    }
}

fn wrong(message: impl Into<std::borrow::Cow<'static, str>>) -> RpcError {
    RpcError { code: -32602, message: message.into() }
}

/// Go's word for a value that is no string.
fn kind(value: &Value) -> &'static str {
    match value {
        Value::Object(_) => "object",
        Value::Array(_) => "array",
        Value::Bool(_) => "bool",
        _ => "number",
    }
}
