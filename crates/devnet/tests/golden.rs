//! The same configuration makes the same chain on every machine and in every run.

#![cfg(test)]

use alloy_primitives::{B256, b256, keccak256};
use neve_devnet::{Chain, ChainConfig, Helicon, Part, Signatures};
use neve_jsonrpc::Rules;

/// The hash of block 100, and of all texts about it. The first binds what is hashed in a block, the
/// second also what is shown of it.
fn hundredth(config: ChainConfig) -> (B256, B256) {
    let block = Chain::new(config).nth(100).unwrap();
    let texts = [
        block.answer(Part::Full, Rules::Helicon),
        block.answer(Part::Hashes, Rules::BeforeHelicon),
        block.receipts().to_vec(),
    ];
    (block.hash(), keccak256(texts.concat()))
}

#[test]
fn small_synchronous_blocks() {
    let expected = (B256::ZERO, B256::ZERO);
    assert_eq!(hundredth(ChainConfig::small(1)), expected);
}

#[test]
fn blocks_of_mainnet_size_over_helicon() {
    let expected = (B256::ZERO, B256::ZERO);
    let config = ChainConfig {
        helicon: Helicon::At(50),
        signatures: Signatures::Filler,
        ..ChainConfig::c_chain(2)
    };
    assert_eq!(hundredth(config), expected);
}

/// A block that is made alone is the one of the chain.
#[test]
fn any_block_can_be_made_again() {
    let config = ChainConfig { helicon: Helicon::At(20), ..ChainConfig::small(3) };
    let chain = Chain::new(config.clone());
    let blocks: Vec<_> = Chain::new(config).take(60).collect();
    for pair in blocks.windows(2) {
        let again = chain.block_behind(pair[1].number(), pair[0].hash());
        assert_eq!(again.hash(), pair[1].hash());
        assert_eq!(again.receipts(), pair[1].receipts());
    }
}

#[test]
fn another_seed_is_another_chain() {
    let hash = |seed| Chain::new(ChainConfig::small(seed)).nth(5).unwrap().hash();
    assert_ne!(hash(1), hash(2));
    assert_ne!(b256!("0x0000000000000000000000000000000000000000000000000000000000000000"), hash(1));
}
