//! A reader of packed files beside the served range.

use std::fs;
use std::sync::Arc;

use super::support::{files, toy::Toy};
use super::{HEIGHTS, open, store};
use crate::{
    ArchivedPlace, ArchivedSegment, Criteria, PackedBytes, PackedCodec, PackedPages, Reader,
};

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

/// Bytes of a packed file.
struct Whole(Vec<u8>);

impl PackedPages for Whole {
    fn bytes(&self) -> u64 {
        self.0.len() as u64
    }

    fn read(&self, offset: u64, len: usize) -> Option<Vec<u8>> {
        Some(self.0.get(offset as usize..offset as usize + len)?.to_vec())
    }
}

#[test]
fn guard_of_a_packed_file_lives_as_long_as_a_reader_that_has_it() {
    let store = store(true);
    let name = files(store.path(), ".pack").remove(0);
    let pages = Whole(fs::read(store.path().join(name)).unwrap());
    let codec: Arc<dyn PackedCodec> = Arc::new(Toy);
    let segment = ArchivedSegment::open(PackedBytes::paged(Arc::new(pages)), &codec).unwrap();
    let guard = Arc::new(());
    let reader = open(store.path()).unwrap().reader;
    let lent = segment.guarded(Arc::<()>::clone(&guard));
    let beside = reader.with_archived(vec![lent], Vec::new(), Vec::new());
    let logs = beside.logs(0..=1, &Criteria::new(Vec::new()));
    drop(beside);
    assert_eq!(Arc::strong_count(&guard), 2, "the search goes on");
    drop(logs);
    assert_eq!(Arc::strong_count(&guard), 1);
}
