//! Fee histories against every recorded answer to `eth_feeHistory`.

use alloy_primitives::U256;
use neve_chain::{
    Block, BlockFees, ClaimedHeader, EMPTY_FEE_HISTORY, FeeHistory, FeeRefusal, FeeRequest,
    FeeRule, Header, NewestBlock, next_base_fee,
};
use serde_json::Value;

use crate::support::{CORPORA, Height, chain, rows, text};

fn rule(corpus: &str) -> FeeRule {
    if corpus == "v1.15.0" { FeeRule::Helicon } else { FeeRule::BeforeHelicon }
}

/// A recorded chain, ready to answer.
struct Node {
    rule: FeeRule,
    fees: Vec<BlockFees>,
    headers: Vec<Header>,
    settled: u64,
}

impl Node {
    fn new(corpus: &str) -> Self {
        let rule = rule(corpus);
        let fees = |height: &Height| match rule {
            FeeRule::Helicon => BlockFees::from_block(height.full.as_bytes()).unwrap(),
            FeeRule::BeforeHelicon => {
                let (block, receipts) = (height.full.as_bytes(), height.receipts.as_bytes());
                BlockFees::from_receipts(block, receipts).unwrap()
            }
        };
        let header = |height: &Height| ClaimedHeader::parse(height.full.as_bytes()).unwrap().header;
        let chain = chain(corpus);
        let headers: Vec<Header> = chain.iter().map(header).collect();
        let settled = headers.last().unwrap().settled_through();
        Self { rule, fees: chain.iter().map(fees).collect(), headers, settled }
    }

    fn head(&self) -> u64 {
        self.fees.len() as u64 - 1
    }

    /// Returns the meaning of a request's second argument; `None` if it means nothing here.
    fn newest(&self, argument: &str) -> Option<NewestBlock> {
        let height = match (argument, self.rule) {
            ("pending", _) => return Some(NewestBlock::Pending),
            ("safe" | "finalized", FeeRule::Helicon) => self.settled,
            ("accepted", FeeRule::Helicon) => return None,
            ("latest" | "accepted" | "safe" | "finalized", _) => self.head(),
            ("earliest", _) => 0,
            (number, _) => u64::from_str_radix(number.strip_prefix("0x")?, 16).ok()?,
        };
        Some(NewestBlock::Height(height))
    }

    /// The base fee after the last of some blocks.
    fn next(&self, end: u64) -> Option<U256> {
        match self.fees.get(usize::try_from(end).unwrap()) {
            Some(next) => Some(next.base_fee()),
            None => next_base_fee(&self.headers),
        }
    }

    fn answer(&self, request: &FeeRequest, percentiles: &[f64]) -> Result<String, FeeRefusal> {
        let blocks = request.blocks(self.rule, self.head())?;
        let next = self.next(blocks.end);
        let range = blocks.start as usize..blocks.end as usize;
        match FeeHistory::write(self.rule, &self.fees[range], next, percentiles) {
            FeeHistory::Whole(text) => Ok(text),
            lack => panic!("{lack:?}"),
        }
    }
}

/// The arguments of a recorded request; `None` where they are not of the types that a node wants.
fn arguments(request: &str) -> Option<(u64, String, Vec<f64>)> {
    let request: Value = serde_json::from_str(request).ok()?;
    let [count, newest, percentiles] = request["params"].as_array()?.get(..)? else { return None };
    let count = match count {
        Value::Number(number) => number.as_u64()?,
        Value::String(text) if text.is_empty() => 0,
        Value::String(text) => match text.strip_prefix("0x") {
            Some(digits) => u64::from_str_radix(digits, 16).ok()?,
            None => text.parse().ok()?,
        },
        _ => return None,
    };
    let percentiles = match percentiles {
        Value::Null => Vec::new(),
        Value::Array(list) => list.iter().map(Value::as_f64).collect::<Option<_>>()?,
        _ => return None,
    };
    Some((count, newest.as_str()?.to_owned(), percentiles))
}

