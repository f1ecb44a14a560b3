//! Values that people type: bytes, times, a first height.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

/// A number of bytes: `25MB`, `128MiB`, `4096`, or `none`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ByteCount(pub Option<u64>);

const UNITS: [(&str, u64); 9] = [
    ("B", 1),
    ("kB", 1_000),
    ("MB", 1_000_000),
    ("GB", 1_000_000_000),
    ("TB", 1_000_000_000_000),
    ("KiB", 1 << 10),
    ("MiB", 1 << 20),
    ("GiB", 1 << 30),
    ("TiB", 1 << 40),
];

impl FromStr for ByteCount {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if text.eq_ignore_ascii_case("none") {
            return Ok(Self(None));
        }
        let digits = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
        let (number, unit) = text.split_at(digits);
        let factor = UNITS
            .iter()
            .find(|(name, _)| unit.trim().eq_ignore_ascii_case(name))
            .map_or((unit.trim().is_empty()).then_some(1), |(_, factor)| Some(*factor));
        let bytes = factor.zip(number.parse::<u64>().ok()).and_then(|(f, n)| n.checked_mul(f));
        let why =
            || "write a whole number and a unit: 4096, 25MB, 128MiB, 20GiB, or none".to_owned();
        bytes.map(|bytes| Self(Some(bytes))).ok_or_else(why)
    }
}

/// A length of time: `500ms`, `30s`, `12h`, `7d`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Span(pub Duration);

impl FromStr for Span {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let why = |_| "write a number and a unit: 500ms, 30s, 12h, 7d".to_owned();
        humantime::parse_duration(text).map(Self).map_err(why)
    }
}

/// Where an empty store begins.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StartAt {
    /// At this height.
    Height(u64),
    /// So many blocks before the upstream's head; 0 is the head itself.
    BeforeHead(u64),
}

impl FromStr for StartAt {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let parsed = match text.strip_prefix('-') {
            Some(back) => back.parse().map(Self::BeforeHead).ok(),
            None if text == "latest" => Some(Self::BeforeHead(0)),
            None => height(text).map(Self::Height),
        };
        parsed.ok_or_else(|| "write a height (69000000 or 0x41cdb40), latest, or -1000".to_owned())
    }
}

/// How far below its first height a store is filled.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BackfillTo {
    /// Not at all.
    None,
    /// As far as what is kept allows.
    Retained,
    /// Down to there.
    To(StartAt),
}

impl FromStr for BackfillTo {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match (text, text.parse()) {
            ("none", _) => Ok(Self::None),
            ("retained", _) => Ok(Self::Retained),
            (_, Ok(at @ (StartAt::Height(_) | StartAt::BeforeHead(1..)))) => Ok(Self::To(at)),
            _ => Err("write a height (69000000 or 0x41cdb40), -1000, retained, or none".to_owned()),
        }
    }
}

/// Requests a second: a number above zero, or `none` for no limit.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Rate(pub Option<f64>);

impl FromStr for Rate {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match (text, text.parse::<f64>()) {
            ("none", _) => Ok(Self(None)),
            (_, Ok(rate)) if (0.01..=1_000_000.0).contains(&rate) => Ok(Self(Some(rate))),
            _ => Err("write a number from 0.01 to 1000000, or none".to_owned()),
        }
    }
}

fn height(text: &str) -> Option<u64> {
    match text.strip_prefix("0x") {
        Some(digits) => u64::from_str_radix(digits, 16).ok(),
        None => text.parse().ok(),
    }
}

/// Bytes for people.
pub(crate) struct Human(pub u64);

impl fmt::Display for Human {
    #[allow(clippy::cast_precision_loss, reason = "shown with two digits")]
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let bytes = self.0 as f64;
        match self.0 {
            0..0x400 => write!(f, "{} B", self.0),
            0x400..0x10_0000 => write!(f, "{:.1} KiB", bytes / 1024.0),
            0x10_0000..0x4000_0000 => write!(f, "{:.1} MiB", bytes / 1_048_576.0),
            _ => write!(f, "{:.2} GiB", bytes / 1_073_741_824.0),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_are_read_with_and_without_units() {
        let read = |text: &str| text.parse::<ByteCount>().map(|count| count.0);
        assert_eq!(read("4096"), Ok(Some(4096)));
        assert_eq!(read("25MB"), Ok(Some(25_000_000)));
        assert_eq!(read("20 GiB"), Ok(Some(20 << 30)));
        assert_eq!(read("1tib"), Ok(Some(1 << 40)));
        assert_eq!(read("none"), Ok(None));
        for bad in ["", "MB", "-1", "1.5GB", "1 GiB free", "99999999999TiB", "12q"] {
            assert!(read(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn a_start_is_a_height_or_a_distance() {
        assert_eq!("latest".parse(), Ok(StartAt::BeforeHead(0)));
        assert_eq!("-1000".parse(), Ok(StartAt::BeforeHead(1000)));
        assert_eq!("0".parse(), Ok(StartAt::Height(0)));
        assert_eq!("0x10".parse(), Ok(StartAt::Height(16)));
        for bad in ["", "-", "--1", "newest", "1.5", "0x", "99999999999999999999"] {
            assert!(bad.parse::<StartAt>().is_err(), "{bad}");
        }
    }

    #[test]
    fn backfill_goes_to_a_height_or_as_far_as_is_kept() {
        assert_eq!("none".parse(), Ok(BackfillTo::None));
        assert_eq!("retained".parse(), Ok(BackfillTo::Retained));
        assert_eq!("0".parse(), Ok(BackfillTo::To(StartAt::Height(0))));
        assert_eq!("-5".parse(), Ok(BackfillTo::To(StartAt::BeforeHead(5))));
        for bad in ["", "latest", "-0", "all", "1.5"] {
            assert!(bad.parse::<BackfillTo>().is_err(), "{bad}");
        }
    }

    #[test]
    fn a_rate_is_a_number_above_zero() {
        assert_eq!("none".parse(), Ok(Rate(None)));
        assert_eq!("0.5".parse(), Ok(Rate(Some(0.5))));
        for bad in ["", "0", "-1", "NaN", "inf", "fast", "1e9"] {
            assert!(bad.parse::<Rate>().is_err(), "{bad}");
        }
    }

    #[test]
    fn bytes_are_written_for_people() {
        assert_eq!(Human(1023).to_string(), "1023 B");
        assert_eq!(Human(1536).to_string(), "1.5 KiB");
        assert_eq!(Human(20 << 30).to_string(), "20.00 GiB");
    }
}
