//! Clients that mean well: each answer is compared with the upstream's, byte by byte.

use std::net::SocketAddr;
use std::ops::ControlFlow;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use fastrand::Rng;
use neve_devnet::Block;
use serde_json::value::RawValue;

use crate::line::{Line, Version};
use crate::report::Report;
use crate::stage::{Phase, Place, Stage};
use crate::support::client::Response;

/// Between requests: what is measured is the server, and not how its machine is shared.
const PAUSE: Duration = Duration::from_millis(10);
/// Requests between two looks at the served range.
const LOOK_EVERY: usize = 50;
/// In each so many requests one is a batch, and one each asks for logs of a block, logs of a range, the logs of a
/// filter, and fees.
const BATCH_EVERY: usize = 20;

/// Error of a filter that a restart ended.
const GONE: &[u8] = b"filter not found";

/// The served range that a miss names.
fn range_of(miss: &Response) -> Option<(u64, u64)> {
    let (first, head) = miss.header("x-neve-served")?.split_once('-')?;
    let height = |text: &str| u64::from_str_radix(text.strip_prefix("0x")?, 16).ok();
    Some((height(first)?, height(head)?))
}

/// The range that is served now, asked for by a hash that no block has.
pub(crate) fn served(address: SocketAddr) -> Option<(u64, u64)> {
    let call = call(&format!("\"eth_getBlockByHash\",\"params\":[\"0x{:064x}\",false]", 7));
    range_of(&Line::new(Version::Http1, address, "/").post(&call).ok()?)
}

pub(crate) fn call(method_and_params: &str) -> String {
    format!(r#"{{"jsonrpc":"2.0","id":1,"method":{method_and_params}}}"#)
}

/// Asks until the last phase.
pub(crate) fn run(stage: &Stage, place: Place, version: Version, report: &Report) {
    let _guard = stage.ends_when_dropped();
    let address = stage.server(place).address;
    let mut asker = Asker {
        stage,
        report,
        version,
        neve: Line::new(version, address, "/"),
        upstream: Line::new(Version::Http1, stage.devnet.address(), "/ext/bc/C/rpc"),
        random: Rng::new(),
    };
    let mut range = None;
    for turn in 0.. {
        if stage.phase() >= Phase::Last {
            return;
        }
        if turn % LOOK_EVERY == 0 {
            range = served(address).or(range);
        }
        if let Some(range) = range {
            let asked = match turn % BATCH_EVERY {
                0 => asker.ask_batch(range),
                1 => asker.ask_logs(range),
                2 => asker.ask_log_range(range),
                3 => asker.ask_filter(range),
                4 => asker.ask_fees(range),
                _ => asker.ask_one(range),
            };
            if asked.is_break() {
                return;
            }
        }
        thread::park_timeout(PAUSE);
    }
}

pub(crate) struct Asker<'s> {
    pub(crate) stage: &'s Stage,
    report: &'s Report,
    version: Version,
    neve: Line,
    upstream: Line,
    random: Rng,
}

