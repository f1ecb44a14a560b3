//! Releases of avalanchego that this neve supports, and the upgrades of the public networks.

use std::time::SystemTime;

use super::report::Finding;
use crate::config::Network;
use crate::upstream::{NOTICE, NetworkUpgrade, UPGRADES, time_left};

/// Lowest and highest supported releases, as major and minor number.
pub(super) const SUPPORTED: [(u32, u32); 2] = [(1, 14), (1, 15)];

/// Returns major and minor number of a version such as `avalanchego/1.15.0` or `v1.15.0`.
fn release(version: &str) -> Option<(u32, u32)> {
    let numbers = version.rsplit('/').next()?.trim_start_matches('v');
    let mut numbers = numbers.split('.').map(str::parse);
    Some((numbers.next()?.ok()?, numbers.next()?.ok()?))
}

/// Judges the version of a node on a network.
pub(super) fn node(
    name: &str,
    version: &str,
    network: Option<Network>,
    now: SystemTime,
) -> Finding {
    let [(_, low), (_, high)] = SUPPORTED;
    let text = format!("{name}: {version}");
    let Some(release) = release(version) else {
        let text = format!("{text}: no version");
        return Finding::warning("release", text, format!("neve supports 1.{low} to 1.{high}"));
    };
    let [.., helicon] = &UPGRADES;
    let due = network.and_then(|network| time_on(helicon, network));
    // First: such a node cannot follow its network any more, whatever neve supports.
    let knows = helicon.release.is_none_or(|first| release >= first);
    if !knows && due.is_some_and(|due| due <= now) {
        let text = format!("{text}, which does not know {}", helicon.name);
        return Finding::problem("release", text, "upgrade the node to 1.15 or later");
    }
    by_support(text, release)
}

/// Compares a release with those that this neve supports.
fn by_support(text: String, release: (u32, u32)) -> Finding {
    let [(_, low), (_, high)] = SUPPORTED;
    if release < SUPPORTED[0] {
        return Finding::warning("release", text, format!("upgrade the node to 1.{low} or later"));
    }
    // A warning only: neve checks each block, and rejects what it does not know.
    if release > SUPPORTED[1] {
        let text = format!("{text}, newer than this neve supports (1.{low} to 1.{high})");
        return Finding::warning("release", text, "look for a newer neve");
    }
    Finding::ok("release", text)
}

/// Judges one upgrade that a node names: `None` if this neve knows it.
pub(super) fn scheduled(name: &str, key: &str, time: &str, now: SystemTime) -> Option<Finding> {
    let left = time_left(key, time, now)?;
    let text = format!("{name}: upgrade {key} at {time}, which this neve does not know");
    let advice = "upgrade neve before that time, or it may reject blocks";
    match left {
        Some(left) if left.is_zero() => {
            Some(Finding::problem("upgrade", text, "upgrade neve: it may reject blocks"))
        }
        Some(left) if left > NOTICE => Some(Finding::ok("upgrade", text)),
        // A time that cannot be read may be soon.
        _ => Some(Finding::warning("upgrade", text, advice)),
    }
}

fn time_on(upgrade: &NetworkUpgrade, network: Network) -> Option<SystemTime> {
    let [mainnet, fuji] = upgrade.times;
    let time = match network {
        Network::Mainnet => mainnet,
        Network::Fuji => fuji,
    };
    humantime::parse_rfc3339(time).ok()
}

/// Returns the text of docs/reference/releases.md.
#[cfg(test)]
fn page() -> String {
    let [(_, low), (_, high)] = SUPPORTED;
    let mut page = format!(
        "# Releases of the node\n\nGenerated from `UPGRADES` in the code. `neve doctor` compares a node with this page.\n\n\
         neve supports avalanchego 1.{low} to 1.{high}. The dates are those of `upgrade/upgrade.go` in avalanchego v1.15.0.\n\
         *Release* is the first release for mainnet that has the upgrade, according to `RELEASES.md` of v1.15.0; `-` if that file does\n\
         not name it. A release for Fuji may come earlier: v1.15.0-fuji has Helicon's date there.\n\
         neve detects Helicon by the blocks of the node, and not by a date ([decision \
         0015](../decisions/0015-detect-the-switch-to-v1-15-and-do-not-schedule-it.md)).\n\n\
         | upgrade | release | mainnet | Fuji |\n| --- | --- | --- | --- |\n"
    );
    let rows = UPGRADES.map(|NetworkUpgrade { name, release, times: [mainnet, fuji], .. }| {
        let release = release.map(|(major, minor)| format!("v{major}.{minor}.0"));
        let release = release.unwrap_or_else(|| "-".to_owned());
        format!("| {name} | {release} | {mainnet} | {fuji} |\n")
    });
    page += &rows.concat();
    page
}

#[cfg(test)]
mod tests {
    use super::super::report::Level;
    use super::*;

    fn at(time: &str) -> SystemTime {
        humantime::parse_rfc3339(time).unwrap()
    }

    #[test]
    fn generated_page_of_releases_is_that_of_the_table() {
        crate::commands::reference::check("releases.md", &page());
    }

    #[test]
    fn every_upgrade_has_a_date_on_both_networks_after_the_one_before() {
        for network in [Network::Mainnet, Network::Fuji] {
            let times: Vec<_> = UPGRADES.iter().map(|one| time_on(one, network).unwrap()).collect();
            assert!(times.is_sorted(), "{network:?}");
        }
    }

    #[test]
    fn node_is_judged_by_its_release_and_the_date() {
        let (before, after) = (at("2026-09-22T14:59:59Z"), at("2026-09-22T15:00:00Z"));
        let level = |version, now| node("n", version, Some(Network::Mainnet), now).level;
        for (version, before_helicon, after_helicon) in [
            ("avalanchego/1.13.5", Level::Warning, Level::Problem),
            ("avalanchego/1.14.2", Level::Ok, Level::Problem),
            ("v1.15.0", Level::Ok, Level::Ok),
            ("avalanchego/1.16.0", Level::Warning, Level::Warning),
            ("avalanchego/2.0.0", Level::Warning, Level::Warning),
            ("something else", Level::Warning, Level::Warning),
        ] {
            let found = (level(version, before), level(version, after));
            assert_eq!(found, (before_helicon, after_helicon), "{version}");
        }
        // A network of one's own has its own dates.
        assert_eq!(node("n", "v1.14.2", None, after).level, Level::Ok);
    }

    #[test]
    fn unknown_upgrade_is_a_warning_weeks_ahead_and_a_problem_from_its_time_on() {
        let now = at("2026-11-25T00:00:00Z");
        let level = |key, time| scheduled("n", key, time, now).map(|finding| finding.level);
        assert_eq!(level("heliconTime", "2026-09-22T15:00:00Z"), None);
        assert_eq!(level("nextTime", "9999-12-01T00:00:00Z"), None);
        assert_eq!(level("graniteEpochDuration", "300000000000"), None);
        assert_eq!(level("nextTime", "2027-06-01T00:00:00Z"), Some(Level::Ok));
        assert_eq!(level("nextTime", "2027-01-10T00:00:00Z"), Some(Level::Warning));
        assert_eq!(level("nextTime", "2026-11-24T00:00:00Z"), Some(Level::Problem));
        assert_eq!(level("nextTime", "soon"), Some(Level::Warning));
    }
}
