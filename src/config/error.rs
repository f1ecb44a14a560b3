//! Errors of settings.

/// A wrong setting: its name, value and origin, the allowed values, the next step.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ConfigError {
    /// A value is wrong.
    #[error("{named}: {why}")]
    Value {
        /// Setting, value and origin.
        named: String,
        /// Reason, and what is allowed.
        why: String,
    },
    /// No setting says where blocks come from.
    #[error(
        "no source of blocks; use --dev, or --data-dir DIR with --upstream, --network or --archive"
    )]
    NoSource,
    /// No setting says where `neve repair` fetches from.
    #[error(
        "no upstream to fetch damaged records from; use --upstream URL, --network or --archive"
    )]
    NoRepairSource,
    /// No setting says where the store is.
    #[error("no directory for the store; use --data-dir DIR")]
    NoDataDir,
    /// The file cannot be read, or has mistakes: one a line.
    #[error("{0}")]
    File(String),
}
