//! The access log: lines through a queue into a file, all of them counted.

use std::io;
use std::time::Duration;

use metrics::{Counter, counter};

use super::log_file::LogFile;
use crate::config::settings::AccessTarget;
use crate::observe::log::{LineQueue, LineSink};

/// The access log, for all threads.
pub(crate) struct AccessLog {
    lines: LineQueue,
    dropped: Counter,
}

/// The file, and counters of the lines that left the queue.
struct CountedFile {
    file: LogFile,
    written: Counter,
    failed: Counter,
}

impl LineSink for CountedFile {
    fn write(&mut self, lines: &[u8]) {
        let outcome = self.file.write(lines);
        self.written.increment(outcome.written);
        self.failed.increment(outcome.failed);
    }

    fn reopen(&mut self) {
        self.file.reopen();
    }
}

fn lines_total(outcome: &'static str) -> Counter {
    let counter = counter!("neve_access_log_lines_total", "outcome" => outcome);
    counter.increment(0);
    counter
}

impl AccessLog {
    /// Opens the file and starts the thread, for at most `bytes_max` bytes of lines in the queue.
    pub(crate) fn open(target: AccessTarget, bytes_max: usize) -> io::Result<Self> {
        let file = LogFile::open(target)?;
        let (written, failed) = (lines_total("written"), lines_total("failed"));
        let sink = CountedFile { file, written, failed };
        let lines = LineQueue::start("access-log", bytes_max, sink)?;
        Ok(Self { lines, dropped: lines_total("dropped") })
    }

    /// Writes a line, which ends with a newline, or drops it if too much is queued.
    pub(crate) fn write(&self, line: Vec<u8>) {
        if !self.lines.push(line) {
            self.dropped.increment(1);
        }
    }

    /// Opens the file again, behind the lines that are queued.
    pub(crate) fn reopen(&self) {
        self.lines.reopen();
    }

    /// Waits until all lines are written, or for so long.
    pub(crate) fn flush(&self, limit: Duration) {
        self.lines.flush(limit);
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use tempfile::tempdir;

    use super::*;

    #[test]
    fn flushed_lines_are_in_the_file_in_their_order_and_free_the_queue() {
        let dir = tempdir().expect("a directory");
        let path = dir.path().join("access.log");
        let log = AccessLog::open(AccessTarget::File(path.clone()), 64 << 10).expect("it opens");
        // More than the queue has space for at once, so lines that are written must make space.
        for number in 0..20_000 {
            log.write(format!("{number}\n").into_bytes());
            if number % 1000 == 0 {
                log.flush(Duration::from_mins(1));
            }
        }
        log.flush(Duration::from_mins(1));
        let text = fs::read_to_string(&path).expect("text");
        assert!(
            text.ends_with('\n') && text.lines().eq((0..20_000).map(|n| n.to_string())),
            "lines are lost"
        );
    }
}
