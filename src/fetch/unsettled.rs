//! The window of published heights that no header has settled yet, and its rebuilding.

use neve_chain::{CheckedHeader, Checks, Settlement};
use neve_record::assemble::{Assembled, assemble};
use neve_record::parts::{FULL, RECEIPTS, readable_part};
use neve_store::Reader;
use neve_store::residency::loaded;
use tokio::task::spawn_blocking;
use tracing::warn;

use super::height_fetcher::HeightFetcher;
use crate::upstream::{FetchNeed, Priority};

/// Memory for unsettled receipts. Ten heights of mainnet take half a MiB. A byte costs at least eight gas, as
/// `ProofError::LogGas` says, so made-up receipts cannot drive out true ones: this is the gas of four full blocks of ten
/// seconds at the 3.2 million gas a second that Fuji had.
const BYTES_MAX: usize = 16 << 20;

/// A window, and where its heights came from.
pub(crate) struct Rebuilt {
    pub(crate) window: Settlement,
    /// Heights in it with the places of the upstreams that gave them; `None`: the store has them.
    pub(crate) givers: Vec<(u64, Option<usize>)>,
    /// False if all upstreams lack some of its heights.
    pub(crate) is_whole: bool,
}

impl Rebuilt {
    fn new(window: Settlement) -> Self {
        Self { window, givers: Vec::new(), is_whole: true }
    }

    /// Adds an unsettled height and the place of its giver; `None`: all upstreams lack the height.
    fn add(&mut self, height: u64, found: Option<(Assembled, Option<usize>)>) {
        let Some((assembled, from)) = found else {
            self.is_whole = false;
            return;
        };
        self.givers.push((height, from));
        assembled.unsettled.into_iter().for_each(|receipts| self.window.push(receipts));
    }
}

/// The window for the height after `last`: empty below the first height of a chain, else rebuilt
/// from the store or, for what is not stored, from upstreams. For history it has no heights that all upstreams lack:
/// what is below all that can be had cannot be proven, and the segment below is held against the stored headers.
pub(crate) async fn rebuild(
    reader: &Reader,
    source: &HeightFetcher,
    last: Option<u64>,
    purpose: Priority,
    checks: Checks,
) -> Rebuilt {
    let empty = Rebuilt::new(Settlement::new(BYTES_MAX));
    let Some(last) = last else { return empty };
    // Only receipts are needed here, and no sender proves those.
    let checks = Checks { senders: false, ..checks };
    let Some((newest, _)) = height(reader, source, last, purpose, checks).await else {
        return Rebuilt { is_whole: false, ..empty };
    };
    let window = Settlement::resume(&CheckedHeader::of(&newest.header), BYTES_MAX);
    let mut rebuilt = Rebuilt::new(window);
    for unsettled in rebuilt.window.unsettled() {
        rebuilt.add(unsettled, height(reader, source, unsettled, purpose, checks).await);
    }
    rebuilt
}

/// Rebuilds the window above the head from the store alone, on this thread. Settled heights that the store lacks
/// stay unproven.
///
/// # Errors
/// A height that cannot be read.
pub(crate) fn of_store(reader: &Reader, checks: Checks) -> Result<Settlement, u64> {
    let Some(range) = reader.range() else { return Ok(Settlement::new(BYTES_MAX)) };
    let checks = Checks { senders: false, ..checks };
    let read = |height| read(reader, height, checks).ok_or(height);
    let header = read(*range.end())?.header;
    let mut window = Settlement::resume(&CheckedHeader::of(&header), BYTES_MAX);
    for height in window.unsettled().filter(|height| height >= range.start()) {
        read(height)?.unsettled.into_iter().for_each(|receipts| window.push(receipts));
    }
    Ok(window)
}

async fn height(
    reader: &Reader,
    source: &HeightFetcher,
    height: u64,
    purpose: Priority,
    checks: Checks,
) -> Option<(Assembled, Option<usize>)> {
    // A damaged record is fetched instead, like one that was evicted.
    if let Some(assembled) = stored(reader, height, checks).await {
        return Some((assembled, None));
    }
    let fetched = source.fetch_needed(FetchNeed::new(height, purpose), checks).await?;
    Some((fetched.assembled, Some(fetched.from)))
}

