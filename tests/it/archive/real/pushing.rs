//! A real object store: writers that begin together, and a replica that has nothing but the bucket.

use std::fs;
use std::thread;

use super::programs::{Gateway, Minio, replica_of};
use crate::archive::bucket::{reads, trust_in};
use crate::archive::writers::kills::{Target, kill_writers};
use crate::store::archive::{HEAD, devnet, packed_store};
use crate::store::packed::wait_for_packed;
use crate::support::neve::fresh_dir;
use crate::support::served::serves;

#[test]
#[ignore = "needs go: ./check archive"]
fn packed_files_go_to_a_bucket_of_versitygw() {
    let gateway = Gateway::start();
    let (node, dir) = (devnet(), tempfile::tempdir().expect("a directory can be made"));
    let neve = packed_store(dir.path(), &node, HEAD);
    wait_for_packed(&neve, 96);
    let store = dir.path().join("store").display().to_string();
    let push = ["push", "--data-dir", &store];
    let (code, _, errors) = gateway.run("wrong", &push);
    assert_eq!(code, 2, "a wrong secret: {errors}");
    let genesis = format!("{:#x}", node.block(0).expect("it is there").hash());
    let init = ["init", "--range", "32", "--chain-id", "43112", "--genesis", &genesis];
    let (code, lines, errors) = gateway.run("testsecret", &init);
    assert_eq!((code, lines.len()), (0, 1), "{lines:?} {errors}");
    assert_eq!((&lines[0]["new"], &lines[0]["trial"]["holds"]), (&true.into(), &true.into()));
    // Writers that begin together: no update is lost, and each object is there once.
    let outcomes = thread::scope(|threads| {
        let writers = [(); 4].map(|()| threads.spawn(|| gateway.run("testsecret", &push)));
        writers.map(|writer| writer.join().expect("no panic"))
    });
    assert!(outcomes.iter().all(|outcome| outcome.0 == 0), "{outcomes:?}");
    let (code, lines, errors) = gateway.run("testsecret", &["verify"]);
    let summary = lines.last().expect("a line");
    assert_eq!((code, &summary["segments"]), (0, &3.into()), "{lines:?} {errors}");
    assert_eq!((&summary["first"], &summary["last"]), (&0.into(), &95.into()));
    node.advance(60);
    neve.wait_for_head(HEAD + 60);
    wait_for_packed(&neve, 160);
    neve.stop_in_time();
    let (code, lines, errors) = gateway.run("testsecret", &push);
    let pushed = lines.last().expect("a line");
    assert_eq!((code, &pushed["pushed"], &pushed["last"]), (0, &2.into(), &159.into()), "{errors}");
    // The store was tried before, and is tried again.
    let (code, lines, errors) = gateway.run("testsecret", &["init"]);
    assert_eq!((code, &lines[0]["trial"]["holds"]), (0, &true.into()), "{lines:?} {errors}");
    assert_eq!(lines[0]["trial"]["endpoint"], gateway.endpoint());
    let gc = |more: &[&str]| {
        let (code, lines, errors) = gateway.run("testsecret", &[&["gc"], more].concat());
        assert_eq!((code, lines.len()), (0, 1), "{lines:?} {errors}");
        let counts = ["unnamed", "young", "deleted"].map(|count| lines[0][count].as_u64());
        counts.map(|count| count.expect("it is a number"))
    };
    assert_eq!(gc(&["--dry-run"]), [4, 4, 0], "the former span is younger than a day");
    assert_eq!(gc(&[]), [4, 4, 0]);
    assert_eq!(gc(&["--older-than", "0s"]), [4, 0, 4]);
    let (code, lines, _) = gateway.run("testsecret", &["verify"]);
    assert_eq!((code, &lines.last().expect("a line")["findings"]), (0, &0.into()), "{lines:?}");
    let replica_dir = fresh_dir();
    let anchor = format!("159:{:#x}", node.block(159).expect("the chain has it").hash());
    let replica = gateway.replica(replica_dir.path(), &anchor, &[]);
    replica.wait("the first height", |health| (health["blocks"]["min_height"] == 0).then_some(()));
    serves(&replica, &node, 0..=159);
    replica.stop_in_time();
    // With a small tail the rest comes by ranges.
    let small_dir = fresh_dir();
    let trust = trust_in(&gateway.dir.path().join("data/bucket/a/b/manifest.json"));
    let tail = ["--backfill-to", "128", "--archive-trust", &trust];
    let replica = gateway.replica(small_dir.path(), &anchor, &tail);
    replica.wait_for_head(159);
    replica.wait("filters", |health| {
        (health["archive"]["answers"]["hashes_from_height"] == 0).then_some(())
    });
    serves(&replica, &node, 0..=159);
    assert_eq!(reads(&replica, "pages"), 1);
    assert_eq!(replica.health()["blocks"]["min_height"], 128);
    replica.stop_in_time();
}

