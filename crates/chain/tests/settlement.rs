//! The settlement proof over the recorded chain that enters Helicon at block 202.

use alloy_primitives::{B256, Bloom};
use neve_chain::{
    AdmittedKeys, Block, CheckedBlock, CheckedHeader, CheckedReceipts, Checks, Disproof, Encodings,
    Header, Proof, Receipts, Settlement,
};

use crate::support::{Height, chain};

const CHECKS: Checks = Checks { chain_id: 43_112, senders: false, admitted: AdmittedKeys::NONE };
const LIMIT: usize = Settlement::BYTES_MAX_DEFAULT;
/// The first asynchronous block of the corpus.
const FIRST: usize = 202;

type Checked<'a> = (CheckedBlock<'a>, CheckedReceipts<'a>);

fn push(window: &mut Settlement, receipts: &CheckedReceipts<'_>) {
    receipts.unsettled().into_iter().for_each(|receipts| window.push(receipts));
}

fn checked(heights: &[Height]) -> Vec<Checked<'_>> {
    heights.iter().map(check).collect()
}

fn check(height: &Height) -> Checked<'_> {
    let block = Block::parse(height.full.as_bytes()).unwrap().check(&CHECKS).unwrap();
    let receipts = Receipts::parse(height.receipts.as_bytes()).unwrap().check(&block).unwrap();
    (block, receipts)
}

/// Settles a height as a follower does.
fn follow(window: &mut Settlement, (block, receipts): &Checked<'_>) -> Proof {
    let proof = window.settle(&block.checked_header()).unwrap();
    push(window, receipts);
    proof
}

