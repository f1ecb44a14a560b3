//! The message of a log line is a constant of two to six words. Values are fields.

use crate::{Files, compare};

const MACROS: [&str; 5] = ["error!(", "warn!(", "info!(", "debug!(", "trace!("];

/// Messages that have too few or too many words, or values in them.
fn unfit(text: &str) -> Vec<String> {
    let begins = MACROS.iter().flat_map(|name| text.match_indices(name));
    let begins = begins.filter(|(at, _)| !text[..*at].ends_with('_')); // `compile_error!`
    let mut begins: Vec<usize> = begins.map(|(at, name)| at + name.len()).collect();
    begins.sort_unstable();
    let mut found = Vec::new();
    for at in begins {
        let line = text[..at].matches('\n').count() + 1;
        let message = message(&text[at..]).unwrap_or_default();
        if !(2..=6).contains(&message.split_whitespace().count()) || message.contains('{') {
            found.push(format!("line {line}: {message:?}"));
        }
    }
    found
}

/// Last literal among the arguments of the macro whose arguments begin here.
fn message(arguments: &str) -> Option<&str> {
    let (mut depth, mut literal, mut last) = (1, None, None);
    let mut is_escaped = false;
    for (at, sign) in arguments.char_indices() {
        match (sign, literal) {
            _ if is_escaped => is_escaped = false,
            ('\\', Some(_)) => is_escaped = true,
            ('"', Some(begin)) => {
                last = (depth == 1).then_some(&arguments[begin..at]).or(last);
                literal = None;
            }
            ('"', None) => literal = Some(at + 1),
            ('(' | '[' | '{', None) => depth += 1,
            (')' | ']' | '}', None) => depth -= 1,
            _ => {}
        }
        if depth == 0 {
            break;
        }
    }
    last
}

#[test]
fn log_message_has_two_to_six_words() {
    let mut found = Vec::new();
    for (file, text) in Files::below(&["src", "crates"], &[".rs"]).iter() {
        found.extend(unfit(text).into_iter().map(|what| (file.to_owned(), what)));
    }
    compare("log messages of fewer than two or more than six words, or with values", &found, &[]);
}

#[test]
fn unfit_log_message_is_found() {
    let fit = r#"warn!(%error, reason = "of so many words that it is none", "upstream \" left");"#;
    let unfit_ones = "info!(\"stopped\");\nwarn!(\n    why(\"two words\"),\n    \"{note} it\");\n\
                      debug!(\"one two three four five six seven\");";
    assert_eq!(unfit(fit), [""; 0]);
    let expected = ["line 1: \"stopped\"", "line 2: \"{note} it\""];
    assert_eq!(unfit(unfit_ones)[..2], expected);
    assert_eq!(unfit(unfit_ones).len(), 3);
}
