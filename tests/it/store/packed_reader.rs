//! A second reader of packed files, in Python, which knows no more than docs/PACKED.md.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::support::corpus::{ALL, Set};
use crate::support::neve::Neve;
use crate::support::served::recorded;

const READER: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/packed/reader.py");
const RANGE: u64 = 32;

/// The packed files of a store, ascending.
fn packed_files(dir: &Path) -> Vec<PathBuf> {
    let files = fs::read_dir(dir.join("store")).expect("the store is there");
    let paths = files.map(|file| file.expect("it can be listed").path());
    let mut packed: Vec<_> =
        paths.filter(|path| path.extension().is_some_and(|ending| ending == "pack")).collect();
    packed.sort();
    packed
}

/// Lines of the reader about a file: block and receipts of each height.
fn read(file: &Path, total_difficulty: &str) -> Vec<String> {
    let output = Command::new("python3").arg(READER).arg(file).arg(total_difficulty).output();
    let output = output.expect("python3 runs");
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{}: {errors}", file.display());
    String::from_utf8(output.stdout).expect("it prints text").lines().map(str::to_owned).collect()
}

/// Block and receipts of a height, as neve serves them.
fn served(neve: &Neve, height: u64) -> String {
    let result = |method: &str, params: String| {
        let body = neve.client().call(method, &params).text();
        let start = body.find("\"result\":").expect("it is served") + "\"result\":".len();
        body[start..].trim_end().strip_suffix('}').expect("an object").to_owned()
    };
    let block = result("eth_getBlockByNumber", format!("[\"{height:#x}\",true]"));
    let receipts = result("eth_getBlockReceipts", format!("[\"{height:#x}\"]"));
    format!("{block}\t{receipts}")
}

fn compare(set: Set) {
    let (_node, neve, dir) = recorded(set, &["--segment-blocks", "32", "--unpacked-bytes", "0B"]);
    let heights = (set.head - RANGE) / RANGE * RANGE;
    neve.wait_for_nice("packed heights", |_| {
        (neve.count("neve_store_packed_heights") >= heights).then_some(())
    });
    let total_difficulty = if set.folder.starts_with("v1.14") { "number" } else { "zero" };
    let mut compared = 0;
    for file in packed_files(dir.path()) {
        let name = file.file_stem().expect("a name").to_string_lossy().into_owned();
        let first: u64 = name.parse().expect("its first height");
        for (height, line) in (first..).zip(read(&file, total_difficulty)) {
            let expected = served(&neve, height);
            assert!(line == expected, "{}, {height}:\n{line}\n{expected}", set.folder);
            compared += 1;
        }
    }
    assert!(compared >= heights, "{compared} heights");
}

#[test]
#[ignore = "needs python: ./check"]
fn second_reader_gives_the_bytes_that_neve_serves() {
    ALL.into_iter().for_each(compare);
}
