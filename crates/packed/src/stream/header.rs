//! The fields of a header, against the file's template.

use std::borrow::Cow;

use alloy_primitives::U256;
use neve_chain::Block;

use crate::container::bytes::{Bytes, put_varint};
use crate::error::PackedError;
use crate::stream::lanes::Lane;

/// Way in which a node writes a field.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    /// A number without leading zeros.
    Quantity,
    /// Bytes as hexadecimal text, leading zeros included.
    Bytes,
}
use Kind::{Bytes as Data, Quantity};

/// Fields with a symbol, in the order of their symbols, which is that of the node's text.
pub(crate) const FIELDS: [(&str, Kind); 30] = [
    ("baseFeePerGas", Quantity),
    ("blobGasUsed", Quantity),
    ("blockExtraData", Data),
    ("blockGasCost", Quantity),
    ("difficulty", Quantity),
    ("excessBlobGas", Quantity),
    ("extDataGasUsed", Quantity),
    ("extDataHash", Data),
    ("extraData", Data),
    ("gasLimit", Quantity),
    ("gasUsed", Quantity),
    ("logsBloom", Data),
    ("minDelayExcess", Quantity),
    ("minPriceExponent", Quantity),
    ("miner", Data),
    ("mixHash", Data),
    ("nonce", Data),
    ("parentBeaconBlockRoot", Data),
    ("receiptsRoot", Data),
    ("settledExcess", Quantity),
    ("settledGasNumerator", Quantity),
    ("settledGasUnix", Quantity),
    ("settledHeight", Quantity),
    ("sha3Uncles", Data),
    ("size", Quantity),
    ("stateRoot", Data),
    ("targetExponent", Quantity),
    ("timestamp", Quantity),
    ("timestampMilliseconds", Quantity),
    ("transactionsRoot", Data),
];
/// Places of the fields that are read by themselves.
pub(crate) const BASE_FEE: usize = 0;
pub(crate) const BLOCK_EXTRA_DATA: usize = 2;
pub(crate) const LOGS_BLOOM: usize = 11;
const SETTLED_HEIGHT: usize = 22;
pub(crate) const SIZE: usize = 24;
pub(crate) const TIMESTAMP: usize = 27;
const TIMESTAMP_MILLISECONDS: usize = 28;

/// Symbols of a field.
const TEMPLATE: u8 = 0;
const ABSENT: u8 = 1;
const DERIVED: u8 = 2;
const MILLISECONDS: u8 = 3;
const BELOW_HEIGHT: u8 = 4;
const LONG: u8 = 5;
const SPARSE: u8 = 6;
/// First symbol of a literal: this plus n stands for n literal bytes.
const SHORT: u8 = 16;
const SHORT_BYTES_MAX: usize = 64;
/// First symbol of a sum: this plus n stands for the template's number plus that of n literal bytes.
const SUM: u8 = 128;
const LONG_BYTES_MAX: usize = 16 << 20;
const BLOOM_BYTES: usize = 256;

/// Values of [`FIELDS`]; quantities are big-endian without leading zeros. Those of a frame are those of the
/// template or of the frame, as they lie there, and few others.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Values<'v>(Vec<Option<Cow<'v, [u8]>>>);

impl Values<'static> {
    /// Takes the values of a block.
    pub(crate) fn of(block: &Block<'_>) -> Self {
        let header = &block.header;
        let wide = |value: U256| value.to_be_bytes_trimmed_vec();
        let number = |value: u64| wide(U256::from(value));
        let some = |value: Option<u64>| value.map(number);
        let bytes = |value: &[u8]| Some(value.to_vec());
        let all = vec![
            header.base_fee_per_gas.map(wide),
            some(header.blob_gas_used),
            block.ext_data.map(|data| data.to_vec()),
            some(header.block_gas_cost),
            Some(wide(header.difficulty)),
            some(header.excess_blob_gas),
            some(header.ext_data_gas_used),
            header.ext_data_hash.map(|hash| hash.to_vec()),
            bytes(&header.extra_data),
            Some(number(header.gas_limit)),
            Some(number(header.gas_used)),
            bytes(&header.logs_bloom[..]),
            some(header.min_delay_excess),
            some(header.min_price_exponent),
            bytes(&header.miner[..]),
            bytes(&header.mix_hash[..]),
            bytes(&header.nonce[..]),
            header.parent_beacon_block_root.map(|root| root.to_vec()),
            bytes(&header.receipts_root[..]),
            some(header.settled_excess),
            some(header.settled_gas_numerator),
            some(header.settled_gas_unix),
            some(header.settled_height),
            bytes(&header.sha3_uncles[..]),
            some(block.size),
            bytes(&header.state_root[..]),
            some(header.target_exponent),
            Some(number(header.timestamp)),
            some(header.timestamp_milliseconds),
            bytes(&header.transactions_root[..]),
        ];
        Self(all.into_iter().map(|value| value.map(Cow::Owned)).collect())
    }

    /// Returns the bytes of memory that it takes.
    pub(crate) fn memory(&self) -> usize {
        let values = self.0.iter().flatten().map(|value| value.len()).sum::<usize>();
        values + size_of_val(&self.0[..])
    }

    /// Returns a template without any field.
    pub(crate) fn absent() -> Self {
        Self(vec![None; FIELDS.len()])
    }
}

