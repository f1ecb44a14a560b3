//! Reads of one height: every text that a node has for it.

use std::borrow::Cow;
use std::sync::Arc;

use alloy_primitives::B256;

use crate::error::{PackedError, Reason};
use crate::frames::frame::Frame;
use crate::frames::model::Model;
use crate::read::fields::Fields;
use crate::read::log_out::LogOut;
use crate::read::text::{Texts, TotalDifficulty};

/// Form of a height in its frame: the frame's first byte.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Form {
    /// Fields, against the tables of the file.
    Fields = 0,
    /// Block and receipts as they came.
    Texts = 2,
}

/// A height of a packed file, with its checked frame.
///
/// Each method appends exactly the node's bytes to `out`. After an error `out` may have some of
/// them. A method unpacks only the part of the frame that it needs.
#[derive(Debug)]
pub struct PackedHeight<'f> {
    pub(crate) height: u64,
    pub(crate) hash: B256,
    pub(crate) parent: B256,
    pub(crate) frame: Cow<'f, [u8]>,
    pub(crate) model: Arc<Model>,
}

/// A frame by its form.
enum Body<'h> {
    Fields(Fields<'h>),
    Texts(Texts),
}

impl PackedHeight<'_> {
    /// Returns the height.
    pub fn height(&self) -> u64 {
        self.height
    }

    /// Returns the block's hash.
    pub fn hash(&self) -> B256 {
        self.hash
    }

    /// Returns the hash of the block before.
    pub fn parent(&self) -> B256 {
        self.parent
    }

    fn body(&self, total: TotalDifficulty) -> Result<Body<'_>, PackedError> {
        match self.frame.split_first() {
            Some((form, frame)) if *form == Form::Fields as u8 => {
                let Self { height, hash, parent, model, .. } = self;
                let frame = Frame::read(frame)?;
                Ok(Body::Fields(Fields::new(*height, hash, parent, model, frame)))
            }
            Some((form, frame)) if *form == Form::Texts as u8 => {
                Texts::read(frame, self.height, total).map(Body::Texts)
            }
            _ => Err(UNKNOWN_FORM),
        }
    }

    /// True if a part of the height is stored as it came.
    pub fn is_text(&self) -> bool {
        self.texts().is_some()
    }

    /// Returns the bytes behind the form of a frame in text form.
    fn texts(&self) -> Option<&[u8]> {
        let (form, frame) = self.frame.split_first()?;
        (*form == Form::Texts as u8).then_some(frame)
    }

    /// Returns the hashes of the transactions, in order. Receipts stay packed.
    pub fn transaction_hashes(&self) -> Result<Vec<B256>, PackedError> {
        match self.body(ANY)? {
            Body::Fields(fields) => fields.hashes(),
            Body::Texts(texts) => texts.hashes(),
        }
    }

    /// Counts the transactions and the logs.
    pub fn counts(&self) -> Result<(usize, usize), PackedError> {
        match self.frame.split_first() {
            Some((form, frame)) if *form == Form::Fields as u8 => {
                let Frame { txs, logs, .. } = Frame::read(frame)?;
                Ok((txs, logs))
            }
            Some((form, frame)) if *form == Form::Texts as u8 => {
                Texts::read(frame, self.height, ANY)?.counts()
            }
            _ => Err(UNKNOWN_FORM),
        }
    }

    /// Returns the bytes that the height has unpacked, before any text is made of them.
    pub fn unpacked_len(&self) -> Result<usize, PackedError> {
        match self.frame.split_first() {
            Some((form, frame)) if *form == Form::Texts as u8 => Texts::len(frame),
            Some((form, frame)) if *form == Form::Fields as u8 => {
                Ok(Frame::read(frame)?.unpacked_len())
            }
            _ => Err(UNKNOWN_FORM),
        }
    }

    /// Appends the `result` of `eth_getBlockByNumber(n, true)`.
    pub fn block(&self, total: TotalDifficulty, out: &mut Vec<u8>) -> Result<(), PackedError> {
        // `body` would unpack the receipts, too.
        if let Some(frame) = self.texts() {
            put_text(out, Texts::read_block(frame, self.height, total)?);
        } else if let Body::Fields(fields) = self.body(total)? {
            fields.block(total, out)?;
        }
        Ok(())
    }

    /// Appends the `result` of `eth_getBlockByNumber(n, false)`.
    pub fn block_with_hashes(
        &self,
        total: TotalDifficulty,
        out: &mut Vec<u8>,
    ) -> Result<(), PackedError> {
        match self.body(total)? {
            Body::Fields(fields) => fields.with_hashes(total, out),
            Body::Texts(texts) => texts.with_hashes(out),
        }
    }

    /// Appends the `result` of `eth_getHeaderByNumber(n)`.
    pub fn header(&self, total: TotalDifficulty, out: &mut Vec<u8>) -> Result<(), PackedError> {
        match self.body(total)? {
            Body::Fields(fields) => fields.header(total, out),
            Body::Texts(texts) => texts.header(out),
        }
    }

    /// Appends the `result` of `eth_getBlockReceipts(n)`.
    pub fn receipts(&self, out: &mut Vec<u8>) -> Result<(), PackedError> {
        if let Some(frame) = self.texts() {
            // `body` would unpack the block, too.
            put_text(out, Texts::read_receipts(frame)?);
        } else if let Body::Fields(fields) = self.body(ANY)? {
            fields.receipts(out)?;
        }
        Ok(())
    }

    /// Appends the receipt of transaction `at`; returns false if the block has no such transaction.
    pub fn receipt(&self, at: usize, out: &mut Vec<u8>) -> Result<bool, PackedError> {
        self.receipt_of(at, None, out)
    }

    /// Appends the receipt of transaction `at` unless its hash is another than `hash`.
    pub fn receipt_of(
        &self,
        at: usize,
        hash: Option<&B256>,
        out: &mut Vec<u8>,
    ) -> Result<bool, PackedError> {
        match self.body(ANY)? {
            Body::Fields(fields) => fields.receipt(at, hash, out),
            Body::Texts(texts) => Ok(texts.has(at, hash)? && texts.receipt(at, out)?),
        }
    }

    /// Appends transaction `at` as the block has it; returns false if there is none.
    pub fn transaction(&self, at: usize, out: &mut Vec<u8>) -> Result<bool, PackedError> {
        self.transaction_of(at, None, out)
    }

    /// Appends transaction `at` unless its hash is another than `hash`.
    pub fn transaction_of(
        &self,
        at: usize,
        hash: Option<&B256>,
        out: &mut Vec<u8>,
    ) -> Result<bool, PackedError> {
        match self.body(ANY)? {
            Body::Fields(fields) => fields.transaction(at, hash, out),
            Body::Texts(texts) => Ok(texts.has(at, hash)? && texts.transaction(at, out)?),
        }
    }

    /// Calls `each` with the place of each transaction, its text and that of its receipt, as [`Self::transaction`] and
    /// [`Self::receipt`] make them. A height in text form has none of its own: its texts are cut out of the node's.
    pub(crate) fn ones(
        &self,
        each: impl FnMut(usize, &[u8], &[u8]) -> Result<(), Reason>,
    ) -> Result<Result<(), Reason>, PackedError> {
        match self.body(ANY)? {
            Body::Fields(fields) => fields.ones(each),
            Body::Texts(_) => Ok(Ok(())),
        }
    }

    /// Returns the hash of transaction `at`, if there is one.
    pub fn transaction_hash(&self, at: usize) -> Result<Option<B256>, PackedError> {
        match self.body(ANY)? {
            Body::Fields(fields) => fields.transaction_hash(at),
            Body::Texts(texts) => Ok(texts.hash(at)?.map(B256::new)),
        }
    }

    /// Finds the logs of the height whose address and topics `matches` accepts, in their order.
    pub fn logs(
        &self,
        matches: impl FnMut(&[u8; 20], &[[u8; 32]]) -> bool,
        out: &mut LogOut,
    ) -> Result<(), PackedError> {
        match self.body(ANY)? {
            Body::Fields(fields) => fields.logs(matches, out),
            Body::Texts(texts) => texts.logs(matches, out),
        }
    }
}

/// Appends a text, without a copy if nothing stands before it.
fn put_text(out: &mut Vec<u8>, text: Vec<u8>) {
    if out.is_empty() { *out = text } else { out.extend_from_slice(&text) }
}

const UNKNOWN_FORM: PackedError =
    PackedError::Malformed { place: "frame", what: "an unknown form" };

/// Either form will do: the value is not in what is read.
const ANY: TotalDifficulty = TotalDifficulty::Zero;
