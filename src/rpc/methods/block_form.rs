//! Forms of a block or header: some values depend on the upstream's rules, and differ from the
//! stored text.

use neve_jsonrpc::{BlockId, Rules, Tag};
use neve_record::parts::FLAG_ZERO_DIFFICULTY;
use neve_record::spans::{HASH_LEN, MINER_LEN, NONCE_LEN, SpansRef};
use neve_store::residency::Cold;
use neve_store::{RecordRef, SegmentSlice};

use super::miss::{Miss, NotRead};
use super::stored::{part, spans};
use crate::body::BodyBuilder;
use crate::shared::Serving;

/// Form in which a block or header is shown.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum BlockForm {
    /// With its height as total difficulty.
    BeforeHelicon,
    /// With a total difficulty of zero.
    Helicon,
    /// The form of Helicon without values that are not decided yet, as v1.15 shows the pending
    /// block.
    Pending,
}

impl BlockForm {
    pub(crate) fn of(serving: &Serving, at: BlockId) -> Self {
        match serving.rules() {
            Rules::BeforeHelicon => Self::BeforeHelicon,
            Rules::Helicon if at == BlockId::Tag(Tag::Pending) => Self::Pending,
            Rules::Helicon => Self::Helicon,
        }
    }

    /// Total difficulty of a block in this form, as JSON.
    fn total_difficulty(self, height: u64) -> String {
        let difficulty = if self == Self::BeforeHelicon { height } else { 0 };
        format!("\"{difficulty:#x}\"")
    }
}

/// A block or header in this form.
pub(crate) fn block_of(
    record: &RecordRef,
    which: usize,
    form: BlockForm,
    out: &mut BodyBuilder,
) -> Result<(), NotRead> {
    let whole = part(record, which)?;
    let zero = record.flags() & FLAG_ZERO_DIFFICULTY != 0;
    if zero == (form != BlockForm::BeforeHelicon) && form != BlockForm::Pending {
        return Ok(out.part(record, which, whole)?); // nearly always: stored in this form
    }
    let unreadable = Miss::Unreadable(record.height());
    let pieces = SpansRef(&spans(record)?).pieces(which).ok_or(unreadable)?;
    let mut cut = Cut { whole, at: 0, out };
    if form == BlockForm::Pending {
        cut.replace(pieces.hash, HASH_LEN, "null")?;
        cut.replace(pieces.miner, MINER_LEN, "null")?;
        cut.replace(pieces.nonce, NONCE_LEN, "null")?;
    }
    let difficulty = form.total_difficulty(record.height());
    cut.replace(pieces.total_difficulty, pieces.total_difficulty_len, &difficulty)?;
    Ok(cut.rest()?)
}

/// A stored part with some values replaced, from front to back. The keys of a block answer are
/// sorted, so the values come in this order too: hash, miner, nonce, totalDifficulty.
struct Cut<'o> {
    whole: SegmentSlice,
    at: u32,
    out: &'o mut BodyBuilder,
}

impl Cut<'_> {
    fn replace(&mut self, at: u32, len: u32, by: &str) -> Result<(), Cold> {
        self.out.stored(self.whole.slice(self.at, at))?;
        self.out.text().extend_from_slice(by.as_bytes());
        self.at = at + len;
        Ok(())
    }

    fn rest(self) -> Result<(), Cold> {
        self.out.stored(self.whole.slice(self.at, u32::MAX))
    }
}
