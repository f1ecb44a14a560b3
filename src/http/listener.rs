//! Listeners: what they share, and what each is for.

use std::sync::Arc;
use std::sync::atomic::AtomicUsize;

use tokio::sync::watch;

use super::offload::Offload;
use crate::config::settings::{HttpConfig, Limits, MissPolicy};
use crate::http::access::Access;
use crate::http::answer::Lender;
use crate::http::keys::LiveKeys;
use crate::http::mirror::MirrorEndpoint;
use crate::http::relay::RelayShared;
use crate::observe::Admin;
use crate::rpc::Caches;
use crate::rpc::cursors::Filters;
use crate::shared::{MemoryBudget, Serving};

/// State that all listeners share.
#[derive(Clone)]
pub(crate) struct Shared {
    pub(crate) serving: Arc<Serving>,
    pub(crate) admin: Arc<Admin>,
    pub(crate) filters: Arc<Filters>,
    pub(crate) caches: Arc<Caches>,
    /// Budget of the memory of clients.
    pub(crate) memory: Arc<MemoryBudget>,
    pub(crate) limits: Limits,
    pub(crate) offload: Arc<Offload>,
    pub(crate) http: HttpConfig,
    pub(crate) connections: Arc<AtomicUsize>,
    /// Turns true when connections are to end.
    pub(crate) drain: watch::Receiver<bool>,
    /// Endpoint for mirrors, if any.
    pub(crate) mirrors: Option<MirrorEndpoint>,
    /// Treatment of misses.
    pub(crate) misses: MissPolicy,
    /// Keys of clients, if they need one.
    pub(crate) keys: Option<LiveKeys>,
    /// Access log and ids of requests, if any is on.
    pub(crate) access: Option<Access>,
    /// Lender of heights below the served range, if there is one.
    pub(crate) lender: Option<Lender>,
    /// The relay of misses, if any.
    pub(crate) relay: Option<RelayShared>,
}

/// Duty of a listener.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Role {
    /// JSON-RPC, /ready, and a short /health.
    Rpc {
        /// True if the full /health, and /metrics, are here too.
        admin: bool,
    },
    /// The administrator's pages only.
    Admin,
}
