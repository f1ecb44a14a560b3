//! Batches of clients whose rest upstreams answer: the requests for it, and the whole batch.

use std::iter;
use std::sync::Arc;

use bytes::Bytes;
use futures_util::future::join_all;

use super::relayer::{CallOrigin, NotFilled, NotRelayed, Relayer, WholeResponse, rpc_request};
use crate::http::{Offload, Undone};
use crate::relay::{Failure, Kept, RelayRequest, SharedGuard};
use crate::rpc::{BatchPart, Filling, LONG_BODY, Mixed, Outbound, Split};
use crate::shared::{ClientAddress, Holder, Reservation};

impl Relayer {
    /// Relays the rest of a batch, and makes the batch whole. Calls that name filters go to the issuers of
    /// these, and transactions to all upstreams if they are asked for that: all at once.
    pub(crate) async fn fill(
        &self,
        mut split: Box<Split>,
        origin: CallOrigin<'_>,
        offload: &Offload,
    ) -> Result<Mixed, NotFilled> {
        let (fillings, held) = match self.place(&origin) {
            Ok(place) => {
                let place: SharedGuard = Arc::new(place);
                self.fillings(&mut split, &origin, &place).await.ok_or(NotFilled::NoMemory)?
            }
            Err(failure) => (vec![Filling::failed(failure.error())], Vec::new()),
        };
        // The copy is made next to the responses: reserved behind it, each thread could make one more.
        if !split.reserve(origin.account, &fillings) {
            return Err(NotFilled::NoMemory);
        }
        let work = (split, fillings, held);
        let (mixed, _held) = put_together(work, origin.address, offload).await?;
        mixed.and_then(|mixed| mixed.reserved(origin.account)).ok_or(NotFilled::NoMemory)
    }

    /// Outcomes of the requests for gaps of a batch, and their memory. They share one place. `None` if none had
    /// memory.
    async fn fillings(
        &self,
        split: &mut Split,
        origin: &CallOrigin<'_>,
        place: &SharedGuard,
    ) -> Option<(Vec<Filling>, Vec<Reservation>)> {
        let parts = split.outbound.take_parts(|filter| self.state().issuer(filter));
        let (mut others, numbers): (Vec<_>, Vec<_>) =
            parts.into_iter().map(|BatchPart { outbound, numbers }| (outbound, numbers)).unzip();
        let texts = others.iter_mut().map(|outbound| (outbound.held(), outbound));
        let rest = (!split.outbound.is_empty()).then_some((0, &mut split.outbound));
        // The first outcome is that of the rest, and a batch of transactions has none.
        let has_rest = usize::from(rest.is_some());
        let fillings: Vec<_> = iter::repeat_with(Filling::none).take(1 - has_rest).collect();
        let asked = rest.into_iter().chain(texts);
        let filled = asked.map(|(text, outbound)| self.filling(outbound, text, origin, place));
        let filled = join_all(filled).await;
        if filled.iter().all(Option::is_none) {
            return None;
        }
        let numbers = iter::repeat_n(Vec::new(), has_rest).chain(numbers);
        Some(numbered(fillings, filled.into_iter().zip(numbers)))
    }

    /// Outcome of one of these requests, and its memory with that of its text, of which `text` bytes have none
    /// yet. A broadcast keeps the memory until its last upstream has answered, and the place until one has
    /// taken all. `None` if clients use too much memory.
    async fn filling(
        &self,
        outbound: &mut Outbound,
        text: usize,
        origin: &CallOrigin<'_>,
        place: &SharedGuard,
    ) -> Option<(Filling, Vec<Reservation>)> {
        let text = origin.account.reserve(Holder::Relay, text)?;
        let memory = self.memory(origin)?;
        let mut request = rpc_request(outbound, origin);
        let mut held = self.keep(&mut request, text, place)?;
        let filling = match self.read(&request, memory).await {
            Ok(WholeResponse { bytes, behind, memory }) => {
                held.push(memory);
                // Transactions are numbered apart.
                let by_place = request.sends.is_some();
                Filling { by_place, response: Ok(bytes.into()), behind, ..Filling::none() }
            }
            Err(NotRelayed::Failure(failure)) => Filling::failed(failure.error()),
            Err(NotRelayed::NoMemory) => return None,
        };
        Some((filling, held))
    }

    /// Memory of the text of a request, as long as only its response needs it: a broadcast keeps it itself. `None`
    /// if clients use too much memory.
    fn keep(
        &self,
        request: &mut RelayRequest,
        mut text: Reservation,
        place: &SharedGuard,
    ) -> Option<Vec<Reservation>> {
        let Some(read) = self.state().broadcast_bytes(request.sends) else {
            return Some(vec![text]);
        };
        if !text.grow(read) {
            return None;
        }
        request.kept = Some(Kept { place: Arc::clone(place), memory: Arc::new(text) });
        Some(Vec::new())
    }
}

/// Adds the outcomes of requests to `fillings`, each with the numbers of its calls. Returns all, and their memory.
fn numbered(
    mut fillings: Vec<Filling>,
    filled: impl Iterator<Item = (Option<(Filling, Vec<Reservation>)>, Vec<usize>)>,
) -> (Vec<Filling>, Vec<Reservation>) {
    let mut held = Vec::new();
    for (filled, numbers) in filled {
        let failed = || (Filling::without_memory(), Vec::new());
        let (filling, memory) = filled.unwrap_or_else(failed);
        fillings.push(Filling { numbers, ..filling });
        held.extend(memory);
    }
    (fillings, held)
}

/// Puts a batch together: here if its answers are short, else on a thread that searches. Gives the memory of its
/// fillings back.
async fn put_together(
    (split, fillings, held): (Box<Split>, Vec<Filling>, Vec<Reservation>),
    address: ClientAddress,
    offload: &Offload,
) -> Result<(Option<Mixed>, Vec<Reservation>), NotFilled> {
    let answers = fillings.iter().filter_map(|filling| filling.response.as_ref().ok());
    let is_short = answers.map(Bytes::len).sum::<usize>() <= LONG_BODY;
    // The work has the memory as well: without a client it is done all the same.
    let work = (split, fillings, held);
    match offload.search_unless(is_short, address, work, fill).await {
        Ok(filled) => Ok(filled),
        // The other calls have answers, and a WebSocket has subscriptions that should stay.
        Err(Undone::Full((split, mut fillings, held))) => {
            let error = Failure::Limited.error();
            fillings.iter_mut().for_each(|filling| filling.limit(LONG_BODY, &error));
            Ok(fill((split, fillings, held)))
        }
        Err(Undone::Failed) => Err(NotFilled::NotDone),
    }
}

/// Batch that is put together, and the memory of its fillings. That takes long for long ones.
fn fill<M>((split, fillings, held): (Box<Split>, Vec<Filling>, M)) -> (Option<Mixed>, M) {
    (split.fill(&fillings), held)
}
