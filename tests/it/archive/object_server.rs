//! The requests of S3 that neve sends, over a directory. The server counts them and fails on demand.

use std::collections::HashSet;
use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU8, AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex};
use std::thread;
use std::time::Duration;

use crate::store::archive::objects;

/// Behavior of the server.
#[derive(Clone, Copy)]
pub(super) enum Mode {
    Serves = 0,
    /// Closes each connection.
    Closes = 1,
    /// Accepts connections and answers no request.
    Silent = 2,
    /// Says that it is overloaded.
    SlowDown = 3,
    /// Answers each range only when it is requested again.
    Stalls = 4,
    /// Answers 501 to each PUT with a condition.
    NoConditions = 5,
    /// Answers once the mode is another one.
    Holds = 6,
    /// Sends the half of each body and closes.
    CutsBodies = 7,
    /// Resets each connection in the midst of the body.
    Resets = 8,
    /// Sends the head and then a byte of the body now and then.
    Trickles = 9,
    /// Cuts each third body off.
    CutsSome = 10,
    /// Answers after [`DELAY`].
    Delays = 11,
}

/// Time between two bytes of a body that trickles.
const TRICKLE: Duration = Duration::from_secs(5);
/// Time of a distant store.
pub(super) const DELAY: Duration = Duration::from_millis(30);

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
    /// Key that the server gives for credentials, and the one that it takes; it takes any without one.
    keys: Mutex<Option<[&'static str; 2]>>,
    /// Connections that get no answer.
    open: Mutex<Vec<TcpStream>>,
    /// Told of each change of the mode.
    changed: (Mutex<()>, Condvar),
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
            keys: Mutex::default(),
            open: Mutex::default(),
            changed: Default::default(),
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
        let _changing = self.shared.changed.0.lock().expect("no panic");
        self.shared.mode.store(mode as u8, Ordering::SeqCst);
        self.shared.changed.1.notify_all();
    }

    pub(super) fn gets(&self) -> usize {
        self.shared.gets()
    }

    /// Gives a key at `/credentials` and as STS does, and takes one: that of others has expired.
    pub(super) fn set_keys(&self, given: &'static str, taken: &'static str) {
        *self.shared.keys.lock().expect("no panic") = Some([given, taken]);
    }

    pub(super) fn port(&self) -> u16 {
        self.port
    }
}

impl Shared {
    fn gets(&self) -> usize {
        self.gets.load(Ordering::SeqCst)
    }

