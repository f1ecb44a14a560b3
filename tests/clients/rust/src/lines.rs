//! Arguments, and one line of JSON for each step.

use std::fmt::Display;
use std::future::IntoFuture;

use alloy_transport::{RpcError, TransportError, TransportErrorKind};
use serde::Serialize;
use serde_json::{Value, json};

/// The arguments that ../README.md lists.
pub struct Settings {
    pub http: String,
    pub ws: Option<String>,
    pub logs: bool,
    pub raw: bool,
    pub reconnect: bool,
}

impl Settings {
    pub fn of(arguments: Vec<String>) -> Self {
        let (flags, addresses): (Vec<_>, Vec<_>) =
            arguments.into_iter().partition(|argument| argument.starts_with("--"));
        let mut addresses = addresses.into_iter();
        let http =
            addresses.next().expect("usage: HTTP_URL [WS_URL] [--logs] [--raw] [--reconnect]");
        let has = |flag: &str| flags.iter().any(|given| given == flag);
        Self {
            http,
            ws: addresses.next(),
            logs: has("--logs"),
            raw: has("--raw"),
            reconnect: has("--reconnect"),
        }
    }
}

/// Explains an error without the server's address.
pub fn explain(error: &TransportError) -> Value {
    match error {
        RpcError::ErrorResp(said) => {
            json!({ "code": said.code, "message": said.message, "data": said.data })
        }
        RpcError::Transport(TransportErrorKind::HttpError(refused)) => {
            json!({ "status": refused.status })
        }
        RpcError::NullResp => json!("no response"),
        other => json!(other.to_string()),
    }
}

/// Prints a line; `serde_json` sorts the keys.
pub fn write(line: &Value) {
    println!("{line}");
}

/// Does one step and prints what came of it.
pub async fn step<T, F>(name: impl Display, ask: F) -> Option<T>
where
    T: Serialize,
    F: IntoFuture<Output = Result<T, TransportError>>,
{
    let step = name.to_string();
    match ask.await {
        Ok(value) => {
            write(&json!({ "step": step, "value": value }));
            Some(value)
        }
        Err(error) => {
            write(&json!({ "step": step, "error": explain(&error) }));
            None
        }
    }
}
