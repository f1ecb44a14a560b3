//! `neve get` and `neve export`: blocks and their receipts as lines of JSON, with the server's own bytes, or
//! blocks in RLP.
//!
//! They ask a running neve or a node by JSON-RPC, so that they work beside it and from elsewhere.

use std::cell::Cell;
use std::io::{self, Write};
use std::process::ExitCode;
use std::time::{Duration, Instant};

use alloy_primitives::{B256, keccak256};
use bytes::Bytes;
use http_body_util::{BodyExt, Limited};
use hyper::StatusCode;
use hyper::header::HeaderMap;
use neve_chain::{raw_block, raw_header};
use serde::Deserialize;
use serde_json::value::RawValue;
use tokio::time::timeout;

use super::config::USAGE;
use crate::client::{PeerText, StreamClient, client_config, whole_story};
use crate::config::{AddressArg, Endpoint, ExportArgs, ExportForm, GetArgs};

/// Time for a response, and bytes of it: the largest block of mainnet with receipts is below 2 MiB.
const RESPONSE_TIME_MAX: Duration = Duration::from_mins(1);
const RESPONSE_BYTES_MAX: usize = 64 << 20;
/// Time between two lines about progress.
const PROGRESS_EVERY: Duration = Duration::from_secs(5);

/// Prints one block with its receipts.
pub fn get(args: &GetArgs) -> ExitCode {
    of_server(&args.from, async |server| {
        let line = server.line(&args.block).await?;
        print(&line).map(|_| ())
    })
}

/// Prints a range of blocks with their receipts, a line for each.
pub fn export(args: &ExportArgs) -> ExitCode {
    of_server(&args.from, async |server| {
        let next = Cell::new(args.first);
        tokio::select! {
            exported = export_all(&server, args, &next) => exported,
            // The line of a height is written at once: none is cut.
            _ = tokio::signal::ctrl_c() => {
                Err(format!("interrupted; go on with --first {}", next.get()))
            }
        }
    })
}

/// Runs a command that asks a server.
fn of_server(url: &str, command: impl AsyncFnOnce(Server) -> Result<(), String>) -> ExitCode {
    match Endpoint::parse(url) {
        Ok(endpoint) => finished(run(&endpoint, command)),
        Err(why) => {
            // Not by clap, which would show the whole address, and that may hold a key.
            say(&format!("--from {}: {why}", AddressArg::from(url)));
            ExitCode::from(USAGE)
        }
    }
}

/// Runs the command. `Ok` means that all is printed, or that the reader has gone.
fn run(
    endpoint: &Endpoint,
    command: impl AsyncFnOnce(Server) -> Result<(), String>,
) -> Result<(), String> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let runtime = runtime.map_err(|error| format!("cannot start a runtime: {error}"))?;
    runtime.block_on(command(Server::at(endpoint)?))
}

fn finished(result: Result<(), String>) -> ExitCode {
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(why) => {
            say(&why);
            ExitCode::FAILURE
        }
    }
}

/// Writes to standard error, which may be closed.
fn say(text: &str) {
    let _ = writeln!(io::stderr(), "neve: {text}"); // there is nowhere else to say it
}

/// Prints a line; false if the reader has gone.
fn print(line: &[u8]) -> Result<bool, String> {
    let mut out = io::stdout().lock();
    match out.write_all(line).and_then(|()| out.flush()) {
        Ok(()) => Ok(true),
        // `neve export | head` is no failure.
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(false),
        Err(error) => Err(format!("cannot write to standard output: {error}")),
    }
}

/// Exports a range. `next` is the height after the last line that was written.
async fn export_all(server: &Server, args: &ExportArgs, next: &Cell<u64>) -> Result<(), String> {
    let last = match args.last {
        Some(last) => last,
        None => server.head().await?,
    };
    if args.first > last {
        return Err(format!("--first {}: above the last height, {last}", args.first));
    }
    let mut said = Instant::now();
    for height in args.first..=last {
        let line = server.exported(height, args.form).await?;
        if !print(&line).map_err(|why| cut_off(&why, height))? {
            return Ok(());
        }
        next.set(height + 1);
        if said.elapsed() >= PROGRESS_EVERY {
            said = Instant::now();
            say(&format!("height {height} of {last}; go on with --first {}", height + 1));
        }
    }
    Ok(())
}

/// Adds the next step to an error of standard output.
fn cut_off(why: &str, height: u64) -> String {
    // The disk was full, for example. What is written of the height would spoil all that is appended to it.
    format!("{why}; cut off what is there of height {height}, then go on with --first {height}")
}

/// A neve or a node.
struct Server {
    client: StreamClient,
    url: String,
}

/// A response of JSON-RPC with its result as it came.
#[derive(Deserialize)]
struct Response {
    result: Option<Box<RawValue>>,
    error: Option<ResponseError>,
}

#[derive(Deserialize)]
struct ResponseError {
    message: String,
}

impl Server {
    fn at(endpoint: &Endpoint) -> Result<Self, String> {
        let client = StreamClient::new(endpoint, client_config(None)?, RESPONSE_TIME_MAX);
        Ok(Self { client, url: endpoint.name.clone() })
    }

    /// Returns the newest height.
    async fn head(&self) -> Result<u64, String> {
        let head = self.call("eth_blockNumber", "").await?;
        let digits = head.get().trim_matches('"').trim_start_matches("0x");
        u64::from_str_radix(digits, 16).map_err(|_| format!("{}: no height", self.url))
    }

