//! `neve archive`: packed files of a running store go to a directory or a bucket, each once, and
//! whatever is changed there is found.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Output, Stdio};
use std::thread;

use neve_devnet::{Config, DevnetThread, Helicon};
use serde_json::{Value, json};

use super::packed::{packed_files, wait_for_packed};
use crate::support::neve::{LIMIT, Neve, command_of, fresh_dir, run};
use crate::support::node::wait::{Miss, wait_until};

/// Three whole ranges of 32 heights, and a part of another.
pub(crate) const HEAD: u64 = 110;

pub(crate) fn devnet() -> DevnetThread {
    DevnetThread::start(Config::test().with_head(HEAD)).expect("loopback has free ports")
}

pub(crate) fn packed_store(dir: &Path, node: &DevnetThread, head: u64) -> Neve {
    packed_store_from(dir, node, "0", head)
}

fn packed_store_from(dir: &Path, node: &DevnetThread, start: &str, head: u64) -> Neve {
    let url = node.base_url();
    let flags = ["--upstream", &url, "--start", start, "--segment-blocks", "32"];
    let neve = Neve::start(dir, &[&flags[..], &["--unpacked-bytes", "0B"]].concat());
    neve.wait_for_head(head);
    neve
}

/// Exit code, lines of standard output, and standard error.
pub(crate) fn archive(
    command: &str,
    dir: Option<&Path>,
    place: &[&str],
) -> (i32, Vec<Value>, String) {
    let dir = dir.map(|dir| dir.join("store").display().to_string());
    let mut words = vec!["archive", command, "--json"];
    dir.iter().for_each(|dir| words.extend(["--data-dir", dir]));
    words.extend(place);
    outcome(&run(&words))
}

pub(crate) fn outcome(output: &Output) -> (i32, Vec<Value>, String) {
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let lines = text.lines().map(|line| serde_json::from_str(line).expect("a line of JSON"));
    let errors = String::from_utf8_lossy(&output.stderr).into_owned();
    (output.status.code().expect("it ends by itself"), lines.collect(), errors)
}

pub(crate) fn pushed(dir: &Path, place: &[&str]) -> Value {
    let (code, lines, errors) = archive("push", Some(dir), place);
    assert_eq!(code, 0, "{errors}");
    lines.last().expect("a line").clone()
}

/// Code, and the summary of `neve archive verify`.
pub(crate) fn verified(place: &[&str]) -> (i32, Value) {
    let (code, lines, errors) = archive("verify", None, place);
    (code, lines.last().unwrap_or_else(|| panic!("no line: {errors}")).clone())
}

/// Files below a directory but the lock.
pub(crate) fn objects(dir: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in fs::read_dir(dir).expect("it can be listed") {
        let path = entry.expect("it can be listed").path();
        if path.is_dir() {
            found.extend(objects(&path));
        } else if path.extension().is_none_or(|extension| extension != "lock") {
            found.push(path);
        }
    }
    found.sort();
    found
}

/// Pushes twice, with more heights the second time, and reads all of it.
fn push_and_verify(place: &[&str]) {
    let (node, dir) = (devnet(), tempfile::tempdir().expect("a directory can be made"));
    let neve = packed_store(dir.path(), &node, HEAD);
    wait_for_packed(&neve, 96);
    let first = pushed(dir.path(), place);
    let heights = |line: &Value| (line["first"].clone(), line["last"].clone());
    assert_eq!(heights(&first), (0.into(), 95.into()));
    assert_eq!((&first["pushed"], &first["present"]), (&3.into(), &0.into()));
    assert_eq!(verified(place).0, 0);
    let again = pushed(dir.path(), place);
    assert_eq!((&again["pushed"], &again["present"]), (&0.into(), &3.into()));
    assert_eq!(again["sequence"], first["sequence"], "nothing changed");
    node.advance(60);
    neve.wait_for_head(HEAD + 60);
    wait_for_packed(&neve, 160);
    let more = pushed(dir.path(), place);
    assert_eq!(heights(&more), (0.into(), 159.into()));
    assert_eq!((&more["pushed"], &more["present"]), (&2.into(), &3.into()));
    let (code, summary) = verified(place);
    assert_eq!((code, &summary["segments"], &summary["spans"]), (0, &5.into(), &1.into()));
    let hash = format!("{:#x}", node.block(150).expect("the chain has it").hash());
    let prove =
        |anchor: &str| verified(&[place, &["--prove", "--archive-anchor", anchor]].concat());
    let (code, summary) = prove(&format!("150:{hash}"));
    assert_eq!((code, &summary["proven"]), (0, &json!({ "first": 0, "last": 150 })), "{summary}");
    let (code, summary) = prove(&format!("149:{hash}"));
    assert_eq!((code, &summary["findings"], &summary["proven"]), (1, &1.into(), &Value::Null));
    let from = |height: &str| archive("verify", None, &[place, &["--from", height]].concat());
    let (code, lines, errors) = from("159");
    assert_eq!(
        (code, &lines[0]["first"], &lines[0]["spans"]),
        (0, &0.into(), &1.into()),
        "{errors}"
    );
    let (code, _, errors) = from("160");
    assert!(code == 2 && errors.contains("160"), "{code}: {errors}");
    let (code, listed, _) = archive("ls", None, place);
    assert_eq!((code, listed.len()), (0, 5 + 4 + 1));
    neve.stop_in_time();
}

