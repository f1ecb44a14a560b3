//! Arguments of `neve archive`.

use std::path::PathBuf;
use std::str::FromStr;
use std::time::Duration;

use alloy_primitives::B256;
use clap::builder::RangedU64ValueParser;
use clap::{ArgMatches, Args, FromArgMatches, Subcommand};
use humantime::parse_duration;

use super::network::Network;
use super::units::{Anchor, ArchiveEndpoint, ArchiveTrust, ArchiveUrl};

/// Age of the oldest objects that gc may be told to keep.
const AGE_MAX: Duration = Duration::from_hours(24 * 36_500);

/// Arguments of `neve archive`.
#[derive(Debug, Args)]
#[command(
    about = "Push packed files to an object store, and show, check and tidy an archive.",
    subcommand_required = true,
    arg_required_else_help = true
)]
pub struct ArchiveArgs {
    /// Command that is run on the archive.
    #[command(subcommand)]
    pub command: ArchiveCommand,
}

/// Commands of `neve archive`.
#[derive(Debug, Subcommand)]
pub enum ArchiveCommand {
    /// Push the packed files of a store. A server may be running on it.
    Push {
        /// Directory of the store.
        #[arg(long, env = "NEVE_DATA_DIR", hide_env = true, value_name = "DIR")]
        data_dir: PathBuf,
        /// Key and promise with which it writes.
        #[command(flatten)]
        writer: ArchiveWriter,
        /// Place of the archive, and the form of the output.
        #[command(flatten)]
        place: ArchivePlace,
    },
    /// Test whether an object store obeys the conditions of a PUT, and make the manifest of an archive.
    Init {
        /// Network of a new archive.
        #[arg(long, value_name = "NETWORK", conflicts_with_all = ["chain_id", "genesis"])]
        network: Option<Network>,
        /// Chain id of a new archive.
        #[arg(long, value_name = "COUNT", requires = "genesis")]
        chain_id: Option<u64>,
        /// Hash of block 0 of a new archive.
        #[arg(long, value_name = "HASH", requires = "chain_id")]
        genesis: Option<B256>,
        /// Heights of a segment of a new archive: a power of two, 1024 by default. An archive that is there must have it.
        #[arg(long, value_name = "COUNT", value_parser = range)]
        range: Option<u32>,
        /// Sign the manifest with this digest, also one of another signer: `neve archive verify` checks it and
        /// shows its digest, sha256: and 64 hexadecimal digits.
        #[arg(long, value_name = "DIGEST", requires = "archive_sign_key", value_parser = manifest_digest)]
        sign_existing: Option<[u8; 32]>,
        /// Directory that remembers the newest manifest: that of a store, or any other one.
        #[arg(long, env = "NEVE_DATA_DIR", hide_env = true, value_name = "DIR")]
        data_dir: Option<PathBuf>,
        /// Key and promise with which it writes.
        #[command(flatten)]
        writer: ArchiveWriter,
        /// Place of the archive, and the form of the output.
        #[command(flatten)]
        place: ArchivePlace,
    },
    /// Take the packed files of an archive into a store that no neve runs on. Each block is proven.
    Pull {
        /// Directory of the store.
        #[arg(long, env = "NEVE_DATA_DIR", hide_env = true, value_name = "DIR")]
        data_dir: PathBuf,
        /// A block that is known to be in the chain, for a store without blocks.
        #[arg(long, value_name = "HEIGHT:HASH")]
        archive_anchor: Option<Anchor>,
        /// Lowest height to take.
        #[arg(long, value_name = "HEIGHT", default_value_t = 0, value_parser = height())]
        from: u64,
        /// Place of the archive, and the form of the output.
        #[command(flatten)]
        place: ArchivePlace,
    },
    /// List the objects of an archive, as its manifest names them.
    Ls {
        /// Place of the archive, and the form of the output.
        #[command(flatten)]
        place: ArchivePlace,
    },
    /// Read a whole archive and compare all digests and checksums.
    Verify {
        /// Data directory whose packed files replace absent or changed objects.
        #[arg(long, value_name = "DIR")]
        repair_from: Option<PathBuf>,
        /// Prove all blocks, receipts and indexes too, and that each block is the parent of the next one.
        #[arg(long)]
        prove: bool,
        /// A block that is known to be in the chain: the archive must have it.
        #[arg(long, value_name = "HEIGHT:HASH", requires = "prove")]
        archive_anchor: Option<Anchor>,
        /// Begin at the span with this height, as progress says after each span. `--prove` proves the heights from there on.
        #[arg(long, value_name = "HEIGHT", default_value_t = 0, value_parser = height())]
        from: u64,
        /// Place of the archive, and the form of the output.
        #[command(flatten)]
        place: ArchivePlace,
    },
    /// Delete objects that no manifest names. No other command lists the store.
    Gc {
        /// Least age of the objects to delete: a number and a unit.
        #[arg(long, value_name = "DURATION", default_value = "24h", value_parser = age)]
        older_than: Duration,
        /// Count them, and delete none.
        #[arg(long)]
        dry_run: bool,
        /// Directory that remembers the newest manifest: that of a store, or any other one.
        #[arg(long, env = "NEVE_DATA_DIR", hide_env = true, value_name = "DIR")]
        data_dir: Option<PathBuf>,
        /// Key and promise with which it writes.
        #[command(flatten)]
        writer: ArchiveWriter,
        /// Place of the archive, and the form of the output.
        #[command(flatten)]
        place: ArchivePlace,
    },
    /// Drop the segments below a height from the manifest. `gc` deletes their objects.
    Retain {
        /// Lowest height that stays. Its segment stays whole.
        #[arg(long, value_name = "HEIGHT", value_parser = height())]
        from: u64,
        /// Directory that remembers the newest manifest: that of a store, or any other one.
        #[arg(long, env = "NEVE_DATA_DIR", hide_env = true, value_name = "DIR")]
        data_dir: Option<PathBuf>,
        /// Key and promise with which it writes.
        #[command(flatten)]
        writer: ArchiveWriter,
        /// Place of the archive, and the form of the output.
        #[command(flatten)]
        place: ArchivePlace,
    },
    /// Show the objects and bytes of an archive by kind, and their cost in dollars.
    Cost {
        /// Price of a GB for a month.
        #[arg(long, value_name = "DOLLARS", default_value_t = 0.023, value_parser = price)]
        price_gb_month: f64,
        /// Price of a million GET requests.
        #[arg(long, value_name = "DOLLARS", default_value_t = 0.4, value_parser = price)]
        price_million_gets: f64,
        /// Price of a million PUT requests.
        #[arg(long, value_name = "DOLLARS", default_value_t = 5.0, value_parser = price)]
        price_million_puts: f64,
        /// Price of a GB that leaves the store.
        #[arg(long, value_name = "DOLLARS", default_value_t = 0.0, value_parser = price)]
        price_gb_egress: f64,
        /// Place of the archive, and the form of the output.
        #[command(flatten)]
        place: ArchivePlace,
    },
}

