//! The proof of a block.

use std::ops::Deref;
use std::panic::resume_unwind;
use std::thread;

use alloy_primitives::{Address, B256, Signature, U256, uint};

use super::atomic;
use super::block::Block;
use super::transaction::{Kind, Transaction};
use crate::header::{CheckedHeader, TotalDifficulty};
use crate::json::AdmittedKeys;
use crate::refusal::{Place, ProofError};
use crate::rlp::{self, Encodings};

/// Facts that a block is checked against besides itself.
#[derive(Clone, Copy, Debug)]
pub struct Checks {
    /// The chain followed: transactions for another are refused.
    pub chain_id: u64,
    /// True to recover each sender from its signature and compare it with `from`. Costs
    /// more than everything else together (27 us a transaction); without it nothing binds `from`.
    pub senders: bool,
    /// Keys that objects may have besides those that the node's known releases write.
    pub admitted: AdmittedKeys,
}

/// A block that is what its hash says: header, transactions, extra data, size.
///
/// Whether that hash is on the chain, no block can prove alone: compare its parent's.
#[derive(Clone, Debug)]
pub struct CheckedBlock<'a> {
    block: Block<'a>,
    admitted: AdmittedKeys,
    total_difficulty: TotalDifficulty,
}

/// A thread takes a fifth of a millisecond to begin, one sender a fortieth.
const SENDERS_A_THREAD: usize = 40;

/// Half the order of secp256k1: a greater `s` is refused since Homestead (EIP-2).
const HALF_ORDER: U256 =
    uint!(0x7fffffffffffffffffffffffffffffff5d576e7357a4501ddfe92f46681b20a0_U256);

impl<'a> Block<'a> {
    /// Proves the block.
    pub fn check(self, checks: &Checks) -> Result<CheckedBlock<'a>, ProofError> {
        checks.admitted.check(&self.unknown)?;
        // The header first: all later checks compare with its fields, so it must be bound by the
        // hash.
        let (_, header_length) = CheckedHeader::check(&self.header, self.hash)?;
        // A chain without mining has no uncles: the header commits to an empty list.
        if self.uncles > 0 {
            return Err(ProofError::Uncles { found: self.uncles });
        }
        let total_difficulty = TotalDifficulty::of(self.total_difficulty, self.header.number)?;
        let encodings = self.check_transactions(checks)?;
        let ext_data = self.ext_data.unwrap_or_default().to_vec();
        self.check_ext_data(&ext_data)?;
        self.check_size(header_length, &encodings, &ext_data)?;
        Ok(CheckedBlock { block: self, admitted: checks.admitted, total_difficulty })
    }

    fn check_transactions(&self, checks: &Checks) -> Result<Encodings, ProofError> {
        // A transaction is at least two bytes of text for each of its encoding.
        let bytes = self.layout.transactions.len() / 2;
        let mut encodings = Encodings::with_capacity(self.transactions.len(), bytes);
        for (index, transaction) in self.transactions.iter().enumerate() {
            transaction.check(index, self, checks)?;
            encodings.push(|out| transaction.encode(out));
        }
        // The root binds the encodings only. The claimed hashes are compared apart.
        self.check_transaction_hashes(&encodings)?;
        let (computed, header) = (encodings.root(), self.header.transactions_root);
        if computed != header {
            return Err(ProofError::TransactionsRoot { header, computed });
        }
        // Last, because it costs more than all other checks.
        if checks.senders {
            self.check_senders(1)?;
        }
        Ok(encodings)
    }

    fn check_transaction_hashes(&self, encodings: &Encodings) -> Result<(), ProofError> {
        let hashes = encodings.hashes().into_iter().zip(&self.transactions).enumerate();
        for (index, (computed, Transaction { hash: claimed, .. })) in hashes {
            if computed != *claimed {
                return Err(ProofError::TransactionHash { index, claimed: *claimed, computed });
            }
        }
        Ok(())
    }

    /// Recovers each sender from its signature and compares it with `from`: what
    /// [`Checks::senders`] asks for, by itself, on up to so many threads. It needs nothing but the
    /// block, and a head waits for it.
    pub fn check_senders(&self, threads: usize) -> Result<(), ProofError> {
        // A thread for a few transactions takes longer to start than they take.
        let each = self.transactions.len().div_ceil(threads.max(1)).max(SENDERS_A_THREAD);
        let mut shares = self.transactions.chunks(each).zip((0..).step_by(each));
        // The calling thread takes the first share: it would only wait otherwise.
        let here = shares.next();
        thread::scope(|scope| {
            let begin = |share| {
                let thread = thread::Builder::new().name("senders".to_owned());
                (share, thread.spawn_scoped(scope, move || check_senders_of(share)))
            };
            let mut there = Vec::new();
            there.extend(shares.map(begin));
            let checked = here.map_or(Ok(()), check_senders_of);
            let others = there.into_iter().map(|(share, thread)| match thread {
                Ok(thread) => thread.join().unwrap_or_else(|panic| resume_unwind(panic)),
                Err(_) => check_senders_of(share), // the kernel has no more threads
            });
            // In the order of the shares: the error is the same with any number of threads.
            others.fold(checked, Result::and)
        })
    }

    /// Before Apricot Phase 1 the header's hash of the extra data is zero and binds nothing (nodes
    /// carry a list of the right ones, coreth, `plugin/evm/atomic/vm/ext_data_hashes.go`). What is
    /// left is that it must be a transaction, and the block's size.
    fn check_ext_data(&self, ext_data: &[u8]) -> Result<(), ProofError> {
        match self.header.ext_data_hash {
            // Only other chains have none.
            None => {}
            Some(B256::ZERO) => {
                atomic::parse_single(ext_data)?;
            }
            Some(header) => {
                let computed = rlp::ext_data_hash(ext_data);
                if computed != header {
                    return Err(ProofError::ExtDataHash { header, computed });
                }
            }
        }
        self.check_gas_limits(ext_data)
    }

    /// In an asynchronous block gas is not yet consumed: the header has the sum of all limits and
    /// of what the atomic transactions cost (saevm, `worstcase/state.go`, `GasUsed`).
    ///
    /// Header and data are both bound already, so data of a kind that is not known here, as a later
    /// release may add, is no reason to refuse the block: then only the lower bound is checked.
    fn check_gas_limits(&self, ext_data: &[u8]) -> Result<(), ProofError> {
        if self.header.settles().is_none() {
            return Ok(());
        }
        // Sums saturate: a limit at the top of its range must not wrap to a right one.
        let limits = self.transactions.iter().map(|tx| tx.gas).fold(0, u64::saturating_add);
        let header = self.header.gas_used;
        let (computed, holds) = match atomic::parse_batch(ext_data) {
            Ok(batch) => {
                let atomic = batch.iter().map(atomic::AtomicTx::gas).fold(0, u64::saturating_add);
                let computed = limits.saturating_add(atomic);
                (computed, header == computed)
            }
            Err(_) => (limits, header >= limits),
        };
        if holds { Ok(()) } else { Err(ProofError::GasUsed { header, computed }) }
    }

    fn check_size(
        &self,
        header_length: usize,
        transactions: &Encodings,
        ext_data: &[u8],
    ) -> Result<(), ProofError> {
        let ext_data = self.header.ext_data_hash.map(|_| ext_data);
        let computed = rlp::block_size(header_length, transactions.iter(), ext_data) as u64;
        match self.size {
            Some(claimed) if claimed != computed => Err(ProofError::Size { claimed, computed }),
            _ => Ok(()),
        }
    }
}

