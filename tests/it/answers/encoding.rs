//! Answers in a content coding: a client that takes gzip or zstd gets the same bytes, decoded.

use std::io::Read;

use flate2::read::GzDecoder;
use serde_json::json;

use crate::support::client::{Client, Response};
use crate::support::corpus::{FORKS, HELICON, MAIN, Set};
use crate::support::neve::run;
use crate::support::served::recorded;

fn post(client: &mut Client, accepts: &str, body: &str) -> Response {
    let headers = [("Content-Type", "application/json"), ("Accept-Encoding", accepts)];
    client.request("POST", "/", &headers, body.as_bytes())
}

/// The body as a client sees it, and the coding that it came in.
fn decoded(answer: &Response) -> (Vec<u8>, Option<&str>) {
    let coding = answer.header("content-encoding");
    let mut out = Vec::new();
    match coding {
        Some("gzip") => {
            // One member and nothing behind it: not every client reads on.
            let mut decoder = GzDecoder::new(&answer.body[..]);
            decoder.read_to_end(&mut out).expect("it is gzip");
            assert!(decoder.into_inner().is_empty(), "bytes behind the gzip member");
        }
        Some("zstd") => {
            out = zstd::stream::decode_all(&answer.body[..]).expect("it is zstd");
        }
        _ => out.clone_from(&answer.body),
    }
    (out, coding)
}

fn call(id: &serde_json::Value, method: &str, params: &serde_json::Value) -> String {
    json!({ "jsonrpc": "2.0", "id": id, "method": method, "params": params }).to_string()
}

/// Blocks and receipts of every height, asked for in each coding.
fn compare(set: Set) {
    let (_node, neve, dir) = recorded(set, &["--precompress", "gzip,zstd"]);
    let mut client = neve.client();
    let (mut coded, mut plain_bytes, mut coded_bytes) = (0, 0, 0);
    for height in 0..=set.head {
        let id = json!([7, "x", 1e30, null, "\u{e9}"])[height as usize % 5].clone();
        let height = format!("{height:#x}");
        for body in [
            call(&id, "eth_getBlockByNumber", &json!([height, true])),
            call(&id, "eth_getBlockByNumber", &json!([height, false])),
            call(&id, "eth_getBlockReceipts", &json!([height])),
        ] {
            let plain = client.post(&body);
            for accepts in ["gzip", "zstd"] {
                let answer = post(&mut client, accepts, &body);
                let (text, coding) = decoded(&answer);
                assert!(text == plain.body, "{accepts} {body}: {}", String::from_utf8_lossy(&text));
                assert_eq!(answer.header("content-type"), Some("application/json"));
                let large = plain.body.len() > 5000;
                assert!(coding.is_some_and(|coding| coding == accepts) || !large, "{body}");
                coded += u32::from(coding.is_some());
                plain_bytes += plain.body.len();
                coded_bytes += answer.body.len();
            }
        }
    }
    println!("{}: {coded} coded, {plain_bytes} bytes became {coded_bytes}", set.folder);
    // Many of these blocks are too small to be worth it.
    assert!(coded > 100 && coded_bytes * 3 < plain_bytes * 2, "{coded}: {coded_bytes}");
    neve.stop();
    let store = dir.path().join("store").display().to_string();
    assert!(run(&["verify", "--data-dir", &store]).status.success());
}

#[test]
fn decoded_answers_are_the_plain_ones() {
    [MAIN, FORKS, HELICON].into_iter().for_each(compare);
}

#[test]
fn batches_are_put_together_from_compressed_pieces() {
    let (_node, neve, _dir) = recorded(MAIN, &["--precompress", "gzip"]);
    let mut client = neve.client();
    let receipts =
        |height: u64| call(&json!(height), "eth_getBlockReceipts", &json!([height_of(height)]));
    let large: Vec<_> = (330..=339).map(receipts).collect();
    let small = call(&json!("s"), "eth_chainId", &json!([]));
    let body = format!(
        "[{small},{},{small},{}]",
        large.join(","),
        call(&json!(1), "eth_nope", &json!([]))
    );
    let plain = client.post(&body);
    let answer = post(&mut client, "gzip", &body);
    let (text, coding) = decoded(&answer);
    assert!(coding == Some("gzip") && text == plain.body);
    assert!(answer.header("vary").is_some(), "caches must know");
}

