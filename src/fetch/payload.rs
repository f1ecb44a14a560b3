//! Payload of a height: its block and its receipts.
//!
//! A head is asked for as `latest`, while it is. Of its newest block a node has in memory what it
//! read and recovered to accept it; by its number, the same block is read from the node's database,
//! and its senders are recovered anew (coreth's `eth/api_backend.go`, `BlockByNumber`). The texts
//! are the same.

use std::sync::atomic::Ordering;
use std::time::Duration;

use bytes::Bytes;
use neve_chain::Block;
use tokio::time::sleep;
use tracing::debug;

use super::error::FetchError;
use crate::client::{CallError, CallResult, join};
use crate::upstream::{BlockName, Upstream};

/// Receipts asked for in one batch where there is no call for all of them.
const RECEIPTS_A_BATCH: usize = 100;

/// Repetitions of a throttled batch of receipts before the height is begun anew. With the waits of
/// [`Upstream::throttles`] that is up to a minute, with `Retry-After` up to eight.
const THROTTLED_MAX: u32 = 8;

/// A block and its receipts, as they came.
pub(crate) type Payload = (Bytes, Bytes);

/// Requests block and receipts at the same time: the quickest way.
pub(crate) async fn two_calls(
    upstream: &Upstream,
    named: BlockName,
    came: impl FnOnce(&Bytes),
) -> Result<Payload, FetchError> {
    let block = async {
        let block = upstream.client.block(named).await?.ok_or(FetchError::NotYet)?;
        came(&block);
        Ok::<_, FetchError>(block)
    };
    // Learnt from an earlier error: to ask again would cost a call for each height.
    if !upstream.block_receipts.load(Ordering::Relaxed) {
        return with_each_receipt(upstream, block.await?).await;
    }
    let params = format!("[{named}]");
    let receipts = upstream.client.call("eth_getBlockReceipts", &params);
    let (block, receipts) = tokio::join!(block, receipts);
    with_receipts(upstream, block?, receipts).await
}

/// Requests both in one batch: the cheapest way for both sides.
pub(crate) async fn one_batch(
    upstream: &Upstream,
    named: BlockName,
) -> Result<Payload, FetchError> {
    let both = [&upstream.block_receipts, &upstream.batches];
    if !both.iter().all(|able| able.load(Ordering::Relaxed)) {
        return two_calls(upstream, named, |_| ()).await;
    }
    let (block, receipts) = (format!("[{named},true]"), format!("[{named}]"));
    let calls = [("eth_getBlockByNumber", &*block), ("eth_getBlockReceipts", &*receipts)];
    let [block, receipts] = match upstream.client.pair(calls).await {
        Ok(pair) => pair,
        Err(error @ (CallError::InvalidJson(_) | CallError::Rpc { .. })) => {
            debug!(%error, upstream = upstream.name, "upstream takes no batches");
            // Remembered: otherwise each height would cost a failed request more.
            upstream.batches.store(false, Ordering::Relaxed);
            return two_calls(upstream, named, |_| ()).await;
        }
        Err(error) => return Err(error.into()),
    };
    with_receipts(upstream, present(block)?, receipts).await
}

/// Returns the block of a response, if the upstream has it.
fn present(block: CallResult) -> Result<Bytes, FetchError> {
    match block {
        Err(error) if error.is_absent() => Err(FetchError::NotYet),
        block => block?.ok_or(FetchError::NotYet),
    }
}

async fn with_receipts(
    upstream: &Upstream,
    block: Bytes,
    receipts: CallResult,
) -> Result<Payload, FetchError> {
    match receipts {
        Ok(receipts) => Ok((block, receipts.ok_or(FetchError::NotYet)?)),
        Err(error) if error.is_no_method() => {
            upstream.block_receipts.store(false, Ordering::Relaxed);
            debug!("no eth_getBlockReceipts");
            with_each_receipt(upstream, block).await
        }
        Err(error) => Err(error.into()),
    }
}

async fn with_each_receipt(upstream: &Upstream, block: Bytes) -> Result<Payload, FetchError> {
    let hashes: Vec<String> = {
        let block = Block::parse(&block)?;
        block.transactions.iter().map(|tx| format!("[\"{:#x}\"]", tx.hash)).collect()
    };
    let mut receipts = Vec::with_capacity(hashes.len());
    for (number, hashes) in hashes.chunks(RECEIPTS_A_BATCH).enumerate() {
        if number > 0 {
            upstream.charge(1); // the first was counted with the height
        }
        for receipt in batch_of_receipts(upstream, hashes).await? {
            receipts.push(receipt.ok_or(FetchError::NotYet)?);
        }
    }
    Ok((block, join(&receipts)))
}

/// Receipts of some transactions. A batch that the upstream throttles is repeated here: an endpoint that counts the
/// calls of batches would throttle a height with many transactions each time, if all of it were requested again.
async fn batch_of_receipts(
    upstream: &Upstream,
    hashes: &[String],
) -> Result<Vec<Option<Bytes>>, CallError> {
    for _ in 0..THROTTLED_MAX {
        match upstream.client.batch("eth_getTransactionReceipt", hashes).await {
            Err(CallError::Throttled { after, .. }) => wait_out(upstream, after).await,
            answered => return answered,
        }
    }
    upstream.client.batch("eth_getTransactionReceipt", hashes).await
}

/// Waits until an upstream that throttles may be asked again, and counts the repetition.
async fn wait_out(upstream: &Upstream, after: Option<Duration>) {
    debug!(
        upstream = upstream.name,
        after = after.map(tracing::field::debug),
        "receipts throttled"
    );
    upstream.throttles(after);
    // Other heights may be throttled meanwhile, and lengthen the pause.
    while let Some(left) = upstream.resting() {
        sleep(left).await;
    }
    upstream.charge(1);
}

/// True if a request for `latest` may have failed for a harmless reason: another block is the newest by now, or
/// the upstream does not know the tag.
pub(crate) fn is_of_another(failed: &FetchError, texts: &Payload, height: u64) -> bool {
    match failed {
        FetchError::NotYet => true,
        FetchError::Refused(..) => !are_of(texts, height),
        FetchError::Call(error) => error.is_about_the_call(),
        FetchError::Stalled => false,
    }
}

/// True if texts call themselves those of a height.
fn are_of((block, receipts): &Payload, height: u64) -> bool {
    let Ok(block) = Block::parse(block) else { return true };
    let told = format!("\"blockNumber\":\"{height:#x}\"");
    // No receipt names its block then, so receipts of another empty block look the same.
    let receipts_are = if block.transactions.is_empty() {
        receipts.trim_ascii() == b"[]"
    } else {
        memchr::memmem::find(receipts, told.as_bytes()).is_some()
    };
    block.header.number == height && receipts_are
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn failures_of_another_block_are_asked_again_by_number() {
        let of = |failed| is_of_another(&failed, &Payload::default(), 1);
        let rpc = CallError::Rpc { code: -32602, message: "invalid argument 0".into() };
        assert!(of(FetchError::NotYet) && of(FetchError::Call(rpc)));
        assert!(of(FetchError::Call(CallError::TooLarge(1))));
        assert!(!of(FetchError::Stalled));
        assert!(!of(FetchError::Call(CallError::TimedOut(Duration::ZERO))));
        assert!(!of(FetchError::Refused("json", "no block at all".to_owned())));
    }
}
