//! The status page: one document that reads /health, and /metrics where the listener has it.

use hyper::Method;
use hyper::header::{
    ACCEPT, CACHE_CONTROL, CONTENT_SECURITY_POLICY, CONTENT_TYPE, HeaderMap, HeaderName,
    HeaderValue, REFERRER_POLICY, X_CONTENT_TYPE_OPTIONS,
};

/// HTML document of the status page, with its style and script.
pub(crate) const PAGE: &str = include_str!("page/page.html");

/// Allows the page's own style and script by their hashes, and requests to this server. A browser
/// runs nothing else, also if a text from an upstream contains a script.
const POLICY: &str = "default-src 'none'; \
    style-src 'sha256-MvGR0bHYtzx9P2fkeU/D7s2s4ib49WM4/Th/wr+wtuI='; \
    script-src 'sha256-aTQXhw7HC9iyNQNIkuk60GKRK3hQ0cHOsQPQz01cqwc='; \
    connect-src 'self'; \
    base-uri 'none'; \
    form-action 'none'; \
    frame-ancestors 'none'";

/// Says whether a request for `/` comes from a browser. A client of the node sends no such header.
pub(crate) fn is_wanted(method: &Method, headers: &HeaderMap) -> bool {
    let accepts = headers.get(ACCEPT).map_or(&b""[..], HeaderValue::as_bytes);
    let names_html = |range: &[u8]| range.trim_ascii_start().starts_with(b"text/html");
    matches!(*method, Method::GET | Method::HEAD) && accepts.split(|b| *b == b',').any(names_html)
}

/// HTTP headers of the page.
pub(crate) const HEADERS: [(HeaderName, &str); 5] = [
    (CONTENT_TYPE, "text/html; charset=utf-8"),
    (CONTENT_SECURITY_POLICY, POLICY),
    (CACHE_CONTROL, "no-store"),
    (REFERRER_POLICY, "no-referrer"),
    (X_CONTENT_TYPE_OPTIONS, "nosniff"),
];

#[cfg(test)]
mod tests {
    use base64::Engine;
    use base64::engine::general_purpose::STANDARD;
    use sha2::{Digest, Sha256};

    use super::*;

    fn hash(open: &str, close: &str) -> String {
        let (_, rest) = PAGE.split_once(open).expect("it begins");
        let (inside, _) = rest.split_once(close).expect("it ends");
        format!("'sha256-{}'", STANDARD.encode(Sha256::digest(inside)))
    }

    #[test]
    fn policy_names_the_hashes_of_style_and_script() {
        for hash in [hash("<style>", "</style>"), hash("<script>", "</script>")] {
            assert!(POLICY.contains(&hash), "put {hash} into POLICY");
        }
    }

    /// The short /health has no archive, and names of another object would draw nothing.
    #[test]
    fn archived_heights_are_hidden_until_the_full_health_has_them() {
        let (_, part) =
            PAGE.split_once(r#"<div id="archived-part" hidden>"#).expect("it is hidden");
        let (picture, _) = part.split_once("</div>").expect("it ends");
        let names = [r#"<svg id="archived""#, r#"role="img""#, "aria-label="];
        assert!(names.iter().all(|name| picture.contains(name)), "{picture}");
        let (_, drawing) = PAGE.split_once("function archived(").expect("it is drawn");
        let (drawing, _) = drawing.split_once("\n}\n").expect("it ends");
        for shown in ["archive?.min_height", "archive.answers?.min_height", "blocks.min_height"] {
            assert!(drawing.contains(shown), "{shown}");
        }
        assert!(PAGE.contains("  archived(health);\n"));
    }

    #[test]
    fn only_a_browser_gets_the_page() {
        let asks = |method, accept: &'static str| {
            let mut headers = HeaderMap::new();
            headers.insert(ACCEPT, HeaderValue::from_static(accept));
            is_wanted(&method, &headers)
        };
        assert!(asks(Method::GET, "text/html,application/xhtml+xml;q=0.9"));
        assert!(asks(Method::HEAD, "application/json, text/html"));
        assert!(!asks(Method::GET, "application/json"));
        assert!(!asks(Method::GET, "*/*"));
        assert!(!asks(Method::POST, "text/html"));
        assert!(!is_wanted(&Method::GET, &HeaderMap::new()));
    }
}
