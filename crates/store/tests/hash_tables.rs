//! Merged hash tables, read by a program that does not open the store.

use neve_store::{Hash, HashTable, MergedHash};

use crate::support::{IDENTITY, block, open, small};

/// A program that does not open the store may read its tables, while a server writes them.
#[test]
fn merged_tables_have_the_hashes_of_their_heights_and_no_others() {
    let dir = tempfile::tempdir().unwrap();
    let records: Vec<_> = (2..40).map(|height| block(height, 3)).collect();
    let mut store = open(dir.path(), small());
    store.writer.bind(IDENTITY, 1).unwrap();
    for record in &records {
        store.writer.append(record).unwrap();
        store.writer.seal().unwrap();
        store.writer.merge_tables().unwrap();
    }
    let mut tables = HashTable::of(dir.path(), 0..u64::MAX).unwrap();
    tables.sort_by_key(|table| *table.heights().start());
    let heights: Vec<_> = tables.iter().map(HashTable::heights).collect();
    assert_eq!(heights, [2..=9, 10..=17, 18..=25, 26..=33]);
    assert_eq!(HashTable::of(dir.path(), 0..2).unwrap().len(), 0);
    assert_eq!(HashTable::of(dir.path(), 9..11).unwrap().len(), 2);
    for table in tables {
        let mut found = Vec::new();
        assert!(table.read(|hash| found.push(hash)).unwrap());
        found.sort_by_key(|hash| (hash.height, hash.transaction));
        let hash = |height, transaction, hash: &Hash| {
            let bytes = std::array::from_fn(|at| hash.0[2 + at]);
            MergedHash { height, transaction, bytes }
        };
        let mut expected = Vec::new();
        for record in records.iter().filter(|record| table.heights().contains(&record.height)) {
            expected.push(hash(record.height, None, &record.hash));
            let transactions = (0..).zip(&record.transactions);
            expected.extend(transactions.map(|(at, of)| hash(record.height, Some(at), of)));
        }
        assert_eq!(found, expected);
    }
}
