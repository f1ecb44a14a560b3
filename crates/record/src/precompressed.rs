//! Compressed forms of a record's large parts, made once so that answers can be sent compressed
//! without compressing: what is before and after a part in an answer is put around its compressed
//! form as it is.
//!
//! That works because both formats are made of blocks on byte boundaries. A *gzip* body (RFC 1952)
//! is a header, deflate blocks (RFC 1951) and a trailer; a *zstd* one (RFC 8878) a frame header and
//! blocks. Text goes in as blocks of stored bytes; the compressed form of a part is blocks that
//! refer to nothing before them, none of which is marked as the last.

use std::io::{self, Read};
use std::ops::Range;

use neve_store::residency::Cold;
use neve_store::{Part, RecordRef, SegmentSlice};

use crate::coding::{Coding, CodingWriter};
use crate::parts::{FULL, HASHES, HEADER, RECEIPTS};

/// The part of a record that holds the compressed forms of others.
pub const PRECOMPRESSED: usize = 5;
/// The parts that have compressed forms.
const SOURCES: [usize; 4] = [HASHES, HEADER, FULL, RECEIPTS];
/// Shorter parts go into a packet or two as they are.
const SOURCE_BYTES_MIN: usize = 4096;

const ENTRY_LEN: usize = 5 * 4;

/// A compressed form.
pub struct Precompressed {
    /// Blocks of the frame.
    pub blocks: SegmentSlice,
    /// The CRC-32 of what they stand for.
    pub crc: u32,
}

/// Makes the precompressed part of a record with these parts: a directory, and the compressed forms.
pub fn precompress(parts: &[Part], codings: &[Coding]) -> io::Result<Vec<u8>> {
    let (mut directory, mut blocks) = (Vec::new(), Vec::new());
    let wanted =
        SOURCES.iter().flat_map(|source| codings.iter().map(move |coding| (source, coding)));
    for (source, coding) in wanted {
        let Some(plain) = parts.get(*source).map(|part| &part.bytes) else { continue };
        // A short part gains less than its entry and the blocks around it cost.
        if plain.len() < SOURCE_BYTES_MIN {
            continue;
        }
        let form = coding.compress(plain)?;
        let words = [*source as u32, coding.code(), blocks.len() as u32, form.len() as u32];
        directory.extend(words.into_iter().chain([crc32fast::hash(plain)]));
        blocks.extend_from_slice(&form);
    }
    let count = directory.len() * 4 / ENTRY_LEN;
    let mut forms = Vec::with_capacity(4 + directory.len() * 4 + blocks.len());
    forms.extend_from_slice(&(count as u32).to_le_bytes());
    directory.iter().for_each(|word: &u32| forms.extend_from_slice(&word.to_le_bytes()));
    forms.extend_from_slice(&blocks);
    Ok(forms)
}

/// The compressed form of a part, if the record has one.
pub fn find(
    record: &RecordRef,
    part: usize,
    coding: Coding,
) -> Result<Option<Precompressed>, Cold> {
    let Some(forms) = crate::parts::readable_part(record, PRECOMPRESSED)? else { return Ok(None) };
    let entry = entry(forms.as_ref(), part, coding);
    Ok(entry
        .map(|(blocks, crc)| Precompressed { blocks: forms.slice(blocks.start, blocks.end), crc }))
}

/// True if a part of a record has a compressed form, whatever the coding.
pub fn has_any(record: &RecordRef, part: usize) -> Result<bool, Cold> {
    for coding in Coding::ALL {
        if find(record, part, coding)?.is_some() {
            return Ok(true);
        }
    }
    Ok(false)
}

/// Place where the blocks are, and the CRC-32 of what they stand for.
fn entry(forms: &[u8], part: usize, coding: Coding) -> Option<(Range<u32>, u32)> {
    let word = |at: usize| {
        let bytes = forms.get(at..at + 4)?;
        Some(u32::from_le_bytes(bytes.try_into().ok()?))
    };
    let count = word(0).filter(|count| *count as usize <= forms.len() / ENTRY_LEN)? as usize;
    let mut entries = (0..count).map(|at| 4 + at * ENTRY_LEN);
    let found =
        entries.find(|at| word(*at) == Some(part as u32) && word(at + 4) == Some(coding.code()))?;
    let start = ((4 + count * ENTRY_LEN) as u32).checked_add(word(found + 8)?)?;
    let end = start.checked_add(word(found + 12)?)?;
    (end as usize <= forms.len()).then_some((start..end, word(found + 16)?))
}

/// True if a precompressed part is what [`precompress`] makes of these parts, whatever release compressed it:
/// each form it has stands for its part.
pub fn is_of(forms: &[u8], parts: &[&[u8]]) -> bool {
    let all = SOURCES.iter().flat_map(|source| Coding::ALL.map(|coding| (*source, coding)));
    let mut known = 0;
    for (source, coding) in all {
        let Some((blocks, crc)) = entry(forms, source, coding) else { continue };
        let Some(plain) = parts.get(source) else { return false };
        let blocks = &forms[blocks.start as usize..blocks.end as usize];
        // Not by comparing compressed bytes: other releases may compress otherwise.
        if crc != crc32fast::hash(plain) || !decompresses_to(coding, blocks, plain) {
            return false;
        }
        known += 1;
    }
    forms.first_chunk().is_some_and(|count| u32::from_le_bytes(*count) == known)
}

