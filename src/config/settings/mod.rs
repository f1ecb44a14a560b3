//! The tables of all settings by group, and the settings as meant.

mod config;
mod health;
mod ingest;
mod limits;
mod listen;
mod logs;
mod mirror;
mod rates;
mod relay;
mod store;
mod upstream;
mod websocket;

pub(crate) use config::warn_without_effect;
pub use config::{AllSettings, Config, GROUPS, without_effect};
pub(crate) use health::LiveReady;
pub use health::{ReadyConfig, StaleHeads};
pub use ingest::{BackfillTarget, Senders, admitted_keys};
pub use limits::Limits;
pub(crate) use limits::{Deadlines, QueueLimits, WorkLimits};
pub use listen::{AddressSource, AdminListen, HttpConfig};
pub use logs::{AccessTarget, LogConfig, LogFormat, LogLevel};
pub use mirror::{ArchiveConfig, PushConfig};
pub(crate) use rates::{ClientLimits, LiveRate, LiveRates, Rates};
pub use relay::{MissConfig, RelayConfig};
pub(crate) use relay::{MissPolicy, SocketLimits, is_never_relayed, is_subscription, relayed_only};
pub use upstream::{FetchConfig, UpstreamConfig};
pub(crate) use websocket::WsLimits;
