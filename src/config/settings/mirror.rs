//! Mirrors of this neve, the neve that it mirrors, and the archive that it takes segments from.

use std::path::PathBuf;

use neve_store::Retention;

use super::store::retention;
use crate::config::error::ConfigError;
use crate::config::setting::{Group, SWITCH, Setting, bytes, count, text};
use crate::config::units::{Anchor, ArchiveEndpoint, ArchiveTrust, ArchiveUrl, ByteCount};
use crate::config::values::Values;

/// Settings of mirrors.
pub(super) const MIRROR: Group = Group {
    title: "Mirror",
    settings: &[
        Setting::new(
            "mirror-from",
            text::<String>("URL").secret(),
            "Another neve to copy, which runs with --serve-mirrors. Its segments come as files, its \
             records as a stream, the rest over JSON-RPC, and neve proves all of it.",
        )
        .brief()
        .reloads(),
        Setting::new(
            "serve-mirrors",
            SWITCH,
            "Give segments and records to mirrors, under /mirror/v1/ of the main address.",
        ),
        Setting::new(
            "mirrors-max",
            count("1", "10000"),
            "Downloads and streams of mirrors that may be open. Beyond it: HTTP 503.",
        )
        .or("16"),
    ],
};

/// Settings of the archive.
pub(super) const ARCHIVE: Group = Group {
    title: "Archive",
    settings: &[
        Setting::new(
            "archive",
            text::<ArchiveUrl>("URL"),
            "An archive that history comes from, in whole segments: s3://BUCKET/PREFIX or file:///DIR. \
             neve proves all of it.",
        ),
        Setting::new(
            "archive-endpoint",
            text::<ArchiveEndpoint>("URL"),
            "Address of the S3 API, if it is not the one of AWS.",
        ),
        Setting::new(
            "archive-anchor",
            text::<Anchor>("HEIGHT:HASH"),
            "A block that is known to be in the chain: without an upstream neve serves it and what \
             the archive has below it. With one neve proves archived heights from it downward, once a \
             client asks for one there.",
        ),
        Setting::new(
            "archive-trust",
            text::<ArchiveTrust>("WORD"),
            "Archived heights below the served range that neve answers. `prove`: those proven here, one segment \
             more for each request below them; ed25519:KEY: all of a manifest that the key signed; \
             sha256:DIGEST: all of the manifest with the digest, or of one that descends from it.",
        )
        .or("prove"),
        Setting::new(
            "archive-proof-bytes-max",
            bytes("64KiB", "256MiB"),
            "Bytes of an archived segment that neve proves for clients with --archive-trust prove; a proof \
             takes up to four times as much memory. Beyond it: its heights and all below them are misses.",
        )
        .or("24MiB"),
        Setting::new(
            "archive-cache-bytes",
            bytes("4MiB", "1024TiB"),
            "Disk for pages of the archive. Beyond it: neve removes the least recently used.",
        )
        .or("10GiB"),
        Setting::new(
            "archive-filter-bytes-max",
            bytes("1MiB", "1TiB"),
            "Memory for filters of hashes in the archive: 2.5 GB for a year. A hash below the heights that \
             they cover is a miss.",
        )
        .or("4GiB"),
        Setting::new(
            "archive-reads-per-second",
            count("1", "1000000"),
            "Reads from the archive a second that requests of clients may cause; one address may \
             cause half of them. Beyond it: HTTP 421 with Retry-After.",
        )
        .or("1000"),
        Setting::new(
            "archive-read-bytes-per-second",
            bytes("1MiB", "1TiB"),
            "Bytes from the archive a second that requests of clients may cause; one address may cause \
             half of them. Beyond it: HTTP 421 with Retry-After.",
        )
        .or("128MiB"),
        Setting::new(
            "archive-logs-reads-max",
            count("4", "65536"),
            "Reads from the archive that one eth_getLogs may cause. Beyond it: an error that names \
             blocks that would pass.",
        )
        .or("256"),
        Setting::new(
            "archive-push",
            SWITCH,
            "Push packed files to the archive as they appear. Eviction waits for segments that are not \
             there yet, see --retain-unpushed-bytes.",
        ),
        Setting::new(
            "archive-sign-key",
            text::<PathBuf>("FILE"),
            "Key that signs the manifest with --archive-push: an Ed25519 key in PKCS#8, PEM.",
        ),
        Setting::new(
            "archive-single-writer",
            SWITCH,
            "Push to a store that ignores the conditions of a PUT. You promise that there is no other writer.",
        ),
        Setting::new(
            "retain-unpushed-bytes",
            bytes("0B", "1024TiB"),
            "Disk for segments that the retention drops and that wait for the archive. Beyond it, and on a \
             full disk, neve deletes the oldest without a copy.",
        )
        .or("16GiB"),
    ],
};

