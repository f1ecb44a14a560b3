//! Clients of every manner at once: a client that asks rightly is answered rightly, and nothing of the
//! others stays.

use std::io::{BufReader, Read, Write};
use std::net::{Shutdown, TcpStream};
use std::thread;
use std::time::Duration;

use fastrand::Rng;
use neve_devnet::{Config, DevnetThread};
use socket2::SockRef;

use crate::support::client::read;
use crate::support::neve::{LIMIT, Neve, fresh_dir};

const CLIENTS: u64 = 8;
const CONNECTIONS: usize = 150;
/// Takes a connection from the short way to hyper.
const ORIGIN: &str = "Origin: https://x.example\r\n";

fn request(version: &str, more: &str, id: usize) -> String {
    let call = format!(r#"{{"jsonrpc":"2.0","id":{id},"method":"eth_chainId","params":[]}}"#);
    let head = format!("POST / HTTP/{version}\r\nHost: x\r\nContent-Type: application/json\r\n");
    format!("{head}{more}Content-Length: {}\r\n\r\n{call}", call.len())
}

fn open(neve: &Neve) -> BufReader<TcpStream> {
    let stream = TcpStream::connect(neve.address).unwrap();
    stream.set_read_timeout(Some(LIMIT)).unwrap();
    stream.set_nodelay(true).unwrap();
    BufReader::new(stream)
}

fn expect(line: &mut BufReader<TcpStream>, id: usize) {
    let answer = read(line, false).unwrap_or_else(|error| panic!("{id}: {error:?}"));
    assert!(answer.text().contains(&format!("\"id\":{id},\"result\"")), "{id}: {}", answer.text());
}

/// Some requests, at once and in any pieces, of both ways; perhaps with the end of what is sent.
fn asks_rightly(neve: &Neve, chance: &mut Rng) {
    let (mut line, count) = (open(neve), chance.usize(1..40));
    let more = |chance: &mut Rng| if chance.u8(0..20) == 0 { ORIGIN } else { "" };
    let all: String = (0..count).map(|id| request("1.1", more(chance), id)).collect();
    let (first, second) = all.split_at(chance.usize(0..all.len()));
    line.get_mut().write_all(first.as_bytes()).unwrap();
    line.get_mut().write_all(second.as_bytes()).unwrap();
    let ends = chance.bool();
    if ends {
        line.get_mut().shutdown(Shutdown::Write).unwrap();
    }
    (0..count).for_each(|id| expect(&mut line, id));
    if ends {
        assert_eq!(line.read(&mut [0; 1]).unwrap(), 0);
    }
}

/// A last request, with bytes behind it that belong to no request.
fn asks_once(neve: &Neve, chance: &mut Rng) {
    let (version, more) = *chance.choice(&[("1.1", "Connection: close\r\n"), ("1.0", "")]).unwrap();
    let mut line = open(neve);
    line.get_mut().write_all((request(version, more, 7) + "\r\n\r\n").as_bytes()).unwrap();
    expect(&mut line, 7);
    assert_eq!(line.read(&mut [0; 1]).unwrap(), 0);
}

/// Sends nothing, a part of a request, or requests, and then leaves, with or without a word.
fn goes_away(neve: &Neve, chance: &mut Rng) {
    let mut line = open(neve);
    let some = request("1.1", if chance.bool() { ORIGIN } else { "" }, 1).repeat(30);
    let mut bytes = some.into_bytes();
    bytes.truncate(chance.usize(0..bytes.len()));
    if chance.bool() {
        chance.fill(&mut bytes);
    }
    let _ = line.get_mut().write_all(&bytes); // it may be refused before all is sent
    if chance.bool() {
        SockRef::from(line.get_ref()).set_linger(Some(Duration::ZERO)).unwrap();
    }
}

#[test]
fn clients_of_every_manner_leave_nothing_behind() {
    let devnet = DevnetThread::start(Config::test()).unwrap();
    let (dir, url) = (fresh_dir(), devnet.base_url());
    let neve = Neve::start(dir.path(), &["--upstream", &url, "--start", "0", "--threads", "2"]);
    neve.wait_for_head(devnet.latest());
    thread::scope(|scope| {
        for seed in 0..CLIENTS {
            let neve = &neve;
            scope.spawn(move || {
                let mut chance = Rng::with_seed(seed);
                for _ in 0..CONNECTIONS {
                    let manners = [asks_rightly, asks_once, goes_away];
                    manners[chance.usize(0..manners.len())](neve, &mut chance);
                }
            });
        }
    });
    // The one that asks is open.
    neve.wait("all others are closed", |health| (health["connections"] == 1).then_some(()));
    neve.stop_in_time();
}
