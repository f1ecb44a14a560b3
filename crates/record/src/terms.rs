//! Terms: the keys by which the store finds logs.

use neve_store::Terms;

/// The key by which a log with `value` at `position` is found: 0 is the address, 1 to 4 are the
/// topics. FNV-1a, 64 bits, over the position, one byte, and the value; 1 where that is 0, which
/// says that there is no value. Keys are stored: another hash would be another format.
pub fn term(position: u8, value: &[u8]) -> u64 {
    let step = |hash: u64, byte: &u8| (hash ^ u64::from(*byte)).wrapping_mul(0x0000_0100_0000_01b3);
    let hash = [position].iter().chain(value).fold(0xcbf2_9ce4_8422_2325, step);
    hash.max(1)
}

/// The keys of a log.
pub fn terms(address: &[u8; 20], topics: impl Iterator<Item = [u8; 32]>) -> Terms {
    let mut terms = [term(0, address), 0, 0, 0, 0];
    for ((place, position), topic) in terms.iter_mut().skip(1).zip(1..).zip(topics) {
        *place = term(position, &topic);
    }
    terms
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Vectors of FNV-1a by its authors: "a" and "foobar" behind a first byte of theirs.
    #[test]
    fn a_term_is_fnv_1a_of_position_and_value() {
        assert_eq!(term(b'a', b""), 0xaf63_dc4c_8601_ec8c);
        assert_eq!(term(b'f', b"oobar"), 0x8594_4171_f739_67e8);
        let topics = [[1; 32], [2; 32]];
        let [address, first, second, none, neither] = terms(&[9; 20], topics.into_iter());
        assert_eq!(address, term(0, &[9; 20]));
        assert_eq!((first, second), (term(1, &[1; 32]), term(2, &[2; 32])));
        assert_eq!((none, neither), (0, 0));
    }
}
