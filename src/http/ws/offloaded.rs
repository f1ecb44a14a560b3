//! Messages that are answered on threads that may wait for the disk. Those about heights that another place
//! lends wait for these before, and others are answered meanwhile.

use std::sync::Arc;

use bytes::Bytes;
use neve_store::residency;

use super::close::CloseReason;
use super::connection::{LentMessage, WsConnection, busy};
use crate::http::access::AccessEntry;
use crate::http::answer::wants_of;
use crate::http::{Gone, NotDone};
use crate::rpc::cursors::Subscriptions;
use crate::rpc::{Calls, Rpc, WsResponse};
use crate::shared::{Began, ClientAddress, FREE_BYTES, Holder, Reservation, Work, add};

impl WsConnection<'_> {
    /// Has the heights lent that a message names, for an answer by `rpc`.
    pub(super) fn lend(
        &mut self,
        rpc: &Arc<Rpc>,
        body: &[u8],
        began: Began,
        entry: Option<AccessEntry>,
    ) -> Result<(), CloseReason> {
        let Some(lender) = self.lender else { return Err(busy()) };
        let held = self.hold(body.len())?;
        let body = Bytes::copy_from_slice(body); // it is a part of the buffer into which the next one is read
        let (rpc, offload, address) = (Arc::clone(rpc), self.offload, self.address);
        self.lending.push(Box::pin(async move {
            // Without a thread for the parse nothing is lent, and the calls are misses.
            let wants = wants_of(&rpc, &body, offload, address).await.unwrap_or_default();
            let lent = lender.lend(wants, address).await;
            LentMessage { rpc: rpc.with_lent(lent), body, began, entry, _held: held }
        }));
        Ok(())
    }

    /// Reserves memory for a copy of a message, unless it is short.
    fn hold(&self, len: usize) -> Result<Option<Reservation>, CloseReason> {
        let (mut held, account) = (None, self.rpc.memory.account(self.address));
        if len > FREE_BYTES && !account.hold(&mut held, Holder::Message, len) {
            return Err(CloseReason::no_memory());
        }
        Ok(held)
    }

    /// Answers a message that has what it was lent.
    pub(super) async fn answer_lent(&mut self, message: LentMessage) -> Result<(), CloseReason> {
        let LentMessage { rpc, body, began, entry, _held } = message;
        let rpc = Arc::new(rpc);
        let (mut frame, mut calls) =
            self.answer_offloaded(Arc::clone(&rpc), body.clone(), began).await?;
        // A call before the price was about lent heights, so nothing has looked for the price yet.
        if matches!(frame, WsResponse::Prices) {
            let rpc = Arc::new(rpc.with_prices(began).await);
            (frame, calls) = self.answer_offloaded(rpc, body, began).await?;
        }
        self.conclude(frame, calls, began, entry).await
    }

    /// Answers on a thread that may wait for the disk. Until then the client gets no notifications.
    pub(super) async fn answer_offloaded(
        &mut self,
        rpc: Arc<Rpc>,
        body: Bytes,
        began: Began,
    ) -> Result<(WsResponse, Calls), CloseReason> {
        add(&self.rpc.counters.handed_over, 1);
        let (class, address, gone) = (rpc.class(&body), self.address, Gone::default());
        let has_gone = gone.for_work();
        let subscriptions = std::mem::take(&mut self.subscriptions);
        let message = OffloadedMessage { rpc, body, subscriptions, address, began };
        let answering = self.offload.run(class, address, move || message.answer(&has_gone));
        let socket = self.socket.get_ref();
        match gone.watch(answering, || socket.has_gone()).await {
            Ok((answered, subscriptions)) => {
                self.subscriptions = subscriptions;
                Ok(answered)
            }
            // Both end the connection, because its subscriptions are gone with the work.
            Err(NotDone::Full) => Err(busy()),
            Err(NotDone::Failed) => Ok((WsResponse::Last(None), Calls::default())),
        }
    }
}

/// A message that another thread answers.
struct OffloadedMessage {
    rpc: Arc<Rpc>,
    body: Bytes,
    /// Subscriptions of the connection, which the thread changes: an `eth_subscribe` in the message opens one.
    subscriptions: Subscriptions,
    address: ClientAddress,
    began: Began,
}

impl OffloadedMessage {
    /// Answers the message, until `has_gone` says that its client has gone. Gives the subscriptions back.
    fn answer(self, has_gone: &dyn Fn() -> bool) -> ((WsResponse, Calls), Subscriptions) {
        let Self { rpc, body, mut subscriptions, address, began } = self;
        let work = Work::elsewhere(rpc.limits.work, began, has_gone);
        let answer = || rpc.answer_frame(&body, &mut subscriptions, address, &work);
        let answered = residency::loading_again(answer);
        let answered = answered.unwrap_or_else(|_| rpc.unreadable_frame(&body, address, &work));
        (answered, subscriptions)
    }
}
