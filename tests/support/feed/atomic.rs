//! The bytes of Avalanche's own transactions: atomic ones of the C-chain, exports of the X-chain.
//!
//! All of them: u16 codec version 0, u32 type, the fields, then a list of credentials. The
//! signature covers everything before the credentials. Integers are big-endian, lists and byte
//! strings have a u32 length in front. Amounts are in nAVAX.

use alloy_primitives::{Address, B256, U256, address};

use super::sign::{Account, sha256};

/// The funded key's address on the X- and P-chain (there it is another hash than on the C-chain).
const OWNER: Address = address!("0x3cb7d3842e8cee6a0ebd09f1fe884f6861e1b29c");
/// Type of a C-chain import.
const IMPORT: u32 = 0;
/// Type of a C-chain export.
const EXPORT: u32 = 1;
/// Type of an X-chain export.
const X_EXPORT: u32 = 4;
/// Type of an input that one signature unlocks.
const TRANSFER_INPUT: u32 = 5;
/// Type of an output that belongs to addresses.
const TRANSFER_OUTPUT: u32 = 7;
/// Type of a credential.
const CREDENTIAL: u32 = 9;
/// Gas of any atomic transaction, and of each signature in it; each byte costs one.
const GAS_FIXED: u64 = 10_000;
/// Gas of a signature.
const GAS_SIGNATURE: u64 = 1_000;
/// Wei in a nAVAX.
const WEI: u64 = 1_000_000_000;

/// Network, as an atomic transaction names it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Network {
    /// 12345 for `local`.
    pub(crate) id: u32,
    /// Blockchain id of the C-chain.
    pub(crate) c_chain: B256,
    /// Blockchain id of the X-chain.
    pub(crate) x_chain: B256,
    /// AVAX as an asset.
    pub(crate) avax: B256,
}

/// An unspent output on the X-chain, or on its way to the C-chain.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Utxo {
    /// The transaction that made it.
    pub(crate) tx: B256,
    /// Place of the output there.
    pub(crate) index: u32,
    /// Asset of the amount.
    pub(crate) asset: B256,
    /// Amount, in the asset's unit.
    pub(crate) amount: u64,
    /// Unix time from which on it can be spent.
    pub(crate) locktime: u64,
}

/// AVAX from `from` on the C-chain to the funded key on the X-chain; `fee` comes on top.
pub(crate) fn export(net: &Network, from: Address, nonce: u64, amount: u64, fee: u64) -> Vec<u8> {
    let mut tx = Writer::of_type(EXPORT);
    tx.u32(net.id).bytes(net.c_chain).bytes(net.x_chain);
    tx.u32(1).bytes(from).u64(amount + fee).bytes(net.avax).u64(nonce);
    tx.u32(1).output(net, amount);
    tx.0
}

/// An output from the X-chain to `to` on the C-chain; `fee` goes off.
pub(crate) fn import(net: &Network, utxo: &Utxo, to: Address, fee: u64) -> Vec<u8> {
    let mut tx = Writer::of_type(IMPORT);
    tx.u32(net.id).bytes(net.c_chain).bytes(net.x_chain);
    tx.u32(1).input(utxo);
    tx.u32(1).bytes(to).u64(utxo.amount - fee).bytes(net.avax);
    tx.0
}

/// `amount` of an X-chain output to the C-chain, the rest less `fee` back to its owner.
pub(crate) fn x_export(net: &Network, utxo: &Utxo, amount: u64, fee: u64) -> Vec<u8> {
    let mut tx = Writer::of_type(X_EXPORT);
    tx.u32(net.id).bytes(net.x_chain);
    tx.u32(1).output(net, utxo.amount - amount - fee);
    tx.u32(1).input(utxo);
    tx.u32(0); // an empty memo
    tx.bytes(net.c_chain);
    tx.u32(1).output(net, amount);
    tx.0
}

/// The transaction with its one credential of one signature.
pub(crate) fn signed(unsigned: Vec<u8>, by: &Account) -> Vec<u8> {
    let signature = by.sign_bytes(sha256(&unsigned));
    let mut tx = Writer(unsigned);
    tx.u32(1).u32(CREDENTIAL).u32(1).bytes(signature);
    tx.0
}

/// Twice the fee in nAVAX that an atomic transaction with one signature owes at `base_fee` wei,
/// because the base fee may rise until its block.
pub(crate) fn fee(unsigned: &[u8], base_fee: u64) -> u64 {
    let gas = unsigned.len() as u64 + GAS_SIGNATURE + GAS_FIXED;
    2 * (gas * base_fee).div_ceil(WEI)
}

/// Reads what getUTXOs gives, if it is a plain transfer output.
pub(crate) fn utxo(bytes: &[u8]) -> Option<Utxo> {
    let word = |at: usize| Some(B256::from_slice(bytes.get(at..at + 32)?));
    let number = |at: usize, len: usize| {
        Some(U256::from_be_slice(bytes.get(at..at + len)?).saturating_to::<u64>())
    };
    if number(70, 4)? != u64::from(TRANSFER_OUTPUT) {
        return None;
    }
    Some(Utxo {
        tx: word(2)?,
        index: number(34, 4)? as u32,
        asset: word(38)?,
        amount: number(74, 8)?,
        locktime: number(82, 8)?,
    })
}

/// The 32 bytes behind a CB58 id: base 58, with four bytes of sha256 at the end.
pub(crate) fn cb58(text: &str) -> Option<B256> {
    const DIGITS: &str = "123456789ABCDEFGHJKLMNPQRSTUVWXYZabcdefghijkmnopqrstuvwxyz";
    let mut bytes = [0_u8; 36];
    for digit in text.chars() {
        let mut carry = DIGITS.find(digit)?;
        for byte in bytes.iter_mut().rev() {
            carry += usize::from(*byte) * 58;
            *byte = carry as u8;
            carry >>= 8;
        }
    }
    let (id, sum) = bytes.split_at(32);
    (sha256(id)[28..] == *sum).then(|| B256::from_slice(id))
}

/// A transaction being written.
struct Writer(Vec<u8>);

impl Writer {
    /// Codec version and type.
    fn of_type(number: u32) -> Self {
        let mut new = Self(vec![0, 0]);
        new.u32(number);
        new
    }

    /// A number of four bytes.
    #[expect(clippy::big_endian_bytes, reason = "Avalanche's codec is big-endian")]
    fn u32(&mut self, number: u32) -> &mut Self {
        self.bytes(number.to_be_bytes())
    }

    /// A number of eight bytes.
    #[expect(clippy::big_endian_bytes, reason = "Avalanche's codec is big-endian")]
    fn u64(&mut self, number: u64) -> &mut Self {
        self.bytes(number.to_be_bytes())
    }

    /// Bytes of a width that both sides know.
    fn bytes(&mut self, bytes: impl AsRef<[u8]>) -> &mut Self {
        self.0.extend(bytes.as_ref());
        self
    }

    /// An amount of AVAX for the funded key alone, not locked.
    fn output(&mut self, net: &Network, amount: u64) -> &mut Self {
        self.bytes(net.avax).u32(TRANSFER_OUTPUT).u64(amount);
        self.u64(0).u32(1).u32(1).bytes(OWNER)
    }

    /// All of an output, unlocked by the first signature of its credential.
    fn input(&mut self, utxo: &Utxo) -> &mut Self {
        self.bytes(utxo.tx).u32(utxo.index).bytes(utxo.asset);
        self.u32(TRANSFER_INPUT).u64(utxo.amount).u32(1).u32(0)
    }
}
