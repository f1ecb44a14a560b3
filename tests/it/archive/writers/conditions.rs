//! A bucket that knows no conditions of a PUT, and no request that deletes many objects.

use serde_json::Value;

use crate::archive::object_server::{Mode, ObjectServer};
use crate::store::archive::{HEAD, devnet, outcome, packed_store};
use crate::store::packed::wait_for_packed;
use crate::support::neve::{fresh_dir, run_with};

const VARIABLES: [(&str, &str); 3] =
    [("AWS_ACCESS_KEY_ID", "a"), ("AWS_SECRET_ACCESS_KEY", "b"), ("AWS_REGION", "c")];

fn archive(server: &ObjectServer, words: &[&str]) -> (i32, Vec<Value>, String) {
    let endpoint = server.endpoint();
    let place = ["s3://bucket", "--json", "--archive-endpoint", &endpoint];
    outcome(&run_with(&VARIABLES, &[&["archive"], words, &place].concat()))
}

#[test]
fn bucket_that_answers_501_to_conditions_takes_one_writer_that_says_so() {
    let (node, dir, bucket) = (devnet(), fresh_dir(), fresh_dir());
    let server = ObjectServer::start(bucket.path());
    server.set(Mode::NoConditions);
    let genesis = format!("{:#x}", node.block(0).expect("it is there").hash());
    let init = ["init", "--range", "32", "--chain-id", "43112", "--genesis", &genesis];
    let (code, _, errors) = archive(&server, &init);
    assert_eq!(code, 2, "{errors}");
    let words = ["HTTP 501", "--archive-single-writer"];
    assert!(words.iter().all(|word| errors.contains(word)), "{errors}");
    assert!(server.gets() < 20, "an answer of the store is not asked for again");
    let single = |words: &[&str]| {
        let (code, mut lines, errors) =
            archive(&server, &[words, &["--archive-single-writer"]].concat());
        assert_eq!((code, lines.len()), (0, 1), "{words:?}: {lines:?} {errors}");
        lines.remove(0)
    };
    let made = single(&init);
    assert_eq!((&made["new"], &made["trial"]["holds"]), (&true.into(), &false.into()));
    let neve = packed_store(dir.path(), &node, HEAD);
    wait_for_packed(&neve, 96);
    let store = dir.path().join("store").display().to_string();
    let push = ["push", "--data-dir", &store];
    assert_eq!(single(&push)["last"], 95);
    let (code, _, errors) = archive(&server, &push);
    assert_eq!((code, errors.contains("its manifest says so")), (2, true), "{errors}");
    node.advance(60);
    neve.wait_for_head(HEAD + 60);
    wait_for_packed(&neve, 160);
    neve.stop_in_time();
    assert_eq!(single(&push)["last"], 159);
    assert_eq!(single(&["gc", "--older-than", "0s"])["deleted"], 4, "the former span");
    let (code, lines, errors) = archive(&server, &["verify"]);
    let summary = lines.last().expect("a line");
    assert_eq!((code, &summary["last"]), (0, &159.into()), "{lines:?} {errors}");
}
