//! A real Varnish with packaging/fronts/varnish/neve.vcl in front: what it keeps, and what it asks again.

use std::fs;
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};

use rustix::process::{Pid, Signal, kill_process};

use super::documents::{A_SECOND, FOR_GOOD, follow};
use crate::support::client::{Client, Response};
use crate::support::corpus::HELICON;
use crate::support::neve::{LIMIT, Neve, fresh_dir};
use crate::support::node::wait::{Miss, wait_until};

const VCL: &str = include_str!("../../../packaging/fronts/varnish/neve.vcl");
/// A running varnishd.
struct Varnish {
    child: Child,
    dir: tempfile::TempDir,
    address: SocketAddr,
}

impl Varnish {
    fn start(neve: &Neve) -> Self {
        let dir = fresh_dir();
        let port = format!(".port = \"{}\";", neve.address.port());
        let vcl = VCL.replace(".port = \"8545\";", &port);
        assert!(vcl.contains(&port));
        // Varnish's own requests for /ready would count.
        let (before, probe) = vcl.split_once(".probe = {").unwrap();
        let vcl = format!("{before}{}", probe.split_once('}').unwrap().1);
        let (file, home) = (dir.path().join("neve.vcl"), dir.path().join("varnish"));
        fs::write(&file, vcl).unwrap();
        // It opens what it is given; of a port 0 it does not say what became.
        let free = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let address = free.local_addr().unwrap();
        drop(free);
        let log = fs::File::create(dir.path().join("varnish.log")).unwrap();
        let mut command = Command::new(varnishd());
        command.args(["-F", "-j", "none", "-s", "malloc,64m", "-a", &address.to_string()]);
        command.arg("-f").arg(file).arg("-n").arg(home).stdin(Stdio::null());
        command.stdout(log.try_clone().unwrap()).stderr(log);
        let child = command.spawn().expect("varnish is installed: apt-get install varnish");
        let mut varnish = Self { child, dir, address };
        wait_until("varnish", LIMIT, || varnish.look()).unwrap_or_else(|why| panic!("{why}"));
        varnish
    }

    fn look(&mut self) -> Result<(), Miss> {
        let log = fs::read_to_string(self.dir.path().join("varnish.log")).unwrap_or_default();
        assert!(matches!(self.child.try_wait(), Ok(None)), "varnish ended:\n{log}");
        match std::net::TcpStream::connect(self.address) {
            Ok(_) => Ok(()),
            Err(why) => Err(Miss::NotYet(format!("{why}\n{log}"))),
        }
    }
}

impl Drop for Varnish {
    fn drop(&mut self) {
        let _ = kill_process(Pid::from_child(&self.child), Signal::TERM); // it ends its own child
        let _ = self.child.wait();
    }
}

/// Debian has it where only an administrator's shell looks.
fn varnishd() -> PathBuf {
    let debian = PathBuf::from("/usr/sbin/varnishd");
    if debian.exists() { debian } else { "varnishd".into() }
}

fn requests(neve: &Neve) -> u64 {
    neve.count("neve_http_requests_total")
}

/// Asks, and says how many requests neve got for it. The admin listener's are not among them.
fn ask(client: &mut Client, neve: &Neve, path: &str, headers: &[(&str, &str)]) -> (Response, u64) {
    let before = requests(neve);
    let answer = client.request("GET", path, headers, b"");
    (answer, requests(neve) - before)
}

fn x_cache(answer: &Response) -> &str {
    answer.header("x-cache").expect("the configuration sets it")
}

#[test]
#[ignore = "needs Varnish: ./check"]
fn varnish_keeps_what_is_settled_and_asks_about_the_rest() {
    let (_node, neve, _dir) = follow(HELICON);
    let varnish = Varnish::start(&neve);
    let mut client = Client::new(varnish.address);
    settled_is_kept(&mut client, &neve);
    unsettled_is_asked_about(&mut client, &neve);
    nothing_else_is_kept(&mut client, &neve);
    blocks_can_be_removed(&mut client, &neve, &varnish);
}

