//! Protocol between a neve and its mirrors: a list of files, and frames of records.
//!
//! A frame is a kind (1 byte), the length of its payload (u32), the payload, and the CRC-32 of all
//! before it; integers are little-endian. It carries the texts of a node's answers and nothing of
//! the store's format, so it is the same over changes of that.

use bytes::{Buf, BufMut, Bytes, BytesMut};
use neve_store::{FORMAT_VERSION, Hash, Identity, Reader};
use serde::{Deserialize, Serialize};

/// Beginning of all paths.
pub(crate) const ROOT: &str = "/mirror/v1/";
/// Path of the list of files.
pub(crate) const SEGMENTS: &str = "/mirror/v1/segments";
/// A segment's file; its base height follows.
pub(crate) const SEGMENT: &str = "/mirror/v1/segment/";
/// A packed file; its first height follows.
pub(crate) const PACKED: &str = "/mirror/v1/packed/";
/// Path of the stream of records.
pub(crate) const RECORDS: &str = "/mirror/v1/records";

/// Segments and heights that a neve has for its mirrors.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Listing {
    /// The version of segment files.
    pub(crate) format: u32,
    pub(crate) chain_id: u64,
    pub(crate) genesis: String,
    /// The lowest height served.
    pub(crate) first: Option<u64>,
    /// Head of the mirror source.
    pub(crate) head: Option<u64>,
    /// Sealed segments, ascending.
    pub(crate) segments: Vec<Listed>,
    /// Packed files, ascending. A source of an earlier release has no such list.
    #[serde(default)]
    pub(crate) packed: Vec<Listed>,
}

/// Form of a file that a mirror takes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Form {
    /// A sealed segment.
    Sealed,
    /// A packed file.
    Packed,
}

impl Form {
    /// Path of a file, before its first height.
    pub(crate) fn path(self) -> &'static str {
        match self {
            Self::Sealed => SEGMENT,
            Self::Packed => PACKED,
        }
    }
}

/// A sealed segment, or a packed file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Listed {
    pub(crate) base: u64,
    pub(crate) records: u32,
}

impl Listed {
    /// The height after its last one.
    pub(crate) fn end(&self) -> u64 {
        self.base.saturating_add(self.records.into())
    }
}

impl Listing {
    pub(crate) fn of(reader: &Reader, identity: Identity) -> Self {
        let range = reader.range();
        let listed = |files: Vec<(u64, u32)>| {
            files.into_iter().map(|(base, records)| Listed { base, records }).collect()
        };
        Self {
            format: FORMAT_VERSION,
            chain_id: identity.chain_id,
            genesis: identity.genesis.to_string(),
            first: range.as_ref().map(|range| *range.start()),
            head: range.as_ref().map(|range| *range.end()),
            segments: listed(reader.unpacked()),
            packed: listed(reader.packed()),
        }
    }

    /// Finds the sealed segment or packed file that ends below `end`, without a copy of the lists.
    pub(crate) fn file_below(&self, end: u64) -> Option<(Form, Listed)> {
        let find = |files: &[Listed]| {
            let at = files.partition_point(|listed| listed.end() < end);
            // A file without records would have a walk down the list never end.
            files.get(at).copied().filter(|found| found.end() == end && found.records > 0)
        };
        let sealed = find(&self.segments).map(|listed| (Form::Sealed, listed));
        sealed.or_else(|| find(&self.packed).map(|listed| (Form::Packed, listed)))
    }

    /// The chain, if the genesis is a hash.
    pub(crate) fn identity(&self) -> Option<Identity> {
        let genesis = self.genesis.parse::<alloy_primitives::B256>().ok()?;
        Some(Identity { chain_id: self.chain_id, genesis: Hash(genesis.0) })
    }

    /// Place where an empty store begins: above a sealed segment or a packed file, so that those
    /// below come as files.
    pub(crate) fn start(&self) -> Option<u64> {
        let newest = self.segments.last().into_iter().chain(self.packed.last());
        let (head, newest) = (self.head?, newest.max_by_key(|listed| listed.base)?);
        Some(if newest.end() <= head { newest.end() } else { newest.base })
    }
}

