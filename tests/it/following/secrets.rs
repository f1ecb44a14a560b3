//! Keys of an operator at a provider: in an upstream's path, its query, or the HTTP headers of a file.
//! neve shows them nowhere.

use std::fs;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::unix::fs::PermissionsExt;
use std::sync::mpsc;
use std::time::{Duration, Instant};

use neve_devnet::{Config, Fault, Helicon};
use rustix::process::Signal;

use super::backfill::written_evidence;
use crate::support::neve::{Neve, command_of, fresh_dir, run};
use crate::support::served::devnet_of;

const HEAD: u64 = 20;
/// A key, which a provider may repeat.
const KEY: &str = "K3y-0123456789abcdef";

fn config() -> Config {
    Config::test().with_head(HEAD).with_helicon(Helicon::FromGenesis)
}

/// All that neve shows of its upstreams.
fn shown(neve: &Neve) -> [(&'static str, String); 4] {
    [
        ("health", neve.health().to_string()),
        ("short health", neve.client().get("/health").text()),
        ("metrics", neve.admin().get("/metrics").text()),
        ("log", neve.log()),
    ]
}

fn is_hidden(neve: &Neve, key: &str) {
    for (place, text) in shown(neve) {
        assert!(!text.contains(key), "{place}: {text}");
    }
}

#[test]
fn key_in_an_upstream_path_is_shown_nowhere() {
    let devnet = devnet_of(config());
    let keyed = format!("{}/v1/SECRET/rpc?key=SECRET", devnet.base_url()); // is not found there
    let (dir, url) = (fresh_dir(), devnet.base_url());
    let neve = Neve::start(dir.path(), &["--upstream", &url, "--upstream", &keyed]);
    neve.wait("its error", |health| health["upstreams"][1]["error"].as_str().map(drop));
    let second = format!("{url}#2");
    neve.wait_for_log(&second);
    is_hidden(&neve, "SECRET");
    for (place, text) in shown(&neve).into_iter().filter(|(place, _)| *place != "short health") {
        assert!(text.contains(&second), "{place}: {text}");
    }
}

/// Servers name the path in a 404, and providers the key that they do not know.
#[test]
fn key_that_an_upstream_repeats_is_hidden() {
    let (url, _heads) = repeating_server();
    let (dir, file) = (fresh_dir(), fresh_dir());
    let file = file.path().join("headers");
    fs::write(&file, format!("Authorization: Bearer {KEY}-header\n")).unwrap();
    let (path, keyed) = (file.display().to_string(), format!("{url}/v1/{KEY}-path/rpc?k={KEY}"));
    let arguments = ["--upstream", &keyed, "--upstream-header-file", &path];
    let neve = Neve::start(dir.path(), &arguments);
    let error = neve
        .wait("its error", |health| health["upstreams"][0]["error"].as_str().map(str::to_owned));
    assert!(error.contains("POST [hidden] ") && error.contains("authorization: "), "{error}");
    is_hidden(&neve, KEY);
    neve.stop();
    let log = fs::read_to_string(dir.path().join("neve.log")).unwrap();
    assert!(!log.contains(KEY), "{log}");
}

#[test]
fn evidence_names_the_upstream_without_its_key() {
    let devnet = devnet_of(config());
    let keyed = format!("{}/ext/bc/C/rpc?key={KEY}", devnet.base_url());
    let dir = fresh_dir();
    let neve = Neve::start(dir.path(), &["--upstream", &keyed, "--start", "0"]);
    neve.wait_for_head(HEAD);
    devnet.faults().inject(Fault::WrongHash.at(HEAD + 1));
    devnet.advance(2);
    let kept = neve.wait("evidence", |_| {
        written_evidence(&neve, dir.path()).filter(|names| !names.is_empty())
    });
    is_hidden(&neve, KEY);
    neve.stop();
    for name in kept {
        let text = fs::read(dir.path().join("store/evidence").join(name)).unwrap();
        let text = String::from_utf8_lossy(&text).into_owned();
        assert!(text.contains(&format!("\"upstream\":\"{}\"", devnet.base_url())), "{text:.300}");
        assert!(!text.contains(KEY), "{text:.300}");
    }
}

#[test]
fn key_in_a_wrong_argument_or_in_the_environment_is_not_shown() {
    let dir = fresh_dir();
    let store = dir.path().display().to_string();
    for (flag, url) in [
        ("--upstream", "ftp://host/v1/SECRET"),
        ("--upstream", "http://user:SECRET@host"),
        ("--mirror-from", "host/SECRET"),
        ("--upstream-ws", "http://host/SECRET"),
    ] {
        let rest = if flag == "--upstream-ws" { &["--upstream", "http://h"][..] } else { &[] };
        let output = run(&[&["serve", "--data-dir", &store, flag, url], rest].concat());
        let error = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(64), "{error}");
        assert!(error.contains(flag) && error.contains("host"), "{error}");
        assert!(!error.contains("SECRET"), "{error}");
    }
    for from in ["ftp://host/v1/SECRET", "http://user:SECRET@host", "http://127.0.0.1:1/v1/SECRET"]
    {
        for command in [&["get", "1"][..], &["export", "--first", "1", "--last", "2"]] {
            let output = run(&[command, &["--from", from]].concat());
            let error = String::from_utf8_lossy(&output.stderr).into_owned();
            assert!(!output.status.success() && !error.contains("SECRET"), "{error}");
            assert!(error.contains("host") || error.contains("http://127.0.0.1:1"), "{error}");
        }
    }
    let mut help = command_of(&["serve", "--help"]);
    for variable in ["NEVE_UPSTREAM", "NEVE_UPSTREAM_WS", "NEVE_MIRROR_FROM"] {
        help.env(variable, "https://host/SECRET");
    }
    let help = help.output().unwrap();
    let help = String::from_utf8_lossy(&help.stdout).into_owned();
    assert!(help.contains("--upstream-ws") && !help.contains("SECRET"), "{help}");
}

