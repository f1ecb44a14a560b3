//! `neve verify`: what it finds in stores that are intact to the byte and yet wrong, how it says
//! so, and its exit codes.

use std::fs;
use std::path::{Path, PathBuf};

use neve_record::parts::{FULL, HASHES, HEADER, RECEIPTS, SPANS};
use neve_store::{Hash, Identity, Options, Part, Record};
use serde_json::Value;
use tempfile::TempDir;

use crate::support::corpus::{HELICON, MAIN, Set};
use crate::support::neve::{Neve, fresh_dir, run, run_with};
use crate::support::recorded::Recorded;

/// A store of a whole recorded chain, in small segments.
fn store(set: Set) -> (TempDir, PathBuf) {
    let node = Recorded::start(set);
    let dir = fresh_dir();
    let arguments = ["--upstream", &node.url(), "--start", "0", "--segment-blocks", "16"];
    // The copies are made of segments.
    let neve = Neve::start(dir.path(), &[&arguments[..], &["--unpacked-bytes", "none"]].concat());
    neve.wait_for_head(set.head);
    neve.stop();
    let path = dir.path().join("store");
    (dir, path)
}

/// Runs verify; returns exit code and lines.
fn verify(arguments: &[&str]) -> (Option<i32>, Vec<String>) {
    let output = run(&[&["verify"], arguments].concat());
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let errors = String::from_utf8_lossy(&output.stderr).into_owned();
    (output.status.code(), text.lines().chain(errors.lines()).map(str::to_owned).collect())
}

fn path(path: &Path) -> String {
    path.display().to_string()
}

#[test]
fn a_good_store_is_clean_and_its_segments_alone_too() {
    let (_dir, store) = store(MAIN);
    let (code, lines) = verify(&["--data-dir", &path(&store), "--recover-senders"]);
    let summary = "heights 0 to 339: 340 records in 22 segments and 2 merged tables, \
                   0 not settled yet, 0 findings";
    assert_eq!((code, lines), (Some(0), vec![summary.to_owned()]));
    let segment = store.join("00000000000000000032.seg");
    let copy = store.parent().unwrap().join("copied");
    fs::copy(&segment, &copy).unwrap();
    let (code, lines) = verify(&["--segment", &path(&copy)]);
    assert_eq!(code, Some(0), "{lines:?}");
    assert!(lines[0].starts_with("heights 32 to 47: 16 records in 1 segments"), "{lines:?}");
    let variable = [("NEVE_DATA_DIR", "/nothing")];
    let beside = run_with(&variable, &["verify", "--segment", &path(&copy)]);
    assert_eq!(beside.status.code(), Some(0), "the variable of a server is no second place");
    let (code, lines) = verify(&["--data-dir", &path(&store), "--json"]);
    let summary: Value = serde_json::from_str(&lines[0]).unwrap();
    assert_eq!(
        (code, &summary["records"], &summary["findings"]),
        (Some(0), &340.into(), &0.into())
    );
}

#[test]
fn unreadable_store_exits_with_2_and_findings_with_1() {
    let (code, lines) = verify(&["--data-dir", "/nonexistent/store"]);
    assert_eq!(code, Some(2));
    let error = "neve: cannot verify: --data-dir /nonexistent/store: no such directory; name the directory of neve serve";
    assert_eq!(lines[0], error);
    let (code, _) = verify(&["--segment", "/nonexistent/file"]);
    assert_eq!(code, Some(2));
    let (_dir, store) = store(MAIN);
    let (code, lines) = verify(&["--data-dir", &path(&store.join("stamp"))]);
    assert_eq!(code, Some(2), "a file is no directory");
    assert!(lines[0].contains("stamp: not a directory; name the directory"), "{lines:?}");
    let segment = store.join("00000000000000000016.seg");
    let mut bytes = fs::read(&segment).unwrap();
    let offset = u64::from_le_bytes(bytes[4096 + 64..][..8].try_into().unwrap()) as usize;
    bytes[offset + 300] ^= 1;
    fs::write(&segment, &bytes).unwrap();
    let (code, lines) = verify(&["--data-dir", &path(&store)]);
    assert_eq!(code, Some(1));
    let line = format!(
        "00000000000000000016.seg height 17 offset {offset}: record: record fails its checksum"
    );
    assert_eq!(lines[0], line);
    let (_, lines) = verify(&["--data-dir", &path(&store), "--json"]);
    let finding: Value = serde_json::from_str(&lines[0]).unwrap();
    assert_eq!(finding["file"], "00000000000000000016.seg");
    assert_eq!((&finding["height"], &finding["offset"]), (&17.into(), &offset.into()));
    assert_eq!(finding["kind"], "record");
}

