use std::sync::Arc;
use std::time::Duration;

use neve_chain::AdmittedKeys;
use neve_devnet::{Chain, ChainConfig, Helicon, Part};
use neve_jsonrpc::Rules;
use neve_record::assemble::{Assembled, assemble};
use neve_store::{Identity, Options};
use tempfile::TempDir;
use tokio::time::{sleep, timeout};

use super::*;
use crate::client::client_config;
use crate::config::StartAt;
use crate::config::settings::{Config, LiveRates};
use crate::fetch::Evidence;
use crate::ingest::writer;
use crate::shared::{Serving, Status};
use crate::upstream::tests::upstream;
use crate::upstream::{PoolSlot, UpstreamPool};

const IDENTITY: Identity = Identity { chain_id: 43_112, genesis: Hash([9; 32]) };
/// Places of the upstreams.
const NODE: usize = 0;
const SOURCE: usize = 1;
/// Blocks of the chain. More than two of them are unsettled at its end.
const BLOCKS: u64 = 30;

/// A follower with an empty store.
fn follower() -> (Follower, TempDir) {
    let dir = tempfile::tempdir().unwrap();
    let (config, _) = Config::from_flags(&["--dev"]).unwrap();
    let options = Options { segment_bytes: 1 << 20, disk_reserve_bytes: 0, ..config.store };
    let opened = neve_store::open(dir.path(), options).unwrap();
    let (serving, status) = (Arc::new(Serving::new(opened.reader)), Arc::<Status>::default());
    let (ingest, _) = writer::start(writer::Setup {
        writer: opened.writer,
        serving: Arc::clone(&serving),
        status: Arc::clone(&status),
        retention: config.retention,
        unpushed_bytes_max: None,
        fsync_interval: Duration::from_mins(1),
        queued: Arc::default(),
        unpacked_bytes: None,
        nice: 19,
        options,
        busy: Arc::default(),
    })
    .unwrap();
    let follower = Follower {
        #[cfg(feature = "archive")]
        archive: None,
        endpoints: Vec::new(),
        tls: client_config(None).unwrap(),
        config: config.fetch,
        rates: LiveRates::default(),
        start: StartAt::Height(0),
        backfill: config.backfill,
        retention: config.retention,
        unpacked_bytes: config.unpacked_bytes,
        expected: None,
        mirror: true,
        serving,
        status,
        ingest,
        budget: IngestBudget::new(1 << 20),
        evidence: Evidence::new(dir.path()),
        busy: Arc::default(),
        pool: PoolSlot::default(),
    };
    (follower, dir)
}

/// Upstreams without a head, the last of which is a mirror source.
fn source(follower: &Follower, upstreams: usize) -> HeightFetcher {
    let upstreams = (1..=upstreams).map(|count| upstream(count == upstreams)).collect();
    let pool = UpstreamPool::new(upstreams, 1);
    pool.identity.get_or_init(|| IDENTITY);
    pool.upstreams.iter().for_each(|one| one.admit(0, 0, Rules::Helicon));
    pool.changed(false);
    HeightFetcher::new(pool, follower.evidence.clone(), Arc::default(), &follower.config)
}

/// The blocks of a chain with asynchronous execution.
fn blocks() -> Vec<Assembled> {
    let small = ChainConfig::small(1);
    let config = ChainConfig { helicon: Helicon::FromGenesis, interval_ms: 500, ..small };
    let checks = Checks { chain_id: config.chain_id, senders: false, admitted: AdmittedKeys::NONE };
    let assembled = |block: neve_devnet::Block| {
        let text = block.answer(Part::Full, Rules::Helicon);
        assemble(&text, block.receipts(), &checks).unwrap()
    };
    Chain::new(config).take(BLOCKS as usize).map(assembled).collect()
}

/// Two blocks in the form of the release before Helicon. The first one has no form of its own.
fn old_blocks() -> Vec<Assembled> {
    let config = ChainConfig { helicon: Helicon::Never, ..ChainConfig::small(1) };
    let checks = Checks { chain_id: config.chain_id, senders: false, admitted: AdmittedKeys::NONE };
    let assembled = |block: neve_devnet::Block| {
        let text = block.answer(Part::Full, Rules::BeforeHelicon);
        assemble(&text, block.receipts(), &checks).unwrap()
    };
    Chain::new(config).take(2).map(assembled).collect()
}

/// Publishes blocks that upstream `from` gave.
async fn publish(
    session: &mut Session<'_>,
    blocks: impl IntoIterator<Item = Assembled>,
    from: usize,
) -> Result<(), SessionEnd> {
    for assembled in blocks {
        session.publish(FetchedHeight { assembled, from }, IngestReservation::Forced).await?;
    }
    Ok(())
}

fn session<'f>(follower: &'f Follower, source: &HeightFetcher, givers: Givers) -> Session<'f> {
    let mut session = Session::new(follower, source.clone(), None, givers);
    session.checks.chain_id = IDENTITY.chain_id;
    session.window = Settlement::new(1 << 20);
    session
}

