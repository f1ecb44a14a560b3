//! One height from the upstream, complete and proven, or the reason why not.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use bytes::Bytes;
use metrics::counter;
use neve_chain::{Block, Checks, HeaderAnswer, Refusal, TotalDifficulty};
use neve_store::Part;
use tracing::{debug, warn};

use super::assemble::{Assembled, assemble};
use super::backoff::Backoff;
use super::heads::quantity;
use super::upstream::{CallError, Upstream, join};
use crate::packed::{Coding, pack};

/// Receipts asked for in one batch where there is no call for all of them.
const RECEIPTS_A_BATCH: usize = 100;
/// A height that is announced but not there: behind a balancer that takes some milliseconds.
const NOT_YET_FIRST: Duration = Duration::from_millis(20);
const NOT_YET_MAX: Duration = Duration::from_secs(1);
/// After a refused block. The upstream may come to its senses; asking faster does not help it.
const REFUSED_FIRST: Duration = Duration::from_millis(250);
const REFUSED_MAX: Duration = Duration::from_secs(30);
/// How often it is said that a height is still awaited.
const SAY_EVERY: Duration = Duration::from_secs(30);

/// Fetches heights. Clones share the upstream and what is known of it.
#[derive(Clone)]
pub(crate) struct Source {
    pub(crate) upstream: Upstream,
    /// Whether the upstream has `eth_getBlockReceipts`; the public API does not.
    block_receipts: Arc<AtomicBool>,
    /// In which codings large parts are kept besides.
    compress: &'static [Coding],
}

/// Why an attempt failed.
#[derive(Debug)]
enum Failed {
    /// Not there, or not executed.
    NotYet,
    /// There, and wrong.
    Refused(Box<Refusal>),
    /// Another height than the one asked for.
    WrongHeight(u64),
    /// No answer.
    Call(CallError),
}

impl From<CallError> for Failed {
    fn from(error: CallError) -> Self {
        Self::Call(error)
    }
}

impl From<Refusal> for Failed {
    fn from(refusal: Refusal) -> Self {
        Self::Refused(Box::new(refusal))
    }
}

impl Source {
    pub(crate) fn new(upstream: Upstream, compress: &'static [Coding]) -> Self {
        Self { upstream, block_receipts: Arc::new(AtomicBool::new(true)), compress }
    }

    /// The upstream's head: the newest executed height.
    pub(crate) async fn head(&self) -> Result<u64, CallError> {
        self.quantity("eth_blockNumber").await
    }

    pub(crate) async fn chain_id(&self) -> Result<u64, CallError> {
        self.quantity("eth_chainId").await
    }

    async fn quantity(&self, method: &'static str) -> Result<u64, CallError> {
        let result = self.upstream.call(method, "[]").await?;
        let text = result.as_deref().and_then(|json| serde_json::from_slice::<&str>(json).ok());
        text.and_then(quantity)
            .ok_or_else(|| CallError::Garbage(format!("{method} is no quantity")))
    }

    /// The text of a block, unproven; `None` if the upstream has none there.
    pub(crate) async fn block(&self, height: u64) -> Result<Option<Bytes>, CallError> {
        let params = format!("[\"{height:#x}\",true]");
        match self.upstream.call("eth_getBlockByNumber", &params).await {
            Err(error) if error.is_beyond_head() => Ok(None),
            result => result,
        }
    }

    /// In which form the upstream gives total difficulties: by a header's answer, which is not
    /// proven. `None` if there is none.
    pub(crate) async fn difficulty(
        &self,
        height: u64,
    ) -> Result<Option<TotalDifficulty>, CallError> {
        let params = format!("[\"{height:#x}\"]");
        let header = match self.upstream.call("eth_getHeaderByNumber", &params).await {
            Ok(header) => header,
            Err(CallError::Rpc { .. }) => None,
            Err(error) => return Err(error),
        };
        let answer = header.and_then(|header| HeaderAnswer::parse(&header).ok());
        Ok(answer.and_then(|a| TotalDifficulty::of(a.total_difficulty, a.header.number).ok()))
    }

