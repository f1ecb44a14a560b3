//! Integers in bytes: LEB128 varints and little-endian words, read with bounds.

use crate::error::PackedError;

/// Appends an unsigned LEB128 varint: seven bits a byte, the lowest first.
pub(crate) fn put_varint(out: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        out.push(value as u8 | 0x80);
        value >>= 7;
    }
    out.push(value as u8);
}

/// A cursor over hostile bytes.
#[derive(Clone, Debug)]
pub(crate) struct Bytes<'a> {
    rest: &'a [u8],
    place: &'static str,
}

impl<'a> Bytes<'a> {
    pub(crate) fn new(bytes: &'a [u8], place: &'static str) -> Self {
        Self { rest: bytes, place }
    }

    pub(crate) fn error(&self, what: &'static str) -> PackedError {
        PackedError::malformed(self.place, what)
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.rest.is_empty()
    }

    pub(crate) fn rest(&self) -> &'a [u8] {
        self.rest
    }

    #[inline]
    pub(crate) fn take(&mut self, bytes: usize) -> Result<&'a [u8], PackedError> {
        let Some((taken, rest)) = self.rest.split_at_checked(bytes) else {
            return Err(self.error("too few bytes"));
        };
        self.rest = rest;
        Ok(taken)
    }

    pub(crate) fn array<const N: usize>(&mut self) -> Result<[u8; N], PackedError> {
        let Some((taken, rest)) = self.rest.split_first_chunk::<N>() else {
            return Err(self.error("too few bytes"));
        };
        self.rest = rest;
        Ok(*taken)
    }

    #[inline]
    pub(crate) fn byte(&mut self) -> Result<u8, PackedError> {
        let Some((byte, rest)) = self.rest.split_first() else {
            return Err(self.error("too few bytes"));
        };
        self.rest = rest;
        Ok(*byte)
    }

    pub(crate) fn u32(&mut self) -> Result<u32, PackedError> {
        self.array().map(u32::from_le_bytes)
    }

    pub(crate) fn u64(&mut self) -> Result<u64, PackedError> {
        self.array().map(u64::from_le_bytes)
    }

    /// Reads a varint of at most ten bytes in its shortest form.
    #[inline]
    pub(crate) fn varint(&mut self) -> Result<u64, PackedError> {
        let mut value = 0;
        for shift in (0..70).step_by(7) {
            let byte = self.byte()?;
            if shift == 63 && byte > 1 {
                return Err(self.error("varint over 64 bits"));
            }
            value |= u64::from(byte & 0x7f) << shift;
            if byte & 0x80 == 0 {
                // A number has one form only: files of equal heights are equal to the byte.
                let shortest = byte != 0 || shift == 0;
                return if shortest { Ok(value) } else { Err(self.error("padded varint")) };
            }
        }
        Err(self.error("varint over 64 bits"))
    }

    /// Reads a varint of at most `max`.
    pub(crate) fn count(&mut self, max: usize) -> Result<usize, PackedError> {
        let value = self.varint()?;
        let value = usize::try_from(value).ok().filter(|value| *value <= max);
        value.ok_or_else(|| self.error("a count or length over its limit"))
    }

    pub(crate) fn end(&self) -> Result<(), PackedError> {
        if self.is_empty() { Ok(()) } else { Err(self.error("bytes behind its end")) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn varint_reads_back_at_every_length() {
        let edges = (0..64).flat_map(|shift| [(1_u64 << shift) - 1, 1 << shift]);
        for value in edges.chain([u64::MAX]) {
            let mut out = Vec::new();
            put_varint(&mut out, value);
            let mut bytes = Bytes::new(&out, "test");
            assert_eq!(bytes.varint().ok(), Some(value));
            assert!(bytes.is_empty());
        }
    }

    #[test]
    fn varint_is_refused_if_padded_or_too_long() {
        for wrong in [&[0x80, 0][..], &[0xff; 10], &[0x80; 9], &[]] {
            assert!(Bytes::new(wrong, "test").varint().is_err(), "{wrong:?}");
        }
    }
}