/// Verify and a server on the same store do not mind each other.
#[test]
fn a_store_that_is_served_can_be_verified() {
    let node = Recorded::start_at(MAIN, 100, false);
    let dir = fresh_dir();
    let arguments = ["--upstream", &node.url(), "--start", "0", "--segment-blocks", "8"];
    let neve = Neve::start(dir.path(), &arguments);
    let store = path(&dir.path().join("store"));
    neve.wait_for_head(0); // before the first block there is no store
    for head in [100, 180, 260, MAIN.head] {
        node.grow(head); // and look while it is being stored
        let (code, lines) = verify(&["--data-dir", &store]);
        assert_eq!(code, Some(0), "{lines:?}");
    }
    neve.wait_for_head(MAIN.head);
}

/// Copies a store record by record, changing some; every checksum of the copy is right.
fn forge(original: &Path, copy: &Path, change: impl Fn(&mut Record)) {
    let from = neve_store::open(original, Options::default()).unwrap();
    let options = Options { segment_blocks: 16, disk_reserve_bytes: 0, ..Options::default() };
    let mut to = neve_store::open(copy, options).unwrap();
    let stamp = from.writer.stamp().unwrap();
    to.writer.bind(stamp.identity, stamp.rules).unwrap();
    for height in from.reader.range().unwrap() {
        let found = from.reader.record(height).unwrap();
        let part = |at| Part::uncompressed(found.part(at).slice.as_ref().to_vec());
        let mut record = Record {
            height,
            timestamp: found.timestamp(),
            hash: found.hash(),
            parent: found.parent(),
            transactions: (0..).map_while(|at| found.transaction(at).unwrap()).collect(),
            logs: found.terms().unwrap().collect(),
            flags: found.flags(),
            parts: (0..5).map(part).collect(),
        };
        change(&mut record);
        to.writer.append(&record).unwrap();
    }
}

/// Forges the record at `height` and returns the kinds of findings.
fn findings(original: &Path, height: u64, change: impl Fn(&mut Record)) -> Vec<String> {
    let dir = fresh_dir();
    forge(original, dir.path(), |record| {
        if record.height == height {
            change(record);
        }
    });
    let (code, lines) = verify(&["--data-dir", &path(dir.path()), "--json"]);
    let found: Vec<Value> = lines.iter().map(|line| serde_json::from_str(line).unwrap()).collect();
    let found = found.iter().filter(|finding| finding.get("kind").is_some());
    let kinds: Vec<_> = found
        .inspect(|finding| assert!(finding["height"].as_u64().unwrap() >= height, "{finding}"))
        .map(|finding| finding["kind"].as_str().unwrap().to_owned())
        .collect();
    assert_eq!(code, Some(i32::from(!kinds.is_empty())));
    kinds
}

/// Text before a log's address.
const LOG: &str = "\"logs\":[{\"address\":\"0x";

/// The finding, what was changed, and how.
type Change = (&'static str, &'static str, fn(&mut Record));

/// Changes one byte.
fn edit(part: &mut Part, at: usize, change: fn(u8) -> u8) {
    let mut bytes = part.bytes.to_vec();
    bytes[at] = change(bytes[at]);
    part.bytes = bytes.into();
}

/// Changes a hex digit behind the first occurrence of `key`.
fn flip(part: &mut Part, key: &str) {
    let at = part.bytes.windows(key.len()).position(|bytes| bytes == key.as_bytes());
    let at = at.unwrap_or_else(|| panic!("no {key}")) + key.len();
    edit(part, at, |digit| if digit == b'1' { b'0' } else { b'1' });
}

