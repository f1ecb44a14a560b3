//! A source whose segments are damaged or forged.

use std::path::Path;

use neve_devnet::{DevnetThread, Helicon};
use serde_json::Value;
use tempfile::TempDir;

use super::sources::{HEAD, SMALL, devnet, digest, mirror_in, source, taken};
use super::sources::{wait_for_accepted, wait_for_first, wait_for_stream};
use crate::following::backfill::written_evidence;
use crate::support::neve::{Neve, fresh_dir};
use crate::support::served::serves;

/// Changes a byte in the middle of the records of the segment that begins at `base`.
fn flip(dir: &Path, base: u64) {
    use std::os::unix::fs::FileExt;
    let path = dir.join(format!("store/{base:020}.seg"));
    let file = std::fs::File::options().read(true).write(true).open(path).unwrap();
    let at =
        neve_store::SealedFile::open(&dir.join("store"), base).unwrap().unwrap().page.bytes / 2;
    let mut byte = [0];
    file.read_exact_at(&mut byte, at).unwrap();
    file.write_all_at(&[byte[0] ^ 1], at).unwrap();
}

#[test]
fn a_damaged_segment_is_refused_and_asked_for_height_by_height() {
    let devnet = devnet(Helicon::Never);
    let (source_dir, source) = source(&devnet, &[]);
    flip(source_dir.path(), 128);
    // Another upstream has the true blocks.
    let (dir, node) = (fresh_dir(), devnet.base_url());
    let mirror = mirror_in(dir.path(), source.address, &["--upstream", &node]);
    wait_for_first(&mirror, 0);
    wait_for_accepted(&mirror, 5);
    assert_eq!(taken(&mirror, "rejected"), 1);
    mirror.wait_for_log("segment rejected");
    // Beside it what the other upstream said of the same heights may be kept.
    let damaged = || {
        let names = written_evidence(&mirror, dir.path())?;
        names.into_iter().find(|kept| kept.ends_with("-record"))
    };
    let kept = mirror.wait("evidence", |_| damaged());
    let kept = std::fs::read(dir.path().join("store/evidence").join(kept)).unwrap();
    assert!(kept.len() > 1000, "the bytes that are damaged");
    let about = &mirror.health()["mirror"];
    assert_eq!(
        (&about["segments"]["accepted"], &about["segments"]["rejected"]),
        (&5.into(), &1.into())
    );
    wait_for_stream(&mirror);
    serves(&mirror, &devnet, 0..=HEAD);
    mirror.stop();
    digest(dir.path());
}

/// A mirror of a store whose checksums are all right and whose receipts of `height` are not.
fn mirror_of_a_liar(devnet: &DevnetThread, height: u64) -> (TempDir, Neve) {
    let (true_dir, source) = source(devnet, &[]);
    source.stop();
    let (lying_dir, dir, url) = (fresh_dir(), fresh_dir(), devnet.base_url());
    forge(true_dir.path(), lying_dir.path(), height);
    let liar = Neve::start(lying_dir.path(), &[&["--upstream", &url][..], &SMALL].concat());
    liar.wait_for_head(HEAD);
    let mirror = mirror_in(dir.path(), liar.address, &["--upstream", &url]);
    wait_for_first(&mirror, 0);
    // The one above may be refused as well, when the liar is asked for what it settles.
    assert!((1..=2).contains(&taken(&mirror, "rejected")));
    mirror.wait_for_log("segment rejected");
    serves(&mirror, devnet, 0..=HEAD);
    (dir, mirror)
}

/// The first of these heights that has a log with data.
pub(super) fn with_data(devnet: &DevnetThread, mut heights: impl Iterator<Item = u64>) -> u64 {
    let has_data = |height: &u64| {
        let block = devnet.block(*height).expect("the chain has it");
        String::from_utf8_lossy(block.receipts()).contains("\"data\":\"0x0")
    };
    heights.find(has_data).expect("logs are frequent")
}

#[test]
fn a_lie_with_good_checksums_is_refused() {
    let devnet = devnet(Helicon::Never);
    let height = with_data(&devnet, 140..190);
    let (dir, mirror) = mirror_of_a_liar(&devnet, height);
    mirror.wait_for_log(&format!("at height {height}"));
    let kept = mirror.wait("evidence", |_| written_evidence(&mirror, dir.path())?.pop());
    assert!(kept.contains(&format!("-{height}-")), "{kept}");
    let kept = std::fs::read_to_string(dir.path().join("store/evidence").join(kept)).unwrap();
    let mut lines = kept.lines();
    let about: Value = serde_json::from_str(lines.next().unwrap()).unwrap();
    assert_eq!(about["height"], height);
    let block: Value = serde_json::from_str(lines.next().unwrap()).unwrap();
    assert_eq!(block["number"], format!("{height:#x}"), "the block, and its receipts below");
    assert!(lines.next().unwrap().starts_with('['));
}

/// Receipts that only a header of the segment above disproves.
#[test]
fn a_lie_at_the_end_of_a_segment_is_refused() {
    let devnet = devnet(Helicon::FromGenesis);
    let height = with_data(&devnet, (64..192).rev());
    mirror_of_a_liar(&devnet, height);
}

/// Copies a store, but for a digit in the receipts of `height`.
pub(super) fn forge(from: &Path, to: &Path, height: u64) {
    use neve_store::{Options, Part, Record};
    let options = Options { segment_blocks: 64, disk_reserve_bytes: 1 << 20, ..Options::default() };
    let from = neve_store::open(&from.join("store"), options).unwrap();
    let mut to = neve_store::open(&to.join("store"), options).unwrap();
    let stamp = from.writer.stamp().unwrap();
    to.writer.bind(stamp.identity, stamp.rules).unwrap();
    for at in from.reader.range().unwrap() {
        let stored = from.reader.record(at).unwrap();
        let mut record = Record {
            height: at,
            timestamp: stored.timestamp(),
            hash: stored.hash(),
            parent: stored.parent(),
            transactions: (0..).map_while(|one| stored.transaction(one).unwrap()).collect(),
            logs: stored.terms().unwrap().collect(),
            flags: stored.flags(),
            parts: (0..5)
                .map(|part| Part::uncompressed(stored.part(part).slice.as_ref().to_vec()))
                .collect(),
        };
        if at == height {
            record.parts[4].bytes = falsified(&record.parts[4].bytes).into();
        }
        to.writer.append(&record).unwrap();
    }
    to.writer.sync().unwrap();
}

/// Receipts with another digit in the data of a log, which only their root tells.
fn falsified(receipts: &[u8]) -> Vec<u8> {
    let mut forged = receipts.to_vec();
    let data = b"\"data\":\"0x";
    let at = (0..receipts.len())
        .find(|at| receipts[*at..].starts_with(data) && receipts[at + data.len()] != b'"');
    let digit = at.expect("a log with data") + data.len();
    forged[digit] = if forged[digit] == b'7' { b'8' } else { b'7' };
    forged
}
