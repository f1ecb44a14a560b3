//! Reading the names of keys that an operator admits.

use super::receipt_json::{LOG, RECEIPT};
use crate::block::TRANSACTION;
use crate::header::HEADER;
use crate::json::{AdmittedKeys, Object};

/// Objects that may get another key, by the name that an operator uses.
static OBJECTS: [&Object; 4] = [&HEADER, &TRANSACTION, &RECEIPT, &LOG];

impl AdmittedKeys {
    /// Reads names of the form `OBJECT.KEY`, where OBJECT is `block`, `transaction`, `receipt` or
    /// `log`. The error names the first wrong one, and the reason.
    ///
    /// The names stay in memory until the process ends: call it once.
    pub fn parse<S: AsRef<str>>(names: &[S]) -> Result<Self, (String, String)> {
        let mut admitted: Vec<(&'static str, String)> = Vec::new();
        for name in names.iter().map(AsRef::as_ref) {
            let (object, key) = admissible(name).map_err(|why| (name.to_owned(), why))?;
            let is_same = |(other, given): &(&str, String)| {
                *other == object.name && given.eq_ignore_ascii_case(key)
            };
            match admitted.iter().find(|given| is_same(given)) {
                Some((_, given)) if given == key => {}
                Some((_, given)) => {
                    // Many readers of JSON ignore case: one of the two would hide the other.
                    let why = format!("differs in case only from {}.{given}", object.name);
                    return Err((name.to_owned(), why));
                }
                None => admitted.push((object.name, key.to_owned())),
            }
        }
        Ok(Self(if admitted.is_empty() { &[] } else { admitted.leak() }))
    }
}

fn admissible(name: &str) -> Result<(&'static Object, &str), String> {
    let (object, key) =
        name.split_once('.').ok_or("write OBJECT.KEY, for example block.newField")?;
    let named = OBJECTS.into_iter().find(|known| known.name == object);
    let object = named.ok_or("the object is block, transaction, receipt or log")?;
    let is_plain = |byte: u8| byte.is_ascii_graphic() && !matches!(byte, b'"' | b'\\' | b',');
    if key.is_empty() || !key.bytes().all(is_plain) {
        return Err("a key is printable ASCII without quotes, backslashes and commas".to_owned());
    }
    match object.find_ignoring_case(key.as_bytes()) {
        Some(known) if known == key => Err(format!("neve knows {known} already")),
        Some(known) => {
            Err(format!("differs in case only from {known}, which clients may take it for"))
        }
        None => Ok((object, key)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::json::UnknownKey;

    fn parse(names: &str) -> Result<AdmittedKeys, String> {
        let names: Vec<&str> = names.split(' ').filter(|name| !name.is_empty()).collect();
        AdmittedKeys::parse(&names).map_err(|(name, why)| format!("{name}: {why}"))
    }

    #[test]
    fn admitted_key_belongs_to_its_object_alone() {
        let admitted = parse("block.new receipt.root log.a transaction.b block.new").unwrap();
        let check = |object, key: &str| {
            admitted.check(&[UnknownKey::new(object, key.as_bytes())]).map_err(|no| no.to_string())
        };
        assert_eq!(check(&HEADER, "new"), Ok(()));
        assert_eq!(check(&RECEIPT, "root"), Ok(()));
        assert_eq!(check(&LOG, "a"), Ok(()));
        assert_eq!(check(&TRANSACTION, "b"), Ok(()));
        assert!(
            check(&RECEIPT, "new")
                .unwrap_err()
                .contains("receipt with the key \"new\", which no known release writes")
        );
        assert!(check(&HEADER, "New").is_err());
        assert!(check(&HEADER, "Hash").unwrap_err().contains("\"hash\""));
        let long = check(&LOG, &"x".repeat(1000)).unwrap_err();
        assert!(long.len() < 250, "{long}");
        assert!(AdmittedKeys::NONE.check(&[UnknownKey::new(&HEADER, b"new")]).is_err());
        assert_eq!(parse("").unwrap(), AdmittedKeys::NONE);
    }

    #[test]
    fn name_that_cannot_be_admitted_is_refused_with_its_reason() {
        for (name, says) in [
            ("new", "write OBJECT.KEY"),
            ("header.new", "block, transaction, receipt or log"),
            ("block.", "printable ASCII"),
            ("block.a\"b", "printable ASCII"),
            ("block.\u{17f}ize", "printable ASCII"),
            ("block.hash", "knows hash already"),
            ("block.Hash", "differs in case only from hash"),
            ("transaction.TO", "differs in case only from to"),
            ("receipt.Status", "differs in case only from status"),
            ("log.Data", "differs in case only from data"),
            ("log.new log.New", "differs in case only from log.new"),
        ] {
            let error = parse(name).unwrap_err();
            assert!(error.contains(says), "{name}: {error}");
        }
    }
}
