//! Mirrors of this neve, and the neve that it mirrors.

use crate::config::setting::{Group, SWITCH, Setting, count, text};

/// Settings of mirrors.
pub(super) const MIRROR: Group = Group {
    title: "Mirror",
    settings: &[
        Setting::new(
            "mirror-from",
            text::<String>("URL").secret(),
            "Another neve that runs with --serve-mirrors, to be a copy of: its segments come as \
             files, its records as a stream, the rest over JSON-RPC. neve proves all of it.",
        )
        .brief(),
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
