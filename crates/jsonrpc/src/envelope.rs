//! What stands around a result, and whole error answers.
//!
//! `{"jsonrpc":"2.0","id":` id `,"result":` result `}` and a newline, which the answers that go
//! around the node's encoder lack: parse errors, and batches that are empty, too large, or whose
//! answers are too long.

use crate::error::RpcError;
use crate::text::{echo, encode};

/// Before the id.
pub const HEAD: &[u8] = b"{\"jsonrpc\":\"2.0\",\"id\":";
/// Between id and result.
pub const RESULT: &[u8] = b",\"result\":";
/// After the result.
pub const TAIL: &[u8] = b"}";
/// At the end of a body.
pub const NEWLINE: &[u8] = b"\n";

/// Appends everything before the result.
pub fn lead(out: &mut Vec<u8>, id: &[u8]) {
    out.extend_from_slice(HEAD);
    echo(out, id);
    out.extend_from_slice(RESULT);
}

/// Appends a whole error answer, without a newline.
pub fn error(out: &mut Vec<u8>, id: &[u8], error: &RpcError) {
    open_error(out, id, error);
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
    out.extend_from_slice(HEAD);
    echo(out, id);
    out.extend_from_slice(format!(",\"error\":{{\"code\":{},\"message\":", error.code).as_bytes());
    encode(out, &error.message);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_are_spelt_as_the_node_spells_them() {
        let mut out = Vec::new();
        error(&mut out, b"7", &RpcError::no_method("eth_<x>"));
        let expected = r#"{"jsonrpc":"2.0","id":7,"error":{"code":-32601,"message":"the method eth_\u003cx\u003e does not exist/is not available"}}"#;
        assert_eq!(String::from_utf8(out).unwrap(), expected);
    }
}
