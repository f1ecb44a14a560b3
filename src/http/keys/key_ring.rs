//! All keys of a file, which a reload replaces while neve runs.

use std::collections::HashMap;
use std::path::Path;
use std::sync::Arc;

use arc_swap::ArcSwap;
use metrics::counter;

use super::api_key::{ApiKey, KeyHash};
use super::key_file;
use super::refusal::KeyRefusal;

/// Characters of a key that is looked up; a longer one is none.
const KEY_LEN_MAX: usize = 256;

/// Keys by their hashes.
pub(crate) struct KeyRing(HashMap<KeyHash, ApiKey>);

/// Keys that all threads read and a reload replaces.
pub(crate) type LiveKeys = Arc<ArcSwap<KeyRing>>;

/// Key that a client named. It is looked up at each use, so that a reload holds at once.
#[derive(Clone)]
pub(crate) struct ClientKey {
    hash: KeyHash,
    keys: LiveKeys,
}

impl KeyRing {
    /// Reads a file of keys. The error names the file and the line.
    pub(crate) fn read(path: &Path) -> Result<Self, String> {
        Ok(Self::of(key_file::read(path)?))
    }

    pub(super) fn of(keys: Vec<ApiKey>) -> Self {
        Self(keys.into_iter().map(|key| (key.hash, key)).collect())
    }

    /// Goes on with the counts of the keys that have the same names in `earlier`.
    pub(crate) fn continuing(mut self, earlier: &Self) -> Self {
        let uses = |key: &ApiKey| (key.name.clone(), Arc::clone(&key.used));
        let uses: HashMap<_, _> = earlier.0.values().map(uses).collect();
        for key in self.0.values_mut() {
            if let Some(used) = uses.get(&key.name) {
                key.used = Arc::clone(used);
            }
        }
        self
    }

    /// Returns all keys of the ring, in any order.
    pub(super) fn keys(&self) -> impl Iterator<Item = &ApiKey> {
        self.0.values()
    }

    /// Number of keys.
    pub(crate) fn len(&self) -> usize {
        self.0.len()
    }
}

impl ClientKey {
    /// Finds the key that a request named.
    pub(super) fn find(keys: &LiveKeys, named: Option<&[u8]>) -> Result<Self, KeyRefusal> {
        // To hash a text of any length would cost what its sender likes.
        let named = named.filter(|key| key.len() <= KEY_LEN_MAX);
        let found = named.map(KeyHash::of).filter(|hash| keys.load().0.contains_key(hash));
        let Some(hash) = found else {
            counter!("neve_key_unknown_requests_total").increment(1);
            return Err(KeyRefusal::unknown());
        };
        Ok(Self { hash, keys: Arc::clone(keys) })
    }

    /// Name of the key, if the file still has it.
    pub(crate) fn name(&self) -> Option<Arc<str>> {
        self.keys.load().0.get(&self.hash).map(|key| key.name.as_str().into())
    }

    /// True if the file still has the key.
    pub(crate) fn is_known(&self) -> bool {
        self.keys.load().0.contains_key(&self.hash)
    }

    /// Admits a body of JSON-RPC with up to `items_max` calls, or refuses all of it.
    pub(crate) fn admit(&self, body: &[u8], items_max: usize) -> Result<(), KeyRefusal> {
        self.with(|key| key.admit(body, items_max))
    }

    /// Admits a body with up to `items_max` calls to another API of the node, or refuses all of it.
    pub(crate) fn admit_other_api(&self, body: &[u8], items_max: usize) -> Result<(), KeyRefusal> {
        self.with(|key| key.admit_other_api(body, items_max))
    }

    /// Admits a request for something else than JSON-RPC.
    pub(crate) fn admit_other(&self) -> Result<(), KeyRefusal> {
        self.with(ApiKey::admit_other)
    }