/// Results and refusals, to the byte. What is left out are arguments that cannot be decoded, and
/// percentiles that are none: both are seen before a block is looked for.
#[test]
fn histories_are_the_nodes() {
    let mut found = (0, 0, 0, 0);
    for corpus in CORPORA {
        let node = Node::new(corpus);
        for row in rows(corpus, "methods.jsonl.gz") {
            if row.rpc != "eth_feeHistory" {
                continue;
            }
            let decoded = arguments(&row.request);
            let decoded = decoded.and_then(|(count, newest, percentiles)| {
                Some((count, node.newest(&newest)?, percentiles))
            });
            let Some((count, newest, percentiles)) = decoded else {
                assert!(row.response.contains("-32602"), "{}", row.request);
                found.2 += 1;
                continue;
            };
            if row.response.contains("percentile") {
                found.3 += 1;
                continue;
            }
            let answer = match node.answer(&FeeRequest { count, newest }, &percentiles) {
                Ok(result) => {
                    found.0 += 1;
                    format!("\"result\":{result}}}\n")
                }
                Err(refusal) => {
                    found.1 += 1;
                    // As Go's JSON has it.
                    let message = refusal.to_string().replace('>', "\\u003e");
                    format!("\"error\":{{\"code\":-32000,\"message\":\"{message}\"}}}}\n")
                }
            };
            assert!(row.response.ends_with(&answer), "{}\n{answer}", row.request);
        }
    }
    assert_eq!(found, (623, 4, 61, 44));
}

/// The bound that a node shows at its head: computed at every block of Helicon, each time starting
/// from another settled one, and each time with the base fee and gas limit that the head itself
/// has, or there would be none. The next header's base fee is at most that.
#[test]
fn the_next_base_fee_follows_from_headers() {
    let headers = Node::new("v1.15.0").headers;
    let (mut bounds, mut reached, mut risen) = (0, 0, 0);
    for number in 202..headers.len() {
        let own = headers[number].base_fee_per_gas.unwrap();
        let bound = next_base_fee(&headers[..=number]).unwrap();
        let settled = headers[number].settles().unwrap() as usize;
        assert_eq!(next_base_fee(&headers[settled..=number]), Some(bound));
        assert_eq!(next_base_fee(&headers[settled + 1..=number]), None, "one too few");
        if let Some(next) = headers.get(number + 1) {
            let next = next.base_fee_per_gas.unwrap();
            assert!(next <= bound, "{number}");
            reached += usize::from(next == bound);
        }
        risen += usize::from(bound > own);
        bounds += 1;
    }
    assert_eq!((bounds, reached, risen), (180, 168, 23));
    // Of the transition block, which is synchronous, the node repeats the base fee.
    assert_eq!(next_base_fee(&headers[..=201]), headers[201].base_fee_per_gas);
}

/// A head that does not follow from its chain has no bound.
#[test]
fn unknown_rules_have_no_bound() {
    let headers = Node::new("v1.15.0").headers;
    let change = |change: fn(&mut Header)| {
        let mut headers = headers.clone();
        change(headers.last_mut().unwrap());
        next_base_fee(&headers)
    };
    assert!(change(|_| {}).is_some());
    assert_eq!(change(|head| head.gas_limit += 1), None);
    assert_eq!(change(|head| head.base_fee_per_gas = Some(U256::from(13))), None);
    assert_eq!(change(|head| *head.settled_excess.as_mut().unwrap() *= 2), None);
}

/// `tests/data/recorded/ratios.txt`: used gas, limit, and what Go writes.
#[test]
fn ratios_are_as_go_writes_them() {
    let lines = text("../recorded/ratios.txt");
    assert_eq!(lines.lines().count(), 100);
    for line in lines.lines() {
        let [used, limit, expected] = line.split(' ').collect::<Vec<_>>()[..] else { panic!() };
        let (gas_used, gas_limit) = (used.parse().unwrap(), limit.parse().unwrap());
        let header = Header { gas_used, gas_limit, ..Header::default() };
        assert_eq!(BlockFees::of_header(&header).unwrap().gas_used_ratio(), expected);
    }
}

