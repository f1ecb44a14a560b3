//! Heights that go while neve waits for a client in the middle of their notifications.

use neve_devnet::{Config, DevnetThread, Fault, Helicon, Profile};

use crate::support::neve::Neve;
use crate::support::served::{devnet_of, follow};
use crate::support::ws::{End, Notification, Ws};

/// A chain with blocks of many logs: a height's notifications are more than the sockets take.
fn chain() -> DevnetThread {
    let mut config = Config::test().with_head(100).with_helicon(Helicon::FromGenesis);
    config.chain.profile = Profile::many_logs();
    devnet_of(config)
}

/// Subscriptions of a client that does not read. Each gets all logs.
fn subscribe(neve: &Neve) -> (Ws, [String; 3]) {
    let mut slow = Ws::open_narrow(neve);
    let ids = [(); 3].map(|()| slow.subscribe("[\"logs\",{}]"));
    (slow, ids)
}

/// The logs of one height in the order of their coming: all of the first subscription, then all of the next.
fn logs_of(notifications: &[Notification], height: u64) -> Vec<&Notification> {
    notifications.iter().filter(|one| one.height("blockNumber") == height).collect()
}

fn assert_each_got_all(logs: &[&Notification], ids: &[String; 3]) {
    let of = |id: &String| -> Vec<_> {
        logs.iter().filter(|log| log.id == *id).map(|log| &log.result).collect()
    };
    let first = of(&ids[0]);
    assert!(!first.is_empty());
    ids.iter().for_each(|id| assert_eq!(of(id), first, "{id}"));
}

#[test]
fn evicted_height_is_told_to_all_subscriptions_or_none() {
    let devnet = chain();
    let bounds = ["--segment-blocks", "16", "--retain-blocks", "32", "--write-timeout", "1h"];
    let (_dir, neve) = follow(&devnet, &bounds);
    let (mut slow, ids) = subscribe(&neve);
    for height in 101..=171 {
        devnet.advance(1);
        neve.wait_for_head(height);
    }
    neve.wait("the eviction", |health| {
        (health["blocks"]["min_height"].as_u64()? > 110).then_some(())
    });
    let (texts, end) = slow.rest();
    let read = |text: &String| Notification::read(text).expect("a log");
    let notifications: Vec<_> = texts.iter().map(read).collect();
    let last = notifications.last().expect("a log").height("blockNumber");
    assert!(last < 110, "neve wrote up to {last} and waits for nobody");
    let reason = format!("block {:#x} is not served any more", last + 1);
    assert_eq!(end, End::Frame(Some((1008, reason))));
    assert_each_got_all(&logs_of(&notifications, last), &ids);
}

#[test]
fn withdrawn_height_is_told_to_all_subscriptions() {
    let devnet = chain();
    let (_dir, neve) = follow(&devnet, &["--write-timeout", "1h"]);
    let (mut slow, ids) = subscribe(&neve);
    devnet.faults().inject(Fault::LyingReceipts.at(101));
    devnet.advance(1);
    neve.wait_for_head(101);
    while devnet.settled() < 101 {
        devnet.advance(1);
    }
    neve.wait("the withdrawal", |_| (neve.count("neve_blocks_withdrawn_total") >= 1).then_some(()));
    devnet.faults().clear();
    while devnet.latest() < 120 {
        devnet.advance(1); // a later header disproves what neve took again meanwhile
    }
    neve.wait_for_head(120);
    let mut notifications = vec![slow.notification()];
    while notifications.last().is_some_and(|last| last.height("blockNumber") == 101) {
        notifications.push(slow.notification());
    }
    assert_each_got_all(&logs_of(&notifications, 101), &ids);
}
