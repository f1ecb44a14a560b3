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
/// of different lengths keep all of them busy until the last few. The longest go first: one of them at the
/// end would have the registers to itself.
pub(crate) fn hash_by<const LANES: usize>(
    messages: &[&[u8]],
    permute: impl Fn(&mut State<LANES>),
) -> Vec<B256> {
    let mut hashes = vec![B256::ZERO; messages.len()];
    // With a lane for each message the order does not matter.
    let order = if messages.len() > LANES { longest_first(messages) } else { Vec::new() };
    let mut waiting = 0..messages.len();
    let mut next = || {
        let at = waiting.next()?;
        let index = order.get(at).map_or(at, |index| *index as usize);
        Some(Work { index, rest: Some(messages[index]) })
    };
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
                // The next message of the lane begins with a state of zeros.
                state.0.iter_mut().for_each(|word| word[lane] = 0);
                *slot = next();
            }
        }
    }
    hashes
}

/// Lengths that are told apart, in permutations; all longer ones are alike.
const LENGTHS: usize = 16;

/// Numbers of the messages: those of the most permutations first, equal ones in their order.
fn longest_first(messages: &[&[u8]]) -> Vec<u32> {
    let place = |message: &&[u8]| LENGTHS - 1 - (message.len() / RATE).min(LENGTHS - 1);
    let mut starts = [0; LENGTHS + 1];
    messages.iter().for_each(|message| starts[place(message) + 1] += 1);
    for place in 0..LENGTHS {
        starts[place + 1] += starts[place];
    }
    let mut order = vec![0; messages.len()];
    for (message, index) in messages.iter().zip(0..) {
        let start = &mut starts[place(message)];
        order[*start] = index;
        *start += 1;
    }
    order
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
        // One byte short of a block, both ends of the padding share a byte.
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
    fn longest_messages_go_first_and_equal_ones_in_their_order() {
        let message = [0; 40 * RATE];
        let lengths = [0, RATE, 20, 39 * RATE, 3 * RATE, RATE - 1, 30 * RATE, RATE + 1];
        let messages = lengths.map(|length| &message[..length]);
        assert_eq!(longest_first(&messages), [3, 6, 4, 1, 7, 0, 2, 5]);
        assert_eq!(longest_first(&[]), []);
    }

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
