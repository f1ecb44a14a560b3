//! A batch while it is made, with a gap for each call that an upstream answers.

mod answers;

use bytes::Bytes;
use neve_jsonrpc::{Kind, Message, RpcError, envelope};
use neve_store::residency::Cold;

pub(crate) use self::answers::answers_of;
use super::outbound::Outbound;
use crate::body::{AcceptEncoding, BodyBuilder, ResponseBody};
use crate::rpc::cursors::UndoLog;
use crate::shared::{Account, Holder, Reservation};

/// A batch that is answered in part.
#[derive(Debug)]
pub(crate) struct Split {
    /// Calls for an upstream, numbered from 0 in their order.
    pub(crate) outbound: Outbound,
    /// Text before each gap.
    parts: Vec<BodyBuilder>,
    /// Bytes that the parts take in memory.
    parts_held: usize,
    /// Text behind the last gap.
    out: BodyBuilder,
    accepts: AcceptEncoding,
    /// Number of answers, gaps included.
    answers: usize,
    /// Number of answers that neve gives.
    pub(super) served: usize,
    /// Messages that are refused.
    pub(super) refused: usize,
    /// Messages that are left to upstreams.
    left: usize,
    /// Changes to undo if the client never gets the answers.
    pub(super) changes: UndoLog,
    reserved: Option<Reservation>,
}

/// A batch that is made whole again.
#[derive(Debug)]
pub(crate) struct Mixed {
    pub(crate) body: ResponseBody,
    /// Number of calls that neither neve nor an upstream answered.
    pub(crate) misses: usize,
    /// True if some were answered.
    pub(crate) answered: bool,
    /// True if neve answered or refused some, and not upstreams all of them.
    pub(crate) own: bool,
    /// True if an upstream that answered lacks the newest height that the client may have seen.
    pub(crate) behind: bool,
}

impl Mixed {
    /// Reserves the memory of the body. `None` if clients use too much.
    pub(crate) fn reserved(mut self, account: Account<'_>) -> Option<Self> {
        let held = self.body.held_to_send();
        self.body.reserve(account, held).then_some(self)
    }
}

/// Outcome of a request to an upstream for gaps of a batch.
#[derive(Debug)]
pub(crate) struct Filling {
    /// Numbers of its calls. The first request is for all calls that no other one has.
    pub(crate) numbers: Vec<usize>,
    /// True if the ids of its calls are their places among `numbers`, and not these.
    pub(crate) by_place: bool,
    /// Response, or the error of each call.
    pub(crate) response: Result<Bytes, RpcError>,
    /// True if the upstream lacks the newest height that the client may have seen.
    pub(crate) behind: bool,
}

impl Filling {
    /// An error in place of each answer.
    pub(crate) fn failed(error: RpcError) -> Self {
        Self { numbers: Vec::new(), by_place: false, response: Err(error), behind: false }
    }

    /// Puts `error` in place of a response that has more than `bytes_max`.
    pub(crate) fn limit(&mut self, bytes_max: usize, error: &RpcError) {
        if self.response.as_ref().is_ok_and(|response| response.len() > bytes_max) {
            self.response = Err(error.clone());
        }
    }

    /// Outcome without a request, if other requests have all calls.
    pub(crate) fn none() -> Self {
        Self::failed(absent())
    }

    /// An error in place of each answer for which clients have no memory.
    pub(crate) fn without_memory() -> Self {
        let message = "relay: memory for clients is used up; try again later".into();
        Self::failed(RpcError { code: -32005, message })
    }

    /// Answers to its calls among `count`.
    fn texts(&self, count: usize) -> Vec<Option<Bytes>> {
        let Ok(bytes) = &self.response else { return vec![None; count] };
        if !self.by_place {
            return answers_of(bytes, count);
        }
        let mut texts = vec![None; count];
        let answers = answers_of(bytes, self.numbers.len());
        self.numbers.iter().zip(answers).for_each(|(number, text)| texts[*number] = text);
        texts
    }
}

impl Split {
    pub(super) fn new(answers: usize, accepts: AcceptEncoding) -> Self {
        Self {
            outbound: Outbound::empty(true),
            parts: Vec::new(),
            parts_held: 0,
            out: BodyBuilder::new(answers, accepts),
            accepts,
            answers: 0,
            served: 0,
            refused: 0,
            left: 0,
            changes: UndoLog::default(),
            reserved: None,
        }
    }

    /// Place for the next answer.
    pub(super) fn out(&mut self) -> &mut BodyBuilder {
        &mut self.out
    }

    /// Begins an answer; returns the length so far.
    pub(super) fn begin(&mut self) -> usize {
        let before = self.out.len();
        self.out.text().push(if self.answers == 0 { b'[' } else { b',' });
        before
    }

