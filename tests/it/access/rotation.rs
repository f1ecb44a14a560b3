//! The file of the access log: rotated, or a pipe that no process reads.

use std::fs::{self, File};
use std::io::Read;
use std::os::unix::fs::OpenOptionsExt;
use std::process::Command;

use rustix::process::Signal;

use super::log::{Logged, lines};
use crate::support::neve::fresh_dir;
use crate::support::served::{devnet, follow};

const CALL: &str = r#"{"jsonrpc":"2.0","id":1,"method":"eth_chainId"}"#;
const WRITTEN: &str = "neve_access_log_lines_total{outcome=\"written\"}";
const DROPPED: &str = "neve_access_log_lines_total{outcome=\"dropped\"}";

#[test]
fn sighup_opens_the_file_anew_and_no_line_is_lost() {
    let logged = Logged::start(&[]);
    let old = logged.dir.path().join("access.log.1");
    let mut client = logged.neve.client();
    (0..3).for_each(|_| drop(client.post(CALL)));
    logged.lines(3);
    fs::rename(logged.file(), &old).expect("a rotation");
    client.post(CALL);
    lines(&old, 4);
    logged.neve.signal(Signal::HUP);
    logged.neve.wait_for_log("access log reopened");
    (0..2).for_each(|_| drop(client.post(CALL)));
    logged.lines(2);
    assert_eq!(lines(&old, 4).len(), 4);
    assert!(!logged.neve.log().contains("no settings file"), "{}", logged.neve.log());
    let file = logged.file();
    logged.neve.stop_in_time();
    assert_eq!(lines(&file, 2).len(), 2);
}

#[test]
fn pipe_that_nobody_reads_holds_up_no_response() {
    let (node, dir) = (devnet(5), fresh_dir());
    let pipe = dir.path().join("access.pipe");
    let made = Command::new("mkfifo").arg(&pipe).status().expect("coreutils are there");
    assert!(made.success());
    let place = pipe.display().to_string();
    let queue = ["--access-log-queue-bytes-max", "64KiB"];
    let (_store, neve) = follow(&node, &[&["--access-log", &place], &queue[..]].concat());
    let mut client = neve.client();
    // A pipe holds 64 KiB, the queue as much, and one write is between them.
    let mut asked = 0;
    while neve.count(DROPPED) == 0 {
        for _ in 0..100 {
            assert_eq!(client.post(CALL).status, 200);
            asked += 1;
        }
        assert!(asked < 10_000, "no line was dropped");
    }
    for _ in 0..50 {
        assert_eq!(client.post(CALL).status, 200);
    }
    asked += 50;
    let reader = File::options().read(true).custom_flags(libc::O_NONBLOCK).open(&pipe);
    let mut reader = reader.expect("it opens");
    let mut room = vec![0; 1 << 20];
    let mut read = 0;
    neve.wait("all lines that were not dropped", |_| {
        read += reader.read(&mut room).unwrap_or(0); // it may be empty
        (neve.count(WRITTEN) + neve.count(DROPPED) == asked).then_some(())
    });
    assert!(read > 0);
}

#[test]
fn stop_does_not_wait_for_a_pipe_that_nobody_reads() {
    let (node, dir) = (devnet(5), fresh_dir());
    let pipe = dir.path().join("access.pipe");
    assert!(Command::new("mkfifo").arg(&pipe).status().expect("coreutils are there").success());
    let place = pipe.display().to_string();
    let (_store, neve) = follow(&node, &["--access-log", &place]);
    let mut client = neve.client();
    (0..600).for_each(|_| drop(client.post(CALL)));
    neve.stop_in_time();
}

#[test]
fn failed_writes_are_counted_and_said_once() {
    let node = devnet(5);
    let (_store, neve) = follow(&node, &["--access-log", "/dev/full"]);
    let mut client = neve.client();
    (0..20).for_each(|_| assert_eq!(client.post(CALL).status, 200));
    neve.wait_for_count("neve_access_log_lines_total{outcome=\"failed\"}", 20);
    neve.wait_for_log("access log not written");
    assert_eq!(neve.log().matches("access log not written").count(), 1, "{}", neve.log());
    assert_eq!(neve.count(WRITTEN), 0);
}
