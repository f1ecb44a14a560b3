//! Proves lines, holds each against the height before it, and appends it by the writer thread.

use std::sync::Arc;
use std::time::{Duration, Instant};

use futures_util::StreamExt;
use futures_util::stream::FuturesOrdered;
use neve_chain::{CheckedHeader, Checks, Disproof, Settlement};
use neve_jsonrpc::Rules;
use neve_record::assemble::Assembled;
use neve_store::residency::loaded;
use neve_store::{Hash, Identity, Record};
use tokio::task::JoinError;
use tokio_util::task::AbortOnDropHandle;
use tracing::info;

use super::input::{ReadLine, ReadLines};
use super::line::ImportLine;
use crate::commands::start::StartError;
use crate::config::settings::{Config, Senders};
use crate::fetch::{FetchError, Prover, note_proof, unsettled};
use crate::ingest::{Ingest, Stopped};
use crate::shared::{IngestBudget, IngestReservation, Phase, Serving, Status};
use crate::upstream::rules_of;

/// Time between two lines about progress.
const PROGRESS_EVERY: Duration = Duration::from_secs(5);

/// Reason why an import ends before its input does.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum ImportError {
    /// A line is wrong: its number, its height if that is known, and the reason.
    Line { number: u64, height: Option<u64>, why: String },
    /// The writer has stopped.
    Store(String),
}

/// Numbers of an import so far.
#[derive(Debug, Default, Clone, Copy)]
pub(super) struct Counts {
    /// Heights that were appended.
    pub(super) stored: u64,
    /// Heights that the store had.
    pub(super) held: u64,
    /// Heights below the first one of the store, which only backfill can add.
    pub(super) below: u64,
    /// Newest heights whose receipts no header has proven yet.
    pub(super) unsettled: u64,
    /// Lowest height that was appended or that the store had.
    pub(super) lowest: Option<u64>,
}

/// State of the store and of the arguments at the beginning.
pub(super) struct ImportBegin {
    /// Height and hash of the newest stored block.
    pub(super) last: Option<(u64, Hash)>,
    /// The chain, if it is known.
    pub(super) identity: Option<Identity>,
    /// Chain id of `--chain-id`.
    pub(super) chain_id: Option<u64>,
}

/// A running import.
pub(super) struct Importer {
    serving: Arc<Serving>,
    /// Tells the packer what it may pack.
    status: Arc<Status>,
    ingest: Ingest,
    prover: Prover,
    budget: IngestBudget,
    checks: Checks,
    begin: ImportBegin,
    window: Settlement,
    /// The next height to prove; `None` before the first one of an empty store.
    next: Option<u64>,
    /// Height and hash of the block that was appended last.
    last: Option<(u64, Hash)>,
    rules: Rules,
    counts: Counts,
    said: Instant,
}

/// A line whose height is proven in itself, or that the store has.
enum Proven {
    Held,
    Below,
    New(Box<Assembled>, IngestReservation),
}

/// Number and height of a line, and its proof.
type LineProof = (u64, u64, Result<Proven, String>);

type ProofTask = AbortOnDropHandle<LineProof>;

/// End of the input, or the wrong line that ends it.
type InputEnd = Result<(), ImportError>;

impl Importer {
    pub(super) fn new(
        config: &Config,
        (serving, status): (&Arc<Serving>, &Arc<Status>),
        ingest: Ingest,
        begin: ImportBegin,
    ) -> Result<Self, StartError> {
        let fetch = &config.fetch;
        let checks = Checks {
            // A store without an identity is empty: `identify` says the chain before the first
            // proof.
            chain_id: begin.identity.map_or(0, |identity| identity.chain_id),
            senders: fetch.recover_senders == Senders::Always,
            admitted: fetch.admitted,
        };
        let window = unsettled::of_store(&serving.reader, checks).map_err(StartError::Damaged)?;
        status.set_phase(Phase::CatchingUp);
        status.set_verified(window.settled());
        Ok(Self {
            ingest,
            prover: Prover::new(fetch.prove_threads, fetch.precompress, Arc::default()),
            budget: IngestBudget::new(fetch.ingest_bytes_max),
            checks,
            window,
            next: begin.last.map(|(height, _)| height + 1),
            last: begin.last,
            begin,
            rules: serving.rules(),
            counts: Counts::default(),
            said: Instant::now(),
            serving: Arc::clone(serving),
            status: Arc::clone(status),
        })
    }

    pub(super) fn counts(&self) -> Counts {
        let unsettled = self.window.unsettled().count() as u64;
        Counts { unsettled, ..self.counts }
    }

    /// Returns the way to the writer. Heights that are not appended by then are lost.
    pub(super) fn end(self) -> Ingest {
        self.ingest
    }

