//! A line of `neve export`: the block and the receipts of a height, as they came.

use bytes::Bytes;
use neve_chain::Block;
use neve_store::Hash;
use serde::Deserialize;
use serde_json::value::RawValue;

/// The object of a line. It has no other keys.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Pair<'l> {
    #[serde(borrow)]
    block: &'l RawValue,
    #[serde(borrow)]
    receipts: &'l RawValue,
}

/// A height of the input, not proven yet.
#[derive(Debug)]
pub(super) struct ImportLine {
    /// Number of the line, from 1.
    pub(super) number: u64,
    /// The height that the block claims.
    pub(super) height: u64,
    /// The hash that the block claims.
    pub(super) hash: Hash,
    /// The texts: slices of the line, so that no byte is copied.
    pub(super) texts: (Bytes, Bytes),
}

impl ImportLine {
    /// Reads a line. Block and receipts become slices of `text`.
    ///
    /// # Errors
    /// The reason for which it is none of `neve export`.
    pub(super) fn parse(number: u64, text: &Bytes) -> Result<Self, String> {
        let no_line = |error| format!("no line of neve export: {error}");
        let pair: Pair<'_> = serde_json::from_slice(text).map_err(no_line)?;
        let slice = |part: &RawValue| text.slice_ref(part.get().as_bytes());
        let texts = (slice(pair.block), slice(pair.receipts));
        let block = Block::parse(&texts.0).map_err(|why| format!("{}: {why}", why.reason()))?;
        let (height, hash) = (block.header.number, Hash(block.hash.0));
        Ok(Self { number, height, hash, texts })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn why(text: &'static str) -> String {
        ImportLine::parse(1, &Bytes::from_static(text.as_bytes())).expect_err("it is no line")
    }

    #[test]
    fn line_of_another_form_is_refused_with_its_reason() {
        assert!(why("").contains("EOF"));
        assert!(why(r#"{"block":{}"#).contains("EOF"));
        assert!(why(r#"{"block":{}}"#).contains("missing field `receipts`"));
        assert!(why(r#"{"block":{},"receipts":[],"more":1}"#).contains("unknown field `more`"));
        assert!(why(r#"{"block":{},"receipts":[]} x"#).contains("trailing characters"));
        assert!(why(r#"{"block":null,"receipts":[]}"#).starts_with("json: "));
        let deep = "[".repeat(100_000);
        let deep = Bytes::from(format!("{{\"block\":{deep},\"receipts\":[]}}"));
        let why = ImportLine::parse(1, &deep).expect_err("it has no end");
        assert!(why.starts_with("no line of neve export"), "{why}");
    }
}
