//! Roots of lists, and the encodings that they are taken of.

use alloy_primitives::B256;
use alloy_trie::root::ordered_trie_root_encoded;

/// Root of a list as a trie from RLP(index) to item, as headers hold it for transactions and for
/// receipts (Yellow Paper, section 4.3.2). `items` are in EIP-2718 form.
pub fn ordered_root<T: AsRef<[u8]>>(items: &[T]) -> B256 {
    ordered_trie_root_encoded(items)
}

/// Encodings one behind the other, in one allocation.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Encodings {
    bytes: Vec<u8>,
    /// Behind each item.
    ends: Vec<usize>,
}

impl Encodings {
    /// Room for `items` of `bytes` together.
    pub(crate) fn with_capacity(items: usize, bytes: usize) -> Self {
        Self { bytes: Vec::with_capacity(bytes), ends: Vec::with_capacity(items) }
    }

    /// Appends an item that `write` appends to the bytes, and shows it.
    pub(crate) fn push(&mut self, write: impl FnOnce(&mut Vec<u8>)) -> &[u8] {
        let start = self.bytes.len();
        write(&mut self.bytes);
        self.ends.push(self.bytes.len());
        self.bytes.get(start..).unwrap_or_default()
    }

    /// The items.
    pub fn iter(&self) -> impl Iterator<Item = &[u8]> {
        let starts = std::iter::once(&0).chain(&self.ends);
        starts.zip(&self.ends).map(|(start, end)| self.bytes.get(*start..*end).unwrap_or_default())
    }

    /// How many items there are.
    pub fn len(&self) -> usize {
        self.ends.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.ends.is_empty()
    }

    /// Bytes held.
    pub(crate) fn bytes(&self) -> usize {
        self.bytes.len() + self.ends.len() * size_of::<usize>()
    }

    /// Root of the list.
    pub fn root(&self) -> B256 {
        ordered_root(&self.iter().collect::<Vec<_>>())
    }
}

#[cfg(test)]
mod tests {
    use alloy_trie::EMPTY_ROOT_HASH;

    use super::*;

    #[test]
    fn root_of_nothing() {
        assert_eq!(Encodings::default().root(), EMPTY_ROOT_HASH);
    }

    #[test]
    fn items_are_kept_apart() {
        let mut encodings = Encodings::default();
        assert_eq!(encodings.push(|out| out.extend([1, 2])), [1, 2]);
        assert_eq!(encodings.push(|_| {}), [0_u8; 0]);
        assert_eq!(encodings.push(|out| out.push(3)), [3]);
        assert_eq!(encodings.iter().collect::<Vec<_>>(), [&[1, 2][..], &[], &[3]]);
        assert_eq!(encodings.len(), 3);
    }
}
