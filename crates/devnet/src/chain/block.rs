//! A block of the chain, and the answers about it.

use std::ops::Range;

use alloy_primitives::B256;
use bytes::Bytes;
use neve_chain::Header;
use neve_jsonrpc::Rules;

use crate::chain::text::{Layout, Text, Version, head_text};

/// A block with everything that is answered about it.
#[derive(Clone, Debug)]
pub struct Block {
    pub(super) header: Header,
    pub(super) hash: B256,
    pub(super) transactions: Vec<B256>,
    /// Tip of each transaction on top of the header's base fee.
    pub(super) tips: Vec<u128>,
    /// The answer to `eth_getBlockByNumber(.., true)` before Helicon.
    pub(super) text: Bytes,
    pub(super) layout: Layout,
    /// The answer to `eth_getBlockReceipts`.
    pub(super) receipts: Bytes,
    pub(super) receipt_spans: Vec<Range<usize>>,
}

/// Form in which a response shows a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Part {
    /// The block with whole transactions.
    Full,
    /// Transactions as hashes.
    Hashes,
    /// Header of the block.
    Header,
}

impl Block {
    /// Height of the block.
    pub fn number(&self) -> u64 {
        self.header.number
    }

    /// Hash of the block.
    pub fn hash(&self) -> B256 {
        self.hash
    }

    /// Header of the block.
    pub fn header(&self) -> &Header {
        &self.header
    }

    /// Hashes of the transactions.
    pub fn transactions(&self) -> &[B256] {
        &self.transactions
    }

    /// Tip of each transaction on top of the header's base fee.
    pub(crate) fn tips(&self) -> &[u128] {
        &self.tips
    }

    /// The answer to `eth_getBlockByNumber` or `eth_getHeaderByNumber`.
    pub fn answer(&self, part: Part, rules: Rules) -> Vec<u8> {
        let mut out = Vec::with_capacity(self.text.len() + 8);
        self.append(&mut out, part, rules, false);
        out
    }

    /// The answer to `eth_getBlockReceipts`.
    pub fn receipts(&self) -> &Bytes {
        &self.receipts
    }

    /// The answer about a transaction.
    pub fn transaction(&self, index: usize) -> Option<Bytes> {
        self.layout.each.get(index).map(|span| self.text.slice(span.clone()))
    }

    /// The answer about a receipt.
    pub fn receipt(&self, index: usize) -> Option<Bytes> {
        self.receipt_spans.get(index).map(|span| self.receipts.slice(span.clone()))
    }

    /// The header as `newHeads` shows it.
    pub fn head(&self, version: Version) -> Vec<u8> {
        head_text::write(&self.header, self.hash, version)
    }

    pub(crate) fn text(&self) -> &Bytes {
        &self.text
    }

    /// Returns the block with another text, in which everything stands where it stood; `None` if
    /// it is not as long.
    pub(crate) fn with_text(&self, text: Vec<u8>) -> Option<Self> {
        let fits = text.len() == self.text.len();
        fits.then(|| Self { text: text.into(), ..self.clone() })
    }

    /// Returns the block with another text of the receipts.
    pub(crate) fn with_receipts(&self, receipts: Vec<u8>) -> Option<Self> {
        let fits = receipts.len() == self.receipts.len();
        fits.then(|| Self { receipts: receipts.into(), ..self.clone() })
    }

    /// Bytes that it takes, roughly.
    pub(crate) fn bytes(&self) -> usize {
        let spans = size_of::<Range<usize>>() * (self.layout.each.len() + self.receipt_spans.len());
        self.text.len() + self.receipts.len() + spans + 48 * self.transactions.len() + 1_024
    }

    /// Appends an answer. `pending` is how Helicon shows a block under that name: as if it were
    /// not decided yet.
    pub(crate) fn append(&self, out: &mut Vec<u8>, part: Part, rules: Rules, pending: bool) {
        let layout = &self.layout;
        let header = part == Part::Header;
        let mut cut = Cut { text: &self.text, at: 0, out };
        if header {
            cut.replace(&layout.ext_data, b"");
        }
        if pending {
            for span in [&layout.hash, &layout.miner, &layout.nonce] {
                cut.replace(span, b"null");
            }
        }
        if header {
            cut.replace(&layout.size, b"");
        }
        if rules == Rules::Helicon {
            // A node of Helicon has no total difficulty, and shows zero for every block.
            cut.replace(&layout.total_difficulty, b"\"0x0\"");
        }
        self.cut_transactions(part, &mut cut);
        cut.rest();
    }

    /// Cuts the transactions, and the uncles behind them, to a form.
    fn cut_transactions(&self, part: Part, cut: &mut Cut<'_>) {
        let layout = &self.layout;
        match part {
            Part::Full => {}
            Part::Hashes => cut.replace(&layout.list, &self.hashes()),
            Part::Header => {
                cut.replace(&layout.transactions, b"");
                cut.replace(&layout.uncles, b"");
            }
        }
    }

    fn hashes(&self) -> Vec<u8> {
        let mut text = Text::with_capacity(70 * self.transactions.len() + 2);
        text.list(&self.transactions, Text::bytes);
        text.into_bytes()
    }
}

/// A text with slices replaced, from front to back.
struct Cut<'c> {
    text: &'c [u8],
    at: usize,
    out: &'c mut Vec<u8>,
}

impl Cut<'_> {
    fn replace(&mut self, span: &Range<usize>, by: &[u8]) {
        self.out.extend_from_slice(self.text.get(self.at..span.start).unwrap_or_default());
        self.out.extend_from_slice(by);
        self.at = span.end;
    }

    fn rest(self) {
        self.out.extend_from_slice(self.text.get(self.at..).unwrap_or_default());
    }
}
