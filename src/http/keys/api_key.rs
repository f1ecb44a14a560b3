//! A key: its name, hash, rate and methods, and counts of its use.

use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Instant;

use alloy_primitives::B256;
use neve_jsonrpc::{Kind, Message, parse_at_most};
use sha2::{Digest, Sha256};

use super::refusal::{KeyRefusal, messages};
use crate::config::MethodPattern;
use crate::shared::Allowance;
use crate::shared::lock::lock;

/// SHA-256 of a key. Keys are found by it, so no time tells anything of a key.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct KeyHash(B256);

impl KeyHash {
    /// Hashes a key as a client names it.
    pub(crate) fn of(key: &[u8]) -> Self {
        Self(B256::new(Sha256::digest(key).into()))
    }

    /// Reads 64 hex digits.
    pub(super) fn parse(text: &str) -> Option<Self> {
        // The parser of `B256` takes this prefix, and the file has one form only.
        let digits = Some(text).filter(|text| !text.starts_with("0x"))?;
        digits.parse().ok().map(Self)
    }
}

impl fmt::Display for KeyHash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:x}", self.0)
    }
}

/// A key of the file.
pub(super) struct ApiKey {
    pub(super) name: String,
    pub(super) hash: KeyHash,
    /// Methods that it may call; `None` for all.
    pub(super) methods: Option<Vec<MethodPattern>>,
    allowance: Option<Mutex<Allowance>>,
    /// Counts, which the key of this name in the next file goes on with.
    pub(super) used: Arc<KeyUse>,
}

/// Requests and calls of one key.
#[derive(Default)]
pub(super) struct KeyUse {
    pub(super) ok: AtomicU64,
    pub(super) limited: AtomicU64,
    pub(super) method: AtomicU64,
    pub(super) calls: AtomicU64,
}

impl ApiKey {
    pub(super) fn new(
        name: String,
        hash: KeyHash,
        a_second: Option<f64>,
        methods: Option<Vec<MethodPattern>>,
    ) -> Self {
        let now = Instant::now();
        let allowance = a_second.map(|a_second| Mutex::new(Allowance::new(a_second, now)));
        Self { name, hash, methods, allowance, used: Arc::default() }
    }

    /// Admits a body of JSON-RPC with up to `items_max` calls, or refuses all of it.
    pub(super) fn admit(&self, body: &[u8], items_max: usize) -> Result<(), KeyRefusal> {
        let is_batch = body.trim_ascii_start().first() == Some(&b'[');
        // Any such request counts as one call, so it need not be parsed.
        if !is_batch && self.methods.is_none() {
            return self.take(1).map_err(|refusal| refusal.of(body, items_max));
        }
        let request = parse_at_most(body, items_max);
        let calls = messages(&request).filter(|message| is_call(message));
        let allowed = |message: &Message<'_>| {
            let methods = self.methods.as_ref();
            methods.is_none_or(|all| all.iter().any(|one| one.matches(&message.method())))
        };
        let (mut sum, mut refused) = (0_u32, false);
        for message in calls {
            (sum, refused) = (sum.saturating_add(1), refused || !allowed(message));
        }
        // Before the rate: calls that are not allowed use up none of it.
        if refused {
            count(&self.used.method, 1);
            return Err(KeyRefusal::method().of(body, items_max));
        }
        self.take(sum).map_err(|refusal| refusal.of(body, items_max))
    }

    /// Admits calls to another API of the node, as [`Self::admit`] does. A key with methods may make none.
    pub(super) fn admit_other_api(&self, body: &[u8], items_max: usize) -> Result<(), KeyRefusal> {
        if self.methods.is_some() {
            count(&self.used.method, 1);
            return Err(KeyRefusal::method().of(body, items_max));
        }
        self.admit(body, items_max)
    }

    /// Admits a request for something else than JSON-RPC. A key with methods may make none.
    pub(super) fn admit_other(&self) -> Result<(), KeyRefusal> {
        if self.methods.is_some() {
            count(&self.used.method, 1);
            return Err(KeyRefusal::method());
        }
        self.take(1)
    }

    fn take(&self, calls: u32) -> Result<(), KeyRefusal> {
        let taken = self.allowance.as_ref().map(|left| lock(left).take(calls, Instant::now()));
        if let Some(Err(wait)) = taken {
            count(&self.used.limited, 1);
            return Err(KeyRefusal::limited(wait));
        }
        count(&self.used.ok, 1);
        count(&self.used.calls, u64::from(calls));
        Ok(())
    }
}

fn count(counter: &AtomicU64, more: u64) {
    counter.fetch_add(more, Ordering::Relaxed);
}

fn is_call(message: &Message<'_>) -> bool {
    matches!(message.kind(), Kind::Call | Kind::Notification)
}
