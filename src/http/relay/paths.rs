//! Other paths of the node that are relayed: each exactly, as the settings name it.

use std::sync::Arc;

use hyper::http::uri::{PathAndQuery, Uri};

use crate::http::admit::decode;

/// Paths that are relayed.
#[derive(Debug, Clone, Default)]
pub(crate) struct RelayPaths(Arc<[PathAndQuery]>);

impl RelayPaths {
    /// Takes the paths of the settings, which were checked.
    pub(crate) fn new(paths: &[String]) -> Self {
        Self(paths.iter().filter_map(|path| path.parse().ok()).collect())
    }

    /// The path that a request names, if it is relayed. It is compared after one percent-decoding. A
    /// slash that is encoded is none, and a request with a query names another document.
    pub(crate) fn of(&self, uri: &Uri) -> Option<&PathAndQuery> {
        if self.0.is_empty() || uri.query().is_some() {
            return None; // nearly always
        }
        let path = uri.path();
        let is_encoded = |escape: &str| path.to_ascii_lowercase().contains(escape);
        // A server behind neve may take each of these for a slash, and answer for another path.
        if path.contains('\\') || is_encoded("%2f") || is_encoded("%5c") {
            return None;
        }
        let decoded = decode(path)?;
        self.0.iter().find(|known| known.path() == decoded)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn path_is_compared_exactly_after_one_decoding() {
        let paths = ["/ext/info", "/ext/bc/P"].map(str::to_owned);
        let paths = RelayPaths::new(&paths);
        let of = |text: &str| {
            let uri: Uri = text.parse().ok()?;
            paths.of(&uri).map(PathAndQuery::as_str)
        };
        for (text, found) in [
            ("/ext/info", "/ext/info"),
            ("/ext/bc/P", "/ext/bc/P"),
            ("/ext/%69nfo", "/ext/info"),
            ("http://host/ext/info", "/ext/info"),
        ] {
            assert_eq!(of(text), Some(found), "{text}");
        }
        for text in [
            "/ext/info/",
            "/ext/info?x=1",
            "/ext/info?",
            "/ext/Info",
            "/ext/bc/p",
            "/ext/bc/P/x",
            "/ext/bc/X",
            "/ext//info",
            "/ext/./info",
            "/ext/bc/../info",
            "/ext/bc/%2e%2e/info",
            "/ext%2finfo",
            "/ext%2Finfo",
            "/ext%5cinfo",
            "/ext/%2569nfo",
            "/ext/inf%6",
            "/ext/info%00",
            "/",
            "*",
        ] {
            assert_eq!(of(text), None, "{text}");
        }
        assert_eq!(RelayPaths::default().of(&"/ext/info".parse().unwrap()), None);
    }
}