/// Starts a server that answers each request with a 404 which repeats the request's head. It gives the
/// heads, too.
fn repeating_server() -> (String, mpsc::Receiver<String>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    let (sender, heads) = mpsc::channel();
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let mut stream = stream.unwrap();
            let (mut head, mut buffer) = (Vec::new(), [0; 4096]);
            while !head.windows(4).any(|end| end == b"\r\n\r\n") {
                match stream.read(&mut buffer) {
                    Ok(len @ 1..) => head.extend_from_slice(&buffer[..len]),
                    _ => break,
                }
            }
            let begin = format!("HTTP/1.1 404 Not Found\r\ncontent-length: {}\r\n\r\n", head.len());
            let _ = stream.write_all(&[begin.as_bytes(), &head].concat());
            if sender.send(String::from_utf8_lossy(&head).to_lowercase()).is_err() {
                return;
            }
        }
    });
    (url, heads)
}

#[test]
fn headers_of_a_file_go_with_calls_and_websockets() {
    let (url, heads) = repeating_server();
    let (dir, file) = (fresh_dir(), fresh_dir());
    let file = file.path().join("headers");
    fs::write(&file, "# for the provider\nAuthorization: Bearer SECRET\n").unwrap();
    fs::set_permissions(&file, fs::Permissions::from_mode(0o644)).unwrap();
    let path = file.display().to_string();
    let neve = Neve::start(dir.path(), &["--upstream", &url, "--upstream-header-file", &path]);
    let (mut call, mut websocket) = (false, false);
    while !(call && websocket) {
        let head = heads.recv_timeout(Duration::from_mins(1)).expect("a request");
        assert!(head.contains("authorization: bearer secret\r\n"), "{head}");
        call |= head.starts_with("post ");
        websocket |= head.contains("upgrade: websocket");
    }
    fs::write(&file, "Authorization: Bearer OTHER-SECRET\n").unwrap();
    neve.signal(Signal::HUP);
    let other = "authorization: bearer other-secret\r\n";
    let begin = Instant::now();
    while !heads.recv_timeout(Duration::from_mins(1)).expect("a request").contains(other) {
        assert!(begin.elapsed() < Duration::from_mins(1), "the old header goes on");
    }
    neve.wait_for_log("header file readable by others");
    let log = neve.log();
    assert!(!log.contains("SECRET"), "{log}");
}

/// Starts a server before a node that passes all on, and gives what neve sends.
fn listening_proxy(node: SocketAddr) -> (String, mpsc::Receiver<String>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    let (sender, sent) = mpsc::channel();
    std::thread::spawn(move || {
        for mut neve in listener.incoming().map_while(Result::ok) {
            let mut upstream = TcpStream::connect(node).unwrap();
            let (mut back, mut to_neve) =
                (upstream.try_clone().unwrap(), neve.try_clone().unwrap());
            std::thread::spawn(move || std::io::copy(&mut back, &mut to_neve));
            let sender = sender.clone();
            std::thread::spawn(move || {
                let mut buffer = vec![0; 65536];
                while let Ok(len @ 1..) = neve.read(&mut buffer) {
                    let _ = sender.send(String::from_utf8_lossy(&buffer[..len]).to_lowercase());
                    if upstream.write_all(&buffer[..len]).is_err() {
                        return;
                    }
                }
            });
        }
    });
    (url, sent)
}

