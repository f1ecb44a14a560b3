//! The JSON type of each result that only the upstream knows.
//!
//! Nothing proves these results. A result that is no JSON could end the envelope around it and
//! forge the rest of a response, so each is parsed, and has the type that its method gives.

use std::collections::HashSet;
use std::fmt;

use serde::de::{DeserializeSeed, Deserializer, Error, MapAccess, SeqAccess, Visitor};

/// Reason why a result is not relayed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Unfit {
    /// Longer than `--relayed-bytes-max`.
    TooLong,
    /// No JSON, or an object in which two keys differ in case at most.
    Malformed,
    /// JSON of another type than the method's.
    OtherType,
}

impl Unfit {
    /// Label of the metric.
    pub(crate) fn reason(self) -> &'static str {
        match self {
            Self::TooLong => "too_large",
            Self::Malformed => "malformed",
            Self::OtherType => "type",
        }
    }
}

/// Checks the result of a relayed method, at most `bytes_max` long.
pub(crate) fn check(method: &str, result: &[u8], bytes_max: usize) -> Result<(), Unfit> {
    if result.len() > bytes_max {
        return Err(Unfit::TooLong);
    }
    let kind = kind(result)?;
    let fits = match method {
        "web3_clientVersion" => matches!(&kind, ValueKind::Text(text) if is_printable(text)),
        "eth_getChainConfig" | "rpc_modules" => kind == ValueKind::Object,
        // Before Apricot Phase 3 there is no base fee, says the node.
        "eth_suggestPriceOptions" => matches!(kind, ValueKind::Object | ValueKind::Null),
        "eth_baseFee" => kind == ValueKind::Null || is_quantity(&kind),
        _ => is_quantity(&kind),
    };
    if fits { Ok(()) } else { Err(Unfit::OtherType) }
}

fn is_printable(text: &str) -> bool {
    text.bytes().all(|byte| matches!(byte, b' '..=b'~'))
}

/// A number as the node writes it: lower case, no leading zeros, at most 256 bits.
fn is_quantity(kind: &ValueKind) -> bool {
    let ValueKind::Text(text) = kind else { return false };
    let Some(digits) = text.strip_prefix("0x") else { return false };
    let hex = digits.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'));
    hex && (1..=64).contains(&digits.len()) && (digits == "0" || !digits.starts_with('0'))
}

/// The type of a value.
#[derive(Debug, PartialEq, Eq)]
enum ValueKind {
    Null,
    Scalar,
    Text(String),
    List,
    Object,
}

fn kind(json: &[u8]) -> Result<ValueKind, Unfit> {
    let mut deserializer = serde_json::Deserializer::from_slice(json);
    let kind = Strict.deserialize(&mut deserializer).map_err(|_| Unfit::Malformed)?;
    deserializer.end().map_err(|_| Unfit::Malformed)?;
    Ok(kind)
}

/// Reads a value, and refuses objects of which clients may see another value than neve does: Go's
/// decoder ignores the case of keys, and most take the last of two.
struct Strict;

impl<'de> DeserializeSeed<'de> for Strict {
    type Value = ValueKind;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<ValueKind, D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Strict {
    type Value = ValueKind;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("JSON")
    }

    fn visit_unit<E: Error>(self) -> Result<ValueKind, E> {
        Ok(ValueKind::Null)
    }

    fn visit_bool<E: Error>(self, _: bool) -> Result<ValueKind, E> {
        Ok(ValueKind::Scalar)
    }

    fn visit_u64<E: Error>(self, _: u64) -> Result<ValueKind, E> {
        Ok(ValueKind::Scalar)
    }

    fn visit_i64<E: Error>(self, _: i64) -> Result<ValueKind, E> {
        Ok(ValueKind::Scalar)
    }

