//! `neve archive` init, gc, retain and cost over a directory.

use serde_json::Value;

use crate::store::archive::{archive, devnet, objects, outcome, packed_store, pushed, verified};
use crate::store::packed::wait_for_packed;
use crate::support::neve::{fresh_dir, run, run_with};

/// The one line of a command that succeeds.
fn line(words: &[&str]) -> Value {
    let (code, mut lines, errors) = outcome(&run(&[&["archive"], words, &["--json"]].concat()));
    assert_eq!((code, lines.len()), (0, 1), "{words:?}: {lines:?} {errors}");
    lines.remove(0)
}

/// Standard error of a command that fails.
fn refused(words: &[&str], code: i32) -> String {
    let (found, lines, errors) = outcome(&run(&[&["archive"], words].concat()));
    assert_eq!(found, code, "{words:?}: {lines:?} {errors}");
    errors
}

#[test]
fn archive_is_made_grows_is_cut_and_tidied() {
    let (bucket, dir, node) = (fresh_dir(), fresh_dir(), devnet());
    let place = format!("file://{}", bucket.path().display());
    assert!(refused(&["init", &place], 2).contains("--chain-id and --genesis"));
    assert!(refused(&["gc", &place], 2).contains("no manifest"));
    let genesis = format!("{:#x}", node.block(0).expect("it is there").hash());
    let chain = ["--chain-id", "43112", "--genesis", &genesis];
    let made = line(&[&["init", "--range", "32", &place], &chain[..]].concat());
    assert_eq!(
        (&made["new"], &made["range"], &made["trial"]),
        (&true.into(), &32.into(), &Value::Null)
    );
    assert!(refused(&["init", "--range", "4", "--network", "fuji", &place], 2).contains("chain"));
    let other = refused(&["init", "--range", "64", &place], 2);
    assert!(other.contains("--range 64: the archive has ranges of 32"), "{other}");
    for more in [&["--range", "32"][..], &chain] {
        assert_eq!(line(&[&["init", &place], more].concat())["range"], 32, "{more:?}");
    }
    let neve = packed_store(dir.path(), &node, 110);
    wait_for_packed(&neve, 96);
    assert_eq!(pushed(dir.path(), &[&place])["last"], 95);
    node.advance(60);
    neve.wait_for_head(170);
    wait_for_packed(&neve, 160);
    neve.stop_in_time();
    assert_eq!(pushed(dir.path(), &[&place])["last"], 159);
    assert_eq!(objects(bucket.path()).len(), 1 + 5 + 2 * 4);
    let cost = line(&["cost", &place]);
    let kinds = ["segment", "span", "pages", "filter", "terms", "links"];
    let kinds = kinds.map(|kind| cost["kinds"][kind]["objects"].as_u64());
    assert_eq!(kinds, [5, 1, 1, 1, 1, 0].map(Some), "{cost}");
    assert_eq!(cost["reads"]["hash"]["gets"], 2);
    let young = line(&["gc", &place]);
    assert_eq!(
        (&young["unnamed"], &young["young"], &young["deleted"]),
        (&4.into(), &4.into(), &0.into())
    );
    let kept = line(&["retain", "--from", "70", &place]);
    assert_eq!(
        (&kept["first"], &kept["last"], &kept["dropped"]),
        (&64.into(), &159.into(), &2.into())
    );
    assert_eq!((&kept["from"], &kept["summary"]), (&70.into(), &true.into()));
    let gone = line(&["gc", "--older-than", "0s", &place]);
    assert_eq!(gone["deleted"], 2 + 2 * 4, "two segments, the spans before");
    assert_eq!(objects(bucket.path()).len(), 1 + 3 + 4);
    let (code, summary) = verified(&[&place]);
    assert_eq!((code, &summary["findings"], &summary["first"]), (0, &0.into(), &64.into()));
    assert_eq!(pushed(dir.path(), &[&place])["below"], 2);
    let (code, _, errors) = archive("retain", None, &["--from", "160", &place]);
    assert_eq!((code, errors.contains("above the archive's last one")), (2, true), "{errors}");
    line(&["retain", "--from", "0", &place]);
    assert_eq!(pushed(dir.path(), &[&place])["first"], 0);
    assert_eq!(verified(&[&place]).0, 0);
}

