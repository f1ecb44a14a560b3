//! Copies of a neve: they serve at once, become complete, and are the same to the byte, whichever process is
//! killed.

use std::net::TcpListener;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use neve_devnet::{Config, DevnetThread, Helicon};
use serde_json::Value;

use super::between::Between;
use super::sources::{
    HEAD, SMALL, devnet, digest, large_devnet, mirror, mirror_in, source, taken, wait_for_accepted,
    wait_for_first, wait_for_stream,
};
use crate::support::neve::{LIMIT, Neve, fresh_dir};
use crate::support::node::wait::{Miss, pause, wait_until};
use crate::support::served::serves;

#[test]
fn a_mirror_becomes_complete_and_follows() {
    for helicon in [Helicon::Never, Helicon::FromGenesis, Helicon::At(150)] {
        let devnet = devnet(helicon);
        let (source_dir, source) = source(&devnet, &[]);
        let (dir, mirror) = mirror(&source);
        mirror.wait_for_head(HEAD);
        wait_for_stream(&mirror);
        devnet.advance(20); // which prove what is served
        wait_for_first(&mirror, 0);
        mirror.wait_for_head(HEAD + 20);
        serves(&mirror, &devnet, 0..=HEAD + 20);
        wait_for_accepted(&mirror, 6);
        assert!(mirror.count("neve_mirror_received_records_total") >= 20, "{helicon:?}");
        assert_eq!(mirror.count("neve_settlements_unproven_total"), 0, "{helicon:?}");
        source.stop();
        mirror.stop();
        assert_eq!(digest(dir.path()), digest(source_dir.path()), "{helicon:?}");
    }
}

/// The newest segment is there long before the oldest.
#[test]
fn a_mirror_serves_while_it_fills() {
    let devnet = large_devnet(HEAD);
    let (_source_dir, source) = source(&devnet, &[]);
    let slow = Between::slow(source.address, Duration::from_millis(150));
    let dir = fresh_dir();
    let mirror = mirror_in(dir.path(), slow.address, &[]);
    mirror.wait("a block", |health| health["blocks"]["head"].as_u64());
    let first = mirror.health()["blocks"]["min_height"].as_u64().unwrap();
    assert!(first > 300, "it serves from {first} on");
    serves(&mirror, &devnet, first..=first);
    slow.hurry();
    wait_for_first(&mirror, 0);
    mirror.wait_for_head(HEAD);
    serves(&mirror, &devnet, (0..=HEAD).step_by(37));
}

/// Ends the making of blocks, and waits until the last one is executed. Gives its height.
fn stand_still(devnet: &DevnetThread) -> u64 {
    devnet.set_rate(0.0);
    let last = devnet.accepted();
    let executed = || {
        let latest = devnet.latest();
        if latest == last { Ok(()) } else { Err(Miss::NotYet(latest.to_string())) }
    };
    wait_until("the last block's execution", LIMIT, executed).unwrap_or_else(|why| panic!("{why}"));
    last
}

/// Reads, all over what is served, until all is over, and compares with the chain. Gives how many
/// heights that were.
fn read_on(neve: &Neve, devnet: &DevnetThread, over: &AtomicBool) -> usize {
    let end = Instant::now() + Duration::from_mins(2);
    let mut read = 0;
    while !over.load(Ordering::Relaxed) && Instant::now() < end {
        let blocks = &neve.health()["blocks"];
        let (Some(first), Some(head)) = (blocks["min_height"].as_u64(), blocks["head"].as_u64())
        else {
            continue;
        };
        let heights = [first, head, fastrand::u64(first..=head)];
        serves(neve, devnet, heights.into_iter());
        read += heights.len();
        pause(); // the four neves take the same processors
    }
    read
}

