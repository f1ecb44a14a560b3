//! Facts that a node tells of itself, beside its C-chain: its release and the upgrades of its network.

use std::time::{Duration, SystemTime};

use bytes::Bytes;
use http_body_util::{BodyExt, Limited};
use hyper::header::HeaderMap;
use hyper::http::uri::PathAndQuery;
use metrics::gauge;
use serde_json::{Value, json};
use tokio::time::{sleep, timeout};
use tracing::warn;

use super::upgrades::{NOTICE, time_left};
use crate::client::{PeerText, StreamClient};
use crate::config::Endpoint;

/// The path of the node's own facts, and bytes of its answers.
const INFO: &str = "/ext/info";
const INFO_BYTES_MAX: usize = 64 << 10;
/// Time between two requests for upgrades. A node learns of one when it is upgraded itself.
const ASK_INTERVAL: Duration = Duration::from_hours(6);
/// Time of the first request: following begins before it.
const FIRST_ASKED_AFTER: Duration = Duration::from_mins(1);
/// Time for an answer, where nothing waits for it.
const PATIENCE: Duration = Duration::from_secs(30);

/// Asks a node for its own facts.
pub(crate) struct NodeInfo {
    name: String,
    client: StreamClient,
    patience: Duration,
}

impl NodeInfo {
    /// A client, if the address is that of a node's C-chain. Providers have other paths.
    pub(crate) fn new(
        endpoint: &Endpoint,
        tls: rustls::ClientConfig,
        patience: Duration,
    ) -> Option<Self> {
        let is_node = endpoint.rpc.reveal().path() == "/ext/bc/C/rpc";
        let name = endpoint.name.clone();
        let client = || StreamClient::new(endpoint, tls, patience);
        is_node.then(|| Self { name, client: client(), patience })
    }

    /// The result of a call to the node's own API.
    pub(crate) async fn call(&self, method: &str) -> Option<Value> {
        let call = json!({ "jsonrpc": "2.0", "id": 1, "method": method, "params": {} });
        let path = PathAndQuery::from_static(INFO);
        let body = async {
            let call = Bytes::from(call.to_string());
            let sent = self.client.send(Some(&path), Some(call), HeaderMap::new()).await;
            let body = Limited::new(sent.ok()?.into_body(), INFO_BYTES_MAX).collect().await;
            Some(body.ok()?.to_bytes())
        };
        let body = timeout(self.patience, body).await.ok()??;
        let mut answer: Value = serde_json::from_slice(&body).ok()?;
        answer.get_mut("result").map(Value::take)
    }

    /// Upgrades of its network: the key and the time of each, as texts. `None` without an answer.
    pub(crate) async fn upgrades(&self) -> Option<Vec<(PeerText, PeerText)>> {
        let upgrades = self.call("info.upgrades").await?;
        let all = upgrades.as_object().into_iter().flatten();
        let text = |(key, time): (&String, &Value)| {
            (PeerText::new(key), PeerText::new(time.as_str().unwrap_or_default()))
        };
        Some(all.map(text).collect())
    }

    /// Time until the first upgrade that this neve does not know, of those with a time. Warns of it. `None` if the
    /// node gives no answer.
    async fn unknown_upgrade(&self, now: SystemTime) -> Option<Option<Duration>> {
        let mut first = None;
        for (key, time) in self.upgrades().await? {
            let Some(left) = time_left(key.as_str(), time.as_str(), now) else { continue };
            if left.is_none_or(|left| left <= NOTICE) {
                warn!(upstream = %self.name, upgrade = %key, at = %time, "upgrade unknown to this neve");
            }
            first = [first, left].into_iter().flatten().min();
        }
        Some(first)
    }
}

/// Asks nodes for their upgrades again and again, and tells of those that this neve does not know.
pub(crate) async fn watch_upgrades(endpoints: Vec<Endpoint>, tls: rustls::ClientConfig) {
    let of = |endpoint| NodeInfo::new(endpoint, tls.clone(), PATIENCE);
    let nodes: Vec<_> = endpoints.iter().filter_map(of).collect();
    // What upstreams said that were replaced does not hold any more.
    publish(None);
    sleep(FIRST_ASKED_AFTER).await;
    while !nodes.is_empty() {
        look(&nodes).await;
        sleep(ASK_INTERVAL).await;
    }
}

