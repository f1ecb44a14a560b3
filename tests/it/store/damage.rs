//! Damage on the disk: flipped bits and missing segments. An answer is what was stored, or a miss,
//! and neve gets the rest back by itself.

use std::fs::{self, File};
use std::io::Read;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde_json::{Value, json};
use tempfile::TempDir;

use crate::support::client::Client;
use crate::support::corpus::{HELICON, MAIN, Set};
use crate::support::neve::{Neve, fresh_dir, run};
use crate::support::recorded::Recorded;

const MISS: u16 = 421;

/// The tests damage segment files, which must not become packed ones.
const UNPACKED: [&str; 2] = ["--unpacked-bytes", "none"];

fn start(dir: &Path, node: &Recorded, arguments: &[&str]) -> Neve {
    let url = node.url();
    let fixed = ["--upstream", &url, "--start", "0", "--segment-blocks", "32"];
    let precompress = ["--precompress", "gzip,zstd"];
    Neve::start(dir, &[&fixed[..], &precompress, &UNPACKED, arguments].concat())
}

/// A store of a whole recorded chain, and its answers.
fn stored(set: Set) -> (Recorded, TempDir, Vec<Vec<u8>>) {
    let (node, dir) = (Recorded::start(set), fresh_dir());
    let neve = start(dir.path(), &node, &[]);
    neve.wait_for_head(set.head);
    let mut client = neve.client();
    let answers = questions(set).iter().map(|question| ask(&mut client, question).0).collect();
    neve.stop();
    (node, dir, answers)
}

/// Coding and body.
fn questions(set: Set) -> Vec<(&'static str, String)> {
    let of = |height: u64| {
        let height = format!("{height:#x}");
        let full = json!([height, true]);
        [
            ("identity", "eth_getBlockByNumber", full.clone()),
            ("identity", "eth_getBlockReceipts", json!([height])),
            ("gzip", "eth_getBlockByNumber", full.clone()),
            ("zstd", "eth_getBlockByNumber", full),
            ("gzip", "eth_getBlockReceipts", json!([height])),
            ("identity", "eth_getLogs", json!([{ "fromBlock": height, "toBlock": height }])),
        ]
    };
    let all = (0..=set.head).flat_map(of);
    all.map(|(coding, method, params)| {
        let body = json!({ "jsonrpc": "2.0", "id": 1, "method": method, "params": params });
        (coding, body.to_string())
    })
    .collect()
}

/// The decoded body, and the status. A body that does not unpack fails the test.
fn ask(client: &mut Client, (coding, body): &(&str, String)) -> (Vec<u8>, u16) {
    let headers = [("Content-Type", "application/json"), ("Accept-Encoding", coding)];
    let answer = client.request("POST", "/", &headers, body.as_bytes());
    let mut out = Vec::new();
    match answer.header("content-encoding") {
        Some("gzip") => {
            let mut decoder = flate2::read::GzDecoder::new(&answer.body[..]);
            decoder.read_to_end(&mut out).unwrap_or_else(|error| panic!("{body}: {error}"));
        }
        Some("zstd") => {
            out = zstd::stream::decode_all(&answer.body[..])
                .unwrap_or_else(|error| panic!("{body}: {error}"));
        }
        _ => out.clone_from(&answer.body),
    }
    (out, answer.status)
}

/// Asks everything. Returns how many answers are misses; all others must be right.
fn misses(neve: &Neve, set: Set, right: &[Vec<u8>]) -> usize {
    let mut client = neve.client();
    let mut misses = 0;
    for (question, right) in questions(set).iter().zip(right) {
        let (body, status) = ask(&mut client, question);
        if status == MISS {
            misses += 1;
        } else {
            assert!(
                status == 200 && body == *right,
                "{status} {question:?}: {}",
                String::from_utf8_lossy(&body)
            );
        }
    }
    misses
}

/// Waits until each damaged record that was found is whole again: cheaper than to ask everything again and again.
fn wait_for_repair(neve: &Neve) {
    neve.wait("repair", |health| (health["storage"]["unrepaired_records"] == 0).then_some(()));
}

/// Waits until `neve verify` beside a neve finds nothing: damage of an index is in no record.
fn wait_for_whole_segments(neve: &Neve, dir: &Path) {
    let store = dir.join("store").display().to_string();
    neve.wait("whole segments", |_| {
        run(&["verify", "--data-dir", &store]).status.success().then_some(())
    });
}

