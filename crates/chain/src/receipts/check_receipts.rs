//! The proof of a block's receipts, as far as it is possible when they appear.

use std::ops::{Deref, RangeInclusive};

use alloy_primitives::{B256, Bloom, U256};

use super::bloom::Blooms;
use super::receipt::{Log, Receipt, ReceiptBody, ReceiptLinks, Receipts};
use crate::block::{CheckedBlock, Kind, Transaction};
use crate::header::Header;
use crate::refusal::{Place, ProofError};
use crate::rlp::Encodings;

/// Share of its gas limit that a transaction of an asynchronous block is charged at least: one
/// part in this many, rounded up (ACP-194, lambda; saevm, `hook/hook.go`, `MinimumGasConsumption`).
const LAMBDA: u64 = 2;

/// Gas of a log besides its topics and data (libevm, `params/protocol_params.go`, `LogGas`). The logs of the warp
/// precompile cost at least as much.
const LOG_GAS: u64 = 375;
/// Gas of a topic (`LogTopicGas`).
const TOPIC_GAS: u64 = 375;
/// Gas of a byte of data (`LogDataGas`).
const DATA_BYTE_GAS: u64 = 8;

/// Receipts that agree with their block and with themselves.
///
/// For a synchronous block that is the whole proof: the header commits to them. Nothing commits to
/// those of an asynchronous block yet. What they say is consistent and possible, but status,
/// logs and gas are the upstream's word until a later header settles them: see
/// [`crate::Settlement`].
#[derive(Clone, Debug)]
pub struct CheckedReceipts<'a> {
    receipts: Receipts<'a>,
    number: u64,
    hash: B256,
    encodings: Encodings,
    logs_bloom: Bloom,
    proven: bool,
}

impl<'a> Receipts<'a> {
    /// Checks that these are the receipts of `block`.
    pub fn check(self, block: &CheckedBlock<'_>) -> Result<CheckedReceipts<'a>, ProofError> {
        block.admitted().check(&self.unknown)?;
        let (transactions, receipts) = (block.transactions.len(), self.receipts.len());
        if transactions != receipts {
            return Err(ProofError::ReceiptCount { transactions, receipts });
        }
        let mut checker = Checker::new(block, &self);
        for (index, (receipt, transaction)) in
            self.receipts.iter().zip(&block.transactions).enumerate()
        {
            checker.check(&Pair { index, receipt, transaction })?;
        }
        let Checker { encodings, logs_bloom, cumulative_gas, .. } = checker;
        let proven = block.header.settles().is_none();
        // Since Helicon a later header commits to receipts: see `Settlement`.
        if proven {
            check_own_header(&block.header, &encodings, &logs_bloom, cumulative_gas)?;
        }
        let (number, hash) = (block.header.number, block.hash);
        Ok(CheckedReceipts { receipts: self, number, hash, encodings, logs_bloom, proven })
    }
}

/// The header of a synchronous block commits to the block's own receipts.
fn check_own_header(
    header: &Header,
    encodings: &Encodings,
    bloom: &Bloom,
    gas: u64,
) -> Result<(), ProofError> {
    if header.gas_used != gas {
        return Err(ProofError::GasUsed { header: header.gas_used, computed: gas });
    }
    if header.logs_bloom != *bloom {
        return Err(ProofError::LogsBloom { blooms: Box::new((header.logs_bloom, *bloom)) });
    }
    match encodings.root() {
        computed if computed == header.receipts_root => Ok(()),
        computed => Err(ProofError::ReceiptsRoot { header: header.receipts_root, computed }),
    }
}

/// A receipt and the transaction that it is of.
struct Pair<'c> {
    index: usize,
    receipt: &'c Receipt,
    transaction: &'c Transaction<'c>,
}

/// State that runs through the receipts of a block.
struct Checker<'c, 'r> {
    header: &'c Header,
    hash: B256,
    answer: &'c Receipts<'r>,
    blooms: Blooms,
    encodings: Encodings,
    logs_bloom: Bloom,
    cumulative_gas: u64,
    /// Base fees at which every price so far is what it is.
    base_fee: RangeInclusive<U256>,
}

