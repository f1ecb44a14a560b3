//! The listeners and the threads behind them.

use std::fmt::Write as _;
use std::io;
use std::io::Write as _;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::thread;
use std::time::{Duration, Instant};

use tokio::sync::watch;
use tokio::time::{MissedTickBehavior, interval, sleep, timeout};
use tokio_util::task::AbortOnDropHandle;
use tracing::{info, warn};

use super::error::StartError;
use super::inherited::{Inherited, InheritedListeners};
use super::upstreams::Upstreams;
use crate::config::ListenAddress;
use crate::config::settings::{AdminListen, ClientLimits, Config, HttpConfig, Limits, MissPolicy};
use crate::http::access::Access;
use crate::http::admit::Hosts;
use crate::http::answer::Lender;
use crate::http::clients::Seats;
use crate::http::keys::LiveKeys;
use crate::http::listener::{Reloaded, Role, Shared};
use crate::http::mirror::MirrorEndpoint;
use crate::http::server::Workers;
use crate::http::{Handoff, Listener, Offload};
use crate::observe::{Admin, head_age, process};
use crate::rpc::cursors::Filters;
use crate::rpc::methods::Below;
use crate::shared::{MemoryBudget, ThreadCounters};

/// Options of the greeting's `curl` command.
const CURL_OPTIONS: &str = r#"-H 'content-type: application/json' -d '{"jsonrpc":"2.0","id":1,"method":"eth_getBlockByNumber","params":["latest",false]}'"#;

/// Time between two removals of idle filters.
const EXPIRE_EVERY: Duration = Duration::from_mins(1);

/// Memory that clients of the admin listener can make neve hold.
const ADMIN_BYTES: usize = 8 << 20;

/// The listeners and the threads behind them.
pub(crate) struct Listeners {
    shared: Shared,
    /// Addresses for JSON-RPC: at least one.
    main: Vec<ListenAddress>,
    admin: Option<ListenAddress>,
    accepting: Vec<tokio::task::JoinHandle<Workers>>,
    handoffs: Vec<Handoff>,
    drain: watch::Sender<bool>,
    /// Removal of idle filters, which ends when this is dropped.
    _expiring: AbortOnDropHandle<()>,
}

/// Keys and access log of clients, and the settings that a reload replaces.
type LiveSettings = (Option<LiveKeys>, Option<Access>, watch::Receiver<Reloaded>);

impl Listeners {
    /// Binds and starts; from here on requests are answered.
    pub(crate) async fn start(
        config: &Config,
        below: Option<Arc<dyn Below>>,
        live: LiveSettings,
        inherited: Inherited,
        admin: Admin,
    ) -> Result<Self, StartError> {
        let thread_counters: Vec<_> =
            (0..config.http.threads).map(|_| <[Arc<ThreadCounters>; 2]>::default()).collect();
        let admin = Admin { thread_counters: thread_counters.as_flattened().to_vec(), ..admin };
        // Before the configured addresses: a socket of the service manager takes the place of
        // these.
        let inherited = inherited.listeners()?;
        let http = with_addresses(&config.http, &inherited)?;
        let role = Role::Rpc { admin: http.admin_on_main };
        let misses = (config.misses.policy(), below.map(Lender::new));
        let mut front = Self::new((admin, http), misses, live);
        let listeners = front.main_listeners(config, inherited.main).await?;
        front.main = front.listen(listeners, role, &thread_counters)?;
        front.listen_for_admin(config, inherited.admin).await?;
        Ok(front)
    }

    /// State of listeners before there is one.
    fn new(
        (admin, http): (Admin, HttpConfig),
        misses: (MissPolicy, Option<Lender>),
        live: LiveSettings,
    ) -> Self {
        let (drain, draining) = watch::channel(false);
        let shared = shared((admin, http), misses, live, draining);
        let (main, accepting, handoffs) = (Vec::new(), Vec::new(), Vec::new());
        let (admin, expiring) = (None, expire(&shared.filters));
        Self { shared, main, admin, accepting, handoffs, drain, _expiring: expiring }
    }

