//! Trust in an archive: a signed manifest, and segments that the replica has proven itself.

use std::fs;
use std::path::Path;

use alloy_primitives::hex;
use neve_archive::{Manifest, PageList, PageLists};
use neve_devnet::Helicon;
use rcgen::{KeyPair, PKCS_ED25519};

use super::bucket::{Bucket, LAST, trust_in};
use crate::store::archive::{forget_manifests, objects, outcome, pushed, verified};
use crate::store::packed::wait_for_packed;
use crate::support::client::Response;
use crate::support::neve::{Neve, fresh_dir, run};
use crate::support::served::serves;

/// A key in a file, and the trust in it.
pub(super) fn key(dir: &Path) -> (String, String) {
    let pair = KeyPair::generate_for(&PKCS_ED25519).expect("a key");
    let path = dir.join("key.pem");
    fs::write(&path, pair.serialize_pem()).expect("it can be written");
    let public = hex::encode(pair.public_key_raw());
    (path.display().to_string(), format!("ed25519:{public}"))
}

fn block(neve: &Neve, height: u64) -> Response {
    neve.client().call("eth_getBlockByNumber", &format!("[\"{height:#x}\",true]"))
}

fn status(neve: &Neve, height: u64) -> u16 {
    block(neve, height).status
}

fn waits_for_answers(neve: &Neve, first: u64, last: u64) {
    neve.wait("archived heights", |health| {
        let answers = &health["archive"]["answers"];
        let heights = (&answers["min_height"], &answers["max_height"]);
        let has_filters = answers["hashes_from_height"].is_u64();
        (*heights.0 == first && *heights.1 == last && has_filters).then_some(())
    });
}

#[test]
fn manifest_is_taken_from_the_holder_of_the_key_and_never_an_earlier_one() {
    let bucket = Bucket::new(Helicon::Never);
    let (keys, other_keys, signed) = (fresh_dir(), fresh_dir(), fresh_dir());
    let ((path, trust), (_, other)) = (key(keys.path()), key(other_keys.path()));
    let place = format!("file://{}", signed.path().display());
    let line = pushed(bucket.source_dir.path(), &[&place, "--archive-sign-key", &path]);
    assert_eq!(line["key"], trust.as_str());
    let manifest = signed.path().join("manifest.json");
    let first = fs::read(&manifest).expect("it is there");
    bucket.node.advance(60);
    bucket.source.wait_for_head(170);
    wait_for_packed(&bucket.source, 160);
    let store = bucket.source_dir.path().join("store").display().to_string();
    let unsigned = run(&["archive", "push", "--data-dir", &store, &place]);
    assert_eq!(unsigned.status.code(), Some(2));
    let errors = String::from_utf8_lossy(&unsigned.stderr).into_owned();
    assert!(errors.contains("--archive-sign-key FILE"), "{errors}");
    pushed(bucket.source_dir.path(), &[&place, "--archive-sign-key", &path]);
    let anchor = format!("159:{:#x}", bucket.node.block(159).expect("it is there").hash());
    let replica = |dir: &Path, trust: &str| {
        let from = ["--archive", &place, "--archive-anchor", &anchor, "--archive-trust", trust];
        let neve = Neve::start(dir, &[&from[..], &["--segment-blocks", "32"], &TAIL].concat());
        neve.wait_for_head(159);
        neve
    };
    let dir = fresh_dir();
    let neve = replica(dir.path(), &trust);
    waits_for_answers(&neve, 0, 159);
    serves(&neve, &bucket.node, 0..=159);
    neve.stop_in_time();
    let distrusting_dir = fresh_dir();
    let distrusting = replica(distrusting_dir.path(), &other);
    distrusting.wait_for_log("archive manifest refused");
    assert_eq!(status(&distrusting, 3), 421, "the key of another");
    assert!(distrusting.health()["archive"]["answers"].is_null());
    distrusting.stop_in_time();
    // A flipped digit of a signed manifest: the segment's digest is another one.
    let newest = fs::read(&manifest).expect("it is there");
    fs::write(&manifest, &first).expect("it is ours");
    let neve = replica(dir.path(), &trust);
    neve.wait_for_log("archive manifest refused");
    assert_eq!(status(&neve, 3), 421, "an earlier manifest");
    neve.wait("the reason", |health| {
        let error = health["archive"]["segments"]["error"].as_str().unwrap_or_default();
        error.contains("manifest 1 is earlier than one that").then_some(())
    });
    neve.stop_in_time();
    let text = String::from_utf8(newest).expect("it is text");
    let forged =
        text.replace("\"range\":32", "\"range\": 32").replace("\"sequence\":2", "\"sequence\":3");
    assert_ne!(forged, text);
    fs::write(&manifest, forged).expect("it is ours");
    let neve = replica(dir.path(), &trust);
    neve.wait_for_log("archive manifest refused");
    assert_eq!(status(&neve, 3), 421, "a forged manifest");
    neve.stop_in_time();
}

