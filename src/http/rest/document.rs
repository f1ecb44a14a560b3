//! Documents for caches that know HTTP: a block, its header, its receipts, a transaction, a
//! receipt, each under an address of its own, each the `result` of a JSON-RPC answer to the byte.
//!
//! The document of a settled height never changes, so a cache may keep it for good. See docs/RPC.md, "REST",
//! and docs/openapi.json.

use std::sync::{Arc, LazyLock};

use alloy_primitives::{hex, keccak256};
use bytes::Bytes;
use hyper::header::{
    ALLOW, CACHE_CONTROL, CONTENT_LENGTH, ETAG, HeaderMap, HeaderValue, RETRY_AFTER, VARY,
};
use hyper::http::request::Parts;
use hyper::{Method, Response, StatusCode};
use neve_jsonrpc::{BlockId, Method as RpcMethod};
use neve_record::parts::{FULL, HASHES, HEADER, RECEIPTS};
use neve_record::precompressed;
use neve_record::spans::SpansRef;
use neve_store::RecordRef;
use neve_store::residency::{self, Cold};

use super::etag::{Condition, Shown, coded_tag, condition, tag};
use super::path::{ParsedPath, Resource};
use crate::body::{AcceptEncoding, BodyBuilder, ResponseBody};
use crate::http::NotDone;
use crate::http::answer::Responder;
use crate::http::response::{BY_CODING, JSON, NO_STORE, name_coding, not_stored, typed};
use crate::rpc::methods::{BlockForm, Miss, NotRead, block_of, stored};
use crate::rpc::{missing_data, range_json};
use crate::shared::{Began, Class, ClientAddress, Outcome, Serving, add};

/// The description of these documents, in the words of `OpenAPI` 3.1.
const OPENAPI: &str = include_str!("../../../docs/openapi.json");
static OPENAPI_TAG: LazyLock<String> =
    LazyLock::new(|| format!("\"{}\"", hex::encode(keccak256(OPENAPI))));

/// Settled, and asked for by what names one block for good.
const FOR_GOOD: HeaderValue = HeaderValue::from_static("public, max-age=31536000, immutable");
/// A height that no header has settled: it may be withdrawn. A second spares the upstream of a
/// cache a crowd, and must be over before it asks again.
const A_SECOND: HeaderValue = HeaderValue::from_static("public, max-age=1, must-revalidate");
/// A tag: it moves.
const ASK_AGAIN: HeaderValue = HeaderValue::from_static("no-cache");
const A_WHILE: HeaderValue = HeaderValue::from_static("public, max-age=300");
const ALLOWED: HeaderValue = HeaderValue::from_static("GET, HEAD");

/// Content, and the time for which a cache may keep it.
struct Document {
    content: DocumentContent,
    tag: String,
    keep: HeaderValue,
}

/// A document that is not served.
struct Missed {
    miss: Miss,
    /// True if another attempt may succeed.
    try_again: bool,
}

enum DocumentContent {
    OpenApi,
    Of(RecordRef, Shown),
}

impl Responder {
    /// Answers a request for a document.
    pub(crate) async fn document(
        &self,
        request: &Parts,
        address: ClientAddress,
    ) -> Response<ResponseBody> {
        let response = match ParsedPath::of(request.uri.path()) {
            Err(bad) => self.turn_away(StatusCode::NOT_FOUND, -32601, bad.message()),
            Ok(wanted) => match request.method {
                Method::GET | Method::HEAD => self.get(&wanted, request, address).await,
                _ => self.use_get(),
            },
        };
        if request.method == Method::HEAD { without_body(response) } else { response }
    }

    async fn get(
        &self,
        wanted: &ParsedPath,
        request: &Parts,
        address: ClientAddress,
    ) -> Response<ResponseBody> {
        let (serving, began) = (&self.rpc.serving, Began::now());
        let asked = match wanted.asked(request.uri.query()) {
            Ok(asked) => asked,
            Err(bad) => return self.turn_away(StatusCode::BAD_REQUEST, -32602, bad.message()),
        };
        let answered = match self.document_here(asked, &request.headers, address).await {
            Ok(answered) => answered,
            Err(not_done) => return self.not_done(not_done),
        };
        let missed = |missed: &Missed| Outcome::Miss(missed.miss.reason(serving.head()));
        let outcome = answered.as_ref().map_or_else(missed, |_| Outcome::Hit);
        if let Some(method) = counted_as(asked) {
            self.rpc.counters.call(method.into(), outcome);
            self.rpc.counters.time(method.into(), outcome, began.elapsed());
        }
        answered.unwrap_or_else(|missed| self.missing(missed))
    }

    /// From the store, or from heights that another place lends.
    async fn document_here(
        &self,
        asked: Resource,
        headers: &HeaderMap,
        address: ClientAddress,
    ) -> Result<Result<Response<ResponseBody>, Missed>, NotDone> {
        let serving = &self.rpc.serving;
        let answered = match residency::if_sendable(|| answer(serving, asked, headers)) {
            Ok(answered) => answered,
            // Some of its bytes are cold, and this thread serves others.
            Err(_) => self.document_elsewhere(Arc::clone(serving), asked, headers, address).await?,
        };
        match answered {
            Err(miss) => Box::pin(self.document_lent(miss, asked, headers, address)).await,
            Ok(answered) => Ok(Ok(answered)),
        }
    }