    /// Appends heights up to the end of the input. Heights before a wrong line are appended.
    pub(super) async fn run(&mut self, lines: &mut ReadLines) -> Result<(), ImportError> {
        let end = self.append_all(lines).await?;
        // Heights that wait for the packer are stored as they came if the import ends before.
        self.ingest.barrier().await.map_err(stopped)?;
        end
    }

    async fn append_all(&mut self, lines: &mut ReadLines) -> Result<InputEnd, ImportError> {
        // In the order of the lines, because each height is held against the one before it.
        let mut proving = FuturesOrdered::new();
        let mut end = None;
        while end.is_none() || !proving.is_empty() {
            let alone = proving.is_empty();
            // Behind a wrong line nothing is read: those before it are still stored.
            let room = if end.is_none() { self.budget.take(alone) } else { None };
            let is_full = room.is_none();
            tokio::select! {
                biased;
                // Lines first: the threads that prove must not wait for the writer.
                line = lines.recv(), if !is_full => match self.next_task(line, room) {
                    Ok(task) => proving.push_back(task),
                    Err(ended) => end = Some(ended),
                },
                Some(done) = proving.next(), if !alone => self.take(done).await?,
                () = self.budget.freed(alone), if is_full && end.is_none() => {}
            }
        }
        Ok(end.unwrap_or(Ok(())))
    }

    /// Begins to prove the line that was read, or returns the end of the input.
    fn next_task(
        &mut self,
        line: Option<ReadLine>,
        room: Option<IngestReservation>,
    ) -> Result<ProofTask, InputEnd> {
        match (line, room) {
            (Some(Ok(line)), Some(room)) => self.begin(line, room).map_err(Err),
            (Some(Err((number, why))), _) => {
                Err(Err(ImportError::Line { number, height: None, why }))
            }
            _ => Err(Ok(())),
        }
    }

    /// Begins to prove a line on another thread, unless the store has its height.
    fn begin(
        &mut self,
        line: ImportLine,
        room: IngestReservation,
    ) -> Result<ProofTask, ImportError> {
        let ImportLine { number, height, hash, .. } = line;
        let wrong = |why| ImportError::Line { number, height: Some(height), why };
        let found = self.found(height, hash).map_err(wrong)?;
        if found.is_none() {
            self.checks.chain_id = self.identify(height, hash).map_err(wrong)?.chain_id;
            self.next = height.checked_add(1);
        }
        let (proving, reserved) = ((self.prover.clone(), self.checks), (room, self.budget.clone()));
        let proof = proof(line, found, proving, reserved);
        Ok(AbortOnDropHandle::new(tokio::spawn(proof)))
    }

    /// Finds a height that the store had before; `None` if it is the next one.
    fn found(&self, height: u64, hash: Hash) -> Result<Option<Proven>, String> {
        let Some(next) = self.next.filter(|next| *next != height) else { return Ok(None) };
        if height > next {
            return Err(format!("gap: the next height is {next}"));
        }
        let reader = &self.serving.reader;
        let is_below = reader.range().is_some_and(|range| height < *range.start());
        // This import has appended it: the lines are out of order.
        if self.begin.last.is_none_or(|(last, _)| height > last) {
            return Err(format!("order: the next height is {next}"));
        }
        if is_below {
            return Ok(Some(Proven::Below));
        }
        match loaded(|| reader.record(height).map(|record| record.hash())) {
            Some(stored) if stored != hash => {
                Err(format!("other_block: it is {hash}, the store has {stored}"))
            }
            // A damaged record counts as held, too: an import repairs nothing.
            _ => Ok(Some(Proven::Held)),
        }
    }

    /// Returns the chain. An empty store without `--network` takes it from block 0.
    fn identify(&mut self, height: u64, hash: Hash) -> Result<Identity, String> {
        let genesis = (height == 0).then_some(hash);
        let identity = match (self.begin.identity, self.begin.chain_id, genesis) {
            (Some(identity), ..) => identity,
            (None, Some(chain_id), Some(genesis)) => Identity { chain_id, genesis },
            _ => {
                let why = "chain: that of an empty store is unknown; use --network, or --chain-id \
                           with --genesis or with an input that begins with block 0";
                return Err(why.to_owned());
            }
        };
        if let Some(found) = genesis.filter(|found| *found != identity.genesis) {
            let why = "see --network, --chain-id and --genesis, or use another data directory";
            return Err(format!(
                "genesis: block 0 is {found}, that of {identity} is expected; {why}"
            ));
        }
        self.begin.identity = Some(identity);
        Ok(identity)
    }

