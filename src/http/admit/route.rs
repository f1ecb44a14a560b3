//! Routes: the destination of each path.

use std::borrow::Cow;
use std::fmt::Write;

/// Place where a request goes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Route<'p> {
    /// JSON-RPC. The root of the server also takes WebSockets.
    Rpc {
        /// True if a WebSocket may be opened here.
        root: bool,
    },
    /// Path of WebSockets; it takes no POST.
    WebSocket,
    /// A document of a block: see [`crate::http::rest`].
    Rest,
    /// The path, written cleanly and escaped: it begins with one `/`, and never with `/\`, so
    /// it stays at this host.
    Moved(String),
    /// Not a path of this listener: a page for operators, or no path at all.
    Other(&'p str),
}

/// The node answers under the chain's alias and under its virtual machine's.
const RPC: [&str; 2] = ["/ext/bc/C/rpc", "/ext/bc/evm/rpc"];
/// Beginning of all documents' paths.
pub(crate) const REST: &str = "/v1/";
const WEBSOCKET: [&str; 3] = ["/ws", "/ext/bc/C/ws", "/ext/bc/evm/ws"];

/// Route of `path`, as it stands in a request line; `more` are further paths of JSON-RPC.
pub(crate) fn route<'p>(path: &'p str, more: &[String]) -> Route<'p> {
    // Few paths have one: only they pay for a decoded copy.
    if path.contains('%') {
        return match decode(path).as_deref().map(|path| unescaped(path, more)) {
            Some(Route::Rest) => Route::Rest,
            // A malformed escape in the path of a document is a wrong parameter: 400, not 404.
            None if path.starts_with(REST) => Route::Rest,
            Some(Route::Other(_)) | None => Route::Other(path),
            Some(Route::Rpc { root }) => Route::Rpc { root },
            Some(Route::WebSocket) => Route::WebSocket,
            Some(Route::Moved(clean)) => Route::Moved(clean),
        };
    }
    unescaped(path, more)
}

/// A path with its `%72` taken for what they stand for (RFC 3986, 2.1).
pub(crate) fn decode(path: &str) -> Option<String> {
    let mut pieces = path.split('%');
    let mut bytes = pieces.next()?.as_bytes().to_vec();
    for piece in pieces {
        // `from_str_radix` takes a sign, which an escape has not: `%+1` must fail.
        let digits =
            piece.get(..2).filter(|digits| digits.bytes().all(|b| b.is_ascii_hexdigit()))?;
        bytes.push(u8::from_str_radix(digits, 16).ok()?);
        bytes.extend_from_slice(&piece.as_bytes()[2..]);
    }
    String::from_utf8(bytes).ok()
}

/// True if two hexadecimal digits stand behind each `%` of a path.
pub(crate) fn has_valid_escapes(path: &str) -> bool {
    let is_valid = |piece: &str| {
        piece.as_bytes().get(..2).is_some_and(|digits| digits.iter().all(u8::is_ascii_hexdigit))
    };
    path.split('%').skip(1).all(is_valid)
}

fn unescaped<'p>(path: &'p str, more: &[String]) -> Route<'p> {
    if RPC.contains(&path) || more.iter().any(|rpc| rpc == path) {
        return Route::Rpc { root: false }; // nearly always
    }
    match path {
        "/" => Route::Rpc { root: true },
        _ if WEBSOCKET.contains(&path) => Route::WebSocket,
        _ if path.starts_with(REST) => Route::Rest,
        _ => match clean(path) {
            Cow::Borrowed(_) => Route::Other(path),
            Cow::Owned(clean) => Route::Moved(escape(&clean)),
        },
    }
}

/// A path without empty, `.` and `..` elements, as gorilla/mux and Go's `path.Clean` write it.
fn clean(path: &str) -> Cow<'_, str> {
    let mut kept: Vec<&str> = Vec::new();
    for element in path.split('/') {
        match element {
            "" | "." => {}
            ".." => drop(kept.pop()),
            _ => kept.push(element),
        }
    }
    let mut clean = format!("/{}", kept.join("/"));
    // `path.Clean` drops the last slash, and gorilla/mux puts it back.
    if path.ends_with('/') && clean != "/" {
        clean.push('/');
    }
    if clean == path { Cow::Borrowed(path) } else { Cow::Owned(clean) }
}

/// A path as Go's `URL.EscapedPath` writes it (net/url, `encodePath`). Without this `/%5chost`
/// would become `/\host`, which browsers take for `//host`.
fn escape(path: &str) -> String {
    let mut escaped = String::with_capacity(path.len());
    for byte in path.bytes() {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' => escaped.push(byte.into()),
            _ if b"-_.~$&+,/:;=@".contains(&byte) => escaped.push(byte.into()),
            _ => {
                let _ = write!(escaped, "%{byte:02X}"); // to a String, which cannot fail
            }
        }
    }
    escaped
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_lead_where_the_nodes_do() {
        let more = ["/key/rpc".to_owned()];
        for path in ["/ext/bc/C/rpc", "/ext/bc/evm/rpc", "/key/rpc"] {
            assert_eq!(route(path, &more), Route::Rpc { root: false });
        }
        assert_eq!(route("/", &[]), Route::Rpc { root: true });
        assert_eq!(route("/ext/bc/C/ws", &[]), Route::WebSocket);
        for path in ["/ext/bc/C/rpc/", "/ext", "/health", "/ext/bc/c/rpc"] {
            assert_eq!(route(path, &[]), Route::Other(path));
        }
        assert_eq!(route("/ext/bc/C/%72pc", &[]), Route::Rpc { root: false });
        for path in ["/v1/block/latest", "/v1/", "/v1//x", "/v1/%zz", "/%76%31/block/1"] {
            assert_eq!(route(path, &[]), Route::Rest, "{path}");
        }
        assert_eq!(route("/v1/rpc", &["/v1/rpc".to_owned()]), Route::Rpc { root: false });
        assert_eq!(route("/v1", &[]), Route::Other("/v1"));
        for path in ["/%", "/%7", "/%zz", "/%+1", "/%ff", "/x%2Fy"] {
            assert_eq!(route(path, &[]), Route::Other(path));
        }
        for (path, clean) in [
            ("//ext/bc/C/rpc", "/ext/bc/C/rpc"),
            ("/ext//bc/C/../C/rpc", "/ext/bc/C/rpc"),
            ("/./x/", "/x/"),
            ("/../..", "/"),
            ("//%5chost", "/%5Chost"),
            ("/a/..//%5c%5cevil", "/%5C%5Cevil"),
            ("//\\host", "/%5Chost"),
            ("/%2f%2fhost", "/host"),
            ("/a/../%2F%2Fhost/", "/host/"),
            ("//%0d%0aset-cookie:x", "/%0D%0Aset-cookie:x"),
            ("//%25%5chost", "/%25%5Chost"),
            ("//%3fx%23y", "/%3Fx%23y"),
        ] {
            assert_eq!(route(path, &[]), Route::Moved(clean.to_owned()), "{path}");
        }
    }
}