/// Frame of the stream.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Frame {
    /// A height: the `result` of `eth_getBlockByNumber(n, true)` and of `eth_getBlockReceipts(n)`.
    Record { height: u64, block: Bytes, receipts: Bytes },
    /// The source withdrew this height and those above it.
    Withdrawn { from: u64 },
    /// No height is new: the stream is alive.
    Idle,
    /// The heights that were asked for are no longer here. Nothing follows.
    Gone,
}

/// Reason why a stream cannot be read on.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub(crate) enum Malformed {
    #[error("a frame of {0} bytes, allowed are {1}")]
    TooLong(usize, usize),
    #[error("a frame fails its checksum")]
    Checksum,
    #[error("a frame of kind {0} with {1} bytes")]
    Form(u8, usize),
}

/// Kind of a frame, and length of its payload.
const HEAD_LEN: usize = 5;
/// CRC-32 of all before it.
const CRC_LEN: usize = 4;
/// Kinds of frames.
const RECORD: u8 = 1;
const WITHDRAWN: u8 = 2;
const IDLE: u8 = 3;
const GONE: u8 = 4;

impl Frame {
    pub(crate) fn encode(&self) -> Bytes {
        match self {
            Self::Record { height, block, receipts } => record(*height, block, receipts),
            Self::Withdrawn { from } => frame(WITHDRAWN, 8, |out| out.put_u64_le(*from)),
            Self::Idle => frame(IDLE, 0, |_| {}),
            Self::Gone => frame(GONE, 0, |_| {}),
        }
    }

    /// Takes a frame from the start of `bytes`; `None` if it is not whole yet. Unknown kinds, which
    /// a later release may send, are passed by.
    pub(crate) fn decode(bytes: &mut BytesMut, max: usize) -> Result<Option<Self>, Malformed> {
        loop {
            let Some(head) = bytes.get(..HEAD_LEN) else { return Ok(None) };
            let (kind, mut len) = (head[0], &head[1..]);
            let len = len.get_u32_le() as usize;
            // Before the bytes come: the peer's number must not decide how much is kept.
            if len > max {
                return Err(Malformed::TooLong(len, max));
            }
            let whole = HEAD_LEN + len + CRC_LEN;
            if bytes.len() < whole {
                // Once for the whole frame, whose length was compared above.
                bytes.reserve(whole - bytes.len());
                return Ok(None);
            }
            let frame = bytes.split_to(whole).freeze();
            let (content, mut crc) = frame.split_at(HEAD_LEN + len);
            if crc32fast::hash(content) != crc.get_u32_le() {
                return Err(Malformed::Checksum);
            }
            let payload = frame.slice(HEAD_LEN..HEAD_LEN + len);
            if (RECORD..=GONE).contains(&kind) {
                return parse(kind, payload).map(Some).ok_or(Malformed::Form(kind, len));
            }
        }
    }
}

/// A record's frame, from texts wherever they are.
pub(crate) fn record(height: u64, block: &[u8], receipts: &[u8]) -> Bytes {
    frame(RECORD, 8 + 4 + block.len() + receipts.len(), |out| {
        out.put_u64_le(height);
        out.put_u32_le(block.len() as u32);
        out.put_slice(block);
        out.put_slice(receipts);
    })
}

fn frame(kind: u8, len: usize, payload: impl FnOnce(&mut BytesMut)) -> Bytes {
    let mut out = BytesMut::with_capacity(HEAD_LEN + len + CRC_LEN);
    out.put_u8(kind);
    out.put_u32_le(len as u32);
    payload(&mut out);
    let crc = crc32fast::hash(&out);
    out.put_u32_le(crc);
    out.freeze()
}