#[test]
fn parts_that_headers_do_not_commit_to_are_found() {
    let (_dir, store) = store(MAIN);
    let changes: [Change; 13] = [
        ("header_hash", "state root", |r| flip(&mut r.parts[FULL], "\"stateRoot\":\"0x")),
        ("transaction_hash", "a value", |r| flip(&mut r.parts[FULL], "\"value\":\"0x")),
        ("size", "the size", |r| flip(&mut r.parts[FULL], "\"size\":\"0x")),
        ("receipts_root", "a status", |r| flip(&mut r.parts[RECEIPTS], "\"status\":\"0x")),
        ("receipt_bloom", "a log's address", |r| flip(&mut r.parts[RECEIPTS], LOG)),
        ("part", "the block with hashes", |r| flip(&mut r.parts[HASHES], "\"stateRoot\":\"0x")),
        ("part", "the header", |r| flip(&mut r.parts[HEADER], "\"stateRoot\":\"0x")),
        ("part", "a span", |r| edit(&mut r.parts[SPANS], 84, |byte| byte ^ 1)),
        ("record_header", "the flags", |r| r.flags ^= 1),
        ("record_header", "the time", |r| r.timestamp += 1),
        ("record_header", "a transaction's key", |r| r.transactions[0] = Hash([7; 32])),
        ("terms", "a log's term", |r| r.logs[0][0] ^= 1),
        ("terms", "the number of logs", |r| r.logs.truncate(0)),
    ];
    for (expected, what, change) in changes {
        let kinds = findings(&store, 213, change);
        assert!(
            kinds.iter().any(|kind| kind == expected),
            "{what}: expected {expected}, found {kinds:?}"
        );
    }
    assert_eq!(findings(&store, 213, |_| {}), Vec::<String>::new());
}

/// A client that ignores case would read the second value. An old store may have such keys.
#[test]
fn keys_that_differ_in_case_only_are_found() {
    let (_dir, store) = store(MAIN);
    let status = |record: &mut Record| {
        insert(&mut record.parts[RECEIPTS], "\"status\":\"0x1\"", ",\"Status\":\"0x0\"");
    };
    let number = |record: &mut Record| {
        insert(&mut record.parts[FULL], "\"number\":\"0xd5\"", ",\"Number\":\"0x1\"");
    };
    for change in [status as fn(&mut Record), number] {
        let kinds = findings(&store, 213, change);
        assert!(kinds.iter().any(|kind| kind == "unknown_key"), "{kinds:?}");
    }
}

/// Puts `more` behind the first occurrence of `key`.
fn insert(part: &mut Part, key: &str, more: &str) {
    let text = String::from_utf8(part.bytes.to_vec()).unwrap();
    assert!(text.contains(key), "no {key}");
    part.bytes = text.replacen(key, &format!("{key}{more}"), 1).into();
}

#[test]
fn receipts_of_helicon_are_held_against_their_settling_header() {
    let (_dir, store) = store(HELICON);
    let (code, lines) = verify(&["--data-dir", &path(&store)]);
    assert_eq!(code, Some(0), "{lines:?}");
    assert!(lines[0].contains("9 not settled yet"), "{lines:?}");
    let kinds =
        findings(&store, 300, |record| flip(&mut record.parts[RECEIPTS], "\"status\":\"0x"));
    assert_eq!(kinds, ["settled_receipts_root"]);
}

/// Heights of another chain under this chain's stamp.
#[test]
fn a_store_under_a_wrong_stamp_is_found() {
    let (_dir, store) = store(MAIN);
    let identity = Identity { chain_id: 43114, genesis: Hash([1; 32]) };
    let stamp = neve_store::Stamp { identity, rules: 0 };
    fs::write(store.join("stamp"), stamp.to_text()).unwrap();
    let (code, lines) = verify(&["--data-dir", &path(&store)]);
    assert_eq!(code, Some(1));
    assert!(lines[0].contains("identity: segment holds chain 43112"), "{lines:?}");
}

/// Checksums do not tell it, and no upstream is asked.
#[test]
fn repair_that_leaves_findings_of_verify_ends_with_one() {
    let (_dir, store) = store(MAIN);
    let repaired = |dir: &Path| {
        let dir = path(dir);
        let place = ["--data-dir", &dir, "--disk-reserve-bytes", "1MiB"];
        let output = run(&[&["repair", "--upstream", "http://127.0.0.1:9"], &place[..]].concat());
        let said = [output.stdout, output.stderr].concat();
        (output.status.code(), String::from_utf8_lossy(&said).into_owned())
    };
    let dir = fresh_dir();
    forge(&store, dir.path(), |record| {
        if record.height == 213 {
            flip(&mut record.parts[RECEIPTS], "\"status\":\"0x");
        }
    });
    let (code, said) = repaired(dir.path());
    assert_eq!(code, Some(1), "{said}");
    assert!(said.contains("height 213") && said.contains(": receipts_root: "), "{said}");
    let (code, said) = repaired(&store);
    assert_eq!(code, Some(0), "{said}");
    assert!(said.contains(", 0 findings"), "{said}");
}
