//! Links of a manifest to those before it: their SHA-256, chained so that none can be added or left out later.

use serde::{Deserialize, Serialize};

use crate::digest::Digest;
use crate::error::ArchiveError;

/// Links of an object, and the most of a manifest.
pub const LINKS_MAX: usize = 1024;
/// Most objects with links that a manifest names. The oldest goes then.
pub const LINK_OBJECTS_MAX: usize = 1024;
/// Bytes of an object with links.
pub const LINKS_BYTES: u64 = (HEADER_BYTES + LINKS_MAX * 32) as u64;

const HEADER_BYTES: usize = 56;
const MAGIC: &[u8; 8] = b"nevelink";
const VERSION: u32 = 1;
const WHAT: &str = "links";

/// Links in a manifest, and the objects with those before.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Descent {
    /// Digests of the objects with [`LINKS_MAX`] links each, ascending by sequence.
    pub objects: Vec<Digest>,
    /// Chain before the first of the links; `None` if that is the first manifest.
    pub after: Option<Digest>,
    /// Links up to the manifest before, ascending.
    pub links: Vec<Digest>,
}

/// Links of neighboring manifests, one for each.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Links {
    /// Sequence of the first manifest.
    pub first: u64,
    /// Chain before it; `None` if it is the first one of all.
    pub after: Option<Digest>,
    /// SHA-256 of each manifest.
    pub links: Vec<Digest>,
}

/// Returns the chain with one more link: SHA-256 of the chain before, or zeros, and the link.
pub(crate) fn chained(before: Option<Digest>, link: Digest) -> Digest {
    let before = before.unwrap_or(Digest([0; 32]));
    Digest::of([before.0, link.0].as_flattened())
}

impl Links {
    /// Returns the chain up to the last link, which the manifest behind it has as `before`.
    pub fn chain(&self) -> Option<Digest> {
        self.links.iter().fold(self.after, |chain, link| Some(chained(chain, *link)))
    }

    /// Returns the bytes of the object.
    pub fn to_bytes(&self) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(LINKS_BYTES as usize);
        bytes.extend_from_slice(MAGIC);
        bytes.extend_from_slice(&VERSION.to_le_bytes());
        bytes.extend_from_slice(&(self.links.len() as u32).to_le_bytes());
        bytes.extend_from_slice(&self.first.to_le_bytes());
        bytes.extend_from_slice(&self.after.unwrap_or(Digest([0; 32])).0);
        self.links.iter().for_each(|link| bytes.extend_from_slice(&link.0));
        bytes
    }

    /// Reads an object.
    ///
    /// # Errors
    /// Bytes that no writer makes, or another version.
    pub fn read(bytes: &[u8]) -> Result<Self, ArchiveError> {
        let (header, rest) = bytes
            .split_first_chunk::<HEADER_BYTES>()
            .ok_or_else(|| malformed("no whole header"))?;
        check_form(header)?;
        let (links, left) = rest.as_chunks::<32>();
        if word(header, 12) as usize != LINKS_MAX || links.len() != LINKS_MAX || !left.is_empty() {
            return Err(malformed("another count of links"));
        }
        let first = u64::from(word(header, 16)) | u64::from(word(header, 20)) << 32;
        let after = Digest(std::array::from_fn(|byte| header[24 + byte]));
        let after = (after != Digest([0; 32])).then_some(after);
        if first == 0 || (first == 1) != after.is_none() {
            return Err(malformed("a first sequence without a manifest before"));
        }
        Ok(Self { first, after, links: links.iter().map(|link| Digest(*link)).collect() })
    }
}

/// Checks the first bytes of an object and its version.
fn check_form(header: &[u8; HEADER_BYTES]) -> Result<(), ArchiveError> {
    if !header.starts_with(MAGIC) {
        return Err(malformed("other first bytes"));
    }
    let (version, read) = (word(header, 8).into(), VERSION.into());
    if version != read {
        return Err(ArchiveError::Version { what: WHAT, version, read });
    }
    Ok(())
}

fn word(header: &[u8; HEADER_BYTES], at: usize) -> u32 {
    u32::from_le_bytes(std::array::from_fn(|byte| header[at + byte]))
}

fn malformed(why: &str) -> ArchiveError {
    ArchiveError::malformed(WHAT, why)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn links(first: u64, after: Option<Digest>) -> Links {
        let link = |at: u64| Digest::of(&(first + at).to_le_bytes());
        Links { first, after, links: (0..LINKS_MAX as u64).map(link).collect() }
    }

    #[test]
    fn bytes_are_the_documented_ones() {
        let links = links(1025, Some(Digest([7; 32])));
        let bytes = links.to_bytes();
        assert_eq!((bytes.len() as u64, LINKS_BYTES), (LINKS_BYTES, 32_824));
        assert_eq!(&bytes[..24], b"nevelink\x01\0\0\0\0\x04\0\0\x01\x04\0\0\0\0\0\0");
        assert_eq!((&bytes[24..56], &bytes[56..88]), (&[7; 32][..], &links.links[0].0[..]));
        assert_eq!(Links::read(&bytes), Ok(links));
    }

    #[test]
    fn chain_is_the_digest_of_that_before_and_of_each_link() {
        let [first, second] = [[1; 32], [2; 32]].map(Digest);
        let links = Links { first: 1, after: None, links: vec![first, second] };
        let one = Digest::of(&[[0; 32], [1; 32]].concat());
        assert_eq!(links.chain(), Some(Digest::of(&[one.0, [2; 32]].concat())));
        let later = Links { first: 2, after: Some(one), links: vec![second] };
        assert_eq!(later.chain(), links.chain());
        assert_eq!(Links { links: Vec::new(), ..links }.chain(), None);
    }

    #[test]
    fn objects_that_no_writer_makes_are_refused() {
        let good = links(1, None).to_bytes();
        assert!(Links::read(&good).is_ok());
        // Magic, count, first sequence, and a chain before the first of all.
        for at in [0, 12, 16, 24] {
            let mut bad = good.clone();
            bad[at] ^= 3;
            assert!(matches!(Links::read(&bad), Err(ArchiveError::Malformed { .. })), "{at}");
        }
        let mut other = good.clone();
        other[8] = 2;
        let refused = ArchiveError::Version { what: "links", version: 2, read: 1 };
        assert_eq!(Links::read(&other), Err(refused));
        for length in [0, 55, good.len() - 1] {
            assert!(Links::read(&good[..length]).is_err(), "{length}");
        }
        assert!(Links::read(&[&good[..], &[0; 32]].concat()).is_err());
    }

    proptest! {
        #[test]
        fn hostile_bytes_never_panic(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
            let _ = Links::read(&bytes);
        }

        #[test]
        fn any_changed_link_changes_the_chain(at in 0..LINKS_MAX * 32, flip in 1..=u8::MAX) {
            let good = links(5, Some(Digest([1; 32])));
            let mut bytes = good.to_bytes();
            bytes[HEADER_BYTES + at] ^= flip;
            let bad = Links::read(&bytes).expect("it has a form");
            prop_assert!(bad.chain() != good.chain());
        }
    }
}
