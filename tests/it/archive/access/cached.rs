//! nginx with the shipped cache of documents before a replica: an archived height is read from the bucket once.

use std::thread;

use neve_devnet::Helicon;

use crate::archive::bucket::Bucket;
use crate::support::client::{Client, Response};
use crate::support::neve::{Neve, fresh_dir};
use crate::support::nginx::Nginx;
use crate::support::served::{devnet, follow};

/// Clients that want a document at the same time.
const CLIENTS: usize = 8;

/// Requests that neve got. Those of the admin listener are not among them.
fn requests(neve: &Neve) -> u64 {
    neve.count("neve_http_requests_total")
}

fn get(nginx: &Nginx, path: &str, headers: &[(&str, &str)]) -> Response {
    Client::new(nginx.address).request("GET", path, headers, b"")
}

#[test]
#[ignore = "needs nginx: ./check"]
fn nginx_keeps_archived_documents_and_no_misses() {
    let (bucket, dir) = (Bucket::new(Helicon::Never), fresh_dir());
    let replica = bucket.replica(dir.path(), &["--trusted-proxies", "127.0.0.1"]);
    let nginx = Nginx::of_documents(replica.address);
    let transaction = bucket.node.block(7).expect("it is there").transactions()[0];
    let paths = [
        "/v1/block/5".to_owned(),
        "/v1/block/5?transactions=hashes".to_owned(),
        "/v1/receipts/40".to_owned(),
        format!("/v1/tx/{transaction:#x}"),
    ];
    let kept: Vec<_> = paths.iter().map(|path| (path, once(&nginx, &replica, path))).collect();
    for (path, text) in &kept {
        assert_eq!(bucket.source.client().get(path).text(), *text, "{path}");
    }
    nothing_else_is_kept(&nginx, &replica);
    replica.kill();
    for (path, text) in &kept {
        let answer = get(&nginx, path, &[]);
        assert_eq!((answer.status, answer.text()), (200, text.clone()), "{path} without neve");
    }
    assert_eq!(get(&nginx, "/v1/block/6", &[]).status, 502);
}

/// Two nginxes, each with a cache of its own, before two neves.
#[test]
#[ignore = "needs nginx: ./check"]
fn each_document_is_asked_of_one_of_several_neves() {
    let node = devnet(40);
    let neves = [follow(&node, &[]), follow(&node, &[])];
    let addresses = [&neves[0].1, &neves[1].1].map(|neve| neve.address);
    let fronts = [(); 2].map(|()| Nginx::of_documents_of(&addresses));
    let path = |height: u64| format!("/v1/block/{height}");
    let asked = |front: usize, height: u64| {
        let before = [0, 1].map(|at| requests(&neves[at].1));
        let found = get(&fronts[front], &path(height), &[]);
        assert_eq!((found.status, found.header("x-cache")), (200, Some("MISS")), "{height}");
        [0, 1].map(|at| requests(&neves[at].1) - before[at])
    };
    let first: Vec<_> = (0..20).map(|height| asked(0, height)).collect();
    assert!(first.contains(&[1, 0]) && first.contains(&[0, 1]), "{first:?}");
    // In another order: nginx would else take turns in the same way.
    let mut second: Vec<_> = (0..20).rev().map(|height| asked(1, height)).collect();
    second.reverse();
    assert_eq!(first, second);
    let [(_kept, _other), (_dir, gone)] = neves;
    gone.kill();
    for height in 20..40 {
        assert_eq!(get(&fronts[0], &path(height), &[]).status, 200, "{height}");
    }
}

/// Gets a document for clients at the same time and again later, for which neve is asked once.
fn once(nginx: &Nginx, neve: &Neve, path: &str) -> String {
    // A busy machine may take longer for the bucket than a request waits: then all would get a miss.
    neve.wait("the document", |_| (neve.client().get(path).status == 200).then_some(()));
    let before = requests(neve);
    let answers = thread::scope(|scope| {
        let clients = [(); CLIENTS].map(|()| scope.spawn(|| get(nginx, path, &[])));
        clients.map(|client| client.join().expect("nginx answers"))
    });
    let first = &answers[0];
    assert!(answers.iter().all(|answer| (answer.status, &answer.body) == (200, &first.body)));
    assert!(first.header("cache-control").is_some_and(|keep| keep.ends_with("immutable")));
    let page = [("Origin", "https://a.example"), ("Cookie", "a=b"), ("Accept-Encoding", "gzip")];
    let again = get(nginx, path, &page);
    assert_eq!((again.header("x-cache"), &again.body), (Some("HIT"), &first.body), "{path}");
    assert_eq!(again.header("access-control-allow-origin"), Some("*"));
    assert_eq!(first.header("access-control-allow-origin"), None);
    let tag = first.header("etag").expect("each document has one");
    let same = get(nginx, path, &[("If-None-Match", tag)]);
    assert_eq!((same.status, same.body.len()), (304, 0), "{path}");
    assert_eq!(requests(neve) - before, 1, "{path}");
    first.text()
}

fn nothing_else_is_kept(nginx: &Nginx, neve: &Neve) {
    for (path, status) in [
        ("/v1/block/99999", 421),
        ("/v1/block/latest", 421),
        ("/v1/block/x", 400),
        ("/v1/nothing", 404),
    ] {
        for _ in 0..2 {
            let before = requests(neve);
            assert_eq!(get(nginx, path, &[]).status, status, "{path}");
            assert_eq!(requests(neve) - before, 1, "{path} is kept");
        }
    }
    let before = requests(neve);
    for path in ["/", "/health", "/ready", "/v1/../health", "/v1/%2e%2e/health"] {
        assert_eq!(get(nginx, path, &[]).status, 404, "{path}");
    }
    assert_eq!(requests(neve), before, "a closed path reached neve");
}
