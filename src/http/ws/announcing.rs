//! Sends notifications to subscribers, height by height.

use std::sync::Arc;

use neve_chain::HeaderForm;
use neve_jsonrpc::Rules;
use neve_record::log_matcher::{LogText, Logs, logs};
use neve_record::parts::{HEADER, RECEIPTS, SPANS, readable_part};
use neve_store::Reader;
use neve_store::residency::{self, Cold};
use tokio::time::Instant;
use tokio_tungstenite::tungstenite::protocol::frame::coding::CloseCode;

use super::close::CloseReason;
use super::connection::WsConnection;
use super::message_reader::Socket;
use super::notification::notify;
use super::write_stall::{WriteStall, write_much, write_news};
use crate::body::BodyBuilder;
use crate::rpc::Rpc;
use crate::rpc::cursors::{OpenSubscription, Replays, SubscriptionKind};
use crate::shared::{Class, WsClose, WsKind};

/// Heights that are announced between two looks at the client's messages.
const BURST: usize = 64;
/// Heights below the head that are surely in memory, because they were just written.
const LATELY: u64 = 16;

impl WsConnection<'_> {
    /// Writes the collected notifications, if there are any.
    async fn write_news(&mut self) -> Result<(), CloseReason> {
        if self.news.len() == 0 {
            return Ok(());
        }
        write_news(&mut self.news, &mut self.socket, &mut self.pace).await?;
        self.sent = Instant::now();
        Ok(())
    }

    /// Loads the parts of a height that notifications need. Newly published ones are in memory.
    async fn load(&mut self, height: u64, head: u64) {
        if height + LATELY > head {
            return;
        }
        let parts: &[usize] =
            if self.subscriptions.have_logs() { &[HEADER, SPANS, RECEIPTS] } else { &[HEADER] };
        let reader = self.rpc.serving.reader.clone();
        let look = move || load_parts(&reader, height, parts);
        if residency::if_resident(&look).is_err() {
            // If the pool refuses it, this thread waits for the disk when it reads. A page that the disk
            // does not deliver is damage, which that read reports.
            let load = move || residency::loading(look);
            let _ = self.offload.run(Class::ColdRead, self.address, load).await;
        }
    }

    /// Sends the due notifications, at most a burst. Returns true if there are more.
    pub(super) async fn announce(&mut self) -> Result<bool, CloseReason> {
        if self.subscriptions.is_empty() {
            return Ok(false);
        }
        let began = Instant::now();
        for told in 0..BURST {
            if told > 0 && Replays::is_long(began) {
                break;
            }
            let Some(range) = self.rpc.serving.reader.range() else { break };
            let (first, head) = (*range.start(), *range.end());
            let Some(height) = self.subscriptions.due(first, head) else {
                // At the head the client has had all, so its slowness is measured anew.
                self.pace.at_head();
                self.write_news().await?;
                return Ok(false);
            };
            self.announce_height(height, first, head).await?;
        }
        self.write_news().await?;
        Ok(true)
    }

    /// Notifies all subscriptions of a height, if the client may have it and keeps up.
    async fn announce_height(
        &mut self,
        height: u64,
        first: u64,
        head: u64,
    ) -> Result<(), CloseReason> {
        // Notifications put the ping off, so it cannot be what finds a removed key.
        self.check_key()?;
        self.check_pace(height, first, head)?;
        self.load(height, head).await;
        self.tell(height, first, head).await
    }

    /// Closes a subscriber that does not keep up. It can connect again and resume.
    fn check_pace(&mut self, height: u64, first: u64, head: u64) -> Result<(), CloseReason> {
        let lag = self.subscriptions.lag(head);
        // Evicted or withdrawn before it was told. A gap must not go unnoticed, so the connection ends.
        if height < first {
            let reason = format!("block {height:#x} is not served any more");
            return Err(CloseReason::told(WsClose::Lagging, CloseCode::Policy, reason));
        }
        if self.pace.is_too_slow(lag, self.limits.lag_max) {
            let reason = format!("too slow: {lag} blocks behind");
            return Err(CloseReason::told(WsClose::Lagging, CloseCode::Policy, reason));
        }
        Ok(())
    }

    /// Form of announced headers. v1.15 announces heads with the keys of Helicon before Helicon, too.
    fn header_form(&self) -> HeaderForm {
        let is_helicon = self.rpc.serving.rules() == Rules::Helicon;
        let has_keys = is_helicon || self.rpc.status.helicon_heads();
        if has_keys { HeaderForm::V1_15 } else { HeaderForm::V1_14 }
    }

    /// Notifies all subscriptions of a height.
    async fn tell(&mut self, height: u64, first: u64, head: u64) -> Result<(), CloseReason> {
        // One view for all of them: heights are evicted or withdrawn while a client is waited for.
        let reader = self.rpc.serving.reader.pinned();
        if !reader.range().is_some_and(|range| range.contains(&height)) {
            return Ok(()); // gone at this moment, which the next look at the range finds
        }
        let record = reader.record(height).ok_or_else(|| unreadable(height))?;
        let (heads, form) = (&self.rpc.caches.heads, self.header_form());
        let (socket, pace, news) = (&mut self.socket, &mut self.pace, &mut self.news);
        let (rpc, began) = (self.rpc, Instant::now());
        let mut notifier = HeightNotifier { rpc, news, socket, pace, height, began };
        for OpenSubscription { id, topic, .. } in self.subscriptions.notify(height, first, head) {
            match topic {
                SubscriptionKind::Heads => notifier.head(id, heads.of(&record, form, head)).await?,
                SubscriptionKind::Logs(wanted, last) if last.is_none_or(|last| height <= last) => {
                    notifier.logs(id, logs(&reader, wanted.clone(), height..=height)).await?;
                }
                SubscriptionKind::Logs(..) | SubscriptionKind::Relayed => {}
            }
            rpc.replays.give_way(&mut notifier.began).await;
        }
        Ok(())
    }
}

