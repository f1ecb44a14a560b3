//! Bytes of packed files that change while neve runs: an answer is right or a miss, and repair brings the true
//! blocks back.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::Path;

use super::packed::{
    asker, calls, chain, packed_files, start, start_with, verified, wait_until_packed,
};
use crate::support::client::Response;
use crate::support::neve::Neve;

/// Flips a bit of a file.
fn flip(path: &Path, at: u64) {
    let file = File::options().read(true).write(true).open(path).expect("it is ours");
    let mut byte = [0];
    file.read_exact_at(&mut byte, at).expect("it can be read");
    file.write_all_at(&[byte[0] ^ 4], at).expect("it can be written");
}

/// Place of the section of logs in a packed file: its middle.
fn terms(path: &Path) -> u64 {
    let file = File::open(path).expect("it is there");
    let mut place = [0; 16];
    file.read_exact_at(&mut place, 112 + 4 * 24 + 8).expect("it has a header");
    let word = |at: usize| u64::from_le_bytes(place[at..at + 8].try_into().expect("8 bytes"));
    word(0) + word(8) / 2
}

#[test]
#[ignore = "takes many seconds of a processor: ./check"]
fn directory_that_changes_while_neve_runs_is_never_served_nor_kept() {
    let (node, dir) = (chain(), tempfile::tempdir().expect("a directory can be made"));
    let neve = start(dir.path(), &node, "0B");
    wait_until_packed(&neve);
    let calls = calls(&neve);
    let mut ask = asker(&neve, &calls);
    let whole = ask();
    let files = packed_files(dir.path());
    // The hash of a height, that of the last height, the end of a frame; and postings.
    flip(&files[0], 512 + 40 * 3 + 5);
    flip(&files[1], 512 + 40 * 31 + 5);
    flip(&files[2], 512 + 40 * 10 + 33);
    flip(&files[2], terms(&files[2]));
    for (found, right) in ask().iter().zip(&whole) {
        assert!(found.status == 421 || found.body == right.body, "{}", found.text());
    }
    let wait_for_repair = |neve: &Neve, ask: &mut dyn FnMut() -> Vec<Response>| {
        neve.wait("repair", |health| {
            let is_mended = health["storage"]["unrepaired_records"] == 0;
            let same = ask().iter().zip(&whole).all(|(found, right)| found.body == right.body);
            (is_mended && same).then_some(())
        });
    };
    wait_for_repair(&neve, &mut ask);
    neve.wait_for_log("segment repaired"); // the postings, which a search reads again
    neve.stop_in_time();
    // Directories that were read before the flips stay in memory, right. An opening reads them again, and sets the
    // files aside.
    let options = ["--unpacked-bytes", "0B", "--backfill-to", "0"];
    let neve = start_with(dir.path(), &node, &options);
    let mut ask = asker(&neve, &calls);
    wait_for_repair(&neve, &mut ask);
    neve.stop_in_time();
    assert_eq!(verified(dir.path()).0, Some(0));
}
