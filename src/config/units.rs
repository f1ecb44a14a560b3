//! Values that people type: bytes, times, a first height.

mod archive_url;

use std::fmt;
use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;
use std::str::FromStr;
use std::time::Duration;

use alloy_primitives::B256;
use ipnet::IpNet;

pub(crate) use self::archive_url::{ArchiveEndpoint, ArchiveUrl};

/// Reason why a text is no value: the forms that are allowed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct ParseError(&'static str);

/// A number of bytes: `25MB`, `128MiB`, `4096`, or `none`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct ByteCount(pub(crate) Option<u64>);

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
    type Err = ParseError;

    fn from_str(text: &str) -> Result<Self, ParseError> {
        if text.eq_ignore_ascii_case("none") {
            return Ok(Self(None));
        }
        let digits = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
        let (number, unit) = text.split_at(digits);
        let factor = UNITS
            .iter()
            // No two units differ in case alone.
            .find(|(name, _)| unit.trim().eq_ignore_ascii_case(name))
            .map_or((unit.trim().is_empty()).then_some(1), |(_, factor)| Some(*factor));
        let bytes = factor.zip(number.parse::<u64>().ok()).and_then(|(f, n)| n.checked_mul(f));
        let why = ParseError("write a whole number and a unit: 4096, 25MB, 128MiB, 20GiB, or none");
        bytes.map(|bytes| Self(Some(bytes))).ok_or(why)
    }
}

/// The value of a switch.
pub(crate) struct OnOff;

impl FromStr for OnOff {
    type Err = ParseError;

    fn from_str(text: &str) -> Result<Self, ParseError> {
        let is_word = matches!(text, "true" | "false");
        if is_word { Ok(Self) } else { Err(ParseError("write true or false")) }
    }
}

/// A whole number.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Count(pub(crate) u64);

impl FromStr for Count {
    type Err = ParseError;

    fn from_str(text: &str) -> Result<Self, ParseError> {
        text.parse().map(Self).map_err(|_| ParseError("write a whole number, for example 1000"))
    }
}

/// A length of time: `500ms`, `30s`, `12h`, `7d`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct DurationArg(pub(crate) Duration);

impl FromStr for DurationArg {
    type Err = ParseError;

    fn from_str(text: &str) -> Result<Self, ParseError> {
        let why = |_| ParseError("write a number and a unit: 500ms, 30s, 12h, 7d");
        humantime::parse_duration(text).map(Self).map_err(why)
    }
}

/// An age that has a limit, or `none`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct AgeLimit(pub(crate) Option<Duration>);

impl FromStr for AgeLimit {
    type Err = ParseError;

    fn from_str(text: &str) -> Result<Self, ParseError> {
        if text.eq_ignore_ascii_case("none") {
            return Ok(Self(None));
        }
        let why = |_| ParseError("write a number and a unit: 500ms, 30s, 12h, 7d, or none");
        text.parse().map(|DurationArg(age)| Self(Some(age))).map_err(why)
    }
}

/// An address to listen on: `HOST:PORT`, or `unix:PATH`. A name of a host is resolved when neve starts
/// to listen.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ListenAddress {
    /// A port of TCP; 0 stands for any free one.
    Tcp {
        /// Name or address of a host.
        host: String,
        /// Port; 0 stands for any free one.
        port: u16,
    },
    /// A socket in the file system.
    Unix(PathBuf),
}

impl ListenAddress {
    /// Returns true if any free port will do.
    pub fn is_any_port(&self) -> bool {
        matches!(self, Self::Tcp { port: 0, .. })
    }

    /// Returns the name or address of the host; `None` for a socket in the file system.
    pub fn host(&self) -> Option<&str> {
        match self {
            Self::Tcp { host, .. } => Some(host),
            Self::Unix(_) => None,
        }
    }
}

impl From<SocketAddr> for ListenAddress {
    fn from(address: SocketAddr) -> Self {
        Self::Tcp { host: address.ip().to_string(), port: address.port() }
    }
}

impl fmt::Display for ListenAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            // Only an IPv6 address has colons.
            Self::Tcp { host, port } if host.contains(':') => write!(f, "[{host}]:{port}"),
            Self::Tcp { host, port } => write!(f, "{host}:{port}"),
            Self::Unix(path) => write!(f, "unix:{}", path.display()),
        }
    }
}

