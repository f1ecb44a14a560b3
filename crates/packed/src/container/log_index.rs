//! The log index: from the term of a log to the heights with such logs.

use std::borrow::Cow;
use std::ops::Range;

use alloy_primitives::B256;

use crate::container::bytes::{Bytes, put_varint};
use crate::container::layout::Section;
use crate::error::{PackError, PackedError, Part};

/// Terms of a bucket in the mean, at least half of it.
const BUCKET_TERMS: usize = 16;
/// Bits that choose a bucket, at most: the ends of all buckets have 64 MiB then.
const BUCKET_BITS_MAX: u32 = 24;
/// Bits of a term in the index: the low ones choose the bucket, the others stand in it.
const TERM_BITS: u32 = 40;
/// Most bytes of a term in a bucket: its rest, the count, and 128 varints of heights, beyond which a bitmap is less.
const TERM_BYTES_MAX: u64 = 5 + 2 + 256;

/// Returns the key of a log's value: FNV-1a, 64 bits, of the position and the value.
///
/// Position 0 is the address, 1 to 4 are the topics. A hash of 0 becomes 1.
pub fn term(position: u8, value: &[u8]) -> u64 {
    let step = |hash: u64, byte: &u8| (hash ^ u64::from(*byte)).wrapping_mul(0x0000_0100_0000_01b3);
    [position].iter().chain(value).fold(0xcbf2_9ce4_8422_2325, step).max(1)
}

/// Returns the terms of a log.
pub(crate) fn terms<'t>(address: &'t [u8], topics: &'t [B256]) -> impl Iterator<Item = u64> + 't {
    let topics = (1_u8..).zip(topics).map(|(position, topic)| term(position, &topic[..]));
    std::iter::once(term(0, address)).chain(topics)
}

/// Makes the section from pairs of a term and the index of a height.
pub(crate) fn write(mut pairs: Vec<(u64, u32)>, heights: usize) -> Result<Vec<u8>, PackError> {
    pairs.iter_mut().for_each(|(term, _)| *term &= (1 << TERM_BITS) - 1);
    pairs.sort_unstable();
    pairs.dedup();
    let terms = pairs.chunk_by(|a, b| a.0 == b.0).count();
    write_buckets(pairs, heights, bucket_bits(terms))
}

/// Makes the section from pairs without repetitions.
fn write_buckets(
    mut pairs: Vec<(u64, u32)>,
    heights: usize,
    bucket_bits: u32,
) -> Result<Vec<u8>, PackError> {
    let mask = (1_u64 << bucket_bits) - 1;
    pairs.sort_by_key(|(term, height)| (term & mask, *term, *height));
    let (mut ends, mut buckets) = (Vec::with_capacity(4 << bucket_bits), Vec::new());
    let mut rest = pairs.chunk_by(|a, b| a.0 == b.0).peekable();
    for bucket in 0..=mask {
        while let Some(of_term) = rest.next_if(|of_term| of_term[0].0 & mask == bucket) {
            put_term(&mut buckets, of_term, bucket_bits, heights);
        }
        let end = u32::try_from(buckets.len()).map_err(|_| PackError::TooLarge(Part::LogIndex))?;
        ends.extend_from_slice(&end.to_le_bytes());
    }
    let mut out = Vec::with_capacity(1 + ends.len() + buckets.len());
    out.push(bucket_bits as u8);
    out.extend_from_slice(&ends);
    out.extend_from_slice(&buckets);
    Ok(out)
}

fn bucket_bits(terms: usize) -> u32 {
    (terms / BUCKET_TERMS).max(1).ilog2().min(BUCKET_BITS_MAX)
}

fn rest_bytes(bucket_bits: u32) -> usize {
    TERM_BITS.saturating_sub(bucket_bits).div_ceil(8) as usize
}

/// Bytes of a bitmap of heights, which replaces a longer list.
fn bitmap_bytes(heights: usize, count: usize) -> Option<usize> {
    let bytes = heights.div_ceil(8);
    (count > bytes).then_some(bytes)
}

fn put_term(out: &mut Vec<u8>, pairs: &[(u64, u32)], bucket_bits: u32, heights: usize) {
    let rest = pairs[0].0 >> bucket_bits;
    out.extend_from_slice(&rest.to_le_bytes()[..rest_bytes(bucket_bits)]);
    put_varint(out, pairs.len() as u64);
    // From an eighth of the heights on a bit for each takes less than the distances.
    if let Some(bytes) = bitmap_bytes(heights, pairs.len()) {
        let start = out.len();
        out.resize(start + bytes, 0);
        for (_, height) in pairs {
            out[start + *height as usize / 8] |= 1 << (height % 8);
        }
        return;
    }
    let mut last = 0;
    for (_, height) in pairs {
        put_varint(out, u64::from(height - last));
        last = *height;
    }
}

