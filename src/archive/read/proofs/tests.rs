//! Lines of the file: whole, cut off and damaged ones, and the heights that they prove.

use neve_archive::Chain;

use super::*;

fn manifest() -> Manifest {
    let segment = |n: u8| SegmentEntry {
        first: u64::from(n) * 32,
        bytes: 100,
        digest: Digest([n; 32]),
        last: Digest([n + 1; 32]),
        parent: Digest([n; 32]),
    };
    let chain = Chain { chain_id: 7, genesis: Digest([7; 32]), range: 32 };
    Manifest { sequence: 1, segments: (0..4).map(segment).collect(), ..Manifest::empty(chain) }
}

#[test]
fn proven_heights_reach_from_the_tail_down_to_the_first_gap() {
    let dir = tempfile::tempdir().expect("a directory can be made");
    let path = dir.path().join("proofs");
    let manifest = manifest();
    let lines = |segments: &[u8]| {
        let line = |n: &u8| Note::Segment(u64::from(*n) * 32, Digest([*n; 32])).line();
        let text: String = segments.iter().map(line).collect();
        fs::write(&path, text + "segment 0 00").expect("it can be written");
        Proofs::open(dir.path().into(), path.clone())
    };
    assert_eq!(lines(&[0, 1, 2]).heights(&manifest, 96), Some(0..=95));
    assert_eq!(lines(&[0, 2]).heights(&manifest, 96), Some(64..=95));
    assert_eq!(lines(&[0, 2]).heights(&manifest, 70), Some(64..=95), "within a segment");
    assert_eq!(lines(&[0, 1]).heights(&manifest, 96), None, "no link to the tail");
    assert_eq!(lines(&[0, 1]).heights(&manifest, 0), None);
    let mut other = manifest;
    other.segments[1].digest = Digest([9; 32]);
    assert_eq!(lines(&[0, 1, 2]).heights(&other, 96), Some(64..=95), "other bytes");
}

#[test]
fn next_segment_to_prove_is_the_one_below_those_that_join_the_served_range() {
    let dir = tempfile::tempdir().expect("a directory can be made");
    let manifest = manifest();
    let next = |proven: &[usize], end| {
        let proofs = Proofs::open(dir.path().into(), dir.path().join("none"));
        let known = proven.iter().map(|at| &manifest.segments[*at]);
        lock(&proofs.state).segments.extend(known.map(|entry| (entry.first, entry.digest)));
        let found = proofs.candidate(&manifest, end, None)?;
        let ProofCandidate { below, segment, above } = found;
        Some((below.map(|below| below.first), segment.first, above.first))
    };
    assert_eq!(next(&[3], 96), Some((Some(32), 64, 96)), "its own first segment");
    assert_eq!(next(&[2], 96), Some((Some(0), 32, 64)), "that of the archive is another one");
    assert_eq!(next(&[1, 2], 100), None, "its own first segment is not proven");
    assert_eq!(next(&[1, 2, 3], 100), Some((None, 0, 32)));
    assert_eq!(next(&[0, 2, 3], 100), Some((Some(0), 32, 64)));
    assert_eq!(next(&[0, 1, 2, 3], 100), None, "all are");
    assert_eq!(next(&[3], 128), Some((Some(32), 64, 96)), "the archive ends below");
    assert_eq!(next(&[3], 129), None, "a height is missing between");
    assert_eq!((next(&[], 96), next(&[1], 0)), (None, None));
}

#[test]
fn earlier_manifest_is_refused_after_a_restart() {
    let dir = tempfile::tempdir().expect("a directory can be made");
    let open = || Proofs::open(dir.path().into(), dir.path().join("proofs"));
    let took = |sequence| open().take(sequence) == Ok(true);
    assert!(took(3) && took(3) && !took(2) && took(4) && !took(3));
}

/// After a crash an earlier manifest would pass.
#[test]
fn manifest_whose_sequence_the_disk_does_not_take_is_not_taken() {
    let dir = tempfile::tempdir().expect("a directory can be made");
    let path = dir.path().join("store/proofs");
    let proofs = Proofs::open(dir.path().into(), path.clone());
    let refused = proofs.take_newest(5).expect_err("there is no directory");
    assert!(refused.contains("manifest 5 is taken once that file names it"), "{refused}");
    fs::create_dir(dir.path().join("store")).expect("it can be made");
    assert_eq!(proofs.take_newest(5), Ok(()));
    assert_eq!(Proofs::open(dir.path().into(), path).take(4), Ok(false));
}

/// Segments that lead to the anchor are apart from those that lead to the tail until both meet.
#[test]
fn segments_below_the_anchor_are_a_range_of_their_own() {
    let dir = tempfile::tempdir().expect("a directory can be made");
    let (manifest, open) =
        (manifest(), || Proofs::open(dir.path().into(), dir.path().join("file")));
    let [lowest, anchored, gap, tail] = [0, 1, 2, 3].map(|at| manifest.segments[at]);
    let next = |proofs: &Proofs| {
        let found = proofs.candidate(&manifest, anchored.first, Some(anchored.digest));
        found.map(|found| (found.segment.first, found.above.first))
    };
    for is_whole in [false, true] {
        fs::remove_file(dir.path().join("file")).ok();
        let proofs = open();
        let heights =
            || [proofs.heights(&manifest, 128), proofs.anchored_heights(&manifest, &anchored)];
        proofs.add(&tail);
        assert_eq!((heights(), proofs.is_anchored(&anchored)), ([Some(96..=127), None], None));
        proofs.anchor(&anchored, is_whole);
        assert_eq!(heights(), [Some(96..=127), Some(32..=63).filter(|_| is_whole)]);
        assert_eq!(next(&proofs), Some((0, 32)));
        proofs.add_leading(&lowest);
        assert_eq!(heights(), [Some(96..=127), Some(0..=if is_whole { 63 } else { 31 })]);
        assert_eq!(next(&proofs), None);
        let of_tail = proofs.candidate(&manifest, 128, None).map(|found| found.segment.first);
        assert_eq!(of_tail, Some(64));
        proofs.add(&gap);
        assert_eq!(heights()[0], Some(if is_whole { 0 } else { 64 }..=127));
        assert_eq!(open().heights(&manifest, 128), Some(64..=127), "the next run proves anew");
    }
}

