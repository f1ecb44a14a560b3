//! Fractions as Go writes them in JSON.

/// The text of a number: the fewest digits that give the same number back, with an exponent when
/// it is below a millionth or has more than 21 digits (Go, `encoding/json`, `floatEncoder`, which
/// follows ECMAScript's conversion of numbers to strings).
///
/// Not for infinities and NaN, which JSON does not have.
pub(crate) fn json_float(value: f64) -> String {
    debug_assert!(value.is_finite(), "{value}");
    let magnitude = value.abs();
    if magnitude == 0.0 || (1e-6..1e21).contains(&magnitude) {
        return value.to_string();
    }
    let text = format!("{value:e}");
    // Go writes the plus of an exponent, Rust does not.
    if text.contains("e-") { text } else { text.replace('e', "e+") }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Written by Go's `encoding/json`; the shares of gas used are tested against recorded answers
    /// and `tests/data/recorded/ratios.txt`.
    #[test]
    fn numbers_are_as_go_writes_them() {
        for (value, expected) in [
            (0.0, "0"),
            (1.0, "1"),
            (0.5, "0.5"),
            (0.1 + 0.2, "0.30000000000000004"),
            (1e-6, "0.000001"),
            (9.9e-7, "9.9e-7"),
            (1e-7, "1e-7"),
            (1e-10, "1e-10"),
            (5e-324, "5e-324"),
            (1e20, "100000000000000000000"),
            (1e21, "1e+21"),
            (1.5e300, "1.5e+300"),
            (-1e-7, "-1e-7"),
        ] {
            assert_eq!(json_float(value), expected);
        }
    }
}
