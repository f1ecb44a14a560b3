//! Text around a result, and whole error responses.
//!
//! `{"jsonrpc":"2.0","id":` id `,"result":` result `}` and a newline, which the answers that go
//! around the node's encoder lack: parse errors, and batches that are empty, too large, or whose
//! answers are too long.

use crate::error::{MESSAGE_BYTES_MAX, RpcError, cut};
use crate::json::{compact, echo, encode};

/// Text of a response without an id before its error.
const VERSION: &[u8] = b"{\"jsonrpc\":\"2.0\"";
/// Text of a response before its id.
pub const PREFIX: &[u8] = b"{\"jsonrpc\":\"2.0\",\"id\":";
/// Text between the id and the result.
pub const RESULT: &[u8] = b",\"result\":";
/// Text behind the result.
pub const SUFFIX: &[u8] = b"}";
/// End of a body, if the node's encoder writes it.
pub const NEWLINE: &[u8] = b"\n";

/// Appends everything before the result.
pub fn write_prefix(out: &mut Vec<u8>, id: &[u8]) {
    out.extend_from_slice(PREFIX);
    echo(out, id);
    out.extend_from_slice(RESULT);
}

/// Appends everything up to the id.
pub fn write_id(out: &mut Vec<u8>, id: &[u8]) {
    out.extend_from_slice(PREFIX);
    echo(out, id);
}

/// Length of an id as an answer repeats it: up to six times its own.
#[must_use]
pub fn echoed_len(id: &[u8]) -> usize {
    let escaped = |byte: &&u8| matches!(byte, b'<' | b'>' | b'&');
    // The two separators that are escaped as well take three bytes more than before.
    let separators = id.windows(3).filter(|bytes| matches!(bytes, [0xe2, 0x80, 0xa8 | 0xa9]));
    id.len() + 5 * id.iter().filter(escaped).count() + 3 * separators.count()
}

/// Appends a whole error answer, without a newline.
pub fn error(out: &mut Vec<u8>, id: &[u8], error: &RpcError) {
    open_error(out, id, error);
    out.extend_from_slice(b"}}");
}

/// Appends the error of a message that a batch ends before. The node repeats an id of any kind there, and no `null` for
/// one that is not there (libevm, `rpc/handler.go`, `respondWithError`; `rpc/json.go`).
pub fn error_unread(out: &mut Vec<u8>, id: Option<&[u8]>, error: &RpcError) {
    if let Some(id) = id {
        out.extend_from_slice(PREFIX);
        echo(out, &compact(id));
    } else {
        out.extend_from_slice(VERSION);
    }
    write_error(out, error);
    out.extend_from_slice(b"}}");
}

/// Appends a whole error answer with `data`, which is JSON, without a newline.
pub fn error_with_data(out: &mut Vec<u8>, id: &[u8], error: &RpcError, data: &str) {
    open_error(out, id, error);
    out.extend_from_slice(b",\"data\":");
    out.extend_from_slice(data.as_bytes());
    out.extend_from_slice(b"}}");
}

fn open_error(out: &mut Vec<u8>, id: &[u8], error: &RpcError) {
    out.extend_from_slice(PREFIX);
    echo(out, id);
    write_error(out, error);
}

fn write_error(out: &mut Vec<u8>, error: &RpcError) {
    out.extend_from_slice(format!(",\"error\":{{\"code\":{},\"message\":", error.code).as_bytes());
    encode(out, &cut(&error.message, MESSAGE_BYTES_MAX));
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::excerpt;

    #[test]
    fn errors_are_spelt_as_the_node_spells_them() {
        let mut out = Vec::new();
        error(&mut out, b"7", &RpcError::no_method("eth_<x>"));
        let expected = r#"{"jsonrpc":"2.0","id":7,"error":{"code":-32601,"message":"the method eth_\u003cx\u003e does not exist/is not available"}}"#;
        assert_eq!(String::from_utf8(out).unwrap(), expected);
    }

    #[test]
    fn error_repeats_a_bounded_part_of_a_name_and_of_a_message() {
        let length = |made: &RpcError| {
            let mut out = Vec::new();
            error(&mut out, b"7", made);
            out.len()
        };
        let name = |len| "<".repeat(len);
        assert_eq!(excerpt(&name(64)), name(64));
        assert_eq!(excerpt(&name(65)), format!("{}...", name(64)));
        assert!(RpcError::no_method(&name(304)).message.contains(&format!(" {} ", name(304))));
        assert!(length(&RpcError::no_method(&name(1 << 20))) < 6400);
        assert!(length(&RpcError::no_subscription(&name(1 << 20), &name(1 << 20))) < 6400);
        assert!(length(&RpcError::params("é".repeat(1 << 20))) < 1200);
    }

    #[test]
    fn unread_message_has_its_id_of_any_kind_or_none() {
        for (id, expected) in [
            (None, ""),
            (Some("7"), r#""id":7,"#),
            (Some("[ 1 ,\t\"a \\\" <\" ]"), r#""id":[1,"a \" \u003c"],"#),
            (Some("{\"a b\" :\n{ } }"), r#""id":{"a b":{}},"#),
        ] {
            let mut out = Vec::new();
            error_unread(&mut out, id.map(str::as_bytes), &RpcError::PARSE);
            let error = r#""error":{"code":-32700,"message":"parse error"}}"#;
            let whole = format!(r#"{{"jsonrpc":"2.0",{expected}{error}"#);
            assert_eq!(String::from_utf8(out).unwrap(), whole);
        }
    }

    #[test]
    fn length_of_an_id_is_known_before_it_is_written() {
        for id in [&b"7"[..], b"\"<&>\xe2\x80\xa8\xe2\x80\xa9\xe2\x82\xac\xff\xe2\""] {
            let mut out = Vec::new();
            echo(&mut out, id);
            assert_eq!(echoed_len(id), out.len());
        }
    }
}
