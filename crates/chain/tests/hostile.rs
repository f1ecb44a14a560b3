//! Whatever an upstream sends: no panic, no work beyond what the length explains, and nothing
//! accepted that is not the recorded answer.

use std::{sync::LazyLock, time::Duration};

use neve_chain::{
    AdmittedKeys, Block, BlockFees, Checks, ClaimedHeader, FeeHistory, FeeRule, Form, Header,
    HeaderForm, Receipts, atomic, new_head, next_base_fee, raw_block, raw_header, raw_receipts,
    raw_transaction,
};
use proptest::{collection::vec, prelude::*, sample::Index};

use crate::support::{Height, chain};

const CHECKS: Checks = Checks { chain_id: 43_112, senders: true, admitted: AdmittedKeys::NONE };

/// Some recorded heights: small ones, or most edits would fall into one long input.
static HEIGHTS: LazyLock<Vec<Height>> = LazyLock::new(|| {
    let chains = ["v1.14.2/main", "v1.14.2/forks", "v1.14.2/apricot0", "v1.15.0"].map(chain);
    let small = chains.into_iter().flatten().filter(|h| h.full.len() + h.receipts.len() < 20_000);
    let heights: Vec<_> = small.step_by(11).collect();
    assert!(heights.len() > 50);
    heights
});

/// Gives a text to everything that reads one. Says whether a block was proven.
fn read_all(block: &[u8], receipts: &[u8]) -> bool {
    for form in [Form::Node, Form::Any] {
        if let Ok(answer) = ClaimedHeader::parse_as(block, form) {
            drop(answer.check());
        }
        if let Ok(block) = Block::parse_as(block, form) {
            block.transactions.iter().for_each(|tx| _ = tx.recover());
            if let Ok(block) = block.check(&CHECKS)
                && let Ok(receipts) = Receipts::parse_as(receipts, form)
            {
                drop(receipts.check(&block));
            }
        }
        drop(Receipts::parse_as(receipts, form));
    }
    make_all(block, receipts);
    let proven = || Block::parse(block).ok()?.check(&CHECKS).ok();
    proven().is_some_and(|block| {
        Receipts::parse(receipts).ok().and_then(|receipts| receipts.check(&block).ok()).is_some()
    })
}

/// Makes whatever is made from stored answers, of answers that were not proven.
fn make_all(block: &[u8], receipts: &[u8]) {
    let _ = (raw_block(block), raw_header(block), raw_receipts(receipts), raw_transaction(block));
    let _ = new_head(block, HeaderForm::V1_15);
    let fees = [BlockFees::from_block(block), BlockFees::from_receipts(block, receipts)];
    for fees in fees.into_iter().flatten() {
        let percentiles = [0.0, 50.0, 100.0];
        drop(FeeHistory::write(FeeRule::BeforeHelicon, &[fees], None, &percentiles));
    }
}

/// A header of whatever numbers the gas clock looks at.
fn clock_header() -> impl Strategy<Value = Header> {
    let number = || prop_oneof![0..5_u64, any::<u64>()];
    let votes = (prop::option::of(number()), prop::option::of(number()));
    let settled = (0..3_u64, number(), number(), number());
    ((number(), number(), number()), votes, settled, vec(any::<u8>(), 0..30)).prop_map(
        |((timestamp, milliseconds, gas_used), votes, settled, extra_data)| Header {
            timestamp,
            timestamp_milliseconds: Some(milliseconds),
            gas_used,
            extra_data: extra_data.into(),
            target_exponent: votes.0,
            min_price_exponent: votes.1,
            settled_height: Some(settled.0),
            settled_gas_unix: Some(settled.1),
            settled_gas_numerator: Some(settled.2),
            settled_excess: Some(settled.3),
            ..Header::default()
        },
    )
}

/// A change of a text.
#[derive(Clone, Debug)]
enum Edit {
    Set(Index, u8),
    Insert(Index, Vec<u8>),
    Remove(Index, usize),
    /// Copies a stretch to another place: members, items and hashes come twice or elsewhere.
    Copy(Index, usize, Index),
    Cut(Index),
}

fn edit() -> impl Strategy<Value = Edit> {
    let byte = prop_oneof![
        proptest::sample::select(&b"0123456789abcdefABCDEFx{}[]\",: \\nulltruefalse-"[..]),
        any::<u8>(),
    ];
    prop_oneof![
        4 => (any::<Index>(), byte.clone()).prop_map(|(at, byte)| Edit::Set(at, byte)),
        2 => (any::<Index>(), vec(byte, 1..8)).prop_map(|(at, bytes)| Edit::Insert(at, bytes)),
        2 => (any::<Index>(), 1_usize..80).prop_map(|(at, length)| Edit::Remove(at, length)),
        2 => (any::<Index>(), 1_usize..200, any::<Index>())
            .prop_map(|(from, length, to)| Edit::Copy(from, length, to)),
        1 => any::<Index>().prop_map(Edit::Cut),
    ]
}

fn apply(text: &mut Vec<u8>, edit: &Edit) {
    if text.is_empty() {
        return;
    }
    let stretch = |at: &Index, length: &usize| {
        let start = at.index(text.len());
        start..(start + length).min(text.len())
    };
    match edit {
        Edit::Set(at, byte) => {
            let at = at.index(text.len());
            text[at] = *byte;
        }
        Edit::Insert(at, bytes) => {
            let at = at.index(text.len());
            text.splice(at..at, bytes.iter().copied());
        }
        Edit::Remove(at, length) => drop(text.drain(stretch(at, length))),
        Edit::Copy(from, length, to) => {
            let copied = text[stretch(from, length)].to_vec();
            let to = to.index(text.len());
            text.splice(to..to, copied);
        }
        Edit::Cut(at) => text.truncate(at.index(text.len())),
    }
}

