//! Filter of logs.

/// A log matches if its address is among `addresses` and, at each position, its topic is among
/// `topics[position]`; an empty list stands for anything, but a position asks that a topic is
/// there.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct LogFilter {
    /// Addresses, any of them.
    pub addresses: Vec<[u8; 20]>,
    /// Topics by position, any of each.
    pub topics: Vec<Vec<[u8; 32]>>,
}
