//! Atomic transactions, which stand in a block's extra data: an export to the X-chain or an import
//! from it. The codec is that which `neve_chain::atomic` reads.

#![expect(clippy::big_endian_bytes, reason = "Avalanche's codec is big-endian")]

use neve_chain::atomic::{AtomicTx, parse_batch};

use crate::chain::rules::Random;

/// Number of the network, which no other network has.
const NETWORK_ID: u32 = 115_115;
const IMPORT: u32 = 0;
const EXPORT: u32 = 1;
const TRANSFER_INPUT: u32 = 5;
const TRANSFER_OUTPUT: u32 = 7;
const CREDENTIAL: u32 = 9;
/// Inputs of a transaction are few.
const INPUTS_MAX: u64 = 3;

/// Extra data with one or two atomic transactions, and the gas that they cost.
pub(crate) fn batch(random: &mut Random) -> (Vec<u8>, u64) {
    // The codec's version is 0.
    let mut data = Writer(vec![0, 0]);
    let count = 1 + random.below(2);
    data.u32(count as u32);
    (0..count).for_each(|_| data.transaction(random));
    let transactions = parse_batch(&data.0).unwrap_or_default();
    let gas = transactions.iter().map(AtomicTx::gas).sum();
    (data.0, gas)
}

struct Writer(Vec<u8>);

impl Writer {
    fn u32(&mut self, number: u32) -> &mut Self {
        self.0.extend(number.to_be_bytes());
        self
    }

    /// An amount in nAVAX, or a count.
    fn u64(&mut self, number: u64) -> &mut Self {
        self.0.extend(number.to_be_bytes());
        self
    }

    /// An id, address or signature: no reader can tell what is behind it.
    fn random<const N: usize>(&mut self, random: &mut Random) -> &mut Self {
        self.0.extend(random.bytes::<N>());
        self
    }

    fn transaction(&mut self, random: &mut Random) {
        let inputs = 1 + random.below(INPUTS_MAX);
        let import = random.chance(500);
        self.u32(if import { IMPORT } else { EXPORT }).u32(NETWORK_ID);
        self.random::<32>(random).random::<32>(random); // this chain and the other
        if import {
            self.import(inputs, random);
        } else {
            self.export(inputs, random);
        }
        self.u32(inputs as u32);
        for _ in 0..inputs {
            self.u32(CREDENTIAL).u32(1).random::<65>(random);
        }
    }

    fn import(&mut self, inputs: u64, random: &mut Random) {
        self.u32(inputs as u32);
        for _ in 0..inputs {
            self.random::<32>(random).u32(0).random::<32>(random); // output and asset
            self.u32(TRANSFER_INPUT).u64(random.below(1 << 40)).u32(1).u32(0);
        }
        self.u32(1).random::<20>(random).u64(random.below(1 << 40)).random::<32>(random);
    }

    fn export(&mut self, inputs: u64, random: &mut Random) {
        self.u32(inputs as u32);
        for nonce in 0..inputs {
            self.random::<20>(random).u64(random.below(1 << 40)).random::<32>(random).u64(nonce);
        }
        self.u32(1).random::<32>(random).u32(TRANSFER_OUTPUT).u64(random.below(1 << 40));
        self.u64(0).u32(1).u32(1).random::<20>(random); // unlocked, for one owner
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::chain::rules::Purpose;

    #[test]
    fn all_batches_can_be_read() {
        for height in 0..200 {
            let (data, gas) = batch(&mut Random::new(1, Purpose::Body, height));
            let transactions = parse_batch(&data).unwrap();
            assert!((1..=2).contains(&transactions.len()));
            assert!(gas > 11_000 && transactions.iter().all(|tx| tx.network_id == NETWORK_ID));
        }
    }
}
