//! Where an upstream is: its RPC address, and the WebSocket address that belongs to it.

use hyper::Uri;
use hyper::http::uri::{PathAndQuery, Scheme};

/// The paths of the C-chain on a node.
const RPC_PATH: &str = "/ext/bc/C/rpc";
const WS_PATH: &str = "/ext/bc/C/ws";

/// An upstream's addresses.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Endpoint {
    /// For JSON-RPC over HTTP.
    pub rpc: Uri,
    /// For subscriptions; `None` to poll.
    pub ws: Option<Uri>,
}

impl Endpoint {
    /// Takes a node's base address (`http://host:9650`) or the full address of an RPC endpoint.
    pub fn parse(text: &str) -> Result<Self, String> {
        let example = "write http://127.0.0.1:9650, or the whole address of the C-chain's RPC";
        let uri: Uri = text.parse().map_err(|error| format!("no address ({error}); {example}"))?;
        let ws_scheme = match uri.scheme_str() {
            Some("http") => "ws",
            Some("https") => "wss",
            _ => return Err(format!("neither http nor https; {example}")),
        };
        let authority = uri.authority().ok_or_else(|| format!("no host; {example}"))?;
        if authority.as_str().contains('@') {
            return Err("user names in the address are not supported".to_owned());
        }
        let path = uri.path_and_query().map_or("/", PathAndQuery::as_str);
        let (rpc_path, ws_path) = match path {
            "/" => (RPC_PATH.to_owned(), WS_PATH.to_owned()),
            path => (path.to_owned(), ws_path(path)),
        };
        let build = |scheme: &str, path: String| {
            let uri = Uri::builder().scheme(scheme).authority(authority.clone());
            uri.path_and_query(path).build().map_err(|error| error.to_string())
        };
        let rpc = build(uri.scheme().map_or("http", Scheme::as_str), rpc_path)?;
        Ok(Self { rpc, ws: Some(build(ws_scheme, ws_path)?) })
    }

    /// The address without a query, which may hold a key.
    pub fn shown(&self) -> String {
        let rpc = &self.rpc;
        let authority = rpc.authority().map_or("", |authority| authority.as_str());
        format!("{}://{authority}{}", rpc.scheme_str().unwrap_or("http"), rpc.path())
    }

    /// Whether it is Avalanche's public API, which limits each address that it is asked from.
    pub fn is_public(&self) -> bool {
        matches!(self.rpc.host(), Some("api.avax.network" | "api.avax-test.network"))
    }

    /// Takes a WebSocket address, or `none`.
    pub fn parse_ws(text: &str) -> Result<Option<Uri>, String> {
        if text == "none" {
            return Ok(None);
        }
        let example = "write ws://127.0.0.1:9650/ext/bc/C/ws, or none";
        let uri: Uri = text.parse().map_err(|error| format!("no address ({error}); {example}"))?;
        match uri.scheme_str() {
            Some("ws" | "wss") if uri.host().is_some() => Ok(Some(uri)),
            _ => Err(format!("neither ws nor wss; {example}")),
        }
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
        (endpoint.rpc.to_string(), endpoint.ws.unwrap().to_string())
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
    fn the_public_api_is_known_and_keys_are_not_shown() {
        let of = |text: &str| Endpoint::parse(text).unwrap();
        assert!(of("https://api.avax.network").is_public());
        assert!(of("https://api.avax-test.network/ext/bc/C/rpc").is_public());
        assert!(!of("http://127.0.0.1:9650").is_public());
        assert_eq!(of("https://x.example/v1?key=a").shown(), "https://x.example/v1");
    }

    #[test]
    fn what_is_no_address_is_named() {
        for bad in ["", "host:9650", "ftp://host", "http://", "http://user@host", "http://ho st"] {
            assert!(Endpoint::parse(bad).is_err(), "{bad}");
        }
        for bad in ["", "http://host", "ws:", "nothing"] {
            assert!(Endpoint::parse_ws(bad).is_err(), "{bad}");
        }
        assert_eq!(Endpoint::parse_ws("none"), Ok(None));
    }
}
