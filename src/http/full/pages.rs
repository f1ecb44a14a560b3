//! Pages for operators and health checks, and the key that a request needs for them.

use hyper::body::Incoming;
use hyper::header::HeaderValue;
use hyper::{Request, Response};
use tracing::warn;

use super::service::{Client, Service};
use crate::body::ResponseBody;
use crate::http::admit::ErrorResponse;
use crate::http::keys::{ClientKey, KeyRefusal, names_key, take_key};
use crate::http::response::{not_stored, typed};
use crate::observe::Pages;
use crate::shared::FREE_BYTES;

/// Bytes reserved for a page besides its text, for the frame of its response.
const FRAME_BYTES: usize = 64 << 10;

impl Service {
    /// True for `/ready` and `/health`, which need no key.
    pub(super) fn is_check(request: &Request<Incoming>) -> bool {
        Pages::Public.has(request.uri().path())
    }

    /// Takes the key out of a request. A health check needs none, and without one that may have more it gets the short
    /// pages.
    pub(super) fn key(
        &self,
        request: &mut Request<Incoming>,
    ) -> Result<Option<ClientKey>, KeyRefusal> {
        let Some(keys) = &self.keys else { return Ok(None) };
        if Self::is_check(request) && (self.pages == Pages::Public || !names_key(request)) {
            return Ok(None);
        }
        let found = take_key(request, keys);
        if Self::is_check(request) {
            // A refusal would have a front take neve out of service: for a key that is replaced, say.
            return Ok(found.ok().filter(|key| key.admit_other().is_ok()));
        }
        found.map(Some)
    }

    /// Pages for a client with this key.
    fn pages_for(&self, key: Option<&ClientKey>) -> Pages {
        if self.keys.is_some() && key.is_none() { Pages::Public } else { self.pages }
    }

    /// Answers a request for a page. A page that clients leave no memory for would be cut.
    pub(super) fn page(
        &self,
        path: &str,
        key: Option<&ClientKey>,
        client: &Client,
    ) -> Response<ResponseBody> {
        let page = self.admin.respond(path, self.pages_for(key));
        let mut body = ResponseBody::from(page.text.into_bytes());
        let (bytes, memory) = (body.held(), &self.responder.rpc.memory);
        if bytes > FREE_BYTES && !body.reserve(memory.account(client.address), bytes + FRAME_BYTES)
        {
            warn!(path, bytes, "no memory for a page");
            return self.refused(ErrorResponse::NO_MEMORY);
        }
        not_stored(typed(page.status, HeaderValue::from_static(page.media_type), body))
    }
}
