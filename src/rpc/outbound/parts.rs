//! Calls of a batch that need upstreams of their own: those that name filters go to the issuers of
//! these, and transactions to all upstreams.

use neve_jsonrpc::{Kind, Message};

use super::super::call_facts::{NamedFilter, SEND};
use super::{Outbound, Purpose};

/// Transactions of one request, and the form of its response.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Transactions {
    /// True for a batch, whose ids are numbered from 0. A call alone keeps the id of its client.
    pub(crate) in_batch: bool,
    /// Transactions with an id. The others have no response.
    pub(crate) count: usize,
}

/// Calls of a batch for upstreams of their own.
#[derive(Debug)]
pub(crate) struct BatchPart {
    pub(crate) outbound: Outbound,
    /// Numbers of the calls in the batch.
    pub(crate) numbers: Vec<usize>,
}

impl BatchPart {
    fn empty() -> Self {
        Self { outbound: Outbound::empty(true), numbers: Vec::new() }
    }

    /// Bytes that it takes in memory.
    pub(super) fn held(&self) -> usize {
        self.outbound.held() + size_of_val(&*self.numbers)
    }
}

/// True if a message, which is of `method`, sends a transaction.
pub(super) fn is_transaction(message: &Message<'_>, method: &str) -> bool {
    method == SEND && matches!(message.kind(), Kind::Call | Kind::Notification)
}

impl Outbound {
    /// True if a batch has transactions that go to all upstreams if `broadcasts` says so, or calls that name filters,
    /// which may be of several upstreams.
    pub(in crate::rpc) fn has_parts(&self, messages: &[Message<'_>], broadcasts: bool) -> bool {
        self.names_filters()
            || broadcasts
                && messages.iter().any(|message| is_transaction(message, &message.method()))
    }

    /// True if some of its calls may go to an upstream of their own.
    pub(in crate::rpc) fn is_parted(&self) -> bool {
        self.names_filters() || self.transactions.is_some()
    }

    /// True if several messages of a batch name filters, which may be of several upstreams.
    fn names_filters(&self) -> bool {
        self.facts.named.len() > 1
    }

    /// Adds a call or notification to a batch; a transaction to those that go to all upstreams, if
    /// `broadcasts` says so.
    pub(in crate::rpc) fn add_to_part(&mut self, message: &Message<'_>, broadcasts: bool) {
        if !broadcasts || !is_transaction(message, &message.method()) {
            return self.add_numbered(message);
        }
        let part = self.transactions.get_or_insert_with(|| Box::new(BatchPart::empty()));
        // In one batch and in their order: a node takes those of one sender by their nonces.
        part.outbound.add_numbered(message);
        if message.kind() == Kind::Call {
            part.numbers.push(self.ids.len());
            self.ids.push(message.id().into());
        }
    }

    /// Returns the transactions, if it has nothing else.
    pub(crate) fn sent(&self) -> Option<Transactions> {
        let sent = Transactions { in_batch: self.batch, count: self.ids.len() };
        (self.purpose == Purpose::Transactions).then_some(sent)
    }

    /// Takes calls out of a batch that has ended: transactions that go to all upstreams, and calls that name
    /// filters of other issuers than that of the first known filter. `issuer` finds the issuer of a filter.
    pub(crate) fn take_parts(&mut self, issuer: impl Fn(&str) -> Option<usize>) -> Vec<BatchPart> {
        let mut parts = self.take_filters(issuer);
        parts.extend(self.take_transactions());
        parts
    }

    fn take_transactions(&mut self) -> Option<BatchPart> {
        let mut part = *self.transactions.take()?;
        part.outbound.purpose = Purpose::Transactions;
        part.outbound.end();
        Some(part)
    }

    fn take_filters(&mut self, issuer: impl Fn(&str) -> Option<usize>) -> Vec<BatchPart> {
        if !self.names_filters() {
            return Vec::new(); // nearly always
        }
        let named = std::mem::take(&mut self.facts.named);
        let places: Vec<_> = named.iter().map(|one| issuer(&one.filter)).collect();
        // A call before a notification: the rest should have a response if it can.
        let known = || named.iter().zip(&places).filter(|(_, place)| place.is_some());
        let own = known().find(|(one, _)| one.number.is_some()).or_else(|| known().next());
        let Some((own, own_place)) = own.map(|(one, place)| (one.filter.clone(), *place)) else {
            return Vec::new();
        };
        self.facts.filter = Some(own);
        let mut parts = Vec::<(usize, BatchPart)>::new();
        let mut kept = Vec::with_capacity(self.body.len());
        let mut at = 0;
        for (NamedFilter { filter, number, span }, place) in named.into_iter().zip(places) {
            let Some(place) = place.filter(|_| place != own_place) else { continue };
            let known = parts.iter().position(|(other, _)| *other == place);
            let known = known.unwrap_or_else(|| {
                parts.push((place, self.part_of(filter)));
                parts.len() - 1
            });
            let (_, part) = &mut parts[known];
            let out = &mut part.outbound.body;
            out.push(if out.is_empty() { b'[' } else { b',' });
            out.extend_from_slice(&self.body[span.clone()]);
            let wanted = usize::from(number.is_some());
            (self.wanted, part.outbound.wanted) =
                (self.wanted - wanted, part.outbound.wanted + wanted);
            part.numbers.extend(number);
            kept.extend_from_slice(&self.body[at..span.start - 1]); // without the comma before it
            at = span.end;
        }
        if parts.is_empty() {
            return Vec::new();
        }
        kept.extend_from_slice(&self.body[at..]);
        if let Some(first) = kept.first_mut() {
            *first = b'['; // a comma, if the first call is gone
        }
        self.body = kept;
        let ended = parts.into_iter().map(|(_, mut part)| {
            part.outbound.end();
            part
        });
        ended.collect()
    }

    /// Calls of a batch that name filters of the issuer of this one; none yet.
    fn part_of(&self, filter: Box<str>) -> BatchPart {
        let mut part = BatchPart::empty();
        part.outbound.repeatable = self.repeatable;
        part.outbound.facts.filter = Some(filter);
        part
    }
}

#[cfg(test)]
mod tests {
    use neve_jsonrpc::{Request, parse};

