//! Tests of the help.

use super::*;
use crate::config::settings::AllSettings;

/// Rows and columns of a usual terminal.
const SCREEN: (usize, usize) = (40, 80);

#[test]
fn short_help_of_serve_fits_a_screen() {
    let neve = command::<AllSettings>();
    let serve = neve.find_subcommand("serve").expect("a command").clone();
    let help = serve.term_width(SCREEN.1).render_help().to_string();
    assert!(help.lines().count() <= SCREEN.0, "{} rows:\n{help}", help.lines().count());
    assert!(help.lines().all(|line| line.chars().count() <= SCREEN.1), "{help}");
}

#[test]
fn short_help_has_the_first_sentence_and_the_long_one_all() {
    assert_eq!(first_sentence("A file. It is read."), "A file.");
    assert_eq!(first_sentence("A file."), "A file.");
    let neve = command::<AllSettings>();
    let mut serve = neve.find_subcommand("serve").expect("a command").clone().term_width(200);
    let second = "neve creates it if it is missing.";
    assert!(!serve.render_help().to_string().contains(second));
    assert!(serve.render_long_help().to_string().contains(second));
}
