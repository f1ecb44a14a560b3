//! The chart of Helm names only settings that there are.

use std::collections::BTreeSet;
use std::fs;
use std::io;
use std::path::Path;

use crate::Finding;

const CHART: &str = "packaging/helm/neve";

fn read(path: &str) -> io::Result<String> {
    fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join(path))
}

/// Names of all settings: keys of packaging/neve.toml, which is generated from their table.
fn settings(example: &str) -> BTreeSet<&str> {
    let lines = example.lines().filter_map(|line| line.strip_prefix('#'));
    lines.filter_map(|line| line.split_once(" = ")).map(|(name, _)| name).collect()
}

/// Keys below `settings:` of values.yaml, those of its comments too.
fn values(text: &str) -> Vec<&str> {
    let within = text.lines().skip_while(|line| *line != "settings:").skip(1);
    let within = within.take_while(|line| line.starts_with("  "));
    let keys = within.filter_map(|line| line.trim_start_matches([' ', '#']).split_once(": "));
    // A sentence of a comment may have a colon, but only behind a space.
    keys.map(|(key, _)| key).filter(|key| !key.contains(' ')).collect()
}

/// Flags with a value, as a template gives them to neve.
fn flags(text: &str) -> Vec<&str> {
    let lines = text.lines().filter_map(|line| line.trim().strip_prefix("- --"));
    lines.filter_map(|line| line.split_once('=')).map(|(name, _)| name).collect()
}

/// Lines of neve.toml that a template writes itself.
fn lines(text: &str) -> Vec<&str> {
    let keys = text.lines().filter_map(|line| line.split_once(" = \""));
    keys.map(|(name, _)| name).filter(|name| !name.contains([' ', '{'])).collect()
}

fn check(example: &str, named: &[&str]) -> Vec<Finding> {
    let known = settings(example);
    let unknown = named.iter().filter(|name| !known.contains(**name));
    unknown.map(|name| format!("{CHART}: {name} is no setting")).collect()
}

#[test]
fn chart_names_only_settings() {
    let example = read("packaging/neve.toml").unwrap();
    let in_values = read(&format!("{CHART}/values.yaml")).unwrap();
    let pod = read(&format!("{CHART}/templates/statefulset.yaml")).unwrap();
    let helpers = read(&format!("{CHART}/templates/_helpers.tpl")).unwrap();
    let named = [values(&in_values), flags(&pod), lines(&helpers)];
    for (names, least) in named.iter().zip([4, 3, 2]) {
        assert!(names.len() >= least, "the chart has another form: {names:?}");
    }
    let found = check(&example, &named.concat());
    assert!(found.is_empty(), "{}", found.join("\n"));
}

#[test]
fn unknown_name_of_the_chart_is_found() {
    let text = "a: 1\nsettings:\n  upstream: x\n  # Beyond it: no.\n  # retain-byte: 1\n\nb: 2\n";
    assert_eq!(values(text), ["upstream", "retain-byte"]);
    assert_eq!(flags("  - serve\n  - --listen=1\n"), ["listen"]);
    assert_eq!(lines("{{ $a }} = {{ $b }}\nkeys = \"/x\"\n"), ["keys"]);
    let found = check("# Text\n#upstream = 1\n", &["upstream", "retain-byte"]);
    assert_eq!(found, ["packaging/helm/neve: retain-byte is no setting"]);
}