/// Without descent a replica would answer nothing after its next start.
#[test]
fn manifest_is_taken_that_descends_from_the_trusted_one_and_no_other() {
    let bucket = Bucket::new(Helicon::Never);
    let (dir, trust, place) = (fresh_dir(), bucket.trust(), bucket.place());
    let manifest = bucket.dir.path().join("manifest.json");
    let first = fs::read(&manifest).expect("it is there");
    bucket.node.advance(60);
    bucket.source.wait_for_head(170);
    wait_for_packed(&bucket.source, 160);
    pushed(bucket.source_dir.path(), &[&place]);
    let collected = run(&["archive", "gc", "--older-than", "0s", &place]);
    assert_eq!(collected.status.code(), Some(0));
    assert_eq!(verified(&[&place]).1["sequence"], 4);
    let anchor = format!("159:{:#x}", bucket.node.block(159).expect("it is there").hash());
    let replica = || {
        let from = ["--archive", &place, "--archive-anchor", &anchor, "--archive-trust", &trust];
        let more = ["--segment-blocks", "32"];
        let neve = Neve::start(dir.path(), &[&from[..], &more, &TAIL].concat());
        neve.wait_for_head(159);
        neve
    };
    let neve = replica();
    waits_for_answers(&neve, 0, 159);
    serves(&neve, &bucket.node, 0..=159);
    neve.stop_in_time();
    fs::write(&manifest, &first).expect("it is ours");
    let neve = replica();
    neve.wait_for_log("archive manifest refused");
    assert_eq!(status(&neve, 3), 421, "an earlier manifest, though it is the trusted one");
    neve.wait("the reason", |health| {
        let error = health["archive"]["segments"]["error"].as_str().unwrap_or_default();
        error.contains("manifest 1 is earlier than one that").then_some(())
    });
    neve.stop_in_time();
    fs::remove_file(&manifest).expect("it is ours");
    forget_manifests(bucket.source_dir.path());
    pushed(bucket.source_dir.path(), &[&place]);
    let neve = replica();
    neve.wait_for_log("archive manifest refused");
    assert_eq!(status(&neve, 3), 421, "an archive that was begun anew");
    neve.wait("the reason", |health| {
        let error = health["archive"]["segments"]["error"].as_str().unwrap_or_default();
        error.contains(&format!("does not descend from {trust}")).then_some(())
    });
    neve.stop_in_time();
}

/// `gc` would delete what the second push added, and the next push would go on without it.
#[test]
fn earlier_manifest_is_refused_by_writers_that_remember_the_newest_one() {
    let bucket = Bucket::new(Helicon::Never);
    let (keys, signed, memory) = (fresh_dir(), fresh_dir(), fresh_dir());
    let (path, _) = key(keys.path());
    let place = format!("file://{}", signed.path().display());
    let sign = [place.as_str(), "--archive-sign-key", &path];
    pushed(bucket.source_dir.path(), &sign);
    let manifest = signed.path().join("manifest.json");
    let first = fs::read(&manifest).expect("it is there");
    bucket.node.advance(60);
    bucket.source.wait_for_head(170);
    wait_for_packed(&bucket.source, 160);
    pushed(bucket.source_dir.path(), &sign);
    let memory = memory.path().display().to_string();
    let store = bucket.source_dir.path().join("store").display().to_string();
    let remembers = ["--data-dir", &memory];
    let archive = |command: &[&str], more: &[&str]| {
        let (code, _, errors) =
            outcome(&run(&[&["archive"], command, &["--json"], more, &sign].concat()));
        (code, errors)
    };
    let gc = ["gc", "--older-than", "0s"];
    assert_eq!(archive(&gc, &remembers).0, 0);
    let (newest, names) = (fs::read(&manifest).expect("it is there"), objects(signed.path()));
    fs::write(&manifest, &first).expect("it is ours");
    for (command, more) in [
        (&gc[..], remembers),
        (&gc, ["--archive-at-least", "4"]),
        (&gc, ["--data-dir", &store]),
        (&["push"], ["--data-dir", &store]),
        (&["retain", "--from", "64"], remembers),
        (&["init"], remembers),
    ] {
        let (code, errors) = archive(command, &more);
        assert_eq!((code, errors.contains("manifest 1 is there")), (2, true), "{errors}");
        assert_eq!(objects(signed.path()), names, "{command:?}");
    }
    fs::write(&manifest, &newest).expect("it is ours");
    assert_eq!(archive(&gc, &remembers).0, 0);
    // The operator wants the earlier one.
    fs::write(&manifest, &first).expect("it is ours");
    let digest = trust_in(&manifest);
    let (code, summary) = verified(&[&place]);
    assert_eq!((code, &summary["manifest"]), (1, &digest.as_str().into()), "spans are gone");
    assert_eq!(summary["sequence"], 1, "as --archive-at-least takes it");
    let other = format!("sha256:{}", "0".repeat(64));
    let (code, errors) = archive(&["init", "--sign-existing", &other], &["--data-dir", &store]);
    assert_eq!((code, errors.contains("the manifest that is there is")), (2, true), "{errors}");
    let wanted = archive(&["init", "--sign-existing", &digest], &["--data-dir", &store]);
    assert_eq!(wanted.0, 0, "{}", wanted.1);
    let repaired = run(&["archive", "verify", "--repair-from", &store, &place]);
    assert_eq!(repaired.status.code(), Some(0));
    pushed(bucket.source_dir.path(), &sign);
    assert_eq!(verified(&[&place]).1["last"], 159);
}

