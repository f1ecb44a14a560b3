//! Arguments of `neve archive`.

use std::path::PathBuf;

use clap::{ArgMatches, Args, FromArgMatches, Subcommand};

/// Arguments of `neve archive`.
#[derive(Debug, Args)]
#[command(
    about = "Push packed files to an object store, and show and check what is there.",
    subcommand_required = true,
    arg_required_else_help = true
)]
pub struct ArchiveArgs {
    /// The command.
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
        /// Key that signs the manifest: an Ed25519 key in PKCS#8, PEM.
        #[arg(long, env = "NEVE_ARCHIVE_SIGN_KEY", hide_env = true, value_name = "FILE")]
        archive_sign_key: Option<PathBuf>,
        /// The archive.
        #[command(flatten)]
        place: ArchivePlace,
    },
    /// List the objects of an archive, as its manifest names them.
    Ls {
        /// The archive.
        #[command(flatten)]
        place: ArchivePlace,
    },
    /// Read a whole archive and compare all digests and checksums.
    Verify {
        /// Data directory whose packed files take the place of absent or changed objects.
        #[arg(long, value_name = "DIR")]
        repair_from: Option<PathBuf>,
        /// The archive.
        #[command(flatten)]
        place: ArchivePlace,
    },
}

/// Place of an archive, and the form of the output.
#[derive(Debug, Clone, Args)]
pub struct ArchivePlace {
    /// Archive: `s3://BUCKET/PREFIX`, or `file:///DIR` for writers on one machine.
    #[arg(value_name = "URL")]
    pub url: String,

    /// Address of the S3 API, if it is not the one of AWS.
    #[arg(long, env = "NEVE_ARCHIVE_ENDPOINT", hide_env = true, value_name = "URL")]
    pub archive_endpoint: Option<String>,

    /// Print JSON lines.
    #[arg(long)]
    pub json: bool,
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