/// Notifies subscriptions of one height.
struct HeightNotifier<'c> {
    rpc: &'c Rpc,
    news: &'c mut BodyBuilder,
    socket: &'c mut Socket,
    pace: &'c mut WriteStall,
    height: u64,
    /// Time when the work began, or last gave way to that of others.
    began: Instant,
}

impl HeightNotifier<'_> {
    /// Notifies a subscription of the header, which has no text if it cannot be read.
    async fn head(&mut self, id: &str, text: Option<Arc<str>>) -> Result<(), CloseReason> {
        let text = text.ok_or_else(|| unreadable(self.height))?;
        notify(self.news, id, text.len(), |out| {
            out.text().extend_from_slice(text.as_bytes());
            Ok(())
        })
        .map_err(|Cold| unreadable(self.height))?;
        self.rpc.counters.ws_notified(WsKind::Heads);
        // Not at the end only: a replay of many heights would collect megabytes.
        write_much(self.news, self.socket, self.pace).await?;
        Ok(())
    }

    /// Notifies a subscription of its logs.
    async fn logs(&mut self, id: &str, logs: Logs) -> Result<(), CloseReason> {
        for log in logs {
            let log = log.map_err(|_| unreadable(self.height))?;
            notify_of(log, self.news, id).map_err(|Cold| unreadable(self.height))?;
            self.rpc.counters.ws_notified(WsKind::Logs);
            if write_much(self.news, self.socket, self.pace).await? {
                self.rpc.replays.give_way(&mut self.began).await;
            }
        }
        Ok(())
    }
}

/// Loads parts of a height, unless that takes the disk.
fn load_parts(reader: &Reader, height: u64, parts: &[usize]) -> Result<(), Cold> {
    let Some(record) = reader.resident().record(height)? else { return Ok(()) };
    record.load_head()?;
    for part in parts {
        if let Some(slice) = readable_part(&record, *part)? {
            slice.load();
        }
    }
    Ok(())
}

/// Appends the notification of a log.
fn notify_of(log: LogText, news: &mut BodyBuilder, id: &str) -> Result<(), Cold> {
    notify(news, id, log.len(), |out| match log {
        LogText::Stored(log) => out.stored(log),
        LogText::Unpacked(log) => {
            out.text().extend_from_slice(&log);
            Ok(())
        }
    })
}

fn unreadable(height: u64) -> CloseReason {
    CloseReason::told(
        WsClose::Unreadable,
        CloseCode::Error,
        format!("block {height:#x} cannot be read"),
    )
}