    /// Takes the beginning of an answer back.
    pub(super) fn take_back(&mut self, before: usize) {
        debug_assert_eq!(self.out.len(), before + 1);
        self.out.text().pop();
    }

    /// Notes that neve answered; returns the bytes of the answer.
    pub(super) fn served(&mut self, before: usize) -> usize {
        (self.answers, self.served) = (self.answers + 1, self.served + 1);
        self.out.len() - before
    }

    /// Leaves a message to an upstream, or a transaction to all if `broadcasts` says so. A notification
    /// leaves no gap.
    pub(super) fn leave(&mut self, message: &Message<'_>, broadcasts: bool) {
        self.outbound.add_to_part(message, broadcasts);
        self.left += 1;
        if message.kind() == Kind::Call {
            self.answers += 1;
            let next = BodyBuilder::new(0, self.accepts);
            let part = std::mem::replace(&mut self.out, next);
            self.parts_held += part.held() + size_of::<BodyBuilder>();
            self.parts.push(part);
        }
    }

    /// Leaves all of a message to upstreams, as a part of a batch that none other answers.
    pub(super) fn leave_whole(&mut self, message: &Message<'_>, broadcasts: bool) {
        let before = self.begin();
        match message.kind() {
            Kind::Call => self.leave(message, broadcasts),
            Kind::Invalid => {
                envelope::error(self.out.text(), message.id(), &RpcError::INVALID_REQUEST);
                self.served(before);
            }
            Kind::Notification => {
                self.take_back(before);
                self.leave(message, broadcasts);
            }
            Kind::Response => self.take_back(before),
        }
    }

    /// Refuses a message; `error` has the error of a call and its data.
    pub(super) fn refused(&mut self, message: &Message<'_>, error: Option<(RpcError, String)>) {
        self.refused += 1;
        // A refused notification has no response, but makes the batch a miss.
        if let Some((error, data)) = error {
            envelope::error_with_data(self.out.text(), message.id(), &error, &data);
            self.answers += 1;
        }
    }

    /// Bytes that it takes in memory.
    pub(crate) fn held(&self) -> usize {
        self.parts_held + self.out.held() + self.outbound.held()
    }

    /// Keeps a reservation until the batch is whole.
    pub(super) fn keep(&mut self, reservation: Option<Reservation>) {
        self.reserved = reservation;
    }

    pub(super) fn end(&mut self) {
        if self.answers > 0 {
            self.out.text().extend_from_slice(b"]\n");
        }
    }