/// Finds the heights of a term, ascending, as indexes from the first height. `read` gives a part of the
/// section, which has `length` bytes and whose checksum was compared.
pub(crate) fn heights<'s>(
    read: impl Fn(Range<u64>) -> Result<Cow<'s, [u8]>, PackedError>,
    length: u64,
    term: u64,
    heights: usize,
) -> Result<Vec<u32>, PackedError> {
    let bucket_bits = read_bucket_bits(&read, length)?;
    let term = low(term);
    let bucket = read_bucket(&read, length, bucket_bits, term)?;
    let found = read(bucket)?;
    let mut found = Bytes::new(&found, Section::Terms.name());
    while !found.is_empty() {
        let (rest, of_term) = read_term(&mut found, bucket_bits, heights)?;
        if rest == term >> bucket_bits {
            return Ok(of_term);
        }
    }
    Ok(Vec::new())
}

/// Reads the number of bits that choose a bucket.
fn read_bucket_bits<'s>(
    read: &impl Fn(Range<u64>) -> Result<Cow<'s, [u8]>, PackedError>,
    length: u64,
) -> Result<u32, PackedError> {
    let head = read(0..1)?;
    let mut bytes = Bytes::new(&head, Section::Terms.name());
    let bits = u32::from(bytes.byte()?);
    // The bytes of the buckets tell how many terms there are at least.
    let ends = 4_u64.checked_shl(bits).unwrap_or(u64::MAX);
    let terms = length.saturating_sub(1).saturating_sub(ends) / TERM_BYTES_MAX;
    if bits > BUCKET_BITS_MAX || bits < bucket_bits(terms as usize) {
        return Err(bytes.error("a width that no packer writes"));
    }
    Ok(bits)
}

/// Reads the place of the bucket of a term in the section.
fn read_bucket<'s>(
    read: &impl Fn(Range<u64>) -> Result<Cow<'s, [u8]>, PackedError>,
    length: u64,
    bucket_bits: u32,
    term: u64,
) -> Result<Range<u64>, PackedError> {
    let bucket = term & ((1 << bucket_bits) - 1);
    let ends = read(1 + 4 * bucket.saturating_sub(1)..1 + 4 * (bucket + 1))?;
    let mut ends = Bytes::new(&ends, Section::Terms.name());
    let start = if bucket == 0 { 0 } else { u64::from(ends.u32()?) };
    let end = u64::from(ends.u32()?);
    let offset = 1 + (4 << bucket_bits);
    if start > end || offset + end > length {
        return Err(ends.error("a bucket out of order"));
    }
    Ok(offset + start..offset + end)
}

/// Returns the low bits of a term, which are all that the section has.
pub(crate) fn low(term: u64) -> u64 {
    term & ((1 << TERM_BITS) - 1)
}

/// Calls `each` with the low bits of every term of the section, each once, and its heights.
pub(crate) fn all(
    section: &[u8],
    heights: usize,
    mut each: impl FnMut(u64, Vec<u32>),
) -> Result<(), PackedError> {
    let mut bytes = Bytes::new(section, Section::Terms.name());
    let bucket_bits = u32::from(bytes.byte()?);
    if bucket_bits > BUCKET_BITS_MAX {
        return Err(bytes.error("a width that no packer writes"));
    }
    let ends = bytes.take(4 << bucket_bits)?;
    let mut start = 0;
    for (bucket, end) in (0_u64..).zip(ends.as_chunks::<4>().0) {
        let end = u32::from_le_bytes(*end);
        let mut terms = take_bucket(&mut bytes, start, end)?;
        while !terms.is_empty() {
            let (rest, of_term) = read_term(&mut terms, bucket_bits, heights)?;
            each(rest << bucket_bits | bucket, of_term);
        }
        start = end;
    }
    bytes.end()
}

/// Takes the bucket from `start` to `end` from the front.
fn take_bucket<'b>(bytes: &mut Bytes<'b>, start: u32, end: u32) -> Result<Bytes<'b>, PackedError> {
    let length = u32::checked_sub(end, start);
    let length = length.ok_or_else(|| bytes.error("a bucket out of order"))?;
    Ok(Bytes::new(bytes.take(length as usize)?, Section::Terms.name()))
}