    /// A height, however often it takes; ends only when the upstream cannot be reached.
    pub(crate) async fn fetch(&self, height: u64, checks: Checks) -> Result<Assembled, CallError> {
        let mut not_yet = Backoff::new(NOT_YET_FIRST, NOT_YET_MAX);
        let mut refused = Backoff::new(REFUSED_FIRST, REFUSED_MAX);
        let mut said = Instant::now();
        loop {
            let wait = match self.attempt(height, checks).await {
                Ok(assembled) => return Ok(assembled),
                Err(Failed::NotYet) => not_yet.wait(),
                Err(Failed::Call(CallError::Throttled { after, status })) => {
                    debug!(height, %status, ?after, "throttled");
                    after.unwrap_or_default().max(refused.wait())
                }
                Err(Failed::Call(error)) => return Err(error),
                Err(Failed::Refused(why)) => {
                    refuse(height, why.reason(), &why.to_string());
                    refused.wait()
                }
                Err(Failed::WrongHeight(found)) => {
                    refuse(height, "height", &format!("the upstream sent block {found}"));
                    refused.wait()
                }
            };
            if said.elapsed() > SAY_EVERY {
                warn!(height, "still waiting for the upstream to have this height");
                said = Instant::now();
            }
            tokio::time::sleep(wait).await;
        }
    }

    async fn attempt(&self, height: u64, checks: Checks) -> Result<Assembled, Failed> {
        let (block, receipts) = self.answers(height).await?;
        let compress = self.compress;
        // Proving is computation: it has its own threads, and does not stop the waiting.
        let proven =
            tokio::task::spawn_blocking(move || prove(&block, &receipts, &checks, compress)).await;
        let assembled = proven.map_err(|error| CallError::Unreachable(error.to_string()))??;
        match assembled.record.height {
            found if found == height => Ok(assembled),
            found => Err(Failed::WrongHeight(found)),
        }
    }

    /// Block and receipts, asked for at the same time where one call gives all receipts.
    async fn answers(&self, height: u64) -> Result<(Bytes, Bytes), Failed> {
        if self.block_receipts.load(Ordering::Relaxed) {
            let params = format!("[\"{height:#x}\"]");
            let receipts = self.upstream.call("eth_getBlockReceipts", &params);
            let (block, receipts) = tokio::join!(self.block(height), receipts);
            let block = block?.ok_or(Failed::NotYet)?;
            match receipts {
                Ok(receipts) => return Ok((block, receipts.ok_or(Failed::NotYet)?)),
                Err(error) if error.is_no_method() => {
                    self.block_receipts.store(false, Ordering::Relaxed);
                    debug!("no eth_getBlockReceipts there, asking for each receipt");
                }
                Err(error) => return Err(error.into()),
            }
            let receipts = self.each_receipt(&block).await?;
            return Ok((block, receipts));
        }
        let block = self.block(height).await?.ok_or(Failed::NotYet)?;
        let receipts = self.each_receipt(&block).await?;
        Ok((block, receipts))
    }

    async fn each_receipt(&self, block: &[u8]) -> Result<Bytes, Failed> {
        let hashes: Vec<String> = {
            let block = Block::parse(block)?;
            block.transactions.iter().map(|tx| format!("[\"{:#x}\"]", tx.hash)).collect()
        };
        let mut receipts = Vec::with_capacity(hashes.len());
        for hashes in hashes.chunks(RECEIPTS_A_BATCH) {
            let batch = self.upstream.batch("eth_getTransactionReceipt", hashes).await?;
            for receipt in batch {
                receipts.push(receipt.ok_or(Failed::NotYet)?);
            }
        }
        Ok(join(&receipts))
    }
}

/// Proves, and compresses what is proven.
fn prove(
    block: &[u8],
    receipts: &[u8],
    checks: &Checks,
    compress: &[Coding],
) -> Result<Assembled, Refusal> {
    let mut assembled = assemble(block, receipts, checks)?;
    if !compress.is_empty() {
        match pack(&assembled.record.parts, compress) {
            Ok(packed) => assembled.record.parts.push(Part::plain(packed)),
            // It is served all the same, not compressed.
            Err(error) => warn!(height = assembled.record.height, %error, "not compressed"),
        }
    }
    Ok(assembled)
}

/// Says and counts that a height is refused.
pub(super) fn refuse(height: u64, reason: &'static str, why: &str) {
    warn!(height, reason, why, "refused what the upstream sent");
    counter!("neve_blocks_refused_total", "reason" => reason).increment(1);
}
