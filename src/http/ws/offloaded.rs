//! Messages that are answered on threads that may wait for the disk. Those about heights that another place
//! lends wait for these before, and others are answered meanwhile.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use bytes::Bytes;
use neve_store::residency;

use super::close::CloseReason;
use super::connection::{LentMessage, WsConnection, busy};
use crate::http::access::AccessEntry;
use crate::http::{Gone, NotDone};
use crate::rpc::{Calls, LONG_BODY, Rpc, WsResponse};
use crate::shared::{Began, Class, FREE_BYTES, Holder, Work, add};

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
        let (mut held, address) = (None, self.address);
        let account = self.rpc.memory.account(address);
        if body.len() > FREE_BYTES && !account.hold(&mut held, Holder::Message, body.len()) {
            return Err(CloseReason::no_memory());
        }
        // To parse a longer body would hold up the connections of this thread.
        let wants = (body.len() <= LONG_BODY).then(|| self.rpc.wants(body));
        let body = Bytes::copy_from_slice(body); // it is a part of the buffer into which the next one is read
        let (rpc, offload, copied) = (Arc::clone(rpc), self.offload, body.clone());
        let reader = Arc::clone(&rpc);
        self.lending.push(Box::pin(async move {
            let wants = match wants {
                Some(wants) => Ok(wants),
                None => offload.run(Class::Search, address, move || reader.wants(&copied)).await,
            };
            // Without a thread for the parse nothing is lent, and the calls are misses.
            let lent = lender.lend(wants.unwrap_or_default(), address).await;
            LentMessage { rpc: rpc.with_lent(lent), body, began, entry, _held: held }
        }));
        Ok(())
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
        // The other thread changes them: an `eth_subscribe` in the message opens one.
        let mut subscriptions = std::mem::take(&mut self.subscriptions);
        let (class, gone) = (rpc.class(&body), Gone::default());
        let flag = gone.flag();
        let address = self.address;
        let answering = self.offload.run(class, address, move || {
            let has_gone = || flag.load(Ordering::Relaxed);
            let work = Work::elsewhere(rpc.limits.work, began, &has_gone);
            let answer = || rpc.answer_frame(&body, &mut subscriptions, address, &work);
            let answered = residency::loading_again(answer);
            let answered = answered.unwrap_or_else(|_| rpc.unreadable_frame(&body, address, &work));
            (answered, subscriptions)
        });
        let socket = self.socket.get_ref();
        let (answered, subscriptions) = match gone.watch(answering, || socket.has_gone()).await {
            Ok(done) => done,
            // Both end the connection, because its subscriptions are gone with the work.
            Err(NotDone::Full) => return Err(busy()),
            Err(NotDone::Failed) => return Ok((WsResponse::Last(None), Calls::default())),
        };
        self.subscriptions = subscriptions;
        Ok(answered)
    }
}
