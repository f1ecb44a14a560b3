//! Lines on their way to the access log. A serving thread never waits for the file: what the queue
//! has no room for is dropped and counted.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, Sender, SyncSender, channel, sync_channel};
use std::thread;
use std::time::Duration;

use metrics::{Counter, counter};

use super::log_file::LogFile;
use crate::config::settings::AccessTarget;

/// Bytes that one write takes at most, and the longest line.
const WRITE_BYTES: usize = 64 << 10;

/// Work of the writing thread.
enum Job {
    Line(Vec<u8>),
    /// A rotation has moved the file.
    Reopen,
    /// Tells when all before it is written.
    Flush(SyncSender<()>),
}

/// The access log, for all threads.
pub(crate) struct AccessLog {
    jobs: Sender<Job>,
    /// Bytes of lines that are not written yet.
    queued: Arc<AtomicUsize>,
    bytes_max: usize,
    dropped: Counter,
}

/// Counters of the lines that left the queue.
struct Counts {
    written: Counter,
    failed: Counter,
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
        let (log, jobs) = Self::new(bytes_max);
        let queued = Arc::clone(&log.queued);
        let counts = Counts { written: lines_total("written"), failed: lines_total("failed") };
        let writing = move || run(file, &jobs, &queued, &counts);
        thread::Builder::new().name("access-log".to_owned()).spawn(writing)?;
        Ok(log)
    }

    fn new(bytes_max: usize) -> (Self, Receiver<Job>) {
        let (jobs, taken) = channel();
        let (queued, dropped) = (Arc::default(), lines_total("dropped"));
        (Self { jobs, queued, bytes_max, dropped }, taken)
    }

    /// Writes a line, which ends with a newline, or drops it if too much is queued.
    pub(crate) fn write(&self, line: Vec<u8>) {
        let bytes = line.capacity();
        // Relaxed: the count belongs to no other datum.
        let before = self.queued.fetch_add(bytes, Ordering::Relaxed);
        let fits = before.saturating_add(bytes) <= self.bytes_max;
        if !(fits && self.jobs.send(Job::Line(line)).is_ok()) {
            self.queued.fetch_sub(bytes, Ordering::Relaxed);
            self.dropped.increment(1);
        }
    }

    /// Opens the file again, behind the lines that are queued.
    pub(crate) fn reopen(&self) {
        let _ = self.jobs.send(Job::Reopen); // the thread lives as long as this
    }

    /// Waits until all lines are written, or for so long.
    pub(crate) fn flush(&self, limit: Duration) {
        let (done, waiting) = sync_channel(1);
        if self.jobs.send(Job::Flush(done)).is_ok() {
            let _ = waiting.recv_timeout(limit); // a reader that does not read has no right to more
        }
    }
}

/// Writes lines until the log is dropped. Lines that came meanwhile are one write.
fn run(mut file: LogFile, jobs: &Receiver<Job>, queued: &AtomicUsize, counts: &Counts) {
    let mut batch = Batch::default();
    while let Ok(job) = jobs.recv() {
        let mut next = Some(job);
        while let Some(job) = next {
            match job {
                Job::Line(line) => batch.add(&line),
                Job::Reopen => {
                    batch.write(&mut file, queued, counts);
                    file.reopen();
                }
                Job::Flush(done) => {
                    batch.write(&mut file, queued, counts);
                    let _ = done.send(()); // or the wait was too long
                }
            }
            next = if batch.lines.len() < WRITE_BYTES { jobs.try_recv().ok() } else { None };
        }
        batch.write(&mut file, queued, counts);
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

    fn write(&mut self, file: &mut LogFile, queued: &AtomicUsize, counts: &Counts) {
        if self.lines.is_empty() {
            return;
        }
        let outcome = file.write(&self.lines);
        counts.written.increment(outcome.written);
        counts.failed.increment(outcome.failed);
        queued.fetch_sub(self.queued, Ordering::Relaxed);
        self.lines.clear();
        self.queued = 0;
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use tempfile::tempdir;

    use super::*;

    fn queued(jobs: &Receiver<Job>) -> usize {
        jobs.try_iter().filter(|job| matches!(job, Job::Line(_))).count()
    }

    #[test]
    fn queue_takes_its_bytes_and_no_more_until_lines_are_written() {
        let (log, jobs) = AccessLog::new(30);
        (0..3).for_each(|_| log.write(vec![b'x'; 10]));
        log.write(vec![b'x'; 1]);
        assert_eq!((queued(&jobs), log.queued.load(Ordering::Relaxed)), (3, 30));
        log.queued.fetch_sub(10, Ordering::Relaxed);
        log.write(vec![b'x'; 11]);
        log.write(vec![b'x'; 10]);
        assert_eq!((queued(&jobs), log.queued.load(Ordering::Relaxed)), (1, 30));
    }

    #[test]
    fn flushed_lines_are_in_the_file_in_their_order_and_free_the_queue() {
        let dir = tempdir().expect("a directory");
        let path = dir.path().join("access.log");
        let log = AccessLog::open(AccessTarget::File(path.clone()), 1 << 20).expect("it opens");
        for number in 0..1000 {
            log.write(format!("{number}\n").into_bytes());
        }
        log.flush(Duration::from_mins(1));
        let text = fs::read_to_string(&path).expect("text");
        assert!(
            text.ends_with('\n') && text.lines().eq((0..1000).map(|n| n.to_string())),
            "{text}"
        );
        assert_eq!(log.queued.load(Ordering::Relaxed), 0);
    }
}
