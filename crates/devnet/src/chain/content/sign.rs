//! Signatures of transactions.

use alloy_primitives::{Address, B256, keccak256};
use k256::{
    ProjectivePoint, Scalar, U256,
    elliptic_curve::{ops::Reduce, point::AffineCoordinates, scalar::IsHigh, sec1::ToEncodedPoint},
};

use crate::chain::rules::{Purpose, Random, Signatures};

/// Accounts that send transactions.
pub(crate) const ACCOUNTS: usize = 1_024;
/// Different values of `r`. With them made ahead, a signature is two multiplications.
const NONCES: usize = 512;

/// The accounts of a chain, and what signs for them.
#[derive(Debug)]
pub(crate) struct Signer {
    addresses: Vec<Address>,
    keys: Option<Keys>,
}

#[derive(Debug)]
struct Keys {
    /// The accounts' secrets follow one another: this one belongs to the first.
    first: Scalar,
    nonces: Vec<Nonce>,
}

/// The part of a signature that does not depend on what is signed.
#[derive(Debug)]
struct Nonce {
    inverse: Scalar,
    r: Scalar,
    odd: bool,
}

/// A signature in its two numbers and the parity that tells the sender.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Signature {
    pub(crate) r: B256,
    pub(crate) s: B256,
    pub(crate) odd: bool,
}

impl Signer {
    pub(crate) fn new(seed: u64, signatures: Signatures) -> Self {
        let mut random = Random::new(seed, Purpose::World, 1);
        match signatures {
            Signatures::Real => Self::real(&mut random),
            Signatures::Filler => {
                let addresses = (0..ACCOUNTS).map(|_| Address::new(random.bytes())).collect();
                Self { addresses, keys: None }
            }
        }
    }

    fn real(random: &mut Random) -> Self {
        let (first, points) = multiples(random, ACCOUNTS);
        let addresses = points.iter().map(address).collect();
        let (start, points) = multiples(random, NONCES);
        let scalars = std::iter::successors(Some(start), |last| Some(last + Scalar::ONE));
        let nonces = points.iter().zip(scalars).map(|(point, scalar)| Nonce::new(point, &scalar));
        Self { addresses, keys: Some(Keys { first, nonces: nonces.collect() }) }
    }

    /// The accounts, [`ACCOUNTS`] of them.
    pub(crate) fn addresses(&self) -> &[Address] {
        &self.addresses
    }

    /// True if signatures depend on what is signed.
    pub(crate) fn is_real(&self) -> bool {
        self.keys.is_some()
    }

    /// Signs a hash for an account.
    pub(crate) fn sign(&self, account: usize, hash: B256, random: &mut Random) -> Signature {
        match &self.keys {
            Some(keys) => keys.sign(account, hash, random),
            None => filler(random),
        }
    }
}

/// Points one generator apart, and the scalar of the first.
fn multiples(random: &mut Random, count: usize) -> (Scalar, Vec<k256::AffinePoint>) {
    // Not zero, but once in 2^256.
    let first = scalar(&random.bytes());
    let start = ProjectivePoint::GENERATOR * first;
    let next = |last: &ProjectivePoint| Some(last + &ProjectivePoint::GENERATOR);
    let points = std::iter::successors(Some(start), next).take(count);
    (first, points.map(|point| point.to_affine()).collect())
}

fn scalar(bytes: &[u8; 32]) -> Scalar {
    <Scalar as Reduce<U256>>::reduce_bytes(&(*bytes).into())
}

fn address(point: &k256::AffinePoint) -> Address {
    let encoded = point.to_encoded_point(false);
    let hash = keccak256(encoded.as_bytes().get(1..).unwrap_or_default());
    Address::from_word(hash)
}

impl Nonce {
    fn new(point: &k256::AffinePoint, scalar: &Scalar) -> Self {
        let inverse = scalar.invert().unwrap_or(Scalar::ONE);
        let r = <Scalar as Reduce<U256>>::reduce_bytes(&point.x());
        Self { inverse, r, odd: point.y_is_odd().into() }
    }
}

impl Keys {
    fn sign(&self, account: usize, hash: B256, random: &mut Random) -> Signature {
        let nonce = &self.nonces[random.index(self.nonces.len())];
        let secret = self.first + Scalar::from(account as u64);
        let mut s = nonce.inverse * (scalar(&hash.0) + nonce.r * secret);
        let mut odd = nonce.odd;
        // Only the lower of the two possible values is taken (EIP-2).
        if s.is_high().into() {
            s = -s;
            odd = !odd;
        }
        let word = |scalar: Scalar| B256::from_slice(&scalar.to_bytes());
        Signature { r: word(nonce.r), s: word(s), odd }
    }
}

/// Below the order and, for `s`, below half of it.
fn filler(random: &mut Random) -> Signature {
    let (mut r, mut s) = (random.bytes::<32>(), random.bytes::<32>());
    (r[0], s[0]) = (r[0] & 0x7f, s[0] & 0x3f);
    Signature { r: r.into(), s: s.into(), odd: random.chance(500) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn recovered(signer: &Signer, account: usize, hash: B256) -> Address {
        use k256::ecdsa::{RecoveryId, Signature, VerifyingKey};
        let mut random = Random::new(9, Purpose::World, account as u64);
        let signature = signer.sign(account, hash, &mut random);
        let pair = Signature::from_scalars(signature.r.0, signature.s.0).unwrap();
        assert_eq!(pair.normalize_s(), None, "s is the lower one");
        let id = RecoveryId::new(signature.odd, false);
        let key = VerifyingKey::recover_from_prehash(&hash.0, &pair, id).unwrap();
        address(key.as_affine())
    }

    #[test]
    fn senders_are_recovered() {
        let signer = Signer::new(1, Signatures::Real);
        for account in [0, 1, 500, ACCOUNTS - 1] {
            let hash = keccak256([account as u8]);
            assert_eq!(recovered(&signer, account, hash), signer.addresses()[account]);
        }
        let all: std::collections::BTreeSet<_> = signer.addresses().iter().collect();
        assert_eq!(all.len(), ACCOUNTS);
    }

    #[test]
    fn filler_looks_like_signatures() {
        let signer = Signer::new(1, Signatures::Filler);
        let mut random = Random::new(1, Purpose::World, 2);
        let first = signer.sign(0, B256::ZERO, &mut random);
        let second = signer.sign(0, B256::ZERO, &mut random);
        assert!(first.r != second.r && first.s != second.s);
        assert!(first.r[0] < 0x80 && first.s[0] < 0x40);
    }
}
