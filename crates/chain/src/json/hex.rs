//! Hexadecimal values, as a node writes them: lower case, quantities without leading zeros.

use std::fmt;

use alloy_primitives::{U256, hex};

/// Bytes that stay hexadecimal digits in the text that they were read from.
///
/// Input and log data are most of a block, are needed once (to hash them) and are served as text:
/// they are checked when read, and decoded only into the encoding that is hashed.
#[derive(Clone, Copy, Default, PartialEq, Eq)]
pub struct Hex<'a>(
    /// Invariant: an even number of lower-case digits.
    &'a [u8],
);

impl<'a> Hex<'a> {
    /// Takes digits, without `0x`; `None` unless they are lower case and whole bytes.
    pub fn new(digits: &'a [u8]) -> Option<Self> {
        let whole = digits.len().is_multiple_of(2);
        (whole && is_lower(digits) && hex::check_raw(digits)).then_some(Self(digits))
    }

    /// Number of bytes that the digits encode.
    pub fn len(&self) -> usize {
        self.0.len() / 2
    }

    /// True if there are none.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The digits, without `0x`.
    pub fn digits(&self) -> &'a [u8] {
        self.0
    }

    /// Returns the decoded bytes.
    pub fn to_vec(&self) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(self.len());
        self.append_to(&mut bytes);
        bytes
    }

    /// Appends the bytes to `out`.
    fn append_to(&self, out: &mut Vec<u8>) {
        let start = out.len();
        out.resize(start + self.len(), 0);
        hex::decode_to_slice(self.0, &mut out[start..]).expect("digits were checked in new()");
    }

    /// Appends the bytes to `out` as an RLP string.
    pub(crate) fn append_rlp(&self, out: &mut Vec<u8>) {
        // A single byte below 0x80 is its own encoding; its first digit is then below 8.
        let own = self.len() == 1 && self.0.first().is_some_and(|digit| *digit < b'8');
        if !own {
            alloy_rlp::Header { list: false, payload_length: self.len() }.encode(out);
        }
        self.append_to(out);
    }
}

impl fmt::Debug for Hex<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "0x{}", self.0.escape_ascii())
    }
}

/// True if no digit is upper case: of all hex digits these alone have bit 6 and not bit 5.
///
/// Looks at all of them: unlike an early end, that compiles to vector code.
fn is_lower(digits: &[u8]) -> bool {
    digits.iter().fold(0, |upper, digit| upper | digit & !(digit << 1)) & 0x40 == 0
}

/// Exactly `N` bytes.
pub(crate) fn fixed<const N: usize>(digits: &[u8]) -> Option<[u8; N]> {
    let mut bytes = [0; N];
    // The length is checked first because the decoder would skip another "0x".
    let fits = digits.len() == 2 * N && is_lower(digits);
    (fits && hex::decode_to_slice(digits, &mut bytes).is_ok()).then_some(bytes)
}

/// A quantity of at most 64 bits.
pub(crate) fn quantity(digits: &[u8]) -> Option<u64> {
    if !is_minimal(digits) || digits.len() > 16 {
        return None;
    }
    digits.iter().try_fold(0, |sum, digit| Some(sum << 4 | u64::from(nibble(*digit)?)))
}

/// A quantity of at most 256 bits.
pub(crate) fn quantity_256(digits: &[u8]) -> Option<U256> {
    // Nearly all quantities fit into a u64, which is read far faster.
    if digits.len() <= 16 {
        return quantity(digits).map(U256::from);
    }
    let mut padded = [b'0'; 64];
    let start = padded.len().checked_sub(digits.len())?;
    padded.get_mut(start..)?.copy_from_slice(digits);
    is_minimal(digits).then(|| fixed(&padded).map(U256::from_be_bytes::<32>))?
}

fn is_minimal(digits: &[u8]) -> bool {
    digits == b"0" || digits.first().is_some_and(|digit| *digit != b'0')
}

fn nibble(digit: u8) -> Option<u8> {
    match digit {
        b'0'..=b'9' => Some(digit - b'0'),
        b'a'..=b'f' => Some(digit - b'a' + 10),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantities_are_minimal_and_lower_case() {
        assert_eq!(quantity(b"0"), Some(0));
        assert_eq!(quantity(b"ffffffffffffffff"), Some(u64::MAX));
        for wrong in [&b""[..], b"00", b"01", b"A", b"g", b"1ffffffffffffffff", b"0x1", b"-1"] {
            assert_eq!(quantity(wrong), None, "{}", wrong.escape_ascii());
        }
    }

    #[test]
    fn wide_quantities() {
        assert_eq!(quantity_256(&[b'f'; 64]), Some(U256::MAX));
        assert_eq!(quantity_256(b"10000000000000000"), Some(U256::from(1) << 64));
        assert_eq!(quantity_256(&[b'f'; 65]), None);
        assert_eq!(quantity_256(b"00000000000000001"), None);
        assert_eq!(quantity_256(&[b'F'; 20]), None);
        assert_eq!(quantity_256(&[b'x'; 20]), None);
    }

    #[test]
    fn fixed_is_exact() {
        assert_eq!(fixed(b"00ff"), Some([0, 0xff]));
        for wrong in [&b"00f"[..], b"00fff", b"00FF", b"0x00", b"0xff", b"zzzz", b""] {
            assert_eq!(fixed::<2>(wrong), None, "{}", wrong.escape_ascii());
        }
    }

    #[test]
    fn hex_keeps_the_digits() {
        let data = Hex::new(b"00ff7f").unwrap();
        assert_eq!((data.len(), data.to_vec()), (3, vec![0, 0xff, 0x7f]));
        assert!(Hex::new(b"").unwrap().is_empty());
        for wrong in [&b"0"[..], b"0x", b"0xff", b"FF", b"0g"] {
            assert!(Hex::new(wrong).is_none(), "{}", wrong.escape_ascii());
        }
    }

    #[test]
    fn hex_and_bytes_encode_alike() {
        for digits in [&b""[..], b"00", b"7f", b"80", b"ff", b"0102", &[b'a'; 110], &[b'b'; 112]] {
            let data = Hex::new(digits).unwrap();
            let (mut from_hex, mut from_bytes) = (vec![1], vec![1]);
            data.append_rlp(&mut from_hex);
            alloy_rlp::Encodable::encode(&data.to_vec()[..], &mut from_bytes);
            assert_eq!(from_hex, from_bytes);
        }
    }
}
