//! Views of a store with packed files: what a request over archived segments copies, and what a packed file has in memory.

use super::{ACTIVE, HEIGHTS, PACKED, open, store};

#[test]
fn reader_beside_the_store_shares_the_lists_of_its_segments() {
    let dir = store(true);
    let opened = open(dir.path()).unwrap();
    let lent = opened.reader.with_archived(Vec::new(), Vec::new(), Vec::new());
    let (view, over) = (opened.reader.view(), lent.view());
    assert!(view.segments.len() > 2 && !view.loose.is_empty());
    assert_eq!(view.segments.as_ptr(), over.segments.as_ptr());
    assert_eq!(view.tables.as_ptr(), over.tables.as_ptr());
    assert_eq!(view.loose.as_ptr(), over.loose.as_ptr());
    assert_eq!(lent.range(), Some(0..=HEIGHTS - 1));
}

#[test]
fn packed_file_has_no_places_for_slices_of_its_map() {
    let dir = store(true);
    let opened = open(dir.path()).unwrap();
    for segment in opened.reader.view().segments.iter() {
        let is_packed = segment.base() < PACKED;
        assert_eq!((segment.is_packed(), segment.places.len() == 0), (is_packed, is_packed));
    }
    let cut = opened.reader.view().segments[0].cut(1);
    assert_eq!(cut.places.len(), 0);
    assert!(opened.reader.record(1).is_some() && opened.reader.record(ACTIVE).is_some());
}
