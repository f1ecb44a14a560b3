//! `neve repair`: reads the whole store, fetches damaged records again, and verifies what it leaves.

use std::io;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use arc_swap::ArcSwap;
use neve_chain::AdmittedKeys;
use neve_store::{Opened, Reader, Retention, Writer};
use tracing::{error, info, warn};

use super::start::{Parts, StartError, StoreDir, Upstreams, finish, open_and_log, serving_of};
use super::verify;
use crate::config;
use crate::config::settings::{AllSettings, Config, LiveRates, Rates};
use crate::observe::process;

/// Exit code of `neve verify` for a store that cannot be read.
const COULD_NOT_LOOK: u8 = 2;

/// Reads the whole store, fetches damaged records again, verifies it, and ends.
pub fn run(config: Config) -> ExitCode {
    crate::observe::log::start(&config.log);
    config::warn_of_unknown::<AllSettings>();
    process::raise_descriptors();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let repaired =
        runtime.map_err(StartError::from).and_then(|runtime| runtime.block_on(repair_all(config)));
    match repaired {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            error!(%error, "cannot repair");
            ExitCode::from(COULD_NOT_LOOK)
        }
    }
}

/// Gaps and damage of a store before its repair.
struct FoundStore {
    is_damaged: bool,
    /// True if no segment can be served.
    is_lost: bool,
    /// True if recovery dropped heights above the served range.
    has_dropped: bool,
}

impl FoundStore {
    /// Reads the whole store.
    async fn read(opened: &Opened, dir: &Path) -> Result<Self, StartError> {
        let reader = &opened.reader;
        scrub(reader.clone(), dir.to_owned()).await?;
        let damaged = reader.damaged();
        let records: usize = damaged.iter().map(|one| one.heights.len()).sum();
        info!(segments = damaged.len(), records, tables = reader.damaged_tables(), "store read");
        let (is_damaged, is_lost) = (!damaged.is_empty(), reader.range().is_none());
        Ok(Self { is_damaged, is_lost, has_dropped: opened.has_dropped })
    }

    /// Names heights that a repair does not bring back, because no upstream is asked for them here.
    fn tell_missing(&self) {
        if self.is_lost {
            error!(next = "neve serve fetches the heights again", "no segment can be served");
        } else if self.has_dropped {
            error!(next = "neve serve fetches them again", "heights above served range dropped");
        }
    }
}

/// True if nothing is damaged any more, and `neve verify` has no findings.
async fn repair_all(config: Config) -> Result<bool, StartError> {
    let place = StoreDir::of(&config)?;
    if !neve_store::verify::is_store(place.path())? {
        return Err(StartError::NoStore(place.path().to_owned()));
    }
    let chain = Upstreams::of(&config.source, &[]).await?;
    let opened = open_and_log(&config, place.path())?;
    let found = FoundStore::read(&opened, place.path()).await?;
    let Opened { writer, reader, .. } = opened;
    let serving = serving_of(reader, &writer);
    let rates = LiveRates::new(ArcSwap::from_pointee(Rates::of(&config)));
    let parts = Parts::of(&config, &place, chain, &serving, &rates)?;
    let is_repaired = Box::pin(repaired(&config, &parts, writer, &found)).await?;
    // The end of the writer may serve segments again.
    let gap = serving.reader.gap();
    if let Some(gap) = &gap {
        warn!(from = gap.start, to = gap.end - 1, "neve serve fills the gap");
    }
    let is_mended = is_repaired && !found.is_lost && !found.has_dropped && gap.is_none();
    Ok(is_mended && is_proven(place.path(), config.fetch.admitted).await?)
}

/// Reads all sealed segments and merged tables. The reader notes their damage.
async fn scrub(reader: Reader, dir: PathBuf) -> Result<(), StartError> {
    let scrubbing = tokio::task::spawn_blocking(move || {
        // A scrub notes damage in the reader, and `damaged` tells of it.
        let mut bases = reader.sealed().into_iter();
        bases.try_for_each(|(base, _)| reader.scrub(&dir, base, &mut |_| {}).map(drop))?;
        reader.scrub_tables(&dir, &mut |_| {}) // the writer removes damaged ones
    });
    scrubbing.await.map_err(io::Error::other)??;
    Ok(())
}

/// Fetches damaged records again, and ends the writer. True if all of them are stored.
async fn repaired(
    config: &Config,
    parts: &Parts,
    writer: Writer,
    found: &FoundStore,
) -> Result<bool, StartError> {
    // Nothing is evicted: the store is as it was, but for the damage.
    let (ingest, writer) =
        parts.writing(writer, Retention::default(), config.fsync_interval, None)?;
    // For an intact store no upstream is asked.
    let failed = if found.is_damaged {
        parts.follower(config, ingest.clone()).repair().await
    } else {
        Vec::new()
    };
    failed.iter().for_each(|(segment, why)| error!(segment, why, "segment not repaired"));
    found.tell_missing();
    let is_finished = finish(ingest, writer, config.http.drain_timeout).await;
    Ok(failed.is_empty() && is_finished)
}

/// Verifies the store: intact checksums prove no content. True without findings.
async fn is_proven(dir: &Path, admitted: AdmittedKeys) -> Result<bool, StartError> {
    let dir = dir.to_owned();
    let verifying = tokio::task::spawn_blocking(move || verify::findings(&dir, admitted));
    let findings = verifying.await.map_err(io::Error::other)?;
    let findings = findings.map_err(|error| StartError::Unverified(error.to_string()))?;
    if findings > 0 {
        error!(findings, "findings left after repair");
    }
    Ok(findings == 0)
}
