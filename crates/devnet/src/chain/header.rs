//! Headers: what each fork writes into them.

use alloy_primitives::{Address, B256, Bloom, U256, address, b256};
use neve_chain::{Header, ext_data_hash, ordered_root};

use crate::chain::content::{Body, Outcome};
use crate::chain::rules::{ChainConfig, PriceRule, Purpose, Random, Schedule};

/// Hash of an empty list of uncles.
const NO_UNCLES: B256 = b256!("0x1dcc4de8dec75d7aab85b567b6ccd41ad312451b948a7413f0a142fd40d49347");
/// Root of an empty list.
const EMPTY_ROOT: B256 =
    b256!("0x56e81f171bcc55a6ff8345e692c0f86e5b48e01b996cadc001622fb5e363b421");
/// Fees go to an address whose key is unknown.
const MINER: Address = address!("0x0100000000000000000000000000000000000000");
/// Delay of ACP-226, as on every network that was observed.
const MIN_DELAY_EXCESS: u64 = 0x79_9d4c;
const GENESIS_GAS_LIMIT: u64 = 100_000_000;
const GENESIS_BASE_FEE: u64 = 225_000_000_000;
/// Bytes of results of warp predicates when there are none.
const NO_PREDICATES: [u8; 6] = [0; 6];

/// Values of a header that are not in its block's body.
pub(crate) struct HeaderContext<'c> {
    pub(crate) config: &'c ChainConfig,
    pub(crate) schedule: &'c Schedule,
    pub(crate) prices: &'c PriceRule,
    pub(crate) height: u64,
    pub(crate) parent: B256,
}

impl HeaderContext<'_> {
    /// The genesis. It has the fields of every fork that is active from the start.
    pub(crate) fn genesis(&self) -> Header {
        let from_start = self.config.helicon.is_from_genesis().then_some(0);
        let time_ms = self.schedule.time_ms(0);
        Header {
            miner: Address::ZERO,
            difficulty: U256::ZERO,
            state_root: self.state_root(0),
            transactions_root: EMPTY_ROOT,
            receipts_root: EMPTY_ROOT,
            gas_limit: GENESIS_GAS_LIMIT,
            timestamp: time_ms / 1_000,
            timestamp_milliseconds: Some(time_ms),
            extra_data: vec![0].into(),
            ext_data_hash: Some(B256::ZERO),
            base_fee_per_gas: Some(U256::from(GENESIS_BASE_FEE)),
            ext_data_gas_used: Some(0),
            target_exponent: from_start,
            min_price_exponent: from_start,
            settled_height: from_start,
            settled_gas_unix: from_start,
            settled_gas_numerator: from_start,
            settled_excess: from_start,
            ..self.constants()
        }
    }

    /// A block that commits to its own receipts.
    pub(crate) fn synchronous(&self, body: &Body, own: &Outcome) -> Header {
        let gas = body.gas_used() + body.ext_data_gas;
        let gas_limit = self.prices.gas_limit(self.height);
        Header {
            state_root: self.state_root(self.height),
            receipts_root: root(own.receipts.iter()),
            logs_bloom: own.bloom,
            gas_limit,
            gas_used: body.gas_used(),
            extra_data: self.fee_state(gas_limit.saturating_sub(gas)).into(),
            ext_data_gas_used: Some(body.ext_data_gas),
            ..self.common(body)
        }
    }

    /// A block that commits to the receipts of those that it settles.
    pub(crate) fn asynchronous(&self, body: &Body, settled: u64, range: &[&Outcome]) -> Header {
        let gas_used = body.gas_with_limits();
        let (settled_unix, settled_numerator) = self.prices.settled_time(settled);
        let receipts = range.iter().flat_map(|outcome| outcome.receipts.iter());
        Header {
            state_root: self.state_root(settled),
            receipts_root: root(receipts),
            logs_bloom: range.iter().fold(Bloom::ZERO, |bloom, outcome| bloom | outcome.bloom),
            gas_limit: self.prices.gas_limit(self.height),
            gas_used,
            extra_data: NO_PREDICATES.to_vec().into(),
            ext_data_gas_used: Some(0),
            target_exponent: Some(self.prices.exponent(self.height)),
            min_price_exponent: Some(0),
            settled_height: Some(settled),
            settled_gas_unix: Some(settled_unix),
            settled_gas_numerator: Some(settled_numerator),
            settled_excess: Some(self.prices.excess(settled)),
            ..self.common(body)
        }
    }

    fn common(&self, body: &Body) -> Header {
        let time_ms = self.schedule.time_ms(self.height);
        Header {
            transactions_root: root(body.encodings.iter()),
            timestamp: time_ms / 1_000,
            timestamp_milliseconds: Some(time_ms),
            ext_data_hash: Some(ext_data_hash(&body.ext_data)),
            base_fee_per_gas: Some(U256::from(body.header_fee)),
            ..self.constants()
        }
    }

    /// Values that all Granite and Helicon headers share, and the place in the chain.
    fn constants(&self) -> Header {
        Header {
            parent_hash: self.parent,
            number: self.height,
            sha3_uncles: NO_UNCLES,
            miner: MINER,
            difficulty: U256::ONE,
            block_gas_cost: Some(0),
            blob_gas_used: Some(0),
            excess_blob_gas: Some(0),
            parent_beacon_block_root: Some(B256::ZERO),
            min_delay_excess: Some(MIN_DELAY_EXCESS),
            ..Header::default()
        }
    }

    /// Extra data of the fee rule (ACP-176): capacity left, excess, excess of the target; then
    /// predicates.
    fn fee_state(&self, capacity: u64) -> Vec<u8> {
        let (excess, exponent) =
            (self.prices.excess(self.height), self.prices.exponent(self.height));
        let words = [capacity, excess, exponent].map(u64::to_be_bytes);
        [words.as_flattened(), &NO_PREDICATES].concat()
    }

    fn state_root(&self, height: u64) -> B256 {
        B256::new(self.state(height ^ STATE_ROOTS).bytes())
    }

    fn state(&self, height: u64) -> Random {
        Random::new(self.config.seed_at(height & !STATE_ROOTS), Purpose::State, height)
    }
}

/// Keeps the numbers that roots are drawn from apart from the others of a height.
const STATE_ROOTS: u64 = 1 << 63;

fn root<'i>(items: impl Iterator<Item = &'i [u8]>) -> B256 {
    ordered_root(&items.collect::<Vec<_>>())
}