const TAIL: [&str; 2] = ["--backfill-to", "128"];

#[test]
fn segment_that_was_proven_is_answered_after_its_eviction() {
    let bucket = Bucket::new(Helicon::Never);
    let dir = fresh_dir();
    let (url, place) = (bucket.node.base_url(), bucket.place());
    let start = || {
        let from = ["--archive", &place, "--upstream", &url, "--segment-blocks", "32"];
        Neve::start(dir.path(), &[&from[..], &["--retain-blocks", "64"]].concat())
    };
    let neve = start();
    neve.wait_for_count("neve_archive_received_segments_total{outcome=\"accepted\"}", 2);
    let proofs = dir.path().join("store/archive-proofs");
    neve.wait("proofs of two segments", |_| {
        let text = fs::read_to_string(&proofs).unwrap_or_default();
        (text.lines().count() == 2).then_some(())
    });
    bucket.node.advance(60);
    neve.wait_for_head(170);
    neve.wait("the eviction", |health| {
        (health["blocks"]["min_height"].as_u64() >= Some(96)).then_some(())
    });
    waits_for_answers(&neve, 32, 95);
    serves(&neve, &bucket.node, 32..=170);
    neve.stop_in_time();
    let neve = start();
    waits_for_answers(&neve, 32, 95);
    serves(&neve, &bucket.node, 32..=95);
    neve.stop_in_time();
}

#[test]
fn segment_below_the_proven_ones_is_proven_once_a_client_asks_for_it() {
    for helicon in [Helicon::Never, Helicon::FromGenesis] {
        let bucket = Bucket::new(helicon);
        let dir = fresh_dir();
        let start = || proving(&bucket, dir.path(), &[]);
        let neve = start();
        neve.wait_for_head(110);
        bucket.node.advance(20); // headers that settle those before
        waits_for_proof_of_the_tail(&neve, dir.path());
        for height in [40, 5] {
            neve.wait("a proof under way", |_| {
                let missed = block(&neve, height);
                assert_eq!(missed.status, 421, "nobody has proven {height}");
                (missed.header("retry-after") == Some("1")).then_some(())
            });
        }
        neve.wait("a proof", |_| (status(&neve, 40) == 200).then_some(()));
        neve.wait("another proof", |_| (status(&neve, 5) == 200).then_some(()));
        waits_for_answers(&neve, 0, 63);
        serves(&neve, &bucket.node, 0..=LAST);
        wait_for_proven(&neve, 2);
        assert_eq!(counts(&neve), [2, 0, 0]);
        neve.stop_in_time();
        let neve = start();
        waits_for_answers(&neve, 0, 63);
        serves(&neve, &bucket.node, 0..=LAST);
        assert_eq!(counts(&neve), [0; 3], "it remembers them");
        neve.stop_in_time();
    }
}

