//! `serve --dev`: the main job where no node is at hand.

use std::time::Duration;

use crate::support::neve::{Neve, fresh_dir, run};

const DEV: [&str; 5] = ["serve", "--dev", "--listen", "127.0.0.1:0", "--dev-rate"];

/// The last line of the greeting, run by a shell as a person would.
fn run_curl_line(greeting: &str) -> String {
    let line = greeting.lines().last().expect("a greeting has lines").trim();
    assert!(line.starts_with("curl "), "{greeting}");
    let output = std::process::Command::new("sh").args(["-c", line]).output();
    String::from_utf8(output.expect("there is a shell").stdout).expect("JSON is UTF-8")
}

#[test]
fn it_serves_at_once_and_prints_what_to_try() {
    let dir = fresh_dir();
    let neve = Neve::spawn(dir.path(), &[&DEV[..], &["20"]].concat());
    neve.wait_for_head(110);
    // All of it is there, proven from its first block on.
    neve.wait("a proof", |health| {
        (health["blocks"]["verified_height"].as_u64()? > 0).then_some(())
    });
    assert!(neve.greeting.contains("\nupstream http://127.0.0.1:"), "{}", neve.greeting);
    let block: serde_json::Value = serde_json::from_str(&run_curl_line(&neve.greeting)).unwrap();
    assert!(block["result"]["number"].as_str().is_some_and(|number| number.starts_with("0x")));
    let health = neve.health();
    assert_eq!(health["blocks"]["min_height"], 0);
    assert_eq!(health["upstream"]["websocket"], true);
    let store = health["storage"]["data_dir"].as_str().unwrap().to_owned();
    assert!(std::fs::exists(&store).unwrap());
    let (status, took) = neve.stop();
    assert!(status.success() && took < Duration::from_secs(5), "{status} after {took:?}");
    assert!(!std::fs::exists(&store).unwrap(), "the temporary {store} stays behind");
}

#[test]
fn what_it_stores_is_a_store_like_any_other() {
    let dir = fresh_dir();
    let store = dir.path().join("store").display().to_string();
    let arguments = [&DEV[..], &["0", "--data-dir", &store, "--disk-reserve-bytes", "1MiB"]];
    let neve = Neve::spawn(dir.path(), &arguments.concat());
    neve.wait_for_head(100);
    neve.stop();
    let verified = run(&["verify", "--data-dir", &store, "--senders"]);
    assert!(verified.status.success(), "{}", String::from_utf8_lossy(&verified.stdout));
    // Another start is another chain, which is said, and nothing is given up for it.
    let neve = Neve::spawn(dir.path(), &arguments.concat());
    neve.wait("the refusal", |health| (health["upstream"]["state"] == "disagrees").then_some(()));
    assert_eq!(neve.health()["blocks"]["head"], 100);
}