fn sealed(dir: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(dir.join("store")).unwrap();
    let mut paths: Vec<_> = entries.map(|entry| entry.unwrap().path()).collect();
    paths.retain(|path| path.extension().is_some_and(|ext| ext == "seg"));
    paths.sort();
    paths.pop(); // the active one
    paths
}

/// Flips bits of sealed segments: in `each` of them as many, anywhere behind their header page.
fn flip(dir: &Path, each: u64) {
    let mut random = fastrand::Rng::with_seed(7);
    for path in sealed(dir) {
        let file = File::options().read(true).write(true).open(path).unwrap();
        let mut end = [0; 8];
        file.read_exact_at(&mut end, 544).unwrap();
        for _ in 0..each {
            let at = random.u64(4096..u64::from_le_bytes(end));
            let mut byte = [0];
            file.read_exact_at(&mut byte, at).unwrap();
            file.write_all_at(&[byte[0] ^ 1 << random.u8(..8)], at).unwrap();
        }
    }
}

fn assert_verifies(dir: &Path) {
    let store = dir.join("store").display().to_string();
    let verified = run(&["verify", "--data-dir", &store]);
    assert!(verified.status.success(), "{}", String::from_utf8_lossy(&verified.stdout));
}

#[test]
#[ignore = "takes many seconds of a processor: ./check"]
fn flipped_bits_are_misses_until_records_are_fetched_again() {
    for set in [MAIN, HELICON] {
        let (node, dir, right) = stored(set);
        flip(dir.path(), 6);
        // No upstream is there to fetch from: every answer is right, or a miss.
        let neve = Neve::start(
            dir.path(),
            &["--upstream", "http://127.0.0.1:9", "--scrub-bytes-per-second", "none"],
        );
        let missed = misses(&neve, set, &right);
        assert!(missed > 50, "{missed}");
        assert_eq!(misses(&neve, set, &right), missed, "a miss stays one");
        let damaged = neve.health()["storage"]["unrepaired_records"].as_u64().unwrap();
        assert!(damaged > 20 && neve.count("neve_store_damaged_records_total") >= damaged);
        neve.stop();

        let neve = start(dir.path(), &node, &["--scrub-bytes-per-second", "none"]);
        misses(&neve, set, &right);
        wait_for_repair(&neve);
        assert_eq!(misses(&neve, set, &right), 0);
        assert!(neve.count("neve_store_repaired_records_total") >= damaged);
        neve.stop();
    }
}