impl FromStr for ListenAddress {
    type Err = ParseError;

    fn from_str(text: &str) -> Result<Self, ParseError> {
        if let Some(path) = text.strip_prefix("unix:") {
            let why = ParseError("no path; write unix:/run/neve/neve.sock, at most 107 bytes");
            let fits = path.starts_with('/') && path.len() <= UNIX_PATH_BYTES_MAX;
            return if fits { Ok(Self::Unix(path.into())) } else { Err(why) };
        }
        if let Ok(address) = text.parse::<SocketAddr>() {
            return Ok(address.into());
        }
        let why =
            ParseError("no address; write HOST:PORT, for example 127.0.0.1:8545, or unix:PATH");
        let (host, port) = text.rsplit_once(':').ok_or(why)?;
        let is_name = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '-' | '_');
        // A host that ends in a digit is an IPv4 address, here a wrong one.
        if host.is_empty()
            || !host.chars().all(is_name)
            || host.ends_with(|c: char| c.is_ascii_digit()) && host.contains('.')
        {
            return Err(why);
        }
        Ok(Self::Tcp { host: host.to_owned(), port: port.parse().map_err(|_| why)? })
    }
}

/// Bytes of the path of a socket (`sun_path` of Linux, less its end).
const UNIX_PATH_BYTES_MAX: usize = 107;

/// An address to listen on, or none.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ListenAt(pub(crate) Option<ListenAddress>);

impl FromStr for ListenAt {
    type Err = ParseError;

    fn from_str(text: &str) -> Result<Self, ParseError> {
        if text == "none" {
            return Ok(Self(None));
        }
        let why =
            |_| ParseError("no address; write HOST:PORT, for example 127.0.0.1:8549, or none");
        text.parse().map(|address| Self(Some(address))).map_err(why)
    }
}

/// A network: a CIDR block, or one address.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct IpNetwork(IpNet);

impl IpNetwork {
    /// True if `address` is in it. An IPv4 address is to be given as one.
    pub(crate) fn contains(self, address: IpAddr) -> bool {
        self.0.contains(&address)
    }
}

impl FromStr for IpNetwork {
    type Err = ParseError;

    fn from_str(text: &str) -> Result<Self, ParseError> {
        let network = text.parse::<IpNet>().or_else(|_| text.parse::<IpAddr>().map(IpNet::from));
        match network {
            // Addresses of clients are compared in their IPv4 form: such a network would hold none.
            Ok(IpNet::V6(network)) if network.addr().to_ipv4_mapped().is_some() => {
                Err(ParseError("write the IPv4 network itself, for example 10.0.0.0/8"))
            }
            Ok(network) => Ok(Self(network)),
            Err(_) => {
                Err(ParseError("write a network or an address: 10.0.0.0/8, fd00::/8, 127.0.0.1"))
            }
        }
    }
}

/// Height at which an empty store begins.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StartAt {
    /// Height to begin at.
    Height(u64),
    /// Blocks before the upstream's head; 0 is the head itself.
    BeforeHead(u64),
}

impl FromStr for StartAt {
    type Err = ParseError;

    fn from_str(text: &str) -> Result<Self, ParseError> {
        let parsed = match text.strip_prefix('-') {
            Some(back) => back.parse().map(Self::BeforeHead).ok(),
            None if text == "latest" => Some(Self::BeforeHead(0)),
            None => height(text).map(Self::Height),
        };
        parsed.ok_or(ParseError("write a height (69000000 or 0x41cdb40), latest, or -1000"))
    }
}

/// Height down to which a store is filled below its first one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BackfillTo {
    /// No height below the first one is fetched.
    None,
    /// Backfill as far as retention keeps heights.
    Retained,
    /// Backfill down to this height.
    To(StartAt),
}

impl FromStr for BackfillTo {
    type Err = ParseError;

