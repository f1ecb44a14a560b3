//! Frames that neve sends: answers and notifications, each a text frame that is not masked.

use neve_store::residency::Cold;

use crate::body::{BodyBuilder, ResponseBody};
use crate::http::response::ResponseWriter;

const LEAD: &str = r#"{"jsonrpc":"2.0","method":"eth_subscription","params":{"subscription":""#;
const RESULT: &str = r#"","result":"#;
const TAIL: &str = "}}\n";

/// First byte of a text frame that is a whole message (RFC 6455, 5.2).
const WHOLE_TEXT: u8 = 0x81;
/// Payload lengths that are in the second byte itself, and in the two bytes behind it.
const SHORT_MAX: usize = 125;
/// Instead of a length: it is in the next two bytes, or in the next eight.
const IN_TWO: u8 = 126;
const IN_EIGHT: u8 = 127;

/// Appends everything of a frame before its payload.
#[expect(clippy::big_endian_bytes, reason = "the order of RFC 6455")]
fn head(out: &mut Vec<u8>, len: usize) {
    out.push(WHOLE_TEXT);
    if len <= SHORT_MAX {
        out.push(len as u8);
    } else if let Ok(len) = u16::try_from(len) {
        out.push(IN_TWO);
        out.extend_from_slice(&len.to_be_bytes());
    } else {
        out.push(IN_EIGHT);
        out.extend_from_slice(&(len as u64).to_be_bytes());
    }
}

/// A response in its frame.
pub(crate) fn answer(body: ResponseBody) -> ResponseWriter {
    let mut lead = Vec::new();
    head(&mut lead, body.len());
    ResponseWriter::with_head(lead, body)
}

/// Appends the frame of a notification (libevm, `rpc/subscription.go`): compact, with a newline behind it.
/// `result` appends the result, which has so many bytes.
pub(crate) fn notify(
    out: &mut BodyBuilder,
    id: &str,
    result_len: usize,
    result: impl FnOnce(&mut BodyBuilder) -> Result<(), Cold>,
) -> Result<(), Cold> {
    let text = out.text();
    head(text, LEAD.len() + id.len() + RESULT.len() + result_len + TAIL.len());
    [LEAD, id, RESULT].into_iter().for_each(|part| text.extend_from_slice(part.as_bytes()));
    result(out)?;
    out.text().extend_from_slice(TAIL.as_bytes());
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn length_of_a_frame_is_where_the_protocol_wants_it() {
        for (len, expected) in [
            (0, &[0x81, 0][..]),
            (125, &[0x81, 125]),
            (126, &[0x81, 126, 0, 126]),
            (0xffff, &[0x81, 126, 0xff, 0xff]),
            (0x1_0000, &[0x81, 127, 0, 0, 0, 0, 0, 1, 0, 0]),
        ] {
            let mut out = Vec::new();
            head(&mut out, len);
            assert_eq!(out, expected, "{len}");
        }
    }

    #[test]
    fn notification_is_the_nodes_to_the_byte() {
        let mut out = BodyBuilder::default();
        let result = |out: &mut BodyBuilder| {
            out.text().extend_from_slice(b"{}");
            Ok(())
        };
        notify(&mut out, "0x1", 2, result).unwrap();
        let text = r#"{"jsonrpc":"2.0","method":"eth_subscription","params":{"subscription":"0x1","result":{}}}"#;
        let frame = [&[0x81, text.len() as u8 + 1], text.as_bytes(), b"\n"].concat();
        assert_eq!(out.finish().unwrap().into_bytes(), frame);
    }
}
