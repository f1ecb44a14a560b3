//! A store that takes another secret than it did, and the key of an instance.

use neve_devnet::Helicon;

use super::field::Field;
use super::network::{block, comes_back, errors};
use super::programs::{Metadata, SECRET};
use crate::archive::bucket::{Bucket, FIRST, LAST};
use crate::archive::object_server::ObjectServer;
use crate::support::neve::fresh_dir;
use crate::support::served::serves;

#[test]
#[ignore = "needs go: ./check archive"]
fn changed_secret_of_versitygw_costs_misses_until_it_is_right_again() {
    let mut field = Field::new(Bucket::large());
    let dir = fresh_dir();
    let replica = field.replica(dir.path(), &[]);
    assert_eq!(block(&replica, 3).status, 200);
    field.gateway.restart("another secret", &[]);
    for height in 40..50 {
        let answer = block(&replica, height);
        assert_eq!((answer.status, answer.header("retry-after")), (421, Some("1")));
    }
    let denied = "neve_archive_read_errors_total{reason=\"denied\"}";
    assert!(replica.count(denied) >= 3, "{}", errors(&replica));
    assert_eq!(block(&replica, 3).status, 200, "it is here");
    serves(&replica, &field.bucket.node, FIRST..=LAST);
    let store = field.bucket.source_dir.path().join("store").display().to_string();
    let (code, _, said) = field.gateway.run(SECRET, &["push", "--data-dir", &store]);
    assert_eq!(code, 2, "{said}");
    println!("{}", errors(&replica));
    field.gateway.restart(SECRET, &[]);
    comes_back(&field, &replica, 40);
    replica.stop_in_time();
}

/// The store takes the key of the metadata service alone.
#[test]
#[ignore = "needs go: ./check archive"]
fn key_of_an_instance_comes_from_its_metadata_service() {
    let (bucket, metadata) = (Bucket::new(Helicon::Never), Metadata::start());
    let server = ObjectServer::start(bucket.dir.path());
    server.set_keys("none", Metadata::KEY);
    let service = format!("AWS_METADATA_ENDPOINT={}", metadata.endpoint());
    let none = ["env", "-u", "AWS_ACCESS_KEY_ID", "-u", "AWS_SECRET_ACCESS_KEY"];
    let starter = [&none[..], &["AWS_REGION=c", &service]].concat();
    let (endpoint, trust, dir) = (server.endpoint(), bucket.trust(), fresh_dir());
    let place = ["--archive", "s3://bucket", "--archive-endpoint", &endpoint];
    let words = [&place[..], &["--archive-trust", &trust]].concat();
    let replica = bucket.replica_by(&starter, dir.path(), &words);
    serves(&replica, &bucket.node, 0..=LAST);
    replica.stop_in_time();
}
