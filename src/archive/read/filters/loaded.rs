//! Filters that are here, whole spans' sixteen in a table: an unknown hash is looked up once in each table.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use neve_archive::{Digest, FilterTable, HashFilter, MERGED_FILTERS, Merging};

/// Tables, and the filters that they have.
#[derive(Clone, Default)]
pub(super) struct Loaded {
    tables: Vec<Table>,
    here: HashSet<Digest>,
}

/// A filter, or several ones that were merged.
#[derive(Clone)]
struct Table {
    filters: Arc<FilterTable>,
    members: Vec<Digest>,
    /// The span has all its segments: others get a new filter with each push, so theirs stay alone.
    is_whole: bool,
}

impl Table {
    /// Returns a table for each filter.
    fn split(&self) -> impl Iterator<Item = Self> + '_ {
        let parts = self.filters.split(self.members.len()).into_iter().map(Arc::new);
        let table = |(filters, member): (_, &Digest)| Self {
            filters,
            members: vec![*member],
            is_whole: self.is_whole,
        };
        parts.zip(&self.members).map(table)
    }
}

impl Loaded {
    /// Number of tables.
    pub(super) fn tables(&self) -> usize {
        self.tables.len()
    }

    pub(super) fn has(&self, filter: &Digest) -> bool {
        self.here.contains(filter)
    }

    /// Adds a filter, of a span that is whole or not.
    pub(super) fn with(&self, filter: HashFilter, digest: Digest, is_whole: bool) -> Self {
        let mut more = self.clone();
        more.add(Table { filters: Arc::new(filter.into_table()), members: vec![digest], is_whole });
        more
    }

    fn add(&mut self, table: Table) {
        self.here.extend(&table.members);
        self.tables.push(table);
    }

    /// True if a filter has the hash.
    pub(super) fn may_have(&self, hash: &[u8; 32]) -> bool {
        FilterTable::any_may_have(self.tables.iter().map(|table| &*table.filters), hash)
    }

    /// Filters that have the hash.
    pub(super) fn with_hash(&self, hash: &[u8; 32]) -> Vec<Digest> {
        let members = |table: &Table| {
            let found = table.filters.members_with(hash);
            let members = table.members.iter().enumerate();
            members.filter(|(at, _)| found >> at & 1 == 1).map(|(_, member)| *member).collect()
        };
        self.tables.iter().flat_map::<Vec<_>, _>(members).collect()
    }

    /// True if it has others than these filters.
    pub(super) fn has_others_than(&self, kept: &HashSet<Digest>) -> bool {
        self.here.iter().any(|member| !kept.contains(member))
    }

    /// Drops tables without these filters, and splits the first one that has others, too: one needs no more memory than
    /// a merge.
    pub(super) fn keep(&self, kept: &HashSet<Digest>) -> Self {
        let is_kept = |member: &&Digest| kept.contains(*member);
        let (mut left, mut has_split) = (Self::default(), false);
        for table in &self.tables {
            let count = table.members.iter().filter(is_kept).count();
            if count == table.members.len() || has_split && count > 0 {
                left.add(table.clone());
            } else if count > 0 {
                has_split = true;
                table
                    .split()
                    .filter(|part| part.members.iter().all(|one| kept.contains(one)))
                    .for_each(|part| left.add(part));
            }
        }
        left
    }

    /// Sixteen tables of one filter each that can be merged in so many bytes, if there are as many.
    pub(super) fn alike(&self, bytes_max: usize) -> Option<(Merging, Vec<Digest>)> {
        let mut by_bits: HashMap<u32, Vec<&Table>> = HashMap::new();
        for table in self.tables.iter().filter(|table| table.is_whole && table.members.len() == 1) {
            by_bits.entry(table.filters.bits()).or_default().push(table);
        }
        by_bits.into_values().find_map(|mut tables| {
            tables.sort_by_key(|table| table.filters.size()); // large ones keep no others apart
            let some = tables.get(..MERGED_FILTERS)?;
            let bytes: usize = some.iter().map(|table| table.filters.size()).sum();
            let merging = some.iter().map(|table| Arc::clone(&table.filters)).collect();
            let members = some.iter().flat_map(|table| &table.members).copied().collect();
            (bytes <= bytes_max).then(|| Merging::new(merging)).flatten().zip(Some(members))
        })
    }

    /// Puts one table in the place of those of its members.
    pub(super) fn merged(&self, table: FilterTable, members: Vec<Digest>) -> Self {
        let mut left = Self { here: self.here.clone(), ..Self::default() };
        let is_other = |other: &&Table| !other.members.iter().any(|one| members.contains(one));
        left.tables = self.tables.iter().filter(is_other).cloned().collect();
        left.add(Table { filters: Arc::new(table), members, is_whole: true });
        left
    }
}
