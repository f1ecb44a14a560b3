//! Results in which the text is wrong.

use bytes::Bytes;
use neve_jsonrpc::Query;

use super::fault::Fault;

/// Returns the result as a fault changes it, unless it leaves such results as they are.
pub(crate) fn edit(fault: &Fault, query: &Query, result: &[u8]) -> Option<Bytes> {
    edited(fault, query, result).map(Bytes::from)
}

fn edited(fault: &Fault, query: &Query, result: &[u8]) -> Option<Vec<u8>> {
    match (fault, query) {
        (Fault::NullBlock, Query::Block(..)) | (Fault::NullReceipts, Query::Receipts(_)) => {
            Some(b"null".to_vec())
        }
        (Fault::MissingReceipt, Query::Receipts(_)) => without_last(result),
        (Fault::WrongChainId, Query::ChainId) => Some(b"\"0xdead\"".to_vec()),
        (Fault::WrongChainId, Query::NetVersion) => Some(b"\"57005\"".to_vec()),
        (Fault::Whitespace, _) => with_space(result),
        (Fault::KeyOrder, _) => swapped(result),
        _ => None,
    }
}

/// Returns any result as a fault changes it, unless it leaves such results as they are.
pub(crate) fn forged(fault: &Fault, method: &str, result: &[u8]) -> Option<Bytes> {
    let forged = match fault {
        Fault::Replaced(from, to) => replaced(result, from, to)?,
        Fault::Result(text) => text.as_bytes().to_vec(),
        Fault::FalseHead(ahead) if method == "eth_blockNumber" => {
            let head = raised(std::str::from_utf8(result).ok()?.trim_matches('"'), *ahead)?;
            format!("\"{head}\"").into()
        }
        _ => return None,
    };
    Some(forged.into())
}

/// A head as a subscriber gets it, with a number that is so much higher.
pub(crate) fn false_head(head: &[u8], ahead: u64) -> Option<Vec<u8>> {
    let text = std::str::from_utf8(head).ok()?;
    let (before, number) = text.split_once("\"number\":\"")?;
    let (number, after) = number.split_once('"')?;
    let number = raised(number, ahead)?;
    Some(format!("{before}\"number\":\"{number}\"{after}").into())
}

fn raised(quantity: &str, by: u64) -> Option<String> {
    let number = u64::from_str_radix(quantity.strip_prefix("0x")?, 16).ok()?;
    Some(format!("{:#x}", number.checked_add(by)?))
}

fn replaced(result: &[u8], from: &str, to: &str) -> Option<Vec<u8>> {
    let at = result.windows(from.len()).position(|text| text == from.as_bytes())?;
    Some([&result[..at], to.as_bytes(), &result[at + from.len()..]].concat())
}

/// A list of receipts without the last one.
fn without_last(list: &[u8]) -> Option<Vec<u8>> {
    let last = b"{\"blockHash\":";
    // The members of a log begin otherwise.
    let start = (0..list.len()).rfind(|at| list[*at..].starts_with(last))?;
    let kept = list.get(..start)?;
    Some([kept.strip_suffix(b",").unwrap_or(kept), b"]"].concat())
}

/// Adds a space behind the first brace.
fn with_space(result: &[u8]) -> Option<Vec<u8>> {
    let brace = result.iter().position(|byte| *byte == b'{')?;
    let (head, tail) = result.split_at_checked(brace + 1)?;
    Some([head, b" ", tail].concat())
}

/// Swaps the first two members of the first object. Both are strings.
fn swapped(result: &[u8]) -> Option<Vec<u8>> {
    let start = result.iter().position(|byte| *byte == b'{')? + 1;
    let comma = |from: usize| Some(from + result.get(from..)?.iter().position(|b| *b == b',')?);
    let first = comma(start)?;
    let second = comma(first + 1)?;
    let pieces = [
        &result[..start],
        &result[first + 1..second],
        b",",
        &result[start..first],
        &result[second..],
    ];
    Some(pieces.concat())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(edited: Option<Vec<u8>>) -> Option<String> {
        edited.map(|text| String::from_utf8(text).unwrap())
    }

    #[test]
    fn the_last_receipt_is_gone() {
        let list = br#"[{"blockHash":"0x1","logs":[{"address":"0x"}]},{"blockHash":"0x1"}]"#;
        let shorter = text(without_last(list)).unwrap();
        assert_eq!(shorter, r#"[{"blockHash":"0x1","logs":[{"address":"0x"}]}]"#);
        assert_eq!(text(without_last(shorter.as_bytes())).unwrap(), "[]");
        assert_eq!(without_last(b"[]"), None);
    }

    #[test]
    fn forged_results_are_what_the_fault_says() {
        let forged = |fault: Fault, method: &str, result: &str| {
            forged(&fault, method, result.as_bytes())
                .map(|text| String::from_utf8(text.to_vec()).unwrap())
        };
        let replaced = Fault::Replaced("\"b\":", "\"B\":");
        assert_eq!(forged(replaced.clone(), "m", r#"{"b":1,"b":2}"#).unwrap(), r#"{"B":1,"b":2}"#);
        assert_eq!(forged(replaced, "m", "{}"), None);
        assert_eq!(forged(Fault::Result("x".into()), "m", "{}").unwrap(), "x");
        assert_eq!(forged(Fault::FalseHead(2), "eth_blockNumber", "\"0xf\"").unwrap(), "\"0x11\"");
        assert_eq!(forged(Fault::FalseHead(2), "eth_chainId", "\"0xf\""), None);
        let head = false_head(br#"{"a":"0x1","number":"0x1","b":"0x1"}"#, 15);
        assert_eq!(text(head).unwrap(), r#"{"a":"0x1","number":"0x10","b":"0x1"}"#);
    }

    #[test]
    fn the_layout_is_another() {
        assert_eq!(text(with_space(br#"[{"a":1}]"#)).unwrap(), r#"[{ "a":1}]"#);
        assert_eq!(with_space(b"null"), None);
        let swapped = |result: &str| text(swapped(result.as_bytes()));
        assert_eq!(swapped(r#"{"a":1,"b":2,"c":3}"#).unwrap(), r#"{"b":2,"a":1,"c":3}"#);
        assert_eq!(swapped("null"), None);
        assert_eq!(swapped(r#"{"a":1}"#), None);
    }
}