/// The first is killed twice, while blocks come, all three still fill, and clients read.
#[test]
#[ignore = "takes many seconds of a processor: ./check"]
fn mirrors_of_mirrors_survive_the_death_of_the_first() {
    let config = Config::test().with_head(HEAD).with_helicon(Helicon::FromGenesis);
    let devnet = DevnetThread::start(Config { rate: 40.0, ..config }).expect("free ports");
    let (source_dir, source) = source(&devnet, &[]);
    let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let first_dir = fresh_dir();
    let start_first = || {
        let (url, listen) = (format!("http://{}", source.address), port.to_string());
        let store = first_dir.path().join("store").display().to_string();
        let arguments = ["serve", "--listen", &listen, "--data-dir", &store];
        // The default admin address may be another program's: then /health has no head.
        let more = ["--admin-listen", "127.0.0.1:0", "--disk-reserve-bytes", "1MiB"];
        let more = [&more[..], &["--mirror-from", &url]].concat();
        Neve::spawn(first_dir.path(), &[&arguments[..], &more, &SMALL].concat())
    };
    let first = start_first();
    let (second_dir, second) = mirror(&first);
    let (third_dir, third) = mirror(&second);
    let begun = third.wait("a block", |health| health["blocks"]["head"].as_u64());
    let over = AtomicBool::new(false);
    let first = std::thread::scope(|scope| {
        let readers = [&second, &third].map(|neve| scope.spawn(|| read_on(neve, &devnet, &over)));
        first.kill();
        let first = start_first();
        third.wait_for_head(devnet.latest() + 80);
        first.kill();
        let first = start_first();
        third.wait_for_head(devnet.latest() + 80);
        wait_for_first(&third, 0);
        over.store(true, Ordering::Relaxed);
        let read = readers.map(|reader| reader.join().unwrap());
        assert!(read.iter().all(|read| *read > 10), "{read:?} heights were read meanwhile");
        first
    });
    let head = stand_still(&devnet);
    for neve in [&source, &first, &second, &third] {
        neve.wait_for_head(head);
        wait_for_first(neve, 0);
    }
    // Not over JSON-RPC: but for the moments after a death the stream brings what is new.
    let (streamed, new) = (third.count("neve_mirror_received_records_total"), head - begun);
    assert!(taken(&third, "accepted") > 0 && 2 * streamed > new, "{streamed} of {new}");
    for neve in [source, first, second, third] {
        neve.stop();
    }
    let expected = digest(source_dir.path());
    assert_eq!((&expected.1, &expected.2), (&Value::from(0), &Value::from(head)));
    for dir in [&first_dir, &second_dir, &third_dir] {
        assert_eq!(digest(dir.path()), expected);
    }
}

/// Bytes from before a cut, or from before the mirror was killed, are not requested again.
#[test]
fn a_download_goes_on_where_it_was() {
    let devnet = large_devnet(3 * 64 + 5);
    let (source_dir, source) = source(&devnet, &[]);
    let cutting = Between::cutting(source.address, 3 << 20);
    let dir = fresh_dir();
    let mirror = mirror_in(dir.path(), cutting.address, &[]);
    wait_for_first(&mirror, 0);
    let bytes = mirror.count("neve_mirror_received_segment_bytes_total");
    mirror.stop();
    source.stop();
    assert_eq!(digest(dir.path()), digest(source_dir.path()));
    let sizes = 3 * 64 * 110_000; // at most; from the start each time it would be more
    assert!(bytes < sizes * 2, "{bytes} bytes came");
    assert!(cutting.cuts() >= 3, "{} cuts", cutting.cuts());
}

/// Nothing goes on with them: their heights came otherwise, or the source has other files by now.
#[test]
fn leftovers_of_other_downloads_are_removed() {
    let devnet = devnet(Helicon::Never);
    let (_source_dir, source) = source(&devnet, &[]);
    let dir = fresh_dir();
    let names = [(70, "seg"), (130, "pack"), (390, "seg")];
    let left = names.map(|(base, form)| dir.path().join(format!("store/{base:020}.{form}.part")));
    std::fs::create_dir_all(dir.path().join("store")).unwrap();
    left.iter().for_each(|path| std::fs::write(path, "begun").unwrap());
    let mirror = mirror_in(dir.path(), source.address, &[]);
    wait_for_first(&mirror, 0);
    let are_gone = || left.iter().all(|path| !path.exists()).then_some(());
    mirror.wait("the end of all leftovers", |_| are_gone());
    serves(&mirror, &devnet, (0..=HEAD).step_by(37));
}

#[test]
fn a_download_goes_on_after_the_mirror_was_killed() {
    let devnet = large_devnet(64 + 5);
    let (_source_dir, source) = source(&devnet, &[]);
    let stuck = Between::stuck(source.address, 3 << 20);
    let dir = fresh_dir();
    let mirror = mirror_in(dir.path(), stuck.address, &[]);
    let part = dir.path().join("store/00000000000000000000.seg.part");
    mirror.wait("half a file", |_| part.exists().then_some(()));
    mirror.wait("its bytes", |_| {
        (mirror.count("neve_mirror_received_segment_bytes_total") >= 2 << 20).then_some(())
    });
    mirror.kill();
    let mirror = mirror_in(dir.path(), source.address, &[]);
    wait_for_first(&mirror, 0);
    assert!(!part.exists());
    let rest = mirror.count("neve_mirror_received_segment_bytes_total");
    let whole = dir.path().join("store/00000000000000000000.seg");
    let whole = neve_store::SealedFile::open(whole.parent().unwrap(), 0).unwrap().unwrap();
    assert!(rest > 0 && rest + (1 << 20) < whole.page.bytes, "{rest} of {}", whole.page.bytes);
    serves(&mirror, &devnet, 0..64);
}