impl<'v> Values<'v> {
    /// Returns the values with bytes of their own.
    pub(crate) fn into_owned(self) -> Values<'static> {
        let owned = |value: Cow<'_, [u8]>| Cow::Owned(value.into_owned());
        Values(self.0.into_iter().map(|value| value.map(owned)).collect())
    }

    pub(crate) fn get(&self, at: usize) -> Option<&[u8]> {
        self.0.get(at)?.as_deref()
    }

    pub(crate) fn set(&mut self, at: usize, value: Vec<u8>) {
        if let Some(place) = self.0.get_mut(at) {
            *place = Some(Cow::Owned(value));
        }
    }

    pub(crate) fn number(&self, at: usize) -> Option<u64> {
        let bytes = self.get(at).filter(|bytes| bytes.len() <= 8)?;
        Some(bytes.iter().fold(0, |sum, byte| sum << 8 | u64::from(*byte)))
    }

    /// Appends one symbol a field. `bloom` is that of the block's own logs.
    pub(crate) fn write(&self, template: &Values<'_>, height: u64, bloom: &[u8], lane: &mut Lane) {
        for (at, (_, kind)) in FIELDS.iter().enumerate() {
            let Lane { symbols, literals } = lane;
            match self.get(at) {
                value if value == template.get(at) => symbols.push(TEMPLATE),
                None => symbols.push(ABSENT),
                Some(value) if at == LOGS_BLOOM && value == bloom => symbols.push(DERIVED),
                Some(value) => {
                    let short = self.related(at, *kind, template, height);
                    // The shortest form, and the literal if none is shorter: each packer must
                    // choose the same.
                    match short.filter(|(_, bytes)| bytes.len() < value.len()) {
                        Some((symbol, bytes)) => {
                            symbols.push(symbol);
                            literals.extend(bytes);
                        }
                        None => put_literal(value, lane),
                    }
                }
            }
        }
    }

    /// Finds a form that leans on another value.
    fn related(
        &self,
        at: usize,
        kind: Kind,
        template: &Values<'_>,
        height: u64,
    ) -> Option<(u8, Vec<u8>)> {
        if at == LOGS_BLOOM {
            return Some((SPARSE, sparse(self.get(at)?)));
        }
        // Hashes and other bytes lean on nothing: they are as good as random.
        if kind != Quantity {
            return None;
        }
        let value = self.number(at)?;
        match at {
            TIMESTAMP_MILLISECONDS => milliseconds(value, self.number(TIMESTAMP)?),
            SETTLED_HEIGHT => below_height(value, height),
            _ => sum(value, template.number(at)?),
        }
    }

    /// Reads one symbol a field. A derived bloom is absent in the outcome; the flag says so.
    pub(crate) fn read(
        template: &'v Values<'_>,
        height: u64,
        symbols: &mut Bytes<'_>,
        literals: &mut Bytes<'v>,
    ) -> Result<(Self, bool), PackedError> {
        let mut values = Self(Vec::with_capacity(FIELDS.len()));
        let mut derived = false;
        for at in 0..FIELDS.len() {
            let symbol = symbols.byte()?;
            let value = match symbol {
                TEMPLATE => template.get(at).map(Cow::Borrowed),
                ABSENT => None,
                // It is made from the receipts, which are not read yet.
                DERIVED if at == LOGS_BLOOM => {
                    derived = true;
                    None
                }
                SPARSE if at == LOGS_BLOOM => Some(Cow::Owned(read_sparse(literals)?)),
                LONG => {
                    let length = literals.count(LONG_BYTES_MAX)?;
                    Some(Cow::Borrowed(literals.take(length)?))
                }
                SHORT..=80 => Some(Cow::Borrowed(literals.take(usize::from(symbol - SHORT))?)),
                _ => {
                    let value = values.read_related(at, symbol, template, height, literals)?;
                    Some(Cow::Owned(value))
                }
            };
            values.0.push(value);
        }
        Ok((values, derived))
    }

    fn read_related(
        &self,
        at: usize,
        symbol: u8,
        template: &Values<'_>,
        height: u64,
        literals: &mut Bytes<'_>,
    ) -> Result<Vec<u8>, PackedError> {
        let value = match symbol {
            MILLISECONDS if at == TIMESTAMP_MILLISECONDS => {
                let over = u64::from(u16::from_le_bytes(literals.array()?));
                // Read already: the field stands before this one.
                self.number(TIMESTAMP)
                    .and_then(|seconds| seconds.checked_mul(1000)?.checked_add(over))
            }
            BELOW_HEIGHT if at == SETTLED_HEIGHT => height.checked_sub(u64::from(literals.byte()?)),
            SUM..=136 => read_sum(symbol, template.number(at), literals)?,
            _ => None,
        };
        let value = value.ok_or_else(|| literals.error("an unknown symbol of a header"))?;
        Ok(U256::from(value).to_be_bytes_trimmed_vec())
    }
}

