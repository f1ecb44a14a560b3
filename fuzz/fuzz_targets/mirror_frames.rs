//! Frames and listings of a mirror's source: whatever comes, in whatever pieces, decodes to the same
//! frames or to an error.

#![no_main]

use libfuzzer_sys::fuzz_target;
use neve::fuzzing::{check_frames, check_listing};

/// Inputs that begin with it are framed here, so that they pass the checksum.
const FRAMED: u8 = 0;
/// Frames in an input of that kind.
const FRAMES_MAX: usize = 16;

fuzz_target!(|input: &[u8]| {
    check_listing(input);
    let Some((&kind, rest)) = input.split_first() else { return };
    let step = usize::from(kind).max(1);
    if kind == FRAMED { check_frames(&framed(rest), 7) } else { check_frames(rest, step) }
});

/// Makes frames: of a kind, a length and a payload each.
fn framed(mut input: &[u8]) -> Vec<u8> {
    let mut out = Vec::new();
    for _ in 0..FRAMES_MAX {
        let [kind, low, high, rest @ ..] = input else { break };
        let len = usize::from(u16::from_le_bytes([*low, *high])).min(rest.len());
        let (payload, after) = rest.split_at(len);
        let start = out.len();
        out.push(*kind);
        out.extend_from_slice(&(len as u32).to_le_bytes());
        out.extend_from_slice(payload);
        let crc = crc32fast::hash(&out[start..]);
        out.extend_from_slice(&crc.to_le_bytes());
        input = after;
    }
    out
}
