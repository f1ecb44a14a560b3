//! Calls for an upstream.
//!
//! They are written anew from the parts that were checked. An upstream that reads odd JSON in
//! another way, such as a key that stands twice, could take the client's own text for another call.

mod answered;
mod parts;

use neve_jsonrpc::{Kind, Message, Request, RpcError, envelope, parse_at_most};

pub(crate) use self::answered::{is_same_id, members_of};
use self::parts::is_transaction;
pub(crate) use self::parts::{BatchPart, Transactions};
use super::call_facts::{CallFacts, NamedFilter, only_reads};
use super::caller::{Calls, RelayedCalls};
use crate::config::settings::{is_never_relayed, is_subscription};
use crate::shared::{Reservation, ThreadCounters};

/// Bytes of a call besides its method, its parameters and its id, and of the end of a batch.
const CALL_BYTES: usize = 64;

/// Purpose of a call that decides its way to an upstream.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Purpose {
    /// Any call, or a batch: one upstream answers it.
    Any,
    /// Transactions alone, which may go to all upstreams.
    Transactions,
    /// A subscription, which needs a WebSocket to the upstream.
    Subscription,
}

/// A call, or a batch of calls, for an upstream.
#[derive(Debug)]
pub(crate) struct Outbound {
    /// Body of the request to the upstream.
    pub(crate) body: Vec<u8>,
    /// True if a second upstream may be asked when the first one fails: it only reads.
    pub(crate) repeatable: bool,
    pub(crate) purpose: Purpose,
    /// Facts that decide which upstream is asked.
    pub(crate) facts: Box<CallFacts>,
    /// Ids of the calls, as the client wrote them.
    ids: Vec<Box<[u8]>>,
    /// Responses that its body wants: those of its parts are not among them.
    pub(crate) wanted: usize,
    batch: bool,
    /// Transactions of the batch, if they go to all upstreams.
    transactions: Option<Box<BatchPart>>,
    /// Calls to count when it is relayed.
    pub(crate) calls: Option<Calls>,
    /// True if a response itself says that its upstream is behind: over WebSocket there are no headers.
    pub(crate) says_behind: bool,
    reserved: Option<Reservation>,
}

impl Outbound {
    /// A call that stands alone.
    pub(crate) fn single(message: &Message<'_>) -> Self {
        let mut outbound = Self::empty(false);
        let method = message.method();
        outbound.add(message, &method);
        outbound.purpose = if is_transaction(message, &method) {
            Purpose::Transactions
        } else if is_subscription(&method) {
            Purpose::Subscription
        } else {
            Purpose::Any
        };
        outbound
    }

