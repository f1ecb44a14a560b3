//! Endpoint of an upstream: its RPC address, and the WebSocket address that belongs to it.
//!
//! Providers put keys into paths and queries, and operators into HTTP headers. So an address shows
//! its scheme, host and port only, in each format in which it can be printed.

mod upstream_headers;

use std::fmt;

use hyper::Uri;
use hyper::http::uri::{Authority, PathAndQuery, Scheme};

pub(crate) use self::upstream_headers::{SentHeaders, UpstreamHeaders};

/// The paths of the C-chain on a node.
const RPC_PATH: &str = "/ext/bc/C/rpc";
const WS_PATH: &str = "/ext/bc/C/ws";

/// Bytes of a wrong address that are shown.
const SHOWN_BYTES_MAX: usize = 64;

/// An address of which only scheme, host and port are shown.
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct Address(Uri);

impl Address {
    /// The whole address, for a connection and for nothing else.
    pub(crate) fn reveal(&self) -> &Uri {
        &self.0
    }
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let authority = self.0.authority().map_or("", |authority| authority.as_str());
        write!(f, "{}://{authority}", self.0.scheme_str().unwrap_or("http"))
    }
}

impl fmt::Debug for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// An address as an operator typed it, right or wrong. What may be a key is not shown.
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct AddressArg(String);

impl From<&str> for AddressArg {
    fn from(text: &str) -> Self {
        Self(text.to_owned())
    }
}

impl fmt::Display for AddressArg {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (scheme, rest) = match self.0.split_once("://") {
            Some((scheme, rest)) => (format!("{scheme}://"), rest),
            None => (String::new(), self.0.as_str()),
        };
        let host = rest.split(['/', '?', '#']).next().unwrap_or_default();
        // A password may have a `/`.
        let cut = rest[host.len()..].contains('@');
        let known = if cut { "" } else { host.rsplit('@').next().unwrap_or_default() };
        let hidden = if known.len() < rest.trim_end_matches('/').len() { "/..." } else { "" };
        let shown = format!("{scheme}{known}");
        let end = shown.floor_char_boundary(SHOWN_BYTES_MAX);
        let hidden = if end < shown.len() { "/..." } else { hidden };
        write!(f, "{}{hidden}", shown[..end].escape_debug())
    }
}

impl fmt::Debug for AddressArg {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// An upstream's addresses.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Endpoint {
    /// Name in logs, metrics and /health: the shown address, with a number if another upstream
    /// has the same.
    pub(crate) name: String,
    /// For JSON-RPC over HTTP.
    pub(crate) rpc: Address,
    /// For subscriptions; `None` to poll.
    pub(crate) ws: Option<Address>,
    /// Sent with each request.
    pub(crate) headers: UpstreamHeaders,
}

impl Endpoint {
    /// Takes a node's base address (`http://host:9650`) or the full address of an RPC endpoint.
    pub fn parse(text: &str) -> Result<Self, String> {
        let example = "write http://127.0.0.1:9650, or the whole address of the C-chain's RPC";
        let uri: Uri = text.parse().map_err(|error| format!("no address ({error}); {example}"))?;
        let ws_scheme = match uri.scheme_str() {
            Some("http") => "ws",
            Some("https") => "wss",
            Some(_) => return Err(format!("neither http nor https; {example}")),
            None => return Err(format!("no URL; {example}")),
        };
        let authority = uri.authority().ok_or_else(|| format!("no host; {example}"))?;
        check_authority(authority)?;
        let (rpc_path, ws_path) = paths(&uri);
        let build = |scheme: &str, path: String| {
            let uri = Uri::builder().scheme(scheme).authority(authority.clone());
            uri.path_and_query(path).build().map(Address).map_err(|error| error.to_string())
        };
        let rpc = build(uri.scheme().map_or("http", Scheme::as_str), rpc_path)?;
        let ws = Some(build(ws_scheme, ws_path)?);
        Ok(Self { name: rpc.to_string(), rpc, ws, headers: UpstreamHeaders::default() })
    }

    /// Gives endpoints whose shown addresses are equal a number from the second on, in their order.
    pub(crate) fn number_names(endpoints: &mut [Self]) {
        for at in 0..endpoints.len() {
            let (before, rest) = endpoints.split_at_mut(at);
            let Some(endpoint) = rest.first_mut() else { return };
            let shown = endpoint.rpc.to_string();
            // Without their keys two addresses of one provider look the same in metrics.
            let same = before.iter().filter(|other| other.rpc.to_string() == shown).count();
            endpoint.name = if same == 0 { shown } else { format!("{shown}#{}", same + 1) };
        }
    }