    /// From heights that another place lends, if it may have what was missed.
    async fn document_lent(
        &self,
        miss: Miss,
        asked: Resource,
        headers: &HeaderMap,
        address: ClientAddress,
    ) -> Result<Result<Response<ResponseBody>, Missed>, NotDone> {
        let (Some(want), Some(lender)) = (self.rpc.want_of(miss), &self.lender) else {
            return Ok(Err(Missed { miss, try_again: false }));
        };
        let lent = lender.lend(vec![want], address).await;
        let try_again = lent.try_again;
        let serving = Arc::clone(&self.rpc.with_lent(lent).serving);
        let answered = self.document_elsewhere(serving, asked, headers, address).await?;
        Ok(answered.map_err(|miss| Missed { miss, try_again }))
    }

    /// On a thread that may wait for the disk.
    async fn document_elsewhere(
        &self,
        serving: Arc<Serving>,
        asked: Resource,
        headers: &HeaderMap,
        address: ClientAddress,
    ) -> Result<Result<Response<ResponseBody>, Miss>, NotDone> {
        add(&self.rpc.counters.handed_over, 1);
        let copied = headers.clone();
        let work = move || {
            // A block that the disk does not give is a miss: a full node has it.
            let answered = residency::loading_again(|| answer(&serving, asked, &copied));
            answered.unwrap_or(Err(Miss::Disk))
        };
        self.offload.run(Class::ColdRead, address, work).await
    }

    /// A miss, in the words of JSON-RPC.
    fn missing(&self, Missed { miss, try_again }: Missed) -> Response<ResponseBody> {
        let range = self.rpc.serving.reader.range();
        let error = missing_data(miss, range.as_ref());
        let data = range_json(range.as_ref());
        let mut response = self.miss(problem(error.code, &error.message, Some(&data)));
        if try_again {
            response.headers_mut().insert(RETRY_AFTER, HeaderValue::from_static("1"));
        }
        response
    }

    fn turn_away(&self, status: StatusCode, code: i32, why: &str) -> Response<ResponseBody> {
        self.rpc.counters.refuse(status.as_u16());
        not_stored(typed(status, JSON, problem(code, why, None)))
    }

    fn use_get(&self) -> Response<ResponseBody> {
        let why = "method not allowed, use GET or HEAD";
        let mut response = self.turn_away(StatusCode::METHOD_NOT_ALLOWED, -32600, why);
        response.headers_mut().insert(ALLOW, ALLOWED);
        response
    }
}

/// An error as JSON; `why` needs no escapes.
fn problem(code: i32, why: &str, data: Option<&str>) -> ResponseBody {
    let data = data.map_or_else(String::new, |data| format!(",\"data\":{data}"));
    let text = format!("{{\"error\":{{\"code\":{code},\"message\":\"{why}\"{data}}}}}");
    ResponseBody::from(text.into_bytes())
}

/// The method of JSON-RPC that answers the same.
fn counted_as(asked: Resource) -> Option<RpcMethod> {
    Some(match asked {
        Resource::OpenApi => return None,
        Resource::Full(BlockId::Hash(_)) | Resource::Hashes(BlockId::Hash(_)) => {
            RpcMethod::BlockByHash
        }
        Resource::Full(_) | Resource::Hashes(_) => RpcMethod::BlockByNumber,
        Resource::Header(BlockId::Hash(_)) => RpcMethod::HeaderByHash,
        Resource::Header(_) => RpcMethod::HeaderByNumber,
        Resource::Receipts(_) => RpcMethod::BlockReceipts,
        Resource::Transaction(_) => RpcMethod::TransactionByHash,
        Resource::Receipt(_) => RpcMethod::TransactionReceipt,
    })
}

/// Answers, or says what is missing.
fn answer(
    serving: &Serving,
    asked: Resource,
    headers: &HeaderMap,
) -> Result<Result<Response<ResponseBody>, Miss>, Cold> {
    match find(serving, asked).and_then(|found| found.answer(headers)) {
        Ok(response) => Ok(Ok(response)),
        Err(NotRead::Miss(miss)) => Ok(Err(miss)),
        Err(NotRead::Cold) => Err(Cold),
    }
}

fn find(serving: &Serving, asked: Resource) -> Result<Document, NotRead> {
    let (at, shown): (BlockId, fn(BlockForm) -> Shown) = match asked {
        Resource::OpenApi => return Ok(openapi()),
        Resource::Transaction(hash) => return of_transaction(serving, hash, Shown::Transaction),
        Resource::Receipt(hash) => return of_transaction(serving, hash, Shown::Receipt),
        Resource::Full(at) => (at, Shown::Full),
        Resource::Hashes(at) => (at, Shown::Hashes),
        Resource::Header(at) => (at, Shown::Header),
        Resource::Receipts(at) => (at, |_| Shown::Receipts),
    };
    // Before the record: one that takes the place of a withdrawn one must not pass for settled
    // because a newer head was looked at.
    let settled = stored::settled(serving)?;
    let record = stored::record(serving, at)?;
    let mut found = Document::of(record, shown(BlockForm::of(serving, at)), settled)?;
    if matches!(at, BlockId::Tag(_)) {
        found.keep = ASK_AGAIN;
    }
    Ok(found)
}

