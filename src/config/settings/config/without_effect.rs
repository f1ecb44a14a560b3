//! Settings that were given and have no effect, because another one is missing.

use tracing::warn;

use crate::config::setting::{Setting, split};
use crate::config::values::Values;

/// Names the settings whose given values have no effect, each with the setting that is missing. None of them is an
/// error: a file may serve several machines, and the missing setting may be a flag of one of them.
pub fn without_effect(values: &Values) -> Vec<String> {
    let idle = values.settings().filter(|setting| is_set(values, setting)).filter_map(|setting| {
        let missing = missing(values, setting.name)?;
        Some(format!("{}: no effect without {missing}", values.named(setting.name)))
    });
    idle.collect()
}

/// Warns of them, once at the start.
pub(crate) fn warn_without_effect(values: &Values) {
    let idle = without_effect(values);
    if !idle.is_empty() {
        // One line: of several with the same message the log has one a second.
        warn!(settings = idle.join("; "), "settings without effect");
    }
}

/// True if a value was given that is not the default: `neve config print` writes all settings, and most with theirs.
fn is_set(values: &Values, setting: &Setting) -> bool {
    let default = setting.default.map(|text| split(setting, text)).unwrap_or_default();
    let is_off = setting.kind.switch && !values.switch(setting.name);
    values.is_given(setting.name) && !is_off && values.texts(setting.name) != default
}

/// Returns the setting without which this one has no effect; `None` if that is there.
fn missing(values: &Values, name: &str) -> Option<&'static str> {
    let is_given = |name: &str| !values.texts(name).is_empty();
    let (has_company, company) = match name {
        "relayed-bytes-max" | "archive-push" => return None,
        "archive-sign-key" | "archive-single-writer" | "retain-unpushed-bytes" => {
            (values.switch("archive-push"), "--archive-push")
        }
        "mirrors-max" => (values.switch("serve-mirrors"), "--serve-mirrors"),
        "client-address-from" => (is_given("trusted-proxies"), "--trusted-proxies CIDR"),
        "access-log-queue-bytes-max" => (is_given("access-log"), "--access-log FILE"),
        _ if name.starts_with("relay") => (values.texts("on-miss") == ["relay"], "--on-miss relay"),
        _ if name.starts_with("archive-") => (is_given("archive"), "--archive URL"),
        _ => return None,
    };
    (!has_company).then_some(company)
}

#[cfg(test)]
mod tests {
    use crate::config::settings::Config;

    use super::*;

    fn idle(flags: &[&str]) -> Vec<String> {
        let fixed = ["--config=none", "--data-dir=x", "--upstream=http://a"];
        let (config, _) = Config::from_flags(&[&fixed, flags].concat()).expect("allowed");
        without_effect(&config.values)
    }

    fn digest() -> String {
        format!("sha256:{}", "ab".repeat(32))
    }

    #[test]
    fn setting_without_the_one_that_it_needs_is_named() {
        for (flag, shown, company) in [
            ("relay-to=eth_call=http://b/KEY", "eth_call=http://b/...", "--on-miss relay"),
            ("relay-broadcast", "true", "--on-miss relay"),
            ("relay-methods=eth_call", "eth_call", "--on-miss relay"),
            ("relay-timeout=1s", "1s", "--on-miss relay"),
            ("archive-trust=sha256:KEY", "sha256:KEY", "--archive URL"),
            ("archive-single-writer", "true", "--archive-push"),
            ("mirrors-max=3", "3", "--serve-mirrors"),
            ("client-address-from=forwarded", "forwarded", "--trusted-proxies CIDR"),
            ("access-log-queue-bytes-max=5MiB", "5MiB", "--access-log FILE"),
        ] {
            let [flag, shown] = [flag, shown].map(|text| text.replace("sha256:KEY", &digest()));
            let name = flag.split('=').next().unwrap_or_default();
            let named = format!("--{name} {shown} (flag): no effect without {company}");
            assert_eq!(idle(&[&format!("--{flag}")]), [named]);
        }
    }

    #[test]
    fn default_and_a_setting_in_company_are_not_named() {
        for flags in [
            &["--relay-timeout=35s", "--relay-methods=default", "--archive-trust=prove"][..],
            &["--on-miss=relay", "--relay-broadcast", "--relayed-sockets-total-max=3"],
            &["--archive=file:///a", "--archive-cache-bytes=1GiB"],
            &["--archive=file:///a", "--archive-push", "--retain-unpushed-bytes=1GiB"],
            &["--relayed-bytes-max=1KiB", "--batch-miss=split"],
        ] {
            assert_eq!(idle(flags), [""; 0], "{flags:?}");
        }
    }
}