    fn with(
        &self,
        admit: impl FnOnce(&ApiKey) -> Result<(), KeyRefusal>,
    ) -> Result<(), KeyRefusal> {
        self.keys.load().0.get(&self.hash).map_or_else(|| Err(KeyRefusal::unknown()), admit)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const CALL: &str = r#"{"jsonrpc":"2.0","id":7,"method":"eth_call"}"#;
    const ITEMS_MAX: usize = 1000;

    fn ring(members: &str) -> (LiveKeys, ClientKey) {
        let text = key_file::entry("shop", KeyHash::of(b"secret")).unwrap() + members;
        let ring = KeyRing::of(key_file::parse(&text).unwrap());
        let keys = Arc::new(ArcSwap::from_pointee(ring));
        let key = ClientKey::find(&keys, Some(b"secret")).unwrap();
        (keys, key)
    }

    fn told(refusal: Result<(), KeyRefusal>) -> String {
        String::from_utf8(refusal.unwrap_err().text()).unwrap()
    }

    #[test]
    fn key_is_found_by_its_hash_until_a_reload_drops_it() {
        let (keys, key) = ring("");
        let long = [b'x'; KEY_LEN_MAX + 1];
        for named in [None, Some(&b""[..]), Some(b"secre"), Some(b"secret "), Some(&long)] {
            assert!(ClientKey::find(&keys, named).is_err());
        }
        assert!(key.is_known() && key.admit(CALL.as_bytes(), ITEMS_MAX).is_ok());
        keys.store(Arc::new(KeyRing::of(Vec::new())));
        assert!(!key.is_known());
        assert!(told(key.admit(CALL.as_bytes(), ITEMS_MAX)).contains("missing or unknown"));
    }

    #[test]
    fn refused_body_gets_an_error_for_each_call() {
        let (_, key) = ring("methods = [\"eth_get*\"]\n");
        let error = r#""error":{"code":-32000,"message":"API key: this method is not allowed"}}"#;
        let one = |id: u32| format!(r#"{{"jsonrpc":"2.0","id":{id},{error}"#);
        assert_eq!(told(key.admit(CALL.as_bytes(), ITEMS_MAX)), format!("{}\n", one(7)));
        let allowed = CALL.replace("eth_call", "eth_getCode").replace('7', "8");
        assert!(key.admit(allowed.as_bytes(), ITEMS_MAX).is_ok());
        let batch = format!(" [{allowed},{CALL}]");
        let expected = format!("[{},{}]\n", one(8), one(7));
        assert_eq!(told(key.admit(batch.as_bytes(), ITEMS_MAX)), expected);
        // A key that stands twice is read as the call is.
        let twice = r#"{"jsonrpc":"2.0","id":1,"method":"eth_getCode","METHOD":"eth_call"}"#;
        assert!(key.admit(twice.as_bytes(), ITEMS_MAX).is_err());
        assert!(key.admit_other().is_err(), "documents have no method");
    }

    /// An id is escaped: six bytes for one.
    #[test]
    fn refusal_of_long_ids_is_short() {
        let (_, key) = ring("methods = [\"eth_get*\"]\n");
        let with_id = |len: usize| CALL.replace('7', &format!("\"{}\"", "<".repeat(len)));
        let short = with_id(40_000);
        assert!(told(key.admit(short.as_bytes(), ITEMS_MAX)).len() > 240_000);
        let error = r#""error":{"code":-32000,"message":"API key: this method is not allowed"}}"#;
        let expected = format!("{{\"jsonrpc\":\"2.0\",\"id\":null,{error}\n");
        let many = format!("[{}]", vec![CALL; ITEMS_MAX].join(","));
        let each = told(key.admit(many.as_bytes(), ITEMS_MAX));
        assert_eq!(each.matches("\"id\":7").count(), ITEMS_MAX);
        let long = vec![CALL; 3 * ITEMS_MAX].join(",");
        for body in [with_id(50_000), format!("[{short},{short}]"), format!("[{long}]")] {
            assert_eq!(told(key.admit(body.as_bytes(), 3 * ITEMS_MAX)), expected);
        }
    }

    #[test]
    fn each_call_of_a_batch_counts_against_the_rate() {
        let (_, key) = ring("requests-per-second = 3\n");
        let batch = format!("[{CALL},{CALL},{CALL}]");
        assert!(key.admit(batch.as_bytes(), ITEMS_MAX).is_ok());
        assert!(told(key.admit(CALL.as_bytes(), ITEMS_MAX)).contains("\"id\":7"));
        assert!(key.admit_other().is_err());
    }
}