    use super::*;

    #[test]
    fn batch_is_parted_by_the_issuers_of_its_filters() {
        let call = |id: u32, method: &str, params: &str| {
            format!(r#"{{"jsonrpc":"2.0","id":{id},"method":"{method}","params":{params}}}"#)
        };
        let poll =
            |id: u32, filter: &str| call(id, "eth_getFilterChanges", &format!("[\"{filter}\"]"));
        let made = |calls: &[String]| {
            let body = format!("[{}]", calls.join(","));
            let Request::Batch(messages) = parse(body.as_bytes()) else { panic!("{body}") };
            let mut made = Outbound::empty(true);
            messages.iter().for_each(|message| made.add_numbered(message));
            made.end();
            made
        };
        // Issuers by the second letter; "0x?" is unknown.
        let issuer =
            |id: &str| id[2..].starts_with(['a', 'b', 'c']).then(|| usize::from(id.as_bytes()[2]));
        let text = |body: &[u8]| String::from_utf8_lossy(body).into_owned();
        let calls = [
            poll(9, "0x?"),
            poll(9, "0xB1"),
            poll(9, "0xa1"),
            call(9, "eth_call", "[]"),
            poll(9, "0xb2"),
            poll(9, "0xc1"),
            poll(9, "0xa2"),
        ];
        let mut whole = made(&calls);
        let parts = whole.take_parts(issuer);
        let kept = [poll(0, "0x?"), poll(1, "0xB1"), call(3, "eth_call", "[]"), poll(4, "0xb2")];
        assert_eq!(text(&whole.body), format!("[{}]", kept.join(",")));
        assert_eq!(whole.facts.filter.as_deref(), Some("0xb1"));
        let wanted = parts.iter().map(|part| part.outbound.wanted);
        assert_eq!((whole.wanted, wanted.collect()), (4, vec![2, 1]));
        let found: Vec<_> = parts
            .iter()
            .map(|part| {
                let BatchPart { outbound, numbers } = part;
                (text(&outbound.body), outbound.facts.filter.as_deref(), &numbers[..])
            })
            .collect();
        let of_a = format!("[{},{}]", poll(2, "0xa1"), poll(6, "0xa2"));
        let of_c = format!("[{}]", poll(5, "0xc1"));
        assert_eq!(found, [(of_a, Some("0xa1"), &[2, 6][..]), (of_c, Some("0xc1"), &[5][..])]);
        assert!(whole.take_parts(issuer).is_empty());
        // One issuer, or no known one.
        for calls in [[poll(9, "0xa1"), poll(9, "0xa2")], [poll(9, "0x?"), poll(9, "0xa2")]] {
            let mut whole = made(&calls);
            let before = whole.body.clone();
            assert!(whole.take_parts(issuer).is_empty() && whole.body == before);
        }
    }

    #[test]
    fn transactions_of_a_batch_are_parted_in_their_order_and_numbered_apart() {
        let call = |id: &str, method: &str| {
            format!(r#"{{"jsonrpc":"2.0",{id}"method":"{method}","params":["{method}"]}}"#)
        };
        let [a, b] = ["\"id\":\"a<\",", "\"id\":9,"];
        let calls = [call(a, SEND), call(b, "eth_call"), call("", SEND), call(b, SEND)];
        let made = |calls: &[String], broadcasts: bool| {
            let body = format!("[{}]", calls.join(","));
            let Request::Batch(messages) = parse(body.as_bytes()) else { panic!("{body}") };
            let mut made = Outbound::empty(true);
            messages.iter().for_each(|message| made.add_to_part(message, broadcasts));
            made.end();
            made
        };
        let text = |body: &[u8]| String::from_utf8_lossy(body).into_owned();
        let numbered = |number: u32, method: &str| call(&format!("\"id\":{number},"), method);
        let mut whole = made(&calls, true);
        assert!(whole.is_parted() && !whole.is_empty());
        assert!(whole.held() > calls.concat().len(), "{}", whole.held());
        let parts = whole.take_parts(|_| None);
        assert_eq!(text(&whole.body), format!("[{}]", numbered(1, "eth_call")));
        assert_eq!((whole.wanted, parts[0].outbound.wanted), (1, 2));
        assert!(whole.repeatable, "the rest only reads");
        let [BatchPart { outbound, numbers }] = &parts[..] else { panic!("{parts:?}") };
        let sent = [numbered(0, SEND), call("", SEND), numbered(1, SEND)];
        assert_eq!(text(&outbound.body), format!("[{}]", sent.join(",")));
        assert_eq!(*numbers, [0, 2]);
        let two = Transactions { in_batch: true, count: 2 };
        assert_eq!((outbound.sent(), outbound.repeatable), (Some(two), false));
        let ids: Vec<_> = whole.ids().map(text).collect();
        assert_eq!(ids, ["\"a<\"", "9", "9"]);
        assert!(whole.take_parts(|_| None).is_empty());
        // Transactions alone leave no rest.
        let mut alone = made(&calls[..1], true);
        assert!(!alone.is_empty());
        assert_eq!(alone.take_parts(|_| None).len(), 1);
        assert!(alone.is_empty());
        // One upstream has all without `--relay-broadcast`.
        let mut whole = made(&calls, false);
        assert!(!whole.is_parted() && whole.take_parts(|_| None).is_empty());
        assert_eq!(text(&whole.body).matches(SEND).count(), 6);
    }
}
