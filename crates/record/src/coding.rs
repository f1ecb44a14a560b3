//! Content codings: compressed blocks on byte boundaries, and the bytes around them in a body.

use std::io;

use flate2::{Compress, Compression, FlushCompress};
use zstd::zstd_safe::{CCtx, CParameter};

/// Level 6 of 9: beyond it deflate gains a percent and takes twice the time.
const DEFLATE_LEVEL: u32 = 6;
const ZSTD_LEVEL: i32 = 6;
/// A window that every decoder must have (RFC 8878, 3.1.1.1.2), and no part exceeds by much.
const ZSTD_WINDOW_LOG: u32 = 20;
/// Length of the header of a frame without content size, dictionary and checksum: magic,
/// descriptor, window.
const ZSTD_HEAD_LEN: usize = 6;

/// A content coding (RFC 9110, 8.4.1).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Coding {
    /// gzip (RFC 1952).
    Gzip,
    /// zstd (RFC 8878).
    Zstd,
}

impl Coding {
    /// All codings, the better ones first.
    pub const ALL: [Self; 2] = [Self::Zstd, Self::Gzip];

    /// Name in headers.
    pub fn name(self) -> &'static str {
        match self {
            Self::Gzip => "gzip",
            Self::Zstd => "zstd",
        }
    }

    pub(crate) fn code(self) -> u32 {
        match self {
            Self::Gzip => 1,
            Self::Zstd => 2,
        }
    }

    pub(crate) fn compress(self, plain: &[u8]) -> io::Result<Vec<u8>> {
        match self {
            Self::Gzip => deflate(plain),
            Self::Zstd => zstd_blocks(plain),
        }
    }
}

/// Deflate blocks that end on a byte boundary, none of them the last.
fn deflate(plain: &[u8]) -> io::Result<Vec<u8>> {
    // Raw deflate (RFC 1951): header and trailer of gzip stand around the whole body.
    let mut compress = Compress::new(Compression::new(DEFLATE_LEVEL), false);
    let mut blocks = Vec::with_capacity(plain.len() / 2 + 64);
    loop {
        let rest = &plain[compress.total_in() as usize..];
        compress.compress_vec(rest, &mut blocks, FlushCompress::Sync).map_err(io::Error::other)?;
        // There was space left: all of it is out, the boundary too.
        if compress.total_in() as usize == plain.len() && blocks.len() < blocks.capacity() {
            return Ok(blocks);
        }
        blocks.reserve(blocks.capacity());
    }
}

/// The blocks of a zstd frame, none of them marked as the last.
fn zstd_blocks(plain: &[u8]) -> io::Result<Vec<u8>> {
    let failed = |code| io::Error::other(zstd::zstd_safe::get_error_name(code));
    let mut context = CCtx::create();
    for parameter in [
        CParameter::CompressionLevel(ZSTD_LEVEL),
        CParameter::WindowLog(ZSTD_WINDOW_LOG),
        CParameter::ContentSizeFlag(false),
        CParameter::ChecksumFlag(false),
    ] {
        context.set_parameter(parameter).map_err(failed)?;
    }
    let mut frame = Vec::with_capacity(zstd::zstd_safe::compress_bound(plain.len()));
    context.compress2(&mut frame, plain).map_err(failed)?;
    let mut blocks = frame.split_off(ZSTD_HEAD_LEN.min(frame.len()));
    let last = last_block(&blocks).ok_or_else(|| io::Error::other("an unknown form of frame"))?;
    // More blocks follow in a response, so this one must not end the frame (RFC 8878, 3.1.1.2.1).
    blocks[last] &= !1;
    Ok(blocks)
}

/// Place where the last block begins, which must end where the blocks do.
fn last_block(blocks: &[u8]) -> Option<usize> {
    let mut at = 0;
    loop {
        let head = blocks.get(at..at + 3)?;
        let head = u32::from_le_bytes([head[0], head[1], head[2], 0]);
        let len = match head >> 1 & 3 {
            0 | 2 => (head >> 3) as usize, // raw, compressed
            1 => 1,                        // one byte that repeats
            _ => return None,
        };
        let next = at + 3 + len;
        if head & 1 == 1 {
            return (next == blocks.len()).then_some(at);
        }
        at = next;
    }
}

/// Writes what stands around the blocks of a body.
#[derive(Debug)]
pub struct CodingWriter {
    coding: Coding,
    crc: crc32fast::Hasher,
    len: u64,
}

impl CodingWriter {
    /// Begins a body.
    pub fn begin(coding: Coding, out: &mut Vec<u8>) -> Self {
        match coding {
            // No name, no time, no known system (RFC 1952, 2.3.1).
            Coding::Gzip => out.extend([0x1f, 0x8b, 8, 0, 0, 0, 0, 0, 0, 0xff]),
            // 8 times the window's logarithm above 10.
            Coding::Zstd => {
                let window = ((ZSTD_WINDOW_LOG - 10) << 3) as u8;
                out.extend([0x28, 0xb5, 0x2f, 0xfd, 0, window]);
            }
        }
        Self { coding, crc: crc32fast::Hasher::new(), len: 0 }
    }

    /// The coding of the body.
    pub fn coding(&self) -> Coding {
        self.coding
    }

    /// The most bytes that one block of stored bytes has.
    pub const STORED_MAX: usize = 65_535;

    /// Writes what stands before a block of stored bytes.
    pub fn stored(&mut self, bytes: &[u8], out: &mut Vec<u8>) {
        debug_assert!(bytes.len() <= Self::STORED_MAX, "the caller cuts");
        self.len += bytes.len() as u64;
        match self.coding {
            Coding::Gzip => {
                self.crc.update(bytes);
                let len = bytes.len() as u16;
                // RFC 1951, 3.2.4: a stored block, and not the last one.
                out.push(0);
                out.extend_from_slice(&len.to_le_bytes());
                out.extend_from_slice(&(!len).to_le_bytes());
            }
            // RFC 8878, 3.1.1.2: a raw block that is not the last one, in front of it the length.
            Coding::Zstd => out.extend_from_slice(&((bytes.len() as u32) << 3).to_le_bytes()[..3]),
        }
    }

    /// Notes blocks that stand for `len` bytes with this CRC-32.
    pub fn blocks(&mut self, crc: u32, len: usize) {
        self.len += len as u64;
        if self.coding == Coding::Gzip {
            self.crc.combine(&crc32fast::Hasher::new_with_initial_len(crc, len as u64));
        }
    }

    /// Ends the body: an empty last block, and what is known of the whole.
    pub fn end(self, out: &mut Vec<u8>) {
        match self.coding {
            Coding::Gzip => {
                out.extend([1, 0, 0, 0xff, 0xff]);
                out.extend_from_slice(&self.crc.finalize().to_le_bytes());
                out.extend_from_slice(&(self.len as u32).to_le_bytes()); // modulo 2^32, says the RFC
            }
            Coding::Zstd => out.extend([1, 0, 0]),
        }
    }
}