    /// All of a batch.
    pub(super) fn batch(messages: &[Message<'_>]) -> Self {
        let mut outbound = Self::empty(true);
        messages.iter().for_each(|message| outbound.add(message, &message.method()));
        outbound.end();
        outbound
    }

    /// Calls to another API of the node; `None` if the body is no call, or has one that may never
    /// be relayed. The path may have an API of admin or keystore beside the one it is named for.
    pub(crate) fn of_other_api(body: &[u8], items_max: usize) -> Option<Self> {
        match parse_at_most(body, items_max) {
            Request::Single(message) => may_pass(&message).then(|| Self::single(&message)),
            Request::Batch(messages) => {
                // The parser stops at the limit: calls behind it were not checked.
                let fits = (1..=items_max).contains(&messages.len());
                (fits && messages.iter().all(may_pass)).then(|| Self::batch(&messages))
            }
            Request::Empty | Request::Malformed => None,
        }
    }

    pub(super) fn empty(batch: bool) -> Self {
        let (body, ids) = (Vec::new(), Vec::new());
        let facts = Box::new(CallFacts { in_batch: batch, ..CallFacts::default() });
        let (transactions, calls) = (None, None);
        let (repeatable, purpose) = (true, Purpose::Any);
        let (says_behind, reserved) = (false, None);
        Self {
            body,
            repeatable,
            purpose,
            facts,
            ids,
            wanted: 0,
            batch,
            transactions,
            calls,
            says_behind,
            reserved,
        }
    }

    /// Writes what stands behind the id of an upstream's answer.
    pub(super) fn write_answer(&self, out: &mut Vec<u8>, text: &[u8], behind: bool) {
        out.extend_from_slice(text);
        if behind && self.says_behind {
            say_behind(out);
        }
    }

    fn add(&mut self, message: &Message<'_>, method: &str) {
        let id = matches!(message.kind(), Kind::Call | Kind::Invalid).then(|| message.id());
        self.add_as(message, method, id);
    }

    /// Adds a call whose id is its number among the calls, or a notification.
    pub(super) fn add_numbered(&mut self, message: &Message<'_>) {
        let number = itoa::Buffer::new().format(self.ids.len()).to_owned();
        let id = (message.kind() == Kind::Call).then_some(number.as_bytes());
        self.add_as(message, &message.method(), id);
    }

    fn add_as(&mut self, message: &Message<'_>, method: &str, id: Option<&[u8]>) {
        let kind = message.kind();
        if kind == Kind::Response {
            return; // no server answers it
        }
        if self.batch {
            self.body.push(if self.body.is_empty() { b'[' } else { b',' });
        }
        if kind == Kind::Invalid {
            write_invalid(&mut self.body, id.unwrap_or(b"null"));
        } else {
            self.add_call(id, method, message.params());
        }
        if id.is_some() {
            self.ids.push(message.id().into());
            self.wanted += 1;
        }
    }

    /// Writes a call or notification to the body, and adds its facts.
    fn add_call(&mut self, id: Option<&[u8]>, method: &str, params: Option<&[u8]>) {
        let lens = method.len() + params.map_or(0, <[u8]>::len) + id.map_or(0, <[u8]>::len);
        self.body.reserve(lens + CALL_BYTES);
        let start = self.body.len();
        write_call(&mut self.body, id, method, params);
        // One call with an effect is enough: a second upstream would execute it again.
        self.repeatable &= only_reads(method);
        let named = self.facts.add(id, method, params);
        // A lone call goes to the filter's upstream as a whole. Only a batch may have to be
        // divided.
        if let Some(filter) = named.filter(|_| self.batch) {
            let number = id.is_some().then_some(self.ids.len());
            let span = start..self.body.len();
            self.facts.named.push(NamedFilter { filter, number, span });
        }
    }

    /// Ends a batch.
    pub(super) fn end(&mut self) {
        if self.batch && !self.body.is_empty() {
            self.body.push(b']');
        }
    }

    /// True if nothing is in it.
    pub(crate) fn is_empty(&self) -> bool {
        self.body.is_empty() && self.transactions.is_none()
    }

    /// Ids of the calls, as the client wrote them.
    pub(super) fn ids(&self) -> impl Iterator<Item = &[u8]> {
        self.ids.iter().map(AsRef::as_ref)
    }

    /// Bytes that it takes in memory.
    pub(crate) fn held(&self) -> usize {
        let ids = self.ids.iter().map(|id| id.len() + size_of::<Box<[u8]>>());
        let transactions = self.transactions.as_ref().map_or(0, |part| part.held());
        let methods = self.facts.methods.iter().map(|name| name.len() + size_of::<Box<str>>());
        self.body.capacity() + ids.sum::<usize>() + methods.sum::<usize>() + transactions
    }

    /// Keeps a reservation until the upstream has answered.
    pub(crate) fn keep(&mut self, reservation: Option<Reservation>) {
        self.reserved = reservation;
    }

    /// Takes the reservation of its body, with which it goes on.
    pub(crate) fn take_reservation(&mut self) -> Option<Reservation> {
        self.reserved.take()
    }

    /// Counts its calls: when it is relayed, and not when it is only handed on. Their times come later.
    pub(crate) fn count(&mut self, counters: &ThreadCounters) -> RelayedCalls {
        self.calls.take().unwrap_or_default().count_untimed(counters)
    }

    /// True if no call wants a response.
    pub(crate) fn is_silent(&self) -> bool {
        self.ids.is_empty()
    }

    /// Response with an error for each call.
    pub(crate) fn error(&self, error: &RpcError) -> Vec<u8> {
        let mut out = Vec::new();
        for id in &self.ids {
            if self.batch {
                out.push(if out.is_empty() { b'[' } else { b',' });
            }
            envelope::error(&mut out, id, error);
        }
        match (self.batch, out.is_empty()) {
            // A batch of notifications alone has no error to tell, and still needs a body that is
            // JSON.
            (true, true) => out.extend_from_slice(b"[]\n"),
            (true, false) => out.extend_from_slice(b"]\n"),
            (false, true) => envelope::error(&mut out, b"null", error),
            (false, false) => out.extend_from_slice(envelope::NEWLINE),
        }
        out
    }
}

/// True if a message is a call that another API of the node may get.
fn may_pass(message: &Message<'_>) -> bool {
    let method = message.method();
    let is_word = method.bytes().all(|b| b.is_ascii_alphanumeric() || b"_.".contains(&b));
    // Other servers behind the node may read names in another way. Letters, digits, `_` and `.`
    // do not allow that.
    matches!(message.kind(), Kind::Call | Kind::Notification)
        && is_word
        && !is_never_relayed(&method)
}

/// Appends a call; without an id it wants no answer.
fn write_call(out: &mut Vec<u8>, id: Option<&[u8]>, method: &str, params: Option<&[u8]>) {
    out.extend_from_slice(b"{\"jsonrpc\":\"2.0\"");
    if let Some(id) = id {
        out.extend_from_slice(b",\"id\":");
        out.extend_from_slice(id);
    }
    out.extend_from_slice(b",\"method\":");
    // Escaped, though a name that may be relayed has letters, digits, `_` and `.`: none may end its own text.
    let _: Result<(), _> = serde_json::to_writer(&mut *out, method); // memory takes it
    if let Some(params) = params {
        out.extend_from_slice(b",\"params\":");
        out.extend_from_slice(params);
    }
    out.push(b'}');
}

/// Appends a message that no server takes for a call. Its id comes back with the error.
fn write_invalid(out: &mut Vec<u8>, id: &[u8]) {
    out.extend_from_slice(b"{\"id\":");
    out.extend_from_slice(id);
    out.push(b'}');
}

/// Adds to a response, or to the last one of a batch, what the header of this name says over HTTP.
pub(crate) fn say_behind(text: &mut Vec<u8>) {
    const MEMBER: &[u8] = b",\"x-neve-upstream\":\"behind\"";
    let end = text.trim_ascii_end();
    let end = end.strip_suffix(b"]").unwrap_or(end).trim_ascii_end();
    // A text that is no response is left as it is.
    let Some(members) = end.strip_suffix(b"}") else { return };
    if members.trim_ascii_end().ends_with(b"{") {
        return;
    }
    let place = members.len();
    text.reserve_exact(MEMBER.len()); // it would grow to twice as much
    text.splice(place..place, MEMBER.iter().copied());
}

#[cfg(test)]
mod tests {
    use neve_jsonrpc::parse;

