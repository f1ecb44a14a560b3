use std::fs::File;
use std::sync::Arc;

use super::super::map::Map;
use super::*;
use crate::segment::PackedBytes;

pub(in crate::memory) const LEN: u64 = 1 << 20;

/// A file that is on disk and not in memory, mapped.
pub(in crate::memory) fn cold_map() -> (tempfile::TempDir, Map) {
    // In the target directory: what lies in a file system in memory is never cold.
    let dir = tempfile::tempdir_in(env!("CARGO_MANIFEST_DIR")).unwrap();
    let path = dir.path().join("file");
    std::fs::write(&path, vec![7; LEN as usize]).unwrap();
    let file = File::open(&path).unwrap();
    file.sync_all().unwrap();
    rustix::fs::fadvise(&file, 0, None, rustix::fs::Advice::DontNeed).unwrap();
    let map = Map::new(&file, LEN, 0, 0).unwrap();
    map.publish(LEN, LEN);
    (dir, map)
}

#[test]
#[cfg_attr(miri, ignore = "it has no page cache")]
fn cold_page_is_not_touched_until_it_is_loaded() {
    let (_dir, map) = cold_map();
    let far = map.bytes(LEN - 10..LEN).unwrap();
    assert_eq!(if_resident(|| probe(&map, far)), Err(Cold), "it is not in memory");
    assert_eq!(if_resident(|| probe(&map, far)), Err(Cold), "looking has not read it");
    assert_eq!(loading(|| probe(&map, far)), Ok(()));
    assert_eq!(far, [7; 10], "which waits for it");
    assert_eq!(if_resident(|| probe(&map, far)), Ok(()));
    assert_eq!(
        if_resident(|| probe(&map, map.bytes(0..10).unwrap())),
        Err(Cold),
        "the rest is still cold"
    );
}

#[test]
#[cfg_attr(miri, ignore = "it has no page cache")]
fn bytes_of_a_file_that_was_cut_are_missing_and_no_signal_comes() {
    let (dir, map) = cold_map();
    let far = map.bytes(LEN - 10..LEN).unwrap();
    let read = || read_file(&map, far).map(Cow::into_owned);
    assert_eq!(if_resident(|| read().ok_or(Cold)), Err(Cold), "it is not in memory");
    assert_eq!(with_blocking_reads(read), Ok(Some(vec![7; 10])));
    assert_eq!(if_resident(|| read().ok_or(Cold)), Ok(vec![7; 10]));
    let file = File::options().write(true).open(dir.path().join("file")).unwrap();
    file.set_len(LEN / 2).unwrap();
    // The page was in memory a moment ago, and counts as being there.
    assert_eq!(with_blocking_reads(read), Ok(None), "a damage, which is not tried again");
    assert_eq!(read(), None);
    assert_eq!(if_resident(|| read().ok_or(Cold)), Err(Cold));
}

#[test]
#[cfg_attr(miri, ignore = "it has no page cache")]
fn probe_of_packed_bytes_that_are_not_in_memory_ends_the_work() {
    let (_dir, map) = cold_map();
    let bytes = PackedBytes::mapped(Arc::new(map));
    let probe = |offset| if_resident(|| bytes.probe(offset, 10));
    assert_eq!(probe(LEN - 10), Err(Cold), "it is not in memory");
    assert_eq!(probe(LEN - 10), Err(Cold), "looking has not read it");
    let read = with_blocking_reads(|| bytes.read(LEN - 10, 10).map(Cow::into_owned));
    assert_eq!(read, Ok(Some(vec![7; 10])));
    assert_eq!(probe(LEN - 10), Ok(()));
    assert_eq!(probe(0), Err(Cold), "the rest is still cold");
    assert_eq!(probe(LEN - 5), Ok(()), "a read finds what is beyond the end missing");
    assert_eq!(bytes.probe(0, 10), Ok(()), "this thread may wait");
    assert_eq!(if_resident(|| PackedBytes::in_memory(vec![7; 20]).probe(0, 10)), Ok(()));
}

#[test]
#[cfg_attr(miri, ignore = "it has no page cache")]
fn reads_after_a_cold_one_are_refused_until_the_work_ends() {
    let (_dir, map) = cold_map();
    let (far, warm) = (map.bytes(LEN - 1..LEN).unwrap(), vec![1; 100]);
    let done: Result<(), Cold> = if_resident(|| {
        assert!(probe(&map, &warm).is_ok() && !has_failed_probe());
        assert!(probe(&map, far).is_err() && has_failed_probe());
        probe(&map, &warm) // the work is over
    });
    assert!(done.is_err() && !has_failed_probe());
    assert_eq!(probe(&map, far), Ok(()), "this thread may wait");
    assert_eq!(not_here(), Ok(()), "no other thread does it instead");
    assert_eq!(if_resident(not_here), Err(Cold));
}

#[test]
fn work_that_weighs_too_much_ends_and_is_told_apart() {
    let work = || weigh(6, 10).and_then(|()| weigh(5, 10));
    assert_eq!((if_resident(work), was_too_heavy(), was_too_heavy()), (Err(Cold), true, false));
    assert_eq!(
        (if_resident(|| weigh(10, 10)), was_too_heavy()),
        (Ok(()), false),
        "it is other work"
    );
    assert_eq!((loading(work), was_too_heavy()), (Ok(()), false), "this thread may take long");
    assert_eq!((if_resident(not_here), was_too_heavy()), (Err(Cold), false));
}