    /// Returns whether two addresses lead to the same upstream: schemes and hosts have no case, and
    /// a port may be left out.
    pub(crate) fn is_same(&self, other: &Self) -> bool {
        let key = |endpoint: &Self| {
            let uri = endpoint.rpc.reveal();
            let secure = uri.scheme_str() == Some("https");
            let port = uri.port_u16().unwrap_or(if secure { 443 } else { 80 });
            let host = uri.host().unwrap_or_default().to_ascii_lowercase();
            (secure, host, port, uri.path_and_query().cloned())
        };
        key(self) == key(other)
    }

    /// Returns the texts of which no part is to be shown: the paths without a node's own part, the
    /// queries, and values of HTTP headers, now and before.
    pub(crate) fn secret_texts(&self) -> Vec<String> {
        let addresses = [Some(&self.rpc), self.ws.as_ref()].into_iter().flatten();
        let paths = addresses.filter_map(|address| address.reveal().path_and_query());
        let headers = self.headers.sent();
        let texts = paths.flat_map(|path| match node_prefix(path.path()) {
            Some(prefix) => [Some(prefix), path.query()],
            None => [Some(path.as_str()), None],
        });
        texts.flatten().chain(headers.keys()).map(str::to_owned).collect()
    }

    /// Returns another path of the node: behind what its address has before the path of the chain, and with
    /// its query, as both may hold a key. `None` if the address is none of a node, as of a provider that
    /// has a path of its own.
    pub(crate) fn node_path(&self, path: &str) -> Option<PathAndQuery> {
        let own = self.rpc.reveal().path_and_query()?;
        let path = [node_prefix(own.path())?, path].concat();
        let path = own.query().map_or_else(|| path.clone(), |query| format!("{path}?{query}"));
        PathAndQuery::try_from(path).ok()
    }

    /// Returns what stands before `/mirror/` on a mirror source: what is before the path of a chain, or all up to a key of
    /// the form `/k/KEY`. Other paths are those of JSON-RPC alone.
    pub(crate) fn mirror_prefix(&self) -> String {
        let path = self.rpc.reveal().path();
        let up_to_key = |path: &str| {
            let key = path.find("/k/")? + 3;
            Some(path[..path[key..].find('/').map_or(path.len(), |len| key + len)].to_owned())
        };
        let prefix = node_prefix(path).map(str::to_owned);
        prefix.or_else(|| up_to_key(path)).unwrap_or_default()
    }

    /// True for Avalanche's public API, which limits each address that requests come from.
    pub fn is_public(&self) -> bool {
        matches!(self.rpc.reveal().host(), Some("api.avax.network" | "api.avax-test.network"))
    }

    /// Takes a WebSocket address, or `none`.
    pub(crate) fn parse_ws(text: &str) -> Result<Option<Address>, String> {
        if text == "none" {
            return Ok(None);
        }
        let example = "write ws://127.0.0.1:9650/ext/bc/C/ws, or none";
        let uri: Uri = text.parse().map_err(|error| format!("no address ({error}); {example}"))?;
        match (uri.scheme_str(), uri.authority()) {
            (Some("ws" | "wss"), Some(authority)) => check_authority(authority)?,
            _ => return Err(format!("neither ws nor wss; {example}")),
        }
        Ok(Some(Address(uri)))
    }
}

/// Refuses user names and a port that is none.
fn check_authority(authority: &Authority) -> Result<(), String> {
    // hyper would not send them, and a log could show them.
    if authority.as_str().contains('@') {
        let instead = "use --upstream-header-file for a secret";
        return Err(format!("user names in the address are not supported; {instead}"));
    }
    // hyper would take the usual port of the scheme instead, and the log would show the other one.
    let has_port = authority.as_str().len() > authority.host().len();
    if has_port && authority.port_u16().is_none() {
        return Err("no port; allowed: 1 to 65535".to_owned());
    }
    Ok(())
}

/// Returns the part of a path before that of a chain's API on a node. The id of a chain is no secret.
fn node_prefix(path: &str) -> Option<&str> {
    let chain = path.strip_suffix("/rpc").or_else(|| path.strip_suffix("/ws"))?;
    let (before, name) = chain.rsplit_once('/')?;
    let is_name = !name.is_empty() && name.bytes().all(|byte| byte.is_ascii_alphanumeric());
    before.strip_suffix("/ext/bc").filter(|_| is_name)
}

