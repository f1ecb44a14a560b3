//! Limits of the process, calls of the kernel, and ports.

use std::fs;
use std::io::{self, Read, Write};
use std::net::{TcpListener, TcpStream, ToSocketAddrs};
use std::os::unix::fs::FileTypeExt;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

use rustix::process::{Resource, getrlimit};
use rustix::thread::{CapabilitySet, capabilities};

use super::report::Finding;
use crate::commands::start::not_bound;
use crate::config::settings::{AdminListen, Config};
use crate::config::{Human, ListenAddress};
use crate::observe::process;

/// Time that another process on the port has to say who it is.
const ANSWER_TIME_MAX: Duration = Duration::from_secs(2);
/// Bytes of its answer that are read.
const ANSWER_BYTES_MAX: u64 = 4 << 10;

/// Members of neve's /health.
const NEVE: [&str; 2] = ["\"version\"", "\"max_contiguous_height\""];

pub(super) fn check(config: &Config) -> Vec<Finding> {
    let mut findings = vec![descriptors(config), locked_memory(config), page_cache(), filter()];
    findings.extend(config.http.listen.iter().map(|address| port("listen", address)));
    if let AdminListen::Given(address) | AdminListen::Default(address) = &config.http.admin_listen {
        findings.push(port("admin-listen", address));
    }
    findings
}

fn descriptors(config: &Config) -> Finding {
    let limit = getrlimit(Resource::Nofile).current;
    let allowed = process::connections_max(config.archive.is_some());
    judged_descriptors(limit, allowed, config.limits.connections_max)
}

/// Compares the connections that descriptors allow with those of the setting.
fn judged_descriptors(limit: Option<u64>, allowed: usize, wanted: usize) -> Finding {
    let shown = limit.map_or("unlimited".to_owned(), |limit| limit.to_string());
    let text = format!("{shown} descriptors allow {allowed} connections");
    if allowed >= wanted {
        return Finding::ok("nofile", text);
    }
    let text = format!("{text}, --connections-max is {wanted}");
    Finding::warning("nofile", text, "raise LimitNOFILE= or ulimit -n, or lower --connections-max")
}

fn locked_memory(config: &Config) -> Finding {
    let wanted = config.lock_newest_bytes;
    let privileged =
        capabilities(None).is_ok_and(|sets| sets.effective.contains(CapabilitySet::IPC_LOCK));
    match getrlimit(Resource::Memlock).current {
        // With CAP_IPC_LOCK the kernel applies no limit.
        _ if privileged => Finding::ok("memlock", "no limit: this user may lock all memory"),
        Some(limit) if limit < wanted => {
            let (limit, wanted) = (Human(limit), Human(wanted));
            let text = format!("{limit} may be locked, --lock-newest-bytes is {wanted}");
            Finding::warning("memlock", text, "raise LimitMEMLOCK= or ulimit -l")
        }
        Some(limit) => Finding::ok("memlock", format!("{} may be locked", Human(limit))),
        None => Finding::ok("memlock", "no limit"),
    }
}

fn page_cache() -> Finding {
    match neve_store::residency::check_kernel() {
        Ok(()) => Finding::ok("mincore", "the kernel tells which pages are in memory"),
        Err(error) => {
            let advice = "add mincore to SystemCallFilter= of the unit, or to the seccomp profile \
                          of the container";
            Finding::problem("mincore", format!("mincore(2) fails: {error}"), advice)
        }
    }
}

/// Says whether this process has a filter of system calls. That of a running service is in
/// `/proc/PID/status`, and that of a unit holds for its own processes only.
fn filter() -> Finding {
    let text = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let mode = text.lines().find_map(|line| line.strip_prefix("Seccomp:")).map(str::trim);
    let of = "this process, neve doctor";
    Finding::ok(
        "filter",
        match mode {
            Some("0") => format!(
                "no system call filter on {of}; SystemCallFilter= of a unit holds for the unit only: \
                 systemd-run -p SystemCallFilter=... neve doctor checks with it"
            ),
            Some(_) => format!("a system call filter is on {of}: the checks above passed it"),
            None => format!("the kernel does not tell the system call filter of {of}"),
        },
    )
}

/// Checks that an address can be listened on, or that a neve listens there already.
fn port(setting: &'static str, address: &ListenAddress) -> Finding {
    let bound = match address {
        ListenAddress::Tcp { host, port } => TcpListener::bind((host.as_str(), *port)).map(drop),
        ListenAddress::Unix(path) => unused(path),
    };
    match bound {
        Ok(()) => Finding::ok(setting, format!("{address} is free")),
        Err(error) if error.kind() == io::ErrorKind::AddrInUse => in_use(setting, address, &error),
        Err(error) => unusable(setting, address, &error),
    }
}

/// Finds who has an address. The doctor is also for a neve that runs: its own ports are no problem.
fn in_use(setting: &'static str, address: &ListenAddress, error: &io::Error) -> Finding {
    match owner(address) {
        Owner::Neve => Finding::ok(setting, format!("{address} is in use by a neve")),
        Owner::Silent => {
            let text =
                format!("{address} is in use, and its owner takes connections and is silent");
            let advice = "if systemd has it for neve.socket, see neve.service; else stop its owner \
                          (see ss -ltnp)";
            Finding::warning(setting, text, advice)
        }
        Owner::Other => unusable(setting, address, error),
    }
}

