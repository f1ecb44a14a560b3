use std::fs;

use super::*;
use crate::config::setting::{SWITCH, count, text};
use crate::config::units::StartAt;

const GROUPS: &[Group] = &[Group {
    title: "All",
    settings: &[
        Setting::new("idle-count", count("1", "10"), "A number."),
        Setting::new("start", text::<StartAt>("HEIGHT"), "A height."),
        Setting::new("hosts", text::<String>("HOST").many(), "A list."),
        Setting::new("upstream", text::<String>("URL").secret(), "A secret."),
        Setting::new("switch", SWITCH, "A switch."),
        Setting::new("dev", SWITCH, "A flag.").flag_only(),
    ],
}];

fn parse(text: &str) -> Result<SettingsFile, String> {
    SettingsFile::parse("neve.toml", text, GROUPS).map_err(|error| error.to_string())
}

#[test]
fn values_keep_their_lines() {
    let file =
        parse("# a comment\nidle-count = 7\n\nstart = -1_000\nhosts = ['a', \"b\"]\nswitch = true")
            .unwrap();
    let get = |name: &str| file.get(name).map(|entry| (entry.texts.join("+"), entry.line));
    assert_eq!(get("idle-count"), Some(("7".to_owned(), 2)));
    assert_eq!(get("start"), Some(("-1000".to_owned(), 4)));
    assert_eq!(get("hosts"), Some(("a+b".to_owned(), 5)));
    assert_eq!(get("switch"), Some(("true".to_owned(), 6)));
    assert_eq!(get("upstream"), None);
    assert_eq!(parse("start = 0x10").unwrap().get("start").unwrap().texts, ["0x10"]);
    assert_eq!(parse("hosts = 'a,b'").unwrap().get("hosts").unwrap().texts, ["a", "b"]);
}

#[test]
fn unknown_key_is_named_with_the_nearest_one() {
    let error = parse("\nidle-cuont = 7\n[listen]\n").unwrap_err();
    let lines: Vec<_> = error.lines().collect();
    assert_eq!(lines[0], "neve.toml:2: unknown key idle-cuont; nearest: idle-count");
    assert!(lines[1].starts_with("neve.toml:3: unknown key listen; nearest: "), "{error}");
    let long = parse(&format!("\"\\n{}\" = 1", "x".repeat(1000))).unwrap_err();
    assert!(long.starts_with("neve.toml:1: unknown key \\nx") && long.len() < 150, "{long}");
}

#[test]
fn wrong_value_is_named_with_its_line() {
    for (text, expected) in [
        ("\nidle-count = 11", "neve.toml:2: idle-count = 11: too large; allowed: 1 to 10"),
        ("idle-count = 'x'", "neve.toml:1: idle-count = x: write a whole number"),
        (
            "idle-count = [1]",
            "neve.toml:1: idle-count: no value of the right type; write a string or a number",
        ),
        ("switch = 1", "neve.toml:1: switch: no value of the right type; write true or false"),
        ("hosts = 1979-05-27", "write a string, or a list of strings"),
        ("dev = true", "neve.toml:1: dev is a flag only; remove this line"),
        ("start = 1\nstart = 2", "neve.toml:2: no TOML: duplicate key"),
        ("start", "neve.toml:1: no TOML: "),
    ] {
        let error = parse(text).unwrap_err();
        assert!(error.starts_with(expected) || error.contains(expected), "{error:?}, {expected:?}");
    }
}

#[test]
fn all_mistakes_are_named_at_once() {
    let error = parse("idle-count = 0\nstrat = 1\nstart = 'x'").unwrap_err();
    assert_eq!(error.lines().count(), 3, "{error}");
}

#[test]
fn file_that_cannot_be_read_is_named() {
    let error = SettingsFile::read(Path::new("/nonexistent/neve.toml"), GROUPS).unwrap_err();
    let error = error.to_string();
    assert!(error.starts_with("cannot read /nonexistent/neve.toml: No such file"), "{error}");
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("neve.toml");
    fs::write(&path, "#".repeat((1 << 20) + 1)).unwrap();
    let error = SettingsFile::read(&path, GROUPS).unwrap_err().to_string();
    assert!(error.ends_with("1048577 bytes; allowed: 1048576"), "{error}");
}
