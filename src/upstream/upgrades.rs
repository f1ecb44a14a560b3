//! Upgrades of the public networks that this neve knows, and those of a node that it does not.
//!
//! Source: `upgrade/upgrade.go` and `RELEASES.md` of avalanchego v1.15.0.

use std::time::{Duration, SystemTime};

/// The time that a node gives for an upgrade without a date: it is in the year 9999.
const UNSCHEDULED: &str = "9999-";
/// Time before an unknown upgrade from which a warning is due.
pub(crate) const NOTICE: Duration = Duration::from_hours(24 * 60);

/// An upgrade of the network.
pub(crate) struct NetworkUpgrade {
    /// Name as avalanchego announces it.
    pub(crate) name: &'static str,
    /// Key in the node's answer to `info.upgrades`.
    pub(crate) key: &'static str,
    /// First release for mainnet, as major and minor number, if the release notes name it.
    pub(crate) release: Option<(u32, u32)>,
    /// Times on mainnet and on Fuji, as RFC 3339.
    pub(crate) times: [&'static str; 2],
}

const fn upgrade(
    name: &'static str,
    key: &'static str,
    release: Option<(u32, u32)>,
    times: [&'static str; 2],
) -> NetworkUpgrade {
    NetworkUpgrade { name, key, release, times }
}

/// Every upgrade with a date, in order.
pub(crate) const UPGRADES: [NetworkUpgrade; 15] = [
    upgrade(
        "Apricot 1",
        "apricotPhase1Time",
        None,
        ["2021-03-31T14:00:00Z", "2021-03-26T14:00:00Z"],
    ),
    upgrade(
        "Apricot 2",
        "apricotPhase2Time",
        None,
        ["2021-05-10T11:00:00Z", "2021-05-05T14:00:00Z"],
    ),
    upgrade(
        "Apricot 3",
        "apricotPhase3Time",
        None,
        ["2021-08-24T14:00:00Z", "2021-08-16T19:00:00Z"],
    ),
    upgrade(
        "Apricot 4",
        "apricotPhase4Time",
        None,
        ["2021-09-22T21:00:00Z", "2021-09-16T21:00:00Z"],
    ),
    upgrade(
        "Apricot 5",
        "apricotPhase5Time",
        Some((1, 7)),
        ["2021-12-02T18:00:00Z", "2021-11-24T15:00:00Z"],
    ),
    upgrade(
        "Apricot Pre-6",
        "apricotPhasePre6Time",
        None,
        ["2022-09-05T01:30:00Z", "2022-09-06T20:00:00Z"],
    ),
    upgrade(
        "Apricot 6",
        "apricotPhase6Time",
        Some((1, 8)),
        ["2022-09-06T20:00:00Z", "2022-09-06T20:00:00Z"],
    ),
    upgrade(
        "Apricot Post-6",
        "apricotPhasePost6Time",
        None,
        ["2022-09-07T03:00:00Z", "2022-09-07T06:00:00Z"],
    ),
    upgrade("Banff", "banffTime", Some((1, 9)), ["2022-10-18T16:00:00Z", "2022-10-03T14:00:00Z"]),
    upgrade(
        "Cortina",
        "cortinaTime",
        Some((1, 10)),
        ["2023-04-25T15:00:00Z", "2023-04-06T15:00:00Z"],
    ),
    upgrade(
        "Durango",
        "durangoTime",
        Some((1, 11)),
        ["2024-03-06T16:00:00Z", "2024-02-13T16:00:00Z"],
    ),
    upgrade("Etna", "etnaTime", Some((1, 12)), ["2024-12-16T17:00:00Z", "2024-11-25T16:00:00Z"]),
    upgrade(
        "Fortuna",
        "fortunaTime",
        Some((1, 13)),
        ["2025-04-08T15:00:00Z", "2025-03-13T15:00:00Z"],
    ),
    upgrade(
        "Granite",
        "graniteTime",
        Some((1, 14)),
        ["2025-11-19T16:00:00Z", "2025-10-29T15:00:00Z"],
    ),
    upgrade(
        "Helicon",
        "heliconTime",
        Some((1, 15)),
        ["2026-09-22T15:00:00Z", "2026-07-28T15:00:00Z"],
    ),
];

/// Time until an upgrade that a node names under `key`: `None` if this neve knows it or it has no date,
/// `Some(None)` if its time cannot be read.
#[expect(clippy::option_option, reason = "an unknown upgrade may have a time that cannot be read")]
pub(crate) fn time_left(key: &str, time: &str, now: SystemTime) -> Option<Option<Duration>> {
    let is_known = UPGRADES.iter().any(|upgrade| upgrade.key == key);
    // Known upgrades, other kinds of keys, and upgrades without a date say nothing.
    if is_known || !key.ends_with("Time") || time.starts_with(UNSCHEDULED) {
        return None;
    }
    let due = humantime::parse_rfc3339(time).ok();
    Some(due.map(|due| due.duration_since(now).unwrap_or_default()))
}
