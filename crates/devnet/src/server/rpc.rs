//! JSON-RPC over a body: single calls and batches.

use std::sync::Arc;

use bytes::Bytes;
use neve_jsonrpc::{Kind, Message, Method, NoQuery, Request, RpcError, Rules, envelope};

use super::answer::answer;
use super::state;
use crate::chain::text::Version;
use crate::counters::Counters;
use crate::faults::{Fault, Subject, forged};
use crate::node::Node;

/// Messages of a batch, and bytes of its results, as avalanchego bounds them.
pub(crate) const BATCH_ITEMS_MAX: usize = 1_000;
const BATCH_RESULT_BYTES_MAX: usize = 25_000_000;

/// A node and who counts what it is asked.
#[derive(Clone, Debug)]
pub(crate) struct Rpc {
    pub(crate) node: Arc<Node>,
    pub(crate) counters: Arc<Counters>,
}

/// Results of calls that the connection itself has answered, by their place in the body.
pub(crate) type Given = [Option<Result<Bytes, RpcError>>];

/// A body of an answer.
#[derive(Debug, Default)]
pub(crate) struct Reply {
    pub(crate) body: Vec<u8>,
    /// Written around the node's encoder: without a newline, and of known length.
    pub(crate) plain: bool,
}

impl Rpc {
    /// Answers a body.
    pub(crate) async fn body(&self, request: &Request<'_>, given: &Given) -> Reply {
        match request {
            Request::Empty => Reply::default(),
            Request::Malformed => Reply::error(b"null", &RpcError::PARSE),
            Request::Single(message) => {
                let given = given.first().cloned().flatten();
                let mut body = self.message(message, given).await.unwrap_or_default();
                if !body.is_empty() {
                    body.extend_from_slice(envelope::NEWLINE);
                }
                Reply { body, plain: false }
            }
            Request::Batch(messages) => self.batch(messages, given).await,
        }
    }

    async fn batch(&self, messages: &[Message<'_>], given: &Given) -> Reply {
        if let Some(refused) = refuse_batch(messages) {
            return refused;
        }
        let (mut reply, mut bytes) = (Reply::default(), 0);
        for (at, message) in messages.iter().enumerate() {
            let too_long = bytes > BATCH_RESULT_BYTES_MAX;
            let answer = match message.kind() {
                Kind::Call if too_long => Some(too_large(message)),
                _ => self.message(message, given.get(at).cloned().flatten()).await,
            };
            let Some(answer) = answer else { continue };
            bytes += answer.len();
            reply.plain |= bytes > BATCH_RESULT_BYTES_MAX;
            reply.push(&answer);
        }
        reply.end_batch();
        reply
    }

    /// The answer to a message, if it wants one.
    async fn message(
        &self,
        message: &Message<'_>,
        given: Option<Result<Bytes, RpcError>>,
    ) -> Option<Vec<u8>> {
        let mut out = Vec::new();
        match message.kind() {
            Kind::Invalid => envelope::error(&mut out, message.id(), &RpcError::INVALID_REQUEST),
            Kind::Response => return None,
            Kind::Notification => {
                self.counters.call(&message.method()); // the node reads it, and does not answer
                return None;
            }
            Kind::Call => self.answer_call(&mut out, message, given).await,
        }
        Some(out)
    }

    /// Appends the answer to a call.
    async fn answer_call(
        &self,
        out: &mut Vec<u8>,
        message: &Message<'_>,
        given: Option<Result<Bytes, RpcError>>,
    ) {
        self.counters.call(&message.method());
        let result = match given {
            Some(given) => given,
            None => self.call(message).await,
        };
        match result {
            Ok(result) => append_result(out, message.id(), &result),
            Err(error) => envelope::error(out, message.id(), &error),
        }
    }

    /// Response of the node, or the one that faults make of it.
    async fn call(&self, message: &Message<'_>) -> Result<Bytes, RpcError> {
        let faults = &self.node.faults;
        if faults.is_empty() {
            return self.honest(message).await;
        }
        let query = message.query(self.node.rules()).ok();
        let height = query.and_then(|(_, query)| self.node.subject(&query));
        let subject = [Subject { method: message.method(), height }];
        let error = faults.take(&subject, |fault| match fault {
            Fault::Error(text) => Some(text.clone()),
            _ => None,
        });
        if let Some(message) = error {
            return Err(RpcError { code: -32000, message: message.into() });
        }
        let result = match self.honest(message).await {
            Ok(result) => result,
            // A false result also takes the place of an error: of a height that is not there.
            Err(error) => return faults.take(&subject, false_result).ok_or(error),
        };
        let method = &subject[0].method;
        Ok(faults.change(&subject, result, |fault, result| forged(fault, method, result)))
    }

    async fn honest(&self, message: &Message<'_>) -> Result<Bytes, RpcError> {
        match message.query(self.node.rules()) {
            Ok((method, query)) => match self.constant(method) {
                Some(result) => Ok(Bytes::from_static(result.as_bytes())),
                None => answer(&self.node, method.name(), query).await,
            },
            Err(NoQuery::Null) => Ok(Bytes::from_static(b"null")),
            Err(NoQuery::Error(error)) => Err(error),
            Err(NoQuery::NotServed) => {
                state::result(message).ok_or_else(|| RpcError::no_method(&message.method()))
            }
        }
    }

    /// Responses that do not depend on the blocks that a node has.
    fn constant(&self, method: Method) -> Option<&'static str> {
        Some(match method {
            Method::ClientVersion => self.client_version(),
            Method::Syncing => "false",
            Method::Listening => "true",
            Method::PeerCount => "\"0x0\"",
            Method::Modules => r#"{"eth":"1.0","net":"1.0","rpc":"1.0","web3":"1.0"}"#,
            _ => return None,
        })
    }

