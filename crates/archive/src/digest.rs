//! Digests: SHA-256 of pages, and of the list of these.

use std::fmt;
use std::str::FromStr;

use serde::de::{Error as _, Visitor};
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use sha2::{Digest as _, Sha256};

use crate::error::ArchiveError;

/// Length of a page. The last page of an object may be shorter.
pub const PAGE_BYTES: usize = 64 << 10;
/// Most bytes of an object, the manifest aside.
pub const OBJECT_BYTES_MAX: u64 = 1 << 30;

/// 32 bytes: a SHA-256, or the hash of a block. The text is 64 hexadecimal digits in lower case.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Digest(pub [u8; 32]);

/// Ed25519 signature. The text is 128 hexadecimal digits in lower case.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Signature(pub [u8; 64]);

impl Serialize for Signature {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        to.serialize_str(&const_hex::encode(self.0))
    }
}

impl<'de> Deserialize<'de> for Signature {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        let text = String::deserialize(from)?;
        let digits = const_hex::decode_to_array(&text).ok().map(Self);
        // The decoder takes capitals and a prefix, too. A signature has one spelling.
        let signature = digits.filter(|signature| const_hex::encode(signature.0) == text);
        signature.ok_or_else(|| D::Error::custom("signature: not 128 hexadecimal digits"))
    }
}

/// Returns the digest that names an object: SHA-256 of the list of SHA-256 of its pages.
pub fn object_digest(object: &[u8]) -> Digest {
    let mut list = Sha256::new();
    object.chunks(PAGE_BYTES).for_each(|page| list.update(Sha256::digest(page)));
    Digest(list.finalize().into())
}

impl Digest {
    /// Returns the SHA-256 of bytes.
    pub fn of(bytes: &[u8]) -> Self {
        Self(Sha256::digest(bytes).into())
    }
}

impl fmt::Display for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&const_hex::encode(self.0))
    }
}

impl fmt::Debug for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl FromStr for Digest {
    type Err = ArchiveError;

    fn from_str(text: &str) -> Result<Self, ArchiveError> {
        let malformed =
            || ArchiveError::malformed("digest", "not 64 lower-case hexadecimal digits");
        // One spelling: names of objects are compared as texts. Without an early end the compiler
        // looks at many bytes at once. The decoder refuses all else.
        let is_upper = text.bytes().fold(false, |is, byte| is | byte.is_ascii_uppercase());
        if text.len() != 64 || is_upper {
            return Err(malformed());
        }
        const_hex::decode_to_array(text).map(Self).map_err(|_| malformed())
    }
}

impl Serialize for Digest {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        to.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Digest {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        from.deserialize_str(DigestText)
    }
}

/// Reads the text of a digest where it is: a manifest has 300,000 of them.
struct DigestText;

impl Visitor<'_> for DigestText {
    type Value = Digest;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("64 lower-case hexadecimal digits")
    }

    fn visit_str<E: serde::de::Error>(self, text: &str) -> Result<Digest, E> {
        text.parse().map_err(E::custom)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn name_is_the_digest_of_the_list_of_page_digests() {
        let object = vec![7; PAGE_BYTES + 1];
        let pages = [Digest::of(&object[..PAGE_BYTES]), Digest::of(&object[PAGE_BYTES..])];
        assert_eq!(object_digest(&object), Digest::of(&pages.map(|page| page.0).concat()));
        assert_eq!(object_digest(&[]), Digest::of(&[]));
        // sha256sum of no bytes.
        let known = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855";
        assert_eq!(object_digest(&[]).to_string(), known);
    }

    #[test]
    fn digest_is_read_in_its_one_form() {
        let digest = Digest::of(b"neve");
        assert_eq!(digest.to_string().parse(), Ok(digest));
        for wrong in [digest.to_string().to_uppercase(), "0".repeat(63), "é".repeat(32)] {
            assert!(wrong.parse::<Digest>().is_err(), "{wrong}");
        }
    }
}
