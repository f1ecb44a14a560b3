//! A reader of packed files beside the served range.

use std::sync::Arc;

use super::{HEIGHTS, open, store};
use crate::{ArchivedPlace, Reader};

/// A large store has tens of thousands of segments, and each request for archived heights has such a reader.
#[test]
fn reader_beside_packed_files_copies_no_list_of_segments() {
    let store = store(true);
    let reader = open(store.path()).unwrap().reader;
    let view = reader.view();
    let counts = || -> Vec<_> { view.segments.iter().map(Arc::strong_count).collect() };
    let before = counts();
    let hash = reader.record(HEIGHTS - 1).unwrap().hash();
    let place = ArchivedPlace { hash, height: HEIGHTS - 1, position: None };
    let lent = reader.with_archived(Vec::new(), vec![place], Vec::new());
    assert_eq!(counts(), before);
    let head = |reader: &Reader| reader.head().map(|head| head.height());
    assert_eq!((lent.range(), head(&lent)), (reader.range(), head(&reader)));
    for height in 0..=HEIGHTS {
        let hash = |reader: &Reader| reader.record(height).map(|record| record.hash());
        assert_eq!(hash(&lent), hash(&reader), "{height}");
        let found = hash(&reader).and_then(|hash| lent.block(&hash));
        assert_eq!(found.map(|record| record.height()), hash(&reader).map(|_| height));
    }
}