/// The text without its total difficulty, which may be changed to the node's other form.
fn bound(text: &[u8]) -> String {
    let text = String::from_utf8_lossy(text).into_owned();
    match (text.find("\"totalDifficulty\""), text.find(",\"transactions\":")) {
        (Some(start), Some(end)) if start < end => text[..start].to_owned() + &text[end..],
        _ => text,
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 2048, ..ProptestConfig::default() })]

    #[test]
    fn any_headers(mut headers in vec(clock_header(), 0..5)) {
        for (number, header) in headers.iter_mut().enumerate() {
            header.number = number as u64;
        }
        let _ = next_base_fee(&headers);
    }

    #[test]
    fn any_bytes(bytes in vec(any::<u8>(), 0..400)) {
        prop_assert!(!read_all(&bytes, &bytes));
        drop(atomic::parse_batch(&bytes));
        drop(atomic::parse_single(&bytes));
    }

    #[test]
    fn any_json_like_text(text in "[\\[{\\]},:\"0x1-9a-f ntrue\\\\]{0,200}") {
        prop_assert!(!read_all(text.as_bytes(), text.as_bytes()));
    }

    /// An edited answer is refused, unless the edits undo one another.
    #[test]
    fn edited_blocks(height in any::<Index>(), edits in vec(edit(), 1..4)) {
        let height = height.get(&HEIGHTS);
        let mut text = height.full.clone().into_bytes();
        edits.iter().for_each(|edit| apply(&mut text, edit));
        if read_all(&text, height.receipts.as_bytes()) {
            prop_assert_eq!(bound(&text), bound(height.full.as_bytes()));
        }
    }

    /// Changes receipts in the same way. Those of asynchronous blocks are not bound yet.
    #[test]
    fn edited_receipts(height in any::<Index>(), edits in vec(edit(), 1..4)) {
        let height = height.get(&HEIGHTS);
        let mut text = height.receipts.clone().into_bytes();
        edits.iter().for_each(|edit| apply(&mut text, edit));
        let proven = read_all(height.full.as_bytes(), &text);
        if proven && !height.full.contains("settledHeight") {
            prop_assert_eq!(&text, height.receipts.as_bytes());
        }
    }

    #[test]
    fn edited_extra_data(height in any::<Index>(), edits in vec(edit(), 1..4)) {
        let block = Block::parse(height.get(&HEIGHTS).full.as_bytes()).unwrap();
        let mut data = block.ext_data.unwrap().to_vec();
        data.extend([0, 0, 0, 0, 0, 1]);
        edits.iter().for_each(|edit| apply(&mut data, edit));
        for parsed in atomic::parse_batch(&data).into_iter().flatten() {
            prop_assert!(parsed.span.end <= data.len());
            let _ = (parsed.gas(), parsed.gas_before_apricot_5());
        }
        drop(atomic::parse_single(&data));
    }
}

/// Texts that are made to be slow: each takes time in proportion to its length.
#[test]
fn long_texts() {
    let [short, long] = [1 << 17, 1 << 20].map(time_of_texts);
    println!("{long:?}, and {short:?} for an eighth");
    // Work that grows with the square takes 64 times as long.
    assert!(long < 32 * short, "{long:?}, and {short:?} for an eighth");
}

/// Processor time for texts of about so many bytes. A busy machine does not change it (proc(5), `schedstat`).
fn time_of_texts(many: usize) -> Duration {
    let time = || {
        let text = std::fs::read_to_string("/proc/thread-self/schedstat").unwrap();
        Duration::from_nanos(text.split(' ').next().unwrap().parse().unwrap())
    };
    let start = time();
    let keys = (0..many / 8).map(|key| format!("\"k{key:07}\":0,")).collect::<Vec<_>>().concat();
    let texts = [
        "[".repeat(many),
        "{\"a\":".repeat(many / 4),
        format!("{{{keys}\"z\":0}}"),
        format!("[{{{keys}\"z\":0}}]"),
        format!("{{\"blockExtraData\":\"0x{}\"}}", "0".repeat(many)),
        format!("{{\"difficulty\":\"0x{}\"}}", "1".repeat(many)),
        format!("{{\"uncles\":[{}0]}}", "0,".repeat(many / 2)),
        format!("{{\"transactions\":[{{{keys}\"z\":0}}]}}"),
        format!("{{\"later\":\"{}\"}}", "\\n".repeat(many / 2)),
        format!("{{\"later\":{}}}", "1".repeat(many)),
        " ".repeat(many),
        "\"".repeat(many),
    ];
    for text in &texts {
        assert!(!read_all(text.as_bytes(), text.as_bytes()));
    }
    time().saturating_sub(start)
}

/// Counts in atomic transactions are compared with what is left before anything is reserved.
#[test]
fn counts_in_extra_data() {
    let mut data = vec![0, 0];
    data.extend([0xff; 4]);
    assert!(atomic::parse_batch(&data).is_err());
    for corpus in ["v1.14.2/main", "v1.15.0"] {
        for height in chain(corpus) {
            let block = Block::parse(height.full.as_bytes()).unwrap();
            let data = block.ext_data.unwrap().to_vec();
            for end in 1..data.len() {
                assert!(atomic::parse_batch(&data[..end]).is_err(), "cut at {end}");
            }
            for at in 0..data.len().saturating_sub(4) {
                let mut changed = data.clone();
                changed[at..at + 4].fill(0xff);
                drop(atomic::parse_batch(&changed));
                drop(atomic::parse_single(&changed));
            }
        }
    }
}
