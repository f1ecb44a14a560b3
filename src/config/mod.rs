//! Arguments as typed, settings as meant, units, endpoints, networks.

mod archive_args;
mod args;
mod endpoint;
mod error;
mod file;
mod network;
mod reference;
mod relay_rule;
mod setting;
pub mod settings;
mod source;
mod units;
mod values;

pub use archive_args::{ArchiveArgs, ArchiveCommand, ArchivePlace, ArchiveWriter};
pub use args::{ExportArgs, ExportForm, GetArgs, ImportArgs, InspectArgs, VerifyArgs, command};
pub use endpoint::Endpoint;
pub(crate) use endpoint::{Address, AddressArg, SentHeaders, UpstreamHeaders};
pub use error::ConfigError;
pub use file::SettingsFile;
pub(crate) use file::read_text;
pub use network::Network;
pub use reference::{command_line, example_file, settings_table};
pub(crate) use relay_rule::{MethodPattern, RelayRule};
pub use setting::{Group, Setting, Tables};
pub use source::{Changes, SettingsSource, wants_json_log};
pub(crate) use source::{unknown_variables, warn_of_unknown};
pub use units::{Anchor, ArchiveTrust, ListenAddress, StartAt};
#[cfg(feature = "archive")]
pub(crate) use units::{ArchiveEndpoint, ArchiveUrl, ParseError};
pub(crate) use units::{Human, IpNetwork};
pub use values::{Origin, Values};
