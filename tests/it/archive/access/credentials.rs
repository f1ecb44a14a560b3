//! Credentials that expire and change while a replica reads.

use std::fs;

use neve_devnet::Helicon;

use crate::archive::bucket::{Bucket, FIRST, LAST};
use crate::archive::object_server::ObjectServer;
use crate::support::neve::{LIMIT, Neve, fresh_dir};
use crate::support::node::wait::{Miss, wait_until};
use crate::support::served::serves;

fn status(neve: &Neve, height: u64) -> u16 {
    let params = format!("[\"{height:#x}\",true]");
    neve.client().call("eth_getBlockByNumber", &params).status
}

#[test]
fn expired_credentials_cost_misses_until_the_container_gives_new_ones() {
    let bucket = Bucket::new(Helicon::Never);
    let server = ObjectServer::start(bucket.dir.path());
    server.set_keys("first", "first");
    let dir = fresh_dir();
    let token = dir.path().join("token");
    fs::write(&token, "token").expect("it can be written");
    let token = format!("AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE={}", token.display());
    let (endpoint, trust) = (server.endpoint(), bucket.trust());
    let uri = format!("AWS_CONTAINER_CREDENTIALS_FULL_URI={endpoint}/credentials");
    let none = ["env", "-u", "AWS_ACCESS_KEY_ID", "-u", "AWS_SECRET_ACCESS_KEY"];
    let starter = [&none[..], &["AWS_REGION=c", &uri, &token]].concat();
    let place = ["--archive", "s3://bucket", "--archive-endpoint", &endpoint];
    let words = [&place[..], &["--archive-trust", &trust]].concat();
    let replica = bucket.replica_by(&starter, dir.path(), &words);
    assert_eq!(status(&replica, 3), 200);
    // Another key in the middle of it is taken at once.
    server.set_keys("second", "second");
    // From above: a reader in order would get the next segment too.
    serves(&replica, &bucket.node, [20, 9, 5].into_iter());
    // The container still gives the key that has expired.
    server.set_keys("second", "third");
    for _ in 0..6 {
        assert_eq!(status(&replica, 40), 421);
    }
    assert!(replica.count("neve_archive_read_errors_total{reason=\"failed\"}") >= 3);
    // A probe may be under way.
    assert_ne!(replica.health()["archive"]["breaker"], "closed", "{}", replica.log());
    serves(&replica, &bucket.node, [20, 9, 5].into_iter().chain(FIRST..=LAST));
    server.set_keys("third", "third");
    let again = wait_until("an answer", LIMIT, || match status(&replica, 40) {
        200 => Ok(()),
        status => Err(Miss::NotYet(status.to_string())),
    });
    again.expect("it comes back");
    serves(&replica, &bucket.node, 0..64);
    replica.stop_in_time();
}

/// Credentials of a pod of Kubernetes with a role.
#[test]
fn web_identity_gives_credentials_that_are_replaced_when_they_end() {
    let bucket = Bucket::new(Helicon::Never);
    let (server, dir) = (ObjectServer::start(bucket.dir.path()), fresh_dir());
    server.set_keys("first", "first");
    let token = dir.path().join("token");
    fs::write(&token, "web-token").expect("it can be written");
    let token = format!("AWS_WEB_IDENTITY_TOKEN_FILE={}", token.display());
    let (endpoint, trust) = (server.endpoint(), bucket.trust());
    // Without TLS only on loopback.
    let sts = format!("AWS_ENDPOINT_URL_STS={endpoint}");
    let none = ["env", "-u", "AWS_ACCESS_KEY_ID", "-u", "AWS_SECRET_ACCESS_KEY", "AWS_REGION=c"];
    let role = ["AWS_ROLE_ARN=arn:aws:iam::1:role/reader", "AWS_ROLE_SESSION_NAME=replica"];
    let starter = [&none[..], &role, &[&token, &sts]].concat();
    let place = ["--archive", "s3://bucket", "--archive-endpoint", &endpoint];
    let words = [&place[..], &["--archive-trust", &trust]].concat();
    let replica = bucket.replica_by(&starter, dir.path(), &words);
    assert_eq!(status(&replica, 3), 200);
    server.set_keys("second", "second");
    let again = wait_until("an answer", LIMIT, || match status(&replica, 20) {
        200 => Ok(()),
        status => Err(Miss::NotYet(status.to_string())),
    });
    again.expect("the role has the new key");
    // The role is given the key that has expired.
    server.set_keys("second", "third");
    assert_eq!(status(&replica, 40), 421);
    replica.stop_in_time();
}

/// A CDN signs what it asks of the bucket, and takes requests without a signature.
#[test]
fn archive_is_read_without_credentials_and_signatures() {
    let bucket = Bucket::new(Helicon::Never);
    let (server, dir) = (ObjectServer::start(bucket.dir.path()), fresh_dir());
    let (endpoint, trust) = (server.endpoint(), bucket.trust());
    let none = ["env", "-u", "AWS_ACCESS_KEY_ID", "-u", "AWS_SECRET_ACCESS_KEY"];
    let starter = [&none[..], &["AWS_REGION=c", "AWS_SKIP_SIGNATURE=true"]].concat();
    let place = ["--archive", "s3://bucket", "--archive-endpoint", &endpoint];
    let words = [&place[..], &["--archive-trust", &trust]].concat();
    let replica = bucket.replica_by(&starter, dir.path(), &words);
    serves(&replica, &bucket.node, 0..64);
    replica.stop_in_time();
}
