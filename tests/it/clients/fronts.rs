//! Clients behind a front: their shares are theirs, through real proxies.

use std::fs;
use std::io::{BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};

use rustix::process::{Pid, Signal, kill_process};
use socket2::{Domain, Socket, Type};
use tempfile::TempDir;

use crate::support::corpus::MAIN;
use crate::support::neve::{LIMIT, Neve, fresh_dir};
use crate::support::node::wait::{Miss, wait_until};
use crate::support::recorded::Recorded;

/// A front, in the foreground. Dropping it ends it.
struct Front {
    child: Child,
    _dir: TempDir,
}

impl Front {
    /// Starts what Debian has where only an administrator's shell looks.
    fn start(program: &str, arguments: &[&str], configuration: &str, listens: SocketAddr) -> Self {
        let dir = fresh_dir();
        let path = dir.path().join("front.conf");
        let text = configuration.replace("DIR", &dir.path().display().to_string());
        fs::write(&path, text).unwrap();
        let debian = PathBuf::from("/usr/sbin").join(program);
        let mut command = Command::new(if debian.exists() { debian } else { program.into() });
        command.args(arguments).arg(path).current_dir(dir.path()).stdin(Stdio::null());
        let child = command.spawn().unwrap_or_else(|why| panic!("{program}: {why}"));
        let front = Self { child, _dir: dir };
        let up = || TcpStream::connect(listens).map_err(|why| Miss::NotYet(why.to_string()));
        wait_until(program, LIMIT, up).unwrap_or_else(|why| panic!("{why}"));
        front
    }

    fn haproxy(configuration: &str, listens: SocketAddr) -> Self {
        let defaults = "global\n maxconn 200\ndefaults\n timeout connect 5s\n timeout client 60s\n \
                        timeout server 60s\n";
        Self::start("haproxy", &["-db", "-f"], &format!("{defaults}{configuration}"), listens)
    }

    fn nginx(server: &str, listens: SocketAddr) -> Self {
        let temporary = ["client_body", "proxy", "fastcgi", "uwsgi", "scgi"];
        let temporary = temporary.map(|name| format!("{name}_temp_path DIR/{name};")).join(" ");
        let text = format!(
            "daemon off; worker_processes 1; pid DIR/pid; error_log DIR/log;\nevents {{}}\n\
             http {{ access_log off; {temporary} proxy_buffering off; proxy_http_version 1.1;\n\
             server {{ listen {listens}; {server} }} }}"
        );
        Self::start("nginx", &["-e", "stderr", "-c"], &text, listens)
    }
}

impl Drop for Front {
    fn drop(&mut self) {
        let _ = kill_process(Pid::from_child(&self.child), Signal::TERM);
        let _ = self.child.wait();
    }
}

/// Free at this moment: a front cannot be told to choose.
fn free() -> SocketAddr {
    TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap()
}

fn start(arguments: &[&str]) -> (Recorded, TempDir, Neve) {
    let (node, dir) = (Recorded::start(MAIN), fresh_dir());
    let url = node.url();
    let fixed = ["--upstream", &url, "--start", "300", "--serve-mirrors"];
    let neve = Neve::start(dir.path(), &[&fixed, arguments].concat());
    neve.wait_for_head(MAIN.head);
    (node, dir, neve)
}

/// A connection from one of the addresses of loopback.
fn connect(from: &str, to: SocketAddr) -> TcpStream {
    let socket = Socket::new(Domain::IPV4, Type::STREAM, None).unwrap();
    let from: SocketAddr = format!("{from}:0").parse().unwrap();
    socket.bind(&from.into()).unwrap();
    socket.connect(&to.into()).unwrap();
    let stream = TcpStream::from(socket);
    stream.set_read_timeout(Some(LIMIT)).unwrap();
    stream
}

/// Sends a request; its status, and the connection.
fn ask(from: &str, to: SocketAddr, request: &str) -> (u16, TcpStream) {
    let mut stream = connect(from, to);
    stream.write_all(request.as_bytes()).unwrap();
    let mut line = [0; 12];
    stream.read_exact(&mut line).unwrap();
    (String::from_utf8_lossy(&line[9..]).parse().unwrap(), stream)
}

/// Opens a stream for mirrors, of which each client address may have two here.
fn stream(from: &str, to: SocketAddr, more: &str) -> (u16, TcpStream) {
    let path = format!("/mirror/v1/records?from={}", MAIN.head);
    ask(from, to, &format!("GET {path} HTTP/1.1\r\nHost: x\r\n{more}\r\n"))
}

const SHARES: [&str; 4] = ["--mirrors-max", "8", "--trusted-proxies", "127.0.0.1"];

/// Each client has a share, and no client another's, whatever it writes in `header`.
fn clients_have_shares(to: SocketAddr, header: &str) {
    let one: Vec<_> = (0..2).map(|_| stream("127.0.0.2", to, "")).collect();
    assert!(one.iter().all(|(status, _)| *status == 200));
    assert_eq!(stream("127.0.0.2", to, "").0, 503);
    assert_eq!(stream("127.0.0.2", to, header).0, 503, "a claim");
    let other: Vec<_> = (0..2).map(|_| stream("127.0.0.3", to, header)).collect();
    assert!(other.iter().all(|(status, _)| *status == 200));
    assert_eq!(stream("127.0.0.3", to, "").0, 503);
}