/// Paths of JSON-RPC and of the WebSocket: a base address has the node's own.
fn paths(uri: &Uri) -> (String, String) {
    match uri.path_and_query().map_or("/", PathAndQuery::as_str) {
        "/" => (RPC_PATH.to_owned(), WS_PATH.to_owned()),
        path => (path.to_owned(), ws_path(path)),
    }
}

/// `.../rpc` becomes `.../ws`; another path stays, as providers do that serve both on one.
fn ws_path(path: &str) -> String {
    let (path, query) = path.split_once('?').map_or((path, None), |(path, q)| (path, Some(q)));
    let mut ws = match path.strip_suffix("/rpc") {
        Some(chain) => format!("{chain}/ws"),
        None => path.to_owned(),
    };
    if let Some(query) = query {
        ws = format!("{ws}?{query}");
    }
    ws
}

#[cfg(test)]
mod tests {
    use super::*;

    fn addresses(text: &str) -> (String, String) {
        let endpoint = Endpoint::parse(text).unwrap();
        (endpoint.rpc.reveal().to_string(), endpoint.ws.unwrap().reveal().to_string())
    }

    #[test]
    fn addresses_are_derived_from_each_other() {
        let node = ("http://host:9650/ext/bc/C/rpc".into(), "ws://host:9650/ext/bc/C/ws".into());
        assert_eq!(addresses("http://host:9650"), node);
        assert_eq!(addresses("http://host:9650/"), node);
        assert_eq!(addresses("http://host:9650/ext/bc/C/rpc"), node);
        let public = (
            "https://api.avax.network/ext/bc/C/rpc".into(),
            "wss://api.avax.network/ext/bc/C/ws".into(),
        );
        assert_eq!(addresses("https://api.avax.network/ext/bc/C/rpc"), public);
        let keyed = ("https://x.example/v1/KEY?a=b".into(), "wss://x.example/v1/KEY?a=b".into());
        assert_eq!(addresses("https://x.example/v1/KEY?a=b"), keyed);
        assert_eq!(addresses("http://[::1]:9650").0, "http://[::1]:9650/ext/bc/C/rpc");
    }

    #[test]
    fn address_shows_scheme_host_and_port_only() {
        let of = |text: &str| Endpoint::parse(text).unwrap();
        assert!(of("https://api.avax.network").is_public());
        assert!(of("https://api.avax-test.network/ext/bc/C/rpc").is_public());
        assert!(!of("http://127.0.0.1:9650").is_public());
        let keyed = of("https://x.example:8443/v1/SECRET?key=SECRET");
        assert_eq!(keyed.name, "https://x.example:8443");
        for shown in [format!("{keyed:?}"), format!("{keyed:#?}"), keyed.rpc.to_string()] {
            assert!(!shown.contains("SECRET") && shown.contains("x.example:8443"), "{shown}");
        }
    }

    #[test]
    fn path_of_a_node_is_no_secret_and_what_stands_beside_it_is() {
        let of = |text: &str| Endpoint::parse(text).unwrap().secret_texts();
        let chain = "2q9e4r6Mu3U68nU1fYjgbR6JvwrRx36CohpAX5UQxse55x1Q5";
        for node in ["", "/", "/ext/bc/C/rpc", &format!("/ext/bc/{chain}/rpc")] {
            assert!(of(&format!("http://host{node}")).iter().all(String::is_empty), "{node}");
        }
        let keyed = of("http://host/v1/KEY/ext/bc/C/rpc?token=x");
        assert_eq!(keyed, ["/v1/KEY", "token=x", "/v1/KEY", "token=x"]);
        assert_eq!(of("http://host/v1/KEY?a=b")[0], "/v1/KEY?a=b");
    }

    #[test]
    fn other_paths_of_a_node_stand_beside_that_of_its_chain() {
        let of = |text: &str| {
            let path = Endpoint::parse(text).unwrap().node_path("/ext/info");
            path.map(|path| path.as_str().to_owned())
        };
        for (address, path) in [
            ("http://host:9650", Some("/ext/info")),
            ("http://host/ext/bc/C/rpc", Some("/ext/info")),
            ("https://x.example/v1/KEY/ext/bc/C/rpc", Some("/v1/KEY/ext/info")),
            ("https://x.example/ext/bc/2q9e4/rpc?token=KEY", Some("/ext/info?token=KEY")),
            ("https://x.example/v1/KEY", None),
            ("https://x.example/rpc", None),
            ("https://x.example/ext/bc/rpc", None),
        ] {
            assert_eq!(of(address).as_deref(), path, "{address}");
        }
    }

