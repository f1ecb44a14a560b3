//! Memory that a file of a few kilobytes can take: frames whose symbols stand for far more than they are.

use std::env::current_exe;
use std::process::Command;

use neve_packed::{LogOut, PackedFile, TotalDifficulty};

use crate::support::forge::{Chunk, Forged, fields, group, one_log_shape, section};

/// Memory of the process that reads the files, in KiB. Without a bound they take gigabytes.
const LIMIT_KIB: u32 = 640 << 10;

/// A transaction with as many entries in its access list as fit into a group, all without keys.
fn access_list() -> Forged {
    let entries = vec![0, 0xf4, 0x24, 0]; // 16,000,000
    let mut symbols = vec![0, 2, 0, 0, 0, 0, 0, 0, 4];
    symbols.resize(symbols.len() + 2 * 16_000_000, 0);
    let streams = [symbols, entries, vec![0; 3], Vec::new()];
    let content = group(&[Chunk { txs: 1, logs: 0, streams }]);
    Forged { frame: fields(1, &[content]), ..Forged::empty() }
}

/// Chunks of one transaction with logs without data, each of which is a symbol.
fn logs() -> Forged {
    let chunk = || {
        let mut receipts = vec![0, 0, 3];
        receipts.resize(1 << 20, 2);
        receipts.push(0);
        Chunk { txs: 1, logs: 0, streams: [vec![0; 8], Vec::new(), receipts, Vec::new()] }
    };
    let chunks: Vec<_> = (0..31).map(|_| chunk()).collect();
    let tables = section(&one_log_shape());
    Forged { tables, frame: fields(31, &[group(&chunks)]), ..Forged::empty() }
}

/// Reads all of a file of which neither log nor access list is within the limits.
fn read(file: &[u8]) -> Vec<bool> {
    let opened = PackedFile::open(file).unwrap();
    opened.check().unwrap();
    let height = opened.height(7).unwrap();
    let mut out = Vec::new();
    vec![
        height.block(TotalDifficulty::Zero, &mut out).is_ok(),
        height.receipts(&mut Vec::new()).is_ok(),
        height.receipt(0, &mut Vec::new()).is_ok(),
        height.transaction(0, &mut Vec::new()).is_ok(),
        height.logs(|_, _| true, &mut LogOut::default()).is_ok(),
    ]
}

#[test]
#[ignore = "the test below runs it in a process with little memory: ./check"]
fn small_frames_with_a_large_content_are_refused() {
    let file = access_list().write();
    assert!(file.len() < 8 << 10, "{} bytes", file.len());
    assert_eq!(read(&file), [false; 5]);
    let file = logs().write();
    assert!(file.len() < 16 << 10, "{} bytes", file.len());
    // The transactions of these are right, and have no logs in them.
    assert_eq!(read(&file), [true, false, false, true, false]);
}

#[test]
fn small_frames_take_little_memory() {
    let limited = Command::new("sh")
        .args(["-c", &format!("ulimit -v {LIMIT_KIB}; exec \"$0\" \"$@\"")])
        .arg(current_exe().unwrap())
        .args(["--exact", "memory::small_frames_with_a_large_content_are_refused", "--ignored"])
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&limited.stdout);
    assert!(limited.status.success() && said.contains("1 passed"), "{limited:?}");
}
