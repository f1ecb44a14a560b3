//! Entrances for `fuzz/`, which sees public items only. They are there under `cfg(fuzzing)` alone.

use bytes::BytesMut;

use crate::mirror::{Frame, Listing, Malformed};

/// Longest payload that the checks below allow.
const FRAME_BYTES_MAX: usize = 1 << 20;

/// Decodes `bytes` at once and in chunks of `step` bytes.
///
/// # Panics
///
/// If both ways differ, or if a decoded frame is not the same after it was encoded.
pub fn check_frames(bytes: &[u8], step: usize) {
    let whole = decode([bytes].into_iter());
    assert_eq!(whole, decode(bytes.chunks(step.max(1))), "in pieces of {step}");
    for frame in whole.0 {
        let mut encoded = BytesMut::from(&frame.encode()[..]);
        assert_eq!(Frame::decode(&mut encoded, FRAME_BYTES_MAX), Ok(Some(frame)));
        assert!(encoded.is_empty());
    }
}

fn decode<'b>(pieces: impl Iterator<Item = &'b [u8]>) -> (Vec<Frame>, Option<Malformed>) {
    let (mut bytes, mut frames) = (BytesMut::new(), Vec::new());
    for piece in pieces {
        bytes.extend_from_slice(piece);
        loop {
            match Frame::decode(&mut bytes, FRAME_BYTES_MAX) {
                Ok(Some(frame)) => frames.push(frame),
                Ok(None) => break,
                Err(error) => return (frames, Some(error)),
            }
        }
    }
    (frames, None)
}

/// Reads `json` as a source's list of segments.
///
/// # Panics
///
/// If a list that was read is another one after it was written.
pub fn check_listing(json: &[u8]) {
    let Ok(listing) = serde_json::from_slice::<Listing>(json) else { return };
    let _ = (listing.identity(), listing.start());
    let again = serde_json::to_vec(&listing).expect("a listing is JSON");
    assert_eq!(serde_json::from_slice::<Listing>(&again).ok(), Some(listing));
}
