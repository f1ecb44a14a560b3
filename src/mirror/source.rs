//! The neve that is mirrored: its list, its files, its stream, over HTTP.

use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use bytes::{Bytes, BytesMut};
use http_body_util::{BodyExt, LengthLimitError, Limited};
use hyper::body::Incoming as Body;
use hyper::header::{ETAG, HeaderName, HeaderValue, IF_RANGE, RANGE, USER_AGENT};
use hyper::http::uri::PathAndQuery;
use hyper::{Method, Response, StatusCode};
use neve_store::{FORMAT_VERSION, Identity};
use tokio::time::timeout;
use tracing::{info, warn};

use super::rejected_segments::RejectedSegments;
use super::stream_buffer::StreamBuffer;
use super::wire::{Form, Frame, Listing, RECORDS, SEGMENTS};
use crate::client::{AGENT, Connections, HttpClient, PeerText, whole_story};
use crate::config::Endpoint;
use crate::config::settings::FetchConfig;
use crate::shared::Status;
use crate::shared::lock::lock;

/// Bytes of a list. As many files as the kernel maps by default, 65,530, take 2.3 MB from block 100,000,000 on.
const LIST_BYTES_MAX: usize = 4 << 20;
/// A stream, or a file, of which nothing comes for so long is dead: a peer says every few seconds
/// that there is nothing.
const SILENCE_MAX: Duration = Duration::from_secs(20);

/// Reason why the peer is of no use, or not for this.
#[derive(Debug, thiserror::Error)]
pub(crate) enum SourceError {
    /// No connection, or it broke.
    #[error("cannot reach the source: {0}")]
    Unreachable(PeerText),
    /// Nothing came in time.
    #[error("nothing came for {0:?}")]
    Silent(Duration),
    /// The source serves no segments.
    #[error("it serves no segments (HTTP {0}); does it run with --serve-mirrors?")]
    NoSuchPath(StatusCode),
    /// The source has failed, or the front before it has.
    #[error("it fails (HTTP {0})")]
    Failing(StatusCode),
    /// The source has packed or evicted a file that its list named.
    #[error("it no longer has this file (HTTP {0})")]
    NoFile(StatusCode),
    /// The source serves only clients with a key.
    #[error("it needs an API key (HTTP {0}): write --mirror-from http://HOST/k/KEY")]
    NoKey(StatusCode),
    /// The source, or a front before it, serves no mirror, or none with this key.
    #[error(
        "it forbids mirrors (HTTP {0}); does its key have methods, or does a front refuse /mirror/?"
    )]
    Forbidden(StatusCode),
    /// The source has evicted the height that the mirror needs next.
    #[error(
        "it no longer has height {height}: use an empty --data-dir, or add an --upstream that has it"
    )]
    Evicted {
        /// The height that is needed.
        height: u64,
    },
    /// The source wants a later request.
    #[error("it has too many mirrors (HTTP {0})")]
    Busy(StatusCode),
    /// Segments are of another format.
    #[error("its segments are of format {found}, this release reads format {FORMAT_VERSION}")]
    OtherFormat {
        /// Version of the mirror source.
        found: u32,
    },
    /// Packed files of the source have another number of heights than those of this store.
    #[error("its packed files have {found} heights, this store's {own}: same --segment-blocks?")]
    OtherRange {
        /// Heights of a packed file of the source.
        found: u32,
        /// Heights of a packed file of this store.
        own: u32,
    },
    /// Segments of the source are so short that the store would have too many.
    #[error("its segments have {found} heights: the store would have too many files")]
    ShortSegments {
        /// Heights of a segment of the source.
        found: u32,
    },
    /// The source sent a malformed response.
    #[error("the source sent malformed data: {0}")]
    Malformed(PeerText),
}

impl SourceError {
    /// True if the same request will most likely fail for long.
    pub(crate) fn is_lasting(&self) -> bool {
        use SourceError::{Evicted, Forbidden, NoFile, NoKey, NoSuchPath};
        matches!(self, NoSuchPath(_) | NoFile(_) | NoKey(_) | Forbidden(_) | Evicted { .. })
    }

    /// Tells a file that is gone from segments that are not served: its list has come.
    fn of_file(self) -> Self {
        match self {
            Self::NoSuchPath(status @ (StatusCode::NOT_FOUND | StatusCode::GONE)) => {
                Self::NoFile(status)
            }
            why => why,
        }
    }

    /// Reason why a response with this status is of no use; `None` if it is.
    fn of_status(status: StatusCode) -> Option<Self> {
        Some(match status {
            StatusCode::OK | StatusCode::PARTIAL_CONTENT => return None,
            // A full source is no source without segments: it is tried again soon.
            StatusCode::SERVICE_UNAVAILABLE | StatusCode::TOO_MANY_REQUESTS => Self::Busy(status),
            StatusCode::UNAUTHORIZED => Self::NoKey(status),
            StatusCode::FORBIDDEN => Self::Forbidden(status),
            _ if status.is_server_error() => Self::Failing(status),
            _ => Self::NoSuchPath(status),
        })
    }
}

