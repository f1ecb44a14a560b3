use neve_store::{LockedTail, Options, SLOT_COUNT_MAX};

use super::*;
use crate::config::SettingsFile;
use crate::config::setting::{Bounds, Setting, Unit};

/// Settings that go with another one.
const COMPANY: &[(&str, &[(&str, &str)])] = &[
    ("upstream-quorum", &[("upstream", "http://a,http://b")]),
    ("client-bytes-address-max", &[("client-bytes-total-max", "4GiB")]),
    ("connections-address-max", &[("connections-max", "10000000")]),
    ("relayed-requests-address-max", &[("relayed-requests-total-max", "65536")]),
    ("relayed-sockets-address-max", &[("relayed-sockets-total-max", "65536")]),
    ("relayed-message-bytes-max", &[("relayed-unsent-bytes-max", "1GiB")]),
    ("relayed-unsent-bytes-max", &[("relayed-message-bytes-max", "1KiB")]),
    ("filters-address-max", &[("filters-max", "10000000")]),
    ("queued-requests-address-max", &[("queued-requests-total-max", "1048576")]),
    ("queued-requests-total-max", &[("queued-requests-address-max", "1")]),
    ("retain-bytes", &[("segment-bytes", "64KiB")]),
    ("segment-bytes", &[("retain-bytes", "none")]),
];

fn all() -> impl Iterator<Item = &'static Setting> {
    GROUPS.iter().flat_map(|group| group.settings)
}

fn bounded() -> impl Iterator<Item = (&'static Setting, Bounds)> {
    all().filter_map(|setting| Some((setting, setting.kind.bounds?)))
}

/// A whole set of settings with this value of one.
fn company(name: &str, value: &str) -> Vec<(String, String)> {
    let mut given = match name {
        "dev-rate" => vec![("dev".to_owned(), "true".to_owned())],
        _ => vec![("upstream".into(), "http://a".into()), ("data-dir".into(), "x".into())],
    };
    for (name, value) in
        COMPANY.iter().find(|(of, _)| *of == name).map_or(&[][..], |(_, with)| with)
    {
        given.retain(|(other, _)| other != name);
        given.push(((*name).to_owned(), (*value).to_owned()));
    }
    given.push((name.to_owned(), value.to_owned()));
    given
}

/// The outcome of all checks with this value by a flag.
fn by_flag(name: &str, value: &str) -> Result<(), String> {
    let flag = |(name, value): (String, String)| match &*value {
        "true" => format!("--{name}"),
        _ => format!("--{name}={value}"),
    };
    let mut flags = vec!["--config=none".to_owned()];
    flags.extend(company(name, value).into_iter().map(flag));
    let flags: Vec<_> = flags.iter().map(String::as_str).collect();
    Config::from_flags(&flags).map(drop)
}

/// The outcome of all checks with this value in a file.
fn by_file(name: &str, value: &str) -> Result<(), String> {
    let dir = tempfile::tempdir().expect("a directory");
    let path = dir.path().join("neve.toml");
    let lines = company(name, value).into_iter().map(|(name, value)| format!("{name} = {value:?}"));
    std::fs::write(&path, lines.collect::<Vec<_>>().join("\n")).expect("a file");
    let file = SettingsFile::read(&path, GROUPS).map_err(|error| error.to_string())?;
    let values = Values::new(GROUPS, None, Some(&file));
    values.and_then(Config::of).map(drop).map_err(|error| error.to_string())
}

/// A value beside a bound: the bound's amount and one more or less of the smallest part.
fn beside(bounds: &Bounds, text: &str, more: i128) -> Option<String> {
    let amount = bounds.unit.amount(text).expect("bounds are amounts") + more;
    let amount = u64::try_from(amount).ok()?;
    Some(match bounds.unit {
        Unit::Duration => format!("{}s {}ns", amount / 1_000_000_000, amount % 1_000_000_000),
        Unit::Bytes | Unit::Count | Unit::Height => amount.to_string(),
        Unit::Rate => format!("{}.{:06}", amount / 1_000_000, amount % 1_000_000),
    })
}

#[test]
fn every_bound_holds_at_its_edges() {
    for (Setting { name, .. }, bounds) in bounded() {
        let max = if *name == "upstream-quorum" { "2" } else { bounds.max }; // of two upstreams
        assert_eq!(by_flag(name, bounds.min), Ok(()), "{name} {}", bounds.min);
        assert_eq!(by_flag(name, max), Ok(()), "{name} {max}");
        let refused = |value: String, why: &str| {
            let error = by_flag(name, &value).expect_err(name);
            let named = format!("--{name} {value} (flag): {why}; allowed: {}", bounds.allowed());
            assert_eq!(error, named);
        };
        if let Some(below) = beside(&bounds, bounds.min, -1) {
            refused(below, "too small");
        }
        refused(beside(&bounds, bounds.max, 1).expect("far from overflow"), "too large");
    }
}

