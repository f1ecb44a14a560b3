//! `neve get` and `neve export`: the node's bytes, line by line.

use std::fs::File;

use crate::support::corpus::MAIN;
use crate::support::neve::{Neve, command_of, fresh_dir, run};
use crate::support::recorded::Recorded;

#[test]
fn exported_lines_have_the_bytes_of_the_node_and_gaps_are_named() {
    let (node, dir) = (Recorded::start(MAIN), fresh_dir());
    let neve = Neve::start(dir.path(), &["--upstream", &node.url(), "--start", "300"]);
    neve.wait_for_head(339);
    let url = format!("http://{}", neve.address);
    let line = |height: u64| {
        let texts = node.height(height);
        format!("{{\"block\":{},\"receipts\":{}}}\n", texts.block, texts.receipts)
    };
    let text = |arguments: &[&str]| {
        let output = run(&[arguments, &["--from", &url]].concat());
        let [out, err] = [output.stdout, output.stderr]
            .map(|text| String::from_utf8(text).expect("neve prints UTF-8"));
        (output.status.code(), out, err)
    };
    let by_height = (Some(0), line(320), String::new());
    assert_eq!(text(&["get", "320"]), by_height);
    assert_eq!(text(&["get", "0x140"]), by_height);
    assert_eq!(text(&["get", &node.height(320).hash]), by_height);
    let all: String = (310..=339).map(line).collect();
    assert_eq!(text(&["export", "--first", "310"]), (Some(0), all.clone(), String::new()));
    assert_eq!(text(&["export", "--first", "0x136", "--last", "0x153"]).1, all);
    // The heights that are there come first.
    let (code, out, err) = text(&["export", "--first", "338", "--last", "341"]);
    assert_eq!((code, out), (Some(1), line(338) + &line(339)));
    assert!(err.contains("block 0x154: ") && err.contains("go on with --first 340"), "{err}");
    let (code, _, err) = text(&["export", "--first", "400"]);
    assert_eq!(code, Some(1));
    assert!(err.contains("--first 400: above the last height, 339"), "{err}");
    let admin = format!("http://{}", neve.admin);
    let output = run(&["get", "320", "--from", &admin]);
    let err = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(1), "{err}");
    assert!(err.contains("HTTP 404 Not Found, no JSON-RPC; name the address of --listen"), "{err}");
    let output = run(&["get", "320", "--from", "127.0.0.1:1"]);
    let err = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(64), "{err}");
    assert!(err.starts_with("neve: --from 127.0.0.1:1: no URL; write http://"), "{err}");
    let (code, _, err) = text(&["get", "latest"]);
    assert_eq!(code, Some(64));
    assert!(err.contains("write a height (69000000 or 0x41cdb40) or a hash"), "{err}");
}

#[test]
fn node_that_does_not_run_is_said_as_that() {
    let url = "http://127.0.0.1:1";
    for arguments in [&["get", "5"][..], &["export", "--first", "5"]] {
        let output = run(&[arguments, &["--from", url]].concat());
        let error = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(error.contains(&format!("cannot reach {url}: cannot connect: ")), "{error}");
        assert!(error.contains("; see --from"), "{error}");
        assert_eq!(output.status.code(), Some(1), "{error}");
    }
}

#[test]
fn export_to_a_full_disk_names_the_height_to_go_on_with() {
    let node = Recorded::start(MAIN);
    let full = File::options().write(true).open("/dev/full").unwrap();
    for form in ["ndjson", "rlp"] {
        let arguments = ["export", "--first", "310", "--form", form, "--from", &node.url()];
        let mut export = command_of(&arguments);
        let output = export.stdout(full.try_clone().unwrap()).output().unwrap();
        let error = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(1), "{error}");
        let next = "cut off what is there of height 310, then go on with --first 310";
        assert!(error.contains("No space left on device") && error.contains(next), "{error}");
    }
}

/// Bytes of the item at the begin of an RLP text: those before its payload, and those of the payload.
fn item(rlp: &[u8]) -> (usize, usize) {
    let long = |lead: u8, base: u8| {
        let len = usize::from(lead - base);
        let bytes = rlp[1..=len].iter();
        (1 + len, bytes.fold(0, |sum, byte| sum << 8 | usize::from(*byte)))
    };
    match rlp[0] {
        0..=0x7f => (0, 1),
        lead @ 0x80..=0xb7 => (1, usize::from(lead - 0x80)),
        lead @ 0xb8..=0xbf => long(lead, 0xb7),
        lead @ 0xc0..=0xf7 => (1, usize::from(lead - 0xc0)),
        lead => long(lead, 0xf7),
    }
}

/// The items of a payload.
fn items(mut rlp: &[u8]) -> Vec<&[u8]> {
    let mut found = Vec::new();
    while !rlp.is_empty() {
        let (head, len) = item(rlp);
        found.push(&rlp[..head + len]);
        rlp = &rlp[head + len..];
    }
    found
}

#[test]
fn exported_rlp_is_a_stream_of_blocks_whose_hashes_are_those_of_the_node() {
    let (node, dir) = (Recorded::start(MAIN), fresh_dir());
    let neve = Neve::start(dir.path(), &["--upstream", &node.url(), "--start", "300"]);
    neve.wait_for_head(339);
    let url = format!("http://{}", neve.address);
    let output = run(&["export", "--form", "rlp", "--first", "310", "--from", &url]);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let blocks = items(&output.stdout);
    assert_eq!(blocks.len(), 30);
    for (block, height) in blocks.into_iter().zip(310_u64..) {
        let (head, _) = item(block);
        let parts = items(&block[head..]);
        assert_eq!(parts.len(), 5, "header, transactions, uncles, version, extra data");
        let hash = neve_keccak::keccak256_all(&[parts[0]])[0].to_string();
        assert_eq!(hash, node.height(height).hash, "{height}");
        let texts: serde_json::Value = serde_json::from_str(&node.height(height).block).unwrap();
        let (head, _) = item(parts[1]);
        let sent = texts["transactions"].as_array().map_or(0, Vec::len);
        assert_eq!(items(&parts[1][head..]).len(), sent, "{height}");
        let size = u64::from_str_radix(&texts["size"].as_str().unwrap()[2..], 16).unwrap();
        assert_eq!(block.len() as u64, size, "{height}");
    }
    if let Some(file) = std::env::var_os("NEVE_TEST_RLP") {
        std::fs::write(file, &output.stdout).unwrap();
    }
}