#[test]
fn packed_files_go_to_a_directory_once() {
    let dir = tempfile::tempdir().expect("a directory can be made");
    let place = format!("file://{}", dir.path().display());
    push_and_verify(&[&place]);
}

#[test]
fn segments_are_the_packed_files_and_every_changed_object_is_found() {
    let (node, dir) = (devnet(), tempfile::tempdir().expect("a directory can be made"));
    let bucket = tempfile::tempdir().expect("a directory can be made");
    let place = format!("file://{}", bucket.path().display());
    let (code, _, errors) = archive("verify", None, &[&place]);
    assert_eq!((code, errors.contains("no manifest")), (2, true), "{errors}");
    let neve = packed_store(dir.path(), &node, HEAD);
    wait_for_packed(&neve, 96);
    neve.stop_in_time();
    pushed(dir.path(), &[&place]);
    let stored = objects(bucket.path());
    assert_eq!(stored.len(), 3 + 4 + 1, "{stored:?}");
    let read = |path: &PathBuf| fs::read(path).expect("it can be read");
    let contents: Vec<_> = stored.iter().map(read).collect();
    assert!(packed_files(dir.path()).iter().all(|file| contents.contains(&read(file))));
    for (path, good) in stored.iter().zip(&contents) {
        for part in 0..8 {
            let mut bad = good.clone();
            bad[part * good.len() / 8] ^= 1;
            fs::write(path, &bad).expect("it can be written");
            let (code, _, _) = archive("verify", None, &[&place]);
            assert_ne!(code, 0, "byte {} of {}", part * good.len() / 8, path.display());
        }
        fs::remove_file(path).expect("it is there");
        assert_ne!(archive("verify", None, &[&place]).0, 0, "{}", path.display());
        fs::write(path, good).expect("it can be written");
    }
    assert_eq!(verified(&[&place]).0, 0);
}

#[test]
fn another_chain_and_other_blocks_are_refused() {
    let bucket = tempfile::tempdir().expect("a directory can be made");
    let place = format!("file://{}", bucket.path().display());
    let (node, dir) = (devnet(), tempfile::tempdir().expect("a directory can be made"));
    let neve = packed_store(dir.path(), &node, HEAD);
    wait_for_packed(&neve, 96);
    neve.stop_in_time();
    pushed(dir.path(), &[&place]);
    let before = fs::read(bucket.path().join("manifest.json")).expect("it is there");
    let (empty, other) = (tempfile::tempdir(), tempfile::tempdir());
    let (empty, other) = (empty.expect("a directory"), other.expect("a directory"));
    fs::create_dir(empty.path().join("store")).expect("it can be made");
    let (code, _, errors) = archive("push", Some(empty.path()), &[&place]);
    assert_eq!((code, errors.contains("no packed files")), (2, true), "{errors}");
    let config = Config::test().with_helicon(Helicon::At(10)).with_head(HEAD);
    let node = DevnetThread::start(config).expect("loopback has free ports");
    let neve = packed_store(other.path(), &node, HEAD);
    wait_for_packed(&neve, 64);
    neve.stop_in_time();
    let (code, _, errors) = archive("push", Some(other.path()), &[&place]);
    assert_eq!(code, 2, "{errors}");
    let after = fs::read(bucket.path().join("manifest.json")).expect("it is there");
    assert!(before == after, "the manifest is as it was");
}

