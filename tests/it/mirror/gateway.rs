//! A real object store: writers that begin together, and a replica that has nothing but the bucket.

use std::fs;
use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread;

use serde_json::Value;
use tempfile::TempDir;

use super::sources::wait_for_first;
use crate::archive::bucket::{reads, trust_in};
use crate::archive::writers::kills::{Target, kill_writers};
use crate::store::archive::{HEAD, devnet, outcome, packed_store};
use crate::store::packed::wait_for_packed;
use crate::support::neve::{LIMIT, Neve, fresh_dir, run_with};
use crate::support::node::wait::{Miss, wait_until};
use crate::support::served::serves;

/// A versitygw on a directory, with one bucket. It ends with it. The file system needs extended attributes: with
/// `--sidecar` this gateway loses updates, and the trial refuses it.
struct Gateway {
    child: Child,
    port: u16,
    dir: TempDir,
}

impl Gateway {
    fn start() -> Self {
        let dir = fresh_dir();
        let data = dir.path().join("data");
        fs::create_dir_all(data.join("bucket")).expect("it can be made");
        let free = TcpListener::bind("127.0.0.1:0").and_then(|listener| listener.local_addr());
        let port = free.expect("loopback has free ports").port();
        let child = Command::new(gateway())
            .env("ROOT_ACCESS_KEY", "test")
            .env("ROOT_SECRET_KEY", "testsecret")
            .args(["--port", &format!("127.0.0.1:{port}"), "--keep-alive", "--quiet", "posix"])
            .arg(&data)
            .stdout(Stdio::null())
            .spawn()
            .expect("it starts");
        let gateway = Self { child, port, dir };
        let listens = wait_until("versitygw", LIMIT, || {
            TcpStream::connect(("127.0.0.1", port)).map_err(|error| Miss::NotYet(error.to_string()))
        });
        listens.expect("it listens");
        gateway
    }

    fn endpoint(&self) -> String {
        format!("http://127.0.0.1:{}", self.port)
    }

    /// A neve that has nothing but the bucket and this block.
    fn replica(&self, dir: &Path, anchor: &str, also: &[&str]) -> Neve {
        let env = ["env", "AWS_ACCESS_KEY_ID=test", "AWS_SECRET_ACCESS_KEY=testsecret"];
        let endpoint = self.endpoint();
        let from = ["--archive", "s3://bucket/a/b", "--archive-endpoint", &endpoint];
        let more = ["--archive-anchor", anchor, "--segment-blocks", "32"];
        let starter = [&env[..], &["AWS_REGION=us-east-1"]].concat();
        Neve::start_by(&starter, dir, &[&from[..], &more, also].concat())
    }

    fn run(&self, secret: &str, words: &[&str]) -> (i32, Vec<Value>, String) {
        let endpoint = self.endpoint();
        let variables = [
            ("AWS_ACCESS_KEY_ID", "test"),
            ("AWS_SECRET_ACCESS_KEY", secret),
            ("AWS_REGION", "us-east-1"),
        ];
        let place = ["s3://bucket/a/b", "--json", "--archive-endpoint", &endpoint];
        outcome(&run_with(&variables, &[&["archive"], words, &place].concat()))
    }
}

impl Drop for Gateway {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Program of versitygw, built once into target/tmp.
fn gateway() -> PathBuf {
    let program = Path::new(env!("CARGO_TARGET_TMPDIR")).join("versitygw");
    if !program.exists() {
        let built = Command::new("go")
            .args(["install", "github.com/versity/versitygw/cmd/versitygw@v1.8.0"])
            .env("GOBIN", env!("CARGO_TARGET_TMPDIR"))
            .env("CGO_ENABLED", "0")
            .status();
        assert!(built.expect("go is there").success(), "versitygw does not build");
    }
    program
}

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
    wait_for_first(&replica, 0);
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
