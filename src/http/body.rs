//! Reading a request's body, bounded in length, and together with others; the socket bounds the time.

use std::future::poll_fn;
use std::pin::pin;
use std::sync::Arc;

use bytes::{Bytes, BytesMut};
use hyper::body::{Body, Incoming};

use crate::room::{Room, Taken};

/// A body, and the room that it takes if it did not come at once.
pub(crate) struct Whole {
    pub(crate) bytes: Bytes,
    _room: Option<Taken>,
}

impl From<Bytes> for Whole {
    fn from(bytes: Bytes) -> Self {
        Self { bytes, _room: None }
    }
}

/// Why there is none.
pub(crate) enum Unread {
    /// The client left, or sent no body.
    Broken,
    /// The bodies of others take all the room.
    NoRoom,
}

/// Reads a body of at most `limit` bytes; what is longer is cut there, as the node does with a
/// body whose length was not declared. Only one that does not come at once takes room.
pub(crate) async fn read(body: Incoming, limit: usize, room: &Arc<Room>) -> Result<Whole, Unread> {
    let mut body = pin!(body);
    let (mut all, mut len, mut taken, mut refused) = (BytesMut::new(), 0, None, false);
    while let Some(frame) = poll_fn(|context| body.as_mut().poll_frame(context)).await {
        let Ok(data) = frame.map_err(|_| Unread::Broken)?.into_data() else { continue };
        if len == 0 && body.is_end_stream() {
            return Ok(Whole::from(cut(data, limit))); // nearly always, and not copied
        }
        len += data.len();
        let fits = !refused && taken.get_or_insert_with(|| Taken::nothing(room)).grow(data.len());
        if fits {
            all.extend_from_slice(&data);
        } else {
            // The rest is read and dropped: a client hears why only when it has sent all.
            (all, taken, refused) = (BytesMut::new(), None, true);
        }
        if len >= limit {
            break;
        }
    }
    let whole = Whole { bytes: cut(all.freeze(), limit), _room: taken };
    if refused { Err(Unread::NoRoom) } else { Ok(whole) }
}

fn cut(mut bytes: Bytes, limit: usize) -> Bytes {
    bytes.truncate(limit);
    bytes
}