/// A session that has published all blocks, and the highest height that they settle.
async fn filled<'f>(
    follower: &'f Follower,
    source: &HeightFetcher,
    from: usize,
) -> (Session<'f>, u64) {
    follower.ingest.bind(IDENTITY, Rules::Helicon).await.unwrap().unwrap();
    let mut session = session(follower, source, Givers::default());
    session.givers.begin(Vec::new());
    publish(&mut session, blocks(), from).await.unwrap();
    assert_eq!(head(follower).await, BLOCKS - 1);
    let settled = follower.serving.proven_height().unwrap();
    assert!(settled + 4 < BLOCKS, "{settled}");
    (session, settled)
}

async fn head(follower: &Follower) -> u64 {
    follower.ingest.barrier().await.unwrap().unwrap().0
}

#[test]
fn false_head_of_one_upstream_leaves_out_no_senders() {
    let recovers = |height| {
        let sight = PoolState { admitted: 2, head: 1 << 40, common: 300, ..Default::default() };
        [Senders::Live, Senders::Never, Senders::Always]
            .map(|which| recovers(which, height, &sight))
    };
    assert_eq!(recovers(301), [true, false, true]);
    assert_eq!(recovers(300 - FOLLOWING_WITHIN), [false, false, true]);
}

/// The node gave it before its release changed.
#[tokio::test]
async fn block_of_the_release_before_does_not_lead_back_to_its_rules() {
    let (follower, _dir) = follower();
    let source = source(&follower, 1);
    follower.ingest.bind(IDENTITY, Rules::Helicon).await.unwrap().unwrap();
    let mut session = session(&follower, &source, Givers::default());
    session.givers.begin(Vec::new());
    publish(&mut session, old_blocks(), NODE).await.unwrap();
    assert_eq!(source.pool.sight().borrow().rules(), Rules::Helicon);
    assert!(source.pool.upstreams[NODE].state().rules_doubted, "a header tells");
}

#[tokio::test]
async fn phase_follows_the_proven_head() {
    let (follower, _dir) = follower();
    let source = source(&follower, 2);
    let mut session = session(&follower, &source, Givers::default());
    session.last = Some((300, Hash::default()));
    for (proven, phase) in [(301, Phase::Following), (400, Phase::CatchingUp)] {
        session.note_phase(&PoolState { admitted: 2, head: 1 << 40, proven, ..Default::default() });
        assert_eq!(follower.status.phase(), phase, "{proven}");
    }
}

#[tokio::test]
async fn height_that_is_withdrawn_while_it_waits_is_not_published() {
    for (from, published) in [(SOURCE, 0), (NODE, 1)] {
        let (follower, _dir) = follower();
        let source = source(&follower, 2);
        follower.ingest.bind(IDENTITY, Rules::Helicon).await.unwrap().unwrap();
        let mut session = session(&follower, &source, Givers::default());
        let mut blocks = blocks().into_iter();
        publish(&mut session, blocks.next(), NODE).await.unwrap();
        source.pool.withdraws(1); // height 1 is requested, and its giver not known
        let sight = *source.pool.sight().borrow();
        session.seen(sight, sight, 2).await.unwrap();
        let ended = publish(&mut session, blocks.next(), from).await;
        assert_eq!(ended.is_err(), from == SOURCE, "{ended:?}");
        assert_eq!(head(&follower).await, published);
    }
}

#[tokio::test]
async fn withdrawal_reaches_heights_of_an_earlier_process_and_of_earlier_sessions() {
    let (follower, _dir) = follower();
    let source = source(&follower, 2);
    let (mut earlier, settled) = filled(&follower, &source, SOURCE).await;
    for givers in [Givers::default(), earlier.take_givers()] {
        let mut session = session(&follower, &source, givers);
        session.last = follower.ingest.barrier().await.unwrap();
        assert_eq!(session.resume(BLOCKS).await.unwrap(), BLOCKS);
        source.pool.withdraws(settled + 2);
        assert_eq!(session.withdrawn_from(BLOCKS), Some(settled + 2));
    }
    // Those of the node stay.
    let (follower, _dir) = self::follower();
    let (mut earlier, settled) = filled(&follower, &source, NODE).await;
    let mut session = session(&follower, &source, earlier.take_givers());
    session.last = follower.ingest.barrier().await.unwrap();
    session.resume(BLOCKS).await.unwrap();
    source.pool.withdraws(settled + 2);
    assert_eq!(session.withdrawn_from(BLOCKS), None);
}

#[tokio::test]
async fn withdrawals_between_two_sessions_all_count() {
    let (follower, _dir) = follower();
    let source = source(&follower, 1);
    let (mut earlier, settled) = filled(&follower, &source, 0).await;
    [settled + 2, settled + 4].iter().for_each(|from| source.pool.withdraws(*from));
    let mut session = session(&follower, &source, earlier.take_givers());
    let left = async {
        while head(&follower).await > settled + 1 {
            sleep(Duration::from_millis(10)).await;
        }
    };
    let limit = Duration::from_mins(1);
    tokio::select! {
        end = session.run() => panic!("{end}"),
        left = timeout(limit, left) => assert!(left.is_ok(), "they are served"),
    }
    assert_eq!(head(&follower).await, settled + 1);
}
