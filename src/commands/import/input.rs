//! Reads lines on a thread of its own: a pipe may be silent for long.

use std::fs::File;
use std::io::{self, BufRead, BufReader, Read};
use std::path::Path;
use std::thread;

use bytes::Bytes;
use tokio::sync::mpsc;

use super::line::ImportLine;

/// Bytes of a line. `neve export` writes two responses of at most 64 MiB each, and 25 bytes.
const LINE_BYTES_MAX: u64 = (128 << 20) + 64;
/// Lines that wait to be proven.
const LINES_MAX: usize = 2;

/// First bytes of a gzip file.
const GZIP: [u8; 2] = [0x1f, 0x8b];
const GZIP_FOUND: &str = "gzip; use zcat FILE | neve import";

/// A line, or its number and what is wrong with it.
pub(super) type ReadLine = Result<ImportLine, (u64, String)>;
/// Lines as they come. After a wrong one there is none.
pub(super) type ReadLines = mpsc::Receiver<ReadLine>;

/// Starts to read a file, or standard input.
pub(super) fn start(file: Option<&Path>) -> io::Result<ReadLines> {
    let source: Box<dyn Read + Send> = match file.filter(|file| file.as_os_str() != "-") {
        Some(path) => Box::new(opened(path)?),
        None => Box::new(io::stdin()),
    };
    let (lines, incoming) = mpsc::channel(LINES_MAX);
    let thread = thread::Builder::new().name("import".to_owned());
    // It is never joined: a read of a silent pipe may not end.
    thread.spawn(move || read_all(BufReader::with_capacity(1 << 20, source), &lines))?;
    Ok(incoming)
}

fn opened(path: &Path) -> io::Result<File> {
    let named = |error| io::Error::other(format!("{}: {error}", path.display()));
    let file = File::open(path).map_err(named)?;
    // A folder can be opened, and fails only when it is read.
    if file.metadata().map_err(named)?.is_dir() {
        return Err(named(io::ErrorKind::IsADirectory.into()));
    }
    Ok(file)
}

/// Sends each line, up to the first that is wrong, or until nothing takes them any more.
fn read_all(mut source: impl BufRead, lines: &mpsc::Sender<ReadLine>) {
    for number in 1.. {
        let line = match next(&mut source, LINE_BYTES_MAX) {
            Ok(None) => return,
            Ok(Some(text)) if text.starts_with(&GZIP) => Err(GZIP_FOUND.to_owned()),
            Ok(Some(text)) => ImportLine::parse(number, &text),
            Err(why) => Err(why),
        };
        let line = line.map_err(|why| (number, why));
        let is_last = line.is_err();
        if lines.blocking_send(line).is_err() || is_last {
            return;
        }
    }
}

/// Returns the next line without its end; `None` at the end of the input.
fn next(source: &mut impl BufRead, bytes_max: u64) -> Result<Option<Bytes>, String> {
    let mut text = Vec::new();
    // One more for the line feed, and one that shows that the line is longer.
    let read = source.take(bytes_max + 2).read_until(b'\n', &mut text);
    read.map_err(|error| format!("cannot read: {error}"))?;
    if text.is_empty() {
        return Ok(None);
    }
    if text.last() == Some(&b'\n') {
        text.pop();
    }
    if text.len() as u64 > bytes_max {
        return Err(format!("longer than {bytes_max} bytes"));
    }
    Ok(Some(text.into()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn gzip_is_named_as_such() {
        let (lines, mut incoming) = mpsc::channel(1);
        read_all(&b"\x1f\x8b\x08\0\xff\n{}"[..], &lines);
        let refused = incoming.blocking_recv().and_then(Result::err);
        assert_eq!(refused, Some((1, "gzip; use zcat FILE | neve import".to_owned())));
    }

    #[test]
    fn line_may_have_just_as_many_bytes_as_are_allowed() {
        let read = |text: &str| {
            let mut source = text.as_bytes();
            [next(&mut source, 4), next(&mut source, 4)]
        };
        let text = |text: &'static str| Ok(Some(Bytes::from_static(text.as_bytes())));
        assert_eq!(read("abcd\nef"), [text("abcd"), text("ef")]);
        assert_eq!(read("abcd"), [text("abcd"), Ok(None)]);
        let longer = || Err("longer than 4 bytes".to_owned());
        assert_eq!(read("abcde")[0], longer());
        assert_eq!(read("abcde\n")[0], longer());
        assert_eq!(read("abcdefghi\n")[0], longer());
        assert_eq!(read("\na"), [text(""), text("a")]);
    }
}