/// A stored height, proven again.
pub(crate) async fn stored(reader: &Reader, height: u64, checks: Checks) -> Option<Assembled> {
    off_task(reader, move |reader| read(reader, height, checks)).await
}

/// Reads the store on a thread that may wait for the disk: the task that accepts connections and follows must not.
/// `None` also if the read panicked.
pub(crate) async fn off_task<T: Send + 'static>(
    reader: &Reader,
    read: impl FnOnce(&Reader) -> Option<T> + Send + 'static,
) -> Option<T> {
    let reader = reader.clone();
    spawn_blocking(move || read(&reader)).await.ok()?
}

fn read(reader: &Reader, height: u64, checks: Checks) -> Option<Assembled> {
    let (block, receipts) = loaded(|| {
        let record = reader.record(height)?;
        Some((readable_part(&record, FULL).ok()??, readable_part(&record, RECEIPTS).ok()??))
    })?;
    match assemble(block.as_ref(), receipts.as_ref(), &checks) {
        Ok(assembled) => Some(assembled),
        Err(error) => {
            warn!(height, %error, "stored record fails its proof");
            None
        }
    }
}

#[cfg(test)]
mod tests {
    use std::pin::pin;
    use std::sync::Arc;

    use futures_util::FutureExt;
    use neve_devnet::{Chain, Config, Part};
    use neve_jsonrpc::Rules;
    use neve_store::{Hash, Identity, Options};
    use tokio::task::unconstrained;

    use super::*;
    use crate::config::settings;
    use crate::fetch::Evidence;
    use crate::upstream::UpstreamPool;

    /// The task that waits for it accepts connections, too.
    #[test]
    fn stored_heights_are_read_and_proven_on_another_thread() {
        let mut runtime = tokio::runtime::Builder::new_current_thread();
        let runtime = runtime.max_blocking_threads(1).build().expect("threads can be made");
        runtime.block_on(async {
            let (free, busy) = std::sync::mpsc::channel::<()>();
            let occupied = spawn_blocking(move || busy.recv());
            rebuild_needs_another_thread(|| drop(free)).await;
            occupied.await.expect("it only waits").expect_err("nothing was sent");
        });
    }

    /// The only thread that may wait is busy until `free` is called.
    async fn rebuild_needs_another_thread(free: impl FnOnce()) {
        let dir = tempfile::tempdir().expect("a directory can be made");
        let opened = neve_store::open(dir.path(), Options::default());
        let (mut writer, reader) = opened.map(|it| (it.writer, it.reader)).expect("it is empty");
        let chain = Config::test().chain;
        let checks = Checks { chain_id: chain.chain_id, senders: true, ..CHECKS };
        writer.bind(Identity { chain_id: chain.chain_id, genesis: Hash([9; 32]) }, 0).unwrap();
        let mut chain = Chain::new(chain);
        for _ in 0..3 {
            let block = chain.next_block();
            let text = block.answer(Part::Full, Rules::BeforeHelicon);
            let assembled = assemble(&text, block.receipts(), &checks).expect("it is right");
            writer.append(&assembled.record).expect("the disk takes it");
        }
        let (config, _) = settings::Config::from_flags(&["--dev"]).expect("they are allowed");
        let (pool, evidence) = (UpstreamPool::new(Vec::new(), 1), Evidence::new(dir.path()));
        let source = HeightFetcher::new(pool, evidence, Arc::default(), &config.fetch);
        let mut rebuilt = pin!(rebuild(&reader, &source, Some(2), Priority::Backfill, checks));
        let at_once = unconstrained(&mut rebuilt).now_or_never();
        assert!(at_once.is_none(), "it was read on this thread");
        free();
        assert!(rebuilt.await.is_whole);
    }

    const CHECKS: Checks =
        Checks { chain_id: 0, senders: false, admitted: neve_chain::AdmittedKeys::NONE };
}
