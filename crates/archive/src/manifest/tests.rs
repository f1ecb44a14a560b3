use proptest::prelude::*;

use super::*;

fn manifest() -> Manifest {
    let segment = |n: u8| SegmentEntry {
        first: u64::from(n) * 32,
        bytes: 100,
        digest: Digest([n; 32]),
        last: Digest([n + 1; 32]),
        parent: Digest([n; 32]),
    };
    let (digest, bytes) = (Digest([8; 32]), 32);
    let index = IndexEntry { bytes, digest };
    let (pages, filter) = (index, index);
    let span = |first, segments| SpanEntry { first, segments, bytes, digest, pages, filter };
    let chain = Chain { chain_id: 43_112, genesis: Digest([7; 32]), range: 32 };
    let segments = (62..66).map(segment).collect();
    let spans = vec![span(62 * 32, 2), span(64 * 32, 2)];
    Manifest { sequence: 1, segments, spans, ..Manifest::empty(chain) }
}

#[test]
fn manifest_comes_back() {
    let manifest = manifest();
    let bytes = manifest.to_bytes().expect("it is one");
    assert_eq!(Manifest::read(&bytes), Ok(manifest.clone()));
    assert_eq!(manifest.heights(), Some((1984, 2111)));
    let of = |height| manifest.segment_of(height).map(|segment| segment.first);
    assert_eq!(
        [1983, 1984, 2015, 2016, 2111, 2112].map(of),
        [None, Some(1984), Some(1984), Some(2016), Some(2080), None]
    );
    let name = manifest.segment_name(&manifest.segments[0]).to_string();
    assert_eq!(name, format!("43112/3e/segment-1984-{}", "3e".repeat(32)));
}

#[test]
fn manifests_that_no_writer_makes_are_refused() {
    type Change = fn(&mut Manifest);
    let changes: [(&str, Change); 15] = [
        ("sequence", |m| m.sequence = 0),
        ("before", |m| m.sequence = 2),
        ("range of 0", |m| m.range = 0),
        ("range of 3", |m| m.range = 3),
        ("range over 1,024", |m| m.range = 2048),
        ("gap", |m| m.segments.retain(|segment| segment.first != 2016)),
        ("link", |m| m.segments[1].parent = Digest([0; 32])),
        ("no bytes", |m| m.segments[1].bytes = 0),
        ("too long", |m| m.segments[1].bytes = OBJECT_BYTES_MAX + 1),
        ("no filter", |m| m.spans[0].filter.bytes = 0),
        ("no pages", |m| m.spans[0].pages.bytes = 0),
        ("no span", |m| m.spans.clear()),
        ("span of none", |m| m.spans[0].segments = 0),
        ("span of two groups", |m| {
            m.spans[0].segments = 3;
            m.spans[1].segments = 1;
        }),
        ("span of more", |m| m.spans[1].segments = u32::MAX),
    ];
    for (what, change) in changes {
        let mut changed = manifest();
        change(&mut changed);
        let bytes = serde_json::to_vec(&changed).expect("it is JSON");
        assert!(Manifest::read(&bytes).is_err(), "{what}");
        assert!(changed.to_bytes().is_err(), "{what}");
    }
}

#[test]
fn other_version_is_refused_by_name() {
    for version in [1, 3] {
        let other = format!("{{\"version\":{version},\"something\":\"new\"}}");
        let refused = ArchiveError::Version { what: "manifest", version, read: VERSION };
        assert_eq!(Manifest::read(other.as_bytes()), Err(refused));
    }
    assert!(Manifest::read(b"{}").is_err());
}

proptest! {
    #[test]
    fn flipped_bytes_never_panic(at: prop::sample::Index, to: u8) {
        let mut bytes = manifest().to_bytes().expect("it is one");
        let at = at.index(bytes.len());
        bytes[at] = to;
        if let Ok(manifest) = Manifest::read(&bytes) {
            prop_assert!(manifest.to_bytes().is_ok());
        }
    }

    #[test]
    fn hostile_numbers_never_panic(firsts in prop::collection::vec(any::<u64>(), 0..5), range: u32, height: u64) {
        let mut hostile = manifest();
        hostile.range = range;
        hostile.segments.iter_mut().zip(firsts).for_each(|(segment, first)| segment.first = first);
        let bytes = serde_json::to_vec(&hostile).expect("it is JSON");
        if let Ok(manifest) = Manifest::read(&bytes) {
            let _ = (manifest.heights(), manifest.segment_of(height));
        }
    }
}
