//! Bytes that tungstenite keeps of incoming frames, counted from the frame headers (RFC 6455, 5.2).

/// The first two bytes, a length of eight, and the mask.
const HEAD_MAX: usize = 2 + 8 + 4;
const FINAL: u8 = 0x80;
const MASKED: u8 = 0x80;
const OPCODE: u8 = 0x0f;
const CONTINUATION: u8 = 0;
/// First opcode of control frames, which may stand between the frames of one message.
const FIRST_CONTROL: u8 = 8;

/// Lengths of the buffers of a connection: one into which frames are read, and one that joins the
/// frames of a message.
#[derive(Debug, Default)]
pub(crate) struct KeptBytes {
    /// Bytes of the frame header that is coming.
    head: [u8; HEAD_MAX],
    head_len: usize,
    /// First byte of the current frame, and bytes of it that are to come.
    first: u8,
    left: u64,
    /// Bytes of the current frame, and of the longest one so far.
    frame: usize,
    longest: usize,
    /// Bytes of the message that is put together.
    message: usize,
}

impl KeptBytes {
    /// Counts received bytes, which may begin and end anywhere in a frame.
    pub(crate) fn add(&mut self, mut bytes: &[u8]) {
        while let Some(first) = bytes.first() {
            if self.left > 0 {
                let len = usize::try_from(self.left).unwrap_or(usize::MAX).min(bytes.len());
                (bytes, self.left) = (&bytes[len..], self.left - len as u64);
                self.payload(len);
                continue;
            }
            self.head[self.head_len] = *first;
            (bytes, self.head_len) = (&bytes[1..], self.head_len + 1);
            if let Some(len) = self.payload_len() {
                (self.first, self.left, self.frame, self.head_len) = (self.head[0], len, 0, 0);
                // Frames of control may stand amid a message, and its next frame continues it (RFC
                // 6455, 5.4).
                if self.is_data() && self.first & OPCODE != CONTINUATION {
                    self.message = 0;
                }
            }
        }
    }

    /// Returns the bytes that are kept now.
    pub(crate) fn bytes(&self) -> usize {
        self.longest + self.message
    }

    /// Returns the length of the longest frame, whose buffer is kept.
    pub(crate) fn longest_frame(&self) -> usize {
        self.longest
    }

    /// Counts bytes of a payload.
    fn payload(&mut self, len: usize) {
        if !self.is_data() {
            return; // it is short, and answered before anything else is read
        }
        self.frame += len;
        self.longest = self.longest.max(self.frame);
        // A message in one frame stays in the read buffer. Only several frames are joined in another one.
        let whole = self.first & FINAL != 0 && self.first & OPCODE != CONTINUATION;
        if self.left == 0 && !whole {
            self.message += self.frame;
        }
    }

    fn is_data(&self) -> bool {
        self.first & OPCODE < FIRST_CONTROL
    }

    /// Returns the length of the payload, once the frame header is whole.
    #[expect(clippy::big_endian_bytes, reason = "the order of RFC 6455")]
    fn payload_len(&self) -> Option<u64> {
        if self.head_len < 2 {
            return None;
        }
        let (mask, short) = (self.head[1] & MASKED, self.head[1] & !MASKED);
        let more = match short {
            126 => 2,
            127 => 8,
            _ => 0,
        };
        if self.head_len < 2 + more + if mask == 0 { 0 } else { 4 } {
            return None;
        }
        // Big-endian: a length of two bytes stands in the last two of eight.
        let mut long = [0; 8];
        long[8 - more..].copy_from_slice(&self.head[2..2 + more]);
        Some(if more == 0 { u64::from(short) } else { u64::from_be_bytes(long) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: u8 = 1;
    const PING: u8 = 9;

    /// A masked frame that says it has `len` bytes, with so many of them.
    fn frame(first: u8, len: u64, here: usize) -> Vec<u8> {
        #[expect(clippy::big_endian_bytes, reason = "the order of RFC 6455")]
        let lead = match len {
            0..126 => vec![first, MASKED | len as u8],
            126..65_536 => [&[first, MASKED + 126], &(len as u16).to_be_bytes()[..]].concat(),
            _ => [&[first, MASKED + 127], &len.to_be_bytes()[..]].concat(),
        };
        [&lead[..], &[7; 4], &vec![b' '; here]].concat()
    }

    /// Bytes that are kept after these, which must not depend on their fragments.
    fn kept(bytes: &[u8]) -> (usize, usize) {
        let after = |step: usize| {
            let mut kept = KeptBytes::default();
            bytes.chunks(step).for_each(|bytes| kept.add(bytes));
            (kept.longest, kept.message)
        };
        let all = after(bytes.len().max(1));
        assert_eq!([after(1), after(3), after(1000)], [all; 3]);
        all
    }

    #[test]
    fn buffers_are_as_long_as_what_came() {
        assert_eq!(kept(&[]), (0, 0));
        assert_eq!(kept(&frame(FINAL | TEXT, 5, 5)), (5, 0));
        assert_eq!(kept(&frame(FINAL | TEXT, 70_000, 1)), (1, 0), "a length alone takes nothing");
        assert_eq!(kept(&frame(FINAL | TEXT, u64::MAX, 9)), (9, 0));
        let parts = [frame(TEXT, 300, 300), frame(0, 200, 200), frame(PING, 9, 9)].concat();
        assert_eq!(kept(&parts), (300, 500));
        let whole = [&parts[..], &frame(FINAL, 1, 1)].concat();
        assert_eq!(kept(&whole), (300, 501));
        let next = [&whole[..], &frame(FINAL | TEXT, 400, 10)].concat();
        assert_eq!(kept(&next), (300, 0), "the message before it is gone");
        assert_eq!(kept(&[parts, frame(0, 900, 800)].concat()), (800, 500));
    }
}