    #[test]
    fn paths_for_mirrors_stand_behind_the_key() {
        let of = |text: &str| Endpoint::parse(text).unwrap().mirror_prefix();
        for (address, prefix) in [
            ("http://source:8545", ""),
            ("http://source:8545/ext/bc/C/rpc", ""),
            ("http://source/k/KEY", "/k/KEY"),
            ("http://source/k/KEY/", "/k/KEY"),
            ("http://source/k/KEY/ext/bc/C/rpc", "/k/KEY"),
            ("https://front/neve/k/KEY?a=b", "/neve/k/KEY"),
            ("https://front/neve/ext/bc/C/rpc", "/neve"),
            ("http://source/k/KEY/own", "/k/KEY"),
            ("http://source/own", ""),
        ] {
            assert_eq!(of(address), prefix, "{address}");
        }
    }

    #[test]
    fn typed_address_hides_what_may_be_a_key() {
        for (text, shown) in [
            ("https://x.example/v1/SECRET", "https://x.example/..."),
            ("https://x.example?SECRET", "https://x.example/..."),
            ("https://user:SECRET@x.example/", "https://x.example/..."),
            ("https://SEC:RET/SECRET@x.example/", "https:///..."),
            ("x.example:80/SECRET", "x.example:80/..."),
            ("http://host:9650/", "http://host:9650"),
            ("foo", "foo"),
            ("", ""),
            ("a\nb", "a\\nb"),
        ] {
            let typed = AddressArg::from(text);
            assert_eq!((typed.to_string(), format!("{typed:?}")), (shown.into(), shown.into()));
        }
        assert!(AddressArg::from(&*"x".repeat(999)).to_string().len() < 80);
    }

    #[test]
    fn equal_hosts_are_numbered() {
        let urls = ["http://a:1/x", "http://b:1", "http://a:1/y", "http://a:1/z", "http://a:2"];
        let mut endpoints: Vec<_> = urls.map(|url| Endpoint::parse(url).unwrap()).into();
        Endpoint::number_names(&mut endpoints);
        let names: Vec<_> = endpoints.iter().map(|one| one.name.as_str()).collect();
        let expected = ["http://a:1", "http://b:1", "http://a:1#2", "http://a:1#3", "http://a:2"];
        assert_eq!(names, expected);
    }

    #[test]
    fn same_upstream_is_known_in_another_spelling() {
        let same =
            |a: &str, b: &str| Endpoint::parse(a).unwrap().is_same(&Endpoint::parse(b).unwrap());
        assert!(same("http://host", "http://HOST:80/"));
        assert!(same("https://host:443/ext/bc/C/rpc", "https://host"));
        assert!(!same("http://host", "https://host") && !same("http://host/a", "http://host/b"));
    }

    /// hyper connects to port 80 or 443 instead, with all headers.
    #[test]
    fn port_that_is_none_is_refused() {
        for port in ["65536", "99999999", "", "-1"] {
            let why = |parsed: Result<(), String>| parsed.expect_err(port);
            let why = [
                why(Endpoint::parse(&format!("http://host:{port}")).map(drop)),
                why(Endpoint::parse(&format!("http://[::1]:{port}/rpc")).map(drop)),
                why(Endpoint::parse_ws(&format!("ws://host:{port}/ws")).map(drop)),
            ];
            assert!(port == "-1" || why[0].contains("1 to 65535"), "{port}: {why:?}");
        }
        assert!(
            Endpoint::parse("http://[::1]").is_ok() && Endpoint::parse("http://h:65535").is_ok()
        );
    }

    #[test]
    fn text_that_is_no_url_is_refused() {
        for bad in ["", "host:9650", "ftp://host", "http://", "http://user@host", "http://ho st"] {
            assert!(Endpoint::parse(bad).is_err(), "{bad}");
        }
        for bad in ["", "http://host", "ws:", "nothing", "ws://user:SECRET@host/ws"] {
            assert!(Endpoint::parse_ws(bad).is_err(), "{bad}");
        }
        assert_eq!(Endpoint::parse_ws("none"), Ok(None));
    }
}