/// Options of a writer.
#[derive(Debug, Clone, Args)]
pub struct ArchiveWriter {
    /// Key that signs the manifest: an Ed25519 key in PKCS#8, PEM.
    #[arg(long, env = "NEVE_ARCHIVE_SIGN_KEY", hide_env = true, value_name = "FILE")]
    pub archive_sign_key: Option<PathBuf>,

    /// Write to a store that ignores the conditions of a PUT. You promise that there is no other writer.
    #[arg(long, env = "NEVE_ARCHIVE_SINGLE_WRITER", hide_env = true)]
    pub archive_single_writer: bool,

    /// Lowest sequence that the manifest may have: an attacker can put an earlier one back.
    #[arg(long, value_name = "SEQUENCE", default_value_t = 0, hide_default_value = true)]
    pub archive_at_least: u64,
}

/// Place of an archive, and the form of the output.
#[derive(Debug, Clone, Args)]
pub struct ArchivePlace {
    /// Archive: `s3://BUCKET/PREFIX`, or `file:///DIR` for writers on one machine.
    #[arg(value_name = "URL", value_parser = allowed::<ArchiveUrl>)]
    pub url: String,

    /// Address of the S3 API, if it is not the one of AWS.
    #[arg(
        long,
        env = "NEVE_ARCHIVE_ENDPOINT",
        hide_env = true,
        value_name = "URL",
        value_parser = allowed::<ArchiveEndpoint>
    )]
    pub archive_endpoint: Option<String>,

    /// Print JSON lines.
    #[arg(long)]
    pub json: bool,
}

/// Text of a value.
fn allowed<T: FromStr>(text: &str) -> Result<String, T::Err> {
    text.parse::<T>().map(|_| text.to_owned())
}

/// Heights of a segment.
fn range(text: &str) -> Result<u32, String> {
    let range = text.parse().ok().filter(|range: &u32| range.is_power_of_two() && *range <= 1024);
    range.ok_or_else(|| "no length of ranges; write a power of two from 1 to 1024".to_owned())
}

/// Digest of a manifest.
fn manifest_digest(text: &str) -> Result<[u8; 32], String> {
    match text.parse() {
        Ok(ArchiveTrust::Manifest(digest)) => Ok(digest),
        _ => Err("no digest of a manifest; write sha256: and 64 hexadecimal digits".to_owned()),
    }
}

/// Age of an object.
fn age(text: &str) -> Result<Duration, String> {
    let age = parse_duration(text).map_err(|error| format!("{error}; write for example 24h"))?;
    if age > AGE_MAX { Err("too long; allowed: 0s to 36500d".to_owned()) } else { Ok(age) }
}

/// Height that no chain reaches is a slip of the hand.
fn height() -> RangedU64ValueParser {
    RangedU64ValueParser::new().range(0..=1_000_000_000_000_000)
}

/// Price in dollars.
fn price(text: &str) -> Result<f64, String> {
    let price = text.parse().ok().filter(|price| (0.0..=1e9).contains(price));
    price
        .ok_or_else(|| "no price; write dollars from 0 to 1000000000, for example 0.023".to_owned())
}

impl ArchiveArgs {
    /// Reads the arguments.
    ///
    /// # Errors
    /// A mistake in the usage.
    pub fn of(matches: &ArgMatches) -> Result<Self, clap::Error> {
        Self::from_arg_matches(matches)
    }
}