/// The heights between are misses, and come from the tail.
#[test]
fn heights_that_lead_to_an_anchor_far_below_the_tail_are_answered_beside_those_of_the_tail() {
    let bucket = Bucket::of_ranges(6);
    let (dir, url, place) = (fresh_dir(), bucket.node.base_url(), bucket.place());
    let anchor = format!("95:{:#x}", bucket.node.block(95).expect("it is there").hash());
    let from = ["--archive", &place, "--upstream", &url, "--archive-anchor", &anchor];
    let tail = ["--segment-blocks", "32", "--backfill-to", "160", "--unpacked-bytes", "0"];
    let neve = Neve::start(dir.path(), &[&from[..], &tail].concat());
    neve.wait_for_head(206);
    neve.wait("proof of the tail's first segment", |_| {
        let proofs = fs::read_to_string(dir.path().join("store/archive-proofs"));
        proofs.unwrap_or_default().contains("segment 160 ").then_some(())
    });
    assert_eq!((status(&neve, 40), status(&neve, 150)), (421, 421), "nobody has proven them");
    neve.wait("proofs down to the segment of 40", |_| (status(&neve, 40) == 200).then_some(()));
    waits_for_answers(&neve, 32, 95);
    serves(&neve, &bucket.node, 32..=95);
    neve.wait("a proof from the tail", |_| (status(&neve, 150) == 200).then_some(()));
    waits_for_answers(&neve, 128, 159);
    let health = neve.health();
    let anchored = &health["archive"]["anchored"];
    assert_eq!((&anchored["min_height"], &anchored["max_height"]), (&32.into(), &95.into()));
    serves(&neve, &bucket.node, 32..=95);
    serves(&neve, &bucket.node, 128..=170);
    neve.wait("a proof of the gap", |_| (status(&neve, 100) == 200).then_some(()));
    waits_for_answers(&neve, 32, 159);
    serves(&neve, &bucket.node, 32..=170);
    neve.stop_in_time();
}

/// A replica with a node whose tail is the newest range.
fn proving(bucket: &Bucket, dir: &Path, more: &[&str]) -> Neve {
    let (url, place) = (bucket.node.base_url(), bucket.place());
    let from = ["--archive", &place, "--upstream", &url, "--segment-blocks", "32"];
    let tail = ["--backfill-to", "64", "--unpacked-bytes", "0"];
    Neve::start(dir, &[&from[..], &tail, more].concat())
}

fn waits_for_proof_of_the_tail(neve: &Neve, dir: &Path) {
    neve.wait("proof of the tail's first segment", |_| {
        let proofs = fs::read_to_string(dir.join("store/archive-proofs"));
        proofs.unwrap_or_default().contains("segment 64 ").then_some(())
    });
}

/// Segments that were proven for clients, rejected and not read.
fn counts(neve: &Neve) -> [u64; 3] {
    ["proven", "rejected", "failed"].map(|outcome| {
        neve.count(&format!("neve_archive_proven_segments_total{{outcome=\"{outcome}\"}}"))
    })
}

/// Waits until so many segments are proven. They are answered before they are counted.
fn wait_for_proven(neve: &Neve, segments: u64) {
    neve.wait_for_count("neve_archive_proven_segments_total{outcome=\"proven\"}", segments);
}

/// A filter and a span say at which height it is: no signer has vouched for them.
#[test]
fn hash_in_an_archived_segment_asks_for_its_proof() {
    let bucket = Bucket::new(Helicon::Never);
    let dir = fresh_dir();
    let neve = proving(&bucket, dir.path(), &[]);
    neve.wait_for_head(110);
    waits_for_proof_of_the_tail(&neve, dir.path());
    for (proven, height) in [(1, 40), (2, 5)] {
        let block = bucket.node.block(height).expect("it is there");
        let params = format!("[\"{:#x}\"]", block.hash());
        let mut missed = Vec::new();
        neve.wait("a proof", |_| {
            let answer = neve.client().call("eth_getBlockReceipts", &params);
            if answer.status == 200 {
                return Some(());
            }
            assert_eq!(answer.status, 421, "{}", answer.text());
            missed.push(answer.header("retry-after").map(str::to_owned));
            None
        });
        assert!(missed.contains(&Some("1".to_owned())), "{missed:?}");
        wait_for_proven(&neve, proven);
        assert_eq!(counts(&neve), [proven, 0, 0], "one segment for each");
    }
    serves(&neve, &bucket.node, 0..=LAST);
    let unknown = format!("[\"0x{}\"]", "ab".repeat(32));
    let missed = neve.client().call("eth_getTransactionReceipt", &unknown);
    assert_eq!(missed.header("retry-after"), None, "no segment has it");
    neve.stop_in_time();
}

