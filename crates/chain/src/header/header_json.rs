//! Headers in answers: alone, or as part of a block.

use std::ops::Range;

use alloy_primitives::{B256, Bytes, U256};

use super::check_header::ClaimedHeader;
use super::header::Header;
use crate::json::{Cursor, Form, Key, Object, Presence};
use crate::refusal::ProofError;

/// A header answer and a block answer have the same members but for the four of a block alone,
/// which are optional here: [`crate::block::Block`] asks for them itself.
pub(crate) static HEADER: Object = Object { name: "block", sorted: true, keys: &KEYS };

/// The members of a block whole, sorted as Go sorts map keys (coreth, `internal/ethapi/api.go`,
/// `RPCMarshalHeader` and `RPCMarshalBlock`; the Helicon ones as recorded from v1.15.0).
static KEYS: [Key; 36] = [
    ("baseFeePerGas", Presence::Optional),
    ("blobGasUsed", Presence::Optional),
    ("blockExtraData", Presence::Optional),
    ("blockGasCost", Presence::Optional),
    ("difficulty", Presence::Always),
    ("excessBlobGas", Presence::Optional),
    ("extDataGasUsed", Presence::Optional),
    ("extDataHash", Presence::FromNode),
    ("extraData", Presence::Always),
    ("gasLimit", Presence::Always),
    ("gasUsed", Presence::Always),
    ("hash", Presence::Always),
    ("logsBloom", Presence::Always),
    ("minDelayExcess", Presence::Optional),
    ("minPriceExponent", Presence::Optional),
    ("miner", Presence::Always),
    ("mixHash", Presence::Always),
    ("nonce", Presence::Always),
    ("number", Presence::Always),
    ("parentBeaconBlockRoot", Presence::Optional),
    ("parentHash", Presence::Always),
    ("receiptsRoot", Presence::Always),
    ("settledExcess", Presence::Optional),
    ("settledGasNumerator", Presence::Optional),
    ("settledGasUnix", Presence::Optional),
    ("settledHeight", Presence::Optional),
    ("sha3Uncles", Presence::Always),
    ("size", Presence::Optional),
    ("stateRoot", Presence::Always),
    ("targetExponent", Presence::Optional),
    ("timestamp", Presence::Always),
    ("timestampMilliseconds", Presence::Optional),
    ("totalDifficulty", Presence::FromNode),
    ("transactions", Presence::Optional),
    ("transactionsRoot", Presence::Always),
    ("uncles", Presence::Optional),
];

/// Place where the values are that differ between answers about the same header.
#[derive(Clone, Debug, Default)]
pub(crate) struct HeaderSpans {
    pub(crate) hash: Range<u32>,
    pub(crate) miner: Range<u32>,
    pub(crate) nonce: Range<u32>,
    pub(crate) total_difficulty: Range<u32>,
}

/// A header that is being read.
#[derive(Default)]
pub(crate) struct HeaderReader {
    pub(crate) header: Header,
    pub(crate) hash: B256,
    pub(crate) total_difficulty: Option<U256>,
    pub(crate) spans: HeaderSpans,
}

impl HeaderReader {
    /// Reads the value of a member, or skips it when it is none of a header.
    pub(crate) fn member(&mut self, c: &mut Cursor<'_>, key: &str) -> Result<(), ProofError> {
        match key {
            "hash" => (self.hash, self.spans.hash) = c.spanned(Cursor::fixed)?,
            "miner" => (self.header.miner, self.spans.miner) = c.spanned(Cursor::fixed)?,
            "nonce" => (self.header.nonce, self.spans.nonce) = c.spanned(Cursor::fixed)?,
            "totalDifficulty" => {
                let (total, span) = c.spanned(Cursor::quantity_256)?;
                (self.total_difficulty, self.spans.total_difficulty) = (Some(total), span);
            }
            _ => return self.plain_member(c, key),
        }
        Ok(())
    }

    fn plain_member(&mut self, c: &mut Cursor<'_>, key: &str) -> Result<(), ProofError> {
        let header = &mut self.header;
        match key {
            "parentHash" => header.parent_hash = c.fixed()?,
            "sha3Uncles" => header.sha3_uncles = c.fixed()?,
            "stateRoot" => header.state_root = c.fixed()?,
            "transactionsRoot" => header.transactions_root = c.fixed()?,
            "receiptsRoot" => header.receipts_root = c.fixed()?,
            "logsBloom" => header.logs_bloom = c.fixed()?,
            "difficulty" => header.difficulty = c.quantity_256()?,
            "number" => header.number = c.quantity()?,
            "gasLimit" => header.gas_limit = c.quantity()?,
            "gasUsed" => header.gas_used = c.quantity()?,
            "timestamp" => header.timestamp = c.quantity()?,
            "extraData" => header.extra_data = Bytes::from(c.bytes()?.to_vec()),
            "mixHash" => header.mix_hash = c.fixed()?,
            "extDataHash" => header.ext_data_hash = Some(c.fixed()?),
            _ => return self.optional_member(c, key),
        }
        Ok(())
    }

    fn optional_member(&mut self, c: &mut Cursor<'_>, key: &str) -> Result<(), ProofError> {
        let header = &mut self.header;
        match key {
            "baseFeePerGas" => header.base_fee_per_gas = Some(c.quantity_256()?),
            "parentBeaconBlockRoot" => header.parent_beacon_block_root = Some(c.fixed()?),
            "extDataGasUsed" => header.ext_data_gas_used = Some(c.quantity()?),
            "blockGasCost" => header.block_gas_cost = Some(c.quantity()?),
            "blobGasUsed" => header.blob_gas_used = Some(c.quantity()?),
            "excessBlobGas" => header.excess_blob_gas = Some(c.quantity()?),
            "timestampMilliseconds" => header.timestamp_milliseconds = Some(c.quantity()?),
            "minDelayExcess" => header.min_delay_excess = Some(c.quantity()?),
            "targetExponent" => header.target_exponent = Some(c.quantity()?),
            "minPriceExponent" => header.min_price_exponent = Some(c.quantity()?),
            "settledHeight" => header.settled_height = Some(c.quantity()?),
            "settledGasUnix" => header.settled_gas_unix = Some(c.quantity()?),
            "settledGasNumerator" => header.settled_gas_numerator = Some(c.quantity()?),
            "settledExcess" => header.settled_excess = Some(c.quantity()?),
            _ => c.skip()?,
        }
        Ok(())
    }
}

impl ClaimedHeader {
    /// Reads an answer of the given form. The members of a block are allowed and ignored.
    pub fn parse_as(json: &[u8], form: Form) -> Result<Self, ProofError> {
        let mut reader = HeaderReader::default();
        Cursor::read(json, form, |cursor| {
            cursor.object(&HEADER, |cursor, key, _| reader.member(cursor, key))
        })?;
        let HeaderReader { header, hash, total_difficulty, .. } = reader;
        Ok(Self { header, hash, total_difficulty })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_sorted() {
        assert!(KEYS.is_sorted_by(|(a, _), (b, _)| a < b));
        assert!(KEYS.len() <= 64);
    }
}
