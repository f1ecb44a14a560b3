//! Standard error, for the log and what stands beside it. Its reader may be slow, or stop: a serving
//! program puts lines into a queue, and only the thread `log` waits for that reader.

use std::cell::Cell;
use std::io::{self, Write};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use indicatif::MultiProgress;
use metrics::counter;
use tracing::warn;

use super::queue::{LineQueue, LineSink};

/// Bytes of lines that wait for the reader of standard error.
const QUEUE_BYTES_MAX: usize = 4 << 20;
/// Shortest time between two lines about dropped ones.
const SAY_INTERVAL: Duration = Duration::from_secs(1);

/// The bars of this process, if it has any: log lines go above them.
static BARS: OnceLock<MultiProgress> = OnceLock::new();
/// The queue, in a program that serves.
static QUEUE: OnceLock<LineQueue> = OnceLock::new();
/// Lines that the queue had no space for.
static LOST_LINES: AtomicU64 = AtomicU64::new(0);

thread_local! {
    /// True on the thread that empties the queue: its own lines go past the queue.
    static WRITES: Cell<bool> = const { Cell::new(false) };
}

/// Returns the bars beside the log.
pub(crate) fn bars() -> &'static MultiProgress {
    BARS.get_or_init(MultiProgress::new)
}

/// From now on no thread waits for standard error.
pub(super) fn start_queue() -> io::Result<()> {
    let queue = LineQueue::start("log", QUEUE_BYTES_MAX, StandardError::default())?;
    let _ = QUEUE.set(queue); // logging begins once
    Ok(())
}

/// Waits at its end until all lines are written, or for this long: also when a panic ends the program.
#[must_use]
pub(crate) struct FlushAtEnd(pub(crate) Duration);

impl Drop for FlushAtEnd {
    fn drop(&mut self) {
        QUEUE.get().inspect(|queue| queue.flush(self.0));
    }
}

/// Standard error: each write is a line, or some.
pub(crate) struct LogOutput;

impl Write for LogOutput {
    fn write(&mut self, lines: &[u8]) -> io::Result<usize> {
        match QUEUE.get().filter(|_| !WRITES.get()) {
            Some(queue) => {
                if !queue.push(lines.to_vec()) {
                    count_lost(lines);
                }
            }
            None => write_out(lines),
        }
        Ok(lines.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(()) // standard error has no buffer
    }
}

/// Writes lines: bars make space for them. Lines that cannot be written are counted as lost. Where
/// standard error is full or closed, there is no other place to say so.
fn write_out(lines: &[u8]) {
    let write = || io::stderr().write_all(lines);
    let written = match BARS.get() {
        Some(bars) => bars.suspend(write),
        None => write(),
    };
    if written.is_err() {
        count_lost(lines);
    }
}

fn count_lost(lines: &[u8]) {
    let lost = memchr::memchr_iter(b'\n', lines).count() as u64;
    LOST_LINES.fetch_add(lost, Ordering::Relaxed);
    counter!("neve_log_dropped_lines_total").increment(lost);
}

/// End of the queue.
#[derive(Default)]
struct StandardError {
    /// Dropped lines that the log speaks of, and the time of the last such line.
    said: u64,
    said_at: Option<Instant>,
}

impl LineSink for StandardError {
    fn write(&mut self, lines: &[u8]) {
        // A line that this thread logs meanwhile goes out itself: the queue waits for this thread.
        WRITES.set(true);
        write_out(lines);
        let dropped = LOST_LINES.load(Ordering::Relaxed);
        let is_due = self.said_at.is_none_or(|at| at.elapsed() >= SAY_INTERVAL);
        if dropped > self.said && is_due {
            warn!(lines = dropped - self.said, "log lines dropped");
            (self.said, self.said_at) = (dropped, Some(Instant::now()));
        }
    }
}