    /// Stores and counts a height.
    async fn take(&mut self, done: Result<LineProof, JoinError>) -> Result<(), ImportError> {
        let (number, height, proven) =
            done.map_err(|error| ImportError::Store(format!("proving failed: {error}")))?;
        let wrong = |why| ImportError::Line { number, height: Some(height), why };
        let proven = proven.map_err(wrong)?;
        if !matches!(proven, Proven::Below) {
            self.counts.lowest.get_or_insert(height);
        }
        match proven {
            Proven::Held => self.counts.held += 1,
            Proven::Below => self.counts.below += 1,
            Proven::New(assembled, room) => {
                self.append(*assembled, room, number).await?;
                self.counts.stored += 1;
            }
        }
        if self.said.elapsed() >= PROGRESS_EVERY {
            self.tell_progress(number);
        }
        Ok(())
    }

    fn tell_progress(&mut self, line: u64) {
        self.said = Instant::now();
        let Counts { stored, held, .. } = self.counts;
        let head = self.last.map(|(head, _)| head);
        info!(line, head, stored, held, "import goes on");
    }

    /// Holds a proven height against those before it, and appends it, as the follower does.
    async fn append(
        &mut self,
        assembled: Assembled,
        room: IngestReservation,
        number: u64,
    ) -> Result<(), ImportError> {
        let record = self.hold(assembled, number).await?;
        let (height, hash) = (record.height, record.hash);
        if self.last.is_none() {
            self.bind().await?;
        }
        self.ingest.append(record, self.rules, room).await.map_err(stopped)?;
        self.last = Some((height, hash));
        Ok(())
    }

    /// Holds a proven height against those before it. Returns its record.
    async fn hold(&mut self, assembled: Assembled, number: u64) -> Result<Record, ImportError> {
        let Assembled { record, header, unsettled, difficulty } = assembled;
        let height = record.height;
        let wrong = |why| ImportError::Line { number, height: Some(height), why };
        if let Some((last, hash)) = self.last.filter(|(_, hash)| *hash != record.parent) {
            let why = format!("its parent is {}, block {last} is {hash}", record.parent);
            return Err(wrong(format!("parent_link: {why}")));
        }
        match self.window.settle(&CheckedHeader::of(&header)) {
            Ok(proof) => note_proof(height, &proof),
            Err(disproof) => return Err(wrong(self.disproved(&disproof).await?)),
        }
        unsettled.into_iter().for_each(|receipts| self.window.push(receipts));
        self.status.set_verified(self.window.settled());
        // A store never goes back to older rules. A record knows its own form.
        if header.settles().is_some() || rules_of(difficulty, self.rules) == Rules::Helicon {
            self.rules = Rules::Helicon;
        }
        Ok(record)
    }

    /// Takes imported heights back that a header disproves. Heights that the store had before stay:
    /// the input may be what is wrong. Returns the reason.
    async fn disproved(&self, disproof: &Disproof) -> Result<String, ImportError> {
        let why = format!("{}: {disproof}", disproof.reason());
        let (Disproof::ReceiptsRoot { from, through, .. }
        | Disproof::LogsBloom { from, through, .. }) = disproof
        else {
            return Ok(why);
        };
        let from = self.begin.last.map_or(*from, |(last, _)| last.saturating_add(1).max(*from));
        // The store had all of them before the import.
        if from > *through {
            return Ok(why);
        }
        let withdrawn = self.ingest.withdraw(from).await.map_err(stopped)?;
        withdrawn.map_err(|error| ImportError::Store(error.to_string()))?;
        Ok(format!("{why}; heights from {from} on were taken back"))
    }

    /// Binds an empty store to the chain.
    async fn bind(&self) -> Result<(), ImportError> {
        let Some(identity) = self.begin.identity else { return Ok(()) };
        let bound = self.ingest.bind(identity, self.rules).await.map_err(stopped)?;
        bound.map_err(|error| ImportError::Store(error.to_string()))
    }
}

/// Proves a line, unless the store has its height.
async fn proof(
    line: ImportLine,
    found: Option<Proven>,
    (prover, checks): (Prover, Checks),
    (mut room, budget): (IngestReservation, IngestBudget),
) -> LineProof {
    let ImportLine { number, height, texts, .. } = line;
    let proven = match found {
        Some(found) => Ok(found),
        None => prover.prove(texts, checks).await.map(|assembled| {
            // From here on the reservation is that of the record, and no longer an estimate.
            budget.fit(&mut room, assembled.record.encoded_len());
            Proven::New(Box::new(assembled), room)
        }),
    };
    (number, height, proven.map_err(told))
}

fn stopped(_: Stopped) -> ImportError {
    ImportError::Store(Stopped.to_string())
}

/// Returns the reason of a refusal.
fn told(error: FetchError) -> String {
    match error {
        FetchError::Refused("chain_id", why) => {
            // Block 0 has no id: it may have bound an empty store to a wrong one.
            format!("chain_id: {why}; if --chain-id was wrong, use another data directory")
        }
        FetchError::Refused(reason, why) => format!("{reason}: {why}"),
        other => format!("cannot be proven: {other:?}"),
    }
}
