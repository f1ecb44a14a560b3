//! The parts of this module that are on. A listener with none of them has no [`Access`].

use std::sync::Arc;

use hyper::Request;
use hyper::body::Body;

use super::entry::{AccessEntry, Sink};
use super::facts::RequestFacts;
use crate::shared::ClientAddress;

/// Access log and ids of a listener. At least one of them is on.
#[derive(Clone)]
pub(crate) struct Access {
    sink: Option<Sink>,
    request_ids: bool,
}

impl Access {
    /// Takes what is on; `None` if nothing is.
    pub(crate) fn new(sink: Option<Sink>, request_ids: bool) -> Option<Self> {
        (sink.is_some() || request_ids).then_some(Self { sink, request_ids })
    }

    /// Begins the entry of a request.
    pub(crate) fn begin<B: Body>(
        &self,
        request: &Request<B>,
        client: ClientAddress,
    ) -> Arc<AccessEntry> {
        let facts = RequestFacts::of(request, client, self.request_ids);
        // The declared length stands until `note_body` has that of the bytes that came.
        let len = request.body().size_hint().exact().unwrap_or(0);
        Arc::new(AccessEntry::of_request(self.sink.clone(), facts, len))
    }
}