impl<'c, 'r> Checker<'c, 'r> {
    fn new(block: &'c CheckedBlock<'_>, answer: &'c Receipts<'r>) -> Self {
        // Of an asynchronous block the header has only an upper bound, and a price is at least
        // one wei (avalanchego, `vms/saevm/gastime/acp176.go`: e to a power that is not negative).
        let base_fee = block.header.base_fee_per_gas.unwrap_or_default();
        let lowest = if block.header.settles().is_some() { U256::ONE } else { base_fee };
        // In text a receipt and its logs take three to four times as much.
        let text = answer.receipts.last().map_or(0, |receipt| receipt.span.end as usize);
        Self {
            header: &block.header,
            hash: block.hash,
            answer,
            blooms: Blooms::of(Log::bodies(&answer.logs)),
            encodings: Encodings::with_capacity(answer.receipts.len(), text / 3),
            logs_bloom: Bloom::ZERO,
            cumulative_gas: 0,
            base_fee: lowest..=base_fee,
        }
    }

    fn check(&mut self, pair: &Pair<'_>) -> Result<(), ProofError> {
        self.check_links(pair)?;
        check_outcome(pair)?;
        self.check_gas(pair)?;
        self.check_price(pair)?;
        self.check_logs(pair)?;
        self.check_log_gas(pair)?;
        let receipt = pair.receipt;
        // The outcome is encoded as claimed. The root, or a later header, decides whether it is true.
        let body = ReceiptBody {
            tx_type: pair.transaction.tx_type(),
            succeeded: receipt.status == 1,
            cumulative_gas_used: receipt.cumulative_gas_used,
            logs_bloom: &receipt.logs_bloom,
        };
        let logs = Log::bodies(self.answer.logs_of(receipt));
        self.encodings.push(|out| body.encode(logs, out));
        Ok(())
    }

    fn check_links(&self, pair: &Pair<'_>) -> Result<(), ProofError> {
        let Pair { index, receipt, transaction } = *pair;
        let place = Place::Receipt(index);
        self.check_place(place, &receipt.links, pair)?;
        place.link("from", &receipt.from, &transaction.from)?;
        place.link("type", &receipt.tx_type, &u64::from(transaction.tx_type()))?;
        if receipt.to == transaction.to {
            return Ok(());
        }
        let (found, expected) = (format!("{:?}", receipt.to), format!("{:?}", transaction.to));
        Err(ProofError::Link { place, field: "to", found, expected })
    }

    fn check_place(
        &self,
        place: Place,
        links: &ReceiptLinks,
        pair: &Pair<'_>,
    ) -> Result<(), ProofError> {
        place.link("blockHash", &links.block_hash, &self.hash)?;
        place.link("blockNumber", &links.block_number, &self.header.number)?;
        place.link("transactionHash", &links.transaction_hash, &pair.transaction.hash)?;
        place.link("transactionIndex", &links.transaction_index, &(pair.index as u64))
    }

    fn check_gas(&mut self, pair: &Pair<'_>) -> Result<(), ProofError> {
        let Pair { index, receipt, transaction } = *pair;
        let asynchronous = self.header.settles().is_some();
        // An asynchronous block charges at least a part of each limit (ACP-194).
        let lowest = if asynchronous { transaction.gas.div_ceil(LAMBDA) } else { 0 };
        let (found, highest) = (receipt.gas_used, transaction.gas);
        if !(lowest..=highest).contains(&found) {
            return Err(ProofError::ReceiptGas { index, found, lowest, highest });
        }
        self.cumulative_gas = self.cumulative_gas.saturating_add(found);
        match receipt.cumulative_gas_used {
            found if found == self.cumulative_gas => Ok(()),
            found => Err(ProofError::CumulativeGas { index, found, expected: self.cumulative_gas }),
        }
    }