/// Documents for caches: each coding is a representation with a tag of its own.
#[test]
fn documents_are_coded_too() {
    let (_node, neve, dir) = recorded(MAIN, &["--precompress", "gzip,zstd"]);
    let mut client = neve.client();
    let mut ask = |path: &str, method: &str, headers: &[(&str, &str)]| {
        let answer = client.request(method, path, headers, b"");
        let vary = answer.headers.iter().filter(|(name, _)| name == "vary");
        let vary: Vec<_> = vary.map(|(_, value)| value.clone()).collect();
        let tag = answer.header("etag").expect("every document has a tag").to_owned();
        (answer, vary.join(", "), tag)
    };
    for path in ["/v1/receipts/332", "/v1/block/332", "/v1/receipts/0x14c"] {
        let (plain, vary, plain_tag) = ask(path, "GET", &[]);
        assert_eq!(
            (vary.as_str(), plain.header("content-encoding")),
            ("Accept-Encoding, Origin", None)
        );
        let mut tags = vec![plain_tag.clone()];
        for accepts in ["gzip", "zstd"] {
            let wanted = ("Accept-Encoding", accepts);
            let (coded, vary, tag) = ask(path, "GET", &[wanted]);
            assert_eq!(vary, "Accept-Encoding, Origin", "{path}");
            let (text, coding) = decoded(&coded);
            assert!(coding == Some(accepts) && text == plain.body, "{path} {accepts}");
            assert!(coded.body.len() < plain.body.len());
            assert_eq!(coded.header("cache-control"), plain.header("cache-control"));
            let (head, _, head_tag) = ask(path, "HEAD", &[wanted]);
            let len = coded.body.len().to_string();
            assert_eq!(head.header("content-length"), Some(len.as_str()));
            assert_eq!((head.header("content-encoding"), &head_tag), (Some(accepts), &tag));
            // Who has these bytes is told so, and who has others is given these.
            let (same, vary, same_tag) = ask(path, "GET", &[wanted, ("If-None-Match", &tag)]);
            assert_eq!(
                (same.status, vary.as_str(), &same_tag),
                (304, "Accept-Encoding, Origin", &tag)
            );
            let (other, ..) = ask(path, "GET", &[wanted, ("If-None-Match", &plain_tag)]);
            assert_eq!((other.status, &other.body), (200, &coded.body));
            let (plain_again, ..) = ask(path, "GET", &[("If-None-Match", &tag)]);
            assert_eq!((plain_again.status, &plain_again.body), (200, &plain.body));
            assert_eq!(ask(path, "GET", &[wanted, ("If-Match", &tag)]).0.status, 200);
            assert_eq!(ask(path, "GET", &[wanted, ("If-Match", &plain_tag)]).0.status, 412);
            tags.push(tag);
        }
        tags.sort();
        tags.dedup();
        assert_eq!(tags.len(), 3, "{path}");
        assert_eq!(ask(path, "GET", &[("If-None-Match", &plain_tag)]).0.status, 304);
    }
    // There is one form of what is small.
    for path in ["/v1/block/1", "/v1/openapi.json"] {
        let (answer, vary, _) = ask(path, "GET", &[("Accept-Encoding", "gzip")]);
        assert_eq!((vary.as_str(), answer.header("content-encoding")), ("Origin", None), "{path}");
    }
    drop((neve, dir));
    let (_node, neve, _dir) = recorded(MAIN, &[]);
    let wanted = [("Accept-Encoding", "gzip, zstd")];
    let answer = neve.client().request("GET", "/v1/receipts/332", &wanted, b"");
    assert_eq!((answer.header("content-encoding"), answer.header("vary")), (None, Some("Origin")));
}

fn height_of(height: u64) -> String {
    format!("{height:#x}")
}

#[test]
fn small_or_unwanted_response_stays_uncompressed() {
    let (_node, neve, _dir) = recorded(MAIN, &["--precompress", "gzip"]);
    let mut client = neve.client();
    let small = call(&json!(1), "eth_getBlockTransactionCountByNumber", &json!(["latest"]));
    assert_eq!(decoded(&post(&mut client, "gzip", &small)).1, None);
    let large = call(&json!(1), "eth_getBlockReceipts", &json!(["0x14c"]));
    for accepts in ["", "identity", "br, deflate", "gzip;q=0", "zstd"] {
        // Nothing is kept in zstd.
        assert_eq!(decoded(&post(&mut client, accepts, &large)).1, None, "{accepts}");
    }
    for accepts in ["gzip", "deflate, gzip;q=0.5", "GZIP", "zstd, gzip"] {
        assert_eq!(decoded(&post(&mut client, accepts, &large)).1, Some("gzip"), "{accepts}");
    }
    // By default nothing is compressed.
    let (_node, neve, _dir) = recorded(MAIN, &[]);
    assert_eq!(decoded(&post(&mut neve.client(), "gzip", &large)).1, None);
}
