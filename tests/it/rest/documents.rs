//! The documents under `/v1/`: the bytes of the JSON-RPC results, tags that name them, how long
//! they may be kept, and what is refused.

use std::collections::{HashMap, HashSet};

use serde_json::{Value, json};
use tempfile::TempDir;

use crate::support::client::{Client, Response};
use crate::support::corpus::{HELICON, MAIN, Set};
use crate::support::neve::{Neve, fresh_dir};
use crate::support::recorded::Recorded;
use crate::support::served::recorded;

pub(crate) const FOR_GOOD: &str = "public, max-age=31536000, immutable";
pub(crate) const A_SECOND: &str = "public, max-age=1, must-revalidate";

/// A neve that holds all of a recorded chain.
pub(crate) fn follow(set: Set) -> (Recorded, Neve, TempDir) {
    recorded(set, &[])
}

/// The result of a call to the byte.
fn result(client: &mut Client, method: &str, params: &str) -> String {
    let answer = client.call(method, params).text();
    let result = answer.strip_prefix("{\"jsonrpc\":\"2.0\",\"id\":1,\"result\":");
    let result = result.and_then(|rest| rest.strip_suffix("}\n"));
    result.unwrap_or_else(|| panic!("{method}{params}: {answer}")).to_owned()
}

/// A strong tag.
pub(crate) fn tag(answer: &Response) -> String {
    let tag = answer.header("etag").unwrap_or_else(|| panic!("no tag: {answer:?}"));
    assert!(tag.starts_with('"') && tag.ends_with('"') && tag.len() > 70, "{tag} is not strong");
    tag.to_owned()
}

/// Asks for documents and keeps what they had.
struct Reader {
    client: Client,
    /// Documents by their tags: the same tag is the same bytes.
    seen: HashMap<String, String>,
}

impl Reader {
    /// These addresses lead to this document; there may be other documents with its bytes.
    fn reads(&mut self, paths: &[String], expected: &str, keep: &str) {
        for path in paths {
            let answer = self.client.get(path);
            assert_eq!((answer.status, answer.text().as_str()), (200, expected), "{path}");
            assert_eq!(answer.header("content-type"), Some("application/json"), "{path}");
            assert_eq!(answer.header("cache-control"), Some(keep), "{path}");
            let len = expected.len().to_string();
            assert_eq!(answer.header("content-length"), Some(len.as_str()), "{path}");
            let before = self.seen.entry(tag(&answer)).or_insert_with(|| expected.to_owned());
            assert_eq!(before, expected, "{path} has a tag of other bytes");
        }
    }
}

/// Every document of a height. Gives how many.
fn read_height(reader: &mut Reader, height: u64, keep: &str) -> usize {
    let hex = format!("{height:#x}");
    let full = result(&mut reader.client, "eth_getBlockByNumber", &format!("[\"{hex}\",true]"));
    let hashes = result(&mut reader.client, "eth_getBlockByNumber", &format!("[\"{hex}\",false]"));
    let header = result(&mut reader.client, "eth_getHeaderByNumber", &format!("[\"{hex}\"]"));
    let receipts = result(&mut reader.client, "eth_getBlockReceipts", &format!("[\"{hex}\"]"));
    let block: Value = serde_json::from_str(&hashes).unwrap();
    let hash = block["hash"].as_str().unwrap();
    let upper = format!("0x{}", hash[2..].to_uppercase());
    let names = [height.to_string(), hex, hash.to_owned(), upper];
    let paths = |before: &str, behind: &str| -> Vec<_> {
        names.iter().map(|name| format!("/v1/{before}/{name}{behind}")).collect()
    };
    reader.reads(&paths("block", ""), &full, keep);
    reader.reads(&paths("block", "?transactions=full"), &full, keep);
    reader.reads(&paths("block", "?transactions=hashes"), &hashes, keep);
    reader.reads(&paths("header", ""), &header, keep);
    reader.reads(&paths("receipts", ""), &receipts, keep);
    let transactions = block["transactions"].as_array().unwrap();
    for hash in transactions.iter().map(|hash| hash.as_str().unwrap()) {
        let params = format!("[\"{hash}\"]");
        let transaction = result(&mut reader.client, "eth_getTransactionByHash", &params);
        let receipt = result(&mut reader.client, "eth_getTransactionReceipt", &params);
        reader.reads(&[format!("/v1/tx/{hash}")], &transaction, keep);
        reader.reads(&[format!("/v1/receipt/{hash}")], &receipt, keep);
    }
    4 + 2 * transactions.len()
}

/// Last heights of the chain under Helicon are settled by no header yet.
#[test]
#[ignore = "takes many seconds of a processor: ./check"]
fn every_document_is_the_result_to_the_byte() {
    for (set, settled) in [(MAIN, MAIN.head), (HELICON, settled_of_helicon())] {
        let (_node, neve, _dir) = follow(set);
        let mut reader = Reader { client: neve.client(), seen: HashMap::new() };
        let keep = |height| if height <= settled { FOR_GOOD } else { A_SECOND };
        let count: usize =
            (0..=set.head).map(|height| read_height(&mut reader, height, keep(height))).sum();
        assert!(settled < HELICON.head && count > 5000, "{count}");
        assert_eq!(reader.seen.len(), count, "every document has a tag of its own");
    }
}