    /// Returns the socket of the service manager, or binds the addresses of `--listen`.
    async fn main_listeners(
        &self,
        config: &Config,
        inherited: Option<Listener>,
    ) -> Result<Vec<Listener>, StartError> {
        match inherited {
            Some(listener) => Ok(vec![listener]),
            None => bind_all(&self.shared.http.listen, &config.values.named("listen")).await,
        }
    }

    async fn listen_for_admin(
        &mut self,
        config: &Config,
        inherited: Option<Listener>,
    ) -> Result<(), StartError> {
        let Some(listener) = admin_listener(config, inherited).await? else { return Ok(()) };
        // One worker is enough for operators.
        self.admin = self.listen(vec![listener], Role::Admin, &[Default::default()])?.pop();
        if let Some(address) = &self.admin {
            info!(%address, "admin listener");
        }
        Ok(())
    }

    /// Serves connections of these listeners on threads of their own. Returns the addresses.
    fn listen(
        &mut self,
        listeners: Vec<Listener>,
        role: Role,
        thread_counters: &[[Arc<ThreadCounters>; 2]],
    ) -> Result<Vec<ListenAddress>, StartError> {
        let addresses = listeners.iter().map(Listener::address).collect::<io::Result<_>>()?;
        let mut shared = self.shared.clone();
        if role == Role::Admin {
            // An operator is answered also when clients use up their memory.
            shared.memory = MemoryBudget::new(ADMIN_BYTES, ADMIN_BYTES);
            // A page in a browser must not read a page that is for this machine only, by a name of the
            // page's own that points here.
            if listeners.iter().all(Listener::is_loopback) {
                shared.hosts = shared.hosts.or_local(self.own_admin_name());
            }
        }
        let workers = Workers::start(&shared, role, thread_counters)?;
        self.handoffs.extend(workers.handoffs());
        self.accepting.push(tokio::spawn(accept(workers, listeners, shared, role)));
        Ok(addresses)
    }

    /// Name or address that the settings give the admin listener.
    fn own_admin_name(&self) -> Option<&str> {
        match &self.shared.http.admin_listen {
            AdminListen::Given(address) | AdminListen::Default(address) => address.host(),
            AdminListen::Off => None,
        }
    }

    /// The ways to all serving threads.
    pub(crate) fn handoffs(&self) -> Vec<Handoff> {
        self.handoffs.clone()
    }

    /// Says where it is, on standard output: this is what was asked for.
    pub(crate) fn greet(&self, upstreams: &Upstreams, config: &Config) {
        let text = self.greeting(upstreams, config);
        let listen = self.main[0].clone();
        let admin = self.admin.as_ref().unwrap_or(&listen).clone();
        let print = move || {
            let mut out = io::stdout();
            if let Err(error) = out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
                // Standard output may have no reader, and the log has the address too.
                warn!(%error, %listen, %admin, "greeting not written");
            }
        };
        // A pipe that is full holds up this thread alone.
        if let Err(error) = thread::Builder::new().name("greeting".to_owned()).spawn(print) {
            warn!(%error, "greeting not written");
        }
    }

    /// Returns the addresses, the source of blocks, and a call to try.
    fn greeting(&self, upstreams: &Upstreams, config: &Config) -> String {
        let listen = &self.main[0];
        let admin = self.admin.as_ref().unwrap_or(listen);
        let all: Vec<_> = self.main.iter().map(|address| shown(address, "/")).collect();
        let mut text = String::new();
        // Writing to a String cannot fail.
        let _ = writeln!(text, "neve {} serves {}", env!("CARGO_PKG_VERSION"), all.join(", "));
        let _ = match config.archive.as_ref().filter(|_| upstreams.endpoints.is_empty()) {
            Some(archive) => writeln!(text, "archive  {}", archive.url),
            None => writeln!(text, "upstream {}", upstreams.shown()),
        };
        let _ = writeln!(text, "health   {}", shown(admin, "/health"));
        let _ = writeln!(text, "try it:");
        let key = if config.http.keys.is_some() { "k/KEY" } else { "" };
        let _ = writeln!(text, "  curl -s {CURL_OPTIONS} {}{key}", curl_target(listen));
        text
    }

    /// Stops accepting, lets responses in flight finish, and says if they did not.
    pub(crate) async fn drain(self, limit: Duration) {
        info!("draining connections");
        let _ = self.drain.send(true);
        let mut workers = Vec::new();
        for accepting in self.accepting {
            workers.extend(accepting.await);
        }
        let connections = &self.shared.connections;
        let empty = async {
            // Relaxed: a number that is seen late costs one more look.
            while connections.load(Ordering::Relaxed) > 0 {
                sleep(Duration::from_millis(10)).await;
            }
        };
        // With connections left the threads do not end: the process takes them with it.
        if timeout(limit, empty).await.is_ok() {
            workers.into_iter().for_each(Workers::join);
        } else {
            let left = connections.load(Ordering::Relaxed);
            warn!(left, "connections cut after drain");
        }
    }
}

