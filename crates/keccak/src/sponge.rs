//! The sponge of several messages: who has which lane, and what goes into it.
//!
//! A lane is here what one message has of the registers, not a word of Keccak's state as in FIPS
//! 202.

use alloy_primitives::B256;

/// Bytes that go in before each permutation: 1600 bits without twice the digest's 256.
const RATE: usize = 136;

/// True if several messages at a time take less time than one after the other. One that is longer
/// than all others together has the registers to itself most of the time, and a permutation of all
/// lanes takes longer than one of a single state (AVX2: 1.7 times).
pub(crate) fn lanes_pay(messages: &[&[u8]]) -> bool {
    let permutations = messages.iter().map(|message| message.len() / RATE + 1);
    let (all, most) = permutations.fold((0, 0), |(all, most), one| (all + one, one.max(most)));
    all >= 2 * most && messages.len() > 1
}

/// State of all lanes: each of the 25 words of Keccak's state, those of all lanes beside each
/// other.
#[repr(align(64))]
pub(crate) struct State<const LANES: usize>(pub(crate) [[u64; LANES]; 25]);

/// A message on its way through a lane.
#[derive(Clone, Copy)]
struct Work<'m> {
    /// Index of the message.
    index: usize,
    /// Bytes that have not gone in yet. With the block that holds the padding nothing is left.
    rest: Option<&'m [u8]>,
}

/// Keccak-256 of each message. A lane whose message is done takes the next one, so that messages
/// of different lengths keep all of them busy until the last few.
pub(crate) fn hash_by<const LANES: usize>(
    messages: &[&[u8]],
    permute: impl Fn(&mut State<LANES>),
) -> Vec<B256> {
    let mut hashes = vec![B256::ZERO; messages.len()];
    let mut waiting = messages.iter().enumerate();
    let mut next = || waiting.next().map(|(index, message)| Work { index, rest: Some(message) });
    let mut lanes: [Option<Work<'_>>; LANES] = std::array::from_fn(|_| next());
    let mut state = State([[0; LANES]; 25]);
    while lanes.iter().any(Option::is_some) {
        for (lane, work) in lanes.iter_mut().enumerate() {
            work.iter_mut().for_each(|work| work.absorb(lane, &mut state));
        }
        permute(&mut state);
        for (lane, slot) in lanes.iter_mut().enumerate() {
            if let Some(Work { index, rest: None }) = *slot {
                hashes[index] = squeeze(lane, &state);
                state.0.iter_mut().for_each(|word| word[lane] = 0);
                *slot = next();
            }
        }
    }
    hashes
}

impl Work<'_> {
    /// Puts the next block into the lane, the last one with Keccak's padding (not that of SHA-3).
    fn absorb<const LANES: usize>(&mut self, lane: usize, state: &mut State<LANES>) {
        let Some(rest) = self.rest else { return };
        if let Some((block, rest)) = rest.split_first_chunk::<RATE>() {
            mix(block, lane, state);
            self.rest = Some(rest);
            return;
        }
        let mut block = [0; RATE];
        block[..rest.len()].copy_from_slice(rest);
        block[rest.len()] = 0x01;
        block[RATE - 1] |= 0x80;
        mix(&block, lane, state);
        self.rest = None;
    }
}

fn mix<const LANES: usize>(block: &[u8; RATE], lane: usize, state: &mut State<LANES>) {
    for (word, bytes) in state.0.iter_mut().zip(block.as_chunks::<8>().0) {
        word[lane] ^= u64::from_le_bytes(*bytes);
    }
}

fn squeeze<const LANES: usize>(lane: usize, state: &State<LANES>) -> B256 {
    let mut hash = B256::ZERO;
    for (bytes, word) in hash.as_chunks_mut::<8>().0.iter_mut().zip(&state.0) {
        *bytes = word[lane].to_le_bytes();
    }
    hash
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lanes_pay_unless_one_message_is_most_of_all() {
        let message = [0; 10 * RATE];
        let pay = |lengths: &[usize]| {
            lanes_pay(&lengths.iter().map(|length| &message[..*length]).collect::<Vec<_>>())
        };
        assert!(!pay(&[]) && !pay(&[0]) && !pay(&[400]));
        assert!(pay(&[0, 0]) && pay(&[RATE - 1, 0]) && !pay(&[RATE, 0]));
        assert!(pay(&[3 * RATE, RATE, RATE]) && !pay(&[4 * RATE, RATE, RATE]));
    }
}
