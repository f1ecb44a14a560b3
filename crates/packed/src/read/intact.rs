//! Intact beginning of a file that did not arrive whole.

use crate::container::directory;
use crate::container::layout::{FileHeader, Place, Section};
use crate::read::file::{PackedFile, range};

/// Returns how many bytes at the start of `file` pass their checksums: the header, the sections, and
/// the frames up to the first that does not. `file` has the length of the whole file; bytes that did
/// not arrive may have any value.
pub fn intact_bytes(file: &[u8]) -> u64 {
    let Ok((header, places)) = FileHeader::read(file, file.len() as u64) else { return 0 };
    for place in &places[..Section::Frames as usize] {
        let bytes = part(file, place, 0..place.bytes);
        if bytes.is_none_or(|bytes| crc32fast::hash(bytes) != place.crc) {
            return place.offset;
        }
    }
    let frames = &places[Section::Frames as usize];
    frames.offset + intact_frames(file, &header, frames)
}

/// Returns the bytes of the frames before the first one that does not pass its checksum.
fn intact_frames(file: &[u8], header: &FileHeader, frames: &Place) -> u64 {
    // Right checksums make no right tables. Then no frame counts, and all of them come again.
    let Ok(opened) = PackedFile::open(file) else { return 0 };
    let mut end = 0;
    for (index, height) in (header.first..=header.last()).enumerate() {
        let Ok((before, entry)) = opened.entries(index) else { break };
        let frame = part(file, frames, range(before, entry));
        if frame.is_none_or(|frame| directory::checksum(height, frame) != entry.crc) {
            break;
        }
        end = u64::from(entry.end);
    }
    end
}

fn part<'f>(file: &'f [u8], place: &Place, range: std::ops::Range<u64>) -> Option<&'f [u8]> {
    let (offset, bytes) = place.part(range)?;
    let start = usize::try_from(offset).ok()?;
    file.get(start..start.checked_add(bytes)?)
}
