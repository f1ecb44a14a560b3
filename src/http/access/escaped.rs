//! Text of clients in lines of a log. Every byte that could end a line, a field or a quote, color a
//! terminal or reorder text is escaped, so no request can forge a line.

use std::io::Write;

/// Writes text between quotes as nginx does: other bytes than printable ASCII as `\x0A`.
pub(super) fn quote(out: &mut Vec<u8>, text: &[u8]) {
    out.push(b'"');
    for byte in text {
        match byte {
            b'"' | b'\\' => escape(out, *byte),
            b' '..=b'~' => out.push(*byte),
            _ => escape(out, *byte),
        }
    }
    out.push(b'"');
}

/// Writes a name of a list, in which a comma stands between two.
pub(super) fn list_name(out: &mut Vec<u8>, text: &[u8]) {
    for byte in text {
        match byte {
            b'"' | b'\\' | b',' => escape(out, *byte),
            b'!'..=b'~' => out.push(*byte),
            _ => escape(out, *byte),
        }
    }
}

fn escape(out: &mut Vec<u8>, byte: u8) {
    let _ = write!(out, "\\x{byte:02X}"); // a Vec takes all
}

/// Writes a JSON string of ASCII. Bytes that are not UTF-8 become U+FFFD.
pub(super) fn json(out: &mut Vec<u8>, text: &[u8]) {
    out.push(b'"');
    for letter in String::from_utf8_lossy(text).chars() {
        match letter {
            // Letters of this arm and the next are ASCII, so a byte holds them.
            '"' | '\\' => out.extend_from_slice(&[b'\\', letter as u8]),
            ' '..='~' => out.push(letter as u8),
            _ => {
                for unit in letter.encode_utf16(&mut [0; 2]) {
                    let _ = write!(out, "\\u{unit:04x}"); // a Vec takes all
                }
            }
        }
    }
    out.push(b'"');
}

#[cfg(test)]
mod tests {
    use super::*;

    const HOSTILE: &[u8] = b"a\"b\\c\r\nd\x1b[31m\x7f\0 \xe2\x80\xae \xff,";

    fn written(write: fn(&mut Vec<u8>, &[u8])) -> String {
        let mut out = Vec::new();
        write(&mut out, HOSTILE);
        String::from_utf8(out).expect("text")
    }

    #[test]
    fn hostile_text_is_escaped_in_each_form() {
        let quoted = r#""a\x22b\x5Cc\x0D\x0Ad\x1B[31m\x7F\x00 \xE2\x80\xAE \xFF,""#;
        assert_eq!(written(quote), quoted);
        let named = r"a\x22b\x5Cc\x0D\x0Ad\x1B[31m\x7F\x00\x20\xE2\x80\xAE\x20\xFF\x2C";
        assert_eq!(written(list_name), named);
        let text = written(json);
        assert!(text.bytes().all(|b| (b' '..=b'~').contains(&b)), "{text}");
        let read: String = serde_json::from_str(&text).expect("JSON");
        assert_eq!(read, String::from_utf8_lossy(HOSTILE));
        let mut astral = Vec::new();
        json(&mut astral, "\u{1f600}".as_bytes());
        assert_eq!(astral, br#""\ud83d\ude00""#);
    }
}
