//! Mirrors of packed files: equal bytes, whichever source fills a store and however, and nothing that is
//! damaged or forged.

use std::fs;
use std::os::unix::fs::FileExt;
use std::path::Path;

use neve_devnet::{Config, DevnetThread, Helicon};
use serde_json::Value;
use tempfile::TempDir;

use super::between::Between;
use super::false_segments::{forge, with_data};
use super::sources::{HEAD, SMALL, devnet, digest, large_devnet, mirror_in, source, taken};
use super::sources::{mirror, wait_for_accepted, wait_for_first};
use crate::following::backfill::written_evidence;
use crate::store::packed::{packed_files, wait_for_packed};
use crate::support::closed_port::ClosedPort;
use crate::support::neve::{Neve, fresh_dir};
use crate::support::served::serves;

/// Packs all that is settled.
const PACKS: [&str; 2] = ["--unpacked-bytes", "0B"];

/// Names and bytes of the packed files.
fn contents(dir: &Path) -> Vec<(String, Vec<u8>)> {
    let of = |path: std::path::PathBuf| {
        let name = path.file_name().expect("a file").to_string_lossy().into_owned();
        (name, fs::read(path).expect("it can be read"))
    };
    packed_files(dir).into_iter().map(of).collect()
}

/// A source of which all whole ranges are packed.
fn packed_source(devnet: &DevnetThread) -> (TempDir, Neve) {
    let (dir, source) = source(devnet, &PACKS);
    wait_for_packed(&source, (devnet.latest() + 1) / 64 * 64);
    (dir, source)
}

#[test]
fn mirror_of_a_packed_source_has_equal_files() {
    for helicon in [Helicon::Never, Helicon::At(150)] {
        let devnet = devnet(helicon);
        devnet.advance(30); // which settle the ranges
        let (source_dir, source) = packed_source(&devnet);
        let (dir, mirror) = mirror(&source);
        mirror.wait_for_head(HEAD + 30);
        devnet.advance(10); // no further range
        wait_for_first(&mirror, 0);
        mirror.wait_for_head(HEAD + 40);
        source.wait_for_head(HEAD + 40);
        serves(&mirror, &devnet, (0..=HEAD + 40).step_by(7));
        wait_for_accepted(&mirror, 6);
        assert_eq!(mirror.count("neve_store_packed_heights"), 384, "it packs nothing itself");
        mirror.stop();
        let mirror = mirror_in(dir.path(), source.address, &[]);
        mirror.wait_for_head(HEAD + 40);
        serves(&mirror, &devnet, (0..=HEAD + 40).step_by(31));
        source.stop();
        mirror.stop();
        assert!(contents(dir.path()) == contents(source_dir.path()), "{helicon:?}");
        assert_eq!(digest(dir.path()), digest(source_dir.path()), "{helicon:?}");
    }
}

/// Sealed segments above packed files.
#[test]
fn mirror_takes_packed_files_and_segments_of_one_source() {
    let devnet = devnet(Helicon::Never);
    let (source_dir, source) = source(&devnet, &["--unpacked-bytes", "256KiB"]);
    source.wait("packed heights", |health| {
        let packed = health["storage"]["packed_heights"].as_u64()?;
        (64..=320).contains(&packed).then_some(())
    });
    source.stop();
    // It packs no more: a segment that is packed meanwhile is not there as a file.
    let url = devnet.base_url();
    let fixed = ["--upstream", &url, "--recover-senders", "never"];
    let source = Neve::start(source_dir.path(), &[&fixed[..], &SMALL].concat());
    source.wait_for_head(HEAD);
    let listing = source.client().get("/mirror/v1/segments").json();
    let lists = ["packed", "segments"].map(|list| listing[list].as_array().expect("a list").len());
    assert!(lists.iter().all(|files| *files > 0), "{listing}");
    let (dir, mirror) = mirror(&source);
    mirror.wait_for_head(HEAD);
    devnet.advance(5);
    wait_for_first(&mirror, 0);
    mirror.wait_for_head(HEAD + 5);
    source.wait_for_head(HEAD + 5);
    wait_for_accepted(&mirror, (lists[0] + lists[1]) as u64);
    source.stop();
    mirror.stop();
    assert_eq!(digest(dir.path()), digest(source_dir.path()));
    assert!(contents(dir.path()).iter().all(|file| contents(source_dir.path()).contains(file)));
}

