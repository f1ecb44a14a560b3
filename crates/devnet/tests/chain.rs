//! Every block that is made passes every check that neve makes of an upstream's answers, from
//! parsing in the node's form to settlement, with senders where signatures are real.

use std::collections::BTreeSet;

use neve_chain::{
    AdmittedKeys, Block as Parsed, CheckedBlock, Checks, ClaimedHeader, Header, Kind, Proof,
    ProofError, Receipts, Settlement, TotalDifficulty, atomic, next_base_fee,
};
use neve_devnet::{Block, Chain, ChainConfig, Helicon, Part, Profile, Signatures};
use neve_jsonrpc::Rules;

/// Findings of a walk over blocks.
#[derive(Debug, Default)]
struct Seen {
    blocks: usize,
    empty: usize,
    atomic: usize,
    most_transactions: usize,
    most_logs: usize,
    legacy: usize,
    unprotected: usize,
    access_list: usize,
    dynamic: usize,
    listed: usize,
    created: usize,
    failed: usize,
    /// By number of topics.
    topics: [usize; 5],
    /// Prices that differ from those in the block.
    cheaper: usize,
    /// Headers that settle none, one, several.
    settled: [usize; 3],
}

/// Checks blocks as a follower would, and counts what is in them.
fn walk(config: &ChainConfig, count: usize, rules: Rules) -> Seen {
    let mut seen = Seen::default();
    let mut window = Settlement::new(Settlement::BYTES_MAX_DEFAULT);
    let senders = config.signatures == Signatures::Real;
    let checks = Checks { chain_id: config.chain_id, senders, admitted: AdmittedKeys::NONE };
    for made in Chain::new(config.clone()).take(count) {
        let text = made.answer(Part::Full, rules);
        let block = Parsed::parse(&text).unwrap().check(&checks).unwrap();
        let receipts = Receipts::parse(made.receipts()).unwrap().check(&block).unwrap();
        seen.block(&made, &block, &receipts);
        let asynchronous = config.helicon.covers(made.number());
        assert_eq!(receipts.is_proven(), !asynchronous, "{}", made.number());
        seen.settled(&window.settle(&block.checked_header()).unwrap(), asynchronous);
        if let Some(unsettled) = receipts.unsettled() {
            window.push(unsettled);
        }
        check_forms(&made, &block, rules);
    }
    seen
}

/// The other answers about a block are cut from the same cloth.
fn check_forms(made: &Block, block: &CheckedBlock<'_>, rules: Rules) {
    let header = made.answer(Part::Header, rules);
    let answer = ClaimedHeader::parse(&header).unwrap();
    assert_eq!((&answer.header, answer.hash), (&block.header, block.hash));
    answer.check().unwrap();
    let expected = match rules {
        _ if made.number() == 0 => TotalDifficulty::Unknown,
        Rules::BeforeHelicon => TotalDifficulty::Number,
        Rules::Helicon => TotalDifficulty::Zero,
    };
    assert_eq!(block.total_difficulty_form(), expected);
    let hashes: serde_json::Value =
        serde_json::from_slice(&made.answer(Part::Hashes, rules)).unwrap();
    let listed: Vec<String> = block.transactions.iter().map(|tx| tx.hash.to_string()).collect();
    assert_eq!(hashes["transactions"], serde_json::json!(listed));
    for (index, transaction) in block.transactions.iter().enumerate() {
        let answer = made.transaction(index).unwrap();
        assert!(answer.starts_with(b"{\"blockHash\"") && answer.ends_with(b"}"));
        assert_eq!(made.transactions()[index], transaction.hash);
        assert!(made.receipt(index).unwrap().starts_with(b"{\"blockHash\""));
    }
    assert_eq!(made.transaction(block.transactions.len()), None);
}

impl Seen {
    fn block(&mut self, made: &Block, block: &CheckedBlock<'_>, receipts: &Receipts<'_>) {
        self.blocks += 1;
        self.empty += usize::from(block.transactions.is_empty());
        let ext_data = block.ext_data.unwrap().to_vec();
        self.atomic += atomic::parse_batch(&ext_data).unwrap().len();
        self.most_transactions = self.most_transactions.max(block.transactions.len());
        self.most_logs = self.most_logs.max(receipts.logs.len());
        for log in &receipts.logs {
            self.topics[log.topics.len()] += 1;
        }
        for (transaction, receipt) in block.transactions.iter().zip(&receipts.receipts) {
            self.kind(&transaction.kind);
            self.created += usize::from(receipt.contract_address.is_some());
            self.failed += usize::from(receipt.status == 0);
            self.cheaper += usize::from(receipt.effective_gas_price < transaction.gas_price);
        }
        assert_eq!(made.hash(), block.hash);
    }

