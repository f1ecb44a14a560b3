//! zstd with fixed parameters: a file is a function of its heights only.

use std::cell::{Cell, RefCell};

use zstd::zstd_safe::{CCtx, CParameter, DCtx, DDict, get_error_name};

use crate::error::{PackError, PackedError};

/// Level of all frames. It is part of the format: another level makes other files.
const LEVEL: i32 = 9;
/// Length of the magic number, which the frames of the file lack.
const MAGIC: [u8; 4] = [0x28, 0xb5, 0x2f, 0xfd];

/// Length of the dictionary, and of each sample that it is made from.
const DICTIONARY_BYTES: usize = 32 << 10;
const SAMPLE_BYTES_MAX: usize = 16 << 10;
/// Bytes of all samples; those of mainnet have 1.5 MiB. The first ones make the dictionary.
const SAMPLES_BYTES_MAX: usize = 4 << 20;

thread_local! {
    static UNPACKED_BYTES: Cell<u64> = const { Cell::new(0) };
    /// Context of each thread: to make another for each frame would take longer than most frames.
    static DECOMPRESS: RefCell<DCtx<'static>> = RefCell::new(DCtx::create());
}

/// Compresses the groups of a file with its dictionary.
pub(crate) struct Compressor(CCtx<'static>);

impl Compressor {
    pub(crate) fn new(dictionary: &[u8]) -> Result<Self, PackError> {
        let mut context = CCtx::create();
        // The file has lengths, digests and its one dictionary: a frame need not repeat them.
        for parameter in [
            CParameter::CompressionLevel(LEVEL),
            CParameter::ContentSizeFlag(false),
            CParameter::ChecksumFlag(false),
            CParameter::DictIdFlag(false),
        ] {
            context.set_parameter(parameter).map_err(failed)?;
        }
        context.load_dictionary(dictionary).map_err(failed)?;
        Ok(Self(context))
    }

    /// Returns a frame without its magic number.
    pub(crate) fn frame(&mut self, content: &[u8]) -> Result<Vec<u8>, PackError> {
        let mut out = Vec::with_capacity(zstd::zstd_safe::compress_bound(content.len()));
        self.0.compress2(&mut out, content).map_err(failed)?;
        Ok(out.split_off(MAGIC.len()))
    }
}

/// Contents of groups that the dictionary is made from.
#[derive(Default)]
pub(crate) struct Samples {
    bytes: Vec<u8>,
    sizes: Vec<usize>,
}

impl Samples {
    pub(crate) fn add(&mut self, content: &[u8]) {
        // Long contents are mostly calldata that does not repeat.
        let sample = &content[..content.len().min(SAMPLE_BYTES_MAX)];
        if self.bytes.len() + sample.len() > SAMPLES_BYTES_MAX {
            return;
        }
        self.bytes.extend_from_slice(sample);
        self.sizes.push(sample.len());
    }

    /// Makes the dictionary; empty if there are too few samples.
    pub(crate) fn train(self) -> Vec<u8> {
        let mut out = Vec::with_capacity(DICTIONARY_BYTES);
        match zstd::zstd_safe::train_from_buffer(&mut out, &self.bytes, &self.sizes) {
            Ok(_) => out,
            Err(_) => Vec::new(),
        }
    }
}

/// A dictionary, digested for unpacking.
pub(crate) struct Dictionary(DDict<'static>);

impl Dictionary {
    /// Digests a dictionary. zstd refuses one that begins as its own do and has bad tables.
    pub(crate) fn new(bytes: &[u8]) -> Result<Self, PackedError> {
        let digested = DDict::try_create(bytes);
        digested.map(Self).ok_or_else(|| PackedError::malformed("dictionary", "zstd refuses it"))
    }

    /// Returns the bytes that it takes in memory.
    pub(crate) fn bytes(&self) -> usize {
        self.0.sizeof()
    }

    /// Unpacks a frame that lacks its magic number, to exactly `length` bytes.
    pub(crate) fn unpack(&self, frame: &[u8], length: usize) -> Result<Vec<u8>, PackedError> {
        let mut whole = Vec::with_capacity(MAGIC.len() + frame.len());
        // Each frame of a file would begin with these bytes: they are left out there.
        whole.extend_from_slice(&MAGIC);
        whole.extend_from_slice(frame);
        let mut out = Vec::with_capacity(length);
        DECOMPRESS.with_borrow_mut(|context| {
            context.decompress_using_ddict(&mut out, &whole, &self.0).map_err(unpacking)
        })?;
        count_unpacked(length);
        exactly(out, length)
    }
}

impl std::fmt::Debug for Dictionary {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Dictionary")
    }
}

pub(crate) fn compress_text(text: &[u8]) -> Result<Vec<u8>, PackError> {
    Compressor::new(&[])?.frame(text)
}

pub(crate) fn decompress_text(frame: &[u8], length: usize) -> Result<Vec<u8>, PackedError> {
    // A hostile length must not reserve memory that the frame cannot fill: zstd's blocks of
    // 128 KiB take at least four bytes each.
    if length / (128 << 10) > frame.len() / 4 {
        return Err(PackedError::malformed("zstd frame", "a length over its bytes"));
    }
    let whole = [&MAGIC, frame].concat();
    let mut out = Vec::with_capacity(length);
    DECOMPRESS
        .with_borrow_mut(|context| context.decompress(&mut out, &whole).map_err(unpacking))?;
    exactly(out, length)
}

/// Returns the bytes of heights that this thread has unpacked. Tables do not count.
pub fn unpacked_bytes() -> u64 {
    UNPACKED_BYTES.get()
}

pub(crate) fn count_unpacked(bytes: usize) {
    UNPACKED_BYTES.set(UNPACKED_BYTES.get() + bytes as u64);
}

fn exactly(out: Vec<u8>, length: usize) -> Result<Vec<u8>, PackedError> {
    if out.len() == length {
        Ok(out)
    } else {
        Err(PackedError::malformed("zstd frame", "another length than declared"))
    }
}

fn failed(code: usize) -> PackError {
    PackError::Zstd(get_error_name(code))
}

fn unpacking(_: usize) -> PackedError {
    PackedError::malformed("zstd frame", "it does not unpack")
}
