//! `neve get` and `neve export`: the node's bytes, line by line.

use crate::support::corpus::MAIN;
use crate::support::neve::{Neve, fresh_dir, run};
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
    assert_eq!(text(&["export", "--first", "310"]), (Some(0), all, String::new()));
    // The heights that are there come first.
    let (code, out, err) = text(&["export", "--first", "338", "--last", "341"]);
    assert_eq!((code, out), (Some(1), line(338) + &line(339)));
    assert!(err.contains("block 0x154: ") && err.contains("go on with --first 340"), "{err}");
    let (code, _, err) = text(&["export", "--first", "400"]);
    assert_eq!(code, Some(1));
    assert!(err.contains("--first 400: above the last height, 339"), "{err}");
    let (code, _, err) = text(&["get", "latest"]);
    assert_eq!(code, Some(64));
    assert!(err.contains("write a height (69000000 or 0x41cdb40) or a hash"), "{err}");
}
