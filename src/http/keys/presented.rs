//! The key that a request names: in its path, or in a header. The path goes on without it.

use hyper::Request;
use hyper::header::{AUTHORIZATION, HeaderMap, HeaderName, HeaderValue};
use hyper::http::uri::{PathAndQuery, Uri};

use super::key_ring::{ClientKey, LiveKeys};
use super::refusal::KeyRefusal;

const API_KEY: HeaderName = HeaderName::from_static("x-api-key");
/// Begin of a path with a key.
const PREFIX: &str = "/k/";

/// Begin of the path of a request, up to the key in it. A redirect begins with it too.
#[derive(Clone)]
pub(crate) struct KeyPrefix(String);

impl KeyPrefix {
    /// Returns that of a request; it is empty without a key in the path.
    pub(crate) fn of<B>(request: &Request<B>) -> &str {
        request.extensions().get::<Self>().map_or("", |prefix| &prefix.0)
    }
}

/// Takes the key out of a request, and finds it. A path has precedence over a header.
pub(crate) fn take_key<B>(
    request: &mut Request<B>,
    keys: &LiveKeys,
) -> Result<ClientKey, KeyRefusal> {
    let in_path = split(request.uri());
    let found = match &in_path {
        Some((key, _)) => ClientKey::find(keys, Some(key.as_bytes())),
        None => ClientKey::find(keys, in_header(request.headers())),
    };
    if let Some((key, rest)) = in_path {
        request.extensions_mut().insert(KeyPrefix(format!("{PREFIX}{key}")));
        *request.uri_mut() = rest;
    }
    // Behind this nothing may log or relay a key.
    request.headers_mut().remove(API_KEY);
    request.headers_mut().remove(AUTHORIZATION);
    found
}

/// True if a request names a key, known or not.
pub(crate) fn names_key<B>(request: &Request<B>) -> bool {
    split(request.uri()).is_some() || in_header(request.headers()).is_some()
}

/// The key in a path, and the address without it: `/k/KEY` is `/`, `/k/KEY/ws` is `/ws`.
fn split(uri: &Uri) -> Option<(String, Uri)> {
    let rest = uri.path_and_query()?.as_str().strip_prefix(PREFIX)?;
    let end = rest.find(['/', '?']).unwrap_or(rest.len());
    let (key, rest) = rest.split_at(end);
    let path = if rest.starts_with('/') { rest.to_owned() } else { format!("/{rest}") };
    let mut parts = uri.clone().into_parts();
    parts.path_and_query = Some(PathAndQuery::try_from(path).ok()?);
    Some((key.to_owned(), Uri::from_parts(parts).ok()?))
}

/// The value of `x-api-key`, or the token of `Authorization: Bearer`. An empty value names no key.
fn in_header(headers: &HeaderMap) -> Option<&[u8]> {
    let named = headers.get(API_KEY).map(HeaderValue::as_bytes).filter(|key| !key.is_empty());
    named.or_else(|| {
        let (scheme, token) = headers.get(AUTHORIZATION)?.to_str().ok()?.split_once(' ')?;
        scheme.eq_ignore_ascii_case("bearer").then(|| token.trim().as_bytes())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn key_in_a_path_is_taken_out() {
        for (whole, key, rest) in [
            ("/k/KEY", "KEY", "/"),
            ("/k/KEY/", "KEY", "/"),
            ("/k/KEY/ext/bc/C/rpc", "KEY", "/ext/bc/C/rpc"),
            ("/k/KEY?x=1", "KEY", "/?x=1"),
            ("/k/", "", "/"),
            ("/k/a%2fb/ws", "a%2fb", "/ws"),
            ("http://host/k/KEY/v1/block/5", "KEY", "http://host/v1/block/5"),
        ] {
            let (found, uri) = split(&whole.parse().unwrap()).unwrap();
            assert_eq!((found.as_str(), uri.to_string().as_str()), (key, rest), "{whole}");
        }
        for other in ["/", "/k", "/ext/k/KEY", "//k/KEY", "/K/KEY", "*"] {
            assert!(split(&other.parse().unwrap()).is_none(), "{other}");
        }
    }

    #[test]
    fn key_in_a_header_is_found() {
        let headers = |name: &'static str, value: &str| {
            HeaderMap::from_iter([(HeaderName::from_static(name), value.parse().unwrap())])
        };
        let found = |name, value: &str| in_header(&headers(name, value)).map(<[u8]>::to_vec);
        assert_eq!(found("x-api-key", "KEY"), Some(b"KEY".to_vec()));
        assert_eq!(found("authorization", "bearer KEY"), Some(b"KEY".to_vec()));
        assert_eq!(found("authorization", "Basic KEY"), None);
        assert_eq!(found("cookie", "KEY"), None);
        let mut both = headers("authorization", "Bearer KEY");
        both.insert(API_KEY, HeaderValue::from_static(""));
        assert_eq!(in_header(&both), Some(&b"KEY"[..]));
    }
}
