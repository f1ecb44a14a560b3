//! The GET of S3 over a directory, which counts its requests and fails on demand.

use std::collections::HashSet;
use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU8, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;

/// Behavior of the server.
#[derive(Clone, Copy)]
pub(super) enum Mode {
    Serves = 0,
    /// Closes each connection.
    Closes = 1,
    /// Answers nothing.
    Silent = 2,
    /// Says that it is overloaded.
    SlowDown = 3,
    /// Answers each range only when it is requested again.
    Stalls = 4,
}

/// A bucket with the name `bucket`.
pub(super) struct ObjectServer {
    shared: Arc<Shared>,
    port: u16,
}

struct Shared {
    dir: PathBuf,
    mode: AtomicU8,
    gets: AtomicUsize,
    /// Ranges that were requested while it stalls.
    stalled: Mutex<HashSet<String>>,
    /// Connections that get no answer.
    open: Mutex<Vec<TcpStream>>,
}

impl ObjectServer {
    pub(super) fn start(dir: &Path) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("loopback has free ports");
        let port = listener.local_addr().expect("it is bound").port();
        let shared = Arc::new(Shared {
            dir: dir.to_owned(),
            mode: AtomicU8::new(Mode::Serves as u8),
            gets: AtomicUsize::new(0),
            stalled: Mutex::default(),
            open: Mutex::default(),
        });
        let serving = Arc::clone(&shared);
        thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let serving = Arc::clone(&serving);
                thread::spawn(move || serving.talk(stream));
            }
        });
        Self { shared, port }
    }

    pub(super) fn endpoint(&self) -> String {
        format!("http://127.0.0.1:{}", self.port)
    }

    pub(super) fn set(&self, mode: Mode) {
        self.shared.mode.store(mode as u8, Ordering::SeqCst);
    }

    pub(super) fn gets(&self) -> usize {
        self.shared.gets.load(Ordering::SeqCst)
    }
}

impl Shared {
    fn talk(&self, stream: TcpStream) {
        let Ok(mut out) = stream.try_clone() else { return };
        let mut lines = BufReader::new(stream).lines();
        while let Some(Ok(request)) = lines.next() {
            let head: Vec<String> =
                lines.by_ref().map_while(Result::ok).take_while(|line| !line.is_empty()).collect();
            self.gets.fetch_add(1, Ordering::SeqCst);
            match self.mode.load(Ordering::SeqCst) {
                mode if mode == Mode::Closes as u8 => return,
                mode if mode == Mode::Silent as u8
                    || mode == Mode::Stalls as u8 && self.is_first(&request, &head) =>
                {
                    self.open.lock().expect("no panic").push(out);
                    return;
                }
                mode if mode == Mode::SlowDown as u8 => {
                    let _ = out.write_all(b"HTTP/1.1 503 SlowDown\r\nContent-Length: 0\r\n\r\n");
                }
                _ => {
                    if out.write_all(&self.answer(&request, &head)).is_err() {
                        return;
                    }
                }
            }
        }
    }

    /// True for the first request of a range.
    fn is_first(&self, request: &str, head: &[String]) -> bool {
        let is_range = |line: &&String| line.to_ascii_lowercase().starts_with("range: ");
        let range = head.iter().find(is_range).cloned().unwrap_or_default();
        self.stalled.lock().expect("no panic").insert(format!("{request} {range}"))
    }

    fn answer(&self, request: &str, head: &[String]) -> Vec<u8> {
        let path = request.split(' ').nth(1).unwrap_or_default();
        let path = path.trim_start_matches("/bucket/").split('?').next().unwrap_or_default();
        let Ok(bytes) = fs::read(self.dir.join(path)) else {
            return b"HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n".to_vec();
        };
        let range = head.iter().find_map(|line| {
            let (name, value) = line.split_once(": ")?;
            let (from, to) = value.strip_prefix("bytes=")?.split_once('-')?;
            let is_range = name.eq_ignore_ascii_case("range");
            Some((from.parse::<usize>().ok()?, to.parse::<usize>().ok()?)).filter(|_| is_range)
        });
        let common = "ETag: \"e\"\r\nLast-Modified: Thu, 01 Jan 2026 00:00:00 GMT\r\n";
        let (first, part) = match range {
            Some((from, _)) if from >= bytes.len() => {
                return b"HTTP/1.1 416 Range Not Satisfiable\r\nContent-Length: 0\r\n\r\n".to_vec();
            }
            Some((from, to)) => {
                let to = to.min(bytes.len() - 1);
                let line = format!("Content-Range: bytes {from}-{to}/{}\r\n", bytes.len());
                (format!("HTTP/1.1 206 Partial Content\r\n{line}"), &bytes[from..=to])
            }
            None => ("HTTP/1.1 200 OK\r\n".to_owned(), &bytes[..]),
        };
        let head = format!("{first}{common}Content-Length: {}\r\n\r\n", part.len());
        [head.as_bytes(), part].concat()
    }
}