/// An answer that ends in its midst must leave nothing in the batch around it.
#[test]
fn logs_of_a_damaged_height_are_one_error_in_a_split_batch() {
    let (_node, dir, _right) = stored(MAIN);
    flip(dir.path(), 6);
    let arguments = ["--upstream", "http://127.0.0.1:9", "--scrub-bytes-per-second", "none"];
    let neve = Neve::start(dir.path(), &[&arguments[..], &["--on-miss", "relay"]].concat());
    let (mut client, mut failed) = (neve.client(), 0);
    let call = |id: u32, method: &str, params: &str| {
        format!(r#"{{"jsonrpc":"2.0","id":{id},"method":"{method}","params":{params}}}"#)
    };
    for height in 0..=MAIN.head {
        let logs = format!(r#"[{{"fromBlock":"{height:#x}","toBlock":"{height:#x}"}}]"#);
        let calls = [call(7, "eth_getLogs", &logs), call(8, "eth_chainId", "[]")];
        let batch = client.post(&format!("[{}]", calls.join(",")));
        let answers: Value = serde_json::from_str(&batch.text())
            .unwrap_or_else(|error| panic!("{height}: {error}: {:.300}", batch.text()));
        assert_eq!((&answers[0]["id"], &answers[1]["id"]), (&json!(7), &json!(8)), "{height}");
        assert!(answers[1]["result"].is_string() && answers[2].is_null(), "{answers}");
        failed += usize::from(answers[0]["error"].is_object());
    }
    assert!(failed > 0, "no height with logs is damaged");
}

/// For a thread a page behind a file's end is one that the disk does not deliver: touching it is a SIGBUS.
#[test]
fn pages_that_the_disk_does_not_deliver_are_misses_and_written_anew_while_neve_serves() {
    let (node, dir, right) = stored(MAIN);
    let neve = start(dir.path(), &node, &["--scrub-bytes-per-second", "none"]);
    assert_eq!(misses(&neve, MAIN, &right), 0);
    // A thread takes a page that it found in memory for one that stays there for a second.
    std::thread::park_timeout(Duration::from_millis(1500));
    let paths = sealed(dir.path());
    let lens: Vec<_> = paths.iter().map(|path| path.metadata().unwrap().len()).collect();
    for (path, share) in paths.iter().zip(2..) {
        let mut end = [0; 8];
        let file = File::options().read(true).write(true).open(path).unwrap();
        file.read_exact_at(&mut end, 544).unwrap();
        let left = u64::from_le_bytes(end) / share * (share - 1); // of records, or of indexes only
        file.set_len(left.next_multiple_of(4096)).unwrap();
    }
    misses(&neve, MAIN, &right);
    assert!(neve.count("neve_store_damaged_records_total") > 0);
    wait_for_repair(&neve);
    assert_eq!(misses(&neve, MAIN, &right), 0);
    assert!(neve.count("neve_store_repaired_records_total") > 0);
    wait_for_whole_segments(&neve, dir.path()); // those that lack an index only, too
    neve.stop();
    assert_verifies(dir.path());
    let again: Vec<_> = paths.iter().map(|path| path.metadata().unwrap().len()).collect();
    assert!(again.iter().zip(&lens).filter(|(again, len)| again >= len).count() > 0, "{again:?}");
}

/// A mirror asks its source, height by height.
#[test]
fn damaged_records_of_a_mirror_are_fetched_from_its_source() {
    let (node, dir, right) = stored(MAIN);
    let source = fresh_dir();
    let source = (start(source.path(), &node, &["--serve-mirrors"]), source);
    source.0.wait_for_head(MAIN.head);
    flip(dir.path(), 6);
    let url = format!("http://{}", source.0.address);
    let arguments = ["--mirror-from", &url, "--scrub-bytes-per-second", "none"];
    let mirror = Neve::start(dir.path(), &[&arguments[..], &UNPACKED].concat());
    assert!(misses(&mirror, MAIN, &right) > 0);
    wait_for_repair(&mirror);
    assert_eq!(misses(&mirror, MAIN, &right), 0);
    assert!(mirror.count("neve_store_repaired_records_total") > 20);
    mirror.stop();
    assert_verifies(dir.path());
}

#[test]
fn scrubber_finds_damage_that_nobody_asks_for_and_it_is_repaired() {
    let (node, dir, right) = stored(MAIN);
    flip(dir.path(), 6);
    let neve = start(dir.path(), &node, &["--scrub-bytes-per-second", "1GiB"]);
    neve.wait("a pass", |_| (neve.count("neve_store_scrub_passes_total") > 0).then_some(()));
    assert!(neve.count("neve_store_damaged_records_total") > 20);
    wait_for_repair(&neve);
    assert_eq!(misses(&neve, MAIN, &right), 0);
    assert!(neve.count("neve_store_scrubbed_bytes_total") > 100_000);
    wait_for_whole_segments(&neve, dir.path());
    neve.stop();
    assert_verifies(dir.path());
}

#[test]
fn repair_mends_a_store_that_nobody_runs() {
    let (node, dir, right) = stored(MAIN);
    flip(dir.path(), 6);
    let store = dir.path().join("store").display().to_string();
    let arguments = ["--data-dir", &store, "--disk-reserve-bytes", "1MiB"];
    let url = node.url();
    let repaired = run(&[&["repair", "--upstream", &url], &arguments[..]].concat());
    let said = String::from_utf8_lossy(&repaired.stderr).into_owned();
    assert_eq!(repaired.status.code(), Some(0), "{said}");
    assert!(said.contains("segment repaired"), "{said}");
    assert_verifies(dir.path());
    let again = run(&[&["repair", "--upstream", &url], &arguments[..]].concat());
    assert_eq!(again.status.code(), Some(0));
    let neve = start(dir.path(), &node, &[]);
    assert_eq!(misses(&neve, MAIN, &right), 0);
    let busy = run(&[&["repair", "--upstream", &url], &arguments[..]].concat());
    assert_eq!(busy.status.code(), Some(2), "a server runs on it");
}

/// A look-up by hash does not read the checksum.
#[test]
fn damaged_hash_table_is_found_by_repair_and_by_the_scrubber() {
    let (node, dir) = (Recorded::start(MAIN), fresh_dir());
    let store = dir.path().join("store");
    let tables = || {
        let entries = fs::read_dir(&store).unwrap().map(|entry| entry.unwrap().path());
        entries.filter(|path| path.extension().is_some_and(|ext| ext == "idx")).collect::<Vec<_>>()
    };
    let neve = start(dir.path(), &node, &[]);
    neve.wait_for_head(MAIN.head);
    let table = neve.wait("a hash table", |_| tables().pop());
    neve.stop();
    let good = fs::read(&table).unwrap();
    let damage = || {
        let file = File::options().write(true).open(&table).unwrap();
        file.write_all_at(&vec![0; good.len() - 4096], 4096).unwrap();
    };
    damage();
    let (code, said) = looked_at("repair", &store);
    assert_eq!(code, Some(0), "{said}");
    assert!(said.contains("damaged hash table"), "{said}");
    assert_eq!(tables(), Vec::<PathBuf>::new(), "{said}");
    assert_verifies(dir.path());
    fs::write(&table, &good).unwrap();
    damage();
    let neve = start(dir.path(), &node, &["--scrub-bytes-per-second", "1GiB"]);
    let params = format!("[\"{}\",false]", node.height(16).hash);
    neve.wait("the block by its hash", |_| {
        (neve.client().call("eth_getBlockByHash", &params).status == 200).then_some(())
    });
    assert!(neve.count("neve_store_damaged_records_total") > 0);
    neve.wait("a new hash table", |_| (fs::read(&table).ok()? == good).then_some(()));
    neve.stop();
    assert_verifies(dir.path());
}

/// Exit codes: 0 done, 1 damage is left, 2 the store cannot be read.
#[test]
fn repair_that_no_upstream_helps_ends_with_one_and_names_each_segment() {
    let (_node, dir, _) = stored(MAIN);
    flip(dir.path(), 6);
    let store = dir.path().join("store").display().to_string();
    let arguments = ["--data-dir", &store, "--disk-reserve-bytes", "1MiB"];
    let failed = run(&[&["repair", "--upstream", "http://127.0.0.1:9"], &arguments[..]].concat());
    let said = String::from_utf8_lossy(&failed.stderr).into_owned();
    assert_eq!(failed.status.code(), Some(1), "{said}");
    let named = said.matches("segment not repaired").count();
    assert!(named > 1 && named <= sealed(dir.path()).len(), "{said}");
    assert_eq!(run(&["verify", "--data-dir", &store]).status.code(), Some(1));
}

#[test]
fn missing_and_damaged_middle_segments_leave_the_head_and_are_filled() {
    let (node, dir, right) = stored(MAIN);
    let paths = sealed(dir.path());
    // As after a restore that ended early.
    fs::remove_file(&paths[4]).unwrap();
    let neve = Neve::start(dir.path(), &["--upstream", "http://127.0.0.1:9"]);
    let health = neve.health();
    assert_eq!(health["blocks"]["head"], MAIN.head);
    assert_eq!(health["blocks"]["min_height"], 160);
    assert_eq!(health["storage"]["gap"], json!([128, 159]));
    assert_eq!(health["storage"]["quarantined"]["files"], 4);
    assert_eq!(neve.metric("neve_store_gap_heights"), Some(32.0));
    assert_eq!(neve.metric("neve_store_quarantined_files"), Some(4.0));
    neve.wait_for_log("set aside");
    neve.stop();
    // A header that is damaged, besides, above the gap.
    let file = File::options().write(true).open(&paths[7]).unwrap();
    file.write_all_at(b"damaged", 0).unwrap();
    let neve = start(dir.path(), &node, &[]);
    assert_eq!(neve.health()["blocks"]["head"], MAIN.head);
    neve.wait("the first height", |health| (health["blocks"]["min_height"] == 0).then_some(()));
    assert_eq!(misses(&neve, MAIN, &right), 0);
    let health = neve.health();
    assert_eq!(health["storage"]["gap"], json!(null));
    assert_eq!(health["storage"]["quarantined"]["files"], 1, "the damaged one");
    neve.stop();
    assert_verifies(dir.path());
}

#[test]
fn segment_files_that_are_removed_while_neve_runs_come_back() {
    let (node, dir) = (Recorded::start_at(MAIN, 80, false), fresh_dir());
    let neve = start(dir.path(), &node, &[]);
    neve.wait_for_head(80);
    let store = dir.path().join("store");
    for entry in fs::read_dir(&store).unwrap() {
        let path = entry.unwrap().path();
        if path.extension().is_some_and(|ext| ext == "seg") {
            fs::remove_file(path).unwrap();
        }
    }
    node.grow(MAIN.head);
    neve.wait_for_head(MAIN.head);
    neve.wait("files", |_| store.join(format!("{:020}.seg", 0)).exists().then_some(()));
    neve.wait("files", |_| (neve.count("neve_store_lost_files_total") >= 3).then_some(()));
    assert_eq!(neve.health()["storage"]["error"], json!(null));
    neve.stop();
    let neve = start(dir.path(), &node, &[]);
    assert_eq!(neve.health()["blocks"]["min_height"], 0);
    neve.stop();
    assert_verifies(dir.path());
}

#[test]
fn repair_that_leaves_a_gap_ends_with_one() {
    let (_node, dir, _) = stored(MAIN);
    fs::remove_file(&sealed(dir.path())[4]).unwrap();
    let (code, said) = looked_at("repair", &dir.path().join("store"));
    assert_eq!(code, Some(1), "{said}");
    assert!(said.contains("neve serve fills the gap"), "{said}");
}

#[test]
fn repair_that_dropped_records_of_the_active_segment_ends_with_one() {
    let damage = |bytes: &mut [u8]| {
        let slots = &mut bytes[4096..4096 + 32 * 64];
        let used = slots.iter().rposition(|byte| *byte != 0).unwrap();
        slots[used] ^= 1;
    };
    repair_drops(damage, "dropped 1 unfinished or damaged record(s)");
}

#[test]
fn repair_that_set_the_active_segment_aside_ends_with_one() {
    repair_drops(|bytes| bytes[8] ^= 1, "set aside as");
}

/// Repairs a store whose active segment has this damage.
fn repair_drops(damage: impl Fn(&mut [u8]), note: &str) {
    let (node, dir, _) = stored(MAIN);
    let last = sealed(dir.path()).len();
    let mut paths: Vec<_> = fs::read_dir(dir.path().join("store")).unwrap().flatten().collect();
    paths.retain(|path| path.path().extension().is_some_and(|ext| ext == "seg"));
    paths.sort_by_key(fs::DirEntry::path);
    let mut bytes = fs::read(paths[last].path()).unwrap();
    damage(&mut bytes);
    fs::write(paths[last].path(), bytes).unwrap();
    let (code, said) = looked_at("repair", &dir.path().join("store"));
    assert_eq!(code, Some(1), "{said}");
    assert!(said.contains(note), "{said}");
    assert!(said.contains("heights above served range dropped"), "{said}");
    let neve = start(dir.path(), &node, &[]);
    neve.wait_for_head(MAIN.head);
}

/// Exit code of `neve verify`, or `neve repair`, with all that it said.
fn looked_at(command: &str, dir: &Path) -> (Option<i32>, String) {
    let dir = dir.display().to_string();
    let mut arguments = vec![command, "--data-dir", &dir];
    if command == "repair" {
        arguments.extend(["--upstream", "http://127.0.0.1:9", "--disk-reserve-bytes", "1MiB"]);
    }
    let output = run(&arguments);
    let said = [output.stdout, output.stderr].concat();
    (output.status.code(), String::from_utf8_lossy(&said).into_owned())
}

#[test]
fn directory_that_is_no_store_is_not_called_clean() {
    for name in ["notes.txt", "lock", "stamp"] {
        let dir = fresh_dir();
        fs::write(dir.path().join(name), "no store").unwrap();
        for command in ["verify", "repair"] {
            let (code, said) = looked_at(command, dir.path());
            assert_eq!(code, Some(2), "{command} of {name}: {said}");
            assert!(said.contains("no store, it has no segments"), "{command} of {name}: {said}");
        }
    }
}

#[test]
fn store_with_only_quarantined_files_is_not_called_clean() {
    let (_node, dir, _) = stored(MAIN);
    let store = dir.path().join("store");
    let names: Vec<_> = fs::read_dir(&store).unwrap().map(|entry| entry.unwrap().path()).collect();
    for path in names {
        match path.extension().and_then(|extension| extension.to_str()) {
            Some("seg") => fs::rename(&path, format!("{}.quarantined-0", path.display())).unwrap(),
            Some("idx") => fs::remove_file(&path).unwrap(),
            _ => {}
        }
    }
    let (code, said) = looked_at("verify", &store);
    assert_eq!(code, Some(1), "{said}");
    let finding = "quarantined: set aside, and the store has no other segment; run neve serve";
    assert!(said.contains(finding) && !said.contains(" 0 findings"), "{said}");
    let (code, said) = looked_at("repair", &store);
    assert_eq!(code, Some(1), "{said}");
    assert!(said.contains("no segment can be served"), "{said}");
}
