//! Writes responses and notifications.

use std::future::poll_fn;
use std::io;

use futures_util::SinkExt;
use tokio_tungstenite::tungstenite::Error;

use super::message_reader::Socket;
use super::write_stall::WriteStall;
use crate::body::BodyBuilder;
use crate::http::response::ResponseWriter;

/// Bytes after which notifications are written though more are to come. A height's are written when
/// it is told in any case; this bounds what a range that is replayed keeps in memory.
const WRITE_BUFFER: usize = 64 << 10;

/// Writes a response behind what tungstenite has to write. Should this be dropped before the end,
/// what tungstenite writes next comes behind the rest.
pub(super) async fn write(socket: &mut Socket, out: ResponseWriter) -> Result<(), Error> {
    socket.flush().await?;
    socket.get_mut().begin(out);
    Ok(poll_fn(|context| socket.get_mut().poll_send(context)).await?)
}

/// Writes notifications if they are many.
pub(super) async fn write_much(
    news: &mut BodyBuilder,
    socket: &mut Socket,
    pace: &mut WriteStall,
) -> Result<(), Error> {
    if news.len() < WRITE_BUFFER { Ok(()) } else { write_news(news, socket, pace).await }
}

pub(super) async fn write_news(
    news: &mut BodyBuilder,
    socket: &mut Socket,
    pace: &mut WriteStall,
) -> Result<(), Error> {
    let body = std::mem::take(news).finish().map_err(io::Error::other)?;
    pace.of(write(socket, ResponseWriter::with_head(Vec::new(), body))).await
}