    /// Returns a height in the form that is wanted. An error has the next step.
    async fn exported(&self, height: u64, form: ExportForm) -> Result<Vec<u8>, String> {
        let block = format!("{height:#x}");
        let line = match form {
            ExportForm::Ndjson => self.line(&block).await,
            ExportForm::Rlp => self.rlp(&block).await,
        };
        line.map_err(|why| format!("{why}; go on with --first {height}"))
    }

    /// Returns the line of a block, which a height or a hash names.
    async fn line(&self, block: &str) -> Result<Vec<u8>, String> {
        let method = if is_hash(block) { "eth_getBlockByHash" } else { "eth_getBlockByNumber" };
        let named = |why| format!("block {block}: {why}");
        let text = self.call(method, &format!("\"{block}\",true")).await.map_err(named)?;
        let receipts = self.call("eth_getBlockReceipts", &format!("\"{block}\"")).await;
        let receipts = receipts.map_err(named)?;
        // A line feed between two members would break the line in two.
        if [&text, &receipts].iter().any(|part| part.get().contains('\n')) {
            return Err(named("the response has line feeds".to_owned()));
        }
        Ok(format!("{{\"block\":{},\"receipts\":{}}}\n", text.get(), receipts.get()).into_bytes())
    }

    /// Returns the RLP of a block. Its header must have the hash that the block has.
    async fn rlp(&self, block: &str) -> Result<Vec<u8>, String> {
        let text = self.call("eth_getBlockByNumber", &format!("\"{block}\",true")).await;
        let encoded = text.and_then(|text| encoded(text.get().as_bytes()));
        encoded.map_err(|why| format!("block {block}: {why}"))
    }

    async fn call(&self, method: &str, params: &str) -> Result<Box<RawValue>, String> {
        let call = format!(r#"{{"jsonrpc":"2.0","id":1,"method":"{method}","params":[{params}]}}"#);
        let url = &self.url;
        let exchange = async {
            let response = self.client.send(None, Some(Bytes::from(call)), HeaderMap::new()).await;
            let response = response.map_err(|error| {
                let why = whole_story(&error);
                if error.is_connect() {
                    format!("cannot reach {url}: {why}; see --from")
                } else {
                    format!("{url}: {why}")
                }
            })?;
            let status = response.status();
            let body = Limited::new(response.into_body(), RESPONSE_BYTES_MAX).collect().await;
            let body = body.map_err(|error| format!("{url}: {error}"))?;
            Ok((status, body.to_bytes()))
        };
        let answer = timeout(RESPONSE_TIME_MAX, exchange).await;
        let late = || Err(format!("{url}: no answer within {RESPONSE_TIME_MAX:?}"));
        let (status, body) = answer.unwrap_or_else(|_| late())?;
        result(status, &body).map_err(|why| format!("{url}: {method}: {why}"))
    }
}

/// Encodes a block with whole transactions.
fn encoded(text: &[u8]) -> Result<Vec<u8>, String> {
    #[derive(Deserialize)]
    struct Named {
        hash: B256,
    }
    let named: Named = serde_json::from_slice(text).map_err(|_| "it has no hash".to_owned())?;
    let header = raw_header(text).map_err(|error| error.to_string())?;
    // RLP has no hash beside it by which a reader could notice a member that was lost here.
    if keccak256(&header) != named.hash {
        return Err(format!("its header has not the hash {}", named.hash));
    }
    raw_block(text).map_err(|error| error.to_string())
}

/// Returns the result of a response, or why there is none.
fn result(status: StatusCode, body: &[u8]) -> Result<Box<RawValue>, String> {
    let response: Response = serde_json::from_slice(body).map_err(|error| {
        // A miss has an error of JSON-RPC. An admin listener, for example, has none.
        if status == StatusCode::OK {
            format!("no JSON-RPC: {error}")
        } else {
            format!("HTTP {status}, no JSON-RPC; name the address of --listen, or of a node")
        }
    })?;
    match (response.result, response.error) {
        (_, Some(error)) => Err(PeerText::new(&error.message).to_string()),
        (Some(result), None) => Ok(result),
        (None, None) => Err("not there".to_owned()),
    }
}

fn is_hash(block: &str) -> bool {
    // A height has 18 characters at most: both commands write it as `0x` and its digits.
    block.len() == 66
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn result_keeps_its_bytes_and_an_error_its_message() {
        let whole = br#"{"jsonrpc":"2.0","id":1,"result":{"b":1 ,"a":"\u00e9"}}"#;
        let (ok, miss_status) = (StatusCode::OK, StatusCode::MISDIRECTED_REQUEST);
        assert_eq!(result(ok, whole).unwrap().get(), r#"{"b":1 ,"a":"\u00e9"}"#);
        let miss =
            br#"{"jsonrpc":"2.0","id":1,"error":{"code":-32000,"message":"header not found"}}"#;
        assert_eq!(result(miss_status, miss).unwrap_err(), "header not found");
        assert_eq!(
            result(ok, br#"{"jsonrpc":"2.0","id":1,"result":null}"#).unwrap_err(),
            "not there"
        );
        assert!(result(ok, b"<html>").unwrap_err().starts_with("no JSON-RPC: "));
        let admin = result(StatusCode::NOT_FOUND, b"404 page not found\n").unwrap_err();
        assert!(admin.starts_with("HTTP 404 Not Found, no JSON-RPC; "), "{admin}");
    }
}