/// Senders of transactions of which the first has this index.
fn check_senders_of((share, first): (&[Transaction<'_>], usize)) -> Result<(), ProofError> {
    share.iter().zip(first..).try_for_each(|(transaction, index)| transaction.check_sender(index))
}

impl Transaction<'_> {
    fn check(&self, index: usize, block: &Block<'_>, checks: &Checks) -> Result<(), ProofError> {
        self.check_links(index, block)?;
        match self.chain_id() {
            Some(found) if found != checks.chain_id => {
                return Err(ProofError::ChainId { index, found, expected: checks.chain_id });
            }
            // A transaction without a chain id is valid on every chain (before EIP-155).
            _ => {}
        }
        let expected = self.price_at(block.header.base_fee_per_gas);
        match self.gas_price {
            found if found == expected => Ok(()),
            found => Err(ProofError::GasPrice { index, found, expected }),
        }
    }

    fn check_links(&self, index: usize, block: &Block<'_>) -> Result<(), ProofError> {
        let place = Place::Transaction(index);
        let links = &self.links;
        place.link("blockHash", &links.block_hash, &block.hash)?;
        place.link("blockNumber", &links.block_number, &block.header.number)?;
        place.link("transactionIndex", &links.index, &(index as u64))
    }

    fn check_sender(&self, index: usize) -> Result<(), ProofError> {
        match self.recover() {
            Some(sender) if sender == self.from => Ok(()),
            recovered => Err(ProofError::Sender { index, claimed: self.from, recovered }),
        }
    }

    /// The sender by the signature, or `None` if it is no valid signature.
    pub fn recover(&self) -> Option<Address> {
        // `v` has the parity in one of three ways: 27 or 28, with the chain id, or bare.
        let odd = match self.kind {
            Kind::Legacy { chain_id: None } => self.v == 28,
            // 35 plus twice the id is odd.
            Kind::Legacy { chain_id: Some(_) } => self.v.is_multiple_of(2),
            _ => self.v == 1,
        };
        // The recovery below would accept both forms of a signature.
        if self.s > HALF_ORDER {
            return None;
        }
        let signature = Signature::new(self.r, self.s, odd);
        signature.recover_address_from_prehash(&self.signing_hash()).ok()
    }
}

impl Place {
    /// Refuses a link that does not point where it should.
    pub(crate) fn link<T: PartialEq + ToString>(
        self,
        field: &'static str,
        found: &T,
        expected: &T,
    ) -> Result<(), ProofError> {
        if found == expected {
            return Ok(());
        }
        let (found, expected) = (found.to_string(), expected.to_string());
        Err(ProofError::Link { place: self, field, found, expected })
    }
}

impl CheckedBlock<'_> {
    /// The header with its proven hash.
    pub fn checked_header(&self) -> CheckedHeader<'_> {
        CheckedHeader::proven(&self.block.header, self.block.hash)
    }

    /// Keys that its receipts may have, too.
    pub(crate) fn admitted(&self) -> AdmittedKeys {
        self.admitted
    }

    /// Form in which the node shows the total difficulty.
    pub fn total_difficulty_form(&self) -> TotalDifficulty {
        self.total_difficulty
    }

    /// True if the hash binds the extra data. Before Apricot Phase 1 it does not.
    pub fn binds_ext_data(&self) -> bool {
        self.header.ext_data_hash != Some(B256::ZERO)
    }
}

impl<'a> Deref for CheckedBlock<'a> {
    type Target = Block<'a>;

    fn deref(&self) -> &Block<'a> {
        &self.block
    }
}
