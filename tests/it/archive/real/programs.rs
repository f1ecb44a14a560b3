//! Programs of others: versitygw and `MinIO`, which are object stores, and the metadata service of an instance. Go builds
//! each once into target/tmp.

use std::fs;
use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::{Mutex, PoisonError};

use serde_json::Value;
use tempfile::TempDir;

use crate::archive::bucket::trust_in;
use crate::store::archive::outcome;
use crate::support::client::Client;
use crate::support::neve::{LIMIT, Neve, fresh_dir, run_with};
use crate::support::node::wait::{Miss, wait_until};

const GATEWAY: &str = "github.com/versity/versitygw/cmd/versitygw@v1.8.0";
const MINIO: &str = "github.com/minio/minio@v0.0.0-20260212201848-7aac2a2c5b7c";
const METADATA: &str = "github.com/aws/amazon-ec2-metadata-mock/cmd/ec2-metadata-mock@v1.13.0";
pub(super) const SECRET: &str = "testsecret";

static BUILDING: Mutex<()> = Mutex::new(());

/// A program that Go builds, in a directory of this name: not all are named as what they are.
pub(super) fn built(name: &str, package: &str, file: &str) -> PathBuf {
    let dir = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
    let program = dir.join(file);
    // Other tests wait until it is whole.
    let _building = BUILDING.lock().unwrap_or_else(PoisonError::into_inner);
    if !program.exists() {
        let building = Command::new("go")
            .args(["install", package])
            .env("GOBIN", &dir)
            .env("CGO_ENABLED", "0")
            .status();
        assert!(building.expect("go is there").success(), "{name} does not build");
    }
    program
}

pub(super) fn free_port() -> u16 {
    let free = TcpListener::bind("127.0.0.1:0").and_then(|listener| listener.local_addr());
    free.expect("loopback has free ports").port()
}

pub(super) fn wait_for_listener(name: &str, port: u16) {
    let listens = wait_until(name, LIMIT, || {
        TcpStream::connect(("127.0.0.1", port)).map_err(|error| Miss::NotYet(error.to_string()))
    });
    listens.expect("it listens");
}

/// A process that ends with its owner.
pub(super) struct Owned(pub(super) Child);

impl Drop for Owned {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// A versitygw on a directory, with one bucket. The file system needs extended attributes: with `--sidecar` this
/// gateway loses updates, and the trial refuses it.
pub(super) struct Gateway {
    process: Owned,
    pub(super) port: u16,
    scheme: &'static str,
    pub(super) dir: TempDir,
}

impl Gateway {
    pub(super) fn start() -> Self {
        Self::on(fresh_dir(), "http", &[])
    }

    /// Starts it behind TLS, with the certificate and the key of a directory.
    pub(super) fn with_tls(dir: TempDir) -> Self {
        let path = |name: &str| dir.path().join(name).display().to_string();
        let flags = ["--cert".to_owned(), path("cert.pem"), "--key".to_owned(), path("key.pem")];
        Self::on(dir, "https", &flags)
    }

    fn on(dir: TempDir, scheme: &'static str, more: &[String]) -> Self {
        fs::create_dir_all(dir.path().join("data/bucket")).expect("it can be made");
        let port = free_port();
        let process = spawned(dir.path(), port, SECRET, more);
        Self { process, port, scheme, dir }
    }

    /// Ends it, and starts it again at the same address.
    pub(super) fn restart(&mut self, secret: &str, more: &[&str]) {
        let _ = self.process.0.kill();
        let _ = self.process.0.wait();
        let more: Vec<_> = more.iter().map(|&word| word.to_owned()).collect();
        self.process = spawned(self.dir.path(), self.port, secret, &more);
    }

    pub(super) fn endpoint(&self) -> String {
        format!("{}://127.0.0.1:{}", self.scheme, self.port)
    }

    /// A neve that has nothing but the bucket and this block.
    pub(super) fn replica(&self, dir: &Path, anchor: &str, also: &[&str]) -> Neve {
        replica_of(&self.endpoint(), dir, anchor, also)
    }

    pub(super) fn run(&self, secret: &str, words: &[&str]) -> (i32, Vec<Value>, String) {
        self.run_with(&[("AWS_SECRET_ACCESS_KEY", secret)], words)
    }

    /// Runs a command with more variables than those of the key and the region.
    pub(super) fn run_with(
        &self,
        variables: &[(&str, &str)],
        words: &[&str],
    ) -> (i32, Vec<Value>, String) {
        run_at(&self.endpoint(), variables, words)
    }

