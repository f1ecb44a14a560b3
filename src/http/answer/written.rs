//! Answers to plain requests, written head and all: at once, or on a thread that may wait.

use std::net::TcpStream;
use std::sync::{Arc, Mutex};

use super::responder::Responder;
use crate::http::response::{Persistence, ResponseWriter};
use crate::http::{NotDone, OffloadedRequest, UnsentResponse, Waited};
use crate::rpc::RpcResponse;
use crate::shared::lock::lock;
use crate::shared::{Began, Work, add, has_gone};

impl Responder {
    /// Answers a plain request on a thread that may wait for the disk, and sends there as much as
    /// goes at once; returns what is left, or nothing if that failed. It is counted when the client
    /// may have it already. A request that is to be relayed comes back.
    pub(crate) async fn answer_and_send(
        self: &Arc<Self>,
        question: OffloadedRequest,
        stream: TcpStream,
    ) -> Option<Waited> {
        let counters = &self.rpc.counters;
        add(&counters.handed_over, 1);
        let (class, began) = (self.rpc.class(question.body()), Began::now());
        let (responder, address, persistence) =
            (Arc::clone(self), question.address, question.persistence);
        let socket = Arc::new(Mutex::new(Some(stream)));
        let handed = Arc::clone(&socket);
        let work = move || {
            let stream = take(&handed)?;
            let gone = || has_gone(&stream);
            let work = Work::elsewhere(responder.rpc.limits.work, began, &gone);
            let (body, accepts) = (question.body(), question.accepts);
            let (reply, calls) = responder.rpc.answer_waiting(body, accepts, address, &work)?;
            if reply.needs_upstream() {
                return Some((0, calls, Some(Waited::Unanswered(stream, question.request))));
            }
            let out = Box::new(responder.uncounted(reply, persistence));
            let len = out.body_len();
            Some((len, calls, UnsentResponse { stream, out }.send().map(Waited::Unsent)))
        };
        let answering = self.offload.run(class, address, work);
        match answering.await {
            Ok(Some((body_len, calls, waited))) => {
                calls.count(counters, began.elapsed());
                add(&counters.bytes, body_len as u64);
                waited
            }
            Ok(None) | Err(NotDone::Failed) => None,
            Err(NotDone::Full) => {
                let out = Box::new(ResponseWriter::new(self.not_done(NotDone::Full), persistence));
                UnsentResponse { stream: take(&socket)?, out }.send().map(Waited::Unsent)
            }
        }
    }

    /// The answer to a plain request, head and all.
    pub(crate) fn out(&self, reply: RpcResponse, persistence: Persistence) -> ResponseWriter {
        let out = self.uncounted(reply, persistence);
        add(&self.rpc.counters.bytes, out.body_len() as u64);
        out
    }

    /// Writes a response without counting it: only one thread may count.
    fn uncounted(&self, reply: RpcResponse, persistence: Persistence) -> ResponseWriter {
        match reply {
            RpcResponse::Answer(body) if body.coding().is_none() => {
                ResponseWriter::plain(body, persistence, self.rpc.serving.head())
            }
            reply => ResponseWriter::new(self.response(reply), persistence),
        }
    }
}

/// Takes the socket from whoever did not use it.
fn take(socket: &Mutex<Option<TcpStream>>) -> Option<TcpStream> {
    lock(socket).take()
}