/// The window as it is when `height` is the newest one.
fn window_at(chain: &[Checked<'_>], height: usize) -> Settlement {
    let mut window = Settlement::new(LIMIT);
    for height in chain.iter().take(height + 1) {
        follow(&mut window, height);
    }
    window
}

#[test]
fn every_height_is_proven_once() {
    let heights = chain("v1.15.0");
    let chain = checked(&heights);
    let mut window = Settlement::new(LIMIT);
    let (mut own, mut nothing, mut ranges, mut next) = (0, 0, 0, FIRST as u64);
    for height in &chain {
        match follow(&mut window, height) {
            Proof::Own => own += 1,
            Proof::Nothing => nothing += 1,
            Proof::Proven(range) => {
                assert_eq!(*range.start(), next, "ranges follow one another");
                next = range.end() + 1;
                ranges += 1;
            }
            proof @ Proof::Unprovable { .. } => panic!("{proof:?}"),
        }
    }
    assert_eq!((own, nothing + ranges), (FIRST, chain.len() - FIRST));
    assert!(nothing > 10 && ranges > 100, "{nothing} empty, {ranges} others");
    let head = &chain[chain.len() - 1].0;
    assert_eq!(window.settled(), head.header.settles());
    assert_eq!(window.unsettled(), next..=head.header.number);
    assert!(window.bytes() > 0);
}

/// The order of the two calls for a height does not matter.
#[test]
fn receipts_may_come_before_their_header() {
    let heights = chain("v1.15.0");
    let chain = checked(&heights);
    let (mut one, mut other) = (Settlement::new(LIMIT), Settlement::new(LIMIT));
    for height in &chain {
        let proof = follow(&mut one, height);
        push(&mut other, &height.1);
        assert_eq!(other.settle(&height.0.checked_header()).unwrap(), proof);
        assert_eq!(one.bytes(), other.bytes());
    }
}

#[test]
fn a_window_can_be_rebuilt_at_any_height() {
    let heights = chain("v1.15.0");
    let chain = checked(&heights);
    let mut straight = Settlement::new(LIMIT);
    for (height, next) in chain.iter().zip(&chain[1..]) {
        follow(&mut straight, height);
        let mut rebuilt = Settlement::resume(&height.0.checked_header(), LIMIT);
        assert_eq!(rebuilt.unsettled(), straight.unsettled());
        for unsettled in rebuilt.unsettled() {
            push(&mut rebuilt, &chain[unsettled as usize].1);
        }
        assert_eq!(rebuilt.bytes(), straight.bytes());
        let next = next.0.checked_header();
        assert_eq!(rebuilt.settle(&next), straight.clone().settle(&next));
    }
}

/// A store that begins in the middle cannot prove the ranges that began before it.
#[test]
fn a_later_start_misses_the_first_ranges() {
    let heights = chain("v1.15.0");
    let chain = checked(&heights);
    for start in [1, FIRST - 1, FIRST, 260, 300] {
        let mut window = Settlement::new(LIMIT);
        let proofs: Vec<_> =
            chain[start..].iter().map(|height| follow(&mut window, height)).collect();
        let first =
            Proof::Unprovable { from: None, through: chain[start].0.header.settled_through() };
        assert_eq!(proofs[0] == first, start >= FIRST, "{start}");
        for (proof, (block, _)) in proofs.iter().zip(&chain[start..]).skip(1) {
            let settled = block.header.settled_through();
            match proof {
                Proof::Unprovable { from: Some(from), .. } => {
                    assert!(*from < start as u64 && *from >= FIRST as u64);
                }
                Proof::Proven(range) => {
                    assert!(*range.start() >= start as u64 && *range.end() == settled);
                }
                Proof::Own | Proof::Nothing => {}
                Proof::Unprovable { from: None, .. } => panic!("only the first header"),
            }
        }
        assert!(proofs.iter().any(|proof| matches!(proof, Proof::Proven(_))));
    }
}

#[test]
fn memory_is_bounded_and_forgotten_heights_are_unprovable() {
    let heights = chain("v1.15.0");
    let chain = checked(&heights);
    let mut window = Settlement::new(4_000);
    let mut unprovable = Vec::new();
    for height in &chain {
        if let Proof::Unprovable { from, through } = follow(&mut window, height) {
            unprovable.push((from.unwrap(), through));
        }
        assert!(window.bytes() <= 4_000);
    }
    assert!(!unprovable.is_empty());
    // What was forgotten is stored: a window over that range alone proves it.
    for (from, through) in unprovable {
        let settling = chain.iter().find(|(block, _)| block.header.settles() >= Some(through));
        let (settling, _) = settling.unwrap();
        let parent = settling.header.number as usize - 1;
        let mut again = Settlement::resume(&chain[parent].0.checked_header(), LIMIT);
        for height in from..=through {
            push(&mut again, &chain[height as usize].1);
        }
        assert_eq!(again.settle(&settling.checked_header()), Ok(Proof::Proven(from..=through)));
    }
}

/// A header of the chain with one thing changed; its hash changes with it.
fn disproof(change: impl Fn(&mut Header), at: usize) -> (&'static str, Settlement) {
    let heights = chain("v1.15.0");
    let chain = checked(&heights);
    let mut window = window_at(&chain, at - 1);
    let mut header = chain[at].0.header.clone();
    change(&mut header);
    let error = window.settle(&CheckedHeader::of(&header)).unwrap_err();
    // Nothing has changed: the right header is still taken.
    assert!(window.settle(&chain[at].0.checked_header()).is_ok());
    (error.reason(), window)
}

/// A header that settles several heights, and one that settles none.
fn examples() -> (usize, usize) {
    let heights = chain("v1.15.0");
    let chain = checked(&heights);
    let length =
        |at: usize| chain[at].0.header.settled_through() - chain[at - 1].0.header.settled_through();
    let several = (FIRST + 20..chain.len()).find(|at| length(*at) > 1).unwrap();
    let none = (FIRST + 20..chain.len()).find(|at| length(*at) == 0).unwrap();
    (several, none)
}

#[test]
fn a_header_must_commit_to_the_receipts() {
    let (several, none) = examples();
    for at in [several, none] {
        let root = |header: &mut Header| header.receipts_root = B256::repeat_byte(1);
        assert_eq!(disproof(root, at).0, "settled_receipts_root");
        let bloom = |header: &mut Header| header.logs_bloom ^= Bloom::repeat_byte(1);
        assert_eq!(disproof(bloom, at).0, "settled_logs_bloom");
    }
    let fewer = |header: &mut Header| *header.settled_height.as_mut().unwrap() -= 1;
    assert_eq!(disproof(fewer, several).0, "settled_receipts_root");
    let more = |header: &mut Header| *header.settled_height.as_mut().unwrap() += 1;
    assert_eq!(disproof(more, none).0, "settled_receipts_root");
}

#[test]
fn settled_heights_neither_fall_nor_reach_the_block() {
    let (several, _) = examples();
    let itself = |header: &mut Header| header.settled_height = Some(header.number);
    assert_eq!(disproof(itself, several).0, "settled_order");
    let back = |header: &mut Header| header.settled_height = Some(100);
    assert_eq!(disproof(back, several).0, "settled_order");
    let overflow = |header: &mut Header| header.settled_height = Some(u64::MAX);
    assert_eq!(disproof(overflow, several).0, "settled_order");
}

/// A header without the settled fields would leave the unsettled heights unproven for ever.
#[test]
fn no_synchronous_block_follows_an_asynchronous_one() {
    let (several, _) = examples();
    let synchronous = |header: &mut Header| {
        header.settled_height = None;
        header.settled_excess = None;
    };
    assert_eq!(disproof(synchronous, several).0, "settled_order");
    assert_eq!(disproof(synchronous, FIRST + 1).0, "settled_order");
}

/// A chain with Helicon from its start: the genesis has the settled fields, all zero, and settles
/// itself; the first block settles the genesis again.
#[test]
fn helicon_from_genesis() {
    let zero = Header {
        settled_height: Some(0),
        settled_gas_unix: Some(0),
        settled_gas_numerator: Some(0),
        settled_excess: Some(0),
        ..Header::default()
    };
    let genesis = CheckedHeader::of(&zero);
    let first = Header {
        number: 1,
        parent_hash: genesis.hash(),
        receipts_root: Encodings::default().root(),
        settled_gas_unix: Some(1),
        ..zero.clone()
    };
    let mut window = Settlement::new(LIMIT);
    assert_eq!(window.settle(&genesis), Ok(Proof::Own));
    assert!(window.unsettled().is_empty());
    assert_eq!(window.settle(&CheckedHeader::of(&first)), Ok(Proof::Nothing));
    assert_eq!(window.unsettled(), 1..=1);
}

#[test]
fn headers_follow_one_another() {
    let (several, _) = examples();
    let stranger = |header: &mut Header| header.parent_hash = B256::ZERO;
    assert_eq!(disproof(stranger, several).0, "settled_parent");
    let jump = |header: &mut Header| header.number += 1;
    assert_eq!(disproof(jump, several).0, "settled_parent");
    let end = |header: &mut Header| header.number = u64::MAX;
    assert_eq!(disproof(end, several).0, "settled_parent");
}

/// Receipts that pass every check that is possible when they appear, but are not the chain's:
/// the status of a transaction is changed. The settling header tells.
#[test]
fn a_lie_about_a_receipt_is_found() {
    let heights = chain("v1.15.0");
    let chain = checked(&heights);
    let mut lies = 0;
    for (at, height) in heights.iter().enumerate().skip(FIRST).step_by(7) {
        let text = height.receipts.replacen("\"status\":\"0x1\"", "\"status\":\"0x0\"", 1);
        let false_receipts = Receipts::parse(text.as_bytes()).unwrap().check(&chain[at].0).unwrap();
        if text == height.receipts {
            continue;
        }
        let mut window = window_at(&chain, at);
        push(&mut window, &false_receipts);
        let found = chain[at + 1..].iter().find_map(|(block, receipts)| {
            let result = window.settle(&block.checked_header());
            push(&mut window, receipts);
            result.err()
        });
        let Some(Disproof::ReceiptsRoot { header, from, through, .. }) = found else {
            assert!(window.unsettled().contains(&(at as u64)), "not settled yet");
            continue;
        };
        assert!((from..=through).contains(&(at as u64)) && header > at as u64);
        // With the right receipts again, the same header proves the range.
        chain[at..header as usize].iter().for_each(|(_, receipts)| push(&mut window, receipts));
        let settling = chain[header as usize].0.checked_header();
        assert_eq!(window.settle(&settling), Ok(Proof::Proven(from..=through)));
        lies += 1;
    }
    assert!(lies > 15);
}