    use super::*;

    fn outbound(body: &str) -> Outbound {
        let Request::Single(message) = parse(body.as_bytes()) else { panic!("{body}") };
        Outbound::single(&message)
    }

    #[test]
    fn call_is_written_anew_from_the_parts_that_were_read() {
        let twice = r#" {"x":1,"method":"eth_sign","ID":"a<","Method":"eth_\u0063all","jsonrpc":"2.0","params":[ 1 ]}, junk"#;
        let made = outbound(twice);
        let expected = r#"{"jsonrpc":"2.0","id":"a<","method":"eth_call","params":[ 1 ]}"#;
        assert_eq!(String::from_utf8_lossy(&made.body), expected);
        let injected = r#"{"jsonrpc":"2.0","id":1,"method":"x\"},{\"id\":2,\"method\":\"y"}"#;
        assert_eq!(String::from_utf8_lossy(&outbound(injected).body), injected);
        let silent = outbound(r#"{"jsonrpc":"2.0","method":"eth_sendRawTransaction"}"#);
        let expected = r#"{"jsonrpc":"2.0","method":"eth_sendRawTransaction"}"#;
        assert_eq!(String::from_utf8_lossy(&silent.body), expected);
    }

    #[test]
    fn call_to_another_api_is_written_anew_unless_it_reaches_keys_or_settings() {
        let passed = |body: &str| Some(Outbound::of_other_api(body.as_bytes(), 2)?.body);
        let text = |body: &str| passed(body).map(|body| String::from_utf8(body).unwrap());
        let call = r#"{"jsonrpc":"2.0","id":1,"method":"info.getNodeID"}"#;
        assert_eq!(text(&format!(" {call} junk")).as_deref(), Some(call));
        let both = format!("[{call},{call}]");
        assert_eq!(text(&both), Some(both));
        let twice = r#"{"jsonrpc":"2.0","id":1,"method":"admin.x","METHOD":"info.peers"}"#;
        let last = r#"{"jsonrpc":"2.0","id":1,"method":"info.peers"}"#;
        assert_eq!(text(twice).as_deref(), Some(last));
        let with = |method: &str| call.replace("info.getNodeID", method);
        for method in
            ["admin.lockProfile", "Admin.x", "admin_x", "keystore.exportUser", "personal_sign"]
        {
            assert_eq!(passed(&with(method)), None, "{method}");
            assert_eq!(passed(&format!("[{call},{}]", with(method))), None, "{method}");
        }
        for body in ["", "[]", "x", "{}", "[1]", &with("a b"), &format!("[{call},{call},{call}]")] {
            assert_eq!(passed(body), None, "{body}");
        }
    }

    #[test]
    fn error_has_the_id_of_the_call() {
        let made = outbound(r#"{"jsonrpc":"2.0","id":"<","method":"eth_call"}"#);
        let text = String::from_utf8(made.error(&RpcError::TIMED_OUT)).unwrap();
        let expected = "{\"jsonrpc\":\"2.0\",\"id\":\"\\u003c\",\"error\":{\"code\":-32002,\"message\":\"request timed out\"}}\n";
        assert_eq!(text, expected);
    }

    #[test]
    fn response_says_that_its_upstream_is_behind() {
        let said = |text: &str| {
            let mut text = text.as_bytes().to_vec();
            say_behind(&mut text);
            String::from_utf8(text).unwrap()
        };
        let member = r#""x-neve-upstream":"behind""#;
        assert_eq!(said("{\"id\":1}\n"), format!("{{\"id\":1,{member}}}\n"));
        assert_eq!(
            said(r#"[{"a":1},{"b":{}} ] "#),
            format!(r#"[{{"a":1}},{{"b":{{}},{member}}} ] "#)
        );
        for other in ["", "7", "[]", "{}", "[{ }]", "\"}\"", "[1]"] {
            assert_eq!(said(other), other);
        }
    }
}