/// Only one setting shows in the files: the range's length, which `--segment-blocks` gives.
#[test]
fn stores_of_the_same_heights_have_equal_packed_files() {
    let config = Config::test().with_head(200).with_helicon(Helicon::At(100));
    let devnet = DevnetThread::start(config).expect("loopback has free ports");
    let url = devnet.base_url();
    let start = |dir: &Path, more: &[&str]| {
        let fixed = ["--serve-mirrors", "--recover-senders", "never"];
        Neve::start(dir, &[&fixed[..], &PACKS, more].concat())
    };
    let [followed_dir, filled_dir, copied_dir] = [fresh_dir(), fresh_dir(), fresh_dir()];
    let followed = ["--upstream", &url, "--start", "0", "--segment-blocks", "64"];
    let followed = start(followed_dir.path(), &followed);
    let filled = ["--upstream", &url, "--start", "-20", "--backfill-to", "0"];
    let other = ["--segment-blocks", "127", "--segment-bytes", "64MiB", "--precompress", "zstd"];
    let filled = start(filled_dir.path(), &[&filled[..], &other].concat());
    filled.wait_for_head(200);
    devnet.advance(40); // which settle 191 and more
    wait_for_first(&filled, 0);
    for neve in [&followed, &filled] {
        neve.wait_for_head(240);
        wait_for_packed(neve, 192);
    }
    let source = format!("http://{}", filled.address);
    let copied = ["--mirror-from", &source, "--segment-blocks", "100", "--precompress", "gzip"];
    let copied = start(copied_dir.path(), &copied);
    copied.wait_for_head(240);
    devnet.advance(1);
    wait_for_packed(&copied, 192);
    wait_for_accepted(&copied, 3);
    for neve in [followed, filled, copied] {
        neve.wait_for_head(241);
        neve.stop();
    }
    let expected = contents(followed_dir.path());
    assert_eq!(expected.len(), 3);
    for dir in [&filled_dir, &copied_dir] {
        assert!(contents(dir.path()) == expected, "the files differ");
        assert_eq!(digest(dir.path()), digest(followed_dir.path()));
    }
}

/// A source of one-height files would take a map of the kernel for each height.
#[test]
fn packed_files_of_another_length_are_asked_for_height_by_height() {
    let devnet = devnet(Helicon::Never);
    let (_source_dir, source) = packed_source(&devnet);
    let (dir, url) = (fresh_dir(), format!("http://{}", source.address));
    let mirror = ["--mirror-from", &url, "--recover-senders", "never", "--segment-blocks", "32"];
    let mirror = Neve::start(dir.path(), &[&mirror[..], &PACKS].concat());
    wait_for_first(&mirror, 0);
    let error = mirror.health()["mirror"]["segments"]["error"].to_string();
    assert!(error.contains("have 64 heights, this store's 32"), "{error}");
    assert_eq!((taken(&mirror, "accepted"), taken(&mirror, "rejected")), (0, 0));
    wait_for_packed(&mirror, 384);
    serves(&mirror, &devnet, (0..=HEAD).step_by(7));
    mirror.stop();
    assert_eq!(packed_files(dir.path()).len(), 12);
    digest(dir.path());
}

/// Bytes from before a cut are not requested again.
#[test]
fn download_of_a_packed_file_goes_on_where_it_was_cut() {
    let devnet = large_devnet(2 * 64 + 5);
    let (source_dir, source) = packed_source(&devnet);
    let whole: u64 = contents(source_dir.path()).iter().map(|(_, bytes)| bytes.len() as u64).sum();
    let cutting = Between::cutting(source.address, whole as usize / 6);
    let dir = fresh_dir();
    let mirror = mirror_in(dir.path(), cutting.address, &[]);
    wait_for_first(&mirror, 0);
    wait_for_accepted(&mirror, 2);
    let bytes = mirror.count("neve_mirror_received_segment_bytes_total");
    mirror.stop();
    source.stop();
    assert!(contents(dir.path()) == contents(source_dir.path()), "the files differ");
    assert!(bytes < whole * 2, "{bytes} bytes came of {whole}");
    assert!(cutting.cuts() >= 3, "{} cuts", cutting.cuts());
}

