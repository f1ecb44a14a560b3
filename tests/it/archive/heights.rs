//! Answers about archived heights: to the byte, and with as few reads as there must be.

use neve_devnet::Helicon;

use super::bucket::{Bucket, FIRST, reads};
use crate::support::neve::fresh_dir;
use crate::support::served::serves;

#[test]
fn replica_without_a_node_answers_archived_heights_to_the_byte() {
    for helicon in [Helicon::Never, Helicon::At(20)] {
        let bucket = Bucket::new(helicon);
        let dir = fresh_dir();
        let replica = bucket.replica(dir.path(), &[]);
        let (mut ours, mut theirs) = (replica.client(), bucket.source.client());
        for height in 0..FIRST {
            let block = bucket.node.block(height).expect("the chain has it");
            let number = format!("\"{height:#x}\"");
            for (method, params) in [
                ("eth_getBlockByNumber", format!("[{number},true]")),
                ("eth_getBlockByNumber", format!("[{number},false]")),
                ("eth_getHeaderByNumber", format!("[{number}]")),
                ("eth_getBlockReceipts", format!("[{number}]")),
                ("eth_getBlockTransactionCountByNumber", format!("[{number}]")),
                ("eth_getTransactionByBlockNumberAndIndex", format!("[{number},\"0x0\"]")),
                ("eth_getUncleCountByBlockNumber", format!("[{number}]")),
                ("eth_getBlockByHash", format!("[\"{:#x}\",true]", block.hash())),
            ] {
                let ours = ours.call(method, &params);
                assert_eq!(ours.status, 200, "{method} {params}: {}", ours.text());
                assert_eq!(ours.header("x-neve"), Some("hit"), "{method} {params}");
                assert_eq!(ours.text(), theirs.call(method, &params).text(), "{method} {params}");
            }
        }
        let head = replica.health()["blocks"]["head"].as_u64().expect("a number");
        serves(&replica, &bucket.node, 0..=head);
        replica.stop_in_time();
    }
}

#[test]
fn height_takes_one_read_once_the_segment_is_known_and_a_hash_one_more() {
    let bucket = Bucket::new(Helicon::Never);
    let dir = fresh_dir();
    let replica = bucket.replica(dir.path(), &[]);
    let mut client = replica.client();
    let mut get = |method: &str, params: &str| {
        assert_eq!(client.call(method, params).status, 200, "{method} {params}");
        ["segment", "span", "pages"].map(|kind| reads(&replica, kind))
    };
    // A segment of the test has fewer pages than one of mainnet: the front and the first frames share some.
    assert_eq!(get("eth_getBlockByNumber", "[\"0x3\",true]"), [1, 0, 1]);
    assert_eq!(get("eth_getBlockByNumber", "[\"0x3\",true]"), [1, 0, 1]);
    let hash = bucket.node.block(3).expect("it is there").hash();
    assert_eq!(get("eth_getBlockByHash", &format!("[\"{hash:#x}\",false]")), [1, 1, 1]);
    let hash = bucket.node.block(40).expect("it is there").transactions()[0];
    assert_eq!(get("eth_getTransactionReceipt", &format!("[\"{hash:#x}\"]")), [2, 1, 1]);
    replica.stop_in_time();
}
