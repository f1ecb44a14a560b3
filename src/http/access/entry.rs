//! The entry of one request, or of one message of a WebSocket. It ends when nothing refers to it any
//! more, and its line is written then.

use std::sync::{Arc, Mutex};
use std::time::{Instant, SystemTime};

use hyper::header::{HeaderMap, HeaderValue};
use hyper::{Method, Response};

use super::called_methods::CalledMethods;
use super::facts::{RequestFacts, ResponseFacts};
use super::line::AccessLine;
use super::request_id::REQUEST_ID;
use super::trace_context::TraceContext;
use crate::config::settings::LogFormat;
use crate::observe::access_log::AccessLog;
use crate::shared::lock::lock;

/// Status of a request whose client left before the response, as nginx has it.
const GONE: u16 = 499;

/// The access log, and the form of its lines.
#[derive(Clone)]
pub(crate) struct Sink {
    log: Arc<AccessLog>,
    format: LogFormat,
}

impl Sink {
    pub(crate) fn new(log: AccessLog, format: LogFormat) -> Self {
        Self { log: Arc::new(log), format }
    }

    /// The log of all lines.
    pub(crate) fn log(&self) -> &AccessLog {
        &self.log
    }
}

/// An unfinished entry.
pub(crate) struct AccessEntry {
    sink: Option<Sink>,
    time: SystemTime,
    began: Instant,
    request: Arc<RequestFacts>,
    /// True of a message of a WebSocket, which `request` opened.
    is_message: bool,
    response: Mutex<ResponseFacts>,
}

impl AccessEntry {
    pub(super) fn of_request(sink: Option<Sink>, request: RequestFacts, len: u64) -> Self {
        Self::new(sink, Arc::new(request), false, len)
    }

    fn new(sink: Option<Sink>, request: Arc<RequestFacts>, is_message: bool, len: u64) -> Self {
        let response = Mutex::new(ResponseFacts { request_bytes: len, ..Default::default() });
        // Two clocks: the time of day may be set while the request runs, so it measures no
        // duration.
        let (time, began) = (SystemTime::now(), Instant::now());
        Self { sink, time, began, request, is_message, response }
    }

    /// True if a line is written, so that more must be known than the id.
    pub(crate) fn is_logged(&self) -> bool {
        self.sink.is_some()
    }

    /// Notes the length of a body that was read, and its methods.
    pub(crate) fn note_body(&self, len: usize, called: CalledMethods) {
        let mut response = lock(&self.response);
        (response.request_bytes, response.called) = (len as u64, called);
    }

    /// Notes the name of the client's API key.
    pub(crate) fn note_key(&self, name: Option<Arc<str>>) {
        lock(&self.response).key = name;
    }

    /// Notes the source of a response, as `x-neve` names it.
    pub(crate) fn note_source(&self, source: Option<&'static str>) {
        lock(&self.response).source = source.map(HeaderValue::from_static);
    }

    /// Notes that the client left the end of a response which hyper had.
    pub(crate) fn note_left(&self) {
        lock(&self.response).is_left = true;
    }

    /// Notes the end of a response.
    pub(crate) fn ends(&self, sent: u64, whole: bool) {
        let mut response = lock(&self.response);
        response.response_bytes = sent;
        // The body of a HEAD is never sent, so none of it is missing.
        response.is_cut = response.is_left || !(whole || self.request.method == Method::HEAD);
    }

    /// Notes a response, which gets the id of its request.
    pub(super) fn answers<B>(&self, response: &mut Response<B>) {
        if let Some(id) = &self.request.id {
            response.headers_mut().insert(REQUEST_ID, id.clone());
        }
        let mut facts = lock(&self.response);
        facts.status = Some(response.status().as_u16());
        facts.source = response.headers().get("x-neve").cloned();
    }

    /// Headers by which an upstream goes on with the trace.
    pub(crate) fn trace(&self) -> HeaderMap {
        self.request.trace.as_ref().map(TraceContext::onward).unwrap_or_default()
    }

    /// Access of the messages of a WebSocket that this request opens.
    pub(crate) fn messages(&self) -> MessageAccess {
        let key = lock(&self.response).key.clone();
        MessageAccess { sink: self.sink.clone(), request: Arc::clone(&self.request), key }
    }
}

impl Drop for AccessEntry {
    fn drop(&mut self) {
        let Some(Sink { log, format }) = &self.sink else { return };
        let mut response = lock(&self.response);
        // A message has no HTTP status, so none is made up for it.
        if !self.is_message {
            response.status.get_or_insert(GONE);
        }
        log.write(
            AccessLine {
                time: self.time,
                took: self.began.elapsed(),
                request: &self.request,
                is_message: self.is_message,
                response: &response,
            }
            .written(*format),
        );
    }
}

/// Entries of the messages of a WebSocket.
pub(crate) struct MessageAccess {
    sink: Option<Sink>,
    request: Arc<RequestFacts>,
    key: Option<Arc<str>>,
}

impl MessageAccess {
    /// Begins the entry of a message.
    pub(crate) fn begin(&self, len: usize) -> AccessEntry {
        let request = Arc::clone(&self.request);
        let entry = AccessEntry::new(self.sink.clone(), request, true, len as u64);
        // The key came with the handshake; messages name none.
        entry.note_key(self.key.clone());
        entry
    }
}
