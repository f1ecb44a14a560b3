//! A disk for pages that is full: a small file system of its own.

use std::process::Command;

use crate::archive::bucket::{Bucket, reads};
use crate::support::neve::fresh_dir;
use crate::support::served::serves;

/// Bytes of the disk: less than a segment has.
const MOUNT: &str = "mkdir -p $DISK && mount -t tmpfs -o size=64k tmpfs $DISK && exec \"$@\"";

/// Fails with the remedy if this user may mount nothing in a namespace of its own.
fn needs_user_namespaces() {
    let probe = ["--map-root-user", "--mount", "mount", "-t", "tmpfs", "tmpfs", "/mnt"];
    let tried =
        Command::new("unshare").args(probe).output().expect("unshare: apt-get install util-linux");
    assert!(
        tried.status.success(),
        "unshare {}: {}; the test needs user namespaces without privileges: sysctl \
         kernel.unprivileged_userns_clone=1, or kernel.apparmor_restrict_unprivileged_userns=0",
        probe.join(" "),
        String::from_utf8_lossy(&tried.stderr)
    );
}

#[test]
#[ignore = "needs unshare and mount: ./check archive"]
fn full_disk_of_pages_costs_no_answer() {
    needs_user_namespaces();
    let bucket = Bucket::large();
    let dir = fresh_dir();
    let disk = format!("DISK={}", dir.path().join("store/archive").display());
    let starter = ["env", &disk, "unshare", "--map-root-user", "--mount", "sh", "-c", MOUNT, "sh"];
    let (place, trust) = (bucket.place(), bucket.trust());
    let words = ["--archive", &place, "--archive-trust", &trust];
    let replica = bucket.replica_by(&starter, dir.path(), &words);
    serves(&replica, &bucket.node, 0..bucket.first() + 28);
    let first = reads(&replica, "segment");
    assert!(first > 0);
    // Pages that found no place are in memory, up to 16 MiB.
    serves(&replica, &bucket.node, 0..bucket.first());
    assert_eq!(reads(&replica, "segment"), first);
    assert_eq!(replica.count("neve_archive_refused_pages_total"), 0);
    println!(
        "{first} reads, {} bytes of pages on the disk",
        replica.count("neve_archive_cache_bytes")
    );
    replica.stop_in_time();
}
