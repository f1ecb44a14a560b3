//! `neve doctor --plan`: estimates of disk, history, memory and work for the settings in force.
//!
//! The figures are those of docs/operating/size.md, which names the run of each.

use std::time::Duration;

use neve_record::packed::{PACKING_BYTES_MAX, TABLES_BYTES_MAX};

use super::report::Finding;
use crate::config::settings::{Config, UpstreamConfig};
use crate::config::{ArchiveTrust, Endpoint, Human};

/// Blocks of mainnet a day, January 2026.
const BLOCKS_A_DAY: f64 = 75_000.0;
/// Bytes on disk of a block of mainnet with receipts and indexes.
const BLOCK_BYTES: f64 = 114_928.0;
/// Bytes on disk of a packed block.
const PACKED_BLOCK_BYTES: f64 = 4_729.0;
/// Part of a block's bytes that each precompressed coding adds.
const CODING_SHARE: f64 = 0.15;
/// Memory of neve itself while it follows, and of unpacked heights.
const OWN_BYTES: u64 = 64 << 20;
const UNPACKED_HEIGHTS_BYTES: u64 = 16 << 20;
/// Memory of a connection.
const CONNECTION_BYTES: u64 = 18 << 10;
/// CPU time and bytes of a response in the mix of sampled traffic: `bench-scripts/mix`, without a packed height.
const REQUEST_MICROSECONDS: f64 = 8.4;
const RESPONSE_BYTES: f64 = 14_931.0;
/// Blocks a second that catch-up reaches at 5 ms from a node, with 60 requests and 32 MiB in flight.
const CATCH_UP_RATE: f64 = 1_375.0;
/// Blocks a second that a mirror next to its source takes as segments: 178,000 of them in 66 s.
const MIRROR_RATE: f64 = 2_690.0;
/// Memory of a replica that answers below its tail, besides filters and proofs: 64 MiB of reads in flight, 16 of pages
/// that wait for the disk, 32 of tables, 32 of page lists, and the manifest of 1,500 spans.
const REPLICA_BYTES: u64 = (144 << 20) + 10_000_000;
/// Memory of a proof, for each byte of the segment.
const PROOF_FACTOR: u64 = 4;
/// HTTP requests for a height of a node.
const REQUESTS: f64 = 1.0;
/// HTTP requests for a height of an upstream without `eth_getBlockReceipts`, where a batch brings the receipts: 20 a second
/// gave 8.6 blocks.
const PUBLIC_API_REQUESTS: f64 = PUBLIC_API_RATE / 8.6;
/// Calls for a height there, those of a batch one by one: 20 a second gave 0.6 blocks.
const PUBLIC_API_CALLS: f64 = PUBLIC_API_RATE / 0.6;
/// Blocks a second of mainnet at a busy time.
const BUSY_RATE: f64 = 1.15;
/// Requests a second to Avalanche's public API, unless a setting says otherwise.
const PUBLIC_API_RATE: f64 = 20.0;

/// Returns a line for each kind of resource.
pub(super) fn plan(config: &Config) -> Vec<Finding> {
    vec![
        Finding::ok("disk", disk(config)),
        Finding::ok("history", history(config)),
        Finding::ok("memory", memory(config)),
        Finding::ok("locked", locked(config)),
        Finding::ok("requests", requests()),
        Finding::ok("catch-up", catch_up(config)),
    ]
}

/// Bytes of a block with the precompressed forms of the settings.
fn block_bytes(config: &Config) -> f64 {
    let codings = f64::from(u32::try_from(config.fetch.precompress.len()).unwrap_or(0));
    BLOCK_BYTES * (1.0 + CODING_SHARE * codings)
}

fn disk(config: &Config) -> String {
    let (segment, reserve) = (config.store.segment_bytes, config.store.disk_reserve_bytes);
    let Some(kept) = retained(config) else { return disk_of_a_day(config) };
    let (kept, more) = match kept.blocks {
        None => ((kept.bytes, "retained"), 0),
        // Nothing is packed during catch-up.
        Some(blocks) => {
            let unpacked = whole(blocks * block_bytes(config));
            ((kept.bytes, "for blocks of mainnet"), unpacked - kept.bytes)
        }
    };
    let parts = [kept, (segment, "for a segment"), (reserve, "reserved")];
    let parts: Vec<_> = parts.into_iter().chain(parts_of_archive(config)).collect();
    let all = parts.iter().fold(0_u64, |sum, (bytes, _)| sum.saturating_add(*bytes));
    let text = format!("provide {}: {}", Human(all), listed(&parts));
    if more == 0 {
        return text;
    }
    format!("{text}; {} more while neve catches up on all these blocks", Human(more))
}

