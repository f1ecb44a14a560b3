//! Places that the disk did not deliver: they count as damage, so that they are not read again and
//! again, and are repaired.

use super::checked::Checked;
use crate::format::{INDEX_OFFSET, SLOT_LEN, SegmentHeader, Slot, array};
use crate::memory::Map;

/// Has places of a segment's file that cannot be read noted in `checked`.
pub(crate) fn note_in(checked: &Checked, map: &Map, header: SegmentHeader) {
    let (base, checked) = (header.base_height, checked.clone());
    map.on_unreadable(move |map, at| match slot_of(map, &header, at) {
        Some(slot) => checked.note_damaged(base, slot, "record cannot be read"),
        None => checked.note_sections(base, "index cannot be read"),
    });
}

/// The slot whose record, or whose own bytes, are at this place of the file.
fn slot_of(map: &Map, header: &SegmentHeader, at: u64) -> Option<u32> {
    let slots = map.first_end() - INDEX_OFFSET;
    if let Some(at) = at.checked_sub(INDEX_OFFSET).filter(|at| *at < slots) {
        return u32::try_from(at / SLOT_LEN as u64).ok();
    }
    // Read from the file, not the map: a touch of its pages could be a signal, too.
    let slots = map.read(INDEX_OFFSET, slots as usize).ok()?;
    let has = |(slot, bytes): (u32, &[u8])| {
        let height = header.base_height + u64::from(slot);
        let found = Slot::parse(&array(bytes, 0), height, header.capacity).ok()?;
        (found.offset <= at && at < found.end()?).then_some(slot)
    };
    (0..).zip(slots.chunks_exact(SLOT_LEN)).find_map(has)
}
