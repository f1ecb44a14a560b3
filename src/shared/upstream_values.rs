//! Results that no block has, as the upstream sent them: its version, its configuration, its prices.
//!
//! The follower requests them at each head, and prices also when a client wants one that is too old:
//! one request for all clients. They go with the upstream's next answer or when they are too old.

use std::collections::HashMap;
use std::sync::RwLock;
use std::time::{Duration, Instant};

use bytes::Bytes;
use tokio::sync::{Notify, watch};
use tokio::time::timeout;

use super::lock::{read, write};
use super::work::Began;

/// Methods whose values stay the same for as long as a connection to the upstream does.
pub(crate) const CONSTANT: [&str; 3] = ["web3_clientVersion", "eth_getChainConfig", "rpc_modules"];
/// Methods whose values change from block to block, or while nothing happens: prices, which the
/// upstream computes from its clock and its memory, and since Helicon its peers.
pub(crate) const CURRENT: [&str; 5] = [
    "eth_gasPrice",
    "eth_baseFee",
    "eth_maxPriorityFeePerGas",
    "eth_suggestPriceOptions",
    "net_peerCount",
];

/// Time after a request for prices in which no client waits for another one: after a failure, and
/// after a success.
const AGAIN: Duration = Duration::from_secs(1);
const SOON: Duration = Duration::from_millis(100);
/// Time that a client waits for a price.
const WAIT_MAX: Duration = Duration::from_secs(2);

/// Relayed results by method.
#[derive(Debug, Default)]
pub(crate) struct UpstreamValues {
    results: RwLock<HashMap<&'static str, (Bytes, Instant)>>,
    connected: Notify,
    wanted: Notify,
    /// Time from which on clients may wait for prices again.
    due: watch::Sender<Option<Instant>>,
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

    /// True if a client that wants `method` should wait for a new result: it is a price, and prices
    /// were not requested a moment ago.
    pub(crate) fn is_due(&self, method: &str) -> bool {
        CURRENT.contains(&method) && self.are_prices_due()
    }

    /// True if prices were not requested a moment ago.
    pub(crate) fn are_prices_due(&self) -> bool {
        self.due.borrow().is_none_or(|due| due <= Instant::now())
    }

    /// Has prices requested, and waits for the result, at most two seconds. Calls that wait at the same
    /// time share one request.
    pub(crate) async fn request_prices(&self) {
        let mut due = self.due.subscribe();
        self.wanted.notify_one();
        if timeout(WAIT_MAX, due.changed()).await.is_err() {
            self.prices_requested(false); // the next client need not wait as long
        }
    }

    /// Waits until a client wants a price.
    pub(crate) async fn wanted(&self) {
        self.wanted.notified().await;
    }

    /// Says that prices were requested, and whether an upstream answered.
    pub(crate) fn prices_requested(&self, answered: bool) {
        self.due.send_replace(Some(Instant::now() + if answered { SOON } else { AGAIN }));
    }

    /// Takes a new result; `None` forgets the old one.
    pub(crate) fn set(&self, method: &'static str, result: Option<Bytes>) {
        let mut results = write(&self.results);
        match result {
            Some(result) => drop(results.insert(method, (result, Instant::now()))),
            None => drop(results.remove(method)),
        }
    }

    /// The result of a method, if it is not older than `age_max`, or came no earlier than `since`.
    pub(crate) fn get(
        &self,
        method: &str,
        age_max: Duration,
        since: Option<Began>,
    ) -> Option<Bytes> {
        let results = read(&self.results);
        let (result, at) = results.get(method)?;
        let is_new = at.elapsed() <= age_max || since.is_some_and(|began| began.is_before(*at));
        is_new.then(|| result.clone())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn clients_share_one_request_for_prices_and_wait_only_so_long() {
        let relayed = UpstreamValues::default();
        assert!(relayed.is_due("eth_gasPrice") && !relayed.is_due("web3_clientVersion"));
        let asked = async {
            relayed.wanted().await;
            relayed.prices_requested(true);
        };
        // On a busy machine the moment may be over before the look.
        let is_due_within = |time, since: Instant| {
            let is_due = relayed.is_due("eth_gasPrice");
            is_due && since.elapsed() < time
        };
        let began = Instant::now();
        tokio::join!(relayed.request_prices(), relayed.request_prices(), asked);
        assert!(!is_due_within(SOON, began), "a moment ago");
        let began = Instant::now();
        relayed.request_prices().await;
        assert!(began.elapsed() >= WAIT_MAX, "no upstream answers");
        assert!(!is_due_within(WAIT_MAX + AGAIN, began));
    }

    #[test]
    fn results_are_given_until_they_are_old() {
        let relayed = UpstreamValues::default();
        let get = |method, age_max| relayed.get(method, age_max, None);
        assert_eq!(get("eth_gasPrice", Duration::MAX), None);
        relayed.set("eth_gasPrice", Some(Bytes::from_static(b"\"0x1\"")));
        assert_eq!(get("eth_gasPrice", Duration::MAX).as_deref(), Some(&b"\"0x1\""[..]));
        assert_eq!(get("eth_gasPrice", Duration::ZERO), None);
        assert_eq!(get("eth_baseFee", Duration::MAX), None);
        relayed.set("eth_gasPrice", None);
        assert_eq!(get("eth_gasPrice", Duration::MAX), None);
    }

    #[test]
    fn result_that_came_for_a_request_is_not_old_for_it() {
        let (relayed, before) = (UpstreamValues::default(), Began::now());
        let get = |since| relayed.get("eth_gasPrice", Duration::ZERO, Some(since));
        assert_eq!(get(before), None);
        relayed.set("eth_gasPrice", Some(Bytes::from_static(b"\"0x1\"")));
        let set = Instant::now();
        while Instant::now() == set {}
        assert_eq!(get(before).as_deref(), Some(&b"\"0x1\""[..]));
        assert_eq!(get(Began::now()), None, "it came for another");
    }
}
