//! Standard output and error that are full or closed, and signals: neve neither panics nor stops.

use std::fs::File;
use std::io::{BufRead, BufReader, PipeReader, Read, Write};
use std::net::{SocketAddr, TcpListener};
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::{Command, ExitStatus, Stdio};
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, poll};
use rustix::process::{Pid, Signal, kill_process};

use crate::support::client::Client;
use crate::support::corpus::MAIN;
use crate::support::neve::{LIMIT, Neve, command_by, command_of, fresh_dir, run};
use crate::support::node::wait::{Miss, wait_until};
use crate::support::recorded::Recorded;

fn full() -> Stdio {
    File::options().write(true).open("/dev/full").expect("Linux has one").into()
}

/// A pipe whose reader is gone.
fn closed() -> Stdio {
    let (reader, writer) = std::io::pipe().expect("a pipe");
    drop(reader);
    writer.into()
}

fn command(arguments: &[&str], out: Stdio, error: Stdio) -> Command {
    let mut command = command_of(arguments);
    command.stdin(Stdio::null()).stdout(out).stderr(error);
    command
}

/// Waits for its end, which must come soon.
fn end(mut command: Command) -> ExitStatus {
    let mut child = command.spawn().expect("the binary starts");
    let ended = wait_until("the end", LIMIT, || match child.try_wait() {
        Ok(Some(status)) => Ok(status),
        _ => Err(Miss::NotYet("it runs".to_owned())),
    });
    ended.unwrap_or_else(|why| {
        let _ = child.kill();
        panic!("{why}")
    })
}

#[test]
fn help_ends_with_1_where_output_is_full_and_with_0_where_it_is_closed() {
    for arguments in [&["--help"][..], &["serve", "--help"], &["--version"]] {
        assert_eq!(end(command(arguments, full(), Stdio::null())).code(), Some(1), "{arguments:?}");
        assert_eq!(end(command(arguments, full(), full())).code(), Some(1), "{arguments:?}");
        assert_eq!(end(command(arguments, closed(), closed())).code(), Some(0), "{arguments:?}");
    }
    for error in [full(), closed()] {
        assert_eq!(end(command(&["serve", "--nonsense"], full(), error)).code(), Some(64));
    }
    let wrong = ["serve", "--dev", "--idle-timeout", "0s"];
    assert_eq!(end(command(&wrong, closed(), closed())).code(), Some(64));
}

fn small_store(dir: &Path) -> String {
    let node = Recorded::start(MAIN);
    let neve = Neve::start(dir, &["--upstream", &node.url(), "--start", "300"]);
    neve.wait_for_head(MAIN.head);
    neve.stop();
    dir.join("store").display().to_string()
}

#[test]
fn verify_ends_with_2_where_output_is_full_and_with_0_where_it_is_closed() {
    let dir = fresh_dir();
    let store = small_store(dir.path());
    let verify = ["verify", "--data-dir", &store, "--digest"];
    assert!(run(&verify).status.success());
    assert_eq!(end(command(&verify, full(), full())).code(), Some(2));
    assert_eq!(end(command(&verify, closed(), closed())).code(), Some(0));
    let none = ["verify", "--data-dir", "/nonexistent"];
    assert_eq!(end(command(&none, full(), full())).code(), Some(2));
}

#[test]
fn serve_goes_on_where_its_outputs_are_full_or_closed() {
    let node = Recorded::start(MAIN);
    for (out, error) in [(full(), full()), (closed(), closed())] {
        let dir = fresh_dir();
        let store = dir.path().join("store").display().to_string();
        let free = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
        let (listen, url) = (free.to_string(), node.url());
        let named = ["--listen", &listen, "--admin-listen", "127.0.0.1:0", "--data-dir", &store];
        let more = ["--upstream", &url, "--start", "300", "--disk-reserve-bytes", "1MiB"];
        let arguments = [&["serve"][..], &named, &more].concat();
        let mut child = command(&arguments, out, error).spawn().expect("the binary starts");
        let up = wait_until("the head", LIMIT, || {
            if let Ok(Some(status)) = child.try_wait() {
                return Err(Miss::Never(format!("it ended with {status}")));
            }
            let head = "eth_getBlockByNumber";
            let params = format!("[\"{:#x}\",false]", MAIN.head);
            std::net::TcpStream::connect(free).map_err(|why| Miss::NotYet(why.to_string()))?;
            let answer = Client::new(free).call(head, &params);
            if answer.status == 200 { Ok(()) } else { Err(Miss::NotYet(answer.text())) }
        });
        let _ = kill_process(Pid::from_child(&child), Signal::TERM);
        let status = child.wait().expect("it is our child");
        up.unwrap_or_else(|why| panic!("{why}"));
        assert_eq!(status.code(), Some(0), "{:?}", status.signal());
    }
}