/// Disk for segments that wait for an archive, and for its pages.
fn parts_of_archive(config: &Config) -> impl Iterator<Item = (u64, &'static str)> {
    let archive = config.archive.as_ref();
    let pages = archive.map(|archive| (archive.cache_bytes, "for pages of the archive"));
    let push = archive.and_then(|archive| archive.push.as_ref());
    let waiting = push.map(|push| (push.unpushed_bytes_max, "that wait for the archive"));
    waiting.into_iter().chain(pages)
}

/// Bytes that retention keeps, and the rule that decides them.
pub(super) struct KeptHeights {
    pub(super) bytes: u64,
    /// Name of its setting.
    pub(super) setting: &'static str,
    /// Blocks of mainnet that the bytes are estimated for; `None` if they are those of a setting.
    pub(super) blocks: Option<f64>,
}

/// Returns the bytes that retention keeps; `None` without any rule.
pub(super) fn retained(config: &Config) -> Option<KeptHeights> {
    if let Some(bytes) = config.retention.bytes {
        // Other bounds can only make it less.
        return Some(KeptHeights { bytes, setting: "--retain-bytes", blocks: None });
    }
    let [aged, counted] = [aged(config), config.retention.blocks.map(float)];
    let blocks = blocks(config)?;
    // The stricter one decides.
    let by_age = aged.is_some_and(|aged| counted.is_none_or(|counted| aged <= counted));
    let setting = if by_age { "--retain-age" } else { "--retain-blocks" };
    Some(KeptHeights { bytes: bytes_of(blocks, config), setting, blocks: Some(blocks) })
}

/// Bytes of a day without a rule of retention.
fn disk_of_a_day(config: &Config) -> String {
    let (bytes, when) = match config.unpacked_bytes {
        Some(_) => (PACKED_BLOCK_BYTES, " once it is packed"),
        None => (block_bytes(config), ""),
    };
    format!("no bound; a day of mainnet takes {}{when}", Human(whole(BLOCKS_A_DAY * bytes)))
}

fn history(config: &Config) -> String {
    let Some(blocks) = blocks(config) else {
        return "no bound; the disk decides".to_owned();
    };
    format!("{} blocks, {:.1} days of mainnet", whole(blocks), blocks / BLOCKS_A_DAY)
}

/// Number of blocks within all bounds of retention.
fn blocks(config: &Config) -> Option<f64> {
    let retention = config.retention;
    let by_bytes = retention.bytes.map(|bytes| blocks_in(bytes, config));
    let by_count = retention.blocks.map(float);
    [by_bytes, aged(config), by_count].into_iter().flatten().reduce(f64::min)
}

/// Number of blocks of mainnet within the bound of age.
fn aged(config: &Config) -> Option<f64> {
    config.retention.age.map(|age| age.as_secs_f64() / 86_400.0 * BLOCKS_A_DAY)
}

/// Number of blocks in so many bytes, the older ones packed if the settings say so.
fn blocks_in(bytes: u64, config: &Config) -> f64 {
    let unpacked = config.unpacked_bytes.map_or(bytes, |unpacked| unpacked.min(bytes));
    let packed = bytes - unpacked;
    float(unpacked) / block_bytes(config) + float(packed) / PACKED_BLOCK_BYTES
}

/// Bytes of so many blocks, the older ones packed if the settings say so: the reverse of [`blocks_in`].
fn bytes_of(blocks: f64, config: &Config) -> u64 {
    let all = blocks * block_bytes(config);
    let unpacked = config.unpacked_bytes.map_or(all, |unpacked| float(unpacked).min(all));
    let packed = (all - unpacked) / block_bytes(config) * PACKED_BLOCK_BYTES;
    whole(unpacked + packed)
}

fn memory(config: &Config) -> String {
    let parts = memory_parts(config);
    let all = parts.iter().fold(0_u64, |sum, (bytes, _)| sum.saturating_add(*bytes));
    format!("at most {} without mapped files: {}", Human(all), listed(&parts))
}

