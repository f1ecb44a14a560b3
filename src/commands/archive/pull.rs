//! `neve archive pull`: the archive's packed files become those of a store that no neve runs on.
//!
//! The follower and the writer of `neve serve` do it, without upstreams and listeners. So each block is proven
//! as a replica proves it, and a pull that was cut off goes on where it was.

use std::path::Path;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use arc_swap::ArcSwap;
use neve_archive::Manifest;
use neve_store::residency::loaded;
use neve_store::{Opened, Retention, Writer};
use serde_json::json;
use tokio::task::JoinHandle;
use tokio::time::sleep;

use super::output::{complain, heights_text, opened, say};
use crate::archive::{Failed, identity_of};
use crate::commands::start::{Parts, StartError, StoreDir, Upstreams, finish, open, serving_of};
use crate::config::settings::{Config, LiveRates, Rates, UpstreamConfig};
use crate::config::{Anchor, ArchivePlace};
use crate::ingest::Ingest;
use crate::shared::{Phase, Serving, Status};

/// Time between two looks at the store, and two lines about progress.
const LOOK_EVERY: Duration = Duration::from_millis(50);
const PROGRESS_EVERY: Duration = Duration::from_secs(5);
/// Time without a segment after which nothing more is expected.
const STALLED: Duration = Duration::from_mins(5);
/// Time for the last writes and syncs.
const FINISH_TIME_MAX: Duration = Duration::from_mins(5);

/// A running pull.
struct Pull {
    serving: Arc<Serving>,
    status: Arc<Status>,
    /// First height of the last segment to come, as the archive was at the beginning.
    goal: u64,
    /// Block that the store has in the end.
    anchor: Option<Anchor>,
}

/// Pulls. Returns the number of segments that fail a proof.
pub(super) async fn pulled(
    dir: &Path,
    anchor: Option<Anchor>,
    from: u64,
    place: &ArchivePlace,
) -> Result<u64, String> {
    let held = opened(place)?.manifest().await.map_err(|failed| failed.to_string())?;
    let manifest = held.ok_or_else(|| Failed::NoManifest.to_string())?.manifest;
    let config = settings(&flags(dir, from, (place, manifest.range)), anchor)?;
    has_network(&config, &manifest)?;
    crate::observe::log::start(&config.log);
    let text = |error: StartError| error.to_string();
    let store = StoreDir::of(&config).map_err(text)?;
    let chain = Upstreams::of(&config.source, &[]).await.map_err(text)?;
    let Opened { writer, reader, notes, .. } = open(&config, store.path()).map_err(text)?;
    notes.iter().for_each(|note| complain(note));
    let serving = serving_of(reader, &writer);
    let goal = goal(&manifest, &serving, anchor, from)?;
    let rates = LiveRates::new(ArcSwap::from_pointee(Rates::of(&config)));
    let parts = Parts::of(&config, &store, chain, &serving, &rates).map_err(text)?;
    let pull = Pull { serving, status: Arc::clone(&parts.status), goal, anchor };
    pull.say(pull.follow(&config, &parts, writer).await?, place.json)
}

/// Settings of a pull: those of this machine's server, but for the flags.
fn settings(flags: &[String], anchor: Option<Anchor>) -> Result<Config, String> {
    let flags: Vec<&str> = flags.iter().map(String::as_str).collect();
    // The settings of this machine's server may have a rule that evicts what a pull brings.
    let mut config =
        Config { retention: Retention::default(), ..Config::without_upstream(&flags)? };
    if let Some(archive) = &mut config.archive {
        // Settings of this machine's server may push, and begin at a block of their own.
        (archive.push, archive.anchor) = (None, anchor);
    }
    Ok(config)
}

/// Ends following, and closes the store.
async fn close(
    following: JoinHandle<()>,
    ingest: Ingest,
    writer: thread::JoinHandle<()>,
) -> Result<(), String> {
    // Following has no end of its own. It is awaited, because the writer ends when the last handle
    // is gone.
    following.abort();
    let _ = following.await; // it was aborted
    if finish(ingest, writer, FINISH_TIME_MAX).await {
        Ok(())
    } else {
        Err("the store could not be closed as it should".to_owned())
    }
}

/// Compares the chain of an archive with the network of the settings: an empty store has none that it could contradict.
fn has_network(config: &Config, manifest: &Manifest) -> Result<(), String> {
    let UpstreamConfig::Upstream { network: Some(network), .. } = &config.source else {
        return Ok(());
    };
    let (found, expected) = (identity_of(manifest), network.identity());
    if found == expected {
        return Ok(());
    }
    let why = format!("the archive has {found}, and the network {expected}");
    Err(StartError::Setting(config.values.named("network"), why).to_string())
}

/// Flags of `neve serve` that a pull stands for. The store has the ranges of the archive.
fn flags(dir: &Path, from: u64, (place, range): (&ArchivePlace, u32)) -> Vec<String> {
    let mut flags = vec![
        format!("--data-dir={}", dir.display()),
        format!("--archive={}", place.url),
        format!("--backfill-to={from}"),
        format!("--segment-blocks={range}"),
    ];
    let endpoint = place.archive_endpoint.iter();
    flags.extend(endpoint.map(|endpoint| format!("--archive-endpoint={endpoint}")));
    flags
}