/// State of all listeners, in which the limits are those of the last reload. Gives operators the limit of connections.
fn shared(
    (admin, http): (Admin, HttpConfig),
    (misses, lender): (MissPolicy, Option<Lender>),
    (keys, access, reloaded): LiveSettings,
    drain: watch::Receiver<bool>,
) -> Shared {
    let Reloaded { limits: ClientLimits { limits, .. }, relay } = reloaded.borrow().clone();
    admin.bounds.connections.store(limits.connections_max, Ordering::Relaxed);
    Shared {
        serving: Arc::clone(&admin.serving),
        filters: Arc::new(Filters::new(limits.filters_max, limits.filters_address_max)),
        caches: Arc::default(),
        memory: Arc::clone(&admin.memory),
        limits,
        offload: Offload::new(http.threads, limits.queue),
        hosts: Hosts::new(&http.allowed_hosts),
        connections: Arc::clone(&admin.connections),
        reloaded,
        mirrors: mirror_endpoint(http.mirrors_max, &admin, &drain),
        drain,
        misses,
        keys,
        access,
        lender,
        relay,
        http,
        admin: Arc::new(admin),
    }
}

/// Accepts connections for as long as neve serves. Returns the workers, which have those that are left.
async fn accept(workers: Workers, listeners: Vec<Listener>, shared: Shared, role: Role) -> Workers {
    // Connections wait in the kernel until neve knows whether it lags: after a restart
    // clients would else get an old head.
    if role != Role::Admin {
        let (status, ready) = (&shared.admin.status, **shared.admin.ready.load());
        head_age::upstream_head(&shared.serving, status, &ready).await;
    }
    workers.accept(listeners, shared).await;
    workers
}

/// The endpoint for mirrors; `None` if none may come.
fn mirror_endpoint(
    mirrors_max: usize,
    admin: &Admin,
    drain: &watch::Receiver<bool>,
) -> Option<MirrorEndpoint> {
    (mirrors_max > 0).then(|| MirrorEndpoint {
        serving: Arc::clone(&admin.serving),
        dir: admin.data_dir.clone(),
        room: Arc::clone(&admin.mirrors.free),
        seats: Seats::new(MirrorEndpoint::share(mirrors_max)),
        drain: drain.clone(),
    })
}

/// Removes idle filters for as long as the handle lives.
fn expire(filters: &Arc<Filters>) -> AbortOnDropHandle<()> {
    let (filters, mut tick) = (Arc::clone(filters), interval(EXPIRE_EVERY));
    tick.set_missed_tick_behavior(MissedTickBehavior::Delay);
    AbortOnDropHandle::new(tokio::spawn(async move {
        loop {
            tick.tick().await;
            filters.remove_idle(Instant::now());
        }
    }))
}

async fn bind(address: &ListenAddress, named: &str) -> Result<Listener, StartError> {
    let failed = |error| StartError::Setting(named.to_owned(), not_bound(address, &error));
    Listener::bind(address).await.map_err(failed)
}