/// Bounds of memory without mapped files. Their sum with default settings is the documented ceiling.
fn memory_parts(config: &Config) -> Vec<(u64, &'static str)> {
    let packs = config.unpacked_bytes;
    let packed = packs.map(|_| TABLES_BYTES_MAX as u64 + UNPACKED_HEIGHTS_BYTES);
    let packing = packs.map(|_| PACKING_BYTES_MAX as u64);
    let archive = config.archive.as_ref();
    let filters = archive.map(|archive| archive.filter_bytes_max);
    // Other trust proves nothing for clients.
    let proving = archive.filter(|archive| archive.trust == ArchiveTrust::Prove);
    let proofs = proving.map(|archive| PROOF_FACTOR * archive.proof_bytes_max);
    let parts = [
        (Some(OWN_BYTES), "neve"),
        (Some(config.limits.client_bytes_total_max as u64), "clients"),
        (Some(config.limits.connections_max as u64 * CONNECTION_BYTES), "connections"),
        (packed, "packed"),
        (packing, "packing"),
        (Some(config.fetch.ingest_bytes_max as u64), "ingest"),
        (filters, "filters of the archive"),
        (archive.map(|_| REPLICA_BYTES), "reads of the archive"),
        (proofs, "proofs of the archive"),
    ];
    parts.into_iter().filter_map(|(bytes, what)| Some((bytes?, what))).collect()
}

/// Names of parts, each with its bytes.
fn listed(parts: &[(u64, &str)]) -> String {
    let part = |(bytes, what): &(u64, &str)| format!("{} {what}", Human(*bytes));
    parts.iter().map(part).collect::<Vec<_>>().join(", ")
}

fn locked(config: &Config) -> String {
    let bytes = config.lock_newest_bytes;
    let seconds = float(bytes) / block_bytes(config) / BLOCKS_A_DAY * 86_400.0;
    format!("{} of the newest blocks, {seconds:.0} s of mainnet", Human(bytes))
}

fn requests() -> String {
    format!(
        "a thousand of the sampled mix, all of unpacked blocks, take {REQUEST_MICROSECONDS:.1} ms of CPU and send {}",
        Human(whole(RESPONSE_BYTES * 1e3))
    )
}

fn catch_up(config: &Config) -> String {
    let UpstreamConfig::Upstream { endpoints, mirror, .. } = &config.source else {
        return "the development chain begins at its first block".to_owned();
    };
    if endpoints.is_empty() {
        return "no upstream: whole segments come from the archive, and nothing newer".to_owned();
    }
    if *mirror {
        let day = time_of_a_day(MIRROR_RATE);
        return format!(
            "{MIRROR_RATE} blocks a second from a mirror source next door; a day of mainnet takes {day}"
        );
    }
    catch_up_by_requests(config, endpoints)
}

/// Says what catch-up reaches over JSON-RPC.
fn catch_up_by_requests(config: &Config, endpoints: &[Endpoint]) -> String {
    let is_public = endpoints.iter().all(Endpoint::is_public);
    let (default, requests) =
        if is_public { (Some(PUBLIC_API_RATE), PUBLIC_API_REQUESTS) } else { (None, REQUESTS) };
    let limit = config.fetch.requests_per_second.unwrap_or(default);
    let rate = limit.map_or(CATCH_UP_RATE, |limit| (limit / requests).min(CATCH_UP_RATE));
    // Slower than mainnet at its busiest, it may never catch up: a time would be a promise.
    if rate < BUSY_RATE {
        return format!("at most {rate:.1} blocks a second; mainnet makes up to {BUSY_RATE}");
    }
    let text = format!(
        "at most {rate:.1} blocks a second; a day of mainnet takes {}",
        time_of_a_day(rate)
    );
    match limit.filter(|_| is_public) {
        Some(limit) => format!("{text}, if the API counts HTTP requests; {}", by_calls(limit)),
        None => text,
    }
}

/// Says what catch-up reaches at an API with such a limit that counts each call of a batch.
fn by_calls(limit: f64) -> String {
    let rate = limit / PUBLIC_API_CALLS;
    let end = if rate < BUSY_RATE {
        format!("; mainnet makes up to {BUSY_RATE}, so neve falls behind")
    } else {
        String::new()
    };
    format!("{rate:.1} blocks a second if it counts each call of a batch{end}")
}