#[test]
#[ignore = "needs nginx: ./check"]
fn clients_behind_nginx_have_shares_of_their_own() {
    let (_node, _dir, neve) = start(&SHARES);
    let to = free();
    let location = format!(
        "location / {{ proxy_pass http://{}; \
         proxy_set_header X-Forwarded-For $proxy_add_x_forwarded_for; }}",
        neve.address
    );
    let _nginx = Front::nginx(&location, to);
    clients_have_shares(to, "X-Forwarded-For: 203.0.113.9\r\nForwarded: for=203.0.113.9\r\n");
}

#[test]
#[ignore = "needs HAProxy: ./check"]
fn clients_behind_haproxy_have_shares_of_their_own_by_headers() {
    for (source, option) in [
        ("x-forwarded-for", "option forwardfor"),
        ("forwarded", "http-request add-header Forwarded for=%[src]"),
    ] {
        let (_node, _dir, neve) =
            start(&[&SHARES[..], &["--client-address-from", source]].concat());
        let to = free();
        let text = format!(
            "frontend f\n mode http\n bind {to}\n {option}\n default_backend b\n\
             backend b\n mode http\n server neve {}\n",
            neve.address
        );
        let _haproxy = Front::haproxy(&text, to);
        let claims = "X-Forwarded-For: 203.0.113.9\r\nForwarded: for=203.0.113.9\r\n";
        clients_have_shares(to, claims);
    }
}

#[test]
#[ignore = "needs HAProxy: ./check"]
fn clients_behind_haproxy_have_shares_of_their_own_by_the_proxy_protocol() {
    for option in ["send-proxy", "send-proxy-v2"] {
        let more = ["--client-address-from", "proxy-protocol", "--connections-address-max", "3"];
        let (_node, _dir, neve) = start(&[&SHARES[..], &more].concat());
        let to = free();
        let text = format!(
            "frontend f\n mode tcp\n bind {to}\n default_backend b\n\
             backend b\n mode tcp\n server neve {} {option}\n",
            neve.address
        );
        let _haproxy = Front::haproxy(&text, to);
        clients_have_shares(to, "X-Forwarded-For: 203.0.113.9\r\n");
        // Connections have a share each, too.
        let ready = "GET /ready HTTP/1.1\r\nHost: x\r\n\r\n";
        let kept: Vec<_> = (0..3).map(|_| ask("127.0.0.4", to, ready)).collect();
        assert!(kept.iter().all(|(status, _)| *status == 200), "{option}");
        assert_eq!(ask("127.0.0.4", to, ready).0, 503, "{option}");
        assert_eq!(ask("127.0.0.5", to, ready).0, 200, "{option}");
    }
}

/// A peer that is trusted must say whose connection it is, and another one cannot.
#[test]
fn proxy_protocol_is_required_of_trusted_peers_and_refused_of_others() {
    let more = ["--client-address-from", "proxy-protocol"];
    let (_node, _dir, neve) = start(&[&SHARES[..], &more].concat());
    let ready = "GET /ready HTTP/1.1\r\nHost: x\r\n\r\n";
    let header = "PROXY TCP4 203.0.113.9 127.0.0.1 4711 8545\r\n";
    let mut without = connect("127.0.0.1", neve.address);
    without.write_all(ready.as_bytes()).unwrap();
    assert!(!matches!(without.read(&mut [0]), Ok(1)), "a trusted peer without the header");
    assert_eq!(ask("127.0.0.1", neve.address, &format!("{header}{ready}")).0, 200);
    let mut pieces = connect("127.0.0.1", neve.address);
    for piece in format!("{header}{ready}").as_bytes().chunks(7) {
        pieces.write_all(piece).unwrap();
        std::thread::yield_now();
    }
    let answer = crate::support::client::read(&mut BufReader::new(pieces), false).unwrap();
    assert_eq!(answer.status, 200);
    assert_eq!(ask("127.0.0.2", neve.address, ready).0, 200);
    assert_eq!(ask("127.0.0.2", neve.address, &format!("{header}{ready}")).0, 400);
}

#[test]
fn headers_of_peers_that_are_not_trusted_name_nobody() {
    let (_node, _dir, neve) = start(&["--mirrors-max", "8"]);
    let claim = |last: u8| format!("X-Forwarded-For: 203.0.113.{last}\r\n");
    let taken: Vec<_> =
        (0..2).map(|last| stream("127.0.0.1", neve.address, &claim(last))).collect();
    assert!(taken.iter().all(|(status, _)| *status == 200));
    assert_eq!(stream("127.0.0.1", neve.address, &claim(9)).0, 503);
    assert_eq!(stream("127.0.0.2", neve.address, "").0, 200);
}

#[test]
fn address_cannot_hold_all_connections() {
    let (_node, _dir, neve) = start(&["--connections-max", "8"]);
    let ready = "GET /ready HTTP/1.1\r\nHost: x\r\n\r\n";
    let kept: Vec<_> = (0..2).map(|_| ask("127.0.0.1", neve.address, ready)).collect();
    assert!(kept.iter().all(|(status, _)| *status == 200));
    assert_eq!(ask("127.0.0.1", neve.address, ready).0, 503);
    assert_eq!(ask("127.0.0.2", neve.address, ready).0, 200);
    drop(kept);
    let again = || match ask("127.0.0.1", neve.address, ready).0 {
        200 => Ok(()),
        status => Err(Miss::NotYet(status.to_string())),
    };
    wait_until("the share again", LIMIT, again).unwrap();
}
