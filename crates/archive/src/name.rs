//! Names of objects that never change.

use std::fmt;
use std::str::FromStr;

use crate::digest::Digest;
use crate::error::ArchiveError;

/// Kind of an object.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Kind {
    /// A packed file.
    Segment,
    /// The hashes of up to 64 segments.
    Span,
    /// The digests of the pages of a span and of its segments.
    Pages,
    /// The hashes of a span in a few bits each.
    Filter,
    /// The terms of logs in a span.
    Terms,
    /// The SHA-256 of manifests that were replaced.
    Links,
}

impl Kind {
    /// Returns the word in names.
    pub fn text(self) -> &'static str {
        match self {
            Self::Segment => "segment",
            Self::Span => "span",
            Self::Pages => "pages",
            Self::Filter => "filter",
            Self::Terms => "terms",
            Self::Links => "links",
        }
    }
}

/// Name of an object, below the prefix of the archive: `{chain id}/{2 hex}/{kind}-{first}-{digest}`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct ObjectName {
    /// Chain of the object.
    pub chain_id: u64,
    /// Kind of the object.
    pub kind: Kind,
    /// First height; of links the first sequence.
    pub first: u64,
    /// Digest of the content, see [`crate::object_digest`].
    pub digest: Digest,
}

impl fmt::Display for ObjectName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { chain_id, kind, first, digest } = self;
        write!(f, "{chain_id}/{:02x}/{}-{first}-{digest}", digest.0[0], kind.text())
    }
}

impl FromStr for ObjectName {
    type Err = ArchiveError;

    fn from_str(text: &str) -> Result<Self, ArchiveError> {
        let malformed = || ArchiveError::malformed("name", format!("{text:?} names no object"));
        let parsed = parse(text).ok_or_else(malformed)?;
        // Only the one form: no signs, no zeros in front.
        if parsed.to_string() == text { Ok(parsed) } else { Err(malformed()) }
    }
}

fn parse(text: &str) -> Option<ObjectName> {
    let mut parts = text.split('/');
    let (chain_id, _, file) = (parts.next()?.parse().ok()?, parts.next()?, parts.next()?);
    let mut parts = file.splitn(3, '-');
    let kind = match parts.next()? {
        "segment" => Kind::Segment,
        "span" => Kind::Span,
        "pages" => Kind::Pages,
        "filter" => Kind::Filter,
        "terms" => Kind::Terms,
        "links" => Kind::Links,
        _ => return None,
    };
    let (first, digest) = (parts.next()?.parse().ok()?, parts.next()?.parse().ok()?);
    Some(ObjectName { chain_id, kind, first, digest })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn name_has_the_documented_form() {
        let digest = Digest([0xab; 32]);
        let name = ObjectName { chain_id: 43114, kind: Kind::Segment, first: 2048, digest };
        let digits = "ab".repeat(32);
        assert_eq!(name.to_string(), format!("43114/ab/segment-2048-{digits}"));
        for wrong in ["", "1/ab", "1/ab/segment-1", "43114/ac/segment-2048-"] {
            assert!(format!("{wrong}{digits}").parse::<ObjectName>().is_err(), "{wrong}");
        }
    }

    proptest! {
        #[test]
        fn every_name_comes_back(
            chain_id: u64, first: u64, digest: [u8; 32], kind in 0_usize..6,
        ) {
            let kinds =
                [Kind::Segment, Kind::Span, Kind::Pages, Kind::Filter, Kind::Terms, Kind::Links];
            let kind = kinds[kind];
            let name = ObjectName { chain_id, kind, first, digest: Digest(digest) };
            prop_assert_eq!(name.to_string().parse(), Ok(name));
        }

        #[test]
        fn no_text_panics(text in ".{0,200}") {
            if let Ok(name) = text.parse::<ObjectName>() {
                prop_assert_eq!(name.to_string(), text);
            }
        }
    }
}