    fn client_version(&self) -> &'static str {
        match (self.node.rules(), self.node.version()) {
            (Rules::Helicon, _) => {
                r#""avalanchego/1.15.0 [database=v1.4.5, rpcchainvm=46, go=1.26.8]""#
            }
            (Rules::BeforeHelicon, Version::V1_14) => "\"v1.14.2\"",
            (Rules::BeforeHelicon, Version::V1_15) => "\"v1.15.0\"",
        }
    }

    /// Heights that the calls of a body name.
    pub(crate) fn subjects<'m>(&self, request: &'m Request<'_>) -> Vec<Subject<'m>> {
        let messages = match request {
            Request::Single(message) => std::slice::from_ref(message),
            Request::Batch(messages) => messages,
            Request::Empty | Request::Malformed => &[],
        };
        let rules = self.node.rules();
        let subject = |message: &'m Message<'_>| {
            let query = message.query(rules).ok();
            let height = query.and_then(|(_, query)| self.node.subject(&query));
            Subject { method: message.method(), height }
        };
        messages.iter().take(BATCH_ITEMS_MAX).map(subject).collect()
    }
}

/// The answer to a batch that is refused as a whole.
fn refuse_batch(messages: &[Message<'_>]) -> Option<Reply> {
    if messages.is_empty() {
        return Some(Reply::error(b"null", &RpcError::EMPTY_BATCH));
    }
    if messages.len() <= BATCH_ITEMS_MAX {
        return None;
    }
    let call = messages.iter().find(|message| message.kind() == Kind::Call);
    let id = call.map_or(&b"null"[..], Message::id);
    let mut reply = Reply::error(id, &RpcError::BATCH_TOO_LARGE);
    // libevm answers with a batch of one.
    reply.body.insert(0, b'[');
    reply.body.push(b']');
    Some(reply)
}

/// The answer to a call of a batch whose results are too large already.
fn too_large(message: &Message<'_>) -> Vec<u8> {
    let mut out = Vec::new();
    envelope::error(&mut out, message.id(), &RpcError::RESPONSE_TOO_LARGE);
    out
}

fn false_result(fault: &Fault) -> Option<Bytes> {
    match fault {
        Fault::Result(text) => Some(text.clone().into()),
        _ => None,
    }
}

fn append_result(out: &mut Vec<u8>, id: &[u8], result: &[u8]) {
    out.reserve(result.len() + id.len() + 48);
    envelope::write_prefix(out, id);
    out.extend_from_slice(result);
    out.extend_from_slice(envelope::SUFFIX);
}

impl Reply {
    pub(crate) fn error(id: &[u8], error: &RpcError) -> Self {
        let mut body = Vec::new();
        envelope::error(&mut body, id, error);
        Self { body, plain: true }
    }

    /// Appends an answer of a batch.
    fn push(&mut self, answer: &[u8]) {
        self.body.push(if self.body.is_empty() { b'[' } else { b',' });
        self.body.extend_from_slice(answer);
    }

    /// Ends a batch, unless it has no answers.
    fn end_batch(&mut self) {
        match (self.body.is_empty(), self.plain) {
            (true, _) => {}
            (false, true) => self.body.push(b']'),
            (false, false) => self.body.extend_from_slice(b"]\n"),
        }
    }
}
