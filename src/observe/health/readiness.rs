//! Readiness: the reasons why a router should send its requests elsewhere.

use std::time::Duration;

use hyper::StatusCode;
use serde_json::json;

use super::{Admin, AdminPage, json_page};
use crate::config::settings::ReadyConfig;
use crate::observe::head_age::stale_age;
use crate::shared::{Phase, unproven_head};

impl Admin {
    pub(super) fn ready(&self) -> AdminPage {
        match self.not_ready() {
            None if self.serving.freshness.follows_nobody() => {
                let tags = "refused: no upstream is followed";
                json_page(StatusCode::OK, &json!({ "ready": true, "tags": tags }))
            }
            None => json_page(StatusCode::OK, &json!({ "ready": true })),
            Some(why) => {
                let body = json!({ "ready": false, "reason": why });
                json_page(StatusCode::SERVICE_UNAVAILABLE, &body)
            }
        }
    }

    /// Reason why a router should send its requests elsewhere, if it should.
    pub(super) fn not_ready(&self) -> Option<String> {
        let ready = **self.ready.load();
        if self.serving.reader.range().is_none() {
            return Some("no block is stored yet".to_owned());
        }
        if self.serving.freshness.follows_nobody() {
            return None; // what is stored does not age
        }
        let phase = self.status.words().phase;
        if matches!(phase, Phase::WrongChain | Phase::Disagrees | Phase::Stopped) {
            return Some(format!("following has stopped: {}", phase.name()));
        }
        // The first cause counts: a silent upstream makes lag and age look worse than they are.
        self.silent(ready.silence_max).or_else(|| self.old(&ready))
    }

    /// Reason why the head counts as old, if it does: its distance to the upstream's, or its age.
    fn old(&self, ready: &ReadyConfig) -> Option<String> {
        let lag = self.lag().unwrap_or(0);
        let limit = ready.lag_max;
        if lag > limit {
            return Some(format!("{lag} blocks behind the upstream, allowed are {limit}"));
        }
        let (age, max) = stale_age(ready, &self.serving)?;
        let age = Duration::from_secs(age.as_secs());
        Some(format!("the newest block is {age:?} old, allowed is {max:?} (--ready-age-max)"))
    }

    /// Reason why the upstreams count as silent, if they do. One that answers and is not used is as good as none:
    /// its head is not known, so there is no lag.
    fn silent(&self, limit: Duration) -> Option<String> {
        let used = self.status.silence();
        if used.is_some_and(|silence| silence <= limit) {
            return None;
        }
        Some(match (used, self.status.silence_of_all()) {
            (_, None) => "the upstream has not answered yet".to_owned(),
            (_, Some(silence)) if silence > limit => {
                format!("the upstream has been silent for {silence:.0?}, allowed is {limit:?}")
            }
            (None, _) => format!("no upstream is in use{}", self.unused()),
            (Some(unused), _) => {
                let why = self.unused();
                format!("no upstream has been in use for {unused:.0?}, allowed is {limit:?}{why}")
            }
        })
    }

    /// Reason why no upstream is in use, if it is a false head. Clients see it, so it has no text of an upstream.
    fn unused(&self) -> String {
        let upstreams = self.status.upstreams();
        let unproven = upstreams.iter().find_map(|one| one.unproven_head);
        unproven.map(|head| format!(": {}", unproven_head(head))).unwrap_or_default()
    }

    /// Adds the wait for upstreams to a reason, where it is the cause. It names none of them.
    pub(super) fn with_wait(&self, why: String) -> String {
        match self.status.retry_in() {
            Some(left) => {
                let seconds = left.as_secs_f64().ceil();
                format!("{why}; neve waits: it asks the next upstream in {seconds} s")
            }
            None => why,
        }
    }
}