fn settled_is_kept(client: &mut Client, neve: &Neve) {
    let hash = neve.client().get("/v1/header/100").json()["hash"].as_str().unwrap().to_owned();
    for path in
        ["/v1/block/100", "/v1/block/0x64?transactions=hashes", &format!("/v1/receipts/{hash}")]
    {
        let (first, asked) = ask(client, neve, path, &[]);
        assert_eq!((first.status, x_cache(&first), asked), (200, "MISS", 1), "{path}");
        assert_eq!(first.header("cache-control"), Some(FOR_GOOD));
        let origin = [("Origin", "https://a.example"), ("Cookie", "a=b")];
        let (second, asked) = ask(client, neve, path, &origin);
        assert_eq!((second.status, x_cache(&second), asked), (200, "HIT", 0), "{path}");
        assert_eq!((&second.body, second.header("etag")), (&first.body, first.header("etag")));
        assert_eq!(first.header("access-control-allow-origin"), None);
        assert_eq!(second.header("access-control-allow-origin"), Some("*"));
        assert!(second.header("age").is_some());
        assert_eq!(first.body, neve.client().get(path).body);
        let tag = first.header("etag").unwrap();
        let (third, asked) = ask(client, neve, path, &[("If-None-Match", tag)]);
        assert_eq!((third.status, asked, third.body.len()), (304, 0, 0), "{path}");
    }
}

fn unsettled_is_asked_about(client: &mut Client, neve: &Neve) {
    let path = format!("/v1/block/{}", HELICON.head);
    let (first, asked) = ask(client, neve, &path, &[]);
    assert_eq!((first.status, x_cache(&first), asked), (200, "MISS", 1));
    assert_eq!(first.header("cache-control"), Some(A_SECOND));
    for _ in 0..2 {
        let sent = neve.count("neve_http_response_bytes_total");
        let answer = asked_again(client, &path);
        assert_eq!((&answer.body, answer.header("etag")), (&first.body, first.header("etag")));
        let sent = neve.count("neve_http_response_bytes_total") - sent;
        assert_eq!(sent, 0, "neve sent a block instead of a 304");
    }
}

/// The first answer for which neve was asked, once a second is over.
fn asked_again(client: &mut Client, path: &str) -> Response {
    let look = || {
        let answer = client.get(path);
        match x_cache(&answer) {
            "HIT" => Err(Miss::NotYet("it is kept".to_owned())),
            other => {
                assert_eq!((answer.status, other), (200, "REVALIDATED"));
                Ok(answer)
            }
        }
    };
    wait_until("a question to neve", LIMIT, look).unwrap_or_else(|why| panic!("{why}"))
}

fn nothing_else_is_kept(client: &mut Client, neve: &Neve) {
    for (path, status) in [
        ("/v1/block/latest", 200),
        ("/v1/block/99999", 421),
        ("/v1/block/x", 400),
        ("/v1/nothing", 404),
        ("/ready", 200),
    ] {
        for _ in 0..2 {
            let (answer, asked) = ask(client, neve, path, &[]);
            assert_eq!((answer.status, x_cache(&answer), asked), (status, "MISS", 1), "{path}");
        }
    }
    for path in ["/health", "/metrics?x", "/mirror/v1/segments"] {
        let before = requests(neve);
        assert_eq!(client.get(path).status, 404, "{path}");
        assert_eq!(requests(neve), before, "{path} reached neve");
    }
    let call = client.call("eth_chainId", "[]");
    assert_eq!((call.status, call.json()["result"].as_str()), (200, Some("0xa868")));
}

/// Removes blocks as the configuration says, for when the node goes over to Helicon.
fn blocks_can_be_removed(client: &mut Client, neve: &Neve, varnish: &Varnish) {
    let comment = VCL.lines().find_map(|line| line.strip_prefix("#   varnishadm "));
    let ban = comment.expect("it is said how").trim_matches('\'');
    let mut command = Command::new("varnishadm");
    let output = command.arg("-n").arg(varnish.dir.path().join("varnish")).arg(ban).output();
    let output = output.expect("varnishadm comes with varnishd");
    assert!(output.status.success(), "{ban}: {output:?}");
    for (path, x, expected) in [("/v1/block/100", "MISS", 1), ("/v1/block/100", "HIT", 0)] {
        let (answer, asked) = ask(client, neve, path, &[]);
        assert_eq!((x_cache(&answer), asked), (x, expected), "{path}");
    }
    let hash = neve.client().get("/v1/header/100").json()["hash"].as_str().unwrap().to_owned();
    let (receipts, asked) = ask(client, neve, &format!("/v1/receipts/{hash}"), &[]);
    assert_eq!((x_cache(&receipts), asked), ("HIT", 0));
}
