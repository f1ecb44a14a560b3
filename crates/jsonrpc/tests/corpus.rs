//! Recorded exchanges of real nodes: whatever does not depend on blocks must come out to the byte.

#![cfg(test)]

use std::fs::File;
use std::io::{BufRead, BufReader};
use std::path::Path;

use flate2::read::GzDecoder;
use neve_jsonrpc::{Kind, Message, NoQuery, Query, Request, RpcError, Rules, envelope, parse};
use serde_json::Value;

struct Row {
    name: String,
    request: String,
    answer: String,
}

/// The rows that are JSON-RPC over POST and were answered as such.
fn rows(file: &str) -> Vec<Row> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/corpus").join(file);
    let lines = BufReader::new(GzDecoder::new(File::open(&path).unwrap())).lines();
    let text = |row: &Value, key: &str| row[key].as_str().map(str::to_owned);
    lines
        .map(|line| serde_json::from_str(&line.unwrap()).unwrap())
        .filter(|row: &Value| row["method"] == "POST" && row["status"] == 200)
        .filter(|row| row["path"] == "/ext/bc/C/rpc")
        // Of these the recorded body is not what the server read.
        .filter(|row| !row["name"].as_str().is_some_and(|name| name.starts_with("http/length")))
        .filter_map(|row| {
            let (request, answer) = (text(&row, "request_body")?, text(&row, "response_body")?);
            Some(Row { name: text(&row, "name")?, request, answer })
        })
        .collect()
}

/// A server that knows its head and nothing else. `None`: it would have to look into blocks.
struct Server {
    rules: Rules,
    head: &'static str,
}

impl Server {
    fn answer(&self, body: &[u8]) -> Option<Vec<u8>> {
        let mut out = Vec::new();
        match parse(body) {
            Request::Empty => {}
            Request::Malformed => envelope::error(&mut out, b"null", &RpcError::PARSE),
            Request::Single(message) => {
                self.message(&mut out, &message)?;
                if !out.is_empty() {
                    out.extend_from_slice(envelope::NEWLINE);
                }
            }
            Request::Batch(messages) => self.batch(&mut out, &messages)?,
        }
        Some(out)
    }

    fn batch(&self, out: &mut Vec<u8>, messages: &[Message<'_>]) -> Option<()> {
        if messages.is_empty() {
            envelope::error(out, b"null", &RpcError::EMPTY_BATCH);
            return Some(());
        }
        if messages.len() > 1000 {
            let call = messages.iter().find(|message| message.kind() == Kind::Call);
            out.push(b'[');
            envelope::error(out, call.map_or(b"null", Message::id), &RpcError::BATCH_TOO_LARGE);
            out.push(b']');
            return Some(());
        }
        let mut answers = Vec::new();
        for message in messages {
            let mut answer = Vec::new();
            self.message(&mut answer, message)?;
            answers.extend((!answer.is_empty()).then_some(answer));
        }
        if !answers.is_empty() {
            out.push(b'[');
            out.extend(answers.join(&b','));
            out.extend(b"]\n");
        }
        Some(())
    }

    fn message(&self, out: &mut Vec<u8>, message: &Message<'_>) -> Option<()> {
        match message.kind() {
            Kind::Invalid => envelope::error(out, message.id(), &RpcError::INVALID_REQUEST),
            Kind::Call => self.call(out, message)?,
            Kind::Notification | Kind::Response => {}
        }
        Some(())
    }

    fn call(&self, out: &mut Vec<u8>, message: &Message<'_>) -> Option<()> {
        let result = match message.query(self.rules) {
            Ok((_, Query::BlockNumber)) => self.head,
            Ok((_, Query::ChainId)) => "\"0xa868\"",
            Ok((_, Query::NetVersion)) => "\"43112\"",
            Err(NoQuery::Null) => "null",
            Err(NoQuery::Error(error)) => {
                envelope::error(out, message.id(), &error);
                return Some(());
            }
            Ok(_) | Err(NoQuery::NotServed) => return None,
        };
        envelope::lead(out, message.id());
        out.extend(result.bytes());
        out.extend(envelope::TAIL);
        Some(())
    }
}

/// Replays `files`; returns how many rows were answered and how many would need more.
fn replay(server: &Server, files: &[&str]) -> (usize, usize) {
    let (mut answered, mut beyond) = (0, 0);
    for row in files.iter().flat_map(|file| rows(file)) {
        let Some(answer) = server.answer(row.request.as_bytes()) else {
            beyond += 1;
            continue;
        };
        let answer = String::from_utf8_lossy(&answer);
        assert_eq!(answer, row.answer, "{}\n  > {}", row.name, row.request);
        answered += 1;
    }
    (answered, beyond)
}

#[test]
fn before_helicon() {
    let server = Server { rules: Rules::BeforeHelicon, head: "\"0x153\"" };
    let (answered, beyond) = replay(&server, &["v1.14.2/main/errors.jsonl.gz"]);
    println!("{answered} answered, {beyond} need blocks or other methods");
    assert!(answered > 300, "{answered} rows only");
}

#[test]
fn since_helicon() {
    let server = Server { rules: Rules::Helicon, head: "\"0x17d\"" };
    let (answered, beyond) = replay(&server, &["v1.15.0/errors.jsonl.gz"]);
    println!("{answered} answered, {beyond} need blocks or other methods");
    assert!(answered > 300, "{answered} rows only");
}

/// Every recorded call of a served method decodes to a query, or to the node's error.
#[test]
fn all_recorded_calls_are_understood() {
    let sets = [
        (Rules::BeforeHelicon, "v1.14.2/main"),
        (Rules::BeforeHelicon, "v1.14.2/forks"),
        (Rules::BeforeHelicon, "v1.14.2/apricot0"),
        (Rules::Helicon, "v1.15.0"),
    ];
    for (rules, set) in sets {
        let mut queries = 0;
        for row in rows(&format!("{set}/methods.jsonl.gz")) {
            let Request::Single(message) = parse(row.request.as_bytes()) else { continue };
            match message.query(rules) {
                Ok(_) => queries += 1,
                Err(NoQuery::NotServed) => {}
                Err(other) => assert_wrong_for_the_node_too(&other, &row),
            }
        }
        assert!(queries > 800, "{set}: {queries} queries only");
    }
}

fn assert_wrong_for_the_node_too(error: &NoQuery, row: &Row) {
    let text = match error {
        NoQuery::Error(error) => error.message.as_ref(),
        _ => "null",
    };
    assert!(row.answer.contains(text), "{}: {text} against {}", row.name, row.answer);
}