#[test]
fn segment_over_the_limit_of_proofs_is_a_miss_until_the_limit_is_raised() {
    let bucket = Bucket::large();
    let dir = fresh_dir();
    let start = |limit| {
        let neve = proving(&bucket, dir.path(), &["--archive-proof-bytes-max", limit]);
        neve.wait_for_head(110);
        waits_for_proof_of_the_tail(&neve, dir.path());
        neve
    };
    let neve = start("64KiB");
    // A request before the replica has read the manifest begins no attempt.
    neve.wait("an attempt", |_| {
        assert_eq!(status(&neve, 40), 421);
        (counts(&neve) == [0, 1, 0]).then_some(())
    });
    neve.wait_for_log("over --archive-proof-bytes-max 65536");
    neve.wait("the end of the attempt", |_| {
        let missed = block(&neve, 40);
        assert_eq!(missed.status, 421);
        missed.header("retry-after").is_none().then_some(()) // the next one is minutes away
    });
    neve.stop_in_time();
    let neve = start("24MiB");
    neve.wait("a proof", |_| (status(&neve, 40) == 200).then_some(()));
    wait_for_proven(&neve, 1);
    assert_eq!(counts(&neve), [1, 0, 0]);
    neve.stop_in_time();
}

/// Replaces the terms of the only span by some without an entry, with right digests all the way up.
fn forge_terms(bucket: &Bucket) {
    let path = bucket.dir.path().join("manifest.json");
    let manifest = Manifest::read(&fs::read(&path).expect("it is there"));
    let mut manifest = manifest.expect("it has its form");
    let span = manifest.spans[0];
    let at = |manifest: &Manifest| {
        let terms = manifest.terms_name(&manifest.spans[0]).expect("it has terms");
        let pages = manifest.pages_name(&manifest.spans[0]);
        [terms, pages].map(|name| bucket.dir.path().join(name.to_string()))
    };
    let [_, pages] = at(&manifest);
    let empty = vec![0; span.terms.expect("it has terms").bytes as usize];
    let mut lists = PageLists::read(&fs::read(pages).expect("it is there")).expect("its form");
    let list = PageList::of(&empty);
    lists.terms.as_mut().expect("it has them").pages = list.clone();
    let lists = lists.to_bytes();
    let span = &mut manifest.spans[0];
    span.terms.as_mut().expect("it has terms").digest = list.object_digest();
    span.pages.digest = PageList::of(&lists).object_digest();
    for (path, bytes) in at(&manifest).iter().zip([empty, lists]) {
        fs::create_dir_all(path.parent().expect("a directory")).expect("it can be made");
        fs::write(path, bytes).expect("it is ours");
    }
    fs::write(path, manifest.to_bytes().expect("it has a form")).expect("it is ours");
}

/// With `prove` the bucket is not trusted: it must not hide logs by terms that lack them.
#[test]
fn terms_of_the_bucket_hide_no_logs_of_proven_segments() {
    let bucket = Bucket::new(Helicon::Never);
    forge_terms(&bucket);
    let all = r#"[{"fromBlock":"0x20","toBlock":"0x5f"}]"#;
    let all = bucket.source.client().result("eth_getLogs", all);
    let address = &all.as_array().expect("a list")[0]["address"];
    let logs = format!(r#"[{{"fromBlock":"0x20","toBlock":"0x5f","address":{address}}}]"#);
    let theirs = bucket.source.client().call("eth_getLogs", &logs).text();

    // Who trusts this manifest is told what it says.
    let (dir, url, place) = (fresh_dir(), bucket.node.base_url(), bucket.place());
    let trust = trust_in(&bucket.dir.path().join("manifest.json"));
    let start = |dir: &Path, trust: &str, more: &[&str]| {
        let from = ["--archive", &place, "--upstream", &url, "--archive-trust", trust];
        Neve::start(dir, &[&from[..], &["--segment-blocks", "32"], more].concat())
    };
    let trusting = start(dir.path(), &trust, &["--start", "100", "--backfill-to", "none"]);
    waits_for_answers(&trusting, 0, 95);
    assert_eq!(trusting.client().result("eth_getLogs", &logs), serde_json::json!([]));
    trusting.stop_in_time();

    let dir = fresh_dir();
    let proving = start(dir.path(), "prove", &["--retain-blocks", "64"]);
    let proofs = dir.path().join("store/archive-proofs");
    proving.wait("proofs of two segments", |_| {
        let text = fs::read_to_string(&proofs).unwrap_or_default();
        (text.lines().count() == 2).then_some(())
    });
    bucket.node.advance(60);
    bucket.source.wait_for_head(170);
    proving.wait_for_head(170);
    waits_for_answers(&proving, 32, 95);
    let ours = proving.client().call("eth_getLogs", &logs);
    assert_eq!((ours.status, ours.text()), (200, theirs));
    proving.stop_in_time();
}
