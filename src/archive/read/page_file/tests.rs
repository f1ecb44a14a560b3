//! Pages of an object that no disk takes, and their readers.

use std::net::IpAddr;

use neve_archive::Kind;

use super::*;

fn file(pages: usize) -> Arc<PageFile> {
    let bytes = vec![7; pages * PAGE_BYTES];
    let list = PageList::of(&bytes);
    let digest = Digest([1; 32]);
    let name = ObjectName { chain_id: 7, kind: Kind::Segment, first: 0, digest };
    let place = OpenPages::new(1, 1 << 20).take(0).expect("it is the first");
    Arc::new(PageFile::new(name, bytes.len() as u64, list, None, place))
}

#[test]
fn page_is_brought_by_one_caller_and_the_others_wait() {
    let file = file(5);
    let runs = |boarding: &Boarding| -> Vec<_> {
        boarding.mine.iter().map(|flight| (flight.pages.start, flight.pages.end)).collect()
    };
    let first = file.board(&BTreeSet::from([0, 1, 3]), RUN_PAGES_MAX);
    assert_eq!((runs(&first), first.landings.len()), (vec![(0, 2), (3, 4)], 2));
    let all = BTreeSet::from([0, 1, 2, 3, 4]);
    assert_eq!(file.absent(&all, RUN_PAGES_MAX), (2, 2), "those on their way");
    let second = file.board(&BTreeSet::from([1, 2, 3]), RUN_PAGES_MAX);
    assert_eq!((runs(&second), second.landings.len()), (vec![(2, 3)], 3));
    for flight in first.mine.into_iter().chain(second.mine) {
        flight.ended(Ok(()));
    }
    let bytes = Bytes::from(vec![7; 2 * PAGE_BYTES]);
    assert!(file.unproven(&(0..2), &bytes).is_empty() && file.keep(0..2, &bytes) == 0);
    assert_eq!(file.new_runs(&(0..5), &[3]), [2..3, 4..5]);
    assert_eq!(file.unproven(&(0..3), &bytes), [2], "cut off");
    let mut flipped = bytes.to_vec();
    flipped[PAGE_BYTES - 1] ^= 1;
    assert_eq!(file.unproven(&(0..2), &flipped), [0]);
    assert_eq!(runs(&file.board(&BTreeSet::from([0, 1, 2]), RUN_PAGES_MAX)), [(2, 3)]);
    assert_eq!(file.read(0, 2 * PAGE_BYTES).as_deref(), Some(&bytes[..]));
    assert_eq!(file.read(0, 2 * PAGE_BYTES + 1), None);
}

#[test]
fn short_gaps_are_between_absent_pages_and_have_none_that_is_here_or_on_its_way() {
    let (file, pages) = (file(9), BTreeSet::from([0, 2, 8]));
    assert_eq!(file.between(&pages, 1), [1]);
    assert_eq!(file.between(&pages, 0), [0; 0]);
    assert_eq!(file.between(&pages, 5), [1, 3, 4, 5, 6, 7]);
    let mut flights = file.board(&BTreeSet::from([1]), RUN_PAGES_MAX).mine;
    assert_eq!(file.between(&pages, 5), [3, 4, 5, 6, 7], "one is on its way");
    drop(flights.pop());
    file.note_proven(2);
    assert_eq!(file.between(&pages, 6), [0; 0], "no read has a side there");
    assert_eq!(file.between(&pages, 7), [0; 0], "one of the gap is here");
}

#[test]
fn long_run_is_several_reads() {
    let file = file(RUN_PAGES_MAX + 1);
    let all = (0..=RUN_PAGES_MAX).collect();
    assert_eq!(file.absent(&all, RUN_PAGES_MAX), (2, RUN_PAGES_MAX + 1));
    assert_eq!(file.absent(&all, RUN_PAGES_MAX + 1), (1, RUN_PAGES_MAX + 1));
    let boarding = file.board(&(0..=RUN_PAGES_MAX).collect(), RUN_PAGES_MAX);
    let runs: Vec<_> = boarding.mine.iter().map(Flight::pages).collect();
    assert_eq!(runs, [0..RUN_PAGES_MAX, RUN_PAGES_MAX..RUN_PAGES_MAX + 1]);
}

#[test]
fn pages_of_a_flight_that_panicked_are_brought_by_the_next_caller() {
    let (file, pages) = (file(3), BTreeSet::from([0, 1]));
    let first = file.board(&pages, RUN_PAGES_MAX);
    let mut waiting = file.board(&pages, RUN_PAGES_MAX).landings;
    drop(first.mine);
    assert!(waiting.iter_mut().all(|(landing, _)| landing.has_changed().is_err()), "told");
    assert_eq!(file.absent(&pages, RUN_PAGES_MAX), (1, 2));
    let next = file.board(&pages, RUN_PAGES_MAX);
    let [next] = <[Flight; 1]>::try_from(next.mine).ok().expect("one flight");
    assert_eq!(next.pages(), 0..2);
    // One that ended says no more of its pages.
    next.ended(Err(ObjectNotRead::Failed));
    let again = file.board(&pages, RUN_PAGES_MAX);
    assert_eq!((again.mine.len(), file.absent(&pages, RUN_PAGES_MAX)), (1, (0, 0)));
}

/// An address could have all files by a few batches of heights far apart, and others would be refused.
#[test]
fn requests_of_an_address_have_half_of_the_files_of_pages() {
    let open = OpenPages::new(6, 1 << 20);
    let at = |last: u8| ClientAddress::from(IpAddr::from([10, 0, 0, last]));
    let lend = |last, digest| open.lend(at(last), Digest([digest; 32]));
    let mut lent: Vec<_> = (0..9).map_while(|digest| lend(1, digest)).collect();
    assert_eq!(lent.len(), 3);
    let again = lend(1, 0).expect("another request has it already");
    let others: Vec<_> = (0..9).map_while(|digest| lend(2, digest)).collect();
    assert_eq!(others.len(), 3);
    drop(lent.remove(0));
    assert!(lend(1, 3).is_none(), "the other request goes on");
    drop(again);
    assert!(lend(1, 3).is_some());
    drop((lent, others));
    assert!(lock(&open.lent).is_empty());
}