/// A file with two segments and two sequences.
fn whole() -> (String, usize) {
    let segment = |n: u8| Note::Segment(u64::from(n) * 32, Digest([n; 32])).line();
    let last = Note::Sequence(105).line();
    let text = [segment(1), segment(2), Note::Sequence(9).line(), last.clone()].concat();
    (text, last.len())
}

/// All other values of each byte: also a digit for another digit.
#[test]
fn damaged_proofs_name_no_segment_that_was_not_noted() {
    let (text, last_len) = whole();
    let noted = |(first, digest): (&u64, &Digest)| *digest == Digest([(first / 32) as u8; 32]);
    for (at, byte) in text.bytes().enumerate() {
        for other in (0..=u8::MAX).filter(|other| *other != byte) {
            let mut damaged = text.clone().into_bytes();
            damaged[at] = other;
            let mut state = State::default();
            let lines = state.take_lines(&damaged);
            assert!(state.segments.iter().all(noted), "byte {at} is {other:#x}");
            // A zero behind the last line is one that was never written.
            let is_read = (at + 1, other) == (text.len(), 0);
            assert_eq!(lines == 0, is_read, "byte {at} is {other:#x}");
            let is_lost = at + 1 >= text.len() - last_len && !is_read;
            assert_eq!(state.doubt.is_some(), is_lost, "byte {at} is {other:#x}");
            assert!(is_lost || state.sequence == 105, "byte {at} is {other:#x}");
        }
    }
}

#[test]
fn earlier_manifest_is_refused_whatever_byte_of_the_proofs_is_damaged() {
    let dir = tempfile::tempdir().expect("a directory can be made");
    let path = dir.path().join("proofs");
    let open = || Proofs::open(dir.path().into(), path.clone());
    let (text, last_len) = whole();
    for at in 0..text.len() {
        let mut damaged = text.clone().into_bytes();
        damaged[at] ^= 1;
        fs::write(&path, &damaged).expect("it can be written");
        let proofs = open();
        assert_ne!(proofs.take(104), Ok(true), "byte {at}");
        // With the end of the line before, both are one.
        let is_lost = at + 1 >= text.len() - last_len;
        assert_eq!(proofs.take(105).is_err(), is_lost, "byte {at}");
        assert_eq!(fs::read(&path).expect("it is there"), damaged, "nothing is noted");
    }
}

/// Earlier commits wrote lines without a checksum.
#[test]
fn lines_without_a_checksum_are_damaged_ones() {
    let dir = tempfile::tempdir().expect("a directory can be made");
    let path = dir.path().join("proofs");
    let old = format!("segment 32 {}\nsequence 105 .\n", Digest([1; 32]));
    fs::write(&path, old).expect("it can be written");
    let proofs = Proofs::open(dir.path().into(), path.clone());
    assert!(lock(&proofs.state).segments.is_empty());
    let refused = proofs.take(200).expect_err("it is not known");
    assert!(refused.contains("line 2 is damaged"), "{refused}");
    fs::remove_file(&path).expect("it is ours");
    assert_eq!((proofs.take(200), proofs.take(199)), (Ok(true), Ok(false)), "as it says");
}

/// A directory cannot be read, as a file on a bad sector.
#[test]
fn no_manifest_is_taken_while_the_proofs_cannot_be_read() {
    let dir = tempfile::tempdir().expect("a directory can be made");
    let path = dir.path().join("proofs");
    fs::create_dir(&path).expect("it can be made");
    let proofs = Proofs::open(dir.path().into(), path.clone());
    let refused = proofs.take(3).expect_err("it is not known");
    assert!(refused.contains("Is a directory"), "{refused}");
    fs::remove_dir(&path).expect("it is empty");
    assert_eq!((proofs.take(3), proofs.take(2)), (Ok(true), Ok(false)));
}

#[test]
fn note_after_a_line_that_was_cut_off_is_read_at_the_next_start() {
    let dir = tempfile::tempdir().expect("a directory can be made");
    let path = dir.path().join("proofs");
    let open = || Proofs::open(dir.path().into(), path.clone());
    let (before, line) = (Note::Sequence(9).line(), Note::Sequence(101).line());
    for length in 0..line.len() {
        for zeros in ["", "\0\0\0"] {
            fs::write(&path, [&before, &line[..length], zeros].concat()).expect("a file");
            let proofs = open();
            assert_eq!(proofs.take(105), Ok(true), "{length}");
            let found = (open().take(104), open().take(105), open().take(106));
            assert_eq!(found, (Ok(false), Ok(true), Ok(true)), "{length}");
        }
    }
    let segment = Note::Segment(64, Digest([2; 32]));
    let line = segment.line();
    for length in 0..line.len() {
        fs::write(&path, &line[..length]).expect("a file");
        append(&path, &segment.line()).expect("the disk takes it");
        assert_eq!(lock(&open().state).segments.get(&64), Some(&Digest([2; 32])), "{length}");
    }
}