fn decompresses_to(coding: Coding, blocks: &[u8], plain: &[u8]) -> bool {
    let mut body = Vec::with_capacity(blocks.len() + 64);
    let mut frame = CodingWriter::begin(coding, &mut body);
    body.extend_from_slice(blocks);
    frame.blocks(crc32fast::hash(plain), plain.len());
    frame.end(&mut body);
    match coding {
        Coding::Gzip => reads_as(flate2::read::GzDecoder::new(&body[..]), plain),
        Coding::Zstd => {
            zstd::Decoder::with_buffer(&body[..]).is_ok_and(|decoder| reads_as(decoder, plain))
        }
    }
}

/// True if a reader gives exactly these bytes. It ends with the first other byte: blocks of a few bytes, from a mirror's
/// source, can stand for gigabytes.
fn reads_as(mut reader: impl Read, mut plain: &[u8]) -> bool {
    let mut buffer = [0; 8 << 10];
    loop {
        match reader.read(&mut buffer) {
            Ok(0) => return plain.is_empty(),
            Ok(count) => match plain.strip_prefix(&buffer[..count]) {
                Some(rest) => plain = rest,
                None => return false,
            },
            Err(_) => return false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Text like a record's: some of it repeats, some does not.
    fn text(len: usize) -> Vec<u8> {
        let mut random = fastrand::Rng::with_seed(len as u64);
        let line = |_| format!("{{\"hash\":\"{:032x}\",\"type\":\"0x2\"}},", random.u128(..));
        let mut text: Vec<u8> = (0..=(len / 50)).map(line).collect::<String>().into_bytes();
        text.truncate(len);
        text
    }

    fn parts(len: usize) -> Vec<Part> {
        (0..5).map(|at| Part::uncompressed(text(len + at))).collect()
    }

    #[test]
    fn compressed_forms_decode_to_their_parts() {
        for len in [SOURCE_BYTES_MIN, 70_000, 131_072, 700_000, 3 << 20] {
            let parts = parts(len);
            let forms = precompress(&parts, &Coding::ALL).unwrap();
            let plain: Vec<&[u8]> = parts.iter().map(|part| &part.bytes[..]).collect();
            assert!(is_of(&forms, &plain), "{len}");
            let mut other = plain.clone();
            let changed = [&plain[FULL][1..], b"x"].concat();
            other[FULL] = &changed;
            assert!(!is_of(&forms, &other), "{len}");
            assert!(forms.len() < 8 * len, "{len}: {}", forms.len());
        }
    }

    #[test]
    fn short_parts_are_left_as_they_are() {
        let forms = precompress(&parts(100), &Coding::ALL).unwrap();
        assert_eq!(forms, [0; 4]);
        assert_eq!(entry(&forms, FULL, Coding::Gzip), None);
        assert_eq!(entry(&[], FULL, Coding::Gzip), None);
        assert_eq!(entry(&[0xff; 40], FULL, Coding::Gzip), None);
    }

    #[test]
    fn stored_bytes_and_blocks_make_one_stream() {
        let (before, part, after) = (text(60_000), text(90_000), text(10));
        for coding in Coding::ALL {
            let blocks = coding.compress(&part).unwrap();
            let mut body = Vec::new();
            let mut frame = CodingWriter::begin(coding, &mut body);
            frame.stored(&before, &mut body);
            body.extend_from_slice(&before);
            for _ in 0..2 {
                frame.blocks(crc32fast::hash(&part), part.len());
                body.extend_from_slice(&blocks);
            }
            frame.stored(&after, &mut body);
            body.extend_from_slice(&after);
            frame.end(&mut body);
            let mut out = Vec::new();
            match coding {
                Coding::Gzip => {
                    let mut decoder = flate2::read::GzDecoder::new(&body[..]);
                    Read::read_to_end(&mut decoder, &mut out).unwrap();
                }
                Coding::Zstd => zstd::stream::copy_decode(&body[..], &mut out).unwrap(),
            }
            assert!(out == [&before[..], &part, &part, &after].concat(), "{coding:?}");
        }
    }

    /// Makes a precompressed part whose blocks of HASHES are these.
    fn with_blocks(coding: Coding, blocks: &[u8], plain: &[u8]) -> Vec<u8> {
        let words = [HASHES as u32, coding.code(), 0, blocks.len() as u32, crc32fast::hash(plain)];
        let directory = [1].into_iter().chain(words).flat_map(u32::to_le_bytes);
        directory.chain(blocks.iter().copied()).collect()
    }

    #[test]
    fn blocks_that_stand_for_gigabytes_are_read_as_far_as_they_are_right() {
        let plain = vec![b'a'; 300_000];
        // RFC 8878, 3.1.1.2: a block of type 1 is a byte that is repeated, here 128 KiB times.
        let block = [&(131_072_u32 << 3 | 1 << 1).to_le_bytes()[..3], b"a"].concat();
        assert!(is_of(
            &with_blocks(Coding::Zstd, &Coding::Zstd.compress(&plain).unwrap(), &plain),
            &[&plain]
        ));
        assert!(!is_of(&with_blocks(Coding::Zstd, &block.repeat(50_000), &plain), &[&plain]));
        // It never ends.
        assert!(!reads_as(io::repeat(b'a'), &plain));
        assert!(!reads_as(&plain[1..], &plain));
        assert!(reads_as(&plain[..], &plain));
    }

    #[test]
    fn directory_that_leaves_the_part_has_no_form() {
        let mut forms = with_blocks(Coding::Zstd, &[0; 8], b"");
        for start in [9, u32::MAX - 20, u32::MAX] {
            forms[12..16].copy_from_slice(&start.to_le_bytes());
            assert!(entry(&forms, HASHES, Coding::Zstd).is_none(), "{start}");
        }
    }
}