    fn talk(&self, stream: TcpStream) {
        let Ok(mut out) = stream.try_clone() else { return };
        let mut input = BufReader::new(stream);
        while let Some((request, head, sent)) = received(&mut input) {
            if let Some(answer) = self.about_keys(&request, &head) {
                let _ = out.write_all(answer.as_bytes());
                continue;
            }
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
                mode if (Mode::CutsBodies as u8..=Mode::Trickles as u8).contains(&mode)
                    || mode == Mode::CutsSome as u8 && self.gets().is_multiple_of(3) =>
                {
                    return self.break_off(&mut out, &self.answer(&request, &head), mode);
                }
                mode => {
                    if mode == Mode::Holds as u8 {
                        self.wait_while(Mode::Holds, None);
                    } else if mode == Mode::Delays as u8 {
                        self.wait_while(Mode::Delays, Some(DELAY));
                    }
                    let refuses = mode == Mode::NoConditions as u8;
                    let answer = match request.split(' ').next() {
                        Some("GET") => self.answer(&request, &head),
                        _ => self.change(&request, &head, &sent, refuses),
                    };
                    if out.write_all(&answer).is_err() {
                        return;
                    }
                }
            }
        }
    }

    /// Answers the request for a key, and one with a key that is not taken. A key ends at once, so that each
    /// request asks for one.
    fn about_keys(&self, request: &str, head: &[String]) -> Option<String> {
        let [given, taken] = (*self.keys.lock().expect("no panic"))?;
        let (status, body) = if request.starts_with("GET /credentials ") {
            let secret = r#""SecretAccessKey":"s","Token":"t","Expiration":"2026-01-01T00:00:00Z""#;
            ("200 OK", format!("{{\"AccessKeyId\":\"{given}\",{secret}}}"))
        } else if request.starts_with("POST ") {
            // AssumeRoleWithWebIdentity, with its parameters in the query.
            let is_right = STS_PARAMETERS.iter().all(|parameter| request.contains(parameter));
            if is_right {
                ("200 OK", sts_response(given))
            } else {
                ("403 Forbidden", request.to_owned())
            }
        } else {
            let is_taken = head.iter().any(|line| line.contains(&format!("Credential={taken}/")));
            let body = "<Error><Code>ExpiredToken</Code></Error>".to_owned();
            Some(("400 Bad Request", body)).filter(|_| !is_taken)?
        };
        Some(format!("HTTP/1.1 {status}\r\nContent-Length: {}\r\n\r\n{body}", body.len()))
    }

    /// Waits while the mode is this one, at most so long.
    fn wait_while(&self, mode: Mode, limit: Option<Duration>) {
        let (changing, changed) = &self.changed;
        let is_it = |(): &mut ()| self.mode.load(Ordering::SeqCst) == mode as u8;
        let guard = changing.lock().expect("no panic");
        match limit {
            None => drop(changed.wait_while(guard, is_it).expect("no panic")),
            Some(limit) => drop(changed.wait_timeout_while(guard, limit, is_it).expect("no panic")),
        }
    }

    /// Sends a part of an answer, and ends it as the mode says.
    fn break_off(&self, out: &mut TcpStream, answer: &[u8], mode: u8) {
        let body = answer.windows(4).position(|four| four == b"\r\n\r\n").map_or(0, |at| at + 4);
        let half = body + (answer.len() - body) / 2;
        if mode != Mode::Trickles as u8 {
            let _ = out.write_all(&answer[..half]);
            if mode == Mode::Resets as u8 {
                // Closes with RST.
                let _ = rustix::net::sockopt::set_socket_linger(&*out, Some(Duration::ZERO));
            }
            return;
        }
        let mut sent = out.write_all(&answer[..body]);
        for byte in &answer[body..] {
            // A probe reads one byte, and must not find it in time.
            self.wait_while(Mode::Trickles, Some(TRICKLE));
            if sent.is_err() || self.mode.load(Ordering::SeqCst) != Mode::Trickles as u8 {
                return;
            }
            sent = out.write_all(&[*byte]);
        }
    }

    /// True for the first request of a range.
    fn is_first(&self, request: &str, head: &[String]) -> bool {
        let is_range = |line: &&String| line.to_ascii_lowercase().starts_with("range: ");
        let range = head.iter().find(is_range).cloned().unwrap_or_default();
        self.stalled.lock().expect("no panic").insert(format!("{request} {range}"))
    }

    /// Puts or deletes an object. Many at once are not deleted.
    fn change(&self, request: &str, head: &[String], sent: &[u8], refuses: bool) -> Vec<u8> {
        let mut words = request.split(' ');
        let (method, path) = (words.next(), words.next().unwrap_or_default());
        let is_conditional = ["if-match: ", "if-none-match: "]
            .iter()
            .any(|name| head.iter().any(|line| line.to_ascii_lowercase().starts_with(name)));
        let path = self.dir.join(path.trim_start_matches("/bucket/"));
        let status = match method {
            Some("PUT") if is_conditional && refuses => "501 Not Implemented",
            Some("PUT") => {
                let parent = path.parent().expect("an object has one");
                let made = fs::create_dir_all(parent).and_then(|()| fs::write(&path, sent));
                if made.is_ok() { "200 OK" } else { "500 Internal Server Error" }
            }
            Some("DELETE") => {
                let _ = fs::remove_file(path); // S3 does not say whether it was there
                "204 No Content"
            }
            _ => "501 Not Implemented",
        };
        format!("HTTP/1.1 {status}\r\nETag: \"e\"\r\nContent-Length: 0\r\n\r\n").into_bytes()
    }

    /// Objects with the prefix of a query, with a delimiter those of one level.
    fn listed(&self, query: &str) -> Vec<u8> {
        let prefix = query.split("prefix=").nth(1).unwrap_or_default().replace("%2F", "/");
        let prefix = prefix.split('&').next().unwrap_or_default();
        let content = |path: PathBuf| {
            let size = fs::read(&path).map_or(0, |bytes| bytes.len());
            let key = path.strip_prefix(&self.dir).expect("it is below").display().to_string();
            let found = format!(
                "<Contents><Key>{key}</Key><LastModified>2026-01-01T00:00:00.000Z</LastModified>\
                 <ETag>\"e\"</ETag><Size>{size}</Size></Contents>"
            );
            let rest = key.strip_prefix(prefix)?;
            let is_below = query.contains("delimiter=") && rest.contains('/');
            (!is_below).then_some(found)
        };
        let found: String = objects(&self.dir).into_iter().filter_map(content).collect();
        let text =
            format!("<ListBucketResult><IsTruncated>false</IsTruncated>{found}</ListBucketResult>");
        format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n{text}", text.len()).into_bytes()
    }

    fn answer(&self, request: &str, head: &[String]) -> Vec<u8> {
        let path = request.split(' ').nth(1).unwrap_or_default();
        let query = path.split_once('?').map(|(_, query)| query);
        if let Some(query) = query.filter(|query| query.contains("list-type=2")) {
            return self.listed(query);
        }
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

/// Parameters of a request for the key of a role.
const STS_PARAMETERS: [&str; 4] = [
    "Action=AssumeRoleWithWebIdentity",
    "RoleArn=arn%3Aaws%3Aiam%3A%3A1%3Arole%2Freader",
    "RoleSessionName=replica",
    "WebIdentityToken=web-token",
];

/// Response of STS with a key that ends at once.
fn sts_response(key: &str) -> String {
    format!(
        "<AssumeRoleWithWebIdentityResponse><AssumeRoleWithWebIdentityResult><Credentials>\
         <SessionToken>t</SessionToken><SecretAccessKey>s</SecretAccessKey>\
         <Expiration>2026-01-01T00:00:00Z</Expiration><AccessKeyId>{key}</AccessKeyId></Credentials>\
         </AssumeRoleWithWebIdentityResult></AssumeRoleWithWebIdentityResponse>"
    )
}

/// Request line, head and body of the next request.
fn received(input: &mut impl BufRead) -> Option<(String, Vec<String>, Vec<u8>)> {
    let mut lines = input.by_ref().lines().map_while(Result::ok);
    let request = lines.next()?;
    let head: Vec<String> = lines.take_while(|line| !line.is_empty()).collect();
    let length = head.iter().find_map(|line| {
        let (name, value) = line.split_once(": ")?;
        name.eq_ignore_ascii_case("content-length").then(|| value.parse::<u64>().ok())?
    });
    let mut sent = Vec::new();
    input.take(length.unwrap_or(0)).read_to_end(&mut sent).ok()?;
    Some((request, head, sent))
}
