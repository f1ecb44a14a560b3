//! File of keys (`--keys`): TOML with a table `[[key]]` for each. It has hashes and no keys.

use std::collections::HashSet;
use std::path::Path;

use toml::Spanned;
use toml::de::{DeTable, DeValue};

use super::api_key::{ApiKey, KeyHash};
use crate::config::{MethodPattern, read_text};

/// Bytes of the file.
const FILE_BYTES_MAX: u64 = 4 << 20;
/// Keys of the file: each has metrics of its own.
const KEYS_MAX: usize = 10_000;
/// Characters of a name.
const NAME_LEN_MAX: usize = 64;
/// Methods of a key.
const METHODS_MAX: usize = 256;
const MEMBERS: [&str; 4] = ["name", "sha256", "requests-per-second", "methods"];

/// Entry of the file for a key.
pub(crate) fn entry(name: &str, hash: KeyHash) -> Result<String, String> {
    check_name(name)?;
    Ok(format!("[[key]]\nname = \"{name}\"\nsha256 = \"{hash}\"\n"))
}

/// Reads a file. The error names the line.
pub(super) fn read(path: &Path) -> Result<Vec<ApiKey>, String> {
    let failed = |why: String| format!("{}: {why}", path.display());
    let text = read_text(path, FILE_BYTES_MAX).map_err(failed)?;
    parse(&text).map_err(|(line, why)| format!("{}:{line}: {why}", path.display()))
}

/// Reads the keys of a text; the error comes with its line.
pub(super) fn parse(text: &str) -> Result<Vec<ApiKey>, (usize, String)> {
    let line = |at: usize| 1 + text[..at.min(text.len())].matches('\n').count();
    let table = DeTable::parse(text).map_err(|error| {
        (line(error.span().map_or(0, |span| span.start)), format!("no TOML: {}", error.message()))
    })?;
    let mut keys = UniqueKeys::default();
    for (member, value) in table.get_ref() {
        let tables = match value.get_ref() {
            DeValue::Array(tables) if member.get_ref() == "key" => tables,
            _ => return Err((line(member.span().start), "write [[key]] tables only".to_owned())),
        };
        for table in tables {
            let wrong = |why| (line(table.span().start), why);
            let key = key(table.get_ref()).map_err(wrong)?;
            keys.add(key).map_err(wrong)?;
        }
    }
    Ok(keys.keys)
}

/// Keys of a file, each with a name and a hash of its own.
#[derive(Default)]
struct UniqueKeys {
    keys: Vec<ApiKey>,
    names: HashSet<String>,
    hashes: HashSet<KeyHash>,
}

impl UniqueKeys {
    /// Adds a key, unless it is like another one or there are too many.
    fn add(&mut self, key: ApiKey) -> Result<(), String> {
        // Of two keys with one hash only one would be found.
        if !self.names.insert(key.name.clone()) || !self.hashes.insert(key.hash) {
            return Err(format!("{}: a name or a hash stands twice", key.name));
        }
        self.keys.push(key);
        if self.keys.len() > KEYS_MAX {
            return Err(format!("too many keys; allowed: {KEYS_MAX}"));
        }
        Ok(())
    }
}

fn key(value: &DeValue<'_>) -> Result<ApiKey, String> {
    let DeValue::Table(table) = value else { return Err("no table; write [[key]]".to_owned()) };
    // A misspelled `methods` without an effect would allow all methods.
    for (member, _) in table {
        if !MEMBERS.contains(&&**member.get_ref()) {
            return Err(format!("an unknown member; known: {}", MEMBERS.join(", ")));
        }
    }
    let text = |name: &str| match table.get(name).map(Spanned::get_ref) {
        Some(DeValue::String(text)) => Some(text.to_string()),
        _ => None,
    };
    let name = text("name").ok_or("name: missing, or no string")?;
    check_name(&name)?;
    let hash = text("sha256").as_deref().and_then(KeyHash::parse);
    let hash =
        hash.ok_or_else(|| format!("{name}: sha256 has 64 hex digits; see `neve keys hash`"))?;
    let a_second = table.get("requests-per-second").map(|value| rate(value.get_ref()));
    let a_second = a_second.transpose().map_err(|why| format!("{name}: {why}"))?;
    let methods = table.get("methods").map(|value| methods(value.get_ref()));
    let methods = methods.transpose().map_err(|why| format!("{name}: {why}"))?;
    Ok(ApiKey::new(name, hash, a_second, methods))
}

