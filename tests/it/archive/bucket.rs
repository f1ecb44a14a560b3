//! A bucket with whole ranges of a chain, and replicas of which the tail is its newest range.

use std::fs;
use std::path::{Path, PathBuf};

use alloy_primitives::hex;
use neve_devnet::{Config, Curve, DevnetThread, Helicon, Profile, Shares};
use sha2::{Digest, Sha256};
use tempfile::TempDir;

use super::object_server::ObjectServer;
use crate::store::archive::{objects, packed_store, pushed};
use crate::store::packed::wait_for_packed;
use crate::support::neve::{Neve, fresh_dir};

/// Heights of a range, and ranges of a bucket. The chain has a part of another range.
const RANGE: u64 = 32;
const RANGES: u64 = 3;
const HEAD: u64 = RANGES * RANGE + 14;
/// First height of the tail of a replica, and a height that it has in any case.
pub(super) const FIRST: u64 = 64;
pub(super) const LAST: u64 = 92;

/// A chain, and a bucket with its heights 0 to 95, unless it has more ranges.
pub(crate) struct Bucket {
    ranges: u64,
    pub(super) node: DevnetThread,
    pub(super) dir: TempDir,
    /// The neve whose packed files were pushed.
    pub(super) source: Neve,
    pub(super) source_dir: TempDir,
}

impl Bucket {
    pub(crate) fn new(helicon: Helicon) -> Self {
        Self::of(Config::test().with_head(HEAD).with_helicon(helicon), RANGES)
    }

    /// A bucket of more ranges. The tail of a replica is the newest one.
    pub(super) fn of_ranges(ranges: u64) -> Self {
        let config = Config::test().with_head(ranges * RANGE + 14);
        Self::of(config.with_helicon(Helicon::Never), ranges)
    }

    /// Blocks of mainnet's size, so that segments have many pages.
    pub(super) fn large() -> Self {
        Self::large_of_ranges(RANGES)
    }

    pub(super) fn large_of_ranges(ranges: u64) -> Self {
        let mut config = Config::test().with_head(ranges * RANGE + 14);
        config.chain.profile = Profile::c_chain();
        Self::of(config, ranges)
    }

    /// Two ranges of blocks with so many logs that each block has pages of its own.
    pub(super) fn of_many_logs() -> Self {
        let mut config = Config::test().with_head(2 * RANGE + 14);
        config.chain.profile = Profile::many_logs();
        Self::of(config, 2)
    }

    /// Ranges of blocks with such long inputs that each block has several pages of its own.
    pub(super) fn of_long_inputs(ranges: u64) -> Self {
        let mut config = Config::test().with_head(ranges * RANGE + 14);
        let (transactions, input) = (Curve::constant(20), Curve::constant(40_000));
        config.chain.profile = Profile { transactions, input, ..Profile::c_chain() };
        Self::of(config, ranges)
    }

    /// Two spans of blocks, nearly all of which are empty. Each of the others has several pages of its own.
    pub(super) fn of_few_long_blocks(ranges: u64) -> Self {
        let mut config = Config::test().with_head(ranges * RANGE + 14).with_helicon(Helicon::Never);
        let profile = Profile::c_chain();
        let (transactions, input) = (Curve::constant(70), Curve::constant(40_000));
        let shares = Shares { empty: 990, ..profile.shares };
        config.chain.profile = Profile { transactions, input, shares, ..profile };
        Self::of(config, ranges)
    }

    fn of(config: Config, ranges: u64) -> Self {
        let end = ranges * RANGE;
        let node = DevnetThread::start(config).expect("loopback has free ports");
        let (source_dir, dir) = (fresh_dir(), fresh_dir());
        let source = packed_store(source_dir.path(), &node, end + 14);
        wait_for_packed(&source, end);
        let place = format!("file://{}", dir.path().display());
        assert_eq!(pushed(source_dir.path(), &[&place])["last"], end - 1);
        Self { ranges, node, dir, source, source_dir }
    }

    /// First height of the tail of a replica.
    pub(super) fn first(&self) -> u64 {
        (self.ranges - 1) * RANGE
    }

    pub(super) fn place(&self) -> String {
        format!("file://{}", self.dir.path().display())
    }

    /// Trust in the manifest as it is.
    pub(super) fn trust(&self) -> String {
        trust_in(&self.dir.path().join("manifest.json"))
    }

