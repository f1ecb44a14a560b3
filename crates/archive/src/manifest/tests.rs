use std::collections::HashMap;

use proptest::prelude::*;

use super::*;
use crate::links::{LINK_OBJECTS_MAX, Links};

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
    let terms = None;
    let span = |first, segments| SpanEntry { first, segments, bytes, digest, pages, filter, terms };
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

fn deletion(since: u64, objects: &[&str]) -> Deletion {
    Deletion { since, objects: objects.iter().map(|&name| name.to_owned()).collect() }
}

fn deleted(chain_id: u64, byte: u8) -> String {
    let (kind, digest) = (Kind::Segment, Digest([byte; 32]));
    ObjectName { chain_id, kind, first: 1984, digest }.to_string()
}

#[test]
fn deletion_and_trial_come_back() {
    let mut manifest = manifest();
    manifest.deletion = Some(deletion(1, &[&deleted(43_112, 1), &deleted(43_112, 2)]));
    manifest.trial = Some(Trial { endpoint: "s3".to_owned(), at: 7, holds: true });
    let bytes = manifest.to_bytes().expect("it is one");
    assert_eq!(Manifest::read(&bytes), Ok(manifest.clone()));
    let name = |byte| deleted(43_112, byte).parse().expect("it is one");
    assert_eq!([1, 2, 3].map(|byte| manifest.deletes(&name(byte))), [true, true, false]);
    assert_eq!(manifest.objects().count(), 4 + 2 * 3);
    let next = manifest.following(Digest([9; 32]));
    assert_eq!((next.sequence, next.before), (2, next.newest_links().chain()));
}

#[test]
fn span_without_terms_has_the_bytes_of_an_earlier_writer() {
    let mut manifest = manifest();
    let without = String::from_utf8(manifest.to_bytes().expect("it is one")).expect("it is text");
    assert!(!without.contains("terms"), "{without}");
    assert_eq!(manifest.terms_name(&manifest.spans[0]), None);
    manifest.spans[0].terms = Some(IndexEntry { bytes: 45, digest: Digest([9; 32]) });
    let bytes = manifest.to_bytes().expect("it is one");
    assert_eq!(Manifest::read(&bytes), Ok(manifest.clone()));
    let name = manifest.terms_name(&manifest.spans[0]).map(|name| name.to_string());
    assert_eq!(name, Some(format!("43112/09/terms-1984-{}", "09".repeat(32))));
    manifest.spans[0].terms = Some(IndexEntry { bytes: 0, digest: Digest([9; 32]) });
    assert!(manifest.to_bytes().is_err());
}

#[test]
fn manifest_without_later_members_has_the_bytes_of_an_earlier_writer() {
    let mut manifest = manifest();
    let without = String::from_utf8(manifest.to_bytes().expect("it is one")).expect("it is text");
    for member in ["from", "trial", "deletion"] {
        assert!(!without.contains(&format!("\"{member}\"")), "{without}");
    }
    assert_eq!(Manifest::read(without.as_bytes()), Ok(manifest.clone()));
    manifest.from = 1984;
    let bytes = manifest.to_bytes().expect("it is one");
    assert_eq!(Manifest::read(&bytes), Ok(manifest));
}

/// `gc` deletes all objects that this list leaves out.
#[test]
fn objects_have_the_terms_of_spans() {
    let mut manifest = manifest();
    manifest.spans[1].terms = Some(IndexEntry { bytes: 45, digest: Digest([9; 32]) });
    let name = manifest.terms_name(&manifest.spans[1]).expect("it has terms");
    assert!(manifest.objects().any(|object| object == (name, 45)));
    assert_eq!(manifest.objects().count(), 4 + 2 * 3 + 1);
    assert_eq!(manifest.span_objects(&manifest.spans[1]).count(), 4);
    manifest.deletion = Some(deletion(1, &[&name.to_string()]));
    assert!(manifest.to_bytes().is_err(), "it is named");
}