#[test]
#[cfg_attr(miri, ignore = "it has no page cache")]
#[cfg(debug_assertions)]
#[should_panic(expected = "a cold read was taken for an absence")]
fn cold_read_that_is_taken_for_an_absence_is_noticed() {
    let (_dir, map) = cold_map();
    let far = map.bytes(LEN - 1..LEN).unwrap();
    let _ = if_resident(|| Ok(probe(&map, far).is_ok()));
}

/// Asking for them again and again took ten times as long as reading them.
#[test]
#[cfg_attr(miri, ignore = "it has no page cache")]
fn resident_page_is_not_probed_twice() {
    let known = |bytes: &[u8]| {
        let page = map::pages(bytes).next().unwrap();
        PAGES.with_borrow(|pages| pages.knows(page))
    };
    let (_dir, map) = cold_map();
    let (far, warm) = (map.bytes(LEN - 1..LEN).unwrap(), vec![1; 100]);
    assert!(loading(|| probe(&map, &warm)).is_ok() && known(&warm));
    assert!(loading(|| probe(&map, far)).is_ok() && !known(far), "it was on its way");
    assert_eq!(far, [7], "which waits for it");
    assert!(loading(|| probe(&map, far)).is_ok() && known(far));
}

/// Makes this thread act as if memory were short.
fn make_memory_short() {
    PAGES.with_borrow_mut(|pages| pages.lose(&[0]));
    assert!(memory_is_short());
}

#[test]
#[cfg_attr(miri, ignore = "it has no page cache")]
fn only_a_loading_thread_touches_pages_while_memory_is_short() {
    let (_dir, map) = cold_map();
    let (far, cold) = (map.bytes(LEN - 9..LEN).unwrap(), map.bytes(0..9).unwrap());
    assert_eq!(loading(|| probe(&map, far)), Ok(()));
    assert_eq!(far, [7; 9], "which waits for it");
    let borrowed = |bytes| match if_resident(|| read(&map, bytes)) {
        Ok(Cow::Borrowed(_)) => Some(true),
        Ok(Cow::Owned(bytes)) => (bytes == [7; 9]).then_some(false),
        Err(Cold) => None,
    };
    assert_eq!(borrowed(far), Some(true));
    make_memory_short();
    assert_eq!(borrowed(far), Some(false));
    assert_eq!(if_resident(|| read_array::<9>(&map, far)), Ok([7; 9]));
    assert_eq!(if_resident(|| probe(&map, far)), Err(Cold));
    assert_eq!(if_sendable(|| probe(&map, far)), Err(Cold));
    assert_eq!(if_resident(|| probe_to_send(&map, far)), Err(Cold));
    assert_eq!(if_sendable(|| probe_to_send(&map, far)), Ok(()));
    assert_eq!(if_sendable(|| probe_to_send(&map, cold)), Err(Cold));
    assert_eq!(borrowed(cold), None);
    let borrowed = || Ok(matches!(read(&map, far)?, Cow::Borrowed(_)));
    assert_eq!(loading(borrowed), Ok(true));
}

/// Copies bytes that were in memory a moment ago without a probe: only the copy finds that they
/// are gone.
#[test]
#[cfg_attr(miri, ignore = "it has no page cache")]
fn page_that_went_after_its_probe_is_neither_copied_nor_waited_for() {
    let (_dir, map) = cold_map();
    let (far, near) = (map.bytes(LEN - 9..LEN).unwrap(), map.bytes(0..9).unwrap());
    let learn = |bytes| PAGES.with_borrow_mut(|pages| pages.believe(bytes));
    make_memory_short();
    learn(far);
    learn(near);
    assert_eq!(if_sendable(|| probe_to_send(&map, far)), Ok(()), "as far as is known");
    let copied = if_sendable(|| {
        assert_eq!(read_array::<9>(&map, far), Err(Cold));
        assert!(has_failed_probe(), "the work is over");
        read(&map, near)
    });
    assert!(copied.is_err());
}

/// Runs where files are of memory: there are no such copies, and no page leaves.
#[test]
#[cfg_attr(miri, ignore = "it has no files of memory")]
fn page_of_a_memory_file_is_touched_where_it_cannot_be_copied() {
    let file =
        File::from(rustix::fs::memfd_create("neve", rustix::fs::MemfdFlags::empty()).unwrap());
    io::Write::write_all(&mut &file, &vec![7; LEN as usize]).unwrap();
    let map = Map::new(&file, LEN, 0, 0).unwrap();
    map.publish(LEN, LEN);
    let bytes = map.bytes(0..9).unwrap();
    make_memory_short();
    assert_eq!(if_resident(|| read_array::<9>(&map, bytes)), Ok([7; 9]));
    let mut copied = [0; 9];
    assert_eq!(if_sendable(|| copy_to_send(&map, bytes, &mut copied)), Ok(()));
    assert_eq!(copied, [7; 9]);
}

#[test]
fn a_panic_does_not_leave_the_thread_watching() {
    let panicked = std::panic::catch_unwind(|| if_resident::<()>(|| panic!("on purpose")));
    assert!(panicked.is_err());
    assert_eq!(MODE.get(), Mode::Off);
}