#[test]
#[ignore = "needs go: ./check archive"]
fn kills_of_eight_writers_to_versitygw_lose_and_double_nothing() {
    let gateway = Gateway::start();
    kill_writers(100, |round| {
        let dir = gateway.dir.path().join(format!("data/bucket/{round}"));
        fs::create_dir(&dir).expect("it can be made");
        let (url, endpoint) = (format!("s3://bucket/{round}"), gateway.endpoint());
        let place = vec![url, format!("--archive-endpoint={endpoint}")];
        let (key, secret) = ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY");
        let variables = vec![(key, "test"), (secret, "testsecret"), ("AWS_REGION", "us-east-1")];
        Target { dir, place, variables }
    });
}

#[test]
#[ignore = "needs go: ./check archive"]
fn packed_files_go_to_a_bucket_of_minio() {
    let minio = Minio::start();
    let (node, dir) = (devnet(), fresh_dir());
    let neve = packed_store(dir.path(), &node, HEAD);
    wait_for_packed(&neve, 96);
    let store = dir.path().join("store").display().to_string();
    let push = ["push", "--data-dir", &store];
    let genesis = format!("{:#x}", node.block(0).expect("it is there").hash());
    let init = ["init", "--range", "32", "--chain-id", "43112", "--genesis", &genesis];
    let (code, lines, errors) = minio.run(&init);
    assert_eq!((code, lines.len()), (0, 1), "{lines:?} {errors}");
    assert_eq!(lines[0]["trial"]["holds"], true);
    let outcomes = thread::scope(|threads| {
        let writers = [(); 4].map(|()| threads.spawn(|| minio.run(&push)));
        writers.map(|writer| writer.join().expect("no panic"))
    });
    assert!(outcomes.iter().all(|outcome| outcome.0 == 0), "{outcomes:?}");
    node.advance(60);
    neve.wait_for_head(HEAD + 60);
    wait_for_packed(&neve, 160);
    neve.stop_in_time();
    let (code, lines, errors) = minio.run(&push);
    assert_eq!((code, &lines.last().expect("a line")["pushed"]), (0, &2.into()), "{errors}");
    let (code, lines, errors) = minio.run(&["gc", "--older-than", "0s"]);
    assert_eq!((code, &lines[0]["deleted"]), (0, &4.into()), "{errors}");
    let (code, lines, errors) = minio.run(&["verify"]);
    let summary = lines.last().expect("a line");
    assert_eq!((code, &summary["segments"]), (0, &5.into()), "{lines:?} {errors}");
    let replica_dir = fresh_dir();
    let anchor = format!("159:{:#x}", node.block(159).expect("the chain has it").hash());
    let replica = replica_of(&minio.endpoint(), replica_dir.path(), &anchor, &[]);
    replica.wait("the first height", |health| (health["blocks"]["min_height"] == 0).then_some(()));
    serves(&replica, &node, 0..=159);
    replica.stop_in_time();
}
