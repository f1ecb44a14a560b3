//! A store behind TLS, with an authority of our own.

use std::fs;
use std::path::Path;

use rcgen::{BasicConstraints, CertificateParams, IsCa, Issuer, KeyPair};
use tempfile::TempDir;

use super::programs::{Gateway, SECRET};
use crate::archive::bucket::Bucket;
use crate::support::neve::{Neve, fresh_dir};
use crate::support::served::serves;

fn write(dir: &Path, name: &str, text: String) {
    fs::write(dir.join(name), text).expect("it can be written");
}

/// An authority, and a key and a certificate of 127.0.0.1 from it.
fn certificates() -> TempDir {
    let dir = fresh_dir();
    let key = || KeyPair::generate().expect("a key can be made");
    let mut authority = CertificateParams::new(Vec::new()).expect("no names are fine");
    authority.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let (own, issuing) = (key(), key());
    let root = authority.self_signed(&issuing).expect("it can be signed");
    let issuer = Issuer::new(authority, issuing);
    let server = CertificateParams::new(vec!["127.0.0.1".to_owned()]).expect("an address");
    let server = server.signed_by(&own, &issuer).expect("it can be signed");
    write(dir.path(), "authority.pem", root.pem());
    write(dir.path(), "cert.pem", server.pem());
    write(dir.path(), "key.pem", own.serialize_pem());
    dir
}

#[test]
#[ignore = "needs go: ./check archive"]
fn versitygw_behind_tls_is_used_with_an_authority_of_our_own_and_not_without() {
    let (bucket, gateway) = (Bucket::of_ranges(3), Gateway::with_tls(certificates()));
    let authority = gateway.dir.path().join("authority.pem").display().to_string();
    let store = bucket.source_dir.path().join("store").display().to_string();
    let push = ["push", "--data-dir", &store];
    let secret = ("AWS_SECRET_ACCESS_KEY", SECRET);
    let trusting = [secret, ("AWS_CA_BUNDLE", &authority)];
    let (code, lines, errors) = gateway.run_with(&trusting, &push);
    assert_eq!(code, 0, "{lines:?} {errors}");
    assert_eq!(lines.last().expect("a line")["last"], 95);
    let absent = gateway.dir.path().join("absent.pem").display().to_string();
    let (code, _, errors) = gateway.run_with(&[secret, ("AWS_CA_BUNDLE", &absent)], &["ls"]);
    assert_eq!(code, 2, "{errors}");
    assert!(errors.contains("AWS_CA_BUNDLE") && errors.contains("absent.pem"), "{errors}");

    let (endpoint, trust) = (gateway.endpoint(), gateway.trust());
    let place = ["--archive", "s3://bucket/a/b", "--archive-endpoint", &endpoint];
    let words = [&place[..], &["--archive-trust", &trust]].concat();
    let key =
        ["AWS_ACCESS_KEY_ID=test", "AWS_SECRET_ACCESS_KEY=testsecret", "AWS_REGION=us-east-1"];
    let bundle = format!("AWS_CA_BUNDLE={authority}");
    let starter = [&["env"][..], &key, &[&bundle]].concat();
    let dir = fresh_dir();
    let replica = bucket.replica_by(&starter, dir.path(), &words);
    serves(&replica, &bucket.node, 0..bucket.first() + 28);
    replica.stop_in_time();

    let dir = fresh_dir();
    let url = bucket.node.base_url();
    let without = [&["env"][..], &key].concat();
    let follow = ["--upstream", &url, "--segment-blocks", "32", "--start", "90"];
    let stranger = Neve::start_by(&without, dir.path(), &[&follow[..], &words].concat());
    stranger.wait("the error", |health| {
        let error = health["archive"]["segments"]["error"].as_str()?;
        error.contains("UnknownIssuer").then_some(())
    });
    stranger.wait_for_head(bucket.node.latest());
    assert!(stranger.health()["archive"]["answers"].is_null());
    stranger.stop_in_time();
}