fn of_transaction(
    serving: &Serving,
    hash: [u8; 32],
    shown: fn(usize) -> Shown,
) -> Result<Document, NotRead> {
    let settled = stored::settled(serving)?; // first, as above
    let (record, position) = stored::by_transaction(serving, hash)?;
    Document::of(record, shown(position), settled)
}

fn openapi() -> Document {
    Document { content: DocumentContent::OpenApi, tag: OPENAPI_TAG.clone(), keep: A_WHILE }
}

/// True if a header has settled the record, `settled` being the newest height that one has.
fn is_settled(record: &RecordRef, settled: u64) -> Result<bool, NotRead> {
    if record.height() <= settled {
        return Ok(true);
    }
    Ok(SpansRef(&stored::spans(record)?).settled().is_none()) // a synchronous block settles itself
}

impl Document {
    fn of(record: RecordRef, shown: Shown, settled: u64) -> Result<Self, NotRead> {
        let is_settled = is_settled(&record, settled)?;
        let tag = tag(&record, shown, is_settled)?;
        let keep = if is_settled { FOR_GOOD } else { A_SECOND };
        Ok(Self { content: DocumentContent::Of(record, shown), tag, keep })
    }

    /// Answers with the body, or with its conditions only. The bytes depend on the codings that the client takes, and
    /// the tag depends on the bytes. So the body is put together even if only the tag is needed, which costs
    /// little.
    fn answer(self, asked: &HeaderMap) -> Result<Response<ResponseBody>, NotRead> {
        let varies = self.content.has_codings()?;
        let body = self.content.body(AcceptEncoding::of(asked))?;
        let tag = coded_tag(&self.tag, body.coding());
        let mut response = match condition(asked, &tag) {
            Condition::Met => name_coding(typed(StatusCode::OK, JSON, body)),
            Condition::NotModified => empty(StatusCode::NOT_MODIFIED),
            Condition::Failed => empty(StatusCode::PRECONDITION_FAILED),
        };
        let kept = response.status() != StatusCode::PRECONDITION_FAILED;
        let headers = response.headers_mut();
        // A tag is made of hex digits, dashes and letters.
        headers.extend(HeaderValue::try_from(tag).ok().map(|tag| (ETAG, tag)));
        headers.insert(CACHE_CONTROL, if kept { self.keep } else { NO_STORE });
        if varies {
            headers.append(VARY, BY_CODING);
        }
        Ok(response)
    }
}

impl DocumentContent {
    /// True if the bytes depend on the codings that a client takes, also if this response is uncompressed.
    fn has_codings(&self) -> Result<bool, Cold> {
        let Self::Of(record, shown) = self else { return Ok(false) };
        shown.part().map_or(Ok(false), |part| precompressed::has_any(record, part))
    }

    fn body(self, accepts: AcceptEncoding) -> Result<ResponseBody, NotRead> {
        let mut out = BodyBuilder::new(1, accepts);
        match self {
            Self::OpenApi => return Ok(ResponseBody::from(Bytes::from_static(OPENAPI.as_bytes()))),
            Self::Of(record, shown) => match shown {
                Shown::Full(form) => block_of(&record, FULL, form, &mut out)?,
                Shown::Hashes(form) => block_of(&record, HASHES, form, &mut out)?,
                Shown::Header(form) => block_of(&record, HEADER, form, &mut out)?,
                Shown::Receipts => {
                    out.part(&record, RECEIPTS, stored::part(&record, RECEIPTS)?)?;
                }
                Shown::Transaction(at) => out.stored(stored::transaction_of(record, at)?)?,
                Shown::Receipt(at) => out.stored(stored::receipt_of(record, at)?)?,
            },
        }
        Ok(out.finish()?)
    }
}

impl Shown {
    /// The part of the record that is shown whole.
    fn part(self) -> Option<usize> {
        match self {
            Self::Full(_) => Some(FULL),
            Self::Hashes(_) => Some(HASHES),
            Self::Header(_) => Some(HEADER),
            Self::Receipts => Some(RECEIPTS),
            Self::Transaction(_) | Self::Receipt(_) => None,
        }
    }
}

fn empty(status: StatusCode) -> Response<ResponseBody> {
    let mut response = Response::new(ResponseBody::default());
    *response.status_mut() = status;
    response
}

/// Returns the response to HEAD.
fn without_body(mut response: Response<ResponseBody>) -> Response<ResponseBody> {
    let len = response.body().len();
    // A 304 has the length of the document, or none (RFC 9110, 8.6), and never zero.
    if response.status() != StatusCode::NOT_MODIFIED {
        response.headers_mut().insert(CONTENT_LENGTH, len.into());
    }
    *response.body_mut() = ResponseBody::default();
    response
}