#[test]
fn every_bound_holds_in_the_file() {
    for (Setting { name, .. }, bounds) in bounded().filter(|(setting, _)| !setting.flag_only) {
        let max = if *name == "upstream-quorum" { "2" } else { bounds.max };
        assert_eq!(by_file(name, bounds.min), Ok(()), "{name} {}", bounds.min);
        assert_eq!(by_file(name, max), Ok(()), "{name} {max}");
        let above = beside(&bounds, bounds.max, 1).expect("far from overflow");
        let error = by_file(name, &above).expect_err(name);
        let line = company(name, "").len();
        let why = format!("neve.toml:{line}: {name} = {above}: too large; allowed: ");
        assert!(error.contains(&why), "{error:?}, expected {why:?}");
    }
}

#[test]
fn none_is_a_value_of_some_settings_only() {
    for (Setting { name, .. }, bounds) in bounded() {
        let outcome = by_flag(name, "none");
        if bounds.none {
            assert_eq!(outcome, Ok(()), "{name}");
        } else if bounds.unit == Unit::Bytes {
            assert!(outcome.expect_err(name).contains("(flag): no bound; allowed: "));
        }
    }
}

/// Addresses, paths, names and lists of words. A number must have bounds, which the tests above walk.
const TEXTS: &[&str] = &[
    "data-dir",
    "precompress",
    "upstream",
    "upstream-ws",
    "upstream-header-file",
    "upstream-ca",
    "mirror-from",
    "archive",
    "archive-endpoint",
    "archive-anchor",
    "archive-trust",
    "archive-sign-key",
    "admit-keys",
    "listen",
    "admin-listen",
    "allowed-hosts",
    "trusted-proxies",
    "keys",
    "rpc-paths",
    "relay-methods",
    "relay-to",
    "relay-paths",
    "log-filter",
    "access-log",
];

#[test]
fn setting_without_bounds_is_a_text_a_word_or_a_switch() {
    let free = |setting: &&Setting| {
        let kind = setting.kind;
        kind.bounds.is_none() && kind.words.is_none() && !kind.switch
    };
    let found: Vec<_> = all().filter(free).map(|setting| setting.name).collect();
    assert_eq!(found, TEXTS);
}

#[test]
fn absurd_values_are_refused() {
    for (name, value) in [
        ("idle-timeout", "0s"),
        ("idle-timeout", "584000000000y"),
        ("upstream-request-timeout", "0s"),
        ("upstream-ws-idle-timeout", "0s"),
        ("upstream-connect-timeout", "0s"),
        ("write-timeout", "0s"),
        ("fsync-interval", "300000000y"),
        ("dev-rate", "-1"),
        ("upstream-requests-per-second", "-1"),
        ("start", "18446744073709551615"),
        ("start", "-18446744073709551615"),
        ("backfill-to", "18446744073709551615"),
    ] {
        let error = by_flag(name, value).expect_err(name);
        assert!(error.contains(&format!("--{name} {value} (flag): too ")), "{error}");
    }
    for rate in ["NaN", "inf"] {
        let error = by_flag("dev-rate", rate).expect_err(rate);
        assert!(error.contains("(flag): write a number"), "{error}");
    }
}

#[test]
fn every_setting_has_one_name_and_an_allowed_default() {
    let mut names: Vec<_> = all().map(|setting| setting.name).collect();
    names.sort_unstable();
    assert!(names.windows(2).all(|pair| pair[0] != pair[1]), "{names:?}");
    for setting in all() {
        let name = setting.name;
        assert!(name.chars().all(|c| c.is_ascii_lowercase() || c == '-'), "{name}");
        assert!(setting.help.ends_with('.') && !setting.help.contains('\n'), "{name}");
        if let Some(default) = setting.default {
            assert_eq!(setting.kind.check(default), Ok(()), "{name}");
        }
        assert!(!setting.flag_only || !setting.reloads, "{name}");
    }
    assert_eq!(all().filter(|setting| setting.brief).count(), 9, "and --config");
}

