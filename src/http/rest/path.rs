//! Paths under `/v1/`. Every document has as few addresses as possible: to a cache
//! each is another one.

use alloy_primitives::hex;
use neve_jsonrpc::{BlockId, Tag};

use crate::http::admit::{REST, decode};

/// Document that a path names.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Resource {
    /// The description of all this.
    OpenApi,
    /// A block with transactions.
    Full(BlockId),
    /// A block with transaction hashes.
    Hashes(BlockId),
    /// A header, without transactions.
    Header(BlockId),
    /// A block's receipts.
    Receipts(BlockId),
    /// A transaction, by its hash.
    Transaction([u8; 32]),
    /// A transaction's receipt, by the transaction's hash.
    Receipt([u8; 32]),
}

/// Fault of a path.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum PathError {
    /// There is no such path.
    Path,
    /// That is no block.
    Block,
    /// That is no hash.
    Hash,
    /// The query has something else than it may have, for a block or for anything else.
    Query {
        /// True if it is a block that is asked for.
        of_block: bool,
    },
}

impl PathError {
    /// Message with the allowed forms.
    pub(crate) fn message(self) -> &'static str {
        match self {
            Self::Path => {
                "no such path: there are /v1/block/, /v1/header/ and /v1/receipts/ with a height, \
                 hash or tag, /v1/tx/ and /v1/receipt/ with a transaction hash, and \
                 /v1/openapi.json"
            }
            Self::Block => {
                "invalid block: up to 18 decimal digits, or 0x and up to 15 hexadecimal ones, \
                 neither with leading zeros; 0x and the 64 digits of a hash; or a tag: earliest, \
                 latest, pending, safe and finalized"
            }
            Self::Hash => "invalid transaction hash: 0x and 64 hexadecimal digits",
            Self::Query { of_block: true } => {
                "invalid query: one parameter, transactions=full or transactions=hashes, or none"
            }
            Self::Query { of_block: false } => "invalid query: there are no parameters here",
        }
    }
}

/// Kind of a path, and the rest of it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ParsedPath {
    kind: ResourceKind,
    value: String,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ResourceKind {
    OpenApi,
    Block,
    Header,
    Receipts,
    Transaction,
    Receipt,
}

impl ParsedPath {
    /// Takes a path as it stands in a request line.
    pub(crate) fn of(path: &str) -> Result<Self, PathError> {
        // What is badly encoded is none of the values below.
        let path = decode(path).unwrap_or_else(|| path.to_owned());
        let document = path.strip_prefix(REST).ok_or(PathError::Path)?;
        if document == "openapi.json" {
            return Ok(Self { kind: ResourceKind::OpenApi, value: String::new() });
        }
        let (kind, value) = document.split_once('/').ok_or(PathError::Path)?;
        let kind = match kind {
            "block" => ResourceKind::Block,
            "header" => ResourceKind::Header,
            "receipts" => ResourceKind::Receipts,
            "tx" => ResourceKind::Transaction,
            "receipt" => ResourceKind::Receipt,
            _ => return Err(PathError::Path),
        };
        Ok(Self { kind, value: value.to_owned() })
    }

    /// Returns the document that the path and its query name.
    pub(crate) fn asked(&self, query: Option<&str>) -> Result<Resource, PathError> {
        let block = || block(&self.value).ok_or(PathError::Block);
        let transaction = || hash(&self.value).ok_or(PathError::Hash);
        let asked = match self.kind {
            ResourceKind::OpenApi => Resource::OpenApi,
            ResourceKind::Block => return with_transactions(block()?, query),
            ResourceKind::Header => Resource::Header(block()?),
            ResourceKind::Receipts => Resource::Receipts(block()?),
            ResourceKind::Transaction => Resource::Transaction(transaction()?),
            ResourceKind::Receipt => Resource::Receipt(transaction()?),
        };
        let none = query.is_none_or(str::is_empty);
        none.then_some(asked).ok_or(PathError::Query { of_block: false })
    }
}

fn with_transactions(at: BlockId, query: Option<&str>) -> Result<Resource, PathError> {
    match query.unwrap_or_default() {
        "" | "transactions=full" => Ok(Resource::Full(at)),
        "transactions=hashes" => Ok(Resource::Hashes(at)),
        _ => Err(PathError::Query { of_block: true }),
    }
}