fn unusable(setting: &'static str, address: &ListenAddress, error: &io::Error) -> Finding {
    let why = not_bound(address, error);
    // The texts of errors name the next step behind a semicolon.
    let (text, advice) = why.split_once("; ").unwrap_or((&why, "choose another address"));
    Finding::problem(setting, format!("{address}: {text}"), advice)
}

/// Checks that no process listens on a socket of the file system, and that one can be made there.
fn unused(path: &Path) -> io::Result<()> {
    if let Ok(file) = path.symlink_metadata() {
        if !file.file_type().is_socket() {
            return Err(io::ErrorKind::AlreadyExists.into());
        }
        // A socket that refuses was left by an earlier process, and neve removes it. It takes each other failure as
        // the sign that a process listens.
        match UnixStream::connect(path) {
            Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => {}
            _ => return Err(io::ErrorKind::AddrInUse.into()),
        }
    }
    path.parent().map_or(Ok(()), |dir| tempfile::tempfile_in(dir).map(drop))
}

/// Process that listens at an address.
enum Owner {
    /// A neve, by its answer to /health.
    Neve,
    /// A process that takes connections and says nothing in time, as systemd, or a neve that starts.
    Silent,
    Other,
}

fn owner(address: &ListenAddress) -> Owner {
    let answer = match address {
        ListenAddress::Tcp { host, port } => connected(host, *port).and_then(health),
        ListenAddress::Unix(path) => UnixStream::connect(path).and_then(|stream| {
            stream.set_read_timeout(Some(ANSWER_TIME_MAX))?;
            health(stream)
        }),
    };
    match answer {
        Ok(Some(text)) if NEVE.iter().all(|part| text.contains(part)) => Owner::Neve,
        Ok(None) => Owner::Silent,
        _ => Owner::Other,
    }
}

fn connected(host: &str, port: u16) -> io::Result<TcpStream> {
    let resolved = (host, port).to_socket_addrs()?.next();
    let resolved = resolved.ok_or(io::ErrorKind::AddrNotAvailable)?;
    let stream = TcpStream::connect_timeout(&resolved, ANSWER_TIME_MAX)?;
    stream.set_read_timeout(Some(ANSWER_TIME_MAX))?;
    Ok(stream)
}

/// Asks for /health. `None` if nothing came in time.
fn health(mut stream: impl Read + Write) -> io::Result<Option<String>> {
    stream.write_all(b"GET /health HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")?;
    let mut answer = Vec::new();
    // Of a process that does not close, what came until then counts.
    let read = stream.take(ANSWER_BYTES_MAX).read_to_end(&mut answer);
    let is_late = read.is_err_and(|error| error.kind() == io::ErrorKind::WouldBlock);
    let is_silent = is_late && answer.is_empty();
    Ok((!is_silent).then(|| String::from_utf8_lossy(&answer).into_owned()))
}

#[cfg(test)]
mod tests {
    use super::super::report::Level;
    use super::*;

    #[test]
    fn port_is_free_or_its_owner_is_named() {
        let free = port("listen", &"127.0.0.1:0".parse().unwrap());
        assert_eq!(free, Finding::ok("listen", "127.0.0.1:0 is free"));
        let other = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = other.local_addr().unwrap();
        // It closes each connection without an answer.
        let closing = std::thread::spawn(move || drop(other.accept()));
        let taken = port("listen", &address.into());
        let advice = "stop its owner (see ss -ltnp)";
        assert_eq!(taken, Finding::problem("listen", format!("{address}: port in use"), advice));
        closing.join().unwrap();
        let foreign = port("listen", &"192.0.2.1:80".parse().unwrap());
        assert!(foreign.text.contains("no address of this machine"), "{foreign}");
    }

    /// systemd has the port of a socket unit, and answers nothing itself.
    #[test]
    fn silent_owner_of_a_port_may_be_a_socket_of_the_service_manager() {
        let silent = TcpListener::bind("127.0.0.1:0").unwrap();
        let found = port("listen", &silent.local_addr().unwrap().into());
        assert_eq!(found.level, Level::Warning, "{found}");
        assert!(found.to_string().contains("neve.socket"), "{found}");
    }

    #[test]
    fn path_where_no_socket_can_be_made_is_a_problem() {
        let dir = tempfile::tempdir().unwrap();
        let at = |name: &str| {
            let path = dir.path().join(name).display().to_string();
            port("listen", &format!("unix:{path}").parse().unwrap())
        };
        fs::write(dir.path().join("file"), "no socket").unwrap();
        assert!(at("socket").text.ends_with("socket is free"), "{}", at("socket"));
        assert!(!dir.path().join("socket").exists());
        let taken = at("file");
        assert!(
            taken.to_string().ends_with("a file that is no socket; name another path"),
            "{taken}"
        );
        let _other = std::os::unix::net::UnixDatagram::bind(dir.path().join("other")).unwrap();
        assert!(
            at("other").text.contains("in use"),
            "no stream can be made to it: {}",
            at("other")
        );
        let nowhere = at("no/socket");
        let advice =
            "No such file or directory (os error 2); name a path where neve's user may write";
        assert!(nowhere.to_string().ends_with(advice), "{nowhere}");
    }

    #[test]
    fn few_descriptors_are_a_warning_with_both_numbers() {
        let many = judged_descriptors(None, 10, 10);
        assert_eq!(many, Finding::ok("nofile", "unlimited descriptors allow 10 connections"));
        let few = judged_descriptors(Some(20), 10, 11);
        let text = "20 descriptors allow 10 connections, --connections-max is 11";
        assert_eq!(few.text, text);
        assert!(few.advice.is_some_and(|advice| advice.contains("LimitNOFILE=")));
    }
}