    /// All transactions of a block pay the same base fee. It is in no answer about an asynchronous
    /// block, but each price narrows it: a price below the cap names it exactly, a price at the cap
    /// bounds it from below (avalanchego, `vms/saevm/saexec/execution.go`: base fee plus priority
    /// fee, which is the lesser of the offered one and of the cap minus the base fee).
    fn check_price(&mut self, pair: &Pair<'_>) -> Result<(), ProofError> {
        let Pair { index, receipt, transaction } = *pair;
        let price_at = |base_fee: &U256| {
            transaction.price_at(self.header.base_fee_per_gas.is_some().then_some(*base_fee))
        };
        let (lowest, highest) = (price_at(self.base_fee.start()), price_at(self.base_fee.end()));
        let found = receipt.effective_gas_price;
        if !(lowest..=highest).contains(&found) {
            return Err(ProofError::EffectiveGasPrice { index, found, lowest, highest });
        }
        let Kind::DynamicFee { max_fee_per_gas, max_priority_fee_per_gas, .. } = transaction.kind
        else {
            // Other kinds pay their own price, which tells nothing about the base fee.
            return Ok(());
        };
        let base_fee = found.saturating_sub(max_priority_fee_per_gas);
        let capped = found == max_fee_per_gas;
        let end = if capped { *self.base_fee.end() } else { base_fee };
        self.base_fee = base_fee.max(*self.base_fee.start())..=end;
        Ok(())
    }

    fn check_logs(&mut self, pair: &Pair<'_>) -> Result<(), ProofError> {
        let receipt = pair.receipt;
        let logs = self.answer.logs_of(receipt);
        for (index, log) in receipt.logs.clone().zip(logs) {
            let place = Place::Log(index);
            self.check_place(place, &log.links, pair)?;
            place.link("logIndex", &log.index, &(index as u64))?;
            place.link("removed", &log.removed, &false)?;
        }
        // Made once for each word of the block and joined here: hashing is the dear part.
        let bloom = self.blooms.bloom(receipt.logs.clone());
        if bloom != receipt.logs_bloom {
            let blooms = Box::new((receipt.logs_bloom, bloom));
            return Err(ProofError::ReceiptBloom { index: pair.index, blooms });
        }
        self.logs_bloom |= bloom;
        Ok(())
    }

    /// Bounds the logs of an asynchronous block by the gas limit, which the block's hash binds. Nothing else bounds them
    /// before a later header settles them: false ones could be too long for [`crate::Settlement`] to keep.
    fn check_log_gas(&self, pair: &Pair<'_>) -> Result<(), ProofError> {
        if self.header.settles().is_none() {
            return Ok(()); // its own header bounds them
        }
        let gas_of = |log: &Log<'_>| {
            let (topics, bytes) = (log.topics.len() as u64, log.data.len() as u64);
            LOG_GAS + TOPIC_GAS * topics + bytes.saturating_mul(DATA_BYTE_GAS)
        };
        let logs = self.answer.logs_of(pair.receipt);
        let found = logs.iter().map(gas_of).fold(0, u64::saturating_add);
        match pair.transaction.gas {
            highest if found <= highest => Ok(()),
            highest => Err(ProofError::LogGas { index: pair.index, found, highest }),
        }
    }
}

/// The two outcomes that the receipt of a transaction can show. The address of a contract is also
/// shown when its creation failed.
fn check_outcome(pair: &Pair<'_>) -> Result<(), ProofError> {
    let Pair { index, receipt, transaction } = *pair;
    let creates = transaction.to.is_none();
    let expected = creates.then(|| transaction.from.create(transaction.nonce));
    let found = receipt.contract_address;
    if found != expected {
        return Err(ProofError::ContractAddress { index, found, expected });
    }
    match receipt.status {
        0 | 1 => Ok(()),
        found => Err(ProofError::Status { index, found }),
    }
}

impl CheckedReceipts<'_> {
    /// The block's number.
    pub fn number(&self) -> u64 {
        self.number
    }

    /// The block's hash.
    pub fn hash(&self) -> B256 {
        self.hash
    }

    /// True if the block's own header commits to these receipts.
    pub fn is_proven(&self) -> bool {
        self.proven
    }

    /// The encodings that roots are taken of.
    pub fn encodings(&self) -> &Encodings {
        &self.encodings
    }

    /// Bloom of all logs. In an asynchronous block this is not the header's.
    pub fn logs_bloom(&self) -> &Bloom {
        &self.logs_bloom
    }
}

impl<'a> Deref for CheckedReceipts<'a> {
    type Target = Receipts<'a>;

    fn deref(&self) -> &Receipts<'a> {
        &self.receipts
    }
}
