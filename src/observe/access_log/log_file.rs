//! The file of the access log, which a rotation replaces.

use std::fs::{self, File};
use std::io::{self, Write};
use std::os::fd::AsFd;
use std::os::unix::fs::{FileTypeExt, OpenOptionsExt};
use std::path::Path;
use std::time::{Duration, Instant};

use tracing::{info, warn};

use crate::config::settings::AccessTarget;

/// Permissions of a new file: clients' addresses are for the group at most.
const MODE: u32 = 0o640;
/// Shortest time between two warnings of failed writes.
const WARN_INTERVAL: Duration = Duration::from_mins(1);

/// Lines that a write left in the file, and lines that are lost.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct WrittenLines {
    pub(super) written: u64,
    pub(super) failed: u64,
}

/// An open file of the access log.
pub(super) struct LogFile {
    target: AccessTarget,
    file: File,
    /// True if the file ends in the middle of a line, since a write failed there.
    is_cut: bool,
    warned: Option<Instant>,
}

impl LogFile {
    pub(super) fn open(target: AccessTarget) -> io::Result<Self> {
        let file = open(&target)?;
        Ok(Self { target, file, is_cut: false, warned: None })
    }

    /// Opens the path again, where a rotation has left another file or none. If that fails, the old
    /// file stays.
    pub(super) fn reopen(&mut self) {
        let AccessTarget::File(path) = &self.target else { return };
        let shown = path.display();
        match open(&self.target) {
            Ok(file) => {
                (self.file, self.is_cut) = (file, false);
                info!(file = %shown, "access log reopened");
            }
            Err(error) => warn!(file = %shown, %error, "access log not reopened"),
        }
    }

    /// Writes whole lines. After an error the rest of them is lost.
    pub(super) fn write(&mut self, lines: &[u8]) -> WrittenLines {
        // The last write ended amid a line: a new one must not be joined to it.
        let cut = if self.is_cut { &b"\n"[..] } else { b"" };
        let mut left = lines;
        let mut result = self.file.write_all(cut);
        while result.is_ok() && !left.is_empty() {
            result = self.write_part(&mut left);
        }
        let done = &lines[..lines.len() - left.len()];
        // With none written, the newline above may be missing, too: one too many does no harm.
        self.is_cut = done.last().map_or(self.is_cut && result.is_err(), |last| *last != b'\n');
        if let Err(error) = result {
            self.warn(&error);
        }
        WrittenLines { written: count(done), failed: count(left) }
    }

    /// Writes a part of `left`, which has the rest afterwards.
    fn write_part(&mut self, left: &mut &[u8]) -> io::Result<()> {
        match self.file.write(left) {
            Ok(0) => Err(io::ErrorKind::WriteZero.into()),
            Ok(more) => {
                *left = &left[more..];
                Ok(())
            }
            Err(error) if error.kind() == io::ErrorKind::Interrupted => Ok(()),
            Err(error) => Err(error),
        }
    }

    fn warn(&mut self, error: &io::Error) {
        if self.warned.is_none_or(|at| at.elapsed() >= WARN_INTERVAL) {
            self.warned = Some(Instant::now());
            warn!(%error, "access log not written");
        }
    }
}

fn count(lines: &[u8]) -> u64 {
    memchr::memchr_iter(b'\n', lines).count() as u64
}

fn open(target: &AccessTarget) -> io::Result<File> {
    match target {
        AccessTarget::Stdout => Ok(io::stdout().as_fd().try_clone_to_owned()?.into()),
        // Opened for writing only, a pipe without a reader would make neve wait.
        AccessTarget::File(path) if is_pipe(path) => {
            File::options().read(true).write(true).open(path)
        }
        AccessTarget::File(path) => File::options().append(true).create(true).mode(MODE).open(path),
    }
}

fn is_pipe(path: &Path) -> bool {
    fs::metadata(path).is_ok_and(|metadata| metadata.file_type().is_fifo())
}

#[cfg(test)]
mod tests {
    use tempfile::tempdir;

    use super::*;

    #[test]
    fn lines_follow_what_is_there_and_a_rotation_begins_a_new_file() {
        let dir = tempdir().expect("a directory");
        let (path, old) = (dir.path().join("access.log"), dir.path().join("access.log.1"));
        fs::write(&path, "before\n").expect("a file");
        let mut log = LogFile::open(AccessTarget::File(path.clone())).expect("it opens");
        assert_eq!(log.write(b"one\ntwo\n"), WrittenLines { written: 2, failed: 0 });
        fs::rename(&path, &old).expect("a rotation");
        log.write(b"three\n");
        log.reopen();
        log.write(b"four\n");
        assert_eq!(fs::read_to_string(&old).expect("text"), "before\none\ntwo\nthree\n");
        assert_eq!(fs::read_to_string(&path).expect("text"), "four\n");
        fs::remove_file(&path).expect("it is there");
        fs::create_dir(&path).expect("a directory in its place");
        log.reopen();
        assert_eq!(log.write(b"five\n").written, 1, "the old file stays");
    }

    #[test]
    fn failed_write_is_counted_by_lines() {
        let full = AccessTarget::File("/dev/full".into());
        let mut log = LogFile::open(full).expect("it opens");
        assert_eq!(log.write(b"one\ntwo\n"), WrittenLines { written: 0, failed: 2 });
        assert!(log.warned.is_some() && !log.is_cut);
    }
}
