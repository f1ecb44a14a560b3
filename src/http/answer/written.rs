//! Whole responses to plain requests, made at once or on a thread that may wait.

use std::net::TcpStream;
use std::sync::{Arc, Mutex};

use hyper::StatusCode;

use super::responder::Responder;
use crate::http::response::{Persistence, ResponseWriter};
use crate::http::{Answered, NotDone, OffloadedRequest, RequestCounts, UnsentResponse, Waited};
use crate::rpc::RpcResponse;
use crate::shared::lock::lock;
use crate::shared::{Began, Class, Work, add, has_gone};

impl Responder {
    /// Hands a plain request to a thread that may wait for the disk or take long. That thread sends as
    /// much as the socket takes and passes the rest to `answered`, or nothing if sending failed. A
    /// request to relay comes back.
    pub(crate) fn answer_offloaded(
        self: &Arc<Self>,
        offloaded: OffloadedRequest,
        stream: TcpStream,
        answered: impl FnOnce(Option<Answered>) + Send + 'static,
    ) {
        add(&self.rpc.counters.handed_over, 1);
        let (class, began) = (self.class(&offloaded), Began::now());
        let (address, persistence) = (offloaded.address, offloaded.persistence);
        // In a shared place: a queue that refuses the job drops it, and the client still needs an answer.
        let waits = Arc::new(Mutex::new(Some((stream, Told(Some(answered))))));
        let (responder, handed) = (Arc::clone(self), Arc::clone(&waits));
        let job = move || {
            let Some((stream, told)) = take(&handed) else { return };
            told.tell(responder.answer_waiting(offloaded, stream, began));
        };
        if self.offload.submit(class, address, job).is_err()
            && let Some((stream, told)) = take(&waits)
        {
            told.tell(Some(self.refuse_full(stream, persistence).into()));
        }
    }

    /// Sends that too many requests wait. Returns the rest of that response; nothing if sending failed.
    fn refuse_full(&self, stream: TcpStream, persistence: Persistence) -> Option<Waited> {
        let busy = self.named(self.not_done(NotDone::Full));
        self.rpc.counters.respond(busy.status().as_u16());
        send(stream, ResponseWriter::new(busy, persistence))
    }

    /// Returns the class of a request that is offloaded.
    fn class(&self, offloaded: &OffloadedRequest) -> Class {
        match self.rpc.class(offloaded.body()) {
            // Nothing is read from the disk: these threads may be as many as processors.
            Class::ColdRead if offloaded.unpacks => Class::Unpack,
            class => class,
        }
    }

    /// Answers on a thread that may wait, and sends as much as the socket takes; nothing if that failed.
    fn answer_waiting(
        &self,
        offloaded: OffloadedRequest,
        stream: TcpStream,
        began: Began,
    ) -> Option<Answered> {
        // A search ends with its client.
        let gone = || has_gone(&stream);
        let work = Work::elsewhere(self.rpc.limits.work, began, &gone);
        let (body, accepts, address) = (offloaded.body(), offloaded.accepts, offloaded.address);
        let (mut reply, calls) = self.rpc.answer_waiting(body, accepts, address, &work)?;
        let (waited, response) = if reply.needs_upstream() {
            reply.take_changes().undo(&self.rpc.filters); // hyper's thread executes all of it again
            (Some(Waited::Unanswered(stream, offloaded.request)), None)
        } else {
            // Sent from here: the response need not wait until the event loop wakes and has its turn.
            let (out, status) = self.uncounted(reply, offloaded.persistence);
            let response = Some((status, out.body_len()));
            (send(stream, out), response)
        };
        let counted = RequestCounts { calls, took: began.elapsed(), response };
        Some(Answered { waited, counted: Some(counted) })
    }

    /// Counts a response of another thread, because only one thread may write the counters. The client
    /// may have the response already.
    pub(crate) fn count(&self, done: Answered) -> Option<Waited> {
        let counters = &self.rpc.counters;
        if let Some(RequestCounts { calls, took, response }) = done.counted {
            calls.count(counters, took);
            if let Some((status, len)) = response {
                counters.respond(status.as_u16());
                add(&counters.bytes, len as u64);
            }
        }
        done.waited
    }

    /// Makes and counts the whole response to a plain request.
    pub(crate) fn out(&self, reply: RpcResponse, persistence: Persistence) -> ResponseWriter {
        let (out, status) = self.uncounted(reply, persistence);
        self.rpc.counters.respond(status.as_u16());
        add(&self.rpc.counters.bytes, out.body_len() as u64);
        out
    }

    /// Writes a response without counting it: only one thread may count.
    fn uncounted(
        &self,
        reply: RpcResponse,
        persistence: Persistence,
    ) -> (ResponseWriter, StatusCode) {
        match reply {
            // Nearly all: their head is copied from a prepared text, without a map of headers.
            RpcResponse::Served(body) if body.coding().is_none() => {
                let head = self.rpc.serving.head();
                (ResponseWriter::plain(body, persistence, head), StatusCode::OK)
            }
            reply => {
                let response = self.response(reply);
                let status = response.status();
                (ResponseWriter::new(response, persistence), status)
            }
        }
    }
}

/// Sends as much of a response as the socket takes. Returns the rest; nothing if sending failed.
fn send(stream: TcpStream, out: ResponseWriter) -> Option<Waited> {
    UnsentResponse { stream, out: Box::new(out) }.send().map(Waited::Unsent)
}

/// Takes a value that another thread may have taken.
fn take<T>(place: &Mutex<Option<T>>) -> Option<T> {
    lock(place).take()
}

/// Tells the event loop the outcome of a request, also when it is dropped without one: otherwise the
/// connection would wait for ever.
struct Told<F: FnOnce(Option<Answered>)>(Option<F>);

impl<F: FnOnce(Option<Answered>)> Told<F> {
    fn tell(mut self, done: Option<Answered>) {
        if let Some(answered) = self.0.take() {
            answered(done);
        }
    }
}

impl<F: FnOnce(Option<Answered>)> Drop for Told<F> {
    fn drop(&mut self) {
        if let Some(answered) = self.0.take() {
            answered(None);
        }
    }
}