/// Symbol and literal of a time in milliseconds.
fn milliseconds(value: u64, seconds: u64) -> Option<(u8, Vec<u8>)> {
    let over = value.checked_sub(seconds.checked_mul(1000)?)?;
    Some((MILLISECONDS, u16::try_from(over).ok()?.to_le_bytes().to_vec()))
}

/// Symbol and literal of a height below the block's.
fn below_height(value: u64, height: u64) -> Option<(u8, Vec<u8>)> {
    Some((BELOW_HEIGHT, vec![u8::try_from(height.checked_sub(value)?).ok()?]))
}

/// Symbol and literal of a number over the template's.
fn sum(value: u64, of_template: u64) -> Option<(u8, Vec<u8>)> {
    let over = value.checked_sub(of_template)?;
    let bytes = U256::from(over).to_be_bytes_trimmed_vec();
    Some((SUM + bytes.len() as u8, bytes))
}

/// Reads a number over the template's; `None` if there is none, or over 64 bits.
fn read_sum(
    symbol: u8,
    of_template: Option<u64>,
    literals: &mut Bytes<'_>,
) -> Result<Option<u64>, PackedError> {
    let bytes = literals.take(usize::from(symbol - SUM))?;
    let over = bytes.iter().fold(0, |sum, byte| sum << 8 | u64::from(*byte));
    Ok(of_template.and_then(|value| value.checked_add(over)))
}

fn put_literal(value: &[u8], lane: &mut Lane) {
    if value.len() <= SHORT_BYTES_MAX {
        lane.symbols.push(SHORT + value.len() as u8);
    } else {
        lane.symbols.push(LONG);
        put_varint(&mut lane.literals, value.len() as u64);
    }
    lane.literals.extend_from_slice(value);
}

/// Count of the bits, then the differences of their numbers. Bit 0 is the highest of the first byte.
fn sparse(bloom: &[u8]) -> Vec<u8> {
    let bits = (0..bloom.len() * 8).filter(|bit| bloom[bit / 8] >> (7 - bit % 8) & 1 == 1);
    let bits: Vec<usize> = bits.collect();
    let mut out = Vec::with_capacity(bits.len() + 2);
    put_varint(&mut out, bits.len() as u64);
    let mut last = 0;
    for bit in bits {
        put_varint(&mut out, (bit - last) as u64);
        last = bit;
    }
    out
}

fn read_sparse(literals: &mut Bytes<'_>) -> Result<Vec<u8>, PackedError> {
    let mut bloom = vec![0; BLOOM_BYTES];
    let mut bit = 0;
    for _ in 0..literals.count(BLOOM_BYTES * 8)? {
        bit += literals.count(BLOOM_BYTES * 8)?;
        let byte = bloom.get_mut(bit / 8).ok_or_else(|| literals.error("a bit over the bloom"))?;
        *byte |= 1 << (7 - bit % 8);
    }
    Ok(bloom)
}
