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

/// Methods that pages may use.
const METHODS: [&str; 4] = ["GET", "POST", "HEAD", "OPTIONS"];
/// Headers that pages may send.
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
        let allowed = allowed_method(request.method().as_str().as_bytes());
        let page = !header(headers, &ORIGIN).is_empty() && allowed.is_some();
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

fn header<'h>(headers: &'h HeaderMap, name: &HeaderName) -> &'h [u8] {
    headers.get(name).map_or(b"", HeaderValue::as_bytes)
}

/// Returns the method that pages may use by this name, in letters of any case.
fn allowed_method(name: &[u8]) -> Option<&'static str> {
    METHODS.into_iter().find(|method| method.as_bytes().eq_ignore_ascii_case(name))
}

fn allow(headers: &mut HeaderMap) {
    // A browser takes no `*` for a request with credentials. The node sends both all the same.
    headers.insert(ACCESS_CONTROL_ALLOW_ORIGIN, HeaderValue::from_static("*"));
    headers.insert(ACCESS_CONTROL_ALLOW_CREDENTIALS, HeaderValue::from_static("true"));
}

/// A refusal is an answer that allows nothing.
fn preflight(asked: &HeaderMap, method: &[u8]) -> HeaderMap {
    let mut headers = HeaderMap::new();
    // Before the decision: the refusal depends on these headers as well.
    for name in ["Origin", "Access-Control-Request-Method", "Access-Control-Request-Headers"] {
        headers.append(VARY, HeaderValue::from_static(name));
    }
    let wanted = names(header(asked, &ACCESS_CONTROL_REQUEST_HEADERS));
    let is_allowed = |name: &String| HEADERS.iter().any(|own| own.eq_ignore_ascii_case(name));
    let method = allowed_method(method)
        .filter(|_| !header(asked, &ORIGIN).is_empty() && wanted.iter().all(is_allowed));
    let Some(method) = method else { return headers };
    allow(&mut headers);
    headers.insert(ACCESS_CONTROL_ALLOW_METHODS, HeaderValue::from_static(method));
    if !wanted.is_empty() {
        // Made of names that were just compared with ours.
        let names = HeaderValue::try_from(wanted.join(", "));
        headers.extend(names.ok().map(|names| (ACCESS_CONTROL_ALLOW_HEADERS, names)));
    }
    headers
}

/// Returns the names in a list, as `parseHeaderList` of rs/cors has them (`utils.go`): in the form `Content-Type`. It
/// drops bytes that it does not know, and a letter behind one is small.
fn names(list: &[u8]) -> Vec<String> {
    let (mut names, mut name, mut upper) = (Vec::new(), String::new(), true);
    for (at, byte) in list.iter().enumerate() {
        match byte {
            letter if letter.is_ascii_alphabetic() && upper => {
                name.push(letter.to_ascii_uppercase().into());
            }
            letter if letter.is_ascii_alphabetic() => name.push(letter.to_ascii_lowercase().into()),
            b'-' | b'_' | b'0'..=b'9' => name.push((*byte).into()),
            _ => {}
        }
        if !matches!(byte, b' ' | b',') && at + 1 < list.len() {
            upper = matches!(byte, b'-' | b'_');
        } else if !name.is_empty() {
            names.push(std::mem::take(&mut name));
            upper = true;
        }
    }
    names
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_those_that_rs_cors_reads() {
        for (list, expected) in [
            (
                &b"origin,content-type, X-REQUESTED-WITH"[..],
                &["Origin", "Content-Type", "X-Requested-With"][..],
            ),
            (b" , ", &[]),
            (b"", &[]),
            (b"content-type,\tx-requested-with", &["Content-Type", "x-Requested-With"]),
            (b"content-type;", &["Content-Type"]),
            (b"content;type", &["Contenttype"]),
            (b"a;B,c", &["Ab", "C"]),
            // Nothing was read before the comma, so the case stays as it was.
            (b"\t, accept", &["accept"]),
            (b"x_y9z-w", &["X_Y9z-W"]),
            (b"accept\xff,\xfforigin", &["Accept", "origin"]),
            (b"accept,\xff", &["Accept"]),
        ] {
            assert_eq!(names(list), expected, "{}", list.escape_ascii());
        }
    }

    #[test]
    fn method_of_a_page_is_compared_without_case() {
        let allows = |method: &str| {
            let request = Request::builder().method(method).header(ORIGIN, "http://a.example");
            matches!(Cors::of(&request.body(()).expect("a request")), Cors::Page)
        };
        assert!(allows("POST") && allows("post") && allows("Get"));
        assert!(!allows("PUT") && !allows("put"));
    }
}