#[test]
fn archive_grows_in_both_directions_without_a_gap() {
    let bucket = tempfile::tempdir().expect("a directory can be made");
    let place = format!("file://{}", bucket.path().display());
    let node = devnet();
    let [upper, whole, distant] = [(); 3].map(|()| fresh_dir());
    let neve = packed_store_from(upper.path(), &node, "64", HEAD);
    wait_for_packed(&neve, 32);
    neve.stop_in_time();
    let first = pushed(upper.path(), &[&place]);
    assert_eq!((&first["first"], &first["last"]), (&64.into(), &95.into()));
    node.advance(120);
    let neve = packed_store_from(distant.path(), &node, "160", HEAD + 120);
    wait_for_packed(&neve, 64);
    neve.stop_in_time();
    let (code, _, errors) = archive("push", Some(distant.path()), &[&place]);
    assert_eq!((code, errors.contains("heights 96 to 159 would be a gap")), (2, true), "{errors}");
    assert_eq!(verified(&[&place]).0, 0);
    let neve = packed_store(whole.path(), &node, HEAD + 120);
    wait_for_packed(&neve, 224);
    neve.stop_in_time();
    // A range that is not packed yet: what is above it waits.
    let removed = &packed_files(whole.path())[5];
    let kept = fs::read(removed).expect("it can be read");
    fs::remove_file(removed).expect("it is there");
    let (code, lines, errors) = archive("push", Some(whole.path()), &[&place]);
    assert_eq!(code, 1, "{errors}");
    let lower = lines.last().expect("a line");
    assert_eq!((&lower["last"], &lower["apart"]), (&159.into(), &1.into()), "{lower}");
    fs::write(removed, kept).expect("it can be written");
    let second = pushed(whole.path(), &[&place]);
    assert_eq!((&second["first"], &second["last"]), (&0.into(), &223.into()), "{second}");
    assert_eq!(pushed(distant.path(), &[&place])["present"], 2);
    let (code, summary) = verified(&[&place]);
    assert_eq!((code, &summary["first"]), (0, &0.into()), "{summary}");
}

#[test]
fn push_prints_its_result_once() {
    let (node, dir, bucket) = (devnet(), fresh_dir(), fresh_dir());
    let neve = packed_store(dir.path(), &node, HEAD);
    wait_for_packed(&neve, 96);
    neve.stop_in_time();
    let store = dir.path().join("store").display().to_string();
    let place = format!("file://{}", bucket.path().display());
    let output = run(&["archive", "push", "--data-dir", &store, &place]);
    let [said, progress] =
        [output.stdout, output.stderr].map(|text| String::from_utf8(text).unwrap());
    assert!(said.starts_with("heights 0 to 95: 3 segments of "), "{said}");
    assert!(progress.contains("neve: heights 0 to 95: 3 segments of "), "{progress}");
    assert!(progress.contains(" bytes so far, manifest 1\n"), "{progress}");
    assert!(!progress.contains(said.trim_end()), "{progress}");
}

/// Starts a push, and waits until so many objects are in the bucket, or the push has ended.
fn begun_push(store: &Path, bucket: &Path, count: usize) -> Child {
    let store = store.join("store").display().to_string();
    let place = format!("file://{}", bucket.display());
    let mut push = command_of(&["archive", "push", "--data-dir", &store, &place])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("the binary starts");
    while whole_objects(bucket) < count && push.try_wait().expect("it is our child").is_none() {
        thread::yield_now();
    }
    push
}

/// Objects that are not being written.
fn whole_objects(bucket: &Path) -> usize {
    objects(bucket).iter().filter(|path| !path.display().to_string().contains('#')).count()
}

/// Repeats `attempt` with a new bucket until it returns true: a push may end before it is met.
fn until_met(what: &str, mut attempt: impl FnMut(&Path) -> bool) {
    let met = wait_until(what, LIMIT, || {
        let bucket = fresh_dir();
        if attempt(bucket.path()) { Ok(()) } else { Err(Miss::NotYet("too late".to_owned())) }
    });
    met.expect("within the limit");
}

#[test]
fn push_that_is_killed_goes_on_where_it_was() {
    let (node, dir) = (devnet(), fresh_dir());
    let neve = packed_store(dir.path(), &node, HEAD);
    wait_for_packed(&neve, 96);
    neve.stop_in_time();
    for count in 1..=4 {
        until_met("a push with some of its objects", |bucket| {
            let mut push = begun_push(dir.path(), bucket, count);
            push.kill().expect("it is our child");
            push.wait().expect("it is our child");
            let is_whole = bucket.join("manifest.json").exists();
            let place = format!("file://{}", bucket.display());
            if is_whole {
                assert_eq!(verified(&[&place]).0, 0, "killed after {count} objects");
            }
            let pushed = pushed(dir.path(), &[&place]);
            assert!(is_whole || pushed["present"].as_u64() >= Some(count as u64 - 1), "{pushed}");
            let (code, summary) = verified(&[&place]);
            assert_eq!((code, &summary["segments"]), (0, &3.into()), "{summary}");
            !is_whole
        });
    }
}

