//! A chain in versitygw, with toxiproxy before it: a network that fails on demand.

use std::net::SocketAddr;
use std::path::Path;
use std::process::{Command, Stdio};

use serde_json::Value;

use super::programs::{Gateway, Owned, SECRET, STARTER, built, free_port, wait_for_listener};
use crate::archive::bucket::Bucket;
use crate::support::client::Client;
use crate::support::neve::Neve;

const TOXIPROXY: &str = "github.com/Shopify/toxiproxy/v2/cmd/server@v2.12.0";

/// A toxiproxy with one proxy.
pub(super) struct Toxiproxy {
    _process: Owned,
    /// Address of its API.
    api: SocketAddr,
    /// Port of the proxy.
    port: u16,
}

impl Toxiproxy {
    fn start(upstream: u16) -> Self {
        let api = free_port();
        let child = Command::new(built("toxiproxy-2.12.0", TOXIPROXY, "server"))
            .args(["-host", "127.0.0.1", "-port", &api.to_string()])
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn();
        let process = Owned(child.expect("it starts"));
        wait_for_listener("toxiproxy", api);
        let mut proxy = Self { _process: process, api: ([127, 0, 0, 1], api).into(), port: 0 };
        let made = proxy.post(
            "/proxies",
            &format!(
                r#"{{"name":"store","listen":"127.0.0.1:0","upstream":"127.0.0.1:{upstream}","enabled":true}}"#
            ),
        );
        let listen = made["listen"].as_str().and_then(|address| address.rsplit(':').next());
        proxy.port = listen.and_then(|port| port.parse().ok()).expect("it says where it listens");
        proxy
    }

    fn post(&self, path: &str, body: &str) -> Value {
        let headers = [("Content-Type", "application/json")];
        let answer = Client::new(self.api).request("POST", path, &headers, body.as_bytes());
        assert!((200..300).contains(&answer.status), "{path} {body}: {}", answer.text());
        if answer.body.is_empty() { Value::Null } else { answer.json() }
    }

    /// Adds a fault to all that the store sends.
    pub(super) fn add(&self, (kind, attributes): (&str, &str)) {
        let toxic =
            format!(r#"{{"type":"{kind}","stream":"downstream","attributes":{attributes}}}"#);
        self.post("/proxies/store/toxics", &toxic);
    }

    /// Refuses connections, and closes those that there are.
    pub(super) fn cut(&self) {
        self.post("/proxies/store", r#"{"enabled":false}"#);
    }

    /// Takes all faults away.
    pub(super) fn mend(&self) {
        self.post("/reset", "");
    }

    fn endpoint(&self) -> String {
        format!("http://127.0.0.1:{}", self.port)
    }
}

/// A chain in a gateway, and the network before it.
pub(super) struct Field {
    pub(super) bucket: Bucket,
    pub(super) gateway: Gateway,
    pub(super) network: Toxiproxy,
}

impl Field {
    /// Pushes the packed files of a bucket in a directory.
    pub(super) fn new(bucket: Bucket) -> Self {
        let gateway = Gateway::start();
        let store = bucket.source_dir.path().join("store").display().to_string();
        let (code, lines, errors) = gateway.run(SECRET, &["push", "--data-dir", &store]);
        assert_eq!(code, 0, "{lines:?} {errors}");
        let network = Toxiproxy::start(gateway.port);
        Self { bucket, gateway, network }
    }

    /// A replica whose tail is the newest range, and that reads over the network.
    pub(super) fn replica(&self, dir: &Path, more: &[&str]) -> Neve {
        let (endpoint, trust) = (self.network.endpoint(), self.gateway.trust());
        let place = ["--archive", "s3://bucket/a/b", "--archive-endpoint", &endpoint];
        let words = [&place[..], &["--archive-trust", &trust], more].concat();
        self.bucket.replica_by(&STARTER, dir, &words)
    }
}
