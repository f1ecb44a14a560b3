//! Heights to fetch, and proofs of them.

use clap::ValueEnum;
use neve_chain::AdmittedKeys;

use crate::config::error::ConfigError;
use crate::config::setting::{Group, Setting, bytes, count, height, one_of, text};
use crate::config::units::{BackfillTo, StartAt};
use crate::config::values::Values;

/// Settings of ingest.
pub(super) const INGEST: Group = Group {
    title: "Ingest",
    settings: &[
        Setting::new(
            "start",
            height::<StartAt>("HEIGHT|latest|-COUNT", HEIGHT_MAX)
                .allowing("0 to 1000000000000000, latest, or -COUNT"),
            "First height of an empty store: a number, `latest`, or -COUNT. With -COUNT neve begins \
             COUNT blocks before the latest.",
        )
        .otherwise("latest; 0 with --dev; above the newest sealed segment with --mirror-from")
        .brief(),
        Setting::new(
            "backfill-to",
            height::<BackfillTo>("HEIGHT|-COUNT|retained|none", HEIGHT_MAX)
                .allowing("0 to 1000000000000000, -COUNT, retained, or none"),
            "Lowest height to fetch below the first one, while neve follows: a height, -COUNT for \
             COUNT blocks before the latest, `retained` for as far as retention allows, or \
             `none`.",
        )
        .otherwise("none; retained with --mirror-from or --archive"),
        Setting::new(
            "ingest-bytes-max",
            bytes("1B", "4GiB"),
            "Bytes of blocks in flight from the upstreams to the disk. Beyond it: neve requests \
             no more.",
        )
        .or("32MiB"),
        Setting::new(
            "prove-threads",
            count("1", "1024"),
            "Threads that prove blocks while catching up, and the senders of a large one at the \
             head.",
        )
        .otherwise("number of CPUs"),
        Setting::new(
            "recover-senders",
            one_of::<Senders>("live|always|never"),
            "Recover senders from signatures and compare them: while following the head, always \
             or never. Recovery takes four fifths of the CPU time of catching up.",
        )
        .or("live"),
        Setting::new(
            "admit-keys",
            text::<String>("OBJECT.KEY").many(),
            "Keys of a later avalanchego that neve does not know: block.KEY, transaction.KEY, \
             receipt.KEY, log.KEY. neve rejects a block with any other unknown key, since clients \
             may take it for a known one.",
        ),
    ],
};

/// Far above any height, and far below any overflow.
const HEIGHT_MAX: &str = "1000000000000000";

/// Condition for recovering senders from signatures.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, ValueEnum)]
pub enum Senders {
    /// While following the head; not while catching up, where it would take four fifths of the time.
    #[default]
    Live,
    /// Senders of all blocks are recovered.
    Always,
    /// Senders are taken from the upstream.
    Never,
}

/// Lowest height of backfill. None unless asked for: a cache of the newest blocks is full soon
/// enough by itself.
pub type BackfillTarget = BackfillTo;

/// Returns the lowest height of backfill. A mirror has the heights of its source, and a replica those of
/// its archive.
pub(super) fn backfill(values: &Values) -> Result<BackfillTarget, ConfigError> {
    let copies = values.is_given("mirror-from") || values.is_given("archive");
    let default = if copies { BackfillTo::Retained } else { BackfillTo::None };
    Ok(values.get("backfill-to")?.unwrap_or(default))
}

/// Returns the first height of an empty store. A development chain is short: all of it is kept.
pub(super) fn start(values: &Values) -> Result<StartAt, ConfigError> {
    let dev = values.switch("dev");
    let default = if dev { StartAt::Height(0) } else { StartAt::BeforeHead(0) };
    Ok(values.get("start")?.unwrap_or(default))
}

/// Reads the names of `--admit-keys`.
///
/// # Errors
/// The first name that is none, and why.
pub fn admitted_keys(names: &[String]) -> Result<AdmittedKeys, (String, String)> {
    AdmittedKeys::parse(names)
}
