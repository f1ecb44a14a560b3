//! The store on disk, and its retention.

use std::path::PathBuf;

use neve_record::coding::Coding;
use neve_store::{Options, Retention};

use crate::config::error::ConfigError;
use crate::config::setting::{Group, Setting, bytes, count, duration, text};
use crate::config::units::{ByteCount, DurationArg};
use crate::config::values::Values;

/// Settings of the store.
pub(super) const STORE: Group = Group {
    title: "Store",
    settings: &[
        Setting::new(
            "data-dir",
            text::<PathBuf>("DIR"),
            "Directory of the store. neve creates it if it is missing.",
        )
        .brief(),
        Setting::new(
            "segment-bytes",
            bytes("64KiB", "64GiB"),
            "Bytes of records in a segment file. Its index takes 64 bytes a block more.",
        )
        .otherwise("128MiB, less with a small --retain-bytes"),
        Setting::new(
            "unpacked-bytes",
            bytes("0B", "1024TiB").or_none("BYTES|none"),
            "Newest bytes of the store that stay unpacked. neve packs older whole ranges of \
             settled blocks, which takes a fraction of the disk and more CPU time a read; `none` \
             packs nothing.",
        )
        .or("2GiB"),
        Setting::new(
            "segment-blocks",
            count("1", "1048576"),
            "Blocks of a segment file, which \
             also ends before each multiple of 1024.",
        )
        .or("1024"),
        Setting::new(
            "disk-reserve-bytes",
            bytes("0B", "1024TiB").or_none("BYTES|none"),
            "Bytes that stay free on the disk. Below it: neve stops storing.",
        )
        .or("1GiB"),
        Setting::new(
            "lock-newest-bytes",
            bytes("2MiB", "1TiB").or_none("BYTES|none"),
            "Newest bytes of the store that stay in memory once they were read. The kernel's \
             limit on locked memory may allow fewer.",
        )
        .or("16MiB"),
        Setting::new(
            "precompress",
            text::<String>("gzip,zstd|none").many(),
            "Content codings that neve makes of large responses at ingest, for clients that \
             accept them. Each takes about a seventh more disk.",
        )
        .or("none"),
        Setting::new(
            "scrub-bytes-per-second",
            bytes("64KiB", "1TiB").or_none("BYTES|none"),
            "Pace at which neve reads stored blocks again and compares them with their checksums. \
             It fetches damaged ones again.",
        )
        .or("8MiB")
        .reloads(),
        Setting::new(
            "background-nice",
            count("0", "19"),
            "Nice value of the threads that pack, scrub and push to an archive. With 19 they get \
             about 1 % of a CPU that another program uses up.",
        )
        .or("19"),
        Setting::new(
            "fsync-interval",
            duration("1ms", "1h"),
            "Time between two fsyncs of new blocks. A power failure loses at most the blocks of \
             this time.",
        )
        .or("1s"),
    ],
};

/// Settings of retention.
pub(super) const RETENTION: Group = Group {
    title: "Retention",
    settings: &[
        Setting::new(
            "retain-bytes",
            bytes("128KiB", "1024TiB").or_none("BYTES|none"),
            "Bytes of disk to use. neve may exceed them by at most one segment, then deletes the oldest \
             segments.",
        )
        .otherwise("20GiB if no other bound is given")
        .brief(),
        Setting::new(
            "retain-blocks",
            count("1", "1000000000000000"),
            "Newest blocks to keep. Beyond them neve deletes whole segments; of several bounds \
             the strictest holds.",
        ),
        Setting::new(
            "retain-age",
            duration("1s", "36500d"),
            "Age of blocks to keep. Beyond it neve deletes whole segments; of several bounds \
             the strictest holds.",
        ),
    ],
};

/// With no bound given, a bounded store all the same: seven weeks of mainnet in 2026.
const RETAIN_BYTES_DEFAULT: u64 = 20 << 30;
/// Mainnet fills one in about half an hour.
const SEGMENT_BYTES_DEFAULT: u64 = 128 << 20;
/// A bounded store has at least so many segments, so that evicting one is a small step.
const SEGMENTS_MIN: u64 = 16;

/// Returns the rule of retention.
pub(super) fn retention(values: &Values) -> Result<Retention, ConfigError> {
    let blocks = values.get("retain-blocks")?;
    let age = values.get("retain-age")?.map(|DurationArg(age)| age);
    let bounded = blocks.is_some() || age.is_some();
    // Either other rule bounds the disk by what the operator knows: no bound in bytes is added.
    let default = if bounded { None } else { Some(RETAIN_BYTES_DEFAULT) };
    let bytes = values.get("retain-bytes")?.map_or(default, |ByteCount(bytes)| bytes);
    Ok(Retention { blocks, bytes, age })
}

/// Returns the options of the store.
pub(super) fn options(values: &Values, retention: Retention) -> Result<Options, ConfigError> {
    // Whole segments are evicted: few large ones would drop much of a small store at once.
    let share = retention.bytes.map_or(u64::MAX, |bytes| bytes / SEGMENTS_MIN);
    let default = SEGMENT_BYTES_DEFAULT.min(share).max(Options::SEGMENT_BYTES_MIN);
    let given = values.get("segment-bytes")?.and_then(|ByteCount(bytes)| bytes);
    let segment_bytes = given.unwrap_or(default);
    if retention.bytes.is_some_and(|bytes| bytes < 2 * segment_bytes) {
        let why = format!(
            "too small; allowed: {} or more, which is two segments of --segment-bytes, or none",
            2 * segment_bytes
        );
        return values.refuse("retain-bytes", why);
    }
    let ByteCount(reserve) = values.of("disk-reserve-bytes")?;
    Ok(Options {
        segment_blocks: values.count("segment-blocks")?,
        segment_bytes,
        disk_reserve_bytes: reserve.unwrap_or(0),
        expected: None,
    })
}

/// Returns the content codings to make at ingest.
pub(super) fn codings(values: &Values) -> Result<&'static [Coding], ConfigError> {
    let names: Vec<&str> = values.texts("precompress").iter().map(String::as_str).collect();
    Ok(match names[..] {
        ["none"] => &[],
        ["gzip"] => &[Coding::Gzip],
        ["zstd"] => &[Coding::Zstd],
        ["gzip", "zstd"] | ["zstd", "gzip"] => &Coding::ALL,
        _ => return values.refuse("precompress", "allowed: gzip, zstd, gzip,zstd, or none"),
    })
}
