use proptest::prelude::*;

use super::*;

fn key(hash: [u8; 32], height: u64, transaction: Option<u32>) -> Key {
    Key::new(&hash, Spot { height, transaction })
}

#[test]
fn bytes_are_the_documented_ones() {
    let span =
        Span::empty(64, 32, 2).and_then(|span| span.with(None, &[key([0xcd; 32], 66, Some(4))]));
    let bytes = span.expect("it is one").to_bytes();
    let mut wanted = b"nevespan".to_vec();
    wanted.extend([1, 0, 0, 0, 32, 0, 0, 0, 64, 0, 0, 0, 0, 0, 0, 0, 2, 0, 0, 0, 1, 0, 0, 0]);
    wanted.extend([0xcd, 0xcd, 0xcd, 0xcd, 0xcd, 0xcd, 2, 0, 5, 0, 0, 0]);
    assert_eq!(bytes, wanted);
}

#[test]
fn spans_stay_in_their_group() {
    assert!(Span::empty(0, 1024, 64).is_ok());
    assert!(Span::empty(1024, 1024, 64).is_err());
    for (first, range, segments) in [(0, 0, 1), (0, 3, 1), (0, 2048, 1), (1, 2, 1), (0, 1, 0)] {
        assert!(Span::empty(first, range, segments).is_err(), "{first} {range} {segments}");
    }
    assert!(Span::empty(u64::MAX, 1, 1).is_ok(), "the last height");
    assert!(Span::empty(u64::MAX - 1023, 1024, 2).is_err());
    let span = Span::empty(0, 1024, 64).expect("it is one");
    assert!(span.with(None, &[key([1; 32], 65_535, None)]).is_ok());
    assert!(span.with(None, &[key([1; 32], 65_536, None)]).is_err());
    assert!(span.with(None, &[key([1; 32], 0, Some(u32::MAX))]).is_err());
}

#[test]
fn another_version_is_named() {
    let mut bytes = Span::empty(0, 32, 1).expect("it is one").to_bytes();
    bytes[8] = 2;
    assert_eq!(
        Span::read(&bytes),
        Err(ArchiveError::Version { what: "span", version: 2, read: 1 })
    );
}

#[test]
fn larger_span_takes_the_entries_of_a_smaller_one() {
    let small = Span::empty(32, 32, 1).and_then(|span| span.with(None, &[key([3; 32], 40, None)]));
    let small = small.expect("it is one");
    let large = Span::empty(0, 32, 2).expect("it is one");
    let large = large.with(Some(&small), &[key([9; 32], 1, Some(0))]).expect("they fit");
    let at = |hash| large.candidates(&[hash; 32]).collect::<Vec<_>>();
    assert_eq!(at(3), [Spot { height: 40, transaction: None }]);
    assert_eq!(at(9), [Spot { height: 1, transaction: Some(0) }]);
    assert_eq!(at(4), []);
}

proptest! {
    #[test]
    fn every_key_is_found(
        keys in prop::collection::vec(
            (any::<[u8; 32]>(), 0_u64..128, prop::option::of(0_u32..9)),
            0..60,
        ),
    ) {
        let hashes: Vec<_> = keys.iter().map(|(hash, ..)| *hash).collect();
        let keys: Vec<Key> = keys.into_iter().map(|(h, at, t)| key(h, 256 + at, t)).collect();
        let span = Span::empty(256, 64, 2).and_then(|span| span.with(None, &keys)).expect("they fit");
        let span = Span::read(&span.to_bytes()).expect("it was just written");
        for (hash, key) in hashes.iter().zip(&keys) {
            prop_assert!(span.candidates(hash).any(|at| at == key.at));
        }
    }

    #[test]
    fn flipped_bytes_never_panic(
        at: prop::sample::Index,
        to: u8,
        cut: prop::sample::Index,
        hash: [u8; 32],
    ) {
        let keys: Vec<Key> = (0..20).map(|n| key([n * 12; 32], n.into(), Some(n.into()))).collect();
        let span = Span::empty(0, 32, 1).and_then(|span| span.with(None, &keys)).expect("they fit");
        let mut bytes = span.to_bytes();
        let at = at.index(bytes.len());
        bytes[at] = to;
        if let Ok(span) = Span::read(&bytes) {
            prop_assert!(span.candidates(&hash).count() <= 20);
            prop_assert_eq!(span.to_bytes(), bytes.clone());
        }
        let cut = cut.index(bytes.len());
        prop_assert!(Span::read(&bytes[..cut]).is_err());
    }

    #[test]
    fn hostile_bytes_never_panic(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
        let mut bytes = bytes;
        let _ = Span::read(&bytes);
        bytes.splice(0..0, *b"nevespan\x01\0\0\0");
        let _ = Span::read(&bytes);
    }
}
