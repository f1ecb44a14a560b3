//! Slices of stored bytes.

use crate::support::{block, open, small};

#[test]
fn only_neighbours_with_the_right_byte_between_join() {
    let dir = tempfile::tempdir().unwrap();
    let mut opened = open(dir.path(), small());
    let (mut first, mut other) = (block(0, 0), block(1, 0));
    first.parts[0].bytes = b"abc,def;ghi".as_slice().into();
    other.parts[0].bytes = b"abc,def;ghi".as_slice().into();
    opened.writer.append(&first).unwrap();
    opened.writer.append(&other).unwrap();
    let part = |height| opened.reader.record(height).unwrap().part(0).slice;
    let (text, elsewhere) = (part(0), part(1));
    let mut joined = text.slice(0, 3);
    assert!(!joined.join(b',', &text.slice(3, 7)), "nothing is between");
    assert!(!joined.join(b',', &text.slice(5, 7)), "two bytes are between");
    assert!(!joined.join(b',', &elsewhere.slice(4, 7)), "another record's");
    assert!(!joined.join(b',', &text.slice(0, 3)), "the same again");
    assert_eq!(joined.as_ref(), b"abc");
    assert!(joined.join(b',', &text.slice(4, 7)));
    assert_eq!(joined.as_ref(), b"abc,def");
    assert!(!joined.join(b',', &text.slice(8, 11)), "another byte is between");
    assert_eq!(joined.as_ref(), b"abc,def");
}
