//! A bucket with whole ranges of a chain, and replicas of which the tail is its newest range.

use std::fs;
use std::path::{Path, PathBuf};

use alloy_primitives::hex;
use neve_devnet::{Config, DevnetThread, Helicon, Profile};
use sha2::{Digest, Sha256};
use tempfile::TempDir;

use super::object_server::ObjectServer;
use crate::store::archive::{objects, packed_store, pushed};
use crate::store::packed::wait_for_packed;
use crate::support::neve::{Neve, fresh_dir};

/// Three whole ranges of 32 heights, and a part of another.
const HEAD: u64 = 110;
/// First height of the tail of a replica, and a height that it has in any case.
pub(super) const FIRST: u64 = 64;
pub(super) const LAST: u64 = 92;

/// A chain, and a bucket with its heights 0 to 95.
pub(super) struct Bucket {
    pub(super) node: DevnetThread,
    pub(super) dir: TempDir,
    /// The neve whose packed files were pushed.
    pub(super) source: Neve,
    pub(super) source_dir: TempDir,
}

impl Bucket {
    pub(super) fn new(helicon: Helicon) -> Self {
        Self::of(Config::test().with_head(HEAD).with_helicon(helicon))
    }

    /// Blocks of mainnet's size, so that segments have many pages.
    pub(super) fn large() -> Self {
        let mut config = Config::test().with_head(HEAD);
        config.chain.profile = Profile::c_chain();
        Self::of(config)
    }

    fn of(config: Config) -> Self {
        let node = DevnetThread::start(config).expect("loopback has free ports");
        let (source_dir, dir) = (fresh_dir(), fresh_dir());
        let source = packed_store(source_dir.path(), &node, HEAD);
        wait_for_packed(&source, 96);
        let place = format!("file://{}", dir.path().display());
        assert_eq!(pushed(source_dir.path(), &[&place])["last"], 95);
        Self { node, dir, source, source_dir }
    }

    pub(super) fn place(&self) -> String {
        format!("file://{}", self.dir.path().display())
    }

    /// Trust in the manifest as it is.
    pub(super) fn trust(&self) -> String {
        trust_in(&self.dir.path().join("manifest.json"))
    }

    /// A replica without a node whose tail is the newest range.
    pub(super) fn replica(&self, dir: &Path, more: &[&str]) -> Neve {
        let neve = self.start(&[], dir, &[&["--archive", &self.place()], more].concat());
        answers(&neve);
        neve
    }

    /// A replica in this way that reads from a server.
    pub(super) fn replica_of(&self, dir: &Path, server: &ObjectServer) -> Neve {
        let env = ["env", "AWS_ACCESS_KEY_ID=a", "AWS_SECRET_ACCESS_KEY=b", "AWS_REGION=c"];
        let place = ["--archive", "s3://bucket", "--archive-endpoint", &server.endpoint()];
        let neve = self.start(&env, dir, &place);
        answers(&neve);
        neve
    }

    /// A replica in this way that trusts another manifest.
    pub(super) fn trusting(&self, dir: &Path, trust: &str) -> Neve {
        let place = self.place();
        let neve = self.start(&[], dir, &["--archive", &place, "--archive-trust", trust]);
        neve.wait_for_head(LAST);
        neve
    }

    fn start(&self, starter: &[&str], dir: &Path, more: &[&str]) -> Neve {
        let anchor = format!("95:{:#x}", self.node.block(95).expect("it is there").hash());
        let first = FIRST.to_string();
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

/// Waits until the tail is here, and the archive is answered from.
fn answers(neve: &Neve) {
    neve.wait("the archive", |health| {
        let blocks = &health["blocks"];
        let is_here = blocks["min_height"] == FIRST && blocks["head"].as_u64() >= Some(LAST);
        let answers = &health["archive"]["answers"];
        let has_filters = answers["hashes_from_height"] == 0;
        (is_here && answers["max_height"] == 95 && has_filters).then_some(())
    });
}
