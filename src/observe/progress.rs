//! Progress of catching up and backfill: bars where a person looks, else a line of JSON now and
//! then. Both on standard error, beside the log.

use std::io::{IsTerminal, Write};
use std::sync::Arc;
use std::sync::mpsc::{SyncSender, sync_channel};
use std::time::{Duration, Instant};
use std::{fmt, io, thread};

use indicatif::{ProgressBar, ProgressState, ProgressStyle};
use serde_json::{Value, json};

use super::log::{LogOutput, bars};
use crate::shared::{Serving, Status};

/// Interval of bars.
const BARS_EVERY: Duration = Duration::from_millis(250);
/// Interval of lines.
const LINES_EVERY: Duration = Duration::from_secs(10);
/// Less than this is not worth a word.
const LEFT_MIN: u64 = 64;

const TEMPLATE: &str = "{prefix:9} {bar:30} {pos}/{len} {rate}/s {eta} left";

/// Something that has an end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Task {
    name: &'static str,
    done: u64,
    left: u64,
}

/// Catch-up and backfill, while they last.
type Tasks = [Option<Task>; 2];

/// Shows progress for ever.
pub(crate) async fn run(serving: Arc<Serving>, status: Arc<Status>) {
    let terminal = io::stderr().is_terminal();
    let mut look = tokio::time::interval(if terminal { BARS_EVERY } else { LINES_EVERY });
    look.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    // The first tick comes at once, before there is any progress.
    look.tick().await;
    let mut show = Show::default();
    let bars = if terminal { drawn_aside().ok() } else { None };
    loop {
        look.tick().await;
        let tasks = [catch_up(&serving, &status), backfill(&serving, &status)];
        match &bars {
            Some(bars) => _ = bars.try_send(tasks), // the next ones are newer
            None => show.lines(tasks),
        }
    }
}

/// Starts the thread that draws bars. A terminal that was stopped (Ctrl-S) delays it alone.
fn drawn_aside() -> io::Result<SyncSender<Tasks>> {
    let (tasks, taken) = sync_channel(1);
    let draw = move || {
        let mut show = Show::default();
        taken.into_iter().for_each(|tasks| show.bars(tasks));
    };
    thread::Builder::new().name("progress".to_owned()).spawn(draw)?;
    Ok(tasks)
}

fn catch_up(serving: &Serving, status: &Status) -> Option<Task> {
    let from = status.catch_up_from()?;
    let head = serving.reader.range().map_or(from, |range| range.end() + 1);
    let left = (status.proven_head()? + 1).saturating_sub(head);
    Some(Task { name: "catch-up", done: head.saturating_sub(from), left })
}

fn backfill(serving: &Serving, status: &Status) -> Option<Task> {
    let (backfill, range) = (status.backfill()?, serving.reader.range()?);
    // What is fetched and not published is done too: a segment takes a while.
    let low = backfill.interval.map_or(backfill.first, |(first, _)| first);
    let fetched = backfill.interval.map_or(0, |(first, next)| next.saturating_sub(first));
    let left = (low.saturating_sub(backfill.goal?) + backfill.first.saturating_sub(low))
        .saturating_sub(fetched);
    let done = (range.end() + 1).saturating_sub(backfill.first) + fetched;
    Some(Task { name: "backfill", done, left })
}

#[derive(Default)]
struct Show {
    bars: [Option<ProgressBar>; 2],
    /// Progress at the last line, and its time.
    last: [Option<(u64, Instant)>; 2],
}

impl Show {
    fn bars(&mut self, tasks: Tasks) {
        let all = bars();
        for (bar, task) in self.bars.iter_mut().zip(tasks) {
            let begun = bar.is_some();
            // A bar that has begun stays to its end: near the bound it would come and go.
            match task.filter(|task| task.left >= if begun { 1 } else { LEFT_MIN }) {
                Some(task) => {
                    let bar = bar.get_or_insert_with(|| all.add(new_bar(task)));
                    bar.set_length(task.done + task.left);
                    bar.set_position(task.done);
                }
                None => {
                    if let Some(bar) = bar.take() {
                        bar.finish_and_clear();
                    }
                }
            }
        }
    }

    fn lines(&mut self, tasks: Tasks) {
        for (last, task) in self.last.iter_mut().zip(tasks) {
            let Some(task) = task.filter(|task| task.left >= LEFT_MIN) else {
                *last = None;
                continue;
            };
            let now = Instant::now();
            let before = last.replace((task.done, now));
            let rate = before.map(|(done, at)| rate(task.done.saturating_sub(done), now - at));
            let line = format!("{}\n", line(task, rate));
            let _ = LogOutput.write_all(line.as_bytes()); // it never fails
        }
    }
}

#[expect(clippy::cast_precision_loss, reason = "a rate for people")]
fn rate(heights: u64, time: Duration) -> f64 {
    heights as f64 / time.as_secs_f64().max(0.001)
}

#[expect(clippy::cast_precision_loss, reason = "an estimate for people")]
fn line(task: Task, rate: Option<f64>) -> Value {
    let left = rate.filter(|rate| *rate > 0.0).map(|rate| (task.left as f64 / rate).round());
    json!({
        "progress": task.name,
        "done": task.done,
        "remaining": task.left,
        "heights_per_second": rate.map(|rate| (rate * 10.0).round() / 10.0),
        "remaining_seconds": left,
    })
}

fn new_bar(task: Task) -> ProgressBar {
    let style = ProgressStyle::with_template(TEMPLATE).unwrap_or(ProgressStyle::default_bar());
    // Of itself it would have four decimals.
    let style = style.with_key("rate", |state: &ProgressState, out: &mut dyn fmt::Write| {
        let _ = write!(out, "{:.0}", state.per_sec()); // a bar is no place to fail
    });
    let bar = ProgressBar::new(task.done + task.left).with_style(style);
    bar.set_prefix(task.name);
    bar.with_position(task.done)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_has_the_rate_and_the_time_left() {
        let task = Task { name: "backfill", done: 500, left: 1000 };
        let expected = json!({
            "progress": "backfill", "done": 500, "remaining": 1000,
            "heights_per_second": 250.0, "remaining_seconds": 4.0,
        });
        assert_eq!(line(task, Some(rate(2500, Duration::from_secs(10)))), expected);
        let unknown = line(task, None);
        assert_eq!(
            (&unknown["heights_per_second"], &unknown["remaining_seconds"]),
            (&Value::Null, &Value::Null)
        );
        assert_eq!(line(task, Some(0.0))["remaining_seconds"], Value::Null);
    }

    #[test]
    fn bars_come_and_go() {
        let mut show = Show::default();
        let task = |left| Some(Task { name: "catch-up", done: 5, left });
        show.bars([task(10), None]);
        assert!(show.bars[0].is_none(), "too little to show");
        show.bars([task(LEFT_MIN), None]);
        assert_eq!(show.bars[0].as_ref().unwrap().length(), Some(5 + LEFT_MIN));
        show.bars([task(1), None]);
        assert!(show.bars[0].is_some());
        show.bars([task(0), None]);
        assert!(show.bars[0].is_none());
    }
}
