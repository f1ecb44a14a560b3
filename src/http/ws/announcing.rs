//! Sends notifications to subscribers, height by height.

use neve_chain::HeaderForm;
use neve_jsonrpc::Rules;
use neve_record::log_matcher::{LogText, logs};
use neve_record::parts::{HEADER, RECEIPTS, SPANS, readable_part};
use neve_store::residency::{self, Cold};
use tokio::time::Instant;
use tokio_tungstenite::tungstenite::protocol::frame::coding::CloseCode;

use super::close::CloseReason;
use super::connection::WsConnection;
use super::notification::notify;
use super::write_stall::{write_much, write_news};
use crate::body::BodyBuilder;
use crate::rpc::cursors::{OpenSubscription, Replays, SubscriptionKind};
use crate::shared::{Class, WsClose, WsKind};

/// Heights that are announced between two looks at the client's messages.
const BURST: usize = 64;
/// Heights below the head that are surely in memory, because they were just written.
const LATELY: u64 = 16;

impl WsConnection<'_> {
    /// Writes the collected notifications.
    async fn write_news(&mut self) -> Result<(), CloseReason> {
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
        let look = move || {
            let Some(record) = reader.resident().record(height)? else { return Ok(()) };
            record.load_head()?;
            for part in parts {
                if let Some(slice) = readable_part(&record, *part)? {
                    slice.load();
                }
            }
            Ok(())
        };
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
                if self.news.len() > 0 {
                    self.write_news().await?;
                }
                return Ok(false);
            };
            // Notifications put the ping off, so it cannot be what finds a removed key.
            self.check_key()?;
            self.check_pace(height, first, head)?;
            self.load(height, head).await;
            self.tell(height, first, head).await?;
        }
        if self.news.len() > 0 {
            self.write_news().await?;
        }
        Ok(true)
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
        let (form, mut began) = (self.header_form(), Instant::now());
        let (socket, pace, news) = (&mut self.socket, &mut self.pace, &mut self.news);
        for OpenSubscription { id, topic, .. } in self.subscriptions.notify(height, first, head) {
            match topic {
                SubscriptionKind::Heads => {
                    let text = self.rpc.caches.heads.of(&record, form, head);
                    let text = text.ok_or_else(|| unreadable(height))?;
                    notify(news, id, text.len(), |out| {
                        out.text().extend_from_slice(text.as_bytes());
                        Ok(())
                    })
                    .map_err(|Cold| unreadable(height))?;
                    self.rpc.counters.ws_notified(WsKind::Heads);
                    // Not at the end only: a replay of many heights would collect megabytes.
                    write_much(news, socket, pace).await?;
                }
                SubscriptionKind::Logs(wanted, last) if last.is_none_or(|last| height <= last) => {
                    for log in logs(&reader, wanted.clone(), height..=height) {
                        let log = log.map_err(|_| unreadable(height))?;
                        notify_of(log, news, id).map_err(|Cold| unreadable(height))?;
                        self.rpc.counters.ws_notified(WsKind::Logs);
                        if write_much(news, socket, pace).await? {
                            self.rpc.replays.give_way(&mut began).await;
                        }
                    }
                }
                SubscriptionKind::Logs(..) | SubscriptionKind::Relayed => {}
            }
            self.rpc.replays.give_way(&mut began).await;
        }
        Ok(())
    }
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
