//! Keys of upstreams: parts of their addresses and of the HTTP headers that go to them.
//!
//! Servers repeat what they were sent: a 404 names its path. So texts of peers are made without the
//! keys of all upstreams that this process was told of.

use std::sync::{Arc, Mutex};

use memchr::memmem::Finder;

use crate::config::{Endpoint, SentHeaders};
use crate::shared::lock::lock;

/// Text that stands for a key.
pub(super) const HIDDEN: &str = "[hidden]";

/// Bytes of the shortest text that may be a key.
const KEY_BYTES_MIN: usize = 8;
/// Bytes of the longest word of small letters that is taken for a name, such as `avalanche`.
const WORD_BYTES_MAX: usize = 15;

/// All that must not be shown, longest first. It only grows: reloads add new keys.
static KNOWN: Mutex<Option<Arc<Secrets>>> = Mutex::new(None);

/// Texts that must not be shown.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Secrets(Vec<String>);

/// Hides the keys of this upstream in all texts from now on.
pub(crate) fn remember(endpoint: &Endpoint) {
    let mut known = lock(&KNOWN);
    let mut all = known.as_deref().cloned().unwrap_or_default();
    let before = all.0.len();
    for text in endpoint.secret_texts() {
        all.add(&text);
    }
    if all.0.len() > before {
        *known = Some(Arc::new(all));
    }
}

impl Secrets {
    /// Returns the texts that must not be shown at this moment.
    pub(super) fn known() -> Arc<Self> {
        lock(&KNOWN).clone().unwrap_or_default()
    }

    /// Adds a whole path, query or value, and those of its parts that may be keys.
    fn add(&mut self, text: &str) {
        let parts = text.split(['/', '?', '&', '=', ' ']).filter(|part| may_be_key(part));
        let whole = Some(text).filter(|text| text.len() >= KEY_BYTES_MIN);
        for secret in whole.into_iter().chain(parts) {
            if !self.0.iter().any(|known| known == secret) {
                self.0.push(secret.to_owned());
            }
        }
        // The longest first: one secret may be a part of another, as a key of its path.
        self.0.sort_by_key(|secret| std::cmp::Reverse(secret.len()));
    }

    /// Returns the length of the longest secret.
    pub(super) fn longest(&self) -> usize {
        self.0.first().map_or(0, String::len)
    }

    /// Returns the length of the secret that `text` begins with.
    pub(super) fn at(&self, text: &str) -> Option<usize> {
        self.0.iter().find(|secret| text.starts_with(&***secret)).map(String::len)
    }
}

/// Search for the keys of one upstream in its responses.
pub(crate) struct KeySearch {
    endpoint: Endpoint,
    finders: Mutex<Arc<Finders>>,
}

/// Searches for the keys of an upstream, as long as these headers are in force.
struct Finders {
    sent: Arc<SentHeaders>,
    all: Vec<Finder<'static>>,
}

impl Finders {
    fn of(endpoint: &Endpoint, sent: Arc<SentHeaders>) -> Self {
        let mut own = Secrets::default();
        endpoint.secret_texts().iter().for_each(|text| own.add(text));
        let all = own.0.iter().map(|secret| Finder::new(secret).into_owned()).collect();
        Self { sent, all }
    }
}

impl KeySearch {
    pub(crate) fn new(endpoint: &Endpoint) -> Self {
        let finders = Finders::of(endpoint, endpoint.headers.sent());
        Self { endpoint: endpoint.clone(), finders: Mutex::new(Arc::new(finders)) }
    }

    /// True if a key of the upstream stands in `bytes`, also one that a reload has replaced.
    pub(crate) fn finds_any(&self, bytes: &[u8]) -> bool {
        self.finders().all.iter().any(|finder| finder.find(bytes).is_some())
    }

    /// Name of the upstream, without its keys.
    pub(crate) fn upstream(&self) -> &str {
        &self.endpoint.name
    }

    /// Length of the longest key; 0 without any.
    pub(crate) fn longest(&self) -> usize {
        self.finders().all.first().map_or(0, |finder| finder.needle().len())
    }

    /// Writes `*` over each key that stands in `bytes`, so that their length stays. True if one did.
    pub(crate) fn hide(&self, bytes: &mut [u8]) -> bool {
        let mut is_found = false;
        for finder in &self.finders().all {
            let mut rest = &mut *bytes;
            while let Some(at) = finder.find(rest) {
                let (hidden, behind) = rest[at..].split_at_mut(finder.needle().len());
                hidden.fill(b'*');
                (rest, is_found) = (behind, true);
            }
        }
        is_found
    }

    /// Searches for the keys at this moment. A reload may have brought others.
    fn finders(&self) -> Arc<Finders> {
        let sent = self.endpoint.headers.sent();
        let mut finders = lock(&self.finders);
        if !Arc::ptr_eq(&finders.sent, &sent) {
            *finders = Arc::new(Finders::of(&self.endpoint, sent));
        }
        Arc::clone(&finders)
    }
}

fn may_be_key(part: &str) -> bool {
    let is_name =
        part.len() <= WORD_BYTES_MAX && part.bytes().all(|byte| byte.is_ascii_lowercase());
    part.len() >= KEY_BYTES_MIN && !is_name
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    pub(in crate::client) fn of(texts: &[&str]) -> Secrets {
        let mut secrets = Secrets::default();
        texts.iter().for_each(|text| secrets.add(text));
        secrets
    }

    #[test]
    fn parts_of_an_address_that_may_be_keys_are_secrets() {
        let path = "/avalanche/v2/K3y-of-8/rpc?token=abcdefghijklmnop";
        let secrets = of(&[path, "Bearer tokenToken"]);
        let hides = |text: &str| secrets.at(text);
        assert_eq!(hides("K3y-of-8 is unknown"), Some(8));
        assert_eq!(hides("abcdefghijklmnop"), Some(16), "no name is that long");
        assert_eq!(hides("tokenToken"), Some(10));
        assert_eq!(hides("Bearer tokenToken"), Some(17), "the longest");
        for shown in ["avalanche is down", "/avalanche", "rpc", "token=", "K3y-of-", "Bearer"] {
            assert_eq!(hides(shown), None, "{shown}");
        }
        assert_eq!((secrets.longest(), hides(path)), (path.len(), Some(path.len())));
    }

    #[test]
    fn key_is_found_wherever_it_stands() {
        let of = |url: &str| KeySearch::new(&Endpoint::parse(url).unwrap());
        let search = of("http://host/v1/K3y-of-8/rpc");
        let found = [&br#"{"error":"no key K3y-of-8"}"#[..], b"K3y-of-8"];
        assert!(found.iter().all(|text| search.finds_any(text)));
        assert!(!search.finds_any(b"K3y-of-9, /v1/rpc") && !of("http://host").finds_any(b"x"));
    }

    #[test]
    fn key_is_written_over_wherever_it_stands() {
        let of = |url: &str| KeySearch::new(&Endpoint::parse(url).unwrap());
        let (search, none) = (of("http://host/v1/K3y-of-8/rpc"), of("http://host"));
        assert_eq!((search.longest(), none.longest()), ("/v1/K3y-of-8/rpc".len(), 0));
        let mut text = *b"K3y-of-8 K3y-of-9 /v1/K3y-of-8/rpc";
        assert!(!none.hide(&mut text) && search.hide(&mut text) && !search.hide(&mut text));
        assert_eq!(&text, b"******** K3y-of-9 ****************");
    }

    #[test]
    fn short_texts_are_no_secrets() {
        assert_eq!(of(&["/rpc", "/a/b", "", "/x=y"]), Secrets::default());
    }
}