/// Publishes the time until the first upgrade that this neve does not know.
async fn look(nodes: &[NodeInfo]) {
    let mut answers = Vec::new();
    for node in nodes {
        answers.extend(node.unknown_upgrade(SystemTime::now()).await);
    }
    // A node that is away for a while has the same upgrades as before.
    if !answers.is_empty() {
        publish(answers.into_iter().flatten().min());
    }
}

fn publish(first: Option<Duration>) {
    let seconds = first.map_or(f64::INFINITY, |left| left.as_secs_f64());
    gauge!("neve_upstream_unknown_upgrade_seconds").set(seconds);
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};
    use std::net::TcpListener;
    use std::thread;

    use metrics::with_local_recorder;
    use metrics_exporter_prometheus::PrometheusBuilder;

    use super::*;
    use crate::client::client_config;

    /// A node that answers each of some requests with these upgrades, and its endpoint.
    fn node(requests: usize, upgrades: &Value) -> (Endpoint, thread::JoinHandle<()>) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let body = json!({ "jsonrpc": "2.0", "id": 1, "result": upgrades }).to_string();
        let answering = thread::spawn(move || {
            for _ in 0..requests {
                let (mut stream, _) = listener.accept().unwrap();
                let mut request = [0; 4096];
                let len = stream.read(&mut request).unwrap();
                assert!(request[..len].starts_with(b"POST /ext/info "));
                // Without a length the body ends with the connection.
                write!(stream, "HTTP/1.1 200 OK\r\nconnection: close\r\n\r\n{body}").unwrap();
            }
        });
        (Endpoint::parse(&format!("http://{address}")).unwrap(), answering)
    }

    fn seconds_left(endpoint: &Endpoint) -> String {
        let recorder = PrometheusBuilder::new().build_recorder();
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let info = NodeInfo::new(endpoint, client_config(None).unwrap(), PATIENCE).unwrap();
        with_local_recorder(&recorder, || runtime.block_on(look(&[info])));
        let page = recorder.handle().render();
        let line = page.lines().find(|line| line.starts_with("neve_upstream_unknown_upgrade"));
        line.unwrap().split(' ').nth(1).unwrap().to_owned()
    }

    #[test]
    fn node_that_is_away_changes_nothing() {
        let soon = SystemTime::now() + Duration::from_hours(24 * 40);
        let soon = humantime::format_rfc3339_seconds(soon).to_string();
        let (endpoint, answering) = node(1, &json!({ "nextTime": soon }));
        let recorder = PrometheusBuilder::new().build_recorder();
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let info = NodeInfo::new(&endpoint, client_config(None).unwrap(), PATIENCE).unwrap();
        with_local_recorder(&recorder, || runtime.block_on(look(std::slice::from_ref(&info))));
        answering.join().unwrap();
        let before = recorder.handle().render();
        with_local_recorder(&recorder, || runtime.block_on(look(&[info])));
        assert!(!before.to_lowercase().contains("inf"), "{before}");
        assert_eq!(recorder.handle().render(), before);
    }

    #[test]
    fn first_upgrade_that_is_not_known_is_a_metric() {
        let soon = SystemTime::now() + Duration::from_hours(24 * 40);
        let soon = humantime::format_rfc3339_seconds(soon).to_string();
        let upgrades = json!({
            "graniteTime": "2025-11-19T16:00:00Z", "laterTime": "2999-01-01T00:00:00Z",
            "nextTime": soon, "openTime": "9999-12-01T00:00:00Z", "graniteEpochDuration": 1,
        });
        let (endpoint, answering) = node(1, &upgrades);
        let left: f64 = seconds_left(&endpoint).parse().unwrap();
        assert!((39.0..=40.0).contains(&(left / 86_400.0)), "{left}");
        answering.join().unwrap();
        let (endpoint, answering) = node(1, &json!({ "heliconTime": "2026-09-22T15:00:00Z" }));
        assert!(seconds_left(&endpoint).to_lowercase().contains("inf"));
        answering.join().unwrap();
        let provider = Endpoint::parse("http://provider/key").unwrap();
        assert!(NodeInfo::new(&provider, client_config(None).unwrap(), PATIENCE).is_none());
    }
}