/// The table repeats the bounds of the store.
#[test]
fn bounds_are_those_of_the_store() {
    let amount = |name: &str, max: bool| {
        let (_, bounds) = bounded().find(|(setting, _)| setting.name == name).expect(name);
        bounds.unit.amount(if max { bounds.max } else { bounds.min }).expect(name)
    };
    assert_eq!(amount("segment-bytes", false), i128::from(Options::SEGMENT_BYTES_MIN));
    assert_eq!(amount("segment-bytes", true), i128::from(Options::SEGMENT_BYTES_MAX));
    assert_eq!(amount("retain-bytes", false), i128::from(2 * Options::SEGMENT_BYTES_MIN));
    assert_eq!(amount("segment-blocks", true), i128::from(SLOT_COUNT_MAX));
    assert_eq!(amount("lock-newest-bytes", false), i128::from(LockedTail::BYTES_MIN));
}

#[test]
fn replica_needs_an_upstream_or_an_anchor() {
    let outcome = |flags: &[&str]| {
        let fixed = ["--config=none", "--data-dir=x"];
        Config::from_flags(&[&fixed, flags].concat()).map(drop)
    };
    let hash = "ab".repeat(32);
    let anchor = format!("--archive-anchor=7:0x{hash}");
    assert_eq!(outcome(&["--archive=file:///a", &anchor]), Ok(()));
    assert_eq!(outcome(&["--archive=file:///a", "--upstream=http://a"]), Ok(()));
    assert_eq!(outcome(&["--archive=file:///a", "--mirror-from=http://a"]), Ok(()));
    for (flags, why) in [
        (&["--archive=file:///a"][..], "or --archive-anchor HEIGHT:HASH to begin at"),
        (&[&anchor], "no source of blocks"),
        (&["--upstream=http://a", "--archive-push"], "needs --archive URL"),
        (&["--archive=file:///a", &anchor, "--on-miss=relay"], "relay needs an --upstream"),
        (&["--archive=file:///a", &anchor, "--upstream-quorum=2"], "allowed: 1 to 1"),
        (&["--archive=file:///a", "--archive-anchor=7"], "write HEIGHT:HASH"),
        (&["--archive=file:///a", "--archive-anchor=7:0xab"], "write HEIGHT:HASH"),
        (&["--archive=file:///a", &format!("--archive-anchor=x:0x{hash}")], "write HEIGHT:HASH"),
    ] {
        let error = outcome(flags).expect_err("it is refused");
        assert!(error.contains(why), "{flags:?}: {error}");
    }
}

#[test]
fn push_that_could_never_begin_is_refused() {
    let outcome = |more: &[&str]| {
        let fixed = ["--config=none", "--data-dir=x", "--upstream=http://a"];
        let push = ["--archive=file:///a", "--archive-push"];
        Config::from_flags(&[&fixed[..], &push, more].concat()).map(drop)
    };
    assert_eq!(outcome(&[]), Ok(()));
    let blocks = ["--retain-blocks=9", "--retain-unpushed-bytes=2GiB", "--unpacked-bytes=1GiB"];
    assert_eq!(outcome(&blocks), Ok(()));
    let at_once = ["--retain-blocks=9", "--retain-unpushed-bytes=0B", "--unpacked-bytes=0B"];
    assert_eq!(outcome(&at_once), Ok(()), "each range is packed as soon as it is whole");
    assert_eq!(outcome(&["--retain-bytes=none", "--retain-unpushed-bytes=0B"]), Ok(()));
    let small = ["--retain-bytes=1GiB", "--retain-unpushed-bytes=1GiB"];
    assert_eq!(outcome(&[&small[..], &["--unpacked-bytes=1GiB"]].concat()), Ok(()));
    for (flags, why) in [
        (vec!["--unpacked-bytes=none"], "--unpacked-bytes none packs nothing"),
        (small.to_vec(), "evicted before they are packed"),
        (vec!["--retain-blocks=9", "--retain-unpushed-bytes=2GiB"], "less than --retain-unpushed"),
        (vec!["--retain-age=9d", "--retain-unpushed-bytes=2GiB"], "less than --retain-unpushed"),
        (
            vec!["--retain-age=9d", "--retain-bytes=1TiB", "--retain-unpushed-bytes=2GiB"],
            "less than --retain-unpushed",
        ),
    ] {
        let error = outcome(&flags).expect_err("it is refused");
        assert!(error.contains("--archive-push") && error.contains(why), "{error}");
    }
}

#[test]
fn help_of_a_setting_has_one_or_two_sentences() {
    for Setting { name, help, .. } in all() {
        let sentences = 1 + help.matches(". ").count();
        assert!(sentences <= 2 && help.ends_with('.'), "{name}: {help}");
    }
}