/// Runs a server that ends at once, because its port is in use. Returns its standard error.
fn log_of_a_failed_start(starter: &[&str], no_color: Option<&str>) -> String {
    let (dir, taken) = (fresh_dir(), TcpListener::bind("127.0.0.1:0").expect("a free port"));
    let listen = taken.local_addr().expect("it listens").to_string();
    let store = dir.path().join("store").display().to_string();
    let mut command = command_by(starter);
    command.args(["serve", "--dev", "--data-dir", &store, "--listen", &listen]);
    command.args(["--admin-listen", "127.0.0.1:0"]).env_remove("NO_COLOR").stdin(Stdio::null());
    command.envs(no_color.map(|value| ("NO_COLOR", value)));
    let ended = command.output().expect("it starts");
    assert_eq!(ended.status.code(), Some(1), "{ended:?}");
    // A terminal has one stream for both.
    let text = String::from_utf8([ended.stdout, ended.stderr].concat()).expect("UTF-8");
    assert!(text.contains("store opened") && text.contains("cannot serve"), "{text}");
    text
}

#[test]
fn log_has_colors_on_a_terminal_only_and_none_with_no_color() {
    // `script` of Debian's bsdutils, which is always there, gives the program a terminal.
    let terminal = ["sh", "-c", "exec script -qec \"$*\" /dev/null", "sh"];
    for (starter, no_color, has_colors) in [
        (&terminal[..], None, true),
        (&terminal, Some(""), true),
        (&terminal, Some("1"), false),
        (&[], None, false),
    ] {
        let text = log_of_a_failed_start(starter, no_color);
        assert_eq!(text.contains("\x1b["), has_colors, "{starter:?}, {no_color:?}: {text}");
    }
}

const DROPPED: &str = "neve_log_dropped_lines_total";