impl Asker<'_> {
    pub(crate) fn height(&mut self, (first, head): (u64, u64)) -> u64 {
        // Half of them near the head, as clients ask.
        let from = if self.random.bool() { first } else { first.max(head.saturating_sub(16)) };
        self.random.u64(from..=head)
    }

    pub(crate) fn block(&self, height: u64) -> Arc<Block> {
        self.stage.devnet.block(height).expect("the chain has what is served")
    }

    /// A call about a height.
    fn call_about(&mut self, height: u64) -> String {
        let block = self.block(height);
        let (hash, number) = (block.hash(), format!("{height:#x}"));
        let transaction = self.random.choice(block.transactions()).copied();
        let transaction = transaction.unwrap_or(hash);
        call(&match self.random.u8(0..9) {
            0 => format!(r#""eth_getBlockByNumber","params":["{number}",true]"#),
            1 => format!(r#""eth_getBlockByNumber","params":["{number}",false]"#),
            2 => format!(r#""eth_getBlockByHash","params":["{hash:#x}",true]"#),
            3 => format!(r#""eth_getHeaderByNumber","params":["{number}"]"#),
            4 => format!(r#""eth_getBlockReceipts","params":["{number}"]"#),
            5 => format!(r#""eth_getBlockTransactionCountByNumber","params":["{number}"]"#),
            6 => {
                format!(r#""eth_getTransactionByBlockNumberAndIndex","params":["{number}","0x0"]"#)
            }
            7 if transaction != hash => {
                format!(r#""eth_getTransactionByHash","params":["{transaction:#x}"]"#)
            }
            8 if transaction != hash => {
                format!(r#""eth_getTransactionReceipt","params":["{transaction:#x}"]"#)
            }
            _ => format!(r#""eth_getHeaderByHash","params":["{hash:#x}"]"#),
        })
    }

    fn ask_one(&mut self, range: (u64, u64)) -> ControlFlow<()> {
        let height = self.height(range);
        let body = self.call_about(height);
        let (phase, start) = (self.stage.phase(), Instant::now());
        let Some(ours) = self.ask(&body, height) else { return ControlFlow::Continue(()) };
        if phase == self.stage.phase() {
            self.report.latency(phase, start.elapsed());
        }
        self.compare_with_upstream(&body, &ours)
    }

    fn ask_batch(&mut self, range: (u64, u64)) -> ControlFlow<()> {
        let heights: Vec<_> = (0..self.random.usize(2..9)).map(|_| self.height(range)).collect();
        let calls: Vec<_> = heights.iter().map(|height| self.call_about(*height)).collect();
        let body = format!("[{}]", calls.join(","));
        let lowest = heights.iter().min().copied().unwrap_or_default();
        match self.ask(&body, lowest) {
            Some(ours) => self.compare_with_upstream(&body, &ours),
            None => ControlFlow::Continue(()),
        }
    }

    /// The logs of a block, which its receipts have.
    fn ask_logs(&mut self, range: (u64, u64)) -> ControlFlow<()> {
        let height = self.height(range);
        let block = self.block(height);
        let body =
            call(&format!(r#""eth_getLogs","params":[{{"blockHash":"{:#x}"}}]"#, block.hash()));
        let Some(ours) = self.ask(&body, height) else { return ControlFlow::Continue(()) };
        let expected =
            format!("{{\"jsonrpc\":\"2.0\",\"id\":1,\"result\":[{}]}}\n", logs(block.receipts()));
        self.compare(&body, &ours, expected.as_bytes())
    }

    /// An answer, unless the server refuses, or is away. A miss is one only of what was evicted.
    pub(crate) fn ask(&mut self, body: &str, lowest: u64) -> Option<Response> {
        match self.neve.post(body) {
            Ok(response) if response.status == 200 => {
                self.report.served(self.stage.phase(), self.version);
                Some(response)
            }
            Ok(miss) if miss.status == 421 => {
                match range_of(&miss) {
                    Some((first, _)) if lowest < first => self.report.missed(),
                    range => {
                        self.report.fail(format!("a miss of {lowest} within {range:?}: {body}"));
                    }
                }
                None
            }
            Ok(other) => {
                self.report.refused(self.stage.phase(), other.status);
                None
            }
            Err(_) => {
                self.report.unanswered(self.stage.phase());
                None
            }
        }
    }

    /// An answer about a filter. After a restart it is gone, and none is made until the head is near the upstream's.
    pub(crate) fn ask_of_filter(&mut self, body: &str, lowest: u64) -> Option<Response> {
        let is_there = |text: &[u8]| !text.windows(GONE.len()).any(|part| part == GONE);
        let answer = self.neve.post(body).ok();
        let answer = answer.filter(|response| response.status == 200 && is_there(&response.body));
        if answer.is_some() || self.stage.phase() >= Phase::Restarts {
            return answer;
        }
        self.ask(body, lowest)
    }

    fn compare_with_upstream(&mut self, body: &str, ours: &Response) -> ControlFlow<()> {
        let theirs = self.upstream.post(body).expect("the upstream answers");
        self.compare(body, ours, &theirs.body)
    }

    pub(crate) fn compare(&self, body: &str, ours: &Response, theirs: &[u8]) -> ControlFlow<()> {
        if ours.body == theirs {
            self.report.compare();
            return ControlFlow::Continue(());
        }
        let cut = |text: &[u8]| String::from_utf8_lossy(&text[..text.len().min(300)]).into_owned();
        let (ours, theirs) = (cut(&ours.body), cut(theirs));
        self.report.fail(format!("another answer to {body}:\n  ours   {ours}\n  theirs {theirs}"));
        ControlFlow::Break(())
    }
}

/// The logs in receipts, with commas between them.
pub(crate) fn logs(receipts: &[u8]) -> String {
    #[derive(serde::Deserialize)]
    struct Receipt<'a> {
        #[serde(borrow)]
        logs: Vec<&'a RawValue>,
    }
    let receipts: Vec<Receipt<'_>> = serde_json::from_slice(receipts).expect("receipts are JSON");
    let logs = receipts.iter().flat_map(|receipt| receipt.logs.iter().map(|log| log.get()));
    logs.collect::<Vec<_>>().join(",")
}