#[test]
fn file_that_is_evicted_during_a_push_is_left_out() {
    // The newest of eight is not yet among those that are read at once.
    let head = 270;
    let node = DevnetThread::start(Config::test().with_head(head)).expect("free ports");
    let dir = fresh_dir();
    let neve = packed_store(dir.path(), &node, head);
    wait_for_packed(&neve, 256);
    neve.stop_in_time();
    let newest = packed_files(dir.path()).pop().expect("there are eight");
    let content = fs::read(&newest).expect("it can be read");
    until_met("a push from which a file was taken", |bucket| {
        let push = begun_push(dir.path(), bucket, 1);
        fs::remove_file(&newest).expect("it is there");
        let output = push.wait_with_output().expect("it is our child");
        fs::write(&newest, &content).expect("it can be written");
        let said = String::from_utf8_lossy(&output.stdout).into_owned();
        let errors = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(output.status.success(), "{errors}");
        assert_eq!(verified(&[&format!("file://{}", bucket.display())]).0, 0, "{said}");
        said.contains("1 evicted meanwhile")
    });
}

/// Damages or removes an object, and expects that it is found, and put again from the packed files.
#[test]
fn damaged_and_absent_objects_are_put_again() {
    let (node, dir, bucket) = (devnet(), fresh_dir(), fresh_dir());
    let place = format!("file://{}", bucket.path().display());
    let neve = packed_store(dir.path(), &node, HEAD);
    wait_for_packed(&neve, 96);
    neve.stop_in_time();
    pushed(dir.path(), &[&place]);
    let store = dir.path().join("store").display().to_string();
    let repair = ["--repair-from", &store, &place];
    let is_manifest = |path: &PathBuf| path.ends_with("manifest.json");
    for object in objects(bucket.path()).into_iter().filter(|path| !is_manifest(path)) {
        let good = fs::read(&object).expect("it can be read");
        let mut flipped = good.clone();
        flipped[good.len() / 2] ^= 1;
        for bad in [Some(&flipped[..]), Some(&good[1..]), None] {
            match bad {
                Some(bad) => fs::write(&object, bad).expect("it can be written"),
                None => fs::remove_file(&object).expect("it is there"),
            }
            assert_eq!(verified(&[&place]).0, 1, "{}", object.display());
            let (code, summary) = verified(&repair);
            let counts = (&summary["findings"], &summary["repaired"]);
            assert_eq!((code, counts), (0, (&0.into(), &1.into())), "{summary}");
            assert!(fs::read(&object).expect("it is there again") == good);
        }
    }
    // Without its packed file a segment stays lost.
    let is_segment = |path: &&PathBuf| path.display().to_string().contains("/segment-");
    let stored = objects(bucket.path());
    fs::remove_file(stored.iter().find(is_segment).expect("there are three")).expect("it is there");
    packed_files(dir.path()).iter().for_each(|file| fs::remove_file(file).expect("it is there"));
    assert_eq!(verified(&repair).0, 1);
}

/// Removes the files in which the writer of a store remembers manifests.
pub(crate) fn forget_manifests(dir: &Path) {
    let files = fs::read_dir(dir.join("store")).expect("the store");
    let paths = files.map(|entry| entry.expect("a file").path());
    paths
        .filter(|path| path.display().to_string().contains("/archive-newest-"))
        .for_each(|path| fs::remove_file(path).expect("it is there"));
}

/// A push that was cut off may have left an object of the right length with other bytes.
#[test]
fn object_that_no_manifest_names_is_read_before_one_does() {
    let (node, dir, bucket) = (devnet(), fresh_dir(), fresh_dir());
    let place = format!("file://{}", bucket.path().display());
    let neve = packed_store(dir.path(), &node, HEAD);
    wait_for_packed(&neve, 96);
    neve.stop_in_time();
    pushed(dir.path(), &[&place]);
    fs::remove_file(bucket.path().join("manifest.json")).expect("it is there");
    // A writer that never got as far as a manifest remembers none.
    forget_manifests(dir.path());
    let object = objects(bucket.path()).remove(0);
    let mut bytes = fs::read(&object).expect("it can be read");
    *bytes.last_mut().expect("it has bytes") ^= 1;
    fs::write(&object, bytes).expect("it can be written");
    pushed(dir.path(), &[&place]);
    let (code, summary) = verified(&[&place]);
    assert_eq!((code, &summary["findings"]), (0, &0.into()), "{summary}");
}
