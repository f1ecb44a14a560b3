//! Ids of filters: 80 random bits, and 48 bits by which any neve of the same chain knows that a neve made
//! them, also after a restart. Nothing is stored for it.
//!
//! A client polls a filter by its id alone. If neve made an unknown id, the filter is gone, and the
//! client gets the node's `filter not found`. If not, the filter may live at a full node, and the call
//! is a miss. The 48 bits need no secret: an invented id leads to no filter. Of the ids that a node
//! draws, one in 2^48 passes for neve's.

use alloy_primitives::keccak256;
use neve_store::Identity;

const TAG_BITS: u32 = 48;

/// Makes an id. It looks like the node's: 128 bits in hex, without leading zeros.
pub(crate) fn new_filter_id(chain: &Identity) -> String {
    let mut bytes = [0; 16];
    let random = match getrandom::fill(&mut bytes) {
        Ok(()) => u128::from_le_bytes(bytes),
        Err(_) => fastrand::u128(..), // a kernel without randomness: ids are still different
    };
    // Leading zeros are dropped, as the node drops them, and `is_filter_id` expects that.
    format!("{:#x}", with_tag(random, chain))
}

/// True if a neve of this chain made the id.
pub(crate) fn is_filter_id(id: &str, chain: &Identity) -> bool {
    let digits = id.strip_prefix("0x").unwrap_or_default();
    u128::from_str_radix(digits, 16)
        // One spelling: ids are compared as texts.
        .is_ok_and(|number| number == with_tag(number, chain) && id == format!("{number:#x}"))
}

/// Replaces the lowest bits of a number by the tag of the others.
fn with_tag(number: u128, chain: &Identity) -> u128 {
    let random = number >> TAG_BITS;
    let text = [&b"neve filter"[..], &chain.genesis.0, &random.to_le_bytes()].concat();
    let tag = keccak256(text).0.into_iter().take(TAG_BITS as usize / 8);
    tag.fold(random, |number, byte| number << 8 | u128::from(byte))
}

#[cfg(test)]
mod tests {
    use neve_store::Hash;

    use super::*;

    #[test]
    fn id_is_known_on_its_chain_only_and_in_its_own_spelling() {
        let [chain, other] = [1, 2].map(|n| Identity { chain_id: 43114, genesis: Hash([n; 32]) });
        for _ in 0..1000 {
            let id = new_filter_id(&chain);
            assert!(is_filter_id(&id, &chain) && !is_filter_id(&id, &other), "{id}");
            assert!((3..=34).contains(&id.len()) && !id.starts_with("0x0"), "{id}");
            let foreign = format!("{:#x}", fastrand::u128(..));
            assert!(!is_filter_id(&foreign, &chain), "{foreign}");
            for spelling in [
                id.to_uppercase(),
                format!("0x0{}", &id[2..]),
                id[2..].to_owned(),
                format!("0x+{}", &id[2..]),
            ] {
                assert!(!is_filter_id(&spelling, &chain), "{spelling}");
            }
        }
        for none in ["", "0x", "0x1", "0x0", "filter", "0xffffffffffffffffffffffffffffffffff"] {
            assert!(!is_filter_id(none, &chain), "{none}");
        }
    }
}