/// The tag `accepted` is not here: it was `latest`, and ended with Helicon.
fn block(text: &str) -> Option<BlockId> {
    hash(text).map(BlockId::Hash).or_else(|| height(text).map(BlockId::Number)).or_else(|| {
        let tag = match text {
            "latest" => Tag::Latest,
            "pending" => Tag::Pending,
            "safe" => Tag::Safe,
            "finalized" => Tag::Finalized,
            "earliest" => Tag::Earliest,
            _ => return None,
        };
        Some(BlockId::Tag(tag))
    })
}

/// A height in one of its two spellings. The lengths keep it below 2^60.
fn height(text: &str) -> Option<u64> {
    let (digits, radix, len_max) = match text.strip_prefix("0x") {
        Some(digits) => (digits, 16, 15),
        None => (text, 10, 18),
    };
    // `from_str_radix` takes a sign and leading zeros: a second address of one document.
    let plain = digits == "0" || !digits.starts_with('0');
    let good = plain && digits.len() <= len_max && digits.bytes().all(|b| b.is_ascii_hexdigit());
    u64::from_str_radix(digits, radix).ok().filter(|_| good)
}

fn hash(text: &str) -> Option<[u8; 32]> {
    let digits = text.strip_prefix("0x").filter(|digits| digits.len() == 64)?;
    hex::decode_to_array(digits).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ask(path: &str, query: Option<&str>) -> Result<Resource, PathError> {
        ParsedPath::of(path)?.asked(query)
    }

    #[test]
    fn blocks_have_heights_hashes_and_tags() {
        for (text, at) in [
            ("0", BlockId::Number(0)),
            ("0x0", BlockId::Number(0)),
            ("339", BlockId::Number(339)),
            ("0x1f", BlockId::Number(31)),
            ("0x1F", BlockId::Number(31)),
            ("%30x1f", BlockId::Number(31)),
            ("999999999999999999", BlockId::Number(999_999_999_999_999_999)),
            ("0xfffffffffffffff", BlockId::Number(0xfff_ffff_ffff_ffff)),
            ("finalized", BlockId::Tag(Tag::Finalized)),
        ] {
            assert_eq!(
                ask(&format!("/v1/header/{text}"), None),
                Ok(Resource::Header(at)),
                "{text}"
            );
        }
        let text = format!("/v1/receipts/0x{}", "aB".repeat(32));
        assert_eq!(ask(&text, Some("")), Ok(Resource::Receipts(BlockId::Hash([0xab; 32]))));
    }

    #[test]
    fn malformed_block_is_refused() {
        let long = format!("0x{}", "1".repeat(63));
        for text in [
            "",
            "-1",
            "+1",
            "01",
            "00",
            "0x",
            "0x01",
            "0X1",
            "0x+1",
            "0xg",
            "1f",
            " 1",
            "1 ",
            "1_0",
            "%zz",
            "%ff",
            "%",
            "1/",
            "/1",
            "Latest",
            "accepted",
            "1000000000000000000",
            "0x1000000000000000",
            &long,
            "٣",
        ] {
            assert_eq!(ask(&format!("/v1/block/{text}"), None), Err(PathError::Block), "{text}");
        }
        for text in ["1", "latest", &long] {
            assert_eq!(ask(&format!("/v1/tx/{text}"), None), Err(PathError::Hash));
        }
    }

    #[test]
    fn a_query_says_one_thing_or_nothing() {
        let at = BlockId::Number(1);
        for (query, asked) in [
            ("", Resource::Full(at)),
            ("transactions=full", Resource::Full(at)),
            ("transactions=hashes", Resource::Hashes(at)),
        ] {
            assert_eq!(ask("/v1/block/1", Some(query)), Ok(asked));
        }
        for query in ["transactions", "transactions=", "transactions=full&transactions=full", "x=1"]
        {
            assert_eq!(ask("/v1/block/1", Some(query)), Err(PathError::Query { of_block: true }));
        }
        let other = ask("/v1/header/1", Some("transactions=full"));
        assert_eq!(other, Err(PathError::Query { of_block: false }));
    }

    #[test]
    fn other_paths_are_none() {
        for path in ["/v1/", "/v1/block", "/v1/blocks/1", "/v1/openapi.json/", "/v1//block/1"] {
            assert_eq!(ask(path, None), Err(PathError::Path), "{path}");
        }
        assert_eq!(ask("/v1/openapi.json", None), Ok(Resource::OpenApi));
    }
}
