//! Proving what came: computation, on threads of its own.

use std::sync::Arc;
use std::time::Instant;

use bytes::Bytes;
use neve_chain::{Block, Checks, ProofError, Receipts};
use neve_record::assemble::{Assembled, cut};
use neve_record::coding::Coding;
use neve_record::precompressed::precompress;
use neve_store::Part;
use tokio::sync::{Semaphore, oneshot};
use tokio::task::{JoinHandle, spawn_blocking};
use tracing::warn;

use super::error::FetchError;
use super::payload::Payload;
use crate::shared::{StageTimes, add_elapsed};

/// Proves heights, cuts them into parts and compresses these. Clones share everything.
#[derive(Clone)]
pub(crate) struct Prover {
    pub(crate) busy: Arc<StageTimes>,
    /// Proving is computation: no more at a time than there are cores for it.
    pub(crate) turns: Arc<Semaphore>,
    /// Most threads for the senders of one height.
    threads: usize,
    /// Codings in which large parts are kept besides.
    compress: &'static [Coding],
}

impl Prover {
    pub(crate) fn new(threads: usize, compress: &'static [Coding], busy: Arc<StageTimes>) -> Self {
        Self { busy, turns: Arc::new(Semaphore::new(threads)), threads, compress }
    }

    /// Proves a height that is here, when it is its turn.
    pub(crate) async fn prove(
        &self,
        (block, receipts): Payload,
        checks: Checks,
    ) -> Result<Assembled, FetchError> {
        // No code closes the semaphore, so that there is a turn each time.
        let _turn = self.turns.acquire().await.ok();
        let prover = self.clone();
        spawn_blocking(move || prover.run(&block, &checks, || Ok(receipts))).await?
    }

    /// Ends a proof that has begun with the block, or proves the height from its beginning.
    pub(crate) async fn finish(
        &self,
        begun: Option<Begun>,
        texts: Payload,
        checks: Checks,
    ) -> Result<Assembled, FetchError> {
        match begun {
            Some(begun) => begun.end(texts.1).await,
            None => self.prove(texts, checks).await,
        }
    }

    /// Proves a block while its receipts are in flight. Its senders, which take longest, are recovered at the
    /// same time. A head does not wait here for heights of catch-up.
    pub(crate) fn begin(&self, block: Bytes, checks: Checks) -> Begun {
        let (receipts, coming) = oneshot::channel();
        let senders = checks.senders.then(|| self.begin_senders(block.clone()));
        let (prover, checks) = (self.clone(), Checks { senders: false, ..checks });
        let height = spawn_blocking(move || {
            let receipts = || coming.blocking_recv().map_err(|_| FetchError::NotYet);
            prover.run(&block, &checks, receipts)
        });
        Begun { receipts, height, senders }
    }

    fn begin_senders(&self, block: Bytes) -> JoinHandle<Result<(), ProofError>> {
        let (busy, threads) = (Arc::clone(&self.busy), self.threads);
        spawn_blocking(move || {
            let begun = Instant::now();
            let proven = Block::parse(&block).and_then(|block| block.check_senders(threads));
            add_elapsed(&busy.prove, begun);
            proven
        })
    }

    fn run(
        &self,
        block: &Bytes,
        checks: &Checks,
        receipts: impl FnOnce() -> Result<Bytes, FetchError>,
    ) -> Result<Assembled, FetchError> {
        let begun = Instant::now();
        let checked = Block::parse(block)?.check(checks)?;
        add_elapsed(&self.busy.prove, begun);
        // After the block's proof: its receipts may still be on their way meanwhile.
        let receipts = receipts()?;
        let begun = Instant::now();
        let proven = Receipts::parse(&receipts)?.check(&checked)?;
        let begun = add_elapsed(&self.busy.prove, begun);
        let mut assembled = cut(block.clone(), receipts.clone(), &checked, &proven);
        self.compress(&mut assembled);
        add_elapsed(&self.busy.cut, begun);
        Ok(assembled)
    }

    fn compress(&self, assembled: &mut Assembled) {
        if self.compress.is_empty() {
            return;
        }
        match precompress(&assembled.record.parts, self.compress) {
            Ok(forms) => assembled.record.parts.push(Part::uncompressed(forms)),
            // It is served all the same, not compressed.
            Err(error) => warn!(height = assembled.record.height, %error, "not compressed"),
        }
    }
}

/// A height whose receipts are not here yet. Dropped, it ends.
pub(crate) struct Begun {
    receipts: oneshot::Sender<Bytes>,
    height: JoinHandle<Result<Assembled, FetchError>>,
    senders: Option<JoinHandle<Result<(), ProofError>>>,
}

impl Begun {
    /// Proves the height with its receipts, which have come.
    pub(crate) async fn end(self, receipts: Bytes) -> Result<Assembled, FetchError> {
        // If the block was rejected, the receiver is gone.
        let _ = self.receipts.send(receipts);
        let assembled = self.height.await??;
        if let Some(senders) = self.senders {
            senders.await??;
        }
        Ok(assembled)
    }
}
