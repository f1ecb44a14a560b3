//! A front: whether hits come through it, and whether misses reach a node.

use std::path::Path;
use std::time::Duration;

use bytes::Bytes;
use http_body_util::{BodyExt, Limited};
use hyper::StatusCode;
use hyper::header::HeaderMap;
use serde_json::Value;
use tokio::time::timeout;

use super::report::Finding;
use crate::client::{PeerText, StreamClient, client_config, innermost};
use crate::config::Endpoint;
use crate::config::settings::{Config, UpstreamConfig};

/// Time for an answer, that of the node behind the front included, and bytes of it.
const ANSWER_TIME_MAX: Duration = Duration::from_secs(15);
const ANSWER_BYTES_MAX: usize = 1 << 20;
/// The header by which neve names the source of a response.
const SOURCE: &str = "x-neve";
/// A call that neve serves, and one that needs a node: state is not stored.
const HIT: (&str, &str) = ("eth_blockNumber", "[]");
const MISS: (&str, &str) =
    ("eth_getBalance", r#"["0x0000000000000000000000000000000000000000","latest"]"#);

/// Asks the front at this address.
pub(super) fn check(config: &Config, url: &str) -> Vec<Finding> {
    let front = client_config(ca(config)).and_then(|tls| {
        let endpoint = Endpoint::parse(url)?;
        let client = StreamClient::new(&endpoint, tls, config.fetch.connect_timeout);
        Ok(Front { client, name: endpoint.name })
    });
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    match (front, runtime) {
        (Ok(front), Ok(runtime)) => runtime.block_on(front.check()),
        (Err(why), _) => vec![Finding::problem("front", format!("--front: {why}"), "correct it")],
        (_, Err(error)) => {
            let text = format!("cannot start a runtime: {error}");
            vec![Finding::problem("front", text, "see ulimit -a")]
        }
    }
}

/// The authority of the settings: a front of one's own may have a certificate of one's own.
fn ca(config: &Config) -> Option<(&'static str, &Path)> {
    match &config.source {
        UpstreamConfig::Upstream { ca, .. } => ca.as_deref().map(|path| ("--upstream-ca", path)),
        UpstreamConfig::Dev { .. } => None,
    }
}

struct Front {
    client: StreamClient,
    name: String,
}

/// A response of a front.
struct FrontResponse {
    status: StatusCode,
    /// Value of the header of neve, if the front passes it on.
    source: Option<String>,
    body: Option<Value>,
}

impl Front {
    async fn check(&self) -> Vec<Finding> {
        let hit = self.call(HIT).await;
        let found = self.judge_hit(&hit);
        if hit.is_err() {
            return vec![found]; // the second call would say the same
        }
        vec![found, self.judge_miss(&self.call(MISS).await)]
    }

    async fn call(&self, (method, params): (&str, &str)) -> Result<FrontResponse, String> {
        let body = format!(r#"{{"jsonrpc":"2.0","id":1,"method":"{method}","params":{params}}}"#);
        let answer = async {
            let sent = self.client.send(None, Some(Bytes::from(body)), HeaderMap::new()).await;
            let response = sent.map_err(|error| innermost(&error))?;
            let (status, headers) = (response.status(), response.headers());
            let source = headers.get(SOURCE).and_then(|value| value.to_str().ok());
            // Any server may be behind the address, and its text goes to a terminal.
            let source = source.map(|text| PeerText::new(text).to_string());
            let body = Limited::new(response.into_body(), ANSWER_BYTES_MAX).collect().await;
            let body = body.map_err(|error| error.to_string())?.to_bytes();
            Ok(FrontResponse { status, source, body: serde_json::from_slice(&body).ok() })
        };
        let answer = timeout(ANSWER_TIME_MAX, answer).await;
        answer.unwrap_or_else(|_| Err(format!("no answer within {ANSWER_TIME_MAX:?}")))
    }

    fn judge_hit(&self, answer: &Result<FrontResponse, String>) -> Finding {
        let (name, method) = (&self.name, HIT.0);
        match answer {
            Err(why) => {
                let text = format!("cannot reach {name}: {}", PeerText::new(why));
                Finding::problem("front", text, "start the front, or correct --front")
            }
            Ok(answer) if !answer.has_result() => {
                let text = format!("{name}: {method} fails: {}", answer.shown());
                Finding::problem("front", text, "see the log of the front, and curl neve itself")
            }
            Ok(answer) => self.judge_source(answer.source.as_deref()),
        }
    }

    /// Judges the source of a hit.
    fn judge_source(&self, source: Option<&str>) -> Finding {
        let (name, method) = (&self.name, HIT.0);
        match source {
            Some("hit") => Finding::ok("front", format!("{name}: {method} comes from neve")),
            Some(source) => {
                let text = format!("{name}: {method} does not come from neve, but by {source}");
                Finding::warning("front", text, "see /ready of neve")
            }
            None => {
                let text = format!("{name}: answers {method}, without the header {SOURCE}");
                let advice = "let the front pass it on, or see whether neve counts the request";
                Finding::warning("front", text, advice)
            }
        }
    }

    fn judge_miss(&self, answer: &Result<FrontResponse, String>) -> Finding {
        let (name, method) = (&self.name, MISS.0);
        match answer {
            Ok(answer) if answer.has_result() => {
                Finding::ok("front-miss", format!("{name}: {method} reaches a node"))
            }
            Ok(answer) => {
                let text = format!("{name}: misses do not reach a node: {}", answer.shown());
                let advice = "let the front ask a node after HTTP 421: docs/operating/front.md";
                Finding::problem("front-miss", text, advice)
            }
            Err(why) => {
                let text = format!("{name}: {method} fails: {}", PeerText::new(why));
                Finding::problem("front-miss", text, "see whether the front reaches its node")
            }
        }
    }
}

impl FrontResponse {
    fn has_result(&self) -> bool {
        let body = self.body.as_ref().unwrap_or(&Value::Null);
        self.status == StatusCode::OK && body.get("result").is_some_and(|result| !result.is_null())
    }

    /// Status, and the error of JSON-RPC if there is one.
    fn shown(&self) -> String {
        let error = self.body.as_ref().and_then(|body| body["error"]["message"].as_str());
        let error = error.map(|error| format!(", {}", PeerText::new(error)));
        format!("HTTP {}{}", self.status, error.unwrap_or_default())
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::super::report::Level;
    use super::*;

    #[expect(clippy::unnecessary_wraps, reason = "as a call has it")]
    fn answer(status: u16, source: Option<&str>, body: Value) -> Result<FrontResponse, String> {
        let (status, source) = (StatusCode::from_u16(status).unwrap(), source.map(str::to_owned));
        Ok(FrontResponse { status, source, body: Some(body) })
    }

    #[test]
    fn front_is_judged_by_both_calls() {
        let endpoint = Endpoint::parse("http://front").unwrap();
        let tls = client_config(None).unwrap();
        let client = StreamClient::new(&endpoint, tls, ANSWER_TIME_MAX);
        let front = Front { client, name: "http://front".to_owned() };
        let (good, bad) = (json!({ "result": "0x1" }), json!({ "error": { "message": "gone" } }));
        for (hit, level) in [
            (answer(200, Some("hit"), good.clone()), Level::Ok),
            (answer(200, Some("relay"), good.clone()), Level::Warning),
            (answer(200, None, good.clone()), Level::Warning),
            (answer(200, None, bad.clone()), Level::Problem),
            (answer(502, None, json!(null)), Level::Problem),
            (Err("refused".to_owned()), Level::Problem),
        ] {
            let found = front.judge_hit(&hit);
            assert_eq!(found.level, level, "{found}");
        }
        let missed = front.judge_miss(&answer(421, Some("miss"), bad));
        assert_eq!(missed.level, Level::Problem);
        assert!(
            missed.text.ends_with("misses do not reach a node: HTTP 421 Misdirected Request, gone")
        );
        assert_eq!(front.judge_miss(&answer(200, None, good)).level, Level::Ok);
    }
}