/// First height of the last segment to come.
fn goal(
    manifest: &Manifest,
    serving: &Serving,
    anchor: Option<Anchor>,
    from: u64,
) -> Result<u64, String> {
    let heights = manifest.heights();
    let (first, _) = heights.ok_or("the archive has no heights")?;
    let goal = manifest.segment_of(from.max(first)).map(|segment| segment.first);
    let goal = goal.ok_or_else(|| Failed::AboveAll { height: from, heights }.to_string())?;
    let Some(range) = serving.reader.range() else {
        let why = "the store has no blocks: name one to begin at by --archive-anchor HEIGHT:HASH";
        return anchor.map(|_| goal).ok_or_else(|| why.to_owned());
    };
    check_begin(manifest, *range.start(), goal).map(|()| goal)
}

/// Refuses a store that begins above the goal, and to which no segment of the archive can be added.
fn check_begin(manifest: &Manifest, begin: u64, goal: u64) -> Result<(), String> {
    let below = begin.checked_sub(1).filter(|_| begin > goal);
    let joins = |below: u64| {
        let segment = manifest.segment_of(below);
        segment.is_some_and(|segment| segment.first + u64::from(manifest.range) == begin)
    };
    // Segments come whole and join at their end: between two of them nothing can be added.
    if below.is_some_and(|below| !joins(below)) {
        let range = manifest.range;
        return Err(format!(
            "the store begins at {begin}, where no segment of the archive ends; let neve serve with an \
             upstream fill it down to a multiple of {range}"
        ));
    }
    Ok(())
}

impl Pull {
    /// Follows the archive until all is here, or nothing comes any more, and closes the store. Returns the number of
    /// rejected segments.
    async fn follow(&self, config: &Config, parts: &Parts, writer: Writer) -> Result<u64, String> {
        // Nothing is packed: what comes is.
        let started = parts.writing(writer, config.retention, config.fsync_interval, None);
        let (ingest, writer) = started.map_err(|error| error.to_string())?;
        let following = tokio::spawn(parts.follower(config, ingest.clone()).run());
        let ended = self.ended().await;
        close(following, ingest, writer).await?;
        ended
    }

    /// Waits until all is here, or nothing comes any more. Returns the number of rejected segments.
    async fn ended(&self) -> Result<u64, String> {
        let (mut moved, mut told, mut seen) = (Instant::now(), Instant::now(), None);
        loop {
            let heights = self.heights();
            if seen != Some(heights) {
                (seen, moved) = (Some(heights), Instant::now());
            }
            if told.elapsed() >= PROGRESS_EVERY {
                complain(&heights_text(heights));
                told = Instant::now();
            }
            if let Some(end) = self.end(heights) {
                return end;
            }
            // An archive that sends nothing any more would otherwise be waited for without an end.
            if moved.elapsed() > STALLED || self.status.phase() == Phase::Stopped {
                return Err(format!("no segment came within {STALLED:?}; see the log"));
            }
            sleep(LOOK_EVERY).await;
        }
    }

    /// Returns the number of rejected segments if one is rejected or all are here, or the error that ends the pull.
    fn end(&self, heights: Option<(u64, u64)>) -> Option<Result<u64, String>> {
        let archive = self.status.archive().unwrap_or_default();
        // Segments join at their end: below a rejected one no other can.
        if archive.refused > 0 {
            return Some(Ok(archive.refused));
        }
        // Before the heights: a store that contradicts the anchor may have all of them.
        if let Some(why) = archive.error.or(self.status.words().store_error) {
            return Some(Err(why));
        }
        let is_here = (self.anchor.is_none() || archive.is_begun) && self.has_goal(heights);
        is_here.then(|| self.other_block().map_or(Ok(0), Err))
    }

    fn heights(&self) -> Option<(u64, u64)> {
        let range = self.serving.reader.range()?;
        Some((*range.start(), *range.end()))
    }

    /// True if the store has all that the archive has for it. Others may drop heights meanwhile.
    fn has_goal(&self, heights: Option<(u64, u64)>) -> bool {
        let archived = self.status.archive().and_then(|archive| archive.heights);
        let goal = self.goal.max(archived.map_or(0, |(first, _)| first));
        heights.is_some_and(|(first, _)| first <= goal)
    }

    /// Says that the store has another block than the anchor. Its height may have come with the last segments.
    fn other_block(&self) -> Option<String> {
        let Anchor { height, hash } = self.anchor?;
        let stored = loaded(|| self.serving.reader.record(height).map(|record| record.hash()))?;
        let text = || {
            format!(
                "anchor at height {height}: its block is {stored}, not that of --archive-anchor"
            )
        };
        (stored.0 != hash.0).then(text)
    }

    fn say(&self, rejected: u64, as_json: bool) -> Result<u64, String> {
        let heights = self.heights();
        let accepted = self.status.archive().unwrap_or_default().accepted;
        say(&if as_json {
            let line = json!({
                "summary": true, "first": heights.map(|heights| heights.0), "last": heights.map(|heights| heights.1),
                "accepted": accepted, "rejected": rejected,
            });
            line.to_string()
        } else {
            format!("{}: {accepted} segments accepted, {rejected} rejected", heights_text(heights))
        })?;
        Ok(rejected)
    }
}