/// The height that the newest recorded header settles.
fn settled_of_helicon() -> u64 {
    let name = format!("block/{}/full", HELICON.head);
    let rows = HELICON.rows("blocks");
    let row = rows.iter().find(|row| row.name == name).expect("it was recorded");
    let answer: Value = serde_json::from_slice(&row.answer).unwrap();
    let settled = answer["result"]["settledHeight"].as_str().unwrap();
    u64::from_str_radix(&settled[2..], 16).unwrap()
}

#[test]
fn tags_move_and_are_asked_again() {
    let (_node, neve, _dir) = follow(HELICON);
    let mut client = neve.client();
    let mut found = HashSet::new();
    for name in ["earliest", "latest", "pending", "safe", "finalized"] {
        for (what, method, rest) in [
            ("block", "eth_getBlockByNumber", ",true"),
            ("header", "eth_getHeaderByNumber", ""),
            ("receipts", "eth_getBlockReceipts", ""),
        ] {
            let expected = result(&mut client, method, &format!("[\"{name}\"{rest}]"));
            let answer = client.get(&format!("/v1/{what}/{name}"));
            assert_eq!(answer.text(), expected, "{what} {name}");
            assert_eq!(answer.header("cache-control"), Some("no-cache"));
            found.insert((tag(&answer), expected));
        }
    }
    let tags: HashSet<_> = found.iter().map(|(tag, _)| tag).collect();
    // Three heights, and what is pending shown otherwise in two documents.
    assert_eq!((tags.len(), found.len()), (11, 11));
}

#[test]
fn conditions_are_looked_at() {
    let (_node, neve, _dir) = follow(MAIN);
    let mut client = neve.client();
    for path in ["/v1/block/100", "/v1/receipts/latest", "/v1/openapi.json"] {
        let whole = client.get(path);
        let tag = whole.header("etag").unwrap().to_owned();
        let mut ask = |method: &str, name: &str, value: &str| {
            let answer = client.request(method, path, &[(name, value)], b"");
            let same = answer.header("etag") == Some(tag.as_str());
            assert!(same, "{method} {path} {name}: {value}: {answer:?}");
            (answer.status, answer.header("cache-control").map(str::to_owned), answer.body)
        };
        let keep = whole.header("cache-control").map(str::to_owned);
        for list in [tag.clone(), format!("W/{tag}"), format!("\"x\", {tag}"), "*".to_owned()] {
            for method in ["GET", "HEAD"] {
                assert_eq!(ask(method, "If-None-Match", &list), (304, keep.clone(), vec![]));
            }
        }
        assert_eq!(ask("GET", "If-None-Match", "\"x\""), (200, keep.clone(), whole.body.clone()));
        assert_eq!(ask("GET", "Range", "bytes=0-3"), (200, keep.clone(), whole.body.clone()));
        assert_eq!(ask("GET", "If-Match", &tag), (200, keep.clone(), whole.body.clone()));
        assert_eq!(ask("GET", "If-Match", "\"x\""), (412, Some("no-store".to_owned()), vec![]));
    }
}

#[test]
fn head_says_what_get_would() {
    let (_node, neve, _dir) = follow(MAIN);
    let mut client = neve.client();
    let unknown = format!("/v1/tx/0x{}", "1".repeat(64));
    let paths = ["/v1/block/100", "/v1/header/latest", "/v1/openapi.json", "/v1/block/9999"];
    for path in paths.into_iter().chain([unknown.as_str(), "/v1/block/x", "/v1/nothing"]) {
        let get = client.get(path);
        let sent = neve.count("neve_http_response_bytes_total");
        let head = client.request("HEAD", path, &[], b"");
        assert_eq!(neve.count("neve_http_response_bytes_total"), sent, "{path}: no body is sent");
        let of = |answer: &Response| {
            let dated = answer.headers.iter().filter(|(name, _)| name != "date").cloned();
            let mut headers: Vec<_> = dated.collect();
            headers.sort();
            (answer.status, headers)
        };
        assert_eq!(of(&head), of(&get), "{path}");
        assert_eq!(get.header("content-length"), Some(get.body.len().to_string().as_str()));
    }
}

