//! Faults of the network between a replica and a real store.

use std::time::{Duration, Instant};

use super::field::Field;
use crate::archive::bucket::{Bucket, FIRST, LAST, reads};
use crate::support::client::Response;
use crate::support::neve::{LIMIT, Neve, fresh_dir};
use crate::support::node::wait::{Miss, wait_until};
use crate::support::served::serves;

pub(super) fn block(neve: &Neve, height: u64) -> Response {
    neve.client().call("eth_getBlockByNumber", &format!("[\"{height:#x}\",true]"))
}

/// Median and longest of some times.
pub(super) fn shown(mut times: Vec<Duration>) -> (Duration, Duration) {
    times.sort_unstable();
    (times[times.len() / 2], *times.last().expect("there are some"))
}

/// Toxics of a network through which no page comes in time.
const BAD: [(&str, &[(&str, &str)]); 4] = [
    ("1 KB/s", &[("bandwidth", r#"{"rate":1}"#)]),
    ("silence", &[("timeout", r#"{"timeout":0}"#)]),
    (
        "reset amid the answer",
        &[("bandwidth", r#"{"rate":16}"#), ("reset_peer", r#"{"timeout":200}"#)],
    ),
    ("cut amid the answer", &[("limit_data", r#"{"bytes":2000}"#)]),
];

/// Time within which a height is refused while the breaker is open.
const REFUSED_WITHIN: Duration = Duration::from_millis(300);

#[test]
#[ignore = "needs go: ./check archive"]
fn bad_network_before_versitygw_costs_misses_and_nothing_of_the_tail() {
    let field = Field::new(Bucket::large());
    for (name, toxics) in BAD {
        let dir = fresh_dir();
        let replica = field.replica(dir.path(), &[]);
        assert_eq!(block(&replica, 3).status, 200, "{name}");
        toxics.iter().for_each(|toxic| field.network.add(*toxic));
        let refused = |height| {
            let begun = Instant::now();
            let answer = block(&replica, height);
            let again = (answer.status, answer.header("retry-after"));
            assert_eq!(again, (421, Some("1")), "{name}: {}", answer.text());
            begun.elapsed()
        };
        let first: Vec<_> = (40..46).map(refused).collect();
        assert!(first.iter().all(|took| *took < Duration::from_secs(30)), "{name}: {first:?}");
        serves(&replica, &field.bucket.node, FIRST..=LAST);
        let begun = reads(&replica, "segment");
        let later: Vec<_> = (0..100).map(|number| refused(40 + number % 20)).collect();
        let begun = reads(&replica, "segment") - begun;
        serves(&replica, &field.bucket.node, FIRST..=LAST);
        // Each probe that is answered, as one of a byte may be, lets some reads begin.
        assert!(begun <= 12, "{name}: {begun} reads for 100 requests");
        let (median, longest) = shown(later);
        assert!(median < REFUSED_WITHIN, "{name}: {median:?}");
        assert_eq!(block(&replica, 3).status, 200, "{name}: it is here");
        let openings = replica.count("neve_archive_breaker_openings_total");
        assert!(openings > 0, "{name}");
        println!(
            "{name}: first {:?}; then 421 after {median:?}, at most {longest:?}; {begun} reads, {openings} openings; {}",
            shown(first),
            errors(&replica)
        );
        field.network.mend();
        comes_back(&field, &replica, 40);
        replica.stop_in_time();
    }
}

/// Reads that failed, by reason.
pub(super) fn errors(replica: &Neve) -> String {
    let page = replica.admin().get("/metrics").text();
    let lines = page.lines().filter_map(|line| line.strip_prefix("neve_archive_read_errors_total"));
    lines.collect::<Vec<_>>().join(" ")
}

/// Waits for a height, which has the right bytes then.
pub(super) fn comes_back(field: &Field, replica: &Neve, height: u64) {
    let served = wait_until("an answer", LIMIT, || match block(replica, height) {
        answer if answer.status == 200 => Ok(answer.text()),
        answer => Err(Miss::NotYet(answer.text())),
    });
    assert_eq!(served.expect("it comes back"), block(&field.bucket.source, height).text());
    let closed =
        |health: &serde_json::Value| (health["archive"]["breaker"] == "closed").then_some(());
    replica.wait("the breaker", closed);
}

/// Times are shown only. A height of a known segment takes one read, and a hash one more.
#[test]
#[ignore = "needs go: ./check archive"]
fn distant_versitygw_is_read_once_for_a_height_and_twice_for_a_hash() {
    const DELAY: Duration = Duration::from_millis(30);
    const RANGES: u64 = 9;
    let field = Field::new(Bucket::large_of_ranges(RANGES));
    let dir = fresh_dir();
    let replica = field.replica(dir.path(), &[]);
    let all = || ["segment", "span", "pages"].map(|kind| reads(&replica, kind));
    let hedges = || replica.count("neve_archive_hedges_total");
    let mut times = [Vec::new(), Vec::new()];
    for segment in 0..RANGES - 1 {
        let height = segment * 32 + 28;
        let hash = field.bucket.node.block(height).expect("it is there").hash();
        assert_eq!(block(&replica, segment * 32 + 3).status, 200, "its front");
        field.network.add(("latency", r#"{"latency":30}"#));
        let (before, hedged, by_hash) = (all(), hedges(), segment % 2 == 1);
        let begun = Instant::now();
        let answer = if by_hash {
            replica.client().call("eth_getBlockByHash", &format!("[\"{hash:#x}\",true]"))
        } else {
            block(&replica, height)
        };
        times[usize::from(by_hash)].push(begun.elapsed());
        assert_eq!(answer.text(), block(&field.bucket.source, height).text());
        let (after, hedged) = (all(), hedges() - hedged);
        let taken: u64 = after.iter().zip(before).map(|(after, before)| after - before).sum();
        assert!(
            taken <= 1 + u64::from(by_hash) + hedged,
            "{height}: {taken} reads, {hedged} twice"
        );
        field.network.mend();
    }
    assert!(times[0].iter().all(|took| *took >= DELAY), "{times:?}");
    println!("heights {:?}, hashes {:?}", times[0], times[1]);
    let tail = field.bucket.first();
    serves(&replica, &field.bucket.node, tail..tail + 28);
    replica.stop_in_time();
}
