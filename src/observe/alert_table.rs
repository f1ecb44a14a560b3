//! The table of alerts. The rules for Prometheus, their test and docs/reference/alerts.md come from it.

/// Urgency of an alert.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Severity {
    /// Clients notice, or soon will: wakes the operator on call.
    Page,
    /// An operator should look at it within a day.
    Ticket,
}

impl Severity {
    pub(super) fn word(self) -> &'static str {
        match self {
            Self::Page => "page",
            Self::Ticket => "ticket",
        }
    }
}

/// An alert: its Prometheus rule and its page in the run-book.
pub(super) struct Alert {
    pub name: &'static str,
    pub severity: Severity,
    /// Expression of Prometheus.
    pub expr: &'static str,
    /// Time for which the expression must hold.
    pub hold: &'static str,
    /// Meaning, as one sentence.
    pub summary: &'static str,
    /// Steps for the person who is alerted.
    pub steps: &'static [&'static str],
    /// Series that make it fire within an hour, in promtool's notation, a value a minute.
    pub fires: &'static [(&'static str, &'static str)],
}

macro_rules! alerts {
    ($($severity:ident $name:literal for $hold:literal if $expr:literal: $summary:literal
        [$($step:literal),* $(,)?] fires [$(($series:literal, $values:literal)),* $(,)?])*) => {
        &[$(Alert {
            name: $name,
            severity: Severity::$severity,
            expr: $expr,
            hold: $hold,
            summary: $summary,
            steps: &[$($step),*],
            fires: &[$(($series, $values)),*],
        }),*]
    };
}