/// Names the part that an answer lacks, and makes nothing up.
#[test]
fn lacks() {
    let height = &chain("v1.15.0")[300];
    let header = BlockFees::from_header(height.full.as_bytes()).unwrap();
    let block = BlockFees::from_block(height.full.as_bytes()).unwrap();
    let write = |rule, fees: &BlockFees, next, percentiles: &[f64]| {
        FeeHistory::write(rule, std::slice::from_ref(fees), next, percentiles)
    };
    let next = Some(U256::from(5));
    let lack = write(FeeRule::Helicon, &block, None, &[]);
    assert_eq!(lack, FeeHistory::NeedsNextBaseFee);
    let lack = write(FeeRule::Helicon, &header, next, &[1.0]);
    assert_eq!(lack, FeeHistory::NeedsTransactions { number: 300 });
    let whole = write(FeeRule::Helicon, &header, next, &[]);
    assert_eq!(whole, write(FeeRule::Helicon, &block, next, &[]));
    assert!(matches!(whole, FeeHistory::Whole(_)));
    let none: [BlockFees; 0] = [];
    let empty = FeeHistory::write(FeeRule::Helicon, &none, None, &[1.0]);
    assert_eq!(empty, FeeHistory::Whole(EMPTY_FEE_HISTORY.to_owned()));
    let receipts = &chain("v1.15.0")[299].receipts;
    let refusal = BlockFees::from_receipts(height.full.as_bytes(), receipts.as_bytes());
    assert_eq!(refusal.unwrap_err().reason(), "receipt_count");
}

/// Ranges near the bounds that no recorded chain is long enough for.
#[test]
fn ranges_of_a_long_chain() {
    let head = 100_000;
    let blocks = |rule, count, newest| {
        FeeRequest { count, newest: NewestBlock::Height(newest) }.blocks(rule, head)
    };
    let (old, new) = (FeeRule::BeforeHelicon, FeeRule::Helicon);
    for rule in [old, new] {
        assert_eq!(blocks(rule, 1, head), Ok(100_000..100_001));
        assert_eq!(blocks(rule, u64::MAX, head), Ok(97_953..100_001));
        assert_eq!(blocks(rule, 3, 75_100), Ok(75_098..75_101));
        assert_eq!(blocks(rule, 0, head), Ok(0..0));
    }
    // The head is one of the 25,000 for one, and not for the other; one cuts, the other does not.
    assert_eq!(blocks(old, 1, 75_001), Ok(75_001..75_002));
    assert_eq!(blocks(old, 10, 75_001), Ok(75_001..75_002));
    assert_eq!(blocks(old, 10, 75_005), Ok(75_001..75_006));
    let refusal = blocks(old, 1, 75_000).unwrap_err();
    assert_eq!(
        refusal.to_string(),
        "request beyond historical limit: requested 75000, head 100000"
    );
    assert_eq!(blocks(new, 10, 75_000), Ok(74_991..75_001));
    let refusal = blocks(new, 1, 74_999).unwrap_err();
    assert_eq!(
        refusal.to_string(),
        "requested block is too far behind accepted head: block 74999 requested, \
         accepted head is 100000 (max depth 25000)"
    );
    // No blocks are asked for: the one has nothing to refuse, the other looks first.
    assert_eq!(blocks(old, 0, head + 1), Ok(0..0));
    assert_eq!(blocks(new, 0, head + 1), Err(FeeRefusal::HeliconBeyondHead { newest: head + 1 }));
    let pending = |rule| FeeRequest { count: 2, newest: NewestBlock::Pending }.blocks(rule, head);
    assert_eq!((pending(old), pending(new)), (Ok(100_000..100_001), Ok(99_999..100_001)));
}

/// By which gas transactions weigh differs between the rules, and shows in blocks of Helicon.
#[test]
fn the_rules_weigh_differently() {
    let percentiles: Vec<f64> = (0..100).map(f64::from).collect();
    let mut differ = 0;
    for height in &chain("v1.15.0")[202..] {
        let block = Block::parse(height.full.as_bytes()).unwrap();
        let limits = BlockFees::of_block(&block).unwrap();
        let (block, receipts) = (height.full.as_bytes(), height.receipts.as_bytes());
        let used = BlockFees::from_receipts(block, receipts).unwrap();
        differ += usize::from(limits.rewards(&percentiles) != used.rewards(&percentiles));
    }
    assert!(differ > 20, "{differ}");
}
