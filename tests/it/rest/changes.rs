//! Tag and time of a document when something changes: a header settles it, the node goes over to Helicon,
//! its receipts turn out to be wrong.

use neve_devnet::{Config, DevnetThread, Fault, Helicon, Profile};

use super::documents::{A_SECOND, FOR_GOOD, tag};
use crate::support::client::Response;
use crate::support::corpus::HELICON;
use crate::support::neve::{Neve, fresh_dir};
use crate::support::recorded::Recorded;

/// The last synchronous block settles itself, though the header after it settles less.
#[test]
fn a_synchronous_block_is_settled_at_once() {
    let node = Recorded::start_at(HELICON, 202, true);
    let dir = fresh_dir();
    let neve = Neve::start(dir.path(), &["--upstream", &node.url(), "--start", "195"]);
    neve.wait_for_head(202);
    let mut client = neve.client();
    for (height, keep) in [(200, FOR_GOOD), (201, FOR_GOOD), (202, A_SECOND)] {
        for what in ["block", "header", "receipts"] {
            let answer = client.get(&format!("/v1/{what}/{height}"));
            assert_eq!(answer.header("cache-control"), Some(keep), "{what} {height}");
        }
    }
    node.grow(210);
    neve.wait_for_head(210);
    let answer = client.get("/v1/receipts/202");
    assert_eq!(answer.header("cache-control"), Some(FOR_GOOD));
}

/// The node goes over to Helicon: blocks are shown otherwise, receipts are not.
#[test]
fn the_tag_follows_what_is_shown() {
    let node = Recorded::start_at(HELICON, 195, false);
    let dir = fresh_dir();
    let neve = Neve::start(dir.path(), &["--upstream", &node.url(), "--start", "0"]);
    neve.wait_for_head(195);
    let mut client = neve.client();
    let paths = ["/v1/block/57", "/v1/block/57?transactions=hashes", "/v1/header/57"];
    let before = paths.map(|path| client.get(path));
    let receipts = client.get("/v1/receipts/57");
    node.change(|state| state.helicon = true);
    node.cut();
    neve.wait("the new rules", |health| (health["upstream"]["rules"] == "helicon").then_some(()));
    for (path, before) in paths.iter().zip(before) {
        let answer = client.request("GET", path, &[("If-None-Match", &tag(&before))], b"");
        assert_eq!(answer.status, 200, "{path}");
        assert_ne!((tag(&answer), &answer.body), (tag(&before), &before.body), "{path}");
        assert_eq!(answer.json()["totalDifficulty"], "0x0");
    }
    let after = client.get("/v1/receipts/57");
    assert_eq!((tag(&after), after.body), (tag(&receipts), receipts.body));
}

/// Receipts are withdrawn and replaced: who kept the wrong ones is given the true ones.
#[test]
fn a_withdrawal_changes_the_tag() {
    const WRONG: u64 = 21;
    let mut config = Config::test().with_head(WRONG - 1).with_helicon(Helicon::FromGenesis);
    config.chain.profile = Profile::c_chain();
    let devnet = DevnetThread::start(config).expect("loopback has free ports");
    let (dir, url) = (fresh_dir(), devnet.base_url());
    let neve = Neve::start(dir.path(), &["--upstream", &url, "--start", "0"]);
    neve.wait_for_head(WRONG - 1);
    let fault = devnet.faults().inject(Fault::LyingReceipts.at(WRONG));
    devnet.advance(1);
    neve.wait_for_head(WRONG); // neve cannot know yet
    let path = format!("/v1/receipts/{WRONG}");
    let wrong = neve.client().get(&path);
    assert_eq!(wrong.header("cache-control"), Some(A_SECOND));
    while devnet.settled() < WRONG {
        devnet.advance(1);
    }
    neve.wait("the withdrawal", |health| {
        (health["blocks"]["head"].as_u64()? < WRONG).then_some(())
    });
    let missed = neve.client().request("GET", &path, &[("If-None-Match", &tag(&wrong))], b"");
    assert_eq!(missed.status, 421, "nothing is confirmed that is not held");
    fault.clear();
    let disproving = devnet.latest();
    while devnet.settled() < disproving {
        devnet.advance(1);
    }
    neve.wait_for_head(devnet.latest());
    let truth = neve.client().request("GET", &path, &[("If-None-Match", &tag(&wrong))], b"");
    assert_eq!((truth.status, truth.header("cache-control")), (200, Some(FOR_GOOD)));
    assert_ne!(truth.body, wrong.body);
    // Both by the record and by what is known of it.
    let checksum = |answer: &Response| tag(answer).rsplit('-').next().unwrap().to_owned();
    assert_ne!(checksum(&truth), checksum(&wrong));
    assert!(tag(&wrong).contains("-unsettled-") && !tag(&truth).contains("unsettled"));
    neve.stop();
    let neve = Neve::start(dir.path(), &["--upstream", &url]);
    assert_eq!(tag(&neve.client().get(&path)), tag(&truth), "a restart changes no tag");
}
