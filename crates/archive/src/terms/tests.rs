use proptest::prelude::*;

use super::*;
use crate::digest::PAGE_BYTES;
use crate::table::HEADER_BYTES;

/// Terms that are spread as hashes are.
fn term(number: u64) -> u64 {
    number.wrapping_mul(0x9e37_79b9_7f4a_7c15)
}

fn span() -> Span {
    Span::empty(62 * 32, 32, 2).expect("it is one")
}

fn terms(count: u64) -> Terms {
    let more = (0..count).map(|number| ((62 + number % 2) * 32, term(number)));
    Terms::new(&span(), None, more).expect("they fit")
}

#[test]
fn term_leads_to_its_segments_also_by_pages_alone() {
    for count in [0, 1, 40, 5000, 50_000] {
        let terms = terms(count);
        let bytes = terms.to_bytes();
        assert_eq!(Terms::read(&bytes), Ok(terms.clone()));
        let fences = terms.fences(PAGE_BYTES);
        for number in (0..count).step_by(7) {
            let bit = 1 << (62 + number % 2);
            assert_eq!(terms.segments_of(term(number)), bit, "{number} of {count}");
            let pages = pages_of(&fences, term(number));
            assert!(pages.len() <= 3, "{pages:?}");
            let (from, end) = (pages.start * PAGE_BYTES, pages.end * PAGE_BYTES);
            let part = &bytes[from..end.min(bytes.len())];
            assert_eq!(segments_in(from as u64, part, term(number)), bit, "{number} of {count}");
        }
        assert_eq!(terms.segments_of(term(1 << 30)), 0);
    }
}

#[test]
fn segments_of_one_term_add_up() {
    let old = Span::empty(62 * 32, 32, 1).expect("it is one");
    let old = Terms::new(&old, None, [(62 * 32, 7)].into_iter()).expect("it fits");
    let all = Terms::new(&span(), Some(&old), [(63 * 32, 7), (63 * 32, 8)].into_iter());
    let all = all.expect("they fit");
    assert_eq!((all.segments_of(7), all.segments_of(8), all.len()), (3 << 62, 1 << 63, 2));
    assert!(Terms::new(&span(), None, [(64 * 32, 7)].into_iter()).is_err(), "another group");
    let mut wrong = all.to_bytes();
    wrong[HEADER_BYTES + TERM_BYTES] |= 1; // a segment below the span
    assert!(Terms::read(&wrong).is_err());
}

proptest! {
    #[test]
    fn flipped_and_cut_bytes_never_panic(
        at: prop::sample::Index, to: u8, cut: prop::sample::Index, term: u64,
    ) {
        let mut bytes = terms(100).to_bytes();
        let at = at.index(bytes.len());
        bytes[at] = to;
        bytes.truncate(cut.index(bytes.len() + 1));
        let _ = segments_in(at as u64, &bytes, term);
        if let Ok(read) = Terms::read(&bytes) {
            let _ = read.segments_of(term);
        }
    }
}
