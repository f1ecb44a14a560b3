//! Cross-origin requests as the node allows them: every origin, with credentials.
//!
//! avalanchego wraps its server in `rs/cors` (`api/server/server.go`, `http-allowed-origins`
//! being `*`); the rules below are those of that library with its default methods and headers.

use hyper::header::{
    ACCESS_CONTROL_ALLOW_CREDENTIALS, ACCESS_CONTROL_ALLOW_HEADERS, ACCESS_CONTROL_ALLOW_METHODS,
    ACCESS_CONTROL_ALLOW_ORIGIN, ACCESS_CONTROL_REQUEST_HEADERS, ACCESS_CONTROL_REQUEST_METHOD,
    HeaderMap, HeaderName, HeaderValue, ORIGIN, VARY,
};
use hyper::{Method, Request};

const METHODS: [Method; 4] = [Method::GET, Method::POST, Method::HEAD, Method::OPTIONS];
const HEADERS: [&str; 4] = ["origin", "accept", "content-type", "x-requested-with"];

/// Origin that a request claims.
pub(crate) enum Cors {
    /// A preflight request, which gets these headers and nothing else.
    Preflight(HeaderMap),
    /// A page of some origin asks, by a method that pages may use.
    Page,
    /// No page asks, or it may not.
    Other,
    /// No page may ever ask, and no answer depends on the origin.
    Never,
}

impl Cors {
    pub(crate) fn of<B>(request: &Request<B>) -> Self {
        let headers = request.headers();
        if request.method() == Method::OPTIONS {
            let wanted = header(headers, &ACCESS_CONTROL_REQUEST_METHOD);
            // Without a wanted method `rs/cors` takes OPTIONS for a usual request.
            if !wanted.is_empty() {
                return Self::Preflight(preflight(headers, wanted));
            }
        }
        let page = !header(headers, &ORIGIN).is_empty() && METHODS.contains(request.method());
        if page { Self::Page } else { Self::Other }
    }

    /// Puts on an answer what browsers look for.
    pub(crate) fn mark(&self, headers: &mut HeaderMap) {
        if matches!(self, Self::Never) {
            return;
        }
        // On other answers too: a cache must not give them to a page.
        headers.append(VARY, HeaderValue::from_static("Origin"));
        if matches!(self, Self::Page) {
            allow(headers);
        }
    }
}

fn header<'h>(headers: &'h HeaderMap, name: &HeaderName) -> &'h str {
    headers.get(name).and_then(|value| value.to_str().ok()).unwrap_or_default()
}

fn allow(headers: &mut HeaderMap) {
    headers.insert(ACCESS_CONTROL_ALLOW_ORIGIN, HeaderValue::from_static("*"));
    headers.insert(ACCESS_CONTROL_ALLOW_CREDENTIALS, HeaderValue::from_static("true"));
}

/// A refusal is an answer that allows nothing.
fn preflight(asked: &HeaderMap, method: &str) -> HeaderMap {
    let mut headers = HeaderMap::new();
    for name in ["Origin", "Access-Control-Request-Method", "Access-Control-Request-Headers"] {
        headers.append(VARY, HeaderValue::from_static(name));
    }
    let method = method.to_ascii_uppercase();
    let wanted = names(header(asked, &ACCESS_CONTROL_REQUEST_HEADERS));
    let refused = header(asked, &ORIGIN).is_empty()
        || !METHODS.iter().any(|allowed| allowed.as_str() == method)
        || wanted.iter().any(|name| !HEADERS.contains(&name.to_ascii_lowercase().as_str()));
    if refused {
        return headers;
    }
    allow(&mut headers);
    // Both are made of names that were just compared with ours.
    headers.extend(HeaderValue::try_from(method).ok().map(|v| (ACCESS_CONTROL_ALLOW_METHODS, v)));
    if !wanted.is_empty() {
        let names = HeaderValue::try_from(wanted.join(", "));
        headers.extend(names.ok().map(|names| (ACCESS_CONTROL_ALLOW_HEADERS, names)));
    }
    headers
}

/// The names in a list, in the form `Content-Type`.
fn names(list: &str) -> Vec<String> {
    list.split([',', ' ']).filter(|name| !name.is_empty()).map(canonical).collect()
}

fn canonical(name: &str) -> String {
    let mut first = true;
    let letter = |letter: char| {
        let upper = std::mem::replace(&mut first, letter == '-');
        if upper { letter.to_ascii_uppercase() } else { letter.to_ascii_lowercase() }
    };
    name.chars().map(letter).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_written_as_go_writes_them() {
        let expected = ["Origin", "Content-Type", "X-Requested-With"];
        assert_eq!(names("origin,content-type, X-REQUESTED-WITH"), expected);
        assert!(names(" , ").is_empty());
    }
}
