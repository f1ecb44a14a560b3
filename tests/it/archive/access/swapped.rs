//! Objects that stand in the place of others.

use std::fs;

use neve_devnet::Helicon;

use crate::archive::bucket::{Bucket, FIRST, LAST};
use crate::store::archive::verified;
use crate::support::neve::fresh_dir;
use crate::support::served::serves;

#[test]
fn swapped_objects_give_no_false_answer_and_are_found() {
    let bucket = Bucket::new(Helicon::Never);
    let segments = bucket.objects("segment");
    let of = |kind| bucket.objects(kind).remove(0);
    let pairs = [
        [segments[0].clone(), segments[1].clone()],
        [of("span"), of("terms")],
        [of("pages"), of("filter")],
        [segments[1].clone(), of("pages")],
    ];
    for [one, other] in pairs {
        let swap = || {
            let kept = fs::read(&one).expect("it can be read");
            fs::copy(&other, &one).expect("it is ours");
            fs::write(&other, kept).expect("it is ours");
        };
        swap();
        let dir = fresh_dir();
        let replica = bucket.replica_without_filters(dir.path());
        let (mut ours, mut theirs) = (replica.client(), bucket.source.client());
        let mut misses = 0;
        for height in 0..64 {
            let hash = bucket.node.block(height).expect("it is there").hash();
            for (method, params) in [
                ("eth_getBlockByNumber", format!("[\"{height:#x}\",true]")),
                ("eth_getBlockReceipts", format!("[\"{hash:#x}\"]")),
            ] {
                let answer = ours.call(method, &params);
                misses += u32::from(answer.status == 421);
                let is_right =
                    answer.status == 421 || answer.text() == theirs.call(method, &params).text();
                assert!(is_right, "{} {method} {params}: {}", one.display(), answer.text());
            }
        }
        assert!(misses > 0, "{}", one.display());
        serves(&replica, &bucket.node, FIRST..=LAST);
        replica.stop_in_time();
        let (code, summary) = verified(&[&bucket.place()]);
        assert_eq!((code, &summary["findings"]), (1, &2.into()), "{summary}");
        swap();
    }
    assert_eq!(verified(&[&bucket.place()]).0, 0);
}