/// Every alert that neve ships a rule for.
pub(super) const ALERTS: &[Alert] = alerts! {
    Page "NeveDown" for "1m"
        if "up{job=\"neve\"} == 0":
        "Prometheus cannot scrape neve."
        [
            "`systemctl status neve` and `journalctl -u neve -n 50` say why it ended.",
            "If it runs, compare `--admin-listen` with the target of the scrape.",
        ]
        fires [("up{job=\"neve\", instance=\"a\"}", "0x60")]
    Page "NeveBehind" for "1m"
        if "neve_lag_heights > 10":
        "neve serves a head that is over 10 heights below the upstream's."
        [
            "During catch-up after a start this is usual: `backfill` and `blocks.lag` of `/health` shrink.",
            "Otherwise check the errors of the upstream: `neve_upstream_call_errors_total` by reason.",
            "Check the disk: if it is slow, `neve_ingest_stage_seconds_total{stage=\"write\"}` grows by nearly a second each second.",
        ]
        fires [("neve_lag_heights{job=\"neve\", instance=\"a\"}", "11x60")]
    Page "NeveUpstreamSilent" for "1m"
        if "neve_upstream_silence_seconds > 60":
        "No upstream has responded for a minute."
        [
            "Request `eth_blockNumber` from the upstream by hand, from the machine of neve.",
            "`upstreams` of `/health` has the last error of each.",
            "neve follows again as soon as an upstream responds.",
        ]
        fires [("neve_upstream_silence_seconds{job=\"neve\", instance=\"a\"}", "61x60")]
    Page "NeveHeadOld" for "1m"
        if "neve_head_age_seconds > 60":
        "The newest served block is over a minute old."
        [
            "If `neve_lag_heights` is 0, the chain makes no blocks, or no upstream gets them: compare with another node.",
            "Compare the clock with a time server: neve computes the age by the clock of this machine.",
            "On a chain that may be quiet for minutes, remove this alert.",
        ]
        fires [("neve_head_age_seconds{job=\"neve\", instance=\"a\"}", "61x60")]
    Page "NeveNotWriting" for "1m"
        if "neve_store_writable == 0":
        "neve stores no new blocks: the disk is full, or a write failed."
        [
            "If the log says `disk nearly full`, free some space, and neve stores again. Or lower `--retain-bytes` or `--retain-age`, and restart neve.",
            "If it says `writer stops`, check the disk (`dmesg`), then restart neve.",
        ]
        fires [("neve_store_writable{job=\"neve\", instance=\"a\"}", "0x60")]
    Ticket "NeveDiskFills" for "10m"
        if "neve_disk_free_bytes < 2147483648":
        "The file system with the data directory has under 2 GiB left."
        [
            "neve stops storing at `--disk-reserve-bytes` (1 GiB). It keeps its own files below `--retain-bytes`; with `--retain-age` alone they \
             grow with the blocks.",
            "Find what else fills the file system, or lower `--retain-bytes` or `--retain-age`, and restart neve.",
        ]
        fires [("neve_disk_free_bytes{job=\"neve\", instance=\"a\"}", "2147483647x60")]
    Ticket "NeveUpgradeUnknown" for "0m"
        if "neve_upstream_unknown_upgrade_seconds < 5184000":
        "A node has an upgrade scheduled within 60 days that this neve does not know."
        [
            "The log names it (`upgrade unknown to this neve`), and `neve doctor` too.",
            "Install a neve that knows it before that time: after it, neve may reject blocks.",
            "`neve_upstream_unknown_upgrade_seconds` has the time left.",
        ]
        fires [("neve_upstream_unknown_upgrade_seconds{job=\"neve\", instance=\"a\"}", "5183999x60")]
    Ticket "NeveFalseData" for "0m"
        if "sum by (job, instance) (neve_blocks_rejected_total) - \
            (sum by (job, instance) (neve_blocks_rejected_total offset 10m) or \
            sum by (job, instance) (neve_blocks_rejected_total) * 0) > 0":
        "An upstream sent a block or receipts that fail a proof. Clients did not see them."
        [
            "The log line `upstream data rejected` names the upstream, the height and the proof. `segment rejected` names \
             the mirror source or the archive.",
            "Compare the file under `evidence/` with another node.",
            "Replace the upstream if the block is wrong there only. Check an archive by `neve archive verify --prove`.",
        ]
        fires [("neve_blocks_rejected_total{job=\"neve\", instance=\"a\", reason=\"parent_link\"}", "_x49 1x10")]
    Page "NeveBlocksWithdrawn" for "0m"
        if "increase(neve_blocks_withdrawn_total[10m]) > 0":
        "A header disproved receipts that neve had served, and neve withdrew those heights."
        [
            "The log line `withdrawing unproven heights` names the upstream and the heights.",
            "Distrust that upstream: its receipts were false. `--upstream-quorum 2` compares two upstreams.",
        ]
        fires [("neve_blocks_withdrawn_total{job=\"neve\", instance=\"a\"}", "0x49 1x10")]
    Ticket "NeveSettlementStops" for "5m"
        if "neve_unsettled_heights > 100":
        "Headers have not committed to the receipts of the newest 100 heights."
        [
            "On a chain before Helicon this cannot happen: report it.",
            "Otherwise execution of the network is behind. Compare with another node.",
        ]
        fires [("neve_unsettled_heights{job=\"neve\", instance=\"a\"}", "101x60")]
    Ticket "NeveUpstreamDown" for "5m"
        if "neve_upstream_up == 0":
        "neve does not fetch from one of its upstreams."
        [
            "`upstreams` of `/health` has its state and its last error.",
            "`neve_upstream_faults_total` counts the reasons.",
        ]
        fires [("neve_upstream_up{job=\"neve\", instance=\"a\", upstream=\"http://node:9650\"}", "0x60")]
    Ticket "NeveUpstreamsDisagree" for "0m"
        if "increase(neve_upstream_disagreements_total[10m]) > 0":
        "Two upstreams have different blocks at one height. neve serves neither."
        ["The log line `upstreams disagree` has both hashes. Ask a third node which one is right."]
        fires [("neve_upstream_disagreements_total{job=\"neve\", instance=\"a\"}", "0x49 1x10")]
    Ticket "NeveDamage" for "0m"
        if "increase(neve_store_damaged_records_total[10m]) > 0":
        "The disk returned other bytes than neve had written. Clients get a miss for that height."
        [
            "neve fetches the record again: see `neve_store_repaired_records_total`.",
            "Check the disk and the memory: `dmesg`, `smartctl -a`.",
        ]
        fires [("neve_store_damaged_records_total{job=\"neve\", instance=\"a\"}", "0x49 1x10")]
    Ticket "NeveNotRepaired" for "1h"
        if "neve_store_unrepaired_records > 0":
        "Damaged records are still misses after an hour."
        [
            "No upstream has these heights, or they are not settled: add an upstream with older blocks.",
            "Or wait: neve deletes them by the retention rule.",
        ]
        fires [("neve_store_unrepaired_records{job=\"neve\", instance=\"a\"}", "1x120")]
    Ticket "NeveQuarantine" for "1h"
        if "neve_store_gap_heights > 0 or neve_store_quarantined_files > 0":
        "Segment files are missing or damaged, and the gap is not filled after an hour."
        [
            "`storage.gap` of `/health` names the heights. Upstreams must have them: add one with older blocks.",
            "Remove quarantined files once `storage.gap` is null and `neve verify` has no findings.",
        ]
        fires [("neve_store_gap_heights{job=\"neve\", instance=\"a\"}", "20x120")]
    Page "NeveLostFiles" for "0m"
        if "increase(neve_store_lost_files_total[10m]) > 0":
        "Another program removes segment files of the running store."
        ["Find that program and stop it. neve wrote the files again, because it had them mapped."]
        fires [("neve_store_lost_files_total{job=\"neve\", instance=\"a\"}", "0x49 1x10")]
    Ticket "NeveClientMemory" for "5m"
        if "sum by (job, instance) (rate(neve_client_refused_reservations_total[5m])) > 0":
        "Clients use up the memory that neve gives them, and some get 503 or 1013."
        [
            "The label `reason` says which memory: `unread` is clients that do not read their responses.",
            "Behind a front set `--trusted-proxies`, so that each client has its own share.",
            "If the clients do nothing wrong, raise `--client-bytes-total-max`.",
        ]
        fires [("neve_client_refused_reservations_total{job=\"neve\", instance=\"a\", reason=\"unread\"}", "0+1x60")]
    Ticket "NeveOverloaded" for "5m"
        if "sum by (job, instance) (rate(neve_offload_refused_requests_total[5m])) > 0":
        "The queues for searches or reads from the disk are full, and some requests get 503."
        [
            "`pool=\"search\"`: too many `eth_getLogs`. Behind a front set `--trusted-proxies`.",
            "`pool=\"cold_read\"`: the disk is slow, or memory is short for the blocks that clients request.",
        ]
        fires [("neve_offload_refused_requests_total{job=\"neve\", instance=\"a\", pool=\"search\"}", "0+1x60")]
    Ticket "NeveMisses" for "15m"
        if "sum by (job, instance) (rate(neve_rpc_calls_total{outcome=\"miss\"}[5m])) / \
            sum by (job, instance) (rate(neve_rpc_calls_total[5m])) > 0.5":
        "Over half of the calls are misses, so a full node answers them."
        [
            "`neve_rpc_calls_total` by method says which calls. Route methods that neve does not serve to the node.",
            "If clients request blocks below `neve_first_height`, raise `--retain-bytes` or `--retain-age`.",
        ]
        fires [
            ("neve_rpc_calls_total{job=\"neve\", instance=\"a\", method=\"eth_call\", outcome=\"miss\"}", "0+60x60"),
            ("neve_rpc_calls_total{job=\"neve\", instance=\"a\", method=\"eth_chainId\", outcome=\"hit\"}", "0+50x60"),
        ]
    Ticket "NeveMemory" for "10m"
        if "neve_memory_anonymous_bytes > 721420288":
        "neve holds over 688 MiB of memory, which is the ceiling with default settings."
        [
            "`neve doctor --plan` prints the ceiling of other settings: make it the bound of this alert.",
            "Otherwise report it, with `/metrics` of that time.",
        ]
        fires [("neve_memory_anonymous_bytes{job=\"neve\", instance=\"a\"}", "721420289x60")]
    Ticket "NeveWaitsForDisk" for "10m"
        if "rate(neve_major_page_faults_total[5m]) > 10":
        "Threads of neve wait for the disk, so responses are slow."
        [
            "Memory is short: find the other programs that use it. [Size](../operating/size.md#locked-memory) says what neve locks.",
            "If the log says that locking is refused, raise `LimitMEMLOCK`.",
        ]
        fires [("neve_major_page_faults_total{job=\"neve\", instance=\"a\"}", "0+1200x60")]
    Ticket "NeveAccessLogDropped" for "0m"
        if "sum by (job, instance) (increase(neve_access_log_lines_total{outcome=\"dropped\"}[10m])) > 0":
        "The access log lacks lines: its queue was full."
        [
            "The disk of the log is slow, or a pipe is not read: `iostat -x 1`, or look at the reader of standard output.",
            "For short peaks raise `--access-log-queue-bytes-max`. Dropped lines are lost; responses are not delayed.",
        ]
        fires [
            ("neve_access_log_lines_total{job=\"neve\", instance=\"a\", outcome=\"dropped\"}", "0x49 1x10"),
            ("neve_access_log_lines_total{job=\"neve\", instance=\"a\", outcome=\"failed\"}", "0x60"),
        ]
    Ticket "NeveAccessLogFailed" for "0m"
        if "sum by (job, instance) (increase(neve_access_log_lines_total{outcome=\"failed\"}[10m])) > 0":
        "The access log lacks lines: they could not be written."
        [
            "The log names the error at most once a minute: `journalctl -u neve -g 'access log'`.",
            "Make room on the disk, or give the user of neve the right to write the file.",
            "neve tries to write each new line: `systemctl reload neve` is needed only if the file was moved.",
        ]
        fires [
            ("neve_access_log_lines_total{job=\"neve\", instance=\"a\", outcome=\"failed\"}", "0x49 1x10"),
            ("neve_access_log_lines_total{job=\"neve\", instance=\"a\", outcome=\"dropped\"}", "0x60"),
        ]
    Ticket "NeveArchivePushFails" for "15m"
        if "neve_archive_push_failing == 1":
        "neve cannot push packed files to the archive."
        [
            "`archive.push.error` of `/health` says why. neve tries again, at most five minutes later.",
            "If credentials or rights are wrong, see [Archive](../operating/archive.md#rights).",
            "If the disk is small, lower `--retain-unpushed-bytes` meanwhile: beyond it neve deletes heights without a copy.",
        ]
        fires [("neve_archive_push_failing{job=\"neve\", instance=\"a\"}", "1x60")]
    Page "NeveArchiveLosesHeights" for "0m"
        if "increase(neve_archive_lost_heights_total[10m]) > 0":
        "neve evicted heights that are not in the archive."
        [
            "`neve_archive_push_failing` says whether pushing works. If not, repair that first.",
            "Push the heights from a store that still has them: `neve archive push`. Later heights wait for them.",
            "Raise `--retain-unpushed-bytes`, so that the next failure may last longer.",
        ]
        fires [("neve_archive_lost_heights_total{job=\"neve\", instance=\"a\"}", "0x49 1000x10")]
    Ticket "NeveArchiveHolds" for "10m"
        if "neve_archive_held_bytes > neve_archive_held_limit_bytes / 2":
        "Segments that wait for the archive fill half of --retain-unpushed-bytes. Beyond it heights are lost."
        [
            "If `neve_archive_push_failing` is 1, `archive.push.error` of `/health` says why: repair that first.",
            "If it is 0, ranges are not packed, or files lie behind a gap: `archive.push.backlog` and the log line `range not packed`.",
            "Raise `--retain-unpushed-bytes` if the disk has room. On a full disk neve deletes the oldest of them in any case.",
        ]
        fires [
            ("neve_archive_held_bytes{job=\"neve\", instance=\"a\"}", "9x60"),
            ("neve_archive_held_limit_bytes{job=\"neve\", instance=\"a\"}", "16x60"),
        ]
    Ticket "NeveArchiveBadFile" for "0m"
        if "neve_archive_bad_files > 0":
        "A packed file cannot be pushed to the archive. Later heights wait for it."
        [
            "The log line `packed file set aside` names the file and the reason.",
            "If it is damaged, check the disk (`dmesg`). With `--scrub-bytes-per-second` neve repairs the file from an upstream.",
            "Or push its heights from another store: `neve archive push`. neve then pushes the later ones.",
        ]
        fires [("neve_archive_bad_files{job=\"neve\", instance=\"a\"}", "1x60")]
    Ticket "NeveArchiveBacklog" for "1h"
        if "neve_archive_backlog_bytes > 1073741824":
        "Over 1 GiB of packed files wait for the archive."
        [
            "After the first start with `--archive-push` this is usual: the backlog shrinks.",
            "If `neve_archive_push_failing` is 0, the files lie behind a gap: push the heights between from another store.",
        ]
        fires [("neve_archive_backlog_bytes{job=\"neve\", instance=\"a\"}", "1073741825x120")]
    Ticket "NeveArchiveOld" for "1h"
        if "time() - neve_archive_manifest_put_timestamp_seconds > 86400":
        "Nothing was pushed to the archive for a day."
        [
            "A reader that cannot read the manifest shows the age of the one that it read last: `neve archive ls` from its machine says more.",
            "On a neve that pushes, check that ranges are packed: on mainnet `neve_store_packed_heights_total` grows about every 20 minutes.",
            "There `archive.push` of `/health` has the last error and the backlog.",
            "Silence the alert for an archive that shall not grow.",
        ]
        fires [("neve_archive_manifest_put_timestamp_seconds{job=\"neve\", instance=\"a\"}", "-100000x120")]
    Page "NeveArchiveReadsRest" for "2m"
        if "neve_archive_breaker_state > 0":
        "The object store fails, so neve serves heights below the tail only from pages on the disk."
        [
            "neve still serves the tail. For archived heights clients get 421 with `Retry-After`.",
            "`neve archive ls` from the machine of neve says how the store fails.",
            "neve probes the store each second, and reads again after its first answer.",
        ]
        fires [("neve_archive_breaker_state{job=\"neve\", instance=\"a\"}", "1 2x59")]
    Ticket "NeveArchiveReadsFail" for "10m"
        if "sum by (job, instance) (rate(neve_archive_read_errors_total{reason!=\"paused\"}[5m])) > 0.1":
        "Reads from the archive fail, and some archived heights are misses."
        [
            "The label `reason` says why. `denied`: compare credentials and rights with [Archive](../operating/archive.md#rights).",
            "`absent` or `changed`: `neve archive verify --repair-from DIR` puts the objects again.",
            "`timeout` or `failed`: look at the network and the status page of the object store.",
        ]
        fires [("neve_archive_read_errors_total{job=\"neve\", instance=\"a\", reason=\"timeout\"}", "0+60x60")]
    Ticket "NeveArchiveReadsSlow" for "10m"
        if "histogram_quantile(0.95, sum by (job, instance, le) (rate(neve_archive_read_duration_seconds_bucket[5m]))) > 1":
        "5 % of the reads from the archive take over a second."
        [
            "Compare with the region of the bucket: 30 ms are usual inside of it.",
            "`neve_archive_hedges_total` grows with slow reads: the store, not neve, is slow.",
            "If `neve_archive_read_bytes_total` grows as fast as the network allows, lower `--archive-read-bytes-per-second`.",
        ]
        fires [
            ("neve_archive_read_duration_seconds_bucket{job=\"neve\", instance=\"a\", kind=\"segment\", le=\"1\"}", "0+10x60"),
            ("neve_archive_read_duration_seconds_bucket{job=\"neve\", instance=\"a\", kind=\"segment\", le=\"5\"}", "0+60x60"),
            ("neve_archive_read_duration_seconds_bucket{job=\"neve\", instance=\"a\", kind=\"segment\", le=\"+Inf\"}", "0+60x60"),
        ]
    Ticket "NeveArchiveReadsRefused" for "10m"
        if "sum by (job, instance) (rate(neve_archive_refused_reads_total[5m])) > 0":
        "Clients need more reads from the archive than the limits allow, and some get 421 with Retry-After."
        [
            "`share` and `queue_share`: one address asks for most. Behind a front set `--trusted-proxies`.",
            "`budget`: raise `--archive-reads-per-second` or `--archive-read-bytes-per-second`, as far as the bill allows.",
            "`queue` and `wait`: the store is slow, or `--archive-cache-bytes` is too small for the heights in demand.",
            "`files`: requests need too many segments at once, \
            or one client over half of them for its logs. Lower `--batch-items-max`, or raise `LimitNOFILE=` up to 16384.",
        ]
        fires [("neve_archive_refused_reads_total{job=\"neve\", instance=\"a\", reason=\"share\"}", "0+6x60")]
    Ticket "NeveArchiveUnproven" for "0m"
        if "increase(neve_archive_proven_segments_total{outcome=\"rejected\"}[10m]) > 0":
        "A segment of the archive is not proven, so its heights and all below it are misses."
        [
            "The log line `archived segment not proven` has the reason. neve tries again after five minutes, if a client asks.",
            "`over --archive-proof-bytes-max`: raise it if the memory allows, and restart neve.",
            "Else the archive has other blocks or receipts than the chain: `neve archive verify --prove` names them.",
            "Until then a full node answers these heights. Find out who can write to the bucket.",
        ]
        fires [("neve_archive_proven_segments_total{job=\"neve\", instance=\"a\", outcome=\"rejected\"}", "0x49 1x10")]
    Ticket "NeveArchiveFalsePages" for "0m"
        if "increase(neve_archive_refused_pages_total[10m]) > 0":
        "The object store gave bytes that differ from their digests, or a filter that no writer makes. Clients did not see them."
        [
            "`evidence/` has the pages. `neve archive verify` says which objects are damaged.",
            "The log line `archive filter rejected` names a filter. Find out who can write to the bucket.",
            "`neve archive verify --repair-from DIR` puts them again from packed files.",
            "If the objects are intact, look for a proxy or a cache between neve and the bucket.",
        ]
        fires [("neve_archive_refused_pages_total{job=\"neve\", instance=\"a\"}", "0x49 1x10")]
};