/// Checks the name of a key.
pub(crate) fn check_name(name: &str) -> Result<(), String> {
    // A name stands in TOML, in labels of metrics and in log lines: none of these bytes needs an
    // escape.
    let is_word = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte);
    if (1..=NAME_LEN_MAX).contains(&name.len()) && name.bytes().all(is_word) {
        return Ok(());
    }
    Err(format!("name: allowed are 1 to {NAME_LEN_MAX} letters, digits and -_."))
}

fn rate(value: &DeValue<'_>) -> Result<f64, &'static str> {
    let number: Option<f64> = match value {
        DeValue::Integer(number) if number.radix() == 10 => {
            // TOML takes underscores between digits, Rust does not.
            number.as_str().replace('_', "").parse().ok()
        }
        DeValue::Float(number) => number.as_str().replace('_', "").parse().ok(),
        _ => None,
    };
    // TOML also has `nan` and `inf`, which no range contains.
    let number = number.filter(|number| (0.01..=1_000_000.0).contains(number));
    number.ok_or("requests-per-second: allowed are numbers from 0.01 to 1000000")
}

fn methods(value: &DeValue<'_>) -> Result<Vec<MethodPattern>, String> {
    let DeValue::Array(items) = value else {
        return Err("methods: write a list, for example [\"eth_*\"]".to_owned());
    };
    if items.len() > METHODS_MAX {
        return Err(format!("methods: {}; allowed: {METHODS_MAX}", items.len()));
    }
    let pattern = |value: &DeValue<'_>| match value {
        DeValue::String(text) => text.parse().map_err(|why| format!("methods: {why}")),
        _ => Err("methods: a member is no string".to_owned()),
    };
    items.iter().map(|item| pattern(item.get_ref())).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn one(members: &str) -> String {
        format!("[[key]]\nname = \"shop\"\nsha256 = \"{}\"\n{members}", KeyHash::of(b"k"))
    }

    #[test]
    fn entry_that_is_printed_is_one_of_the_file() {
        let entry = entry("shop", KeyHash::of(b"k")).unwrap();
        assert_eq!(entry, one(""));
        let keys = parse(&format!(
            "# a comment\n{entry}\n{}",
            entry.replace("shop", "x").replace("8254", "8255")
        ));
        let names: Vec<_> = keys.unwrap().into_iter().map(|key| key.name).collect();
        assert_eq!(names, ["shop", "x"]);
        assert!(parse("").unwrap().is_empty(), "no key yet");
        for name in ["", "a b", "a\"", &"x".repeat(NAME_LEN_MAX + 1)] {
            assert!(super::entry(name, KeyHash::of(b"k")).is_err(), "{name}");
        }
    }

    #[test]
    fn malformed_file_is_refused_with_its_line() {
        for (text, line, says) in [
            ("key = 1".to_owned(), 1, "write [[key]] tables only"),
            ("\n[[keys]]\n".to_owned(), 2, "write [[key]] tables only"),
            ("\n[[key".to_owned(), 2, "no TOML"),
            ("[[key]]\nsha256 = \"\"".to_owned(), 1, "name: missing"),
            (one("").replace('8', "g"), 1, "shop: sha256 has 64 hex digits"),
            (one("methods = \"eth_*\""), 1, "shop: methods: write a list"),
            (one("methods = [\"eth call\"]"), 1, "shop: methods: no method"),
            (one("requests-per-second = 0"), 1, "shop: requests-per-second: allowed"),
            (one("requests-per-second = nan"), 1, "shop: requests-per-second: allowed"),
            (one("request-per-second = 1"), 1, "an unknown member"),
            (format!("{0}\n{0}", one("")), 5, "shop: a name or a hash stands twice"),
        ] {
            let (at, why) = parse(&text).map(|_| ()).unwrap_err();
            assert!(at == line && why.starts_with(says), "{text}: {at}: {why}");
        }
        for rate in ["0.01", "1000000", "1_000"] {
            assert!(parse(&one(&format!("requests-per-second = {rate}"))).is_ok(), "{rate}");
        }
        let many = vec!["\"eth_*\""; METHODS_MAX + 1].join(",");
        assert!(parse(&one(&format!("methods = [{many}]"))).is_err());
    }

    #[test]
    fn keys_are_bounded() {
        let entries = |count: usize| -> String {
            let entry =
                |n: usize| entry(&format!("k{n}"), KeyHash::of(n.to_string().as_bytes())).unwrap();
            (0..count).map(entry).collect()
        };
        assert_eq!(parse(&entries(KEYS_MAX)).unwrap().len(), KEYS_MAX);
        assert!(parse(&entries(KEYS_MAX + 1)).is_err());
    }
}
