//! Validators: tags that name the exact bytes of a response, and the check whether a client has these
//! bytes already (RFC 9110, 8.8.3 and 13).

use hyper::header::{HeaderMap, HeaderName, IF_MATCH, IF_NONE_MATCH};
use neve_record::coding::Coding;
use neve_store::RecordRef;
use neve_store::residency::Cold;

use crate::rpc::methods::BlockForm;

/// Part of a record that a document shows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Shown {
    /// The block with transactions.
    Full(BlockForm),
    /// The block with transaction hashes.
    Hashes(BlockForm),
    /// The header, without transactions.
    Header(BlockForm),
    /// The transaction at this position.
    Transaction(usize),
    /// The receipts of all transactions.
    Receipts,
    /// The receipt at this position.
    Receipt(usize),
}

/// The strong tag of a part of a record, quotes included.
///
/// A height can have other bytes later: after an upstream lied about receipts, or in another store of
/// the same chain. So the tag has the record's checksum. But a liar can choose texts with the same
/// checksum. So tags of unsettled receipts never equal those of settled ones: neve does not confirm a
/// cached lie once it has the true receipts.
pub(crate) fn tag(record: &RecordRef, shown: Shown, is_settled: bool) -> Result<String, Cold> {
    let form = |form| match form {
        BlockForm::BeforeHelicon => "",
        BlockForm::Helicon => "-helicon",
        BlockForm::Pending => "-pending",
    };
    // Of receipts alone: a block is proven when it comes.
    let proof = if is_settled { "" } else { "-unsettled" };
    let what = match shown {
        Shown::Full(of) => format!("full{}", form(of)),
        Shown::Hashes(of) => format!("hashes{}", form(of)),
        Shown::Header(of) => format!("header{}", form(of)),
        Shown::Transaction(at) => format!("tx-{at}"),
        Shown::Receipts => format!("receipts{proof}"),
        Shown::Receipt(at) => format!("receipt-{at}{proof}"),
    };
    Ok(format!("\"{}-{what}-{:08x}\"", record.header()?.hash, record.checksum()))
}

/// The tag of the same in a content coding: other bytes, and so another strong tag (RFC 9110,
/// 8.8.3.3).
pub(crate) fn coded_tag(tag: &str, coding: Option<Coding>) -> String {
    match (coding, tag.strip_suffix('"')) {
        (Some(coding), Some(open)) => format!("{open}-{}\"", coding.name()),
        _ => tag.to_owned(),
    }
}

/// Result of a request's conditions for a document that exists and has a tag.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Condition {
    /// The document is sent.
    Met,
    /// The client has it.
    NotModified,
    /// The client wants something else or nothing.
    Failed,
}

/// Looks at the conditions in the order of RFC 9110, 13.2.2. There are no dates, so conditions
/// with dates mean nothing here.
pub(crate) fn condition(headers: &HeaderMap, tag: &str) -> Condition {
    if headers.contains_key(IF_MATCH) && !lists(headers, &IF_MATCH, tag, Comparison::Strong) {
        Condition::Failed
    } else if lists(headers, &IF_NONE_MATCH, tag, Comparison::Weak) {
        Condition::NotModified
    } else {
        Condition::Met
    }
}

/// Comparison of tags (RFC 9110, 8.8.3.2).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Comparison {
    /// Weak tags equal nothing.
    Strong,
    /// Weak tags are as good as others.
    Weak,
}

/// True if a header lists `tag`, or `*`.
fn lists(headers: &HeaderMap, name: &HeaderName, tag: &str, by: Comparison) -> bool {
    headers.get_all(name).iter().any(|list| is_in(list.as_bytes(), tag.as_bytes(), by))
}

/// True if `tag` is in a list, which counts up to its first mistake.
fn is_in(list: &[u8], tag: &[u8], by: Comparison) -> bool {
    if list.trim_ascii() == b"*" {
        return true;
    }
    let mut rest = list;
    loop {
        let start = rest.iter().position(|byte| !matches!(byte, b',' | b' ' | b'\t'));
        rest = &rest[start.unwrap_or(rest.len())..];
        let weak = rest.strip_prefix(b"W/");
        let quoted = weak.unwrap_or(rest);
        // A tag has no quotes inside and no escapes.
        let end = quoted.iter().skip(1).position(|byte| *byte == b'"');
        let (Some(b'"'), Some(end)) = (quoted.first(), end) else { return false };
        let (found, behind) = quoted.split_at(end + 2);
        if found == tag && (weak.is_none() || by == Comparison::Weak) {
            return true;
        }
        rest = behind;
    }
}

#[cfg(test)]
mod tests {
    use hyper::header::HeaderValue;

    use super::*;

    const TAG: &str = "\"a,b\"";

    fn asked(conditions: &[(HeaderName, &'static str)]) -> Condition {
        let mut headers = HeaderMap::new();
        for (name, value) in conditions {
            headers.append(name, HeaderValue::from_static(value));
        }
        condition(&headers, TAG)
    }

    #[test]
    fn a_coding_has_a_tag_of_its_own() {
        assert_eq!(coded_tag(TAG, None), TAG);
        assert_eq!(coded_tag(TAG, Some(Coding::Gzip)), "\"a,b-gzip\"");
        assert_eq!(coded_tag(TAG, Some(Coding::Zstd)), "\"a,b-zstd\"");
    }

    #[test]
    fn client_with_the_same_etag_gets_304() {
        for list in [
            "*",
            " * ",
            "\"a,b\"",
            "W/\"a,b\"",
            "\"x\", \"a,b\"",
            ",, W/\"x\",\t\"a,b\" ,",
            "\"\",\"a,b\"",
            "\"x\"\"a,b\"",
        ] {
            assert_eq!(asked(&[(IF_NONE_MATCH, list)]), Condition::NotModified, "{list}");
        }
        let lines = [(IF_NONE_MATCH, "\"x\""), (IF_NONE_MATCH, "\"a,b\"")];
        assert_eq!(asked(&lines), Condition::NotModified);
    }

    #[test]
    fn etag_that_does_not_match_gets_the_document() {
        for list in [
            "",
            "a,b",
            "\"a\"",
            "\"a,b",
            "a,b\"",
            "w/\"a,b\"",
            "\"A,B\"",
            "**",
            "x, \"a,b\"",
            "W/",
            "\"",
            "\"x\", *",
        ] {
            assert_eq!(asked(&[(IF_NONE_MATCH, list)]), Condition::Met, "{list}");
        }
        assert_eq!(asked(&[]), Condition::Met);
    }

    #[test]
    fn if_match_of_another_etag_fails() {
        for list in ["\"x\"", "W/\"a,b\"", "a", ""] {
            assert_eq!(asked(&[(IF_MATCH, list)]), Condition::Failed, "{list}");
        }
        for list in ["*", "W/\"a,b\", \"a,b\""] {
            assert_eq!(asked(&[(IF_MATCH, list)]), Condition::Met, "{list}");
        }
        let both = [(IF_NONE_MATCH, "*"), (IF_MATCH, "\"x\"")];
        assert_eq!(asked(&both), Condition::Failed);
    }
}