/// Reads the bits of a term that do not choose its bucket, and its heights.
fn read_term(
    bytes: &mut Bytes<'_>,
    bucket_bits: u32,
    heights: usize,
) -> Result<(u64, Vec<u32>), PackedError> {
    let rest = bytes.take(rest_bytes(bucket_bits))?;
    let rest = rest.iter().rev().fold(0, |sum: u64, byte| sum << 8 | u64::from(*byte));
    Ok((rest, read_heights(bytes, heights)?))
}

fn read_heights(bytes: &mut Bytes<'_>, heights: usize) -> Result<Vec<u32>, PackedError> {
    let count = bytes.count(heights)?;
    let mut found = Vec::with_capacity(count);
    if let Some(length) = bitmap_bytes(heights, count) {
        let map = bytes.take(length)?;
        found.extend((0..heights as u32).filter(|at| map[*at as usize / 8] >> (at % 8) & 1 == 1));
        return Ok(found);
    }
    let mut last = 0;
    for at in 0..count {
        let step = bytes.count(heights)?;
        last += step;
        // A height twice would be searched twice, and its logs come twice.
        if last >= heights || (at > 0 && step == 0) {
            return Err(bytes.error("heights that do not ascend"));
        }
        found.push(last as u32);
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn heights(section: &[u8], term: u64, heights: usize) -> Result<Vec<u32>, PackedError> {
        let read = |range| crate::container::source::part(section, range);
        super::heights(read, section.len() as u64, term, heights)
    }

    fn all(section: &[u8], heights: usize) -> Result<Vec<u64>, PackedError> {
        let mut found = Vec::new();
        super::all(section, heights, |term, _| found.push(term)).map(|()| found)
    }

    #[test]
    fn each_term_has_its_heights() {
        for (terms, count) in [(1, 1), (40, 32), (5000, 1024)] {
            let key = |of: u64| term(0, &of.to_le_bytes());
            let mut pairs = Vec::new();
            for of in 0..terms {
                let step = 1 + of as usize % 97;
                pairs.extend((0..count as u32).step_by(step).map(|height| (key(of), height)));
            }
            let section = write(pairs.clone(), count).unwrap();
            for of in 0..terms {
                let step = 1 + of as usize % 97;
                let expected: Vec<u32> = (0..count as u32).step_by(step).collect();
                assert_eq!(heights(&section, key(of), count).unwrap(), expected);
            }
            assert!(heights(&section, key(terms), count).unwrap().is_empty());
            let mut all = all(&section, count).unwrap();
            let mut keys: Vec<_> = (0..terms).map(|of| low(key(of))).collect();
            all.sort_unstable();
            keys.sort_unstable();
            assert_eq!(all, keys);
            pairs.reverse();
            assert_eq!(write(pairs, count).unwrap(), section);
        }
    }

    /// In one bucket each look-up would read all terms.
    #[test]
    fn index_with_too_few_buckets_is_refused() {
        let mask = (1 << TERM_BITS) - 1;
        let key = |of: u32| term(1, &of.to_le_bytes()) & mask;
        let mut pairs: Vec<(u64, u32)> = (0..40_000).map(|of| (key(of), of % 32)).collect();
        pairs.sort_unstable();
        let least = (0..=11).find(|bits| {
            let section = write_buckets(pairs.clone(), 32, *bits).unwrap();
            heights(&section, key(7), 32).is_ok_and(|found| found == [7])
        });
        assert!(least.is_some_and(|least| least > 5), "{least:?} bits");
    }

    #[test]
    fn log_index_without_terms_finds_nothing() {
        let section = write(Vec::new(), 3).unwrap();
        assert!(
            heights(&section, 7, 3).unwrap().is_empty() && all(&section, 3).unwrap().is_empty()
        );
    }

    #[test]
    fn log_index_with_any_byte_changed_is_read_or_refused() {
        let pairs = (0..200).map(|of: u32| (term(1, &of.to_le_bytes()), of % 32)).collect();
        let section = write(pairs, 32).unwrap();
        for at in 0..section.len() {
            let mut changed = section.clone();
            changed[at] ^= 0xff;
            for of in 0..200_u32 {
                let _ = heights(&changed, term(1, &of.to_le_bytes()), 32);
            }
            let _ = heights(&section[..at], 7, 32);
            let _ = all(&changed, 32);
            let cut = all(&section[..at], 32);
            assert!(cut.is_err(), "{at}");
        }
    }

    /// Vectors of FNV-1a by its authors: "a" and "foobar" behind a first byte of theirs.
    #[test]
    fn term_is_fnv_1a_of_position_and_value() {
        assert_eq!(term(b'a', b""), 0xaf63_dc4c_8601_ec8c);
        assert_eq!(term(b'f', b"oobar"), 0x8594_4171_f739_67e8);
    }
}
