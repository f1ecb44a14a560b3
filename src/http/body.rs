//! Reading a request's body, bounded in length; the socket bounds the time.

use std::future::poll_fn;
use std::pin::pin;

use bytes::{Bytes, BytesMut};
use hyper::body::{Body, Incoming};

/// Reads a body of at most `limit` bytes; what is longer is cut there, as the node does with a
/// body whose length was not declared.
pub(crate) async fn read(body: Incoming, limit: usize) -> Result<Bytes, hyper::Error> {
    let mut body = pin!(body);
    let mut first = Bytes::new();
    let mut all = BytesMut::new();
    while let Some(frame) = poll_fn(|context| body.as_mut().poll_frame(context)).await {
        let Ok(data) = frame?.into_data() else { continue };
        if first.is_empty() && all.is_empty() {
            if body.is_end_stream() {
                return Ok(cut(data, limit)); // nearly always: one frame, not copied
            }
            first = data;
            continue;
        }
        all.extend_from_slice(&std::mem::take(&mut first));
        all.extend_from_slice(&data);
        if all.len() >= limit {
            break;
        }
    }
    Ok(cut(if all.is_empty() { first } else { all.freeze() }, limit))
}

fn cut(mut bytes: Bytes, limit: usize) -> Bytes {
    bytes.truncate(limit);
    bytes
}
