//! The stamp: which chain a directory belongs to.
//!
//! ```text
//! neve-store 1
//! chain-id 43114
//! genesis 0x31ced5b9beb7f8782b014660da0cb18cc409f121f408186886e1ca3e8eeca96b
//! rules 1
//! crc32 0x0badcafe
//! ```
//!
//! Text, because an operator will look into it. It is replaced whole, by a rename. A stamp is
//! good only if it is, byte for byte, what [`Stamp::to_text`] makes of its values.

use std::io;
use std::path::Path;

use super::names::STAMP_NAME;
use crate::error::Error;
use crate::id::{Hash, Identity, Rules};
use crate::reads;

/// A stamp has fewer than 200.
const STAMP_BYTES_MAX: u64 = 4096;

/// Content of the stamp file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Stamp {
    /// Chain of the store.
    pub identity: Identity,
    /// The caller's number.
    pub rules: Rules,
}

impl Stamp {
    /// The whole text of the file.
    pub fn to_text(self) -> String {
        let Identity { chain_id, genesis } = self.identity;
        let body =
            format!("neve-store 1\nchain-id {chain_id}\ngenesis {genesis}\nrules {}\n", self.rules);
        let crc = crc32fast::hash(body.as_bytes());
        format!("{body}crc32 {crc:#010x}\n")
    }

    /// Reads the stamp of `dir`; `None` if there is none.
    pub(crate) fn load(dir: &Path) -> Result<Option<Self>, Error> {
        let path = dir.join(STAMP_NAME);
        let text = match reads::again(reads::is_disk_failure, || {
            reads::read_all(&path, STAMP_BYTES_MAX)
        }) {
            Ok(text) => text,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(source) => return Err(Error::read(path, source)),
        };
        Self::parse(&text).map(Some).map_err(|reason| Error::BadStamp { path, reason })
    }

    /// Parses the file's bytes.
    pub fn parse(bytes: &[u8]) -> Result<Self, String> {
        let text = std::str::from_utf8(bytes).map_err(|_| "the stamp is not text".to_owned())?;
        let stamp = Self::values(text).ok_or("the stamp does not have the lines of format 1")?;
        if stamp.to_text() == text { Ok(stamp) } else { Err("the stamp fails its checksum".into()) }
    }

    fn values(text: &str) -> Option<Self> {
        let mut lines = text.lines();
        let mut value = |key: &str| lines.next()?.strip_prefix(key)?.strip_prefix(' ');
        if value("neve-store")? != "1" {
            return None;
        }
        let chain_id = value("chain-id")?.parse().ok()?;
        let genesis = hash_from_hex(value("genesis")?)?;
        let rules = value("rules")?.parse().ok()?;
        Some(Self { identity: Identity { chain_id, genesis }, rules })
    }
}

fn hash_from_hex(text: &str) -> Option<Hash> {
    let digits = text.strip_prefix("0x").filter(|digits| digits.len() == 64)?;
    let mut hash = Hash::default();
    for (at, byte) in hash.0.iter_mut().enumerate() {
        *byte = u8::from_str_radix(digits.get(2 * at..2 * at + 2)?, 16).ok()?;
    }
    Some(hash)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stamp() -> Stamp {
        Stamp { identity: Identity { chain_id: 43114, genesis: Hash([0xab; 32]) }, rules: 1 }
    }

    #[test]
    fn text_is_as_documented() {
        let text = stamp().to_text();
        let genesis = "ab".repeat(32);
        let body = format!("neve-store 1\nchain-id 43114\ngenesis 0x{genesis}\nrules 1\n");
        assert!(text.starts_with(&body), "{text}");
        assert_eq!(Stamp::parse(text.as_bytes()), Ok(stamp()));
    }

    #[test]
    fn every_flipped_bit_is_refused() {
        let text = stamp().to_text().into_bytes();
        for at in (0..text.len() * 8).step_by(if cfg!(miri) { 61 } else { 1 }) {
            let mut bad = text.clone();
            bad[at / 8] ^= 1 << (at % 8);
            assert!(Stamp::parse(&bad).is_err(), "bit {at}");
        }
    }
}
