//! What a height is asked with: its block and its receipts.
//!
//! A head is asked for as `latest`, while it is. Of its newest block a node has in memory what it read
//! and recovered to accept it; by its number, the same block is read from the node's database, and its
//! senders are recovered anew (coreth's `eth/api_backend.go`, `BlockByNumber`). The texts are the same.

use std::fmt;
use std::sync::atomic::Ordering;

use bytes::Bytes;
use neve_chain::Block;
use tracing::debug;

use super::client::{CallError, CallResult, join};
use super::source::Failed;
use super::upstream::Upstream;

/// Receipts asked for in one batch where there is no call for all of them.
const RECEIPTS_A_BATCH: usize = 100;

/// How a block is named in a question.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Named {
    Height(u64),
    /// The newest: whichever that is when the question is answered.
    Latest,
}

/// As JSON.
impl fmt::Display for Named {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Height(height) => write!(f, "\"{height:#x}\""),
            Self::Latest => f.write_str("\"latest\""),
        }
    }
}

/// A block and its receipts, as they came.
pub(super) type Texts = (Bytes, Bytes);

/// Asked for at the same time: what is soonest there.
pub(super) async fn two_calls(
    upstream: &Upstream,
    named: Named,
    came: impl FnOnce(&Bytes),
) -> Result<Texts, Failed> {
    let block = async {
        let block = upstream.client.block(named).await?.ok_or(Failed::NotYet)?;
        came(&block);
        Ok::<_, Failed>(block)
    };
    if !upstream.block_receipts.load(Ordering::Relaxed) {
        return with_each_receipt(upstream, block.await?).await;
    }
    let params = format!("[{named}]");
    let receipts = upstream.client.call("eth_getBlockReceipts", &params);
    let (block, receipts) = tokio::join!(block, receipts);
    with_receipts(upstream, block?, receipts).await
}

/// Asked for in one request: what costs both sides least.
pub(super) async fn one_batch(upstream: &Upstream, named: Named) -> Result<Texts, Failed> {
    let both = [&upstream.block_receipts, &upstream.batches];
    if !both.iter().all(|able| able.load(Ordering::Relaxed)) {
        return two_calls(upstream, named, |_| ()).await;
    }
    let (block, receipts) = (format!("[{named},true]"), format!("[{named}]"));
    let calls = [("eth_getBlockByNumber", &*block), ("eth_getBlockReceipts", &*receipts)];
    let [block, receipts] = match upstream.client.pair(calls).await {
        Ok(pair) => pair,
        Err(error @ (CallError::Garbage(_) | CallError::Rpc { .. })) => {
            debug!(%error, upstream = upstream.name, "takes no batches, it seems");
            upstream.batches.store(false, Ordering::Relaxed);
            return two_calls(upstream, named, |_| ()).await;
        }
        Err(error) => return Err(error.into()),
    };
    let block = match block {
        Err(error) if error.is_absent() => None,
        block => block?,
    };
    with_receipts(upstream, block.ok_or(Failed::NotYet)?, receipts).await
}

async fn with_receipts(
    upstream: &Upstream,
    block: Bytes,
    receipts: CallResult,
) -> Result<Texts, Failed> {
    match receipts {
        Ok(receipts) => Ok((block, receipts.ok_or(Failed::NotYet)?)),
        Err(error) if error.is_no_method() => {
            upstream.block_receipts.store(false, Ordering::Relaxed);
            debug!("no eth_getBlockReceipts there, asking for each receipt");
            with_each_receipt(upstream, block).await
        }
        Err(error) => Err(error.into()),
    }
}

async fn with_each_receipt(upstream: &Upstream, block: Bytes) -> Result<Texts, Failed> {
    let hashes: Vec<String> = {
        let block = Block::parse(&block)?;
        block.transactions.iter().map(|tx| format!("[\"{:#x}\"]", tx.hash)).collect()
    };
    let mut receipts = Vec::with_capacity(hashes.len());
    for hashes in hashes.chunks(RECEIPTS_A_BATCH) {
        let batch = upstream.client.batch("eth_getTransactionReceipt", hashes).await?;
        for receipt in batch {
            receipts.push(receipt.ok_or(Failed::NotYet)?);
        }
    }
    Ok((block, join(&receipts)))
}

/// Whether it may be that nothing is wrong with what failed for `latest` but that another block is the
/// newest by now, or that whoever answers does not take the name.
pub(super) fn is_of_another(failed: &Failed, texts: &Texts, height: u64) -> bool {
    match failed {
        Failed::NotYet => true,
        Failed::Refused(..) => !are_of(texts, height),
        Failed::Call(error) => error.is_about_the_question(),
        Failed::Stalled => false,
    }
}

/// Whether texts call themselves those of a height.
fn are_of((block, receipts): &Texts, height: u64) -> bool {
    let Ok(block) = Block::parse(block) else { return true };
    let told = format!("\"blockNumber\":\"{height:#x}\"");
    let receipts_are = if block.transactions.is_empty() {
        receipts.trim_ascii() == b"[]"
    } else {
        memchr::memmem::find(receipts, told.as_bytes()).is_some()
    };
    block.header.number == height && receipts_are
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn what_may_be_asked_by_number_is_of_another_block() {
        let of = |failed| is_of_another(&failed, &Texts::default(), 1);
        let rpc = CallError::Rpc { code: -32602, message: "invalid argument 0".to_owned() };
        assert!(of(Failed::NotYet) && of(Failed::Call(rpc)));
        assert!(of(Failed::Call(CallError::TooLong(1))));
        assert!(!of(Failed::Stalled));
        assert!(!of(Failed::Call(CallError::TimedOut(Duration::ZERO))));
        assert!(!of(Failed::Refused("json", "no block at all".to_owned())));
    }
}
