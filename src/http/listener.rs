//! Listeners: what they share, and what each is for.

use std::future::pending;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use tokio::sync::watch;

use super::offload::Offload;
use crate::config::settings::{ClientLimits, HttpConfig, Limits, MissPolicy};
use crate::http::access::Access;
use crate::http::admit::Hosts;
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
    /// Hosts that requests may name.
    pub(crate) hosts: Hosts,
    pub(crate) connections: Arc<AtomicUsize>,
    /// Limits and relay that a reload replaced.
    pub(crate) reloaded: watch::Receiver<Reloaded>,
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

/// Settings in force that a reload replaces.
#[derive(Clone)]
pub(crate) struct Reloaded {
    pub(crate) limits: ClientLimits,
    /// The relay of misses to the upstreams in force, if any.
    pub(crate) relay: Option<RelayShared>,
}

impl Shared {
    /// Waits for limits of a reload, and takes them. Threads get them by [`Shared`] anew.
    pub(crate) async fn reload(&mut self, role: Role) {
        if self.reloaded.changed().await.is_err() {
            return pending().await; // the program ends
        }
        let Reloaded { limits: newer, relay } = self.reloaded.borrow_and_update().clone();
        self.relay = relay;
        self.limits = newer.limits;
        self.http.deadlines = newer.deadlines;
        self.http.ws = newer.ws;
        self.http.header_bytes_max = newer.header_bytes_max;
        self.http.connection_streams_max = newer.connection_streams_max;
        // Both kinds of listeners share these, so the one for clients sets them.
        if role != Role::Admin {
            let limits = &newer.limits;
            // Relaxed: it is a number that /health shows.
            self.admin.bounds.connections.store(limits.connections_max, Ordering::Relaxed);
            self.memory.set_max(limits.client_bytes_total_max, limits.client_bytes_address_max);
            self.filters.set_max(limits.filters_max, limits.filters_address_max);
            self.offload.set_queue(limits.queue);
        }
    }
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

impl Role {
    /// Names of the two threads of a worker: of the fast path, and of the full path.
    pub(super) fn thread_names(self) -> [&'static str; 2] {
        match self {
            Self::Rpc { .. } => ["http-fast", "http-full"],
            Self::Admin => ["admin-fast", "admin-full"],
        }
    }
}
