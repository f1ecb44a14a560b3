//! Lines on their way to a file. A serving thread never waits for the file: the queue drops the lines
//! that it has no space for.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, Sender, SyncSender, channel, sync_channel};
use std::thread;
use std::time::Duration;

/// Bytes that one write takes at most, and the longest line.
const WRITE_BYTES: usize = 64 << 10;

/// Place of lines. It may block.
pub(crate) trait LineSink: Send + 'static {
    /// Writes whole lines, or counts those that are lost.
    fn write(&mut self, lines: &[u8]);

    /// Opens the place anew, if it can be replaced.
    fn reopen(&mut self) {}
}

/// Work of the writing thread.
enum LogJob {
    Line(Vec<u8>),
    /// A rotation has moved the file.
    Reopen,
    /// Tells when all before it is written.
    Flush(SyncSender<()>),
}

/// Lines that wait for the thread that writes them.
pub(crate) struct LineQueue {
    jobs: Sender<LogJob>,
    /// Bytes of lines that are not written yet.
    queued: Arc<AtomicUsize>,
    bytes_max: usize,
}

impl LineQueue {
    /// Starts the thread `name`, for at most `bytes_max` bytes of lines in the queue.
    pub(crate) fn start(name: &str, bytes_max: usize, sink: impl LineSink) -> io::Result<Self> {
        let (lines, jobs) = Self::new(bytes_max);
        let queued = Arc::clone(&lines.queued);
        let writing = move || run(sink, &jobs, &queued);
        thread::Builder::new().name(name.to_owned()).spawn(writing)?;
        Ok(lines)
    }

    fn new(bytes_max: usize) -> (Self, Receiver<LogJob>) {
        let (jobs, taken) = channel();
        (Self { jobs, queued: Arc::default(), bytes_max }, taken)
    }

    /// Takes a line, which ends with a newline. Returns false if it is dropped: too much is queued.
    #[must_use]
    pub(crate) fn push(&self, line: Vec<u8>) -> bool {
        // Capacity, not length: that is what it takes in memory.
        let bytes = line.capacity();
        // Relaxed: the count belongs to no other datum.
        let before = self.queued.fetch_add(bytes, Ordering::Relaxed);
        let fits = before.saturating_add(bytes) <= self.bytes_max;
        let taken = fits && self.jobs.send(LogJob::Line(line)).is_ok();
        if !taken {
            self.queued.fetch_sub(bytes, Ordering::Relaxed);
        }
        taken
    }

    /// Opens the file again, behind the lines that are queued.
    pub(crate) fn reopen(&self) {
        let _ = self.jobs.send(LogJob::Reopen); // the thread lives as long as this
    }

    /// Waits until all lines are written, or for so long.
    pub(crate) fn flush(&self, limit: Duration) {
        let (done, waiting) = sync_channel(1);
        if self.jobs.send(LogJob::Flush(done)).is_ok() {
            let _ = waiting.recv_timeout(limit); // a reader that does not read has no right to more
        }
    }
}

/// Writes lines until the queue is dropped. Lines that came meanwhile are one write.
fn run(mut sink: impl LineSink, jobs: &Receiver<LogJob>, queued: &AtomicUsize) {
    let mut batch = Batch::default();
    while let Ok(job) = jobs.recv() {
        let mut next = Some(job);
        while let Some(job) = next {
            match job {
                LogJob::Line(line) => batch.add(&line),
                LogJob::Reopen => {
                    batch.write(&mut sink, queued);
                    sink.reopen();
                }
                LogJob::Flush(done) => {
                    batch.write(&mut sink, queued);
                    let _ = done.send(()); // or the wait was too long
                }
            }
            next = if batch.lines.len() < WRITE_BYTES { jobs.try_recv().ok() } else { None };
        }
        batch.write(&mut sink, queued);
    }
}

/// Lines of one write.
#[derive(Default)]
struct Batch {
    lines: Vec<u8>,
    /// Bytes of the queue that they take.
    queued: usize,
}

impl Batch {
    fn add(&mut self, line: &Vec<u8>) {
        self.queued += line.capacity();
        self.lines.extend_from_slice(line);
    }

    fn write(&mut self, sink: &mut impl LineSink, queued: &AtomicUsize) {
        if self.lines.is_empty() {
            return;
        }
        sink.write(&self.lines);
        // After the write: until then the lines take memory.
        queued.fetch_sub(self.queued, Ordering::Relaxed);
        self.lines.clear();
        self.queued = 0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn queued(jobs: &Receiver<LogJob>) -> usize {
        jobs.try_iter().filter(|job| matches!(job, LogJob::Line(_))).count()
    }

    #[test]
    fn queue_takes_its_bytes_and_no_more_until_lines_are_written() {
        let (lines, jobs) = LineQueue::new(30);
        assert!((0..3).all(|_| lines.push(vec![b'x'; 10])));
        assert!(!lines.push(vec![b'x'; 1]));
        assert_eq!((queued(&jobs), lines.queued.load(Ordering::Relaxed)), (3, 30));
        lines.queued.fetch_sub(10, Ordering::Relaxed);
        assert!(!lines.push(vec![b'x'; 11]));
        assert!(lines.push(vec![b'x'; 10]));
        assert_eq!((queued(&jobs), lines.queued.load(Ordering::Relaxed)), (1, 30));
    }
}
