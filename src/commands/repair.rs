//! `neve repair`: reads the whole store, fetches damaged records again, and verifies what it leaves.

use std::io;
use std::path::Path;
use std::process::ExitCode;
use std::sync::Arc;

use arc_swap::ArcSwap;
use neve_chain::AdmittedKeys;
use neve_store::{Opened, Retention};
use tracing::{error, info, warn};

use super::start::{Parts, StartError, StoreDir, Upstreams, finish, open};
use super::verify;
use crate::config;
use crate::config::settings::{AllSettings, Config, LiveRates, Rates};
use crate::ingest::rules_of_stamp;
use crate::observe::process;
use crate::shared::Serving;

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

/// True if nothing is damaged any more, and `neve verify` has no findings.
async fn repair_all(config: Config) -> Result<bool, StartError> {
    let place = StoreDir::of(&config)?;
    if !neve_store::verify::is_store(place.path())? {
        return Err(StartError::NoStore(place.path().to_owned()));
    }
    let chain = Upstreams::of(&config.source, &[]).await?;
    let Opened { writer, reader, notes, has_dropped } = open(&config, place.path())?;
    notes
        .iter()
        .for_each(|note| warn!(target: crate::observe::log::NOTES, note, "store recovered"));
    let (scrubbed, dir) = (reader.clone(), place.path().to_owned());
    let scrubbing = tokio::task::spawn_blocking(move || {
        // A scrub notes damage in the reader, and `damaged` tells of it.
        let mut bases = scrubbed.sealed().into_iter();
        bases.try_for_each(|(base, _)| scrubbed.scrub(&dir, base, &mut |_| {}).map(drop))?;
        scrubbed.scrub_tables(&dir, &mut |_| {}) // the writer removes damaged ones
    });
    scrubbing.await.map_err(io::Error::other)??;
    let damaged = reader.damaged();
    let lost = reader.range().is_none();
    let records: usize = damaged.iter().map(|one| one.heights.len()).sum();
    info!(segments = damaged.len(), records, tables = reader.damaged_tables(), "store read");
    let serving = Arc::new(Serving::new(reader));
    if let Some(stamp) = writer.stamp() {
        serving.identify(stamp.identity);
        serving.set_rules(rules_of_stamp(stamp.rules));
    }
    let parts = Parts::of(
        &config,
        &place,
        chain,
        &serving,
        &LiveRates::new(ArcSwap::from_pointee(Rates::of(&config))),
    )?;
    // Nothing is evicted: the store is as it was, but for the damage.
    let (ingest, writer) =
        parts.writing(writer, Retention::default(), config.fsync_interval, None)?;
    // For an intact store no upstream is asked.
    let failed = if damaged.is_empty() {
        Vec::new()
    } else {
        parts.follower(&config, ingest.clone()).repair().await
    };
    failed.iter().for_each(|(segment, why)| error!(segment, why, "segment not repaired"));
    if lost {
        error!(next = "neve serve fetches the heights again", "no segment can be served");
    }
    if has_dropped && !lost {
        // No upstream is asked for them here.
        error!(next = "neve serve fetches them again", "heights above served range dropped");
    }
    let finished = finish(ingest, writer, config.http.drain_timeout).await;
    // The end of the writer may serve segments again.
    let gap = serving.reader.gap();
    if let Some(gap) = &gap {
        warn!(from = gap.start, to = gap.end - 1, "neve serve fills the gap");
    }
    let is_mended = failed.is_empty() && !lost && !has_dropped && gap.is_none() && finished;
    Ok(is_mended && is_proven(place.path(), config.fetch.admitted).await?)
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