    fn visit_f64<E: Error>(self, _: f64) -> Result<ValueKind, E> {
        Ok(ValueKind::Scalar)
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<ValueKind, E> {
        Ok(ValueKind::Text(text.to_owned()))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<ValueKind, A::Error> {
        while items.next_element_seed(Self)?.is_some() {}
        Ok(ValueKind::List)
    }

    fn visit_map<A: MapAccess<'de>>(self, mut members: A) -> Result<ValueKind, A::Error> {
        let mut keys = HashSet::new();
        while let Some(key) = members.next_key::<String>()? {
            // Readers differ in which of two alike keys they take, and in the case of letters.
            if !is_printable(&key) || !keys.insert(key.to_ascii_lowercase()) {
                return Err(A::Error::custom("a key that another one may be taken for"));
            }
            members.next_value_seed(Self)?;
        }
        Ok(ValueKind::Object)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::shared::{CONSTANT, CURRENT};

    const MAX: usize = 1 << 14;

    fn is(method: &str, result: &str) -> Result<(), Unfit> {
        check(method, result.as_bytes(), MAX)
    }

    #[test]
    fn node_results_fit() {
        for (method, result) in [
            (
                "web3_clientVersion",
                r#""avalanchego/1.15.0 [database=v1.4.5, rpcchainvm=46, go=1.26.8]""#,
            ),
            ("eth_getChainConfig", r#"{"chainId":43112,"a":{"b":[1,-2,1.5,true,null]}}"#),
            ("rpc_modules", r#"{"eth":"1.0","net":"1.0"}"#),
            ("eth_gasPrice", r#""0x5d21dba00""#),
            ("eth_baseFee", "null"),
            ("eth_baseFee", r#""0x0""#),
            ("eth_suggestPriceOptions", r#"{"slow":{"maxFeePerGas":"0x1"}}"#),
            ("eth_suggestPriceOptions", "null"),
            ("net_peerCount", r#""0x7""#),
        ] {
            assert_eq!(is(method, result), Ok(()), "{method} {result}");
        }
    }

    #[test]
    fn text_that_is_no_json_ends_no_envelope() {
        for method in CONSTANT.into_iter().chain(CURRENT) {
            for forged in [
                r#""v1"},{"jsonrpc":"2.0","id":2,"result":"0x0""#,
                "{},{}",
                r#"{"a":1}}"#,
                r#"{"a":1,"A":2}"#,
                r#"{"x":{"a":1,"a":2}}"#,
                "{\"k\u{17f}\":1}",
                "\"a\nb\"",
                "\"\u{1}\"",
                "",
                "0x1",
            ] {
                assert_eq!(is(method, forged), Err(Unfit::Malformed), "{method} {forged}");
            }
            let deep = format!("{}{}", "[".repeat(5_000), "]".repeat(5_000));
            assert_eq!(is(method, &deep), Err(Unfit::Malformed));
        }
    }

    #[test]
    fn result_of_another_type_is_unfit() {
        for (method, result) in [
            ("web3_clientVersion", "1"),
            ("web3_clientVersion", "null"),
            ("web3_clientVersion", r#""a\u001bb""#),
            ("eth_getChainConfig", "[]"),
            ("rpc_modules", "null"),
            ("eth_gasPrice", "null"),
            ("eth_gasPrice", "7"),
            ("eth_gasPrice", r#""7""#),
            ("eth_gasPrice", r#""0x""#),
            ("eth_gasPrice", r#""0x07""#),
            ("eth_gasPrice", r#""0xA""#),
            ("eth_gasPrice", r#"{"a":1}"#),
            ("eth_baseFee", "false"),
            ("eth_suggestPriceOptions", r#""0x1""#),
        ] {
            assert_eq!(is(method, result), Err(Unfit::OtherType), "{method} {result}");
        }
    }

    #[test]
    fn result_is_bounded_in_bytes() {
        let version = |len: usize| format!("\"{}\"", "x".repeat(len - 2));
        assert_eq!(is("web3_clientVersion", &version(MAX)), Ok(()));
        assert_eq!(is("web3_clientVersion", &version(MAX + 1)), Err(Unfit::TooLong));
    }
}
