//! `neve inspect`: the tiers of a store, beside a running neve and without one.

use std::fs;
use std::path::Path;

use neve_devnet::{Config, DevnetThread};
use serde_json::Value;

use super::packed::{packed_files, wait_for_packed};
use crate::support::neve::{Neve, fresh_dir, run};

fn inspected(dir: &Path) -> Value {
    let store = dir.join("store").display().to_string();
    let output = run(&["inspect", "--json", "--data-dir", &store]);
    assert_eq!(output.status.code(), Some(0), "{}", String::from_utf8_lossy(&output.stderr));
    serde_json::from_slice(&output.stdout).expect("it is JSON")
}

/// Sum of a number over the files of a tier.
fn sum(found: &Value, tier: &str, of: impl Fn(&Value) -> u64) -> u64 {
    let files = found["files"].as_array().expect("a list").iter();
    files.filter(|file| file["tier"] == tier).map(of).sum()
}

#[test]
fn tiers_of_a_store_are_shown_beside_a_running_neve_and_after_it() {
    let node = DevnetThread::start(Config::test().with_head(150)).expect("free ports");
    let (dir, url) = (fresh_dir(), node.base_url());
    let fixed = ["--upstream", &url, "--start", "0", "--segment-blocks", "32"];
    let neve = Neve::start(dir.path(), &[&fixed[..], &["--unpacked-bytes", "134500000B"]].concat());
    neve.wait_for_head(150);
    // The active segment has 128 MiB and its header, a sealed one 500 KiB: with one of these they fit, with two they do not.
    wait_for_packed(&neve, 96);
    let settled = |found: &Value| {
        let packed = found["tiers"]["packed"]["heights"].as_u64()?;
        let is_same = packed == neve.health()["storage"]["packed_heights"].as_u64()?
            && packed / 32 == packed_files(dir.path()).len() as u64;
        is_same.then_some(())
    };
    let found = neve.wait("an unchanged store", |_| {
        let found = inspected(dir.path());
        settled(&found).map(|()| found)
    });
    assert_eq!((&found["served"]["first"], &found["served"]["last"]), (&0.into(), &150.into()));
    assert_eq!(found["served"]["heights"], 151);
    let tiers = &found["tiers"];
    let heights = |tier: &str| tiers[tier]["heights"].as_u64().unwrap_or(0);
    assert_eq!(heights("packed") + heights("sealed") + heights("active"), 151, "{tiers}");
    for tier in ["packed", "sealed", "active"] {
        let bytes = sum(&found, tier, |file| file["bytes"].as_u64().expect("bytes"));
        assert_eq!(tiers[tier]["bytes"].as_u64().unwrap_or(0), bytes, "{tier}");
    }
    let each = |tier: &str| tiers[tier]["bytes_a_height"].as_u64().expect("it has heights");
    assert!(each("packed") < each("sealed"), "{tiers}");
    neve.stop_in_time();
    assert_eq!(inspected(dir.path())["served"]["heights"], 151);
}

#[test]
fn files_that_are_not_served_are_shown_apart() {
    let node = DevnetThread::start(Config::test().with_head(100)).expect("free ports");
    let (dir, url) = (fresh_dir(), node.base_url());
    let fixed = ["--upstream", &url, "--start", "0", "--segment-blocks", "32"];
    let neve = Neve::start(dir.path(), &[&fixed[..], &["--unpacked-bytes", "0B"]].concat());
    neve.wait_for_head(100);
    wait_for_packed(&neve, 96);
    neve.stop_in_time();
    let files = packed_files(dir.path());
    let aside = format!("{}.quarantined-0", files[0].display());
    fs::rename(&files[0], aside).expect("it can be renamed");
    fs::copy(&files[1], files[1].with_extension("pack.part")).expect("it can be copied");
    fs::write(&files[2], b"no packed file").expect("it can be written");
    fs::write(dir.path().join("store/notes.txt"), b"of the operator").expect("it can be written");
    let found = inspected(dir.path());
    for (tier, files, heights) in
        [("quarantined", 1, 32), ("unfinished", 1, 0), ("unreadable", 1, 0)]
    {
        let tier = &found["tiers"][tier];
        assert_eq!((&tier["files"], &tier["heights"]), (&files.into(), &heights.into()), "{found}");
    }
    let last = found["served"]["last"].as_u64();
    assert_eq!(
        (found["served"]["first"].as_u64(), last),
        (Some(96), Some(100)),
        "without the unreadable one"
    );
    assert!(!found.to_string().contains("notes.txt"));
    let store = dir.path().join("store").display().to_string();
    let text = run(&["inspect", "--files", "--data-dir", &store]);
    let text = String::from_utf8(text.stdout).expect("it is text");
    for line in ["tier", "packed", "quarantined", "unreadable", "served"] {
        assert!(text.lines().any(|found| found.starts_with(line)), "{line}\n{text}");
    }
}

#[test]
fn directory_without_a_store_is_named() {
    let empty = fresh_dir();
    let missing = empty.path().join("missing");
    for (dir, why) in [(missing.as_path(), "no such directory"), (empty.path(), "no store")] {
        let output = run(&["inspect", "--data-dir", &dir.display().to_string()]);
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(2), "{said}");
        assert!(said.contains(why) && said.contains("name the directory of neve serve"), "{said}");
    }
}