#[test]
fn manifests_that_no_writer_makes_are_refused() {
    type Change = fn(&mut Manifest);
    let changes: [(&str, Change); 22] = [
        ("sequence", |m| m.sequence = 0),
        ("before", |m| m.sequence = 2),
        ("link of none", |m| m.descent.links.push(Digest([1; 32]))),
        ("links of none", |m| m.descent.objects.push(Digest([1; 32]))),
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
        ("deletion to come", |m| m.deletion = Some(deletion(2, &[]))),
        ("deletion of no object", |m| m.deletion = Some(deletion(1, &["manifest.json"]))),
        ("deletion of a named one", |m| {
            let name = m.pages_name(&m.spans[0]).to_string();
            m.deletion = Some(deletion(1, &[&name]));
        }),
        ("deletion of another chain", |m| m.deletion = Some(deletion(1, &[&deleted(1, 1)]))),
        ("names that do not ascend", |m| {
            m.deletion = Some(deletion(1, &[&deleted(43_112, 2), &deleted(43_112, 1)]));
        }),
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
    for version in [2, 4] {
        let other = format!("{{\"version\":{version},\"something\":\"new\"}}");
        let refused = ArchiveError::Version { what: "manifest", version, read: VERSION };
        assert_eq!(Manifest::read(other.as_bytes()), Err(refused));
    }
    assert!(Manifest::read(b"{}").is_err());
}

/// Links of so many manifests after the first one, whose SHA-256 are their sequences. Objects come with their names.
fn followed(count: u64) -> (Manifest, HashMap<ObjectName, Links>) {
    let (mut newest, mut objects) = (manifest(), HashMap::new());
    for _ in 0..count {
        let full = newest.full_links();
        objects.extend(full.map(|(name, bytes)| (name, Links::read(&bytes).expect("its form"))));
        newest = newest.following(Digest::of(&newest.sequence.to_le_bytes()));
    }
    (newest, objects)
}

/// After 1,025 changes the first object is named, after 2,049 the second one.
#[test]
fn links_lead_from_each_manifest_to_the_first_one() {
    for (count, held, named) in
        [(0, 0, 0), (1, 1, 0), (1024, 1024, 0), (1025, 1, 1), (2500, 452, 2)]
    {
        let (newest, objects) = followed(count);
        let bytes = newest.to_bytes().expect("it is one");
        assert_eq!(Manifest::read(&bytes), Ok(newest.clone()));
        assert_eq!((newest.descent.links.len(), newest.descent.objects.len()), (held, named));
        let mut links = newest.newest_links();
        assert_eq!(links.chain(), newest.before);
        let mut sequences: Vec<_> = (links.first..newest.sequence).rev().collect();
        for name in newest.link_objects() {
            let below = objects[&name].clone();
            assert_eq!((below.first, below.chain()), (name.first, links.after));
            sequences.extend((below.first..links.first).rev());
            links = below;
        }
        assert_eq!(links.after, None);
        assert_eq!(sequences, (1..=count).rev().collect::<Vec<_>>());
        // `gc` deletes all objects that this list leaves out.
        let kept = newest.objects().filter(|(name, _)| name.kind == Kind::Links);
        let kept: Vec<_> = kept.collect();
        assert_eq!(kept.len(), named);
        assert!(kept.iter().all(|(name, bytes)| objects[name].to_bytes().len() as u64 == *bytes));
    }
}

#[test]
fn oldest_links_go_beyond_the_most_objects() {
    let (full, _) = followed(1024);
    let (sequence, mut descent) = (LINK_OBJECTS_MAX as u64 * 1024 + 1025, full.descent.clone());
    descent.objects = vec![Digest([1; 32]); LINK_OBJECTS_MAX];
    descent.objects[0] = Digest([2; 32]);
    let full = Manifest { sequence, descent, ..full };
    let next = full.following(Digest([3; 32]));
    let object = full.full_links().expect("it is full").0;
    assert_eq!(next.descent.objects.len(), LINK_OBJECTS_MAX);
    assert_eq!(next.descent.objects.first(), Some(&Digest([1; 32])));
    assert_eq!(next.link_objects().next(), Some(object));
    let oldest = next.link_objects().last().map(|name| name.first);
    assert_eq!(oldest, Some(1025), "not 1");
    assert!(next.to_bytes().is_ok_and(|bytes| bytes.len() < 80_000));
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
    fn hostile_numbers_never_panic(
        firsts in prop::collection::vec(any::<u64>(), 0..5),
        range: u32,
        height: u64,
    ) {
        let mut hostile = manifest();
        hostile.range = range;
        hostile.segments.iter_mut().zip(firsts).for_each(|(segment, first)| segment.first = first);
        let bytes = serde_json::to_vec(&hostile).expect("it is JSON");
        if let Ok(manifest) = Manifest::read(&bytes) {
            let _ = (manifest.heights(), manifest.segment_of(height));
        }
    }
}

#[test]
fn bytes_that_are_signed_are_those_of_the_manifest_without_a_signature() {
    let mut manifest = manifest();
    let without = manifest.to_bytes().expect("it has a form");
    assert_eq!(manifest.unsigned_bytes().as_ref(), Ok(&without));
    manifest.signature = Some(Signature([0xab; 64]));
    assert_ne!(manifest.to_bytes().as_ref(), Ok(&without));
    assert_eq!(manifest.unsigned_bytes().as_ref(), Ok(&without));
}

#[test]
fn bytes_of_a_manifest_are_reserved_at_once() {
    let index = IndexEntry { bytes: u64::MAX, digest: Digest([1; 32]) };
    let zero = Digest([0; 32]);
    let segment = SegmentEntry { first: 0, bytes: 1 << 30, digest: zero, last: zero, parent: zero };
    let (pages, filter, terms) = (index, index, Some(index));
    let span = SpanEntry { first: 0, segments: 64, bytes: 1, digest: zero, pages, filter, terms };
    let signed = Manifest::empty(Chain { chain_id: 7, genesis: zero, range: 32 });
    let signed = Manifest { signature: Some(Signature([7; 64])), ..signed };
    let text = |manifest: &Manifest| serde_json::to_vec(manifest).expect("it has a form").len();
    for (segments, spans) in [(0, 0), (1000, 0), (0, 1000)] {
        let at = |at: usize| u64::MAX - at as u64;
        let segments = (0..segments).map(|n| SegmentEntry { first: at(n), ..segment }).collect();
        let spans = (0..spans).map(|n| SpanEntry { first: at(n), bytes: at(n), ..span }).collect();
        let manifest = Manifest { segments, spans, ..signed.clone() };
        let (bytes, reserved) = (text(&manifest), manifest.bytes_at_most());
        assert!(bytes <= reserved && reserved < bytes * 11 / 10 + REST_TEXT_BYTES);
    }
}