    /// A replica without a node whose tail is the newest range.
    pub(crate) fn replica(&self, dir: &Path, more: &[&str]) -> Neve {
        let neve = self.start(&[], dir, &[&["--archive", &self.place()], more].concat());
        self.waits_for_answers(&neve, true);
        neve
    }

    /// A replica in this way that may have no filter.
    pub(super) fn replica_without_filters(&self, dir: &Path) -> Neve {
        let neve = self.start(&[], dir, &["--archive", &self.place()]);
        self.waits_for_answers(&neve, false);
        neve
    }

    /// A replica in this way that reads from a server.
    pub(super) fn replica_of(&self, dir: &Path, server: &ObjectServer, more: &[&str]) -> Neve {
        let env = ["env", "AWS_ACCESS_KEY_ID=a", "AWS_SECRET_ACCESS_KEY=b", "AWS_REGION=c"];
        let endpoint = server.endpoint();
        let place = ["--archive", "s3://bucket", "--archive-endpoint", &endpoint];
        let neve = self.start(&env, dir, &[&place[..], more].concat());
        self.waits_for_answers(&neve, true);
        neve
    }

    /// A replica in this way, started by a command that becomes the binary, whose place and trust are given.
    pub(super) fn replica_by(&self, starter: &[&str], dir: &Path, words: &[&str]) -> Neve {
        let neve = self.start(starter, dir, words);
        self.waits_for_answers(&neve, true);
        neve
    }

    /// Waits until the tail is here, and the archive is answered from.
    fn waits_for_answers(&self, neve: &Neve, wants_filters: bool) {
        let (first, last) = (self.first(), self.first() + RANGE - 4);
        neve.wait("the archive", |health| {
            let blocks = &health["blocks"];
            let is_here = blocks["min_height"] == first && blocks["head"].as_u64() >= Some(last);
            let answers = &health["archive"]["answers"];
            let has_filters = answers["hashes_from_height"] == 0 || !wants_filters;
            let has_all = answers["max_height"].as_u64() >= Some(first + RANGE - 1);
            (is_here && has_all && has_filters).then_some(())
        });
    }

    /// A replica with this trust, whose tail is here.
    pub(super) fn trusting(&self, dir: &Path, trust: &str) -> Neve {
        let place = self.place();
        let neve = self.start(&[], dir, &["--archive", &place, "--archive-trust", trust]);
        neve.wait_for_head(LAST);
        neve
    }

    /// Starts such a replica, and waits for its address alone.
    pub(super) fn start(&self, starter: &[&str], dir: &Path, more: &[&str]) -> Neve {
        let last = self.first() + RANGE - 1;
        let hash = self.node.block(last).expect("it is there").hash();
        let (anchor, first) = (format!("{last}:{hash:#x}"), self.first().to_string());
        let tail = ["--segment-blocks", "32", "--backfill-to", &first];
        let words = [&["--archive-anchor", &anchor][..], &tail, more].concat();
        if !more.contains(&"--archive-trust") {
            let trust = self.trust();
            return Neve::start_by(
                starter,
                dir,
                &[&words[..], &["--archive-trust", &trust]].concat(),
            );
        }
        Neve::start_by(starter, dir, &words)
    }

    /// Objects of a kind, ascending by height.
    pub(super) fn objects(&self, kind: &str) -> Vec<PathBuf> {
        let first = |path: &PathBuf| {
            let name = path.file_name().expect("a file").to_string_lossy().into_owned();
            let mut parts = name.split('-');
            let kind = parts.next().map(str::to_owned);
            Some((kind?, parts.next()?.parse::<u64>().ok()?))
        };
        let mut found: Vec<_> = objects(self.dir.path())
            .into_iter()
            .filter_map(|path| Some((first(&path)?, path)))
            .filter(|((of, _), _)| of == kind)
            .collect();
        found.sort();
        found.into_iter().map(|(_, path)| path).collect()
    }
}

/// Trust in a manifest as it is.
pub(crate) fn trust_in(manifest: &Path) -> String {
    let digest = Sha256::digest(fs::read(manifest).expect("it is there"));
    format!("sha256:{}", hex::encode(digest))
}

/// Reads of a kind of object for requests.
pub(crate) fn reads(neve: &Neve, kind: &str) -> u64 {
    let series = format!("neve_archive_reads_total{{kind=\"{kind}\"}}");
    if neve.metric(&series).is_some() { neve.count(&series) } else { 0 }
}
