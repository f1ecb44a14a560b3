//! Warnings that repeat: each at most once a second. Clients and upstreams can cause some of them for every
//! request, and would write the log.

use std::collections::HashMap;
use std::fmt::{self, Debug};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Mutex;
use std::time::{Duration, Instant};

use metrics::counter;
use tracing::callsite::Identifier;
use tracing::field::{Field, Visit};
use tracing::{Event, Level, Subscriber, warn};
use tracing_subscriber::fmt::format::Writer;
use tracing_subscriber::fmt::{FmtContext, FormatEvent, FormatFields};
use tracing_subscriber::registry::LookupSpan;

use crate::shared::lock::lock;

/// Time within which a warning is not repeated.
const APART: Duration = Duration::from_secs(1);
/// Different warnings of one place within that time.
const OF_PLACE_MAX: usize = 16;
/// Target of the line that tells of those left out.
const TARGET: &str = "neve::log";
/// Target of lines that come once, one after the other, from one place.
pub(crate) const NOTES: &str = "neve::notes";
/// Fields whose values change each time, so that they make no other warning of it.
const CHANGING: [&str; 4] = ["height", "retry_in", "elapsed", "bytes"];

/// Writes events, and leaves out warnings and errors that repeat.
pub(super) struct Unrepeated<F> {
    format: F,
    places: Mutex<HashMap<Identifier, WarnSite>>,
}

/// Place in the code that warns.
#[derive(Default)]
struct WarnSite {
    /// Warnings of the last second, with the time of each.
    recent: Vec<(u64, Instant)>,
    /// Lines left out since the last line.
    left_out: u64,
}

impl WarnSite {
    /// Takes a warning. Returns the number of lines left out before it; `None` if it is to be left out too.
    fn take(&mut self, warning: u64, now: Instant) -> Option<u64> {
        self.recent.retain(|(_, at)| now.saturating_duration_since(*at) < APART);
        let repeats = self.recent.iter().any(|(recent, _)| *recent == warning);
        // A text that differs each time, such as one with an address, would evade the comparison.
        if repeats || self.recent.len() >= OF_PLACE_MAX {
            self.left_out += 1;
            return None;
        }
        self.recent.push((warning, now));
        Some(std::mem::take(&mut self.left_out))
    }
}

impl<F> Unrepeated<F> {
    pub(super) fn new(format: F) -> Self {
        Self { format, places: Mutex::default() }
    }

    fn take(&self, event: &Event<'_>) -> Option<u64> {
        let metadata = event.metadata();
        // Notes come once each, though all of them from one place of the code.
        if *metadata.level() > Level::WARN || [TARGET, NOTES].contains(&metadata.target()) {
            return Some(0);
        }
        let mut text = Fields(DefaultHasher::new());
        event.record(&mut text);
        let mut places = lock(&self.places);
        let place = places.entry(metadata.callsite()).or_default();
        place.take(text.0.finish(), Instant::now())
    }
}

impl<S, N, F> FormatEvent<S, N> for Unrepeated<F>
where
    S: Subscriber + for<'a> LookupSpan<'a>,
    N: for<'a> FormatFields<'a> + 'static,
    F: FormatEvent<S, N>,
{
    fn format_event(
        &self,
        context: &FmtContext<'_, S, N>,
        writer: Writer<'_>,
        event: &Event<'_>,
    ) -> fmt::Result {
        let Some(left_out) = self.take(event) else {
            counter!("neve_log_repeated_lines_total").increment(1);
            return Ok(()); // nothing was written: the line is none
        };
        if left_out > 0 {
            // The library names an event by this word, its file and its line.
            let place = event.metadata().name().trim_start_matches("event ");
            warn!(target: TARGET, lines = left_out, place, "repeated lines left out");
        }
        self.format.format_event(context, writer, event)
    }
}

/// Hash of the fields that tell warnings apart.
struct Fields(DefaultHasher);

impl Visit for Fields {
    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        if !CHANGING.contains(&field.name()) {
            field.name().hash(&mut self.0);
            format!("{value:?}").hash(&mut self.0);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::{self, Write};
    use std::sync::Arc;

    use tracing::{info, subscriber};

    use super::*;

    #[test]
    fn warning_is_taken_once_a_second_and_others_of_the_place_up_to_a_bound() {
        let (mut place, begin) = (WarnSite::default(), Instant::now());
        let at = |milliseconds| begin + Duration::from_millis(milliseconds);
        assert_eq!(place.take(1, at(0)), Some(0));
        assert_eq!(place.take(1, at(999)), None);
        assert_eq!(place.take(2, at(999)), Some(1));
        assert_eq!(place.take(1, at(1000)), Some(0));
        let others = (10..40).filter(|other| place.take(*other, at(1001)).is_some()).count();
        assert_eq!(others, OF_PLACE_MAX - 2);
        assert_eq!(place.take(50, at(2100)), Some(30 - others as u64));
    }

    #[derive(Clone, Default)]
    struct Lines(Arc<Mutex<Vec<u8>>>);

    impl Write for Lines {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0.lock().unwrap().extend_from_slice(bytes);
            Ok(bytes.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn repeated_warnings_are_left_out_of_both_forms_and_other_lines_are_not() {
        let lines = Lines::default();
        let speak = || {
            for height in 0..100 {
                warn!(upstream = "a", height, "upstream failed");
                info!("state changed");
            }
            ["b", "c"].iter().for_each(|upstream| warn!(upstream, "upstream failed"));
        };
        let (text, json) = (lines.clone(), lines.clone());
        let builder = tracing_subscriber::fmt().with_writer(move || text.clone());
        subscriber::with_default(builder.map_event_format(Unrepeated::new).finish(), speak);
        let builder = tracing_subscriber::fmt().json().with_writer(move || json.clone());
        subscriber::with_default(builder.map_event_format(Unrepeated::new).finish(), speak);
        let written = String::from_utf8(lines.0.lock().unwrap().clone()).unwrap();
        let count = |word: &str| written.lines().filter(|line| line.contains(word)).count();
        assert_eq!((count("upstream failed"), count("state changed")), (6, 200), "{written}");
        assert_eq!(written.lines().count(), 206);
    }
}
