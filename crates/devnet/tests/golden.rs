//! Golden blocks: equal configurations make equal chains on every machine and in every run.

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
        b256!("0xb670f5ba81b28d121de8c21a7396a7aa97e566e18df2b39b61943b5c2d03ae1e"),
        b256!("0x09d9b0d8f13df2de2c2838d27956aebd9cd2c7b6f1f2f70619b65a8d3531a14b"),
    );
    assert_eq!(hundredth(ChainConfig::small(1)), expected);
}

#[test]
fn blocks_of_mainnet_size_over_helicon() {
    let expected = (
        b256!("0xce832b6c1203d697ecb2280df0a0f7adf15da61bc3bb000e65c52303444b2066"),
        b256!("0xf3de459cb5cfd7d8211192fde58512e9d87a2ebb39601f02dca02aaa27bd4f16"),
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