/// Channel of a mirror besides JSON-RPC.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Channel {
    /// Sealed segments and packed files.
    Files,
    /// The stream of records.
    Stream,
}

impl Channel {
    fn name(self) -> &'static str {
        match self {
            Self::Files => "segments as files",
            Self::Stream => "records as a stream",
        }
    }
}

/// A neve that is mirrored.
pub(crate) struct MirrorSource {
    /// Address without a key.
    pub(crate) name: String,
    /// Records that its stream has brought.
    pub(crate) feed: StreamBuffer,
    http: HttpClient,
    /// Begin of its paths, which may have a key in it.
    prefix: String,
    config: FetchConfig,
    /// Segments that did not check out: those heights are asked for one by one.
    refused: Mutex<RejectedSegments>,
    status: Arc<Status>,
    /// Last log line about each channel.
    said: Mutex<[Option<String>; 2]>,
}

impl MirrorSource {
    pub(crate) fn new(
        endpoint: &Endpoint,
        tls: rustls::ClientConfig,
        config: FetchConfig,
        status: Arc<Status>,
    ) -> Self {
        status.change_mirror(|mirror| mirror.url.clone_from(&endpoint.name));
        Self {
            name: endpoint.name.clone(),
            feed: StreamBuffer::default(),
            http: HttpClient::new(endpoint, tls, connections(config)),
            prefix: endpoint.mirror_prefix(),
            config,
            refused: Mutex::default(),
            status,
            said: Mutex::default(),
        }
    }

    /// Fetches the list of its segments, in a format that this release reads.
    pub(crate) async fn list(&self) -> Result<Listing, SourceError> {
        let listing = self.list_of_any_format().await?;
        match listing.format {
            FORMAT_VERSION => Ok(listing),
            found => Err(SourceError::OtherFormat { found }),
        }
    }

    /// The chain that it says to serve. Nothing in its blocks would tell more, but the genesis
    /// block, which it may not have.
    pub(crate) async fn identity(&self) -> Option<Identity> {
        self.list_of_any_format().await.ok()?.identity()
    }

    async fn list_of_any_format(&self) -> Result<Listing, SourceError> {
        let response = self.get(SEGMENTS, &[]).await?;
        let listing = timeout(self.config.request_timeout, listing(response.into_body())).await;
        listing.map_err(|_| SourceError::Silent(self.config.request_timeout))?
    }

    /// The file that begins at `base` from byte `from` on, if it is the one with this tag; else all
    /// of it. Says where it begins.
    pub(crate) async fn file(
        &self,
        form: Form,
        base: u64,
        from: u64,
        tag: Option<&str>,
    ) -> Result<(u64, ByteStream), SourceError> {
        let mut headers = Vec::new();
        if let Some(tag) = tag.filter(|_| from > 0) {
            headers.push((RANGE, format!("bytes={from}-")));
            headers.push((IF_RANGE, format!("\"{tag}\"")));
        }
        let response = self.get(&format!("{}{base}", form.path()), &headers).await;
        let response = response.map_err(SourceError::of_file)?;
        let resumed = response.status() == StatusCode::PARTIAL_CONTENT;
        // Without a tag a later part could be of another file, which `If-Range` tells.
        if !response.headers().contains_key(ETAG) {
            return Err(SourceError::Malformed("a segment without a tag".into()));
        }
        // Status 200 has the whole file: the tag was that of another one.
        Ok((if resumed { from } else { 0 }, ByteStream { body: response.into_body() }))
    }

    /// The records from `from` on.
    pub(crate) async fn records(&self, from: u64) -> Result<FrameStream, SourceError> {
        let response = self.get(&format!("{RECORDS}?from={from}"), &[]).await?;
        // A frame has a block and its receipts, each of which could come as a response of its own.
        let max = 2 * self.config.response_bytes_max + 64;
        let pieces = ByteStream { body: response.into_body() };
        Ok(FrameStream { pieces, bytes: BytesMut::new(), max })
    }

    async fn get(
        &self,
        path: &str,
        headers: &[(HeaderName, String)],
    ) -> Result<Response<Body>, SourceError> {
        let path = PathAndQuery::try_from(format!("{}{path}", self.prefix));
        let path = path.map_err(|error| SourceError::Unreachable(whole_story(&error)))?;
        let mut sent = vec![(USER_AGENT, HeaderValue::from_static(AGENT))];
        for (name, value) in headers {
            let value = HeaderValue::try_from(value);
            let value = value.map_err(|error| SourceError::Malformed(whole_story(&error)))?;
            sent.push((name.clone(), value));
        }
        let response = self.http.send(Method::GET, Some(&path), sent, Bytes::new());
        let response = timeout(self.config.request_timeout, response).await;
        let response = response.map_err(|_| SourceError::Silent(self.config.request_timeout))?;
        let response = response.map_err(|error| SourceError::Unreachable(whole_story(&error)))?;
        match SourceError::of_status(response.status()) {
            None => Ok(response),
            Some(why) => Err(why),
        }
    }

