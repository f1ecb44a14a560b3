//! `neve import`: lines of `neve export` become the store that a follower would have.

use std::fs::{self, File};
use std::io::{BufRead, BufReader, Read, Write};
use std::path::Path;
use std::process::{Child, Output, Stdio};

use neve_devnet::{Config, DevnetThread, Fault, Helicon, Profile, Signatures};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

use crate::support::corpus::HELICON;
use crate::support::neve::{LIMIT, Neve, command_by, command_of, fresh_dir, run};
use crate::support::node::wait::{Miss, wait_until};
use crate::support::recorded::Recorded;

/// Exports all that a follower of `url` has, and gives its digest and its chain id.
fn exported(url: &str, head: u64, lines: &Path) -> (Value, String) {
    let dir = fresh_dir();
    let neve = Neve::start(dir.path(), &["--upstream", url, "--start", "0"]);
    neve.wait_for_head(head);
    let id = neve.client().call("eth_chainId", "[]").json()["result"].take();
    let from = format!("http://{}", neve.address);
    let output = run(&["export", "--first", "0", "--from", &from]);
    assert_eq!(output.status.code(), Some(0), "{}", said(&output));
    fs::write(lines, output.stdout).expect("it can be written");
    neve.stop_in_time();
    let id = id.as_str().and_then(|id| u64::from_str_radix(&id[2..], 16).ok());
    (digest(&dir.path().join("store")), id.expect("a chain id").to_string())
}

/// The digest, first and last height of a store without findings.
fn digest(store: &Path) -> Value {
    let output = run(&["verify", "--json", "--digest", "--data-dir", &store.display().to_string()]);
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(output.status.success(), "{text}");
    let summary: Value = serde_json::from_str(text.lines().last().unwrap()).unwrap();
    assert!(summary["digest"].is_string(), "{summary}");
    [&summary["digest"], &summary["first"], &summary["last"]].into_iter().cloned().collect()
}