/// Sends PING frames over HTTP/2 until neve closes the connection. Its library traces each.
fn ping(main: SocketAddr) {
    let mut stream = std::net::TcpStream::connect(main).expect("neve listens");
    stream.set_read_timeout(Some(LIMIT)).expect("not zero");
    let (settings, ping) = ([0, 0, 0, 4, 0, 0, 0, 0, 0], [0, 0, 8, 6, 0, 0, 0, 0, 0]);
    let pings = [&ping[..], &[0; 8]].concat().repeat(2000);
    // neve may close before all is sent, and then there is no more to read.
    let _ =
        stream.write_all(&[&b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"[..], &settings, &pings].concat());
    let _ = stream.read_to_end(&mut Vec::new());
}

/// Makes neve write more lines than its queue has room for, while no process reads them.
fn fill_the_log(main: SocketAddr, admin: SocketAddr, before: u64) -> u64 {
    let filled = wait_until("lines that are dropped", LIMIT, || {
        (0..20).for_each(|_| ping(main));
        // The second one goes to the thread that logs what clients do.
        for origin in [&[][..], &[("Origin", "http://x")]] {
            let answer = Client::new(main).request("GET", "/ready", origin, b"");
            assert!([200, 503].contains(&answer.status), "{}", answer.text());
        }
        let page = Client::new(admin).get("/metrics").text();
        let count: Option<u64> =
            page.lines().find_map(|line| line.strip_prefix(DROPPED)?.trim().parse().ok());
        count.filter(|count| *count > before).ok_or_else(|| Miss::NotYet(format!("{count:?}")))
    });
    filled.unwrap_or_else(|why| panic!("{why}"))
}

/// Reads until a text comes, which must be soon. Returns false if none comes.
fn read_until(log: &mut PipeReader, text: &[u8]) -> bool {
    let (mut read, mut room) = (Vec::new(), vec![0; 4096]);
    let limit = LIMIT.try_into().expect("short");
    while memchr::memmem::find(&read, text).is_none() {
        let mut waiting = [PollFd::new(log, PollFlags::IN)];
        if poll(&mut waiting, Some(&limit)).expect("it is ours") == 0 {
            return false;
        }
        let len = log.read(&mut room).expect("it is ours");
        read.extend_from_slice(&room[..len]);
    }
    true
}

/// A pipe has room for 64 KiB. The greeting goes into the same one, as under some supervisors.
#[test]
fn reader_of_the_log_that_stalls_delays_neither_requests_nor_the_end() {
    let (node, dir) = (Recorded::start(MAIN), fresh_dir());
    let store = dir.path().join("store").display().to_string();
    let free = || TcpListener::bind("127.0.0.1:0").unwrap();
    let (main, admin) = (free(), free());
    let [main, admin] = [main, admin].map(|listener| listener.local_addr().unwrap());
    let (listen, admin_listen, url) = (main.to_string(), admin.to_string(), node.url());
    let filter = "info,h2=trace";
    let named = ["--listen", &listen, "--admin-listen", &admin_listen, "--data-dir", &store];
    let more = ["--upstream", &url, "--start", "300", "--log-filter", filter];
    let (mut log, writer) = std::io::pipe().expect("a pipe");
    let (out, error) = (writer.try_clone().expect("a descriptor").into(), writer.into());
    let mut command = command(&[&["serve"][..], &named, &more].concat(), out, error);
    let mut child = command.spawn().expect("the binary starts");
    drop(command); // it has ends of the pipe
    let test = || {
        let up = wait_until("the listener", LIMIT, || {
            std::net::TcpStream::connect(main).map_err(|why| Miss::NotYet(why.to_string()))
        });
        up.unwrap_or_else(|why| panic!("{why}"));
        let dropped = fill_the_log(main, admin, 0);
        assert!(read_until(&mut log, b"log lines dropped"), "the log does not say so");
        fill_the_log(main, admin, dropped);
    };
    let tested = std::panic::catch_unwind(std::panic::AssertUnwindSafe(test));
    let _ = kill_process(Pid::from_child(&child), Signal::TERM);
    let ended = wait_until("the end", LIMIT, || match child.try_wait() {
        Ok(Some(status)) => Ok(status),
        _ => Err(Miss::NotYet("it runs".to_owned())),
    });
    let _ = child.kill();
    tested.unwrap_or_else(|why| std::panic::resume_unwind(why));
    assert_eq!(ended.unwrap_or_else(|why| panic!("{why}")).code(), Some(0));
}

#[test]
fn sighup_is_logged_and_stops_nothing() {
    let (node, dir) = (Recorded::start(MAIN), fresh_dir());
    let neve = Neve::start(dir.path(), &["--upstream", &node.url(), "--start", "300"]);
    neve.signal(Signal::HUP);
    neve.wait_for_log("no settings file at the start");
    neve.signal(Signal::HUP);
    neve.wait_for_head(MAIN.head);
    let (status, took) = neve.stop();
    assert!(status.success() && took < Duration::from_mins(1), "{status}");
}

/// The first line is all that `head -1` reads.
#[test]
fn findings_are_counted_though_only_the_first_is_read() {
    let dir = fresh_dir();
    let store = small_store(dir.path());
    let verify = ["verify", "--data-dir", &store, "--digest"];
    let mut child = command(&verify, Stdio::piped(), Stdio::null()).spawn().expect("it starts");
    let mut first = String::new();
    let mut output = BufReader::new(child.stdout.take().expect("it is piped"));
    output.read_line(&mut first).expect("text");
    drop(output);
    assert!(child.wait().expect("it is our child").success());
    assert!(first.contains("0 findings"), "{first}");
}