    /// Trust in the manifest as it is.
    pub(super) fn trust(&self) -> String {
        trust_in(&self.dir.path().join("data/bucket/a/b/manifest.json"))
    }
}

fn spawned(dir: &Path, port: u16, secret: &str, more: &[String]) -> Owned {
    let child = Command::new(built("versitygw-1.8.0", GATEWAY, "versitygw"))
        .env("ROOT_ACCESS_KEY", "test")
        .env("ROOT_SECRET_KEY", secret)
        .args(["--port", &format!("127.0.0.1:{port}"), "--keep-alive", "--quiet"])
        .args(more)
        .arg("posix")
        .arg(dir.join("data"))
        .stdout(Stdio::null())
        .spawn();
    let process = Owned(child.expect("it starts"));
    wait_for_listener("versitygw", port);
    process
}

/// Starts a program with the key of the gateway.
pub(super) const STARTER: [&str; 4] =
    ["env", "AWS_ACCESS_KEY_ID=test", "AWS_SECRET_ACCESS_KEY=testsecret", "AWS_REGION=us-east-1"];

/// A `MinIO` on a directory, with one bucket.
pub(super) struct Minio {
    _process: Owned,
    _dir: TempDir,
    port: u16,
}

impl Minio {
    pub(super) fn start() -> Self {
        let (dir, port) = (fresh_dir(), free_port());
        fs::create_dir(dir.path().join("bucket")).expect("it can be made");
        let child = Command::new(built("minio-20260212", MINIO, "minio"))
            .env("MINIO_ROOT_USER", "test")
            .env("MINIO_ROOT_PASSWORD", SECRET)
            .args(["server", "--quiet", "--address", &format!("127.0.0.1:{port}")])
            .arg(dir.path())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn();
        let process = Owned(child.expect("it starts"));
        wait_for_listener("MinIO", port);
        let ready = wait_until("MinIO", LIMIT, || {
            match Client::new(([127, 0, 0, 1], port).into()).get("/minio/health/ready").status {
                200 => Ok(()),
                status => Err(Miss::NotYet(status.to_string())),
            }
        });
        ready.expect("it is ready");
        Self { _process: process, _dir: dir, port }
    }

    pub(super) fn endpoint(&self) -> String {
        format!("http://127.0.0.1:{}", self.port)
    }

    pub(super) fn run(&self, words: &[&str]) -> (i32, Vec<Value>, String) {
        run_at(&self.endpoint(), &[("AWS_SECRET_ACCESS_KEY", SECRET)], words)
    }
}

/// Runs a command of `neve archive` with a bucket.
fn run_at(endpoint: &str, variables: &[(&str, &str)], words: &[&str]) -> (i32, Vec<Value>, String) {
    let fixed = [("AWS_ACCESS_KEY_ID", "test"), ("AWS_REGION", "us-east-1")];
    let place = ["s3://bucket/a/b", "--json", "--archive-endpoint", endpoint];
    let words = [&["archive"], words, &place].concat();
    outcome(&run_with(&[&fixed, variables].concat(), &words))
}

/// A neve that has nothing but the bucket and this block.
pub(super) fn replica_of(endpoint: &str, dir: &Path, anchor: &str, also: &[&str]) -> Neve {
    let from = ["--archive", "s3://bucket/a/b", "--archive-endpoint", endpoint];
    let more = ["--archive-anchor", anchor, "--segment-blocks", "32"];
    Neve::start_by(&STARTER, dir, &[&from[..], &more, also].concat())
}

/// A metadata service of an instance with a role.
pub(super) struct Metadata {
    _process: Owned,
    port: u16,
}

impl Metadata {
    /// Key that it gives.
    pub(super) const KEY: &str = "12345678901";

    pub(super) fn start() -> Self {
        let port = free_port();
        let child = Command::new(built("ec2-metadata-mock-1.13.0", METADATA, "ec2-metadata-mock"))
            .args(["--hostname", "127.0.0.1", "--imdsv2", "--port", &port.to_string()])
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn();
        let process = Owned(child.expect("it starts"));
        wait_for_listener("ec2-metadata-mock", port);
        Self { _process: process, port }
    }

    pub(super) fn endpoint(&self) -> String {
        format!("http://127.0.0.1:{}", self.port)
    }
}
