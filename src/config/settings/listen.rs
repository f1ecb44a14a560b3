//! Addresses, clients behind proxies, paths, threads.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::num::NonZeroUsize;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use clap::ValueEnum;
use hyper::StatusCode;

use super::limits::Deadlines;
use super::websocket::WsLimits;
use crate::config::error::ConfigError;
use crate::config::setting::{Group, SWITCH, Setting, count, one_of, text};
use crate::config::units::{IpNetwork, ListenAddress, ListenAt};
use crate::config::values::Values;

/// Settings of the listeners.
pub(super) const LISTEN: Group = Group {
    title: "Listen",
    settings: &[
        Setting::new(
            "listen",
            text::<ListenAddress>("ADDRESS").many(),
            "Addresses for JSON-RPC: HOST:PORT, or unix:PATH for a socket in the file system. Port 0 is \
             any free port; clients of a socket have the address 127.0.0.1, and a socket of the \
             service manager (LISTEN_FDS) takes their place.",
        )
        .or("127.0.0.1:8545")
        .brief(),
        Setting::new(
            "admin-listen",
            text::<ListenAt>("ADDRESS|none"),
            "Address for the full /health, and /metrics. If the default is in use, neve warns and \
             goes on without it.",
        )
        .otherwise("127.0.0.1:8549; a free port if --listen has port 0; none with --admin-on-main")
        .brief(),
        Setting::new(
            "admin-on-main",
            SWITCH,
            "Answer the full /health, and /metrics, on the main address too. Every client then \
             sees the data directory and the upstreams.",
        ),
        Setting::new(
            "allowed-hosts",
            text::<String>("HOST").many(),
            "Names that a request's Host may have; * for any. Addresses are always allowed.",
        )
        .or("*"),
        Setting::new(
            "trusted-proxies",
            text::<IpNetwork>("CIDR").many(),
            "Networks or addresses of fronts that name their clients (--client-address-from). \
             Limits for each address then count the clients, and not the front.",
        ),
        Setting::new(
            "client-address-from",
            one_of::<AddressSource>("SOURCE"),
            "Source from which trusted proxies name their clients. With proxy-protocol, each of \
             their connections must begin with its header, within 4 KiB and 5 s.",
        )
        .or("x-forwarded-for"),
        Setting::new(
            "keys",
            text::<PathBuf>("FILE"),
            "File of API keys: clients must name one, in the path (/k/KEY/...), in x-api-key or as a \
             Bearer token. At most 4 MiB and 10,000 keys; SIGHUP reads it again, and `neve keys hash` prints \
             an entry.",
        ),
        Setting::new(
            "rpc-paths",
            text::<String>("PATH").many(),
            "Further paths of JSON-RPC, besides / and the node's.",
        ),
        Setting::new(
            "threads",
            count("1", "1024"),
            "Serving threads. Each has another one beside it for requests off the fast path.",
        )
        .otherwise("number of CPUs"),
        Setting::new(
            "miss-status",
            count("200", "599").allowing("200, or 400 to 599"),
            "HTTP status of a miss: 200, or 400 to 599. Some fronts need another one than 421.",
        )
        .or("421"),
        Setting::new(
            "drain-timeout",
            crate::config::setting::duration("0s", "1h"),
            "Time that responses in flight may take after SIGTERM. Beyond it: their connections \
             are cut.",
        )
        .or("10s")
        .reloads(),
    ],
};

/// The source of the client's address behind a trusted proxy.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, ValueEnum)]
pub enum AddressSource {
    /// The header `X-Forwarded-For` of each request.
    #[default]
    XForwardedFor,
    /// The header `Forwarded` of each request (RFC 7239).
    Forwarded,
    /// The PROXY protocol, version 1 or 2, at the begin of each connection.
    ProxyProtocol,
}

/// Settings of the listeners and connections.
#[derive(Debug, Clone)]
pub struct HttpConfig {
    /// Downloads and streams of mirrors that may be open; none where mirrors are given nothing. Not
    /// given unless asked for: a mirror takes all there is, as quickly as it can.
    pub mirrors_max: usize,
    /// Addresses for JSON-RPC: at least one.
    pub listen: Vec<ListenAddress>,
    /// Address for the administrator's pages.
    pub admin_listen: AdminListen,
    /// True if they are on the main address too. Not unless asked for: they name the data directory
    /// and the upstreams.
    pub admin_on_main: bool,
    /// Serving threads, each with another beside it for requests off the fast path.
    pub threads: usize,
    /// The status of a miss.
    pub miss_status: StatusCode,
    /// Names that a request's `Host` may have. A node serves localhost only by default; a cache stands
    /// behind any name that its operator gives it, and has nothing that is secret.
    pub allowed_hosts: Arc<[String]>,
    /// Proxies that name their clients. None unless named: any client can write the headers.
    pub(crate) trusted_proxies: Arc<[IpNetwork]>,
    /// The source of the client's address behind them.
    pub client_address_from: AddressSource,
    /// File of API keys, one of which clients must name. None unless given: all clients are served.
    pub keys: Option<PathBuf>,
    /// Paths of JSON-RPC besides the node's.
    pub rpc_paths: Arc<[String]>,
    /// Bytes of a request's line and headers. A node allows 1 MiB; no client needs that. A connection's
    /// buffer has this size, for which hyper has a minimum of 8 KiB.
    pub header_bytes_max: usize,
    /// Streams of a connection of HTTP/2.
    pub connection_streams_max: u32,
    /// Limits of a WebSocket.
    pub(crate) ws: WsLimits,
    /// Time after which silent connections are closed.
    pub(crate) deadlines: Deadlines,
    /// Time that responses in flight may take at the end.
    pub drain_timeout: Duration,
}