    /// Segment at `base` did not check out.
    pub(crate) fn refuse(&self, base: u64) {
        self.status.change_mirror(|mirror| mirror.refused += 1);
        let mut refused = lock(&self.refused);
        refused.add(base, Instant::now());
    }

    /// True if its segment at `base` did not check out, and is not to be tried again yet.
    pub(crate) fn is_refused(&self, base: u64) -> bool {
        let refused = lock(&self.refused);
        refused.has(base, Instant::now())
    }

    /// Says, once, why one of its means is of no use, or that it is again.
    pub(crate) fn say(&self, means: Channel, why: Option<&SourceError>) {
        let error = why.map(ToString::to_string);
        self.status.change_mirror(|mirror| match means {
            Channel::Files => mirror.segments_error = error,
            Channel::Stream => (mirror.stream, mirror.stream_error) = (error.is_none(), error),
        });
        let (peer, name) = (&self.name, means.name());
        let text = why.map_or_else(String::new, ToString::to_string);
        let mut said = lock(&self.said);
        let said = &mut said[means as usize];
        // Each attempt fails alike: one line of the log is enough.
        if said.as_ref() == Some(&text) {
            return;
        }
        if let Some(error) = why {
            warn!(upstream = peer, means = name, %error, "mirror source unusable, using JSON-RPC");
        } else {
            info!(upstream = peer, means = name, "mirror source usable");
        }
        *said = Some(text);
    }
}

/// Bounds of the connections. Each request has one of its own: most of them take long.
fn connections(config: FetchConfig) -> Connections {
    Connections {
        connect_timeout: config.connect_timeout,
        read_bytes: None,
        idle_timeout: Duration::ZERO,
        idle_max: 0,
    }
}

/// Reads a list of files.
async fn listing<B>(body: B) -> Result<Listing, SourceError>
where
    B: hyper::body::Body,
    B::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
{
    let body = Limited::new(body, LIST_BYTES_MAX).collect().await.map_err(|error| {
        if error.is::<LengthLimitError>() {
            SourceError::Malformed(format!("a list of over {LIST_BYTES_MAX} bytes").into())
        } else {
            SourceError::Unreachable(error.to_string().into())
        }
    })?;
    serde_json::from_slice(&body.to_bytes())
        .map_err(|error| SourceError::Malformed(error.to_string().into()))
}

/// A body as it comes.
pub(crate) struct ByteStream {
    body: Body,
}

impl ByteStream {
    /// The next bytes; `None` at the end.
    pub(crate) async fn next(&mut self) -> Result<Option<Bytes>, SourceError> {
        loop {
            let frame = timeout(SILENCE_MAX, self.body.frame()).await;
            let frame = frame.map_err(|_| SourceError::Silent(SILENCE_MAX))?;
            let Some(frame) = frame else { return Ok(None) };
            let frame = frame.map_err(|error| SourceError::Unreachable(whole_story(&error)))?;
            if let Ok(data) = frame.into_data() {
                return Ok(Some(data));
            }
        }
    }
}

/// A stream of records.
pub(crate) struct FrameStream {
    pieces: ByteStream,
    bytes: BytesMut,
    max: usize,
}

impl FrameStream {
    /// The next frame; `None` at the end.
    pub(crate) async fn next(&mut self) -> Result<Option<Frame>, SourceError> {
        loop {
            let frame = Frame::decode(&mut self.bytes, self.max);
            if let Some(frame) =
                frame.map_err(|why| SourceError::Malformed(why.to_string().into()))?
            {
                return Ok(Some(frame));
            }
            match self.pieces.next().await? {
                Some(bytes) => self.bytes.extend_from_slice(&bytes),
                None => return Ok(None),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use http_body_util::Full;

    use super::super::wire::Listed;
    use super::*;

    /// Lists as many files as the kernel maps by default, at heights that mainnet has not reached.
    fn files(records: u32) -> Vec<Listed> {
        let base = |at: u64| 100_000_000 + at * u64::from(records);
        (0..65_530).map(|at| Listed { base: base(at), records }).collect()
    }

    fn text(packed: Vec<Listed>) -> Vec<u8> {
        let listing = Listing {
            format: FORMAT_VERSION,
            chain_id: 43114,
            genesis: format!("0x{:064x}", 7),
            first: Some(100_000_000),
            head: Some(u64::MAX),
            segments: Vec::new(),
            packed,
        };
        serde_json::to_vec(&listing).expect("numbers and a text")
    }

    #[tokio::test]
    async fn list_of_all_files_that_can_be_mapped_is_read_and_a_longer_one_is_refused() {
        let mut bytes = text(files(1024));
        assert!((2_200_000..2_400_000).contains(&bytes.len()), "{}", bytes.len());
        let read = listing(Full::<Bytes>::from(bytes.clone())).await.expect("it is short enough");
        assert_eq!(read.packed.len(), 65_530);
        bytes.resize((4 << 20) + 1, b' ');
        let error = listing(Full::<Bytes>::from(bytes)).await.expect_err("it is too long");
        assert_eq!(
            error.to_string(),
            "the source sent malformed data: a list of over 4194304 bytes"
        );
    }
}