fn said(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

/// Runs `neve import` and gives its exit code and its log.
fn import(store: &Path, arguments: &[&str]) -> (Option<i32>, String) {
    let store = store.display().to_string();
    let fixed = ["import", "--data-dir", &store, "--disk-reserve-bytes", "1MiB"];
    let output = run(&[&fixed, arguments].concat());
    (output.status.code(), said(&output))
}

#[test]
fn limit_of_the_size_of_files_is_an_error_and_not_the_end_of_the_process() {
    let (node, dir) = (Recorded::start(HELICON), fresh_dir());
    let lines = dir.path().join("lines");
    let (_, id) = exported(&node.url(), HELICON.head, &lines);
    let store = dir.path().join("store").display().to_string();
    let limited = ["sh", "-c", "ulimit -f 200; exec \"$0\" \"$@\""];
    let mut command = command_by(&limited);
    command.args(["import", "--data-dir", &store, "--disk-reserve-bytes", "1MiB"]);
    let output = command.args(["--chain-id", &id]).arg(&lines).output().unwrap();
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    assert!(said(&output).contains("File too large"), "{}", said(&output));
}

#[test]
fn gzip_and_a_file_in_place_of_the_directory_are_named() {
    let dir = fresh_dir();
    let file = dir.path().join("lines.gz");
    fs::write(&file, b"\x1f\x8b\x08\0\n").unwrap();
    let path = file.display().to_string();
    let network = ["--network", "mainnet"];
    let (code, log) = import(&dir.path().join("store"), &[&network[..], &[&path]].concat());
    assert_eq!(code, Some(1), "{log}");
    assert!(log.contains("gzip; use zcat FILE | neve import"), "{log}");
    assert!(log.contains("correct the input, then run the import again"), "{log}");
    let (code, log) = import(&file, &network);
    assert_eq!(code, Some(2), "{log}");
    assert!(log.contains(&format!("--data-dir {path} (flag): no directory at {path}: ")), "{log}");
}

#[test]
fn imported_store_has_the_digest_and_the_bytes_of_the_exported_one() {
    let node = Recorded::start(HELICON); // its newest heights are not settled
    let dir = fresh_dir();
    let lines = dir.path().join("lines");
    let (expected, id) = exported(&node.url(), HELICON.head, &lines);
    let file = lines.display().to_string();
    let store = dir.path().join("store");
    let (code, log) = import(&store, &["--chain-id", &id, &file]);
    assert_eq!(code, Some(0), "{log}");
    assert!(log.contains("import finished stored=382 held=0"), "{log}");
    assert_eq!(digest(&store), expected);
    // A second run has nothing to do, and does not need the chain.
    let (code, log) = import(&store, &[&file]);
    assert_eq!(code, Some(0), "{log}");
    assert!(log.contains("import finished stored=0 held=382"), "{log}");
    let neve = Neve::start(dir.path(), &["--upstream", &node.url(), "--start", "0"]);
    let (code, log) = import(&store, &[&file]);
    assert_eq!(code, Some(2), "{log}");
    assert!(log.contains("locked by another process; stop that one"), "{log}");
    let from = format!("http://{}", neve.address);
    let again = run(&["export", "--first", "0", "--from", &from]);
    assert_eq!(again.stdout, fs::read(&lines).unwrap());
}

#[test]
fn wrong_line_is_refused_by_its_number_and_heights_before_it_stay() {
    let node = DevnetThread::start(Config::test().with_head(30)).expect("free ports");
    let mut other = Config::test().with_head(30);
    other.chain.seed += 1;
    let other = DevnetThread::start(other).expect("free ports");
    let dir = fresh_dir();
    let file = dir.path().join("lines");
    let (expected, id) = exported(&node.base_url(), 30, &file);
    let lines: Vec<String> = text_lines(&file);
    exported(&other.base_url(), 30, &file);
    let others = text_lines(&file);
    let forged = lines[10].replacen("\"gasUsed\":\"0x", "\"gasUsed\":\"0x1", 1);
    assert_ne!(forged, lines[10]);
    let receipt = lines.iter().position(|line| line.contains("\"status\":\"0x1\""));
    let receipt = receipt.expect("a height has transactions");
    let failed = lines[receipt].replacen("\"status\":\"0x1\"", "\"status\":\"0x0\"", 1);
    let with =
        |at: usize, line: &str| [&lines[..at], &[line.to_owned()], &lines[at + 1..]].concat();
    let after = |at: usize| lines[..at].to_vec();
    let cases = [
        ([after(10), lines[11..].to_vec()].concat(), 10, "gap: the next height is 10"),
        ([after(10), lines[9..].to_vec()].concat(), 10, "order: the next height is 10"),
        (with(10, &others[10]), 10, "parent_link"),
        (with(10, &forged), 10, "line refused line=11 height=10"),
        (with(receipt, &failed), receipt, "receipts_root"),
        (with(10, ""), 10, "line refused line=11"),
        (with(10, &lines[10][..99]), 10, "no line of neve export"),
    ];
    for (at, (lines, kept, why)) in cases.into_iter().enumerate() {
        fs::write(&file, lines.join("\n")).unwrap();
        let store = dir.path().join(format!("store-{at}"));
        let (code, log) = import(&store, &["--chain-id", &id, &file.display().to_string()]);
        assert_eq!(code, Some(1), "{why}: {log}");
        let line = format!("line={}", kept + 1);
        assert!(log.contains(why) && log.contains(&line), "{why}, {line}: {log}");
        assert!(log.contains("correct the input, then run the import again"), "{log}");
        assert_eq!(digest(&store)[2], kept as u64 - 1, "{why}");
    }
    // The lines as they were complete it.
    fs::write(&file, lines.join("\n")).unwrap();
    let store = dir.path().join("store-0");
    let file = file.display().to_string();
    let (code, log) = import(&store, &[&file]);
    assert_eq!(code, Some(0), "{log}");
    assert!(log.contains("stored=21 held=10"), "{log}");
    assert_eq!(digest(&store), expected);
    // Another chain, and none.
    let (code, log) = import(&store, &["--chain-id", "1", &file]);
    assert_eq!(code, Some(2), "{log}");
    assert!(log.contains("--chain-id 1 (flag): the store is for chain"), "{log}");
    assert!(log.contains("; use another data directory"), "{log}");
    let (code, log) = import(&dir.path().join("fresh"), &[&file]);
    assert!(code == Some(1) && log.contains("use --network"), "{code:?} {log}");
    let (code, log) = import(&dir.path().join("fresh"), &["--network", "fuji", &file]);
    assert!(code == Some(1) && log.contains("genesis: block 0 is"), "{code:?} {log}");
    // An id of a public network, whose block 0 is known: it binds no store.
    let fresh = dir.path().join("public");
    for public in ["43113", "43114"] {
        let (code, log) = import(&fresh, &["--chain-id", public, &file]);
        assert!(code == Some(1) && log.contains("genesis: block 0 is"), "{code:?} {log}");
        let genesis = format!("0x{}", "ab".repeat(32));
        let (code, log) = import(&fresh, &["--chain-id", public, "--genesis", &genesis, &file]);
        assert!(code == Some(2) && log.contains("(flag): the network is chain"), "{log}");
    }
    let (code, log) = import(&fresh, &["--chain-id", &id, &file]);
    assert_eq!(code, Some(0), "{log}");
    let (code, log) = import(&dir.path().join("fresh"), &["/nowhere"]);
    assert!(
        code == Some(2) && log.contains("error=cannot read /nowhere: No such file"),
        "{code:?} {log}"
    );
}

#[test]
fn import_of_lines_below_the_store_is_not_complete() {
    let node = DevnetThread::start(Config::test().with_head(30)).expect("free ports");
    let dir = fresh_dir();
    let (all, file) = (dir.path().join("all"), dir.path().join("lines"));
    let (_, id) = exported(&node.base_url(), 30, &all);
    fs::write(&file, text_lines(&all)[10..].join("\n")).unwrap();
    let genesis = format!("{:#x}", node.block(0).expect("it is there").hash());
    let (store, file) = (dir.path().join("store"), file.display().to_string());
    let (code, log) = import(&store, &["--chain-id", &id, "--genesis", &genesis, &file]);
    assert_eq!(code, Some(0), "{log}");
    let (code, log) = import(&store, &[&all.display().to_string()]);
    assert!(code == Some(1) && log.contains("below=10"), "{code:?} {log}");
}

#[test]
fn import_beyond_the_bound_is_packed_and_what_goes_is_no_success() {
    let mut config = Config::test().with_head(200);
    config.chain.profile = Profile::c_chain();
    config.chain.signatures = Signatures::Filler;
    let node = DevnetThread::start(config).expect("free ports");
    let dir = fresh_dir();
    let file = dir.path().join("lines");
    let (url, chain) = (node.base_url(), Config::test().chain.chain_id.to_string());
    fs::write(&file, run(&["export", "--first", "0", "--from", &url]).stdout).unwrap();
    let (file, bound) = (file.display().to_string(), ["--retain-bytes", "8MiB"]);
    let chain = ["--chain-id", &chain, "--segment-bytes", "1MiB", "--recover-senders", "never"];
    let store = dir.path().join("packed");
    let packs = ["--segment-blocks", "32", "--unpacked-bytes", "1MiB", &file];
    let (code, log) = import(&store, &[&chain[..], &bound, &packs].concat());
    assert!(code == Some(0) && log.contains("stored=201"), "{code:?} {log}");
    assert_eq!(digest(&store)[1], 0, "{log}");
    let unpacked = ["--unpacked-bytes", "none", &file];
    let store = dir.path().join("unpacked");
    let (code, log) = import(&store, &[&chain[..], &bound, &unpacked].concat());
    assert!(code == Some(1) && log.contains("imported heights evicted"), "{code:?} {log}");
    assert!(digest(&store)[1].as_u64().is_some_and(|first| first > 100), "{log}");
}

fn text_lines(file: &Path) -> Vec<String> {
    fs::read_to_string(file).expect("it is UTF-8").lines().map(str::to_owned).collect()
}

#[test]
fn interrupted_import_and_export_end_well_and_say_how_to_continue() {
    let node = DevnetThread::start(Config::test().with_head(30)).expect("free ports");
    let dir = fresh_dir();
    let file = dir.path().join("lines");
    let (expected, id) = exported(&node.base_url(), 30, &file);
    let lines = fs::read_to_string(&file).unwrap();
    let half: usize = lines.split_inclusive('\n').take(20).map(str::len).sum();
    let store = dir.path().join("store");
    let shown = store.display().to_string();
    let log = dir.path().join("import.log");
    let mut child = command_of(&["import", "--data-dir", &shown, "--chain-id", &id, "-"])
        .args(["--disk-reserve-bytes", "1MiB"])
        .stdin(Stdio::piped())
        .stderr(File::create(&log).unwrap())
        .spawn()
        .expect("the binary starts");
    let mut input = child.stdin.take().unwrap();
    input.write_all(&lines.as_bytes()[..half + 10]).unwrap();
    let inspected = || {
        let output = run(&["inspect", "--json", "--data-dir", &shown]);
        let found: Value = serde_json::from_slice(&output.stdout).unwrap_or_default();
        if found["served"]["last"] == 19 { Ok(()) } else { Err(Miss::NotYet(found.to_string())) }
    };
    wait_until("height 19", LIMIT, inspected).unwrap();
    assert_eq!(interrupt(&mut child), Some(1));
    let log = fs::read_to_string(&log).unwrap();
    assert!(log.contains("interrupted") && log.contains("run the import again"), "{log}");
    assert_eq!(digest(&store)[2], 19);
    let (code, log) = import(&store, &[&file.display().to_string()]);
    assert!(code == Some(0) && log.contains("stored=11 held=20"), "{code:?} {log}");
    assert_eq!(digest(&store), expected);
    // So does an export, whose node does not answer at height 8.
    node.faults().inject(Fault::Stall.at(8));
    let mut child = command_of(&["export", "--first", "7", "--last", "9", "--from"])
        .arg(node.base_url())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("the binary starts");
    let (mut line, mut err) = (String::new(), String::new());
    BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
    assert_eq!(Some(&*line), lines.split_inclusive('\n').nth(7));
    let pipe = child.stderr.take();
    assert_eq!(interrupt(&mut child), Some(1));
    pipe.unwrap().read_to_string(&mut err).unwrap();
    assert!(err.contains("interrupted; go on with --first 8"), "{err}");
    node.faults().clear();
}

#[test]
fn receipts_that_a_later_header_disproves_are_taken_back() {
    let chain = Config::test().with_helicon(Helicon::FromGenesis).with_head(40);
    let node = DevnetThread::start(chain).expect("free ports");
    node.faults().inject(Fault::LyingReceipts.at(10..=20));
    let (dir, url) = (fresh_dir(), node.base_url());
    let lines = run(&["export", "--first", "0", "--from", &url]).stdout;
    let file = dir.path().join("lines");
    fs::write(&file, lines).unwrap();
    let chain = Config::test().chain.chain_id.to_string();
    let store = dir.path().join("store");
    let (code, log) = import(&store, &["--chain-id", &chain, &file.display().to_string()]);
    assert!(code == Some(1) && log.contains("settled_receipts_root"), "{code:?} {log}");
    let last = digest(&store)[2].as_u64();
    assert!(last.is_some_and(|last| last < 20), "{last:?}: {log}");
}

/// Sends SIGINT and gives the exit code.
fn interrupt(child: &mut Child) -> Option<i32> {
    kill_process(Pid::from_child(child), Signal::INT).expect("the process is ours");
    child.wait().expect("it is our child").code()
}