    fn kind(&mut self, kind: &Kind) {
        match kind {
            Kind::Legacy { chain_id: Some(_) } => self.legacy += 1,
            Kind::Legacy { chain_id: None } => self.unprotected += 1,
            Kind::AccessList { access_list, .. } => {
                self.access_list += 1;
                self.listed += usize::from(!access_list.is_empty());
            }
            Kind::DynamicFee { access_list, .. } => {
                self.dynamic += 1;
                self.listed += usize::from(!access_list.is_empty());
            }
        }
    }

    fn settled(&mut self, proof: &Proof, asynchronous: bool) {
        let heights = match proof {
            Proof::Own => return assert!(!asynchronous),
            Proof::Nothing => 0,
            Proof::Proven(range) => range.clone().count(),
            Proof::Unprovable { .. } => panic!("{proof:?}"),
        };
        self.settled[heights.min(2)] += 1;
    }
}

#[test]
fn small_blocks_have_everything() {
    let seen = walk(&ChainConfig::small(1), 600, Rules::BeforeHelicon);
    assert_eq!((seen.blocks, seen.cheaper, seen.settled), (600, 0, [0; 3]));
    let counts = [
        seen.empty,
        seen.atomic,
        seen.legacy,
        seen.unprotected,
        seen.access_list,
        seen.dynamic,
        seen.listed,
        seen.created,
        seen.failed,
    ];
    assert!(counts.iter().chain(&seen.topics).all(|count| *count > 20), "{seen:?}");
}

#[test]
fn helicon_in_the_middle() {
    let config = ChainConfig { helicon: Helicon::At(200), ..ChainConfig::small(2) };
    for rules in [Rules::BeforeHelicon, Rules::Helicon] {
        let seen = walk(&config, 800, rules);
        assert!(seen.cheaper > 100, "{seen:?}");
        assert!(seen.settled.iter().all(|headers| *headers > 60), "{seen:?}");
    }
}

#[test]
fn helicon_from_genesis() {
    for helicon in [Helicon::FromGenesis, Helicon::At(0), Helicon::At(1)] {
        let config = ChainConfig { helicon, ..ChainConfig::small(3) };
        let seen = walk(&config, 200, Rules::Helicon);
        assert!(seen.settled.iter().all(|headers| *headers > 10), "{seen:?}");
        let genesis = Chain::new(config).next_block();
        assert_eq!(genesis.header().settled_excess, Some(0));
    }
}

#[test]
fn blocks_of_mainnet_size_with_their_tail() {
    let config = ChainConfig { helicon: Helicon::At(700), ..ChainConfig::c_chain(4) };
    let filler = ChainConfig { signatures: Signatures::Filler, ..config.clone() };
    let seen = walk(&filler, 1_400, Rules::Helicon);
    assert!((180..=223).contains(&seen.most_transactions), "{seen:?}");
    assert!((600..=1_201).contains(&seen.most_logs), "{seen:?}");
    let seen = walk(&config, 60, Rules::BeforeHelicon);
    assert!(seen.dynamic > 1_000, "{seen:?}");
}

#[test]
fn other_profiles() {
    let filler = ChainConfig { signatures: Signatures::Filler, ..ChainConfig::small(5) };
    let many_logs =
        ChainConfig { profile: Profile::many_logs(), helicon: Helicon::At(30), ..filler.clone() };
    let seen = walk(&many_logs, 120, Rules::Helicon);
    assert!(seen.most_logs > 3_000, "{seen:?}");
    let empty = ChainConfig { profile: Profile::empty(), helicon: Helicon::At(100), ..filler };
    let seen = walk(&empty, 300, Rules::Helicon);
    assert_eq!((seen.blocks, seen.empty), (300, 300));
    assert!(seen.atomic > 100, "{seen:?}");
}

