//! `neve export --form rlp`: coreth's own types read it.

use std::fs;
use std::process::Command;

use serde_json::Value;

use super::install;
use crate::support::corpus::MAIN;
use crate::support::neve::{Neve, fresh_dir, run};
use crate::support::recorded::Recorded;

#[test]
#[ignore = "needs Go and a network: ./check"]
fn exported_rlp_is_read_by_coreth() {
    let (node, dir) = (Recorded::start(MAIN), fresh_dir());
    let neve = Neve::start(dir.path(), &["--upstream", &node.url(), "--start", "300"]);
    neve.wait_for_head(339);
    let url = format!("http://{}", neve.address);
    let output = run(&["export", "--form", "rlp", "--first", "300", "--from", &url]);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let file = dir.path().join("blocks.rlp");
    fs::write(&file, output.stdout).expect("a file");
    let mut reader = Command::new(install::of("go").join("session"));
    let read = reader.arg("--blocks").arg(&file).output().expect("it is built");
    assert!(read.status.success(), "{}", String::from_utf8_lossy(&read.stderr));
    let text = String::from_utf8(read.stdout).expect("it prints JSON");
    let blocks: Vec<Value> =
        text.lines().map(|line| serde_json::from_str(line).expect("a line is JSON")).collect();
    assert_eq!(blocks.len(), 40);
    for (block, height) in blocks.iter().zip(300_u64..) {
        let own: Value = serde_json::from_str(&node.height(height).block).expect("JSON");
        assert_eq!((&block["number"], &block["hash"]), (&height.into(), &own["hash"]));
        let sent = own["transactions"].as_array().map_or(0, Vec::len);
        assert_eq!(block["transactions"], sent, "{height}");
    }
}
