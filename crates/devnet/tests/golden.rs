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
    let expected = (
        b256!("0x0c6551e5ec87be259bb8438c8e813e546541770d4100e525888c3206e006e99f"),
        b256!("0x044a4334e3cee0973da2d039d16c6d6abc4a07ad1e30cd02095c9218004244d5"),
    );
    assert_eq!(hundredth(ChainConfig::small(1)), expected);
}

#[test]
fn blocks_of_mainnet_size_over_helicon() {
    let expected = (
        b256!("0x787a71e3daefcd0ea05ea6c047e380be3ef06bfc73fe446e4a460405ac1ab2d8"),
        b256!("0xfd444359b0e1dfe5a99044e9bec9003117e73c8a1271560829eb31ee8d28f007"),
    );
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
    assert_ne!(
        b256!("0x0000000000000000000000000000000000000000000000000000000000000000"),
        hash(1)
    );
}
