//! Memory of a search for many keys in a packed file.

#![allow(clippy::unwrap_used, reason = "a test ends at its first failure")]

#[path = "../../packed/tests/support/mod.rs"]
mod support;

use std::env::current_exe;
use std::process::Command;
use std::sync::Arc;

use neve_packed::PackedFile;
use neve_record::packed::Codec;
use neve_store::{ArchivedSegment, PackedBytes, PackedCodec};
use support::{packed, recorded};

/// Memory of the process that searches, in KiB. With a list of the heights of each key it would take a gigabyte.
const LIMIT_KIB: u32 = 640 << 10;
/// Keys of the search. A file has the low 40 bits of each, which are the same.
const KEYS: u64 = 1 << 20;

/// A client finds such topics in a moment: the hash of a term hides nothing.
#[test]
#[ignore = "the test below runs it in a process with little memory: ./check"]
fn keys_that_share_their_low_bits_find_each_height_once() {
    let bytes = packed(&recorded("v1.14.2/main")[..256], 256).bytes;
    let file = PackedFile::open(&bytes[..]).unwrap();
    let heights = |term: &u64| file.heights_of_term(*term).unwrap();
    let frequent = file.all_terms().unwrap().into_iter().max_by_key(|term| heights(term).len());
    let (term, expected) = (frequent.unwrap(), heights(&frequent.unwrap()));
    assert!(expected.len() > 100, "{} heights", expected.len());
    let codec: Arc<dyn PackedCodec> = Arc::new(Codec::default());
    let segment = ArchivedSegment::open(PackedBytes::in_memory(bytes.clone()), &codec).unwrap();
    let keys: Vec<u64> = (0..KEYS).map(|high| high << 40 | term).collect();
    let found = |criteria: &[Vec<u64>], heights| segment.candidates(criteria, heights).unwrap();
    assert_eq!(found(std::slice::from_ref(&keys), 0..256), expected);
    // One that no log has leaves nothing.
    assert!(found(&[keys[..2].to_vec(), vec![u64::MAX]], 0..256).is_empty());
    let part: Vec<u64> =
        expected.iter().copied().filter(|height| (40..90).contains(height)).collect();
    assert_eq!(found(&[keys[..2].to_vec()], 40..90), part);
}

#[test]
fn search_for_many_keys_takes_little_memory() {
    let limited = Command::new("sh")
        .args(["-c", &format!("ulimit -v {LIMIT_KIB}; exec \"$0\" \"$@\"")])
        .arg(current_exe().unwrap())
        .args(["--exact", "keys_that_share_their_low_bits_find_each_height_once", "--ignored"])
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&limited.stdout);
    assert!(limited.status.success() && said.contains("1 passed"), "{limited:?}");
}