/// The listener of the administrator's pages.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum AdminListen {
    /// No listener of their own: the pages are on the main address or nowhere.
    Off,
    /// An address that was given: neve does not start without it.
    Given(ListenAddress),
    /// The default address, which another process may have.
    Default(ListenAddress),
}

/// Loopback, so that only this machine sees the pages; the port is beside that of `--listen`.
const ADMIN_LISTEN: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), 8549);

impl HttpConfig {
    pub(crate) fn of(values: &Values) -> Result<Self, ConfigError> {
        Ok(Self {
            threads: threads(values)?,
            mirrors_max: mirrors_max(values)?,
            listen: listen(values)?,
            admin_listen: admin_listen(values)?,
            admin_on_main: values.switch("admin-on-main"),
            miss_status: miss_status(values)?,
            allowed_hosts: values.texts("allowed-hosts").into(),
            trusted_proxies: values.list("trusted-proxies")?.into(),
            client_address_from: values.word("client-address-from")?,
            keys: values.get("keys")?,
            rpc_paths: rpc_paths(values)?,
            header_bytes_max: values.bytes("header-bytes-max")?,
            connection_streams_max: values.count("connection-streams-max")?,
            ws: WsLimits::of(values)?,
            deadlines: Deadlines::of(values)?,
            drain_timeout: values.duration("drain-timeout")?,
        })
    }
}

fn threads(values: &Values) -> Result<usize, ConfigError> {
    // Those of this process: affinity and cgroups may leave fewer than the machine has.
    let cores = std::thread::available_parallelism().map_or(1, NonZeroUsize::get);
    Ok(values.get("threads")?.unwrap_or(cores))
}

fn mirrors_max(values: &Values) -> Result<usize, ConfigError> {
    if values.switch("serve-mirrors") { values.count("mirrors-max") } else { Ok(0) }
}

fn listen(values: &Values) -> Result<Vec<ListenAddress>, ConfigError> {
    let addresses: Vec<ListenAddress> = values.list("listen")?;
    // Port 0 twice is two free ports.
    let fixed = || addresses.iter().enumerate().filter(|(_, address)| !address.is_any_port());
    if fixed().any(|(at, address)| addresses[..at].contains(address)) {
        return values.refuse("listen", "an address is named twice; name each once");
    }
    Ok(addresses)
}

fn admin_listen(values: &Values) -> Result<AdminListen, ConfigError> {
    let main = listen(values)?;
    let any_port = main.iter().any(ListenAddress::is_any_port);
    Ok(match values.get("admin-listen")? {
        Some(ListenAt(Some(address))) if main.contains(&address) && !address.is_any_port() => {
            return values.refuse("admin-listen", "must be another address than --listen");
        }
        Some(ListenAt(Some(address))) => AdminListen::Given(address),
        Some(ListenAt(None)) => AdminListen::Off,
        None if values.switch("admin-on-main") => AdminListen::Off,
        // An operator who takes any port does not expect a second neve to find this one taken.
        None if any_port => AdminListen::Default(SocketAddr::new(ADMIN_LISTEN.ip(), 0).into()),
        None => AdminListen::Default(ADMIN_LISTEN.into()),
    })
}

fn rpc_paths(values: &Values) -> Result<Arc<[String]>, ConfigError> {
    let paths = values.texts("rpc-paths");
    let wrong = paths.iter().find_map(|path| Some((path, no_path(path)?)));
    match wrong {
        Some((path, why)) => Err(values.wrong("rpc-paths", path, why)),
        None => Ok(paths.into()),
    }
}

/// Reason why no request can have this path: RFC 3986, 3.3 has the characters of one.
fn no_path(path: &str) -> Option<String> {
    if !path.starts_with('/') {
        return Some("a path begins with /".to_owned());
    }
    let may_stand = |c: char| c.is_ascii_alphanumeric() || "/-._~!$&'()*+,;=:@%".contains(c);
    if let Some(c) = path.chars().find(|c| !may_stand(*c)) {
        return Some(format!("{c:?} cannot stand in the path of a request; write it as %XX"));
    }
    let is_hex = |pair: &[u8]| pair.len() == 2 && pair.iter().all(u8::is_ascii_hexdigit);
    let mut after = path.split('%').skip(1);
    let cut = after.find(|rest| !is_hex(&rest.as_bytes()[..rest.len().min(2)]));
    cut.map(|_| "two hex digits follow each % in a path".to_owned())
}

/// A router must be able to tell a miss, so no success but 200 itself, for routers that look into
/// the body only.
fn miss_status(values: &Values) -> Result<StatusCode, ConfigError> {
    let status = values.count::<u16>("miss-status")?;
    match StatusCode::from_u16(status) {
        Ok(code) if status == 200 || code.is_client_error() || code.is_server_error() => Ok(code),
        _ => values.refuse("miss-status", "allowed: 200, or 400 to 599"),
    }
}
