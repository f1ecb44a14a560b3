//! Roots of lists, and the encodings that they are taken of.

use alloy_primitives::B256;
use alloy_rlp::Encodable;
use alloy_trie::root::adjust_index_for_rlp;
use alloy_trie::{HashBuilder, Nibbles, nodes::LeafNodeRef};
use neve_keccak::keccak256_all;

/// A node that is shorter stands in its parent as it is, not by its hash (Yellow Paper, appendix
/// D).
const HASHED_FROM: usize = 32;
/// Leaves that are hashed together: enough to fill all lanes, and the copies of few.
const TOGETHER: usize = 64;

/// Root of a list as a trie from RLP(index) to item, as headers hold it for transactions and for
/// receipts (Yellow Paper, section 4.3.2). `items` are in EIP-2718 form.
///
/// Nearly all that is hashed are the leaves, and none needs another: they are hashed together, and
/// the trie is built over their hashes.
pub fn ordered_root<T: AsRef<[u8]>>(items: &[T]) -> B256 {
    let mut builder = HashBuilder::default();
    for leaves in Leaf::all(items).chunks(TOGETHER) {
        let bytes = leaves.iter().map(Leaf::length_max).sum();
        let mut nodes = Encodings::with_capacity(leaves.len(), bytes);
        leaves.iter().for_each(|leaf| leaf.push_to(&mut nodes));
        for ((leaf, node), hash) in leaves.iter().zip(nodes.iter()).zip(nodes.hashes()) {
            if node.len() < HASHED_FROM {
                builder.add_leaf(leaf.key, leaf.item);
            } else {
                // A child that is known by its hash, whether it is a leaf or not.
                builder.add_branch(leaf.key.slice(..leaf.depth), hash, false);
            }
        }
    }
    builder.root()
}

/// An item of a list as a leaf of its trie.
struct Leaf<'i> {
    key: Nibbles,
    /// Number of nibbles of the key that lead to it: one more than its neighbours have in common
    /// with it.
    depth: usize,
    item: &'i [u8],
}

impl<'i> Leaf<'i> {
    /// Leaves of all items, in the order of their keys.
    fn all<T: AsRef<[u8]>>(items: &'i [T]) -> Vec<Self> {
        // RLP of 0 is 0x80, so index 0 comes behind 127 in the order of keys.
        let indexes = (0..items.len()).map(|at| adjust_index_for_rlp(at, items.len()));
        let leaf = |index: usize| Leaf {
            key: Nibbles::unpack(alloy_rlp::encode_fixed_size(&index)),
            depth: 0,
            item: items.get(index).map(AsRef::as_ref).unwrap_or_default(),
        };
        let mut leaves = indexes.map(leaf).collect::<Vec<_>>();
        // A leaf stands where its key parts from both neighbors: keys are in order.
        for at in 1..leaves.len() {
            if let Some([left, right]) = leaves.get_mut(at - 1..=at) {
                let depth = left.key.common_prefix_length(&right.key) + 1;
                left.depth = left.depth.max(depth);
                right.depth = depth;
            }
        }
        leaves
    }

    /// The item, three lengths and what is left of the key.
    fn length_max(&self) -> usize {
        self.item.len() + 24
    }

    fn push_to(&self, nodes: &mut Encodings) {
        let key = self.key.slice(self.depth..);
        nodes.push(|out| LeafNodeRef::new(&key, self.item).encode(out));
    }
}

/// Encodings one behind the other, in one allocation.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Encodings {
    bytes: Vec<u8>,
    /// Offset behind each item.
    ends: Vec<usize>,
}

impl Encodings {
    /// Space for `items` of `bytes` together.
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

    /// Iterates over the items.
    pub fn iter(&self) -> impl Iterator<Item = &[u8]> {
        let starts = std::iter::once(&0).chain(&self.ends);
        starts.zip(&self.ends).map(|(start, end)| self.bytes.get(*start..*end).unwrap_or_default())
    }

    /// Number of items.
    pub fn len(&self) -> usize {
        self.ends.len()
    }

    /// True if there are none.
    pub fn is_empty(&self) -> bool {
        self.ends.is_empty()
    }

    /// Number of bytes in memory.
    pub(crate) fn bytes(&self) -> usize {
        self.bytes.len() + self.ends.len() * size_of::<usize>()
    }

    /// Hash of each item.
    pub(crate) fn hashes(&self) -> Vec<B256> {
        keccak256_all(&self.iter().collect::<Vec<_>>())
    }

    /// Root of the list.
    pub fn root(&self) -> B256 {
        ordered_root(&self.iter().collect::<Vec<_>>())
    }
}

#[cfg(test)]
mod tests {
    use alloy_trie::{EMPTY_ROOT_HASH, root::ordered_trie_root_encoded};
    use proptest::collection::vec;
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn root_of_nothing() {
        assert_eq!(Encodings::default().root(), EMPTY_ROOT_HASH);
    }

    /// The library's root hashes a leaf when it meets it. Items shorter than a hash stand in
    /// branches as they are.
    fn check(items: &[Vec<u8>]) {
        assert_eq!(ordered_root(items), ordered_trie_root_encoded(items), "{}", items.len());
    }

    #[test]
    fn roots_of_every_count() {
        for count in (0..300).chain([1000, 0x1_0010]) {
            check(&(0..count).map(|at| vec![at as u8; at % 64]).collect::<Vec<_>>());
        }
    }

    proptest! {
        #[test]
        fn roots_of_any_items(items in vec(vec(any::<u8>(), 0..80), 0..300)) {
            check(&items);
        }
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
