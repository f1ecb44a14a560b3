//! `neve keys`: entries for the file of API keys.

use std::io::{self, Read, Write};
use std::process::ExitCode;

use super::config::{USAGE, written};
use crate::http::keys::{KeyHash, check_name, entry};

/// Characters of a key. A shorter one can be guessed.
const LEN_MIN: usize = 16;
const LEN_MAX: usize = 256;

/// Reads a key from standard input, and prints its entry for the file of `--keys`.
pub fn hash(name: &str) -> ExitCode {
    let refuse = |why: String, code: ExitCode| {
        let _ = writeln!(io::stderr(), "neve: {why}"); // there is nowhere else to say it
        code
    };
    if let Err(why) = check_name(name) {
        return refuse(format!("--name {}: {why}", name.escape_debug()), USAGE.into());
    }
    match read(io::stdin().lock()).and_then(|key| entry(name, KeyHash::of(key.as_bytes()))) {
        Ok(entry) => written(io::stdout().write_all(entry.as_bytes())),
        Err(why) => refuse(why, ExitCode::FAILURE),
    }
}

/// Reads a key: a word that can stand in a path as it is. The error does not show it.
fn read(from: impl Read) -> Result<String, String> {
    let mut text = String::new();
    // A byte too many, and a line end: enough to see that a key is too long.
    let read = from.take(LEN_MAX as u64 + 3).read_to_string(&mut text);
    read.map_err(|error| format!("standard input: {error}"))?;
    let key = text.trim_end_matches(['\r', '\n']);
    let is_word = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.~".contains(&byte);
    if (LEN_MIN..=LEN_MAX).contains(&key.len()) && key.bytes().all(is_word) {
        return Ok(key.to_owned());
    }
    Err(format!("standard input: no key; allowed: {LEN_MIN} to {LEN_MAX} letters, digits and -_.~"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn key_of_standard_input_has_a_length_and_letters() {
        for len in [LEN_MIN, LEN_MAX] {
            let key = "x".repeat(len);
            assert_eq!(read(format!("{key}\r\n").as_bytes()), Ok(key));
        }
        for wrong in
            ["x".repeat(LEN_MIN - 1), "x".repeat(LEN_MAX + 1), "SECRET/SECRET/SECRET".into()]
        {
            let why = read(wrong.as_bytes()).unwrap_err();
            assert!(!why.contains("SECRET"), "{why}");
        }
        assert!(read(&[b'x', 0xff][..]).is_err());
    }
}