#[test]
fn damaged_packed_file_is_refused_and_asked_for_height_by_height() {
    let devnet = devnet(Helicon::Never);
    let (source_dir, source) = packed_source(&devnet);
    source.stop();
    // It can fetch nothing anew: a file that it repairs would be taken.
    let closed = ClosedPort::bind();
    let lone = ["--upstream", &closed.url(), "--recover-senders", "never"];
    let source = Neve::start(source_dir.path(), &[&lone[..], &SMALL, &PACKS].concat());
    let path = &packed_files(source_dir.path())[2];
    let file = fs::File::options().read(true).write(true).open(path).expect("it can be opened");
    let at = file.metadata().expect("it has a length").len() - 100;
    let mut byte = [0];
    file.read_exact_at(&mut byte, at).expect("it can be read");
    file.write_all_at(&[byte[0] ^ 1], at).expect("it can be written");
    // Another upstream has the true blocks.
    let (dir, node) = (fresh_dir(), devnet.base_url());
    let mirror = mirror_in(dir.path(), source.address, &["--upstream", &node]);
    wait_for_first(&mirror, 0);
    wait_for_accepted(&mirror, 5);
    assert_eq!(taken(&mirror, "rejected"), 1);
    mirror.wait_for_log("segment rejected");
    let damaged = || {
        let names = written_evidence(&mirror, dir.path())?;
        names.into_iter().find(|kept| kept.ends_with("-packed"))
    };
    let kept = mirror.wait("evidence", |_| damaged());
    let kept = fs::read(dir.path().join("store/evidence").join(kept)).expect("it can be read");
    assert!(kept.len() > 1000, "the bytes that are damaged");
    assert_eq!(mirror.health()["mirror"]["segments"]["rejected"], 1);
    serves(&mirror, &devnet, 0..=HEAD);
    mirror.stop();
    digest(dir.path());
    assert!(packed_files(dir.path()).iter().all(|found| found.file_name() != path.file_name()));
}

#[test]
fn lie_in_a_packed_file_with_good_checksums_is_refused() {
    let devnet = devnet(Helicon::Never);
    let height = with_data(&devnet, 140..190);
    let (true_dir, source) = source(&devnet, &[]);
    source.stop();
    let (lying_dir, dir, url) = (fresh_dir(), fresh_dir(), devnet.base_url());
    forge(true_dir.path(), lying_dir.path(), height);
    let liar = ["--upstream", &url];
    let liar = Neve::start(lying_dir.path(), &[&liar[..], &SMALL, &PACKS].concat());
    liar.wait_for_head(HEAD);
    devnet.advance(5);
    wait_for_packed(&liar, 384);
    let mirror = mirror_in(dir.path(), liar.address, &["--upstream", &url]);
    wait_for_first(&mirror, 0);
    mirror.wait_for_log("segment rejected");
    mirror.wait_for_log(&format!("at height {height}"));
    assert!((1..=2).contains(&taken(&mirror, "rejected")));
    let kept = mirror.wait("evidence", |_| written_evidence(&mirror, dir.path())?.pop());
    assert!(kept.contains(&format!("-{height}-")), "{kept}");
    let kept = fs::read_to_string(dir.path().join("store/evidence").join(kept)).expect("a text");
    let about: Value = serde_json::from_str(kept.lines().next().expect("a line")).expect("JSON");
    assert_eq!(about["height"], height);
    serves(&mirror, &devnet, 0..=HEAD);
    let lying = &packed_files(lying_dir.path())[(height / 64) as usize];
    mirror.stop();
    assert!(packed_files(dir.path()).iter().all(|found| found.file_name() != lying.file_name()));
}