fn parse(kind: u8, mut payload: Bytes) -> Option<Frame> {
    match (kind, payload.len()) {
        (RECORD, 12..) => {
            let (height, block) = (payload.get_u64_le(), payload.get_u32_le() as usize);
            // The length is the sender's: a larger one would panic in `split_to`.
            let fits = block <= payload.len();
            fits.then(|| Frame::Record {
                height,
                block: payload.split_to(block),
                receipts: payload,
            })
        }
        (WITHDRAWN, 8) => Some(Frame::Withdrawn { from: payload.get_u64_le() }),
        (IDLE, 0) => Some(Frame::Idle),
        (GONE, 0) => Some(Frame::Gone),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn frames() -> Vec<Frame> {
        let record = |height, block: &'static str, receipts: &'static str| Frame::Record {
            height,
            block: Bytes::from(block),
            receipts: Bytes::from(receipts),
        };
        let withdrawn = Frame::Withdrawn { from: u64::MAX };
        vec![record(7, "{}", "[1]"), Frame::Idle, withdrawn, record(0, "", ""), Frame::Gone]
    }

    #[test]
    fn frames_come_out_as_they_went_in_however_they_are_cut() {
        let sent: Vec<u8> = frames().iter().flat_map(Frame::encode).collect();
        for step in 1..=sent.len() {
            let (mut bytes, mut got) = (BytesMut::new(), Vec::new());
            for piece in sent.chunks(step) {
                bytes.extend_from_slice(piece);
                while let Some(frame) = Frame::decode(&mut bytes, 100).unwrap() {
                    got.push(frame);
                }
            }
            assert_eq!(got, frames(), "in pieces of {step}");
        }
    }

    #[test]
    fn a_flipped_bit_is_never_another_frame() {
        let sent = frames()[0].encode();
        for bit in 0..sent.len() * 8 {
            let mut bytes = BytesMut::from(&sent[..]);
            bytes[bit / 8] ^= 1 << (bit % 8);
            let decoded = Frame::decode(&mut bytes, 100);
            assert!(!matches!(decoded, Ok(Some(_))), "bit {bit}: {decoded:?}");
        }
    }

    #[test]
    fn frame_that_is_too_long_is_refused_before_it_comes() {
        let mut bytes = BytesMut::from(&[RECORD, 101, 0, 0, 0][..]);
        assert_eq!(Frame::decode(&mut bytes, 100), Err(Malformed::TooLong(101, 100)));
    }

    #[test]
    fn kinds_of_a_later_release_are_passed_by() {
        let mut bytes = BytesMut::from(&frame(9, 3, |out| out.put_slice(b"abc"))[..]);
        bytes.extend_from_slice(&Frame::Idle.encode());
        assert_eq!(Frame::decode(&mut bytes, 100), Ok(Some(Frame::Idle)));
    }

    #[test]
    fn list_of_an_earlier_release_has_no_packed_files() {
        let text = r#"{"format":1,"chain_id":1,"genesis":"","first":0,"head":9,
            "segments":[{"base":4,"records":4}]}"#;
        let listing: Listing = serde_json::from_str(text).unwrap();
        let [sealed, packed] = [4, 0].map(|base| Listed { base, records: 4 });
        assert_eq!(listing.file_below(8), Some((Form::Sealed, sealed)));
        assert_eq!(listing.file_below(4), None);
        let both = Listing { packed: vec![packed], ..listing };
        assert_eq!(both.file_below(8), Some((Form::Sealed, sealed)));
        assert_eq!(both.file_below(4), Some((Form::Packed, packed)));
        assert_eq!([0, 3, 7, 9].map(|end| both.file_below(end)), [None; 4]);
        let empty = vec![Listed { base: 4, records: 0 }];
        assert_eq!(Listing { segments: empty, ..both }.file_below(4), Some((Form::Packed, packed)));
    }

    #[test]
    fn an_empty_store_begins_above_a_sealed_segment() {
        let listed = |files: &[(u64, u32)]| {
            files.iter().map(|&(base, records)| Listed { base, records }).collect()
        };
        let with_packed = |head, segments: &[(u64, u32)], packed: &[(u64, u32)]| Listing {
            format: 1,
            chain_id: 1,
            genesis: String::new(),
            first: head,
            head,
            segments: listed(segments),
            packed: listed(packed),
        };
        let of = |head, segments: &[(u64, u32)]| with_packed(head, segments, &[]);
        assert_eq!(of(None, &[]).start(), None);
        assert_eq!(of(Some(70), &[]).start(), None);
        assert_eq!(of(Some(70), &[(0, 32), (32, 32)]).start(), Some(64));
        assert_eq!(of(Some(63), &[(0, 32), (32, 32)]).start(), Some(32));
        assert_eq!(with_packed(Some(70), &[], &[(0, 32), (32, 32)]).start(), Some(64));
        assert_eq!(with_packed(Some(70), &[(32, 32)], &[(0, 32)]).start(), Some(64));
    }
}
