//! Opens the store, imports, says how far, and ends.

use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use arc_swap::ArcSwap;
use neve_store::{Identity, Opened, Writer};
use tokio::signal::unix::{Signal, SignalKind, signal};
use tracing::{error, info, warn};

use super::importer::{Counts, ImportBegin, ImportError, Importer};
use super::input::{self, ReadLines};
use crate::commands::start::{Parts, StartError, StoreDir, Upstreams, finish, open_and_log};
use crate::config::settings::{AllSettings, Config, LiveRates, Rates};
use crate::config::{self, ImportArgs, Network};
use crate::ingest::rules_of_stamp;
use crate::observe::process;
use crate::shared::Serving;

/// Exit code if the store or the input cannot be opened.
const COULD_NOT_OPEN: u8 = 2;
/// Next step after an end that is no fault of the input.
const AGAIN: &str = "run the import again to continue";
/// Time for the last writes and syncs.
const FINISH_TIME_MAX: Duration = Duration::from_mins(5);

/// Imports and says so. Progress and errors are lines of the log.
pub fn run(config: &Config, args: &ImportArgs) -> ExitCode {
    crate::observe::log::start(&config.log);
    config::warn_of_unknown::<AllSettings>();
    process::raise_descriptors();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let imported = runtime
        .map_err(StartError::from)
        .and_then(|runtime| runtime.block_on(import(config, args)));
    match imported {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            error!(%error, "cannot import");
            ExitCode::from(COULD_NOT_OPEN)
        }
    }
}

/// True if the whole input is stored.
async fn import(config: &Config, args: &ImportArgs) -> Result<bool, StartError> {
    // Before the store is open: it must be closed in order.
    let signals = [signal(SignalKind::interrupt())?, signal(SignalKind::terminate())?];
    let place = StoreDir::of(config)?;
    let chain = Upstreams::of(&config.source, &[]).await?;
    let Opened { writer, reader, .. } = open_and_log(config, place.path())?;
    let lines = input::start(args.file.as_deref());
    let mut lines = lines.map_err(|error| StartError::Input(error.to_string()))?;
    let begin = begin(&writer, chain.network, args)?;
    let head = begin.last.map(|(head, _)| head);
    let serving = Arc::new(Serving::new(reader));
    serving.set_rules(writer.stamp().map_or(serving.rules(), |stamp| rules_of_stamp(stamp.rules)));
    let rates = LiveRates::new(ArcSwap::from_pointee(Rates::of(config)));
    let parts = Parts::of(config, &place, chain, &serving, &rates)?;
    let (ingest, writer) =
        parts.writing(writer, config.retention, config.fsync_interval, config.unpacked_bytes)?;
    let mut importer = Importer::new(config, (&serving, &parts.status), ingest, begin)?;
    info!(head, "import begins");
    let ended = run_importer(&mut importer, &mut lines, signals).await;
    let counts = importer.counts();
    let finished = finish(importer.end(), writer, FINISH_TIME_MAX).await;
    Ok(conclude(ended, counts, &serving) && finished)
}

/// Runs an import; `None` if a signal ends it.
async fn run_importer(
    importer: &mut Importer,
    lines: &mut ReadLines,
    [mut interrupt, mut terminate]: [Signal; 2],
) -> Option<Result<(), ImportError>> {
    // A signal ends the import at any point. Heights that the writer has by then are stored all the
    // same.
    tokio::select! {
        ended = importer.run(lines) => Some(ended),
        _ = interrupt.recv() => None,
        _ = terminate.recv() => None,
    }
}

/// Returns the newest block of the store, and the chain if it is known.
fn begin(
    writer: &Writer,
    network: Option<Network>,
    args: &ImportArgs,
) -> Result<ImportBegin, StartError> {
    let stored = writer.stamp().map(|stamp| stamp.identity);
    let identity = agreed(stored, network, args)?;
    Ok(ImportBegin { last: writer.head(), identity, chain_id: args.chain_id })
}

/// Returns the chain, if it is known. The arguments may not contradict the store, `--network` or each other.
fn agreed(
    stored: Option<Identity>,
    network: Option<Network>,
    args: &ImportArgs,
) -> Result<Option<Identity>, StartError> {
    // An id that block 0 does not have would bind the store for good.
    let network = network.or_else(|| args.chain_id.and_then(Network::of_chain));
    let (identity, why) = match (stored, network.map(Network::identity)) {
        (Some(stored), _) => {
            (stored, format!("the store is for {stored}; use another data directory"))
        }
        (None, Some(public)) => {
            (public, format!("the network is {public}; correct the flag, or --network"))
        }
        (None, None) => return Ok(named(args)),
    };
    let wrong = |named| Err(StartError::Setting(named, why));
    match (args.chain_id, args.genesis) {
        (Some(id), _) if id != identity.chain_id => wrong(format!("--chain-id {id} (flag)")),
        (_, Some(hash)) if hash != identity.genesis => wrong(format!("--genesis {hash} (flag)")),
        _ => Ok(Some(identity)),
    }
}

/// Returns the chain that `--chain-id` and `--genesis` name together.
fn named(args: &ImportArgs) -> Option<Identity> {
    let (chain_id, genesis) = args.chain_id.zip(args.genesis)?;
    Some(Identity { chain_id, genesis })
}

/// Says how the import ended. True if the whole input is stored.
fn conclude(ended: Option<Result<(), ImportError>>, counts: Counts, serving: &Serving) -> bool {
    let Counts { stored, held, unsettled, .. } = counts;
    let range = serving.reader.range();
    let (first, head) =
        (range.as_ref().map(|range| *range.start()), range.map(|range| *range.end()));
    let has_all = warn_of_missing(counts, first);
    let next = match ended {
        Some(Ok(())) => {
            info!(stored, held, unsettled, first, head, "import finished");
            return has_all;
        }
        Some(Err(error)) => failed(error),
        None => {
            warn!("import interrupted");
            AGAIN
        }
    };
    info!(stored, held, head, next, "import incomplete");
    false
}

/// Warns of heights that the store does not have, of which `first` is its lowest. True if there are none.
fn warn_of_missing(counts: Counts, first: Option<u64>) -> bool {
    let Counts { below, lowest, .. } = counts;
    if below > 0 {
        warn!(below, first, "lines below the store left out");
    }
    // Lines follow each other, so all heights from the lowest one on were stored.
    let evicted = first.zip(lowest).map_or(0, |(first, lowest)| first.saturating_sub(lowest));
    if evicted > 0 {
        warn!(evicted, first, "imported heights evicted");
    }
    below == 0 && evicted == 0
}

/// Says why an import failed. Returns the next step.
fn failed(error: ImportError) -> &'static str {
    match error {
        ImportError::Line { number, height, why } => {
            error!(line = number, height, reason = why, "line refused");
            "correct the input, then run the import again"
        }
        ImportError::Store(why) => {
            error!(why, "import failed");
            AGAIN
        }
    }
}