    fn from_str(text: &str) -> Result<Self, ParseError> {
        match (text, text.parse()) {
            ("none", _) => Ok(Self::None),
            ("retained", _) => Ok(Self::Retained),
            (_, Ok(at @ (StartAt::Height(_) | StartAt::BeforeHead(1..)))) => Ok(Self::To(at)),
            _ => {
                Err(ParseError("write a height (69000000 or 0x41cdb40), -1000, retained, or none"))
            }
        }
    }
}

/// A block that is known to be in the chain.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Anchor {
    /// Height of the block.
    pub height: u64,
    /// Hash of the block.
    pub hash: B256,
}

impl FromStr for Anchor {
    type Err = ParseError;

    fn from_str(text: &str) -> Result<Self, ParseError> {
        let parsed = text.split_once(':').and_then(|(at, hash)| {
            let hash = hash.strip_prefix("0x").filter(|hash| hash.len() == 64)?;
            Some(Self { height: height(at)?, hash: hash.parse().ok()? })
        });
        parsed.ok_or(ParseError("write HEIGHT:HASH, such as 69000000:0x and 64 hexadecimal digits"))
    }
}

/// Trust in an archive of which pages are read.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum ArchiveTrust {
    /// A segment is proven whole before its first answer.
    #[default]
    Prove,
    /// SHA-256 of the manifest.
    Manifest([u8; 32]),
    /// Ed25519 key that signs the manifest.
    Key([u8; 32]),
}

impl FromStr for ArchiveTrust {
    type Err = ParseError;

    fn from_str(text: &str) -> Result<Self, ParseError> {
        // The parser of `B256` takes `0x`, which this form does not have.
        let digest = |text: &str| text.parse::<B256>().ok().filter(|_| text.len() == 64);
        match text.split_once(':') {
            None if text == "prove" => Ok(Self::Prove),
            Some(("sha256", text)) if digest(text).is_some() => {
                Ok(Self::Manifest(digest(text).unwrap_or_default().0))
            }
            Some(("ed25519", text)) if digest(text).is_some() => {
                Ok(Self::Key(digest(text).unwrap_or_default().0))
            }
            _ => Err(ParseError("write prove, or ed25519: or sha256: and 64 hexadecimal digits")),
        }
    }
}

/// Requests a second: a number, or `none` for no limit. The table of bounds has its bounds.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Rate(pub(crate) Option<f64>);

impl FromStr for Rate {
    type Err = ParseError;

    fn from_str(text: &str) -> Result<Self, ParseError> {
        match (text, text.parse::<f64>()) {
            ("none", _) => Ok(Self(None)),
            (_, Ok(rate)) if rate.is_finite() => Ok(Self(Some(rate))),
            _ => Err(ParseError("write a number, or none")),
        }
    }
}

/// Reads a height, in decimal or as 0x and hexadecimal digits.
pub(crate) fn height(text: &str) -> Option<u64> {
    let (digits, radix) = text.strip_prefix("0x").map_or((text, 10), |digits| (digits, 16));
    // `from_str_radix` takes a sign.
    let height = u64::from_str_radix(digits, radix).ok();
    height.filter(|_| !digits.starts_with('+'))
}

/// Bytes for people.
pub(crate) struct Human(pub(crate) u64);

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
        for bad in ["", "-", "--1", "newest", "1.5", "0x", "+1", "0x+1", "99999999999999999999"] {
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
        for bad in ["", "NaN", "inf", "fast"] {
            assert!(bad.parse::<Rate>().is_err(), "{bad}");
        }
    }

    #[test]
    fn bytes_are_written_for_people() {
        assert_eq!(Human(1023).to_string(), "1023 B");
        assert_eq!(Human(1536).to_string(), "1.5 KiB");
        assert_eq!(Human(20 << 30).to_string(), "20.00 GiB");
    }

    #[test]
    fn networks_are_blocks_or_addresses() {
        for text in ["10.0.0.0/8", "fd00::/8", "127.0.0.1", "0.0.0.0/0"] {
            assert!(text.parse::<IpNetwork>().is_ok(), "{text}");
        }
        for text in ["10.0.0.0/33", "host", "", "10.0.0.0/"] {
            assert!(text.parse::<IpNetwork>().is_err(), "{text}");
        }
        assert!("::ffff:10.0.0.1".parse::<IpNetwork>().unwrap_err().to_string().contains("IPv4"));
    }
}