/// Blocks milliseconds apart, so that the window of unsettled heights is as long as it gets; and
/// days apart, so that every header settles all before it.
#[test]
fn unusual_intervals() {
    for (interval_ms, expected) in [(1, [0, 1, 0]), (100, [1, 1, 1]), (u64::MAX, [0, 1, 0])] {
        let config = ChainConfig {
            interval_ms,
            helicon: Helicon::FromGenesis,
            profile: Profile::empty(),
            ..ChainConfig::small(6)
        };
        let seen = walk(&config, 2_400, Rules::Helicon);
        for (headers, expected) in seen.settled.iter().zip(expected) {
            assert!(expected == 0 || *headers > 100, "{interval_ms}: {seen:?}");
        }
    }
}

/// A chain whose first blocks no node has.
#[test]
fn a_chain_may_begin_high() {
    for helicon in [Helicon::Never, Helicon::At(75_000_002), Helicon::FromGenesis] {
        let config = ChainConfig { first_height: 75_000_000, helicon, ..ChainConfig::small(7) };
        let blocks: Vec<Block> = Chain::new(config.clone()).take(20).collect();
        assert_eq!(blocks[0].number(), 75_000_000);
        let checks =
            Checks { chain_id: config.chain_id, senders: true, admitted: AdmittedKeys::NONE };
        for pair in blocks.windows(2) {
            assert_eq!(pair[1].header().parent_hash, pair[0].hash());
            let text = pair[1].answer(Part::Full, Rules::Helicon);
            Parsed::parse(&text).unwrap().check(&checks).unwrap();
        }
    }
}

/// However many threads share the senders, the first that is false is the one that is named.
#[test]
fn senders_are_shared_by_threads() {
    let config = ChainConfig { profile: Profile::c_chain(), ..ChainConfig::small(11) };
    let text = |block: Block| block.answer(Part::Full, Rules::BeforeHelicon);
    let transactions = |text: &[u8]| Parsed::parse(text).unwrap().transactions.len();
    let text = Chain::new(config).map(text).find(|text| transactions(text) > 120).unwrap();
    let senders: Vec<_> =
        Parsed::parse(&text).unwrap().transactions.iter().map(|tx| tx.from).collect();
    let mut forged = String::from_utf8(text.clone()).unwrap();
    for at in [81, senders.len() - 1] {
        let from = format!("\"from\":\"{:#x}\"", senders[at]);
        let place = forged.match_indices("\"from\":\"0x").nth(at).unwrap().0;
        assert_eq!(forged[place..place + from.len()], from);
        forged.replace_range(place + 10..place + from.len() - 1, &"7".repeat(40));
    }
    for threads in [0, 1, 2, 3, 100, usize::MAX] {
        Parsed::parse(&text).unwrap().check_senders(threads).unwrap();
        let refused = Parsed::parse(forged.as_bytes()).unwrap().check_senders(threads).unwrap_err();
        assert!(matches!(refused, ProofError::Sender { index: 81, .. }), "{threads}: {refused}");
    }
}

/// No configuration makes it panic.
#[test]
fn extreme_configurations() {
    let config = ChainConfig {
        chain_id: u64::MAX,
        first_height: u64::MAX - 4,
        base_time_ms: u64::MAX,
        interval_ms: 0,
        helicon: Helicon::At(u64::MAX - 2),
        ..ChainConfig::small(u64::MAX)
    };
    assert_eq!(Chain::new(config).take(4).count(), 4);
}

/// Base fees and limits are those of the node's rule: what is computed from the headers up to one
/// bounds the next one's base fee, and fits that one's own.
#[test]
fn base_fees_follow_from_headers() {
    for (helicon, interval_ms) in
        [(Helicon::FromGenesis, 2_000), (Helicon::FromGenesis, 100), (Helicon::At(40), 2_000)]
    {
        let config = ChainConfig { helicon, interval_ms, ..ChainConfig::small(8) };
        let headers: Vec<Header> =
            Chain::new(config).take(140).map(|block| block.header().clone()).collect();
        let mut fees = BTreeSet::new();
        for (at, head) in headers.iter().enumerate() {
            let bound = next_base_fee(&headers[..=at]);
            assert!(bound.is_some(), "{helicon:?} {interval_ms} {at}");
            assert!(head.gas_used <= head.gas_limit);
            fees.insert(head.base_fee_per_gas);
        }
        assert!(fees.len() > 60, "{helicon:?} {interval_ms}: {fees:?}");
    }
}