    /// Ends the batch because its results are too long, or took too long: each call that is left gets this
    /// error. The answer that crossed the limit stays, and there is no newline (libevm, rpc/handler.go).
    pub(super) fn cut_short(&mut self, left: &[Message<'_>], error: &RpcError) {
        for message in left {
            if matches!(message.kind(), Kind::Call | Kind::Invalid) {
                self.begin();
                envelope::error_unread(self.out.text(), message.raw_id(), error);
                (self.answers, self.served) = (self.answers + 1, self.served + 1);
            }
        }
        if self.answers > 0 {
            self.out.text().push(b']');
        }
    }

    /// True if all of the batch is left to upstreams. A message that neve ignores or executes must not reach one: nothing
    /// has said that it may.
    pub(super) fn is_left_whole(&self, messages: &[Message<'_>]) -> bool {
        let count = messages.iter().filter(|message| message.kind() != Kind::Response).count();
        self.left == count
    }

    /// Takes the changes that its calls made.
    pub(crate) fn take_changes(&mut self) -> UndoLog {
        std::mem::take(&mut self.changes)
    }

    /// The body, if there are no gaps.
    pub(super) fn finish(self) -> Result<ResponseBody, Cold> {
        self.out.finish()
    }

    /// Reserves memory for the body that [`Self::fill`] makes; false if clients use too much.
    pub(crate) fn reserve(&mut self, account: Account<'_>, fillings: &[Filling]) -> bool {
        let bytes = self.filled_bytes(fillings);
        account.hold(&mut self.reserved, Holder::Relay, bytes)
    }

    /// Bytes of the whole batch with these answers, at most.
    fn filled_bytes(&self, fillings: &[Filling]) -> usize {
        const GAP_BYTES: usize = 256; // around an answer and its id, or an error in its place
        let answers = fillings.iter().filter_map(|filling| filling.response.as_ref().ok());
        let ids = self.outbound.ids().map(|id| envelope::echoed_len(id) + GAP_BYTES);
        self.held() + ids.sum::<usize>() + answers.map(Bytes::len).sum::<usize>()
    }

    /// Fills the gaps with upstreams' answers, or with errors. That takes long for long answers. The caller
    /// reserves the memory of the body.
    pub(crate) fn fill(self, fillings: &[Filling]) -> Option<Mixed> {
        let (count, bytes) = (self.parts.len(), self.filled_bytes(fillings));
        let mut texts: Vec<_> = fillings.iter().map(|filling| filling.texts(count)).collect();
        let mut fillers = vec![0; count];
        for (filler, filling) in fillings.iter().enumerate() {
            filling.numbers.iter().for_each(|number| fillers[*number] = filler);
        }
        let mut whole = BodyBuilder::new(0, self.accepts);
        whole.text().reserve_exact(bytes); // it would grow to twice as much
        let mut misses = self.refused;
        let gaps = self.outbound.ids().zip(fillers).enumerate();
        for (part, (number, (id, filler))) in self.parts.into_iter().zip(gaps) {
            whole.append(part);
            if let Some(text) = texts[filler][number].take() {
                envelope::write_id(whole.text(), id);
                self.outbound.write_answer(whole.text(), &text, fillings[filler].behind);
            } else {
                let error = fillings[filler].response.as_ref().err().cloned();
                envelope::error(whole.text(), id, &error.unwrap_or_else(absent));
                misses += 1;
            }
        }
        // Notifications alone have no answers, and an upstream may have them all the same.
        let is_heard = count == 0 && fillings.iter().any(|filling| filling.response.is_ok());
        let answered = self.served > 0 || misses < self.refused + count || is_heard;
        whole.append(self.out);
        let mut body = whole.finish().ok()?;
        body.keep(self.reserved);
        let behind = fillings.iter().any(|filling| filling.behind);
        let own = self.served + self.refused > 0;
        Some(Mixed { body, misses, answered, own, behind })
    }
}

/// Error of a call that the response to its batch lacks.
fn absent() -> RpcError {
    RpcError { code: -32603, message: "relay: the upstream did not answer".into() }
}

#[cfg(test)]
mod tests {
    use neve_jsonrpc::{Request, parse};

    use super::*;
    use crate::shared::tests::{address, plenty};

    #[test]
    fn gaps_are_filled_by_the_upstreams_of_their_calls_alone() {
        let calls = (0..4).map(|id| format!(r#"{{"jsonrpc":"2.0","id":"{id}","method":"x_y"}}"#));
        let body = format!("[{}]", calls.collect::<Vec<_>>().join(","));
        let Request::Batch(messages) = parse(body.as_bytes()) else { panic!("{body}") };
        let mut split = Split::new(4, AcceptEncoding::default());
        messages.iter().for_each(|message| split.leave_whole(message, false));
        split.end();
        let all = |text: &str| {
            let item = |id| format!(r#"{{"jsonrpc":"2.0","id":{id},"result":"{text}"}}"#);
            Ok(format!("[{}]", [0, 1, 2, 3].map(item).join(",")).into())
        };
        let fillings = [
            Filling { response: all("a"), ..Filling::none() },
            Filling { numbers: vec![1], response: all("b"), behind: true, ..Filling::none() },
            Filling { numbers: vec![3], ..Filling::failed(RpcError::TIMED_OUT) },
        ];
        let mixed = split.fill(&fillings).unwrap().reserved(plenty().account(address(1))).unwrap();
        assert_eq!((mixed.misses, mixed.answered, mixed.own, mixed.behind), (1, true, false, true));
        let answers: serde_json::Value = serde_json::from_slice(&mixed.body.into_bytes()).unwrap();
        let found = [0, 1, 2].map(|at| answers[at]["result"].as_str());
        assert_eq!(found, [Some("a"), Some("b"), Some("a")]);
        assert_eq!(answers[3]["error"]["code"], RpcError::TIMED_OUT.code);
    }

    #[test]
    fn whole_batch_takes_no_more_memory_than_was_reserved_for_it() {
        let call = r#"[{"jsonrpc":"2.0","id":"<","method":"x_y"}]"#;
        let Request::Batch(messages) = parse(call.as_bytes()) else { panic!("{call}") };
        let mut split = Split::new(1, AcceptEncoding::default());
        split.leave_whole(&messages[0], false);
        split.end();
        let answer = format!(r#"[{{"jsonrpc":"2.0","id":0,"result":"{}"}}]"#, "x".repeat(1 << 20));
        let fillings = [Filling { response: Ok(answer.into()), ..Filling::none() }];
        let (memory, pieces) = (plenty(), 1024); // `Mixed::reserved` sees to the list of slices
        assert!(split.reserve(memory.account(address(1)), &fillings));
        assert!(split.fill(&fillings).unwrap().body.held() < memory.used() + pieces);
    }
}
