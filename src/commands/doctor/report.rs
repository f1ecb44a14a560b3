//! Results of checks, for people and as JSON lines.

use std::fmt::{self, Write};
use std::process::ExitCode;

use serde_json::json;

/// Gravity of a result. The order is that of the exit codes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Level {
    /// The finding is as it should be.
    Ok,
    /// neve serves, with less than it could have.
    Warning,
    /// neve does not serve, or will stop.
    Problem,
}

impl Level {
    fn word(self) -> &'static str {
        match self {
            Self::Ok => "ok",
            Self::Warning => "warning",
            Self::Problem => "problem",
        }
    }
}

/// Result of one check.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Finding {
    /// Name of the check, or of the setting that it is about.
    pub(super) check: &'static str,
    /// Gravity, which decides the exit code.
    pub(super) level: Level,
    /// Facts that the check found, in one line.
    pub(super) text: String,
    /// Next step of the operator, unless all is well.
    pub(super) advice: Option<String>,
}

impl Finding {
    pub(super) fn ok(check: &'static str, text: impl Into<String>) -> Self {
        Self { check, level: Level::Ok, text: text.into(), advice: None }
    }

    pub(super) fn warning(
        check: &'static str,
        text: impl Into<String>,
        advice: impl Into<String>,
    ) -> Self {
        Self { check, level: Level::Warning, text: text.into(), advice: Some(advice.into()) }
    }

    pub(super) fn problem(
        check: &'static str,
        text: impl Into<String>,
        advice: impl Into<String>,
    ) -> Self {
        Self { level: Level::Problem, ..Self::warning(check, text, advice) }
    }

    /// The finding as a line of JSON.
    fn json(&self) -> String {
        let Self { check, level, text, advice } = self;
        let level = level.word();
        json!({ "check": check, "level": level, "text": text, "advice": advice }).to_string()
    }
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { check, level, text, advice } = self;
        write!(f, "{:<7}  {check:<12}  {text}", level.word())?;
        advice.as_ref().map_or(Ok(()), |advice| write!(f, "; {advice}"))
    }
}

/// Returns all findings as text: a line for each.
pub(super) fn text(findings: &[Finding], as_json: bool) -> String {
    let mut text = String::new();
    for finding in findings {
        // Writing to a String cannot fail.
        let _ = if as_json {
            writeln!(text, "{}", finding.json())
        } else {
            writeln!(text, "{finding}")
        };
    }
    text
}

/// Returns 0 if all is well, 1 after a warning, 2 after a problem.
pub(super) fn exit_code(findings: &[Finding]) -> ExitCode {
    match findings.iter().map(|finding| finding.level).max() {
        None | Some(Level::Ok) => ExitCode::SUCCESS,
        Some(Level::Warning) => ExitCode::from(1),
        Some(Level::Problem) => ExitCode::from(2),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn findings() -> [Finding; 2] {
        [Finding::ok("nofile", "65536"), Finding::warning("memlock", "8 MiB", "raise it")]
    }

    #[test]
    fn finding_is_a_line_for_people_and_an_object_for_programs() {
        let lines = "ok       nofile        65536\nwarning  memlock       8 MiB; raise it\n";
        assert_eq!(text(&findings(), false), lines);
        let json = text(&findings(), true);
        let parsed: Vec<serde_json::Value> =
            json.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
        assert_eq!(parsed[0]["level"], "ok");
        assert_eq!(parsed[0]["advice"], serde_json::Value::Null);
        assert_eq!(parsed[1]["advice"], "raise it");
    }

    #[test]
    fn worst_finding_decides_the_exit_code() {
        let [fine, warning] = findings();
        let problem = Finding::problem("listen", "taken", "stop its owner");
        let code = |findings: &[&Finding]| {
            let findings: Vec<_> = findings.iter().map(|one| (*one).clone()).collect();
            format!("{:?}", exit_code(&findings))
        };
        assert_eq!(code(&[]), format!("{:?}", ExitCode::SUCCESS));
        assert_eq!(code(&[&fine, &warning]), format!("{:?}", ExitCode::from(1)));
        assert_eq!(code(&[&problem, &warning, &fine]), format!("{:?}", ExitCode::from(2)));
    }
}