fn time_of_a_day(rate: f64) -> humantime::FormattedDuration {
    humantime::format_duration(Duration::from_secs(whole(BLOCKS_A_DAY / rate)))
}

#[expect(clippy::cast_precision_loss, reason = "estimates with three digits")]
fn float(number: u64) -> f64 {
    number as f64
}

#[expect(clippy::cast_sign_loss, reason = "no estimate is below zero")]
fn whole(number: f64) -> u64 {
    number as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    fn texts(flags: &[&str]) -> String {
        let fixed = ["--config", "none", "--data-dir", "/nowhere"];
        let (config, _) = Config::from_flags(&[&fixed, flags].concat()).unwrap();
        super::super::report::text(&plan(&config), false)
    }

    const NODE: [&str; 2] = ["--upstream", "http://127.0.0.1:9650"];

    #[test]
    fn defaults_have_the_figures_of_the_page() {
        let text = texts(&NODE);
        for line in [
            "provide 21.12 GiB: 20.00 GiB retained, 128.0 MiB for a segment, 1.00 GiB reserved",
            "4105670 blocks, 54.7 days of mainnet",
            "16.0 MiB of the newest blocks, 168 s of mainnet",
            "a thousand of the sampled mix, all of unpacked blocks, take 8.4 ms of CPU and send 14.2 MiB",
            "at most 1375.0 blocks a second; a day of mainnet takes 54s",
        ] {
            assert!(text.contains(line), "{line}\n{text}");
        }
    }

    #[test]
    fn archive_needs_room_for_what_waits_and_for_pages() {
        let archive = ["--archive", "file:///archive", "--archive-push"];
        let text = texts(&[&NODE[..], &archive].concat());
        let waits = "16.00 GiB that wait for the archive, 10.00 GiB for pages of the archive";
        assert!(text.contains("provide 47.12 GiB: ") && text.contains(waits), "{text}");
    }

    #[test]
    fn archive_alone_and_mirrors_have_no_rate_of_a_node() {
        let anchor = format!("7:0x{}", "ab".repeat(32));
        let alone = texts(&["--archive", "file:///archive", "--archive-anchor", &anchor]);
        assert!(alone.contains("no upstream: whole segments come from the archive"), "{alone}");
        assert!(!alone.contains("blocks a second"), "{alone}");
        let mirror = texts(&["--mirror-from", "http://127.0.0.1:8545"]);
        let line =
            "2690 blocks a second from a mirror source next door; a day of mainnet takes 27s";
        assert!(mirror.contains(line), "{mirror}");
        let dev = super::super::report::text(
            &plan(&Config::from_flags(&["--config", "none", "--dev"]).unwrap().0),
            false,
        );
        assert!(dev.contains("the development chain begins at its first block"), "{dev}");
    }

    /// The ceiling with default settings, in whole MiB, is the one of each page and of the alert.
    #[test]
    fn ceiling_of_memory_is_the_same_everywhere() {
        let fixed = ["--config", "none", "--data-dir", "/nowhere"];
        let (config, _) = Config::from_flags(&[&fixed[..], &NODE].concat()).unwrap();
        let sum: u64 = memory_parts(&config).iter().map(|(bytes, _)| bytes).sum();
        let mib = sum.div_ceil(1 << 20);
        for page in [
            include_str!("../../../README.md"),
            include_str!("../../../docs/SECURITY.md"),
            include_str!("../../../docs/RELIABILITY.md"),
        ] {
            assert!(page.contains(&format!("{mib} MiB")), "{mib} MiB: {page:.80}");
        }
        let size = include_str!("../../../docs/operating/size.md");
        let packing = PACKING_BYTES_MAX >> 20;
        for row in [
            format!("| sum | {mib} MiB |"),
            format!("| a range that is packed | {packing} MiB |"),
            memory(&config),
        ] {
            assert!(size.contains(&row), "{row}");
        }
        let rules = include_str!("../../../packaging/prometheus/neve.rules.yml");
        assert!(rules.contains(&format!("neve_memory_anonymous_bytes > {}", mib << 20)), "{mib}");
    }

    #[test]
    fn memory_has_the_parts_of_an_archive() {
        let text = texts(&[&NODE[..], &["--archive", "file:///archive"]].concat());
        let parts = "32.0 MiB ingest, 4.00 GiB filters of the archive, 153.5 MiB reads of the archive, 96.0 MiB proofs of the archive\n";
        assert!(text.contains(parts), "{text}");
        let larger = texts(
            &[&NODE[..], &["--archive", "file:///archive", "--archive-proof-bytes-max", "256MiB"]]
                .concat(),
        );
        assert!(larger.contains(", 1.00 GiB proofs of the archive\n"), "{larger}");
        let trust = format!("--archive-trust=ed25519:{}", "ab".repeat(32));
        let trusting = texts(&[&NODE[..], &["--archive", "file:///archive", &trust]].concat());
        assert!(!trusting.contains("proofs"), "{trusting}");
        let size = include_str!("../../../docs/operating/size.md");
        assert!(
            size.contains("Its other bounds add 240 MiB"),
            "these and the manifest are 249.5 MiB"
        );
        assert!(!texts(&NODE).contains("of the archive"));
    }

    #[test]
    fn age_and_number_of_blocks_bound_the_disk() {
        let plan_of = |flags: &[&str]| texts(&[&NODE[..], flags].concat());
        let week = plan_of(&["--retain-age", "7d"]);
        let line = "provide 5.35 GiB: 4.23 GiB for blocks of mainnet, 128.0 MiB for a segment, \
                    1.00 GiB reserved; 51.96 GiB more while neve catches up on all these blocks\n";
        assert!(week.contains(line), "{week}");
        assert_eq!(week, plan_of(&["--retain-blocks", "525000"]));
        let unpacked = plan_of(&["--retain-age", "7d", "--unpacked-bytes", "none"]);
        let line = "provide 57.32 GiB: 56.19 GiB for blocks of mainnet, 128.0 MiB for a segment, \
                    1.00 GiB reserved\n";
        assert!(unpacked.contains(line), "{unpacked}");
        let hour = plan_of(&["--retain-age", "1h"]);
        assert!(
            hour.contains("342.5 MiB for blocks of mainnet") && !hour.contains("more"),
            "{hour}"
        );
        let free = plan_of(&["--retain-bytes", "none"]);
        let line = "no bound; a day of mainnet takes 338.2 MiB once it is packed\n";
        assert!(free.contains(line), "{free}");
    }

    #[test]
    fn settings_change_the_plan() {
        let unpacked = [&NODE[..], &["--unpacked-bytes", "none"]].concat();
        let plain = texts(&unpacked);
        assert!(plain.contains("186854 blocks, 2.5 days of mainnet"), "{plain}");
        let coded = texts(&[&unpacked[..], &["--precompress", "gzip,zstd"]].concat());
        assert!(coded.contains("1.9 days of mainnet"), "{coded}");
        let aged = texts(&[&NODE[..], &["--retain-age", "1d"]].concat());
        assert!(aged.contains("75000 blocks, 1.0 days"), "{aged}");
        let free = texts(&[&unpacked[..], &["--retain-bytes", "none"]].concat());
        assert!(free.contains("no bound; a day of mainnet takes 8.03 GiB\n"), "{free}");
        let paced = texts(&[&NODE[..], &["--upstream-requests-per-second", "20"]].concat());
        assert!(
            paced.contains("20.0 blocks a second; a day of mainnet takes 1h 2m 30s"),
            "{paced}"
        );
        let slow = texts(&[&NODE[..], &["--upstream-requests-per-second", "1"]].concat());
        assert!(slow.contains("1.0 blocks a second; mainnet makes up to 1.15"), "{slow}");
        let public = texts(&["--network", "mainnet"]);
        let line = "at most 8.6 blocks a second; a day of mainnet takes 2h 25m 20s, if the API counts HTTP \
                    requests; 0.6 blocks a second if it counts each call of a batch; mainnet makes up to 1.15, \
                    so neve falls behind\n";
        assert!(public.contains(line), "{public}");
        let size = include_str!("../../../docs/operating/size.md");
        for figure in ["8.6 blocks a second from a development node", "0.6 blocks a second"] {
            assert!(size.contains(figure), "{figure}");
        }
        let paid = texts(&["--network", "mainnet", "--upstream-requests-per-second", "200"]);
        let line = "6.0 blocks a second if it counts each call of a batch\n";
        assert!(paid.contains(line), "{paid}");
    }
}
