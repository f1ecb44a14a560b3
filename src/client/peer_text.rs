//! Text that an upstream chose, made fit for logs, errors and /health.

use std::fmt;
use std::ops::Range;

use super::secrets::{HIDDEN, Secrets};

/// Bytes of an upstream's text that are shown.
pub(crate) const PEER_TEXT_BYTES_MAX: usize = 256;
/// Bytes of a text that are kept, of a longer one start and end: errors often end with their
/// reason.
const HEAD_BYTES: usize = 184;
const TAIL_BYTES: usize = 64;

/// An upstream's text: at most [`PEER_TEXT_BYTES_MAX`] bytes on one line. Characters that end a
/// line, color a terminal or reorder text are escaped, so that they forge no log line. Keys of
/// upstreams are hidden: a server may repeat those that it was sent.
#[derive(Clone, PartialEq, Eq, Default)]
pub(crate) struct PeerText(String);

impl PeerText {
    /// Cuts and escapes a text. Takes no longer for a long text than for a short one.
    pub(crate) fn new(text: &str) -> Self {
        Self::without(&Secrets::known(), text)
    }

    /// Makes it of bytes that may not be UTF-8, of which it shows the start.
    pub(crate) fn from_bytes(bytes: &[u8]) -> Self {
        let secrets = Secrets::known();
        // A key that the end of the start would cut in two is read to its end.
        let read = bytes.len().min(PEER_TEXT_BYTES_MAX + secrets.longest());
        let text = String::from_utf8_lossy(&bytes[..read]);
        let end = text.floor_char_boundary(PEER_TEXT_BYTES_MAX);
        Self(shortened(&escaped(&text, 0..end, &secrets)))
    }

    fn without(secrets: &Secrets, text: &str) -> Self {
        if text.len() <= PEER_TEXT_BYTES_MAX {
            return Self(shortened(&escaped(text, 0..text.len(), secrets)));
        }
        let head = 0..text.floor_char_boundary(PEER_TEXT_BYTES_MAX);
        let tail = text.ceil_char_boundary(text.len() - TAIL_BYTES)..text.len();
        Self(joined(&escaped(text, head, secrets), &escaped(text, tail, secrets)))
    }

    pub(crate) fn as_str(&self) -> &str {
        &self.0
    }
}

impl From<&str> for PeerText {
    fn from(text: &str) -> Self {
        Self::new(text)
    }
}

impl From<String> for PeerText {
    fn from(text: String) -> Self {
        Self::new(&text)
    }
}

impl fmt::Display for PeerText {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl fmt::Debug for PeerText {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "\"{}\"", self.0)
    }
}

fn shortened(text: &str) -> String {
    if text.len() <= PEER_TEXT_BYTES_MAX { text.to_owned() } else { joined(text, text) }
}

fn joined(head: &str, tail: &str) -> String {
    let head = &head[..head.floor_char_boundary(HEAD_BYTES)];
    let tail = &tail[tail.ceil_char_boundary(tail.len().saturating_sub(TAIL_BYTES))..];
    format!("{head}\u{2026}{tail}")
}

/// The text of a range, which ends between characters. A key that overlaps it is hidden as a whole.
fn escaped(text: &str, range: Range<usize>, secrets: &Secrets) -> String {
    let mut out = String::with_capacity(range.len());
    // A key that begins before the range would else be shown from its middle on.
    let mut at = text.ceil_char_boundary(range.start.saturating_sub(secrets.longest()));
    while at < range.end {
        let rest = &text[at..];
        let Some(character) = rest.chars().next() else { break };
        let (len, hidden) = match secrets.at(rest) {
            Some(len) => (len, true),
            None => (character.len_utf8(), false),
        };
        at += len;
        match (at > range.start, hidden) {
            (false, _) => {}
            (true, true) => out.push_str(HIDDEN),
            (true, false) if is_hidden(character) => out.extend(character.escape_default()),
            (true, false) => out.push(character),
        }
    }
    out
}

/// Control characters, ends of lines, and marks that reorder or hide text (Unicode's `Cf`).
fn is_hidden(character: char) -> bool {
    character.is_control()
        || matches!(
            character,
            '\u{ad}'
                | '\u{61c}'
                | '\u{180e}'
                | '\u{200b}'..='\u{200f}'
                | '\u{2028}'..='\u{202e}'
                | '\u{2060}'..='\u{206f}'
                | '\u{feff}'
                | '\u{fff9}'..='\u{fffb}'
                | '\u{e0000}'..='\u{e007f}'
        )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_is_one_line_without_control_characters() {
        let of = |text: &str| PeerText::new(text).to_string();
        assert_eq!(of("plain \"text\" \u{e9}"), "plain \"text\" \u{e9}");
        assert_eq!(of("a\n2026 ERROR forged\r\u{1b}[31m"), r"a\n2026 ERROR forged\r\u{1b}[31m");
        assert_eq!(of("\u{202e}\u{2028}\u{feff}\u{85}"), r"\u{202e}\u{2028}\u{feff}\u{85}");
    }

    #[test]
    fn long_text_is_cut_and_keeps_its_end() {
        for text in
            ["x".repeat(50_000), "\n".repeat(200), "\u{e9}".repeat(300), "\u{1b}".repeat(9_999)]
        {
            let short = PeerText::new(&format!("{text}the end"));
            assert!(short.as_str().len() <= PEER_TEXT_BYTES_MAX, "{short}");
            assert!(short.as_str().ends_with("the end"), "{short}");
        }
        let exact = "x".repeat(PEER_TEXT_BYTES_MAX);
        assert_eq!(PeerText::new(&exact).as_str(), exact);
        assert!(PeerText::new(&format!("{exact}x")).as_str().len() < PEER_TEXT_BYTES_MAX);
        assert!(PeerText::from_bytes(&[0xff; 10_000]).as_str().len() <= PEER_TEXT_BYTES_MAX);
    }

    #[test]
    fn keys_of_upstreams_are_hidden_wherever_the_text_is_cut() {
        let key = "K3y-0123456789-0123456789-0123456789";
        let secrets = super::super::secrets::tests::of(&[key]);
        let of = |text: &str| PeerText::without(&secrets, text).to_string();
        assert_eq!(of(&format!("Cannot POST /v1/{key}/rpc")), "Cannot POST /v1/[hidden]/rpc");
        for before in 0..400 {
            for after in [0, 1, 30, 64, 100, 400] {
                let text = of(&format!("{}{key}{}", " ".repeat(before), " ".repeat(after)));
                assert!(text.len() <= PEER_TEXT_BYTES_MAX, "{text}");
                // Not even a part of it.
                let parts = (0..key.len() - 3).map(|at| &key[at..at + 4]);
                assert!(parts.into_iter().all(|part| !text.contains(part)), "{before}: {text}");
            }
        }
    }
}