#[test]
fn addresses_of_a_wrong_form_are_wrong_usage() {
    let dir = fresh_dir().path().display().to_string();
    let env = [("AWS_REGION", "c"), ("AWS_ACCESS_KEY_ID", "a"), ("AWS_SECRET_ACCESS_KEY", "b")];
    let code = |env: &[(&str, &str)], words: &[&str]| {
        let (code, _, errors) = outcome(&run_with(env, &[&["archive"], words].concat()));
        (code, errors)
    };
    for url in ["", "/dir", "http://a/b", "s3://", "s3://b c/a", "file://relative"] {
        for command in [&["ls"][..], &["pull", "--data-dir", &dir], &["retain", "--from", "5"]] {
            let (code, errors) = code(&env, &[command, &[url]].concat());
            assert_eq!((code, errors.contains("s3://BUCKET")), (64, true), "{url:?}: {errors}");
        }
    }
    for endpoint in ["127.0.0.1:9000", "notaurl", "http://", "", "/x", "http://[::1"] {
        let words = ["ls", "--archive-endpoint", endpoint, "s3://b/p"];
        let (given, errors) = code(&env, &words);
        let is_named = errors.contains("write http://HOST:PORT or https://HOST");
        assert_eq!((given, is_named), (64, true), "{endpoint:?}: {errors}");
    }
    let more = [&env[..], &[("AWS_ENDPOINT_URL", "127.0.0.1:9000")]].concat();
    let (given, errors) = code(&more, &["ls", "s3://b/p"]);
    assert_eq!(given, 64, "{errors}");
    let (given, errors) = code(&env, &["ls", "file:///no/such/dir"]);
    assert_eq!((given, errors.contains("make it first")), (2, true), "{errors}");
}

#[test]
fn numbers_beyond_their_bounds_are_wrong_usage() {
    for (words, why) in [
        (["init", "--range", "3"], "a power of two from 1 to 1024"),
        (["init", "--range", "2048"], "a power of two from 1 to 1024"),
        (["gc", "--older-than", "99999d"], "allowed: 0s to 36500d"),
        (["retain", "--from", "1000000000000001"], "0..=1000000000000000"),
        (["cost", "--price-gb-month", "-1"], "dollars from 0"),
        (["cost", "--price-gb-month", "NaN"], "dollars from 0"),
        (["cost", "--price-million-gets", "inf"], "dollars from 0"),
        (["init", "--sign-existing", "prove"], "write sha256: and 64 hexadecimal digits"),
        (["gc", "--archive-at-least", "-1"], "invalid digit"),
    ] {
        let number = format!("{}={}", words[1], words[2]);
        let errors = refused(&[words[0], &number, "file:///nowhere"], 64);
        assert!(errors.contains(why), "{words:?}: {errors}");
    }
}

#[test]
fn public_chain_has_its_own_genesis_block() {
    let bucket = fresh_dir();
    let place = format!("file://{}", bucket.path().display());
    let known = "0x31ced5b9beb7f8782b014660da0cb18cc409f121f408186886e1ca3e8eeca96b";
    let other = known.replace("31ced5", "31ced6");
    for id in ["43114", "43113"] {
        let why = refused(&["init", "--chain-id", id, "--genesis", &other, &place], 64);
        assert!(why.contains(&format!("block 0 of chain {id} is {known}")), "{why}");
    }
    let made = line(&["init", "--chain-id", "43114", "--genesis", known, &place]);
    assert_eq!(made["chain_id"], 43114);
}
