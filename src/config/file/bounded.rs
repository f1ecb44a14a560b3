//! Files that an operator names, read up to a bound. A device or a pipe may have no end.

use std::collections::{HashMap, HashSet};
use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::sync::{LazyLock, Mutex};

/// Texts that came through pipes, by path.
static PIPED: LazyLock<Mutex<HashMap<PathBuf, String>>> = LazyLock::new(Mutex::default);
/// Paths of regular files that were read.
static REGULAR: LazyLock<Mutex<HashSet<PathBuf>>> = LazyLock::new(Mutex::default);

/// Reads a text of at most `bytes_max` bytes. A pipe will do, as `<(...)` of a shell makes them. It
/// gives its text once: at a reload its text is that of the start, and no thread waits for a writer.
///
/// # Errors
/// The reason, without the path.
pub(crate) fn read_text(path: &Path, bytes_max: u64) -> Result<String, String> {
    let kept = PIPED.lock().ok().and_then(|piped| piped.get(path).cloned());
    if let Some(text) = kept {
        return Ok(text);
    }
    // Before it is opened: that of a pipe without a writer never ends.
    if is_replaced(path) {
        return Err("it was a regular file before, and is none now".to_owned());
    }
    let file = File::open(path).map_err(|error| error.to_string())?;
    let metadata = file.metadata().map_err(|error| error.to_string())?;
    let text = read_open(file, metadata.len(), bytes_max)?;
    if metadata.is_file() {
        REGULAR.lock().map(|mut regular| regular.insert(path.to_owned())).ok();
    } else {
        PIPED.lock().map(|mut piped| piped.insert(path.to_owned(), text.clone())).ok();
    }
    Ok(text)
}

/// True if a path that had a regular file has a pipe or another kind now.
fn is_replaced(path: &Path) -> bool {
    let was_regular = REGULAR.lock().is_ok_and(|regular| regular.contains(path));
    was_regular && std::fs::metadata(path).is_ok_and(|metadata| !metadata.is_file())
}

fn read_open(file: File, len: u64, bytes_max: u64) -> Result<String, String> {
    let mut text = Vec::new();
    file.take(bytes_max + 1).read_to_end(&mut text).map_err(|error| error.to_string())?;
    // One byte beyond the bound was read, which shows that there is more.
    if text.len() as u64 > bytes_max {
        let len = if len > bytes_max { len.to_string() } else { format!("more than {bytes_max}") };
        return Err(format!("{len} bytes; allowed: {bytes_max}"));
    }
    String::from_utf8(text).map_err(|error| format!("no UTF-8: {error}"))
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::io::{Write, pipe};
    use std::os::fd::AsRawFd;

    use super::*;

    #[test]
    fn endless_and_long_files_are_refused_and_a_pipe_is_read() {
        for endless in ["/dev/zero", "/dev/full"] {
            let why = read_text(Path::new(endless), 9).unwrap_err();
            assert_eq!(why, "more than 9 bytes; allowed: 9", "{endless}");
        }
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("file");
        fs::write(&path, "123456789").unwrap();
        assert_eq!(read_text(&path, 9).unwrap(), "123456789");
        assert_eq!(read_text(&path, 8).unwrap_err(), "9 bytes; allowed: 8");
        fs::write(&path, b"\xff").unwrap();
        assert!(read_text(&path, 9).unwrap_err().starts_with("no UTF-8: "));
        assert!(read_text(dir.path(), 9).unwrap_err().contains("Is a directory"));
        let (reader, mut writer) = pipe().unwrap();
        writer.write_all(b"piped").unwrap();
        drop(writer);
        let descriptor = reader.as_raw_fd();
        let piped = format!("/proc/self/fd/{descriptor}");
        assert_eq!(read_text(Path::new(&piped), 9).unwrap(), "piped");
        assert_eq!(read_text(Path::new(&piped), 9).unwrap(), "piped", "kept for a reload");
    }
}
