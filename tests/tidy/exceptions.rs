//! Rules that are broken today. Lines may only go.

/// Findings that fail no test.
pub(crate) const EXCEPTIONS: &[&str] = &[];
