//! Every recorded exchange about HTTP itself, sent again byte for byte: methods, media types,
//! origins, hosts, paths, framing. Status, body and the headers that mean something are the node's,
//! but for the rows that are listed here with their reason, and in docs/RPC.md.

use std::io::{self, BufReader, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use crate::support::client::{Response, read};
use crate::support::corpus::{HELICON, MAIN, Row, Set};
use crate::support::neve::{Neve, fresh_dir};
use crate::support::recorded::Recorded;

const RPC_MD: &str = include_str!("../../../docs/RPC.md");

/// Rows that neve answers differently on purpose, and why; docs/RPC.md has them.
const DIFFERENT: [(&str, &str); 4] = [
    ("http/path//", "the root of the server is JSON-RPC too"),
    (
        "http/path//ext/bc/C/rpc#x",
        "a fragment is no part of what a server is asked (RFC 9110, 4.2.5)",
    ),
    (
        "http/path/GET//ext/bc/C/rpc#x",
        "a fragment is no part of what a server is asked (RFC 9110, 4.2.5)",
    ),
    ("http/length/bad", "hyper refuses it, with the same status and without a text"),
];

/// Headers that are compared; the others are the date, the node's id, and framing.
pub(super) const COMPARED: [&str; 10] = [
    "access-control-allow-credentials",
    "access-control-allow-headers",
    "access-control-allow-methods",
    "access-control-allow-origin",
    "content-type",
    "location",
    "sec-websocket-accept",
    "sec-websocket-version",
    "vary",
    "x-content-type-options",
];

/// The request as it went over the wire.
fn wire(row: &Row) -> Vec<u8> {
    let mut head = format!("{} {} {}\r\n", row.method, row.path, row.version);
    for (name, value) in &row.headers {
        head.push_str(&[name, ": ", value, "\r\n"].concat());
    }
    let chunked = row.headers.iter().any(|(_, value)| value == "chunked");
    let body = if chunked { chunks(&row.request) } else { row.request.clone() };
    [head.as_bytes(), b"\r\n", &body].concat()
}

fn chunks(body: &[u8]) -> Vec<u8> {
    let chunk =
        |chunk: &[u8]| [format!("{:x}\r\n", chunk.len()).as_bytes(), chunk, b"\r\n"].concat();
    let mut chunks: Vec<u8> = body.chunks(1 << 16).flat_map(chunk).collect();
    chunks.extend_from_slice(b"0\r\n\r\n");
    chunks
}

fn compared(headers: &[(String, String)]) -> Vec<(String, String)> {
    let lower = headers.iter().map(|(name, value)| (name.to_lowercase(), value.clone()));
    let mut kept: Vec<_> = lower.filter(|(name, _)| COMPARED.contains(&name.as_str())).collect();
    kept.sort();
    kept
}

/// Returns the difference, if there is any.
fn difference(row: &Row, answer: &Response) -> Option<String> {
    let theirs = (row.status, compared(&row.answer_headers), String::from_utf8_lossy(&row.answer));
    let text = answer.text();
    let ours = (answer.status, compared(&answer.headers), text.as_str().into());
    (theirs != ours).then(|| format!("{}\n  node {theirs:?}\n  neve {ours:?}", row.name))
}

/// Sends, and reads whatever comes: a server that refuses a long body may close before all of it
/// is sent.
fn exchange(address: SocketAddr, request: &[u8], head_only: bool) -> io::Result<Response> {
    let mut stream = TcpStream::connect(address)?;
    stream.set_read_timeout(Some(Duration::from_mins(1)))?;
    let _ = stream.write_all(request);
    let mut stream = BufReader::new(stream);
    loop {
        let answer = read(&mut stream, head_only)?;
        if answer.status != 100 {
            return Ok(answer);
        }
    }
}

/// Rows that are answered wrongly by a neve before an upstream, with more arguments.
pub(super) fn replay(set: Set, url: &str, more: &[&str]) -> Vec<String> {
    let dir = fresh_dir();
    let rows = set.rows("errors");
    let by_id = rows.iter().find(|row| row.name == "http/path/byid").expect("it was recorded");
    let arguments = ["--upstream", url, "--allowed-hosts", "localhost", "--rpc-paths", &by_id.path];
    let neve = Neve::start(dir.path(), &[&arguments, more].concat());
    neve.wait_for_head(set.head);
    let about_http = rows.iter().filter(|row| row.name.starts_with("http/"));
    let mut wrong = Vec::new();
    for row in about_http {
        let difference = match exchange(neve.address, &wire(row), row.method == "HEAD") {
            Ok(answer) => difference(row, &answer),
            Err(error) => Some(format!("{}: {error}", row.name)),
        };
        let listed = DIFFERENT.iter().any(|(name, _)| *name == row.name);
        match (listed, difference) {
            (false, Some(difference)) => wrong.push(difference),
            (true, None) => wrong.push(format!("{} is listed and does not differ", row.name)),
            _ => {}
        }
    }
    let missing = DIFFERENT.iter().filter(|(name, _)| rows.iter().all(|row| row.name != *name));
    wrong.extend(missing.map(|(name, _)| format!("{name} is listed and was not recorded")));
    wrong
}

#[test]
fn http_is_spoken_as_the_node_speaks_it() {
    for set in [MAIN, HELICON] {
        let node = Recorded::start(set);
        let wrong = replay(set, &node.url(), &[]);
        assert!(wrong.is_empty(), "{} rows are wrong:\n{}", wrong.len(), wrong.join("\n"));
    }
}

#[test]
fn the_documents_list_what_differs() {
    for (name, why) in DIFFERENT {
        let line = format!("| `{name}` | {why} |\n");
        assert!(RPC_MD.contains(&line), "docs/RPC.md lacks: {line}");
    }
}