/// Archive that segments come from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ArchiveConfig {
    /// `s3://BUCKET/PREFIX` or `file:///DIR`.
    pub url: String,
    /// Address of the S3 API, if it is not the one of AWS.
    pub endpoint: Option<String>,
    /// Block from which the archive is proven where no upstream is.
    pub anchor: Option<Anchor>,
    /// Trust in what is read page by page.
    pub trust: ArchiveTrust,
    /// Bytes of a segment that is proven for clients.
    pub proof_bytes_max: u64,
    /// Disk for pages.
    pub cache_bytes: u64,
    /// Memory for filters of hashes.
    pub filter_bytes_max: u64,
    /// Reads a second for clients.
    pub reads_per_second: u32,
    /// Bytes a second for clients.
    pub read_bytes_per_second: u64,
    /// Reads for one call of `eth_getLogs`.
    pub logs_reads_max: usize,
    /// Pushing of packed files, if they are pushed.
    pub push: Option<PushConfig>,
}

/// Pushing of packed files to the archive.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct PushConfig {
    /// Key that signs the manifest.
    pub sign_key: Option<PathBuf>,
    /// True if no other writer is there.
    pub is_single: bool,
    /// Bytes of segments without a copy that eviction holds back.
    pub unpushed_bytes_max: u64,
}

impl PushConfig {
    fn of(values: &Values) -> Result<Option<Self>, ConfigError> {
        if !values.switch("archive-push") {
            return Ok(None);
        }
        let unpacked: ByteCount = values.of("unpacked-bytes")?;
        let Some(unpacked) = unpacked.0 else {
            let why = "pushes packed files, and --unpacked-bytes none packs nothing; give a size there, for \
                       example 2GiB, or leave --archive-push out";
            return values.refuse("archive-push", why);
        };
        let unpushed_bytes_max = values.bytes("retain-unpushed-bytes")? as u64;
        check_retention(values, unpacked, unpushed_bytes_max)?;
        let (sign_key, is_single) =
            (values.get("archive-sign-key")?, values.switch("archive-single-writer"));
        Ok(Some(Self { sign_key, is_single, unpushed_bytes_max }))
    }
}

/// Refuses a retention that evicts segments before they are packed.
fn check_retention(
    values: &Values,
    unpacked: u64,
    unpushed_bytes_max: u64,
) -> Result<(), ConfigError> {
    let Retention { blocks, bytes, age } = retention(values)?;
    let is_bounded_otherwise = blocks.is_some() || age.is_some();
    // The bytes of a number or an age of blocks are not known: they may be none.
    let retained = if is_bounded_otherwise { 0 } else { bytes.unwrap_or(u64::MAX) };
    // No segment would live until it is packed, and nothing would ever be pushed.
    if unpacked > 0 && retained.saturating_add(unpushed_bytes_max) <= unpacked {
        let why = if is_bounded_otherwise {
            "pushes packed files, and --retain-blocks or --retain-age may evict segments before they are \
             packed; give --unpacked-bytes less than --retain-unpushed-bytes"
        } else {
            "pushes packed files, and segments would be evicted before they are packed; give \
             --unpacked-bytes less than --retain-bytes"
        };
        return values.refuse("archive-push", why);
    }
    Ok(())
}

impl ArchiveConfig {
    pub(super) fn of(values: &Values) -> Result<Option<Self>, ConfigError> {
        let Some(url) = values.get("archive")? else { return Self::none(values) };
        // The setting is known also without the feature, so that the error can name it.
        if cfg!(not(feature = "archive")) {
            return values.refuse("archive", "this neve was built without the feature `archive`");
        }
        Ok(Some(Self {
            url,
            endpoint: values.get("archive-endpoint")?,
            anchor: values.get("archive-anchor")?,
            trust: values.get("archive-trust")?.unwrap_or_default(),
            proof_bytes_max: values.bytes("archive-proof-bytes-max")? as u64,
            cache_bytes: values.bytes("archive-cache-bytes")? as u64,
            filter_bytes_max: values.bytes("archive-filter-bytes-max")? as u64,
            push: PushConfig::of(values)?,
            reads_per_second: values.count("archive-reads-per-second")?,
            read_bytes_per_second: values.bytes("archive-read-bytes-per-second")? as u64,
            logs_reads_max: values.count::<u32>("archive-logs-reads-max")? as usize,
        }))
    }

    /// Returns no archive, to which nothing can be pushed.
    fn none(values: &Values) -> Result<Option<Self>, ConfigError> {
        if values.switch("archive-push") {
            return values.refuse("archive-push", "needs --archive URL, to push there");
        }
        Ok(None)
    }
}