#[test]
fn block_that_is_not_served_is_a_miss() {
    let node = Recorded::start(MAIN);
    let dir = fresh_dir();
    let arguments = ["--upstream", &node.url(), "--start", "100", "--miss-status", "404"];
    let neve = Neve::start(dir.path(), &arguments);
    neve.wait_for_head(MAIN.head);
    let mut client = neve.client();
    let hash = format!("0x{}", "1".repeat(64));
    let held = "(served: 0x64 to 0x153); requested data is not available here";
    for (path, what) in [
        ("/v1/block/99", "block 0x63"),
        ("/v1/header/0x154", "block 0x154"),
        ("/v1/receipts/earliest", "block 0x0"),
        (&format!("/v1/block/{hash}"), &hash),
        (&format!("/v1/tx/{hash}"), &hash),
        (&format!("/v1/receipt/{hash}"), &hash),
    ] {
        // A miss is one, whatever the client has.
        let answer = client.request("GET", path, &[("If-None-Match", "*")], b"");
        assert_eq!(answer.status, 404, "{path}");
        assert_eq!(answer.header("cache-control"), Some("no-store"));
        assert_eq!(answer.header("x-neve-served"), Some("0x64-0x153"));
        assert_eq!(answer.header("etag"), None);
        let message = format!("header not found: {what} is not served {held}");
        let data = json!({ "firstHeight": "0x64", "head": "0x153" });
        let error = json!({ "code": -32000, "message": message, "data": data });
        assert_eq!(answer.json(), json!({ "error": error }), "{path}");
    }
    let missed = |method: &str| {
        neve.count(&format!("neve_rpc_calls_total{{method=\"{method}\",outcome=\"miss\"}}"))
    };
    assert_eq!((missed("eth_getBlockByNumber"), missed("eth_getTransactionByHash")), (1, 1));
}

#[test]
fn malformed_path_is_refused() {
    let (_node, neve, _dir) = follow(MAIN);
    let mut client = neve.client();
    let mut refused = |method: &str, path: &str, status: u16, code: i64, says: &str| {
        let answer = client.request(method, path, &[], b"");
        assert_eq!(answer.status, status, "{method} {path}: {}", answer.text());
        assert_eq!(answer.header("content-type"), Some("application/json"));
        assert_eq!(answer.header("cache-control"), Some("no-store"));
        let error = answer.json();
        assert_eq!(error["error"]["code"], code, "{method} {path}");
        assert!(error["error"]["message"].as_str().unwrap().contains(says), "{error}");
        answer.header("allow").map(str::to_owned)
    };
    for path in ["/v1/block/", "/v1/block/01", "/v1/header/one", "/v1/receipts/0x", "/v1/block/%"] {
        refused("GET", path, 400, -32602, "invalid block: ");
    }
    refused("GET", "/v1/block/accepted", 400, -32602, "earliest, latest, pending, safe");
    refused("GET", "/v1/tx/1", 400, -32602, "invalid transaction hash: ");
    refused("GET", "/v1/block/1?transactions=some", 400, -32602, "transactions=hashes");
    refused("GET", "/v1/header/1?transactions=full", 400, -32602, "no parameters");
    for path in ["/v1/", "/v1/block", "/v1/blocks/1", "/v1//block/1", "/v1/../v1/block/1"] {
        refused("GET", path, 404, -32601, "/v1/openapi.json");
    }
    for method in ["POST", "PUT", "DELETE", "PATCH", "OPTIONS", "TRACE"] {
        let allowed = refused(method, "/v1/block/1", 405, -32600, "use GET or HEAD");
        assert_eq!(allowed.as_deref(), Some("GET, HEAD"));
    }
}

/// Pages of other origins may ask, and a path that is written otherwise is the same path.
#[test]
fn documents_go_the_way_of_all_answers() {
    let (_node, neve, _dir) = follow(MAIN);
    let mut client = neve.client();
    let answer = client.request("GET", "/v1/block/1", &[("Origin", "https://a.example")], b"");
    assert_eq!(answer.header("access-control-allow-origin"), Some("*"));
    assert_eq!(answer.header("vary"), Some("Origin"));
    assert_eq!(client.get("/%761/block/%31").body, answer.body);
}

/// A cache keeps a 404 under the address alone, without the header that was the reason of it.
#[test]
fn response_that_says_nothing_else_is_not_stored() {
    let (_node, neve, _dir) = follow(MAIN);
    let call = r#"{"jsonrpc":"2.0","id":1,"method":"eth_chainId"}"#;
    let json = ("Content-Type", "application/json");
    let route = ("Avalanche-Api-Route", "X");
    for (path, header, body, status) in [
        ("/v1/block/1", route, "", 404),
        ("/v1/block/1", ("Transfer-Encoding", "gzip, chunked"), "", 501),
        ("/nothing", json, "", 404),
        ("/", json, "", 404),
        ("//v1/block/1", json, "", 301),
        ("/ext/bc/C/rpc", json, "", 200),
        ("/ext/bc/C/rpc", json, call, 200),
        ("/ext/bc/C/ws", json, "", 400),
    ] {
        let answer = neve.client().request("GET", path, &[header], body.as_bytes());
        let found = (answer.status, answer.header("cache-control"));
        assert_eq!(found, (status, Some("no-store")), "{path} {header:?}");
    }
    let head = neve.client().request("HEAD", "/v1/block/1", &[route], b"");
    assert_eq!((head.status, head.header("cache-control")), (404, Some("no-store")));
}

#[test]
fn the_description_is_the_one_in_the_documents() {
    let (_node, neve, _dir) = follow(MAIN);
    let answer = neve.client().get("/v1/openapi.json");
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/docs/openapi.json");
    assert_eq!(answer.body, std::fs::read(path).unwrap());
    assert_eq!(answer.header("cache-control"), Some("public, max-age=300"));
    assert_eq!(answer.json()["openapi"], "3.1.0");
}