const BALANCE: &str = r#"["0x0000000000000000000000000000000000000001","latest"]"#;

/// Returns all that was sent so far.
fn so_far(sent: &mpsc::Receiver<String>) -> String {
    sent.try_iter().collect()
}

/// An operator changes over to another provider: address and key change at once.
#[test]
fn key_of_the_next_upstream_is_not_sent_to_the_one_of_before() {
    let devnet = devnet_of(config());
    let (before, sent) = listening_proxy(devnet.address());
    let (next, heads) = repeating_server();
    let dir = fresh_dir();
    let [settings, headers] = ["neve.toml", "headers"].map(|name| dir.path().join(name));
    let write = |upstream: &str, key: &str| {
        fs::write(&headers, format!("X-Key: {key}\n")).unwrap();
        let text = format!(
            "upstream = {upstream:?}\nupstream-header-file = {headers:?}\nstart = 0\non-miss = \"relay\"\n"
        );
        fs::write(&settings, text).unwrap();
    };
    write(&before, "key-of-the-first");
    let path = settings.display().to_string();
    let neve = Neve::start(dir.path(), &["--config", &path]);
    neve.wait_for_head(HEAD);
    write(&next, "key-of-the-second");
    neve.signal(Signal::HUP);
    neve.wait_for_log("upstreams replaced");
    // No upstream is admitted: misses go to the one of before.
    assert_eq!(neve.client().call("eth_getBalance", BALANCE).status, 200);
    let sent = so_far(&sent);
    assert!(sent.contains("key-of-the-first") && sent.contains("eth_getbalance"), "{sent}");
    assert!(!sent.contains("key-of-the-second"), "{sent}");
    let head = heads.recv_timeout(Duration::from_mins(1)).expect("a request");
    assert!(head.contains("key-of-the-second") && !head.contains("key-of-the-first"), "{head}");
}

/// Header files go by place, and the rules of the start hold until a restart.
#[test]
fn key_of_a_relayed_upstream_is_not_sent_to_that_of_another_rule() {
    let devnet = devnet_of(config());
    let [(first, sent), (second, other_sent)] = [(); 2].map(|()| listening_proxy(devnet.address()));
    let dir = fresh_dir();
    let file = |name: &str, key: &str| {
        let path = dir.path().join(name);
        fs::write(&path, format!("X-Key: {key}\n")).unwrap();
        path.display().to_string()
    };
    let of_first = file("first", "key-of-the-first");
    let of_second = file("second", "key-of-the-second");
    let fixed = format!("upstream = {:?}\nstart = 0\non-miss = \"relay\"\n", devnet.base_url());
    let settings = dir.path().join("neve.toml");
    let write = |rules: &[&String], files: &[&String]| {
        let text = format!("{fixed}relay-to = {rules:?}\nupstream-header-file = {files:?}\n");
        fs::write(&settings, text).unwrap();
    };
    let [rule, other] = [&first, &second].map(|url| format!("eth_getBalance={url}"));
    let none = "none".to_owned();
    write(&[&rule, &other], &[&none, &of_first, &of_second]);
    let neve = Neve::start(dir.path(), &["--config", &settings.display().to_string()]);
    neve.wait_for_head(HEAD);
    let called = || {
        // Both rules have the call: it may go to the other upstream, too.
        neve.wait("a call to the first upstream", |_| {
            assert_eq!(neve.client().call("eth_getBalance", BALANCE).status, 200);
            Some(so_far(&sent)).filter(|sent| !sent.is_empty())
        })
    };
    assert!(called().contains("key-of-the-first"));
    write(&[&other], &[&none, &of_second]);
    neve.signal(Signal::HUP);
    neve.wait_for_log("upstreams and headers need a restart");
    let sent = called();
    assert!(sent.contains("key-of-the-first") && !sent.contains("key-of-the-second"), "{sent}");
    // The same files with other keys.
    file("first", "key-of-a-third");
    neve.signal(Signal::HUP);
    neve.wait("the second reload", |_| {
        // Warnings that repeat within a second are left out.
        (neve.log().matches("settings reloaded").count() == 2).then_some(())
    });
    let sent = called();
    assert!(sent.contains("key-of-the-first") && !sent.contains("key-of-a-third"), "{sent}");
    let sent = so_far(&other_sent);
    assert!(!sent.contains("key-of-the-first") && !sent.contains("key-of-a-third"), "{sent}");
    neve.stop_in_time();
}
