use std::sync::Arc;
use std::time::Duration;

use neve_jsonrpc::Rules;
use neve_store::{Identity, Options};
use tempfile::TempDir;

use super::*;
use crate::client::client_config;
use crate::config::settings::{Config, LiveRates};
use crate::fetch::Evidence;
use crate::ingest::writer;
use crate::shared::{Serving, Status};
use crate::upstream::tests::upstream;
use crate::upstream::{PoolSlot, UpstreamPool};

const IDENTITY: Identity = Identity { chain_id: 43_112, genesis: Hash([9; 32]) };

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

#[tokio::test]
async fn phase_follows_the_proven_head() {
    let (follower, _dir) = follower();
    let source = source(&follower, 2);
    let mut session = Session::new(&follower, source, None);
    session.last = Some((300, Hash::default()));
    for (proven, phase) in [(301, Phase::Following), (400, Phase::CatchingUp)] {
        session.note_phase(&PoolState { admitted: 2, head: 1 << 40, proven, ..Default::default() });
        assert_eq!(follower.status.phase(), phase, "{proven}");
    }
}
