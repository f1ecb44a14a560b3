//! Results that no block tells, as the upstream sent them: what it is, and what it charges.
//!
//! They are asked for by the follower, never on a caller's request, and go with the upstream's
//! next answer or when they are too old.

use std::collections::HashMap;
use std::sync::RwLock;
use std::time::{Duration, Instant};

use bytes::Bytes;
use tokio::sync::Notify;

use super::lock::{read, write};

/// What stays the same for as long as a connection to the upstream does.
pub(crate) const CONSTANT: [&str; 3] = ["web3_clientVersion", "eth_getChainConfig", "rpc_modules"];
/// What changes from block to block, or while nothing happens: prices, which the upstream computes
/// from its clock and its memory, and since Helicon its peers.
pub(crate) const CURRENT: [&str; 5] = [
    "eth_gasPrice",
    "eth_baseFee",
    "eth_maxPriorityFeePerGas",
    "eth_suggestPriceOptions",
    "net_peerCount",
];

/// Relayed results by method.
#[derive(Debug, Default)]
pub(crate) struct UpstreamValues {
    results: RwLock<HashMap<&'static str, (Bytes, Instant)>>,
    connected: Notify,
}

impl UpstreamValues {
    /// Says that the upstream was connected to: it may be another one, or of another release.
    pub(crate) fn ask_again(&self) {
        self.connected.notify_one();
    }

    /// Waits until it was connected to.
    pub(crate) async fn connected(&self) {
        self.connected.notified().await;
    }

    /// Takes a new result; `None` forgets the old one.
    pub(crate) fn set(&self, method: &'static str, result: Option<Bytes>) {
        let mut results = write(&self.results);
        match result {
            Some(result) => drop(results.insert(method, (result, Instant::now()))),
            None => drop(results.remove(method)),
        }
    }

    /// The result of a method, if it is not older than `age_max`.
    pub(crate) fn get(&self, method: &str, age_max: Duration) -> Option<Bytes> {
        let results = read(&self.results);
        let (result, at) = results.get(method)?;
        (at.elapsed() <= age_max).then(|| result.clone())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn results_are_given_until_they_are_old() {
        let relayed = UpstreamValues::default();
        assert_eq!(relayed.get("eth_gasPrice", Duration::MAX), None);
        relayed.set("eth_gasPrice", Some(Bytes::from_static(b"\"0x1\"")));
        assert_eq!(relayed.get("eth_gasPrice", Duration::MAX).as_deref(), Some(&b"\"0x1\""[..]));
        assert_eq!(relayed.get("eth_gasPrice", Duration::ZERO), None);
        assert_eq!(relayed.get("eth_baseFee", Duration::MAX), None);
        relayed.set("eth_gasPrice", None);
        assert_eq!(relayed.get("eth_gasPrice", Duration::MAX), None);
    }
}