/// Returns the socket of the service manager, or binds the address for administrators. `None` if there is no address, or
/// if the default one cannot be bound.
async fn admin_listener(
    config: &Config,
    inherited: Option<Listener>,
) -> Result<Option<Listener>, StartError> {
    let named = config.values.named("admin-listen");
    match (inherited, &config.http.admin_listen) {
        (Some(listener), _) => Ok(Some(listener)),
        (None, AdminListen::Off) => Ok(None),
        (None, AdminListen::Given(address)) => bind(address, &named).await.map(Some),
        (None, AdminListen::Default(address)) => match bind(address, &named).await {
            // The address is neve's own choice: another program there must not keep neve from
            // serving.
            Err(StartError::Setting(_, error)) => {
                warn!(%address, error, "no admin listener");
                Ok(None)
            }
            bound => bound.map(Some),
        },
    }
}

/// Binds all addresses of `--listen`. Of several, an error names the one.
async fn bind_all(addresses: &[ListenAddress], named: &str) -> Result<Vec<Listener>, StartError> {
    let mut listeners = Vec::new();
    for address in addresses {
        let bound = bind(address, named).await;
        listeners.push(bound.map_err(|error| match error {
            // One value of a list: the name of the setting does not say which.
            StartError::Setting(named, why) if addresses.len() > 1 => {
                StartError::Setting(named, format!("{address}: {why}"))
            }
            error => error,
        })?);
    }
    Ok(listeners)
}

/// The settings with the addresses of inherited sockets instead of their own.
fn with_addresses(
    http: &HttpConfig,
    inherited: &InheritedListeners,
) -> Result<HttpConfig, StartError> {
    let mut http = http.clone();
    if let Some(main) = &inherited.main {
        let address = main.address()?;
        info!(%address, "socket of the service manager");
        http.listen = vec![address];
    }
    if let Some(admin) = &inherited.admin {
        http.admin_listen = AdminListen::Given(admin.address()?);
    }
    Ok(http)
}

/// A path at an address.
fn shown(address: &ListenAddress, path: &str) -> String {
    match address {
        ListenAddress::Tcp { .. } => format!("http://{address}{path}"),
        ListenAddress::Unix(_) => format!("{address} at {path}"),
    }
}

/// The root of an address, as curl wants it.
fn curl_target(address: &ListenAddress) -> String {
    match address {
        ListenAddress::Tcp { .. } => format!("http://{address}/"),
        ListenAddress::Unix(path) => {
            format!("--unix-socket {} http://localhost/", path.display())
        }
    }
}

/// Says why an address cannot be listened on, and what to do.
pub(crate) fn not_bound(address: &ListenAddress, error: &io::Error) -> String {
    if let ListenAddress::Unix(_) = address {
        return match error.kind() {
            io::ErrorKind::AlreadyExists => {
                "a file that is no socket; name another path".to_owned()
            }
            io::ErrorKind::AddrInUse => "socket in use; stop its owner (see ss -lxp)".to_owned(),
            _ => format!("cannot listen: {error}; name a path where neve's user may write"),
        };
    }
    match error.kind() {
        io::ErrorKind::AddrInUse => "port in use; stop its owner (see ss -ltnp)".to_owned(),
        io::ErrorKind::AddrNotAvailable => "no address of this machine; see ip addr".to_owned(),
        io::ErrorKind::PermissionDenied => "not permitted; use a port above 1023".to_owned(),
        _ => format!("cannot listen: {error}; check host and port"),
    }
}

/// The limits with no more connections than descriptors allow: with all of them taken, the admin
/// listener could not accept either.
pub(crate) fn connections_limits(limits: Limits, has_archive: bool) -> Limits {
    let most = process::connections_max(has_archive);
    if most >= limits.connections_max {
        return limits;
    }
    Limits {
        connections_max: most,
        // A share above the whole would let one address take all connections.
        connections_address_max: limits.connections_address_max.min(most),
        ..limits
    }
}
