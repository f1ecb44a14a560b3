//! The shipped configuration of nginx, in front of neve and a node that has JSON-RPC at its own paths
//! only.

use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Mutex};
use std::thread;

use crate::clients::keys::entry;
use crate::support::client::Client;
use crate::support::corpus::MAIN;
use crate::support::neve::{Neve, fresh_dir};
use crate::support::nginx::Nginx;
use crate::support::recorded::Recorded;

const ANSWER: &str = r#"{"jsonrpc":"2.0","id":1,"result":"the node"}"#;
const MISS: &str = r#"{"jsonrpc":"2.0","id":1,"method":"eth_call","params":[{},"latest"]}"#;
const HIT: &str = r#"{"jsonrpc":"2.0","id":1,"method":"eth_chainId"}"#;
const KEY: &str = "shop-key-SECRET-0123456789";

/// Answers calls at the node's path, WebSockets with 400, anything else with 404; notes the first lines of
/// requests. It ends with the process.
fn node() -> (SocketAddr, Arc<Mutex<Vec<String>>>) {
    let listener = TcpListener::bind("127.0.0.1:0").expect("loopback has a free port");
    let (address, lines) =
        (listener.local_addr().expect("it is bound"), Arc::<Mutex<Vec<_>>>::default());
    let noted = Arc::clone(&lines);
    thread::spawn(move || {
        for stream in listener.incoming().map_while(Result::ok) {
            let noted = Arc::clone(&noted);
            thread::spawn(move || answer(stream, &noted));
        }
    });
    (address, lines)
}

fn answer(mut stream: TcpStream, noted: &Mutex<Vec<String>>) -> Option<()> {
    let mut reader = BufReader::new(stream.try_clone().ok()?);
    loop {
        let (mut first, mut length) = (String::new(), 0);
        if reader.read_line(&mut first).ok()? == 0 {
            return None;
        }
        loop {
            let mut line = String::new();
            reader.read_line(&mut line).ok()?;
            let line = line.trim().to_lowercase();
            if let Some(value) = line.strip_prefix("content-length:") {
                length = value.trim().parse().ok()?;
            }
            if line.is_empty() {
                break;
            }
        }
        reader.read_exact(&mut vec![0; length]).ok()?;
        noted.lock().ok()?.push(first.trim().to_owned());
        let (status, body) = match first.split(' ').nth(1)? {
            "/ext/bc/C/rpc" => ("200 OK", ANSWER),
            "/ext/bc/C/ws" => ("400 Bad Request", "the node's socket"),
            _ => ("404 Not Found", "404 page not found"),
        };
        let head = format!("HTTP/1.1 {status}\r\nContent-Length: {}\r\n\r\n", body.len());
        stream.write_all((head + body).as_bytes()).ok()?;
    }
}

/// The status of a WebSocket's handshake.
fn handshake(at: SocketAddr, path: &str) -> u16 {
    let request = format!(
        "GET {path} HTTP/1.1\r\nHost: x\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\
         Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n"
    );
    let mut stream = TcpStream::connect(at).expect("nginx listens");
    stream.write_all(request.as_bytes()).expect("nginx reads");
    let mut status = String::new();
    BufReader::new(stream).read_line(&mut status).expect("text");
    status.split(' ').nth(1).and_then(|code| code.parse().ok()).expect("a status")
}

#[test]
#[ignore = "needs nginx: ./check"]
fn misses_and_sockets_reach_the_nodes_own_paths() {
    let (recorded, dir) = (Recorded::start(MAIN), fresh_dir());
    let neve = Neve::start(dir.path(), &["--upstream", &recorded.url(), "--start", "300"]);
    neve.wait_for_head(MAIN.head);
    let (node, lines) = node();
    let nginx = Nginx::start(neve.address, &format!("http://{node}"));
    let post = |path: &str, body: &str| {
        let json = [("content-type", "application/json")];
        Client::new(nginx.address).request("POST", path, &json, body.as_bytes())
    };
    let calls = ["/", "/ext/bc/C/rpc", "/ext/bc/evm/rpc"];
    for path in calls {
        assert!(post(path, HIT).text().contains("0xa868"), "{path}");
        let missed = post(path, MISS);
        assert_eq!((missed.status, missed.text().as_str()), (200, ANSWER), "{path}");
    }
    // A client that would rather speak HTTP/2 makes a call all the same.
    let offer = [("content-type", "application/json"), ("upgrade", "h2c")];
    let missed = Client::new(nginx.address).request("POST", "/", &offer, MISS.as_bytes());
    assert_eq!(missed.text(), ANSWER);
    let nodes: Vec<_> = lines.lock().unwrap().drain(..).collect();
    assert_eq!(nodes, ["POST /ext/bc/C/rpc HTTP/1.1"; 4]);

    // Documents are neve's alone, and so are sockets while it is there.
    let mut client = Client::new(nginx.address);
    assert_eq!(client.get("/v1/block/301").status, 200);
    assert_eq!(client.get("/v1/block/1").status, 421);
    let sockets = ["/", "/ws", "/ext/bc/C/ws"];
    for path in sockets {
        assert_eq!(handshake(nginx.address, path), 101, "{path}");
    }
    for path in ["/health", "/metrics", "/mirror/", "/mirror/segments"] {
        assert_eq!(client.get(path).status, 404, "{path} is for operators");
    }
    assert!(lines.lock().unwrap().is_empty());

    neve.kill();
    for path in sockets {
        assert_eq!(handshake(nginx.address, path), 400, "{path}");
    }
    assert_eq!(post("/", HIT).text(), ANSWER);
    let nodes: Vec<_> = lines.lock().unwrap().drain(..).collect();
    let socket = "GET /ext/bc/C/ws HTTP/1.1";
    assert_eq!(nodes, [socket, socket, socket, "POST /ext/bc/C/rpc HTTP/1.1"]);
}

/// A key in the path changes nothing of what nginx sends where, and opens no page of the operators.
#[test]
#[ignore = "needs nginx: ./check"]
fn keys_in_paths_reach_calls_and_no_page_of_operators() {
    let (recorded, dir, store) = (Recorded::start(MAIN), fresh_dir(), fresh_dir());
    let file = dir.path().join("keys.toml");
    fs::write(&file, entry("shop", KEY)).expect("a file can be written");
    let (url, file) = (recorded.url(), file.display().to_string());
    let flags = ["--upstream", &url, "--start", "300", "--keys", &file, "--serve-mirrors"];
    let pages = ["--admin-on-main", "--admin-listen", "127.0.0.1:0"];
    let neve = Neve::start(store.path(), &[&flags[..], &pages].concat());
    neve.wait_for_head(MAIN.head);
    let (node, lines) = node();
    let nginx = Nginx::start(neve.address, &format!("http://{node}"));
    let post = |path: &str, body: &str| {
        let json = [("content-type", "application/json")];
        Client::new(nginx.address).request("POST", path, &json, body.as_bytes())
    };
    for path in ["", "/", "/ext/bc/C/rpc", "/ext/bc/evm/rpc"] {
        let path = format!("/k/{KEY}{path}");
        assert!(post(&path, HIT).text().contains("0xa868"), "{path}");
        let missed = post(&path, MISS);
        assert_eq!((missed.status, missed.text().as_str()), (200, ANSWER), "{path}");
    }
    let nodes: Vec<_> = lines.lock().unwrap().drain(..).collect();
    assert_eq!(nodes, ["POST /ext/bc/C/rpc HTTP/1.1"; 4]);
    assert_eq!(post("/k/other-key-0123456789", HIT).status, 401);
    for path in ["", "/", "/ws", "/ext/bc/C/ws"] {
        assert_eq!(handshake(nginx.address, &format!("/k/{KEY}{path}")), 101, "{path}");
    }
    let pages = ["health", "metrics", "mirror/v1/segments", "mirror/", "/metrics", "./metrics"];
    let (mut inside, mut outside) = (neve.client(), Client::new(nginx.address));
    assert_eq!(inside.get(&format!("/k/{KEY}/metrics")).status, 200, "neve itself has it");
    for page in pages.iter().chain(&["%6detrics", "%2e/health"]) {
        assert_eq!(outside.get(&format!("/k/{KEY}/{page}")).status, 404, "{page}");
    }
    assert_eq!(outside.get(&format!("/k/{KEY}/v1/block/301")).status, 200);
    assert_eq!(outside.get(&format!("/k/{KEY}/ready")).status, 200);
    assert!(lines.lock().unwrap().is_empty());
}
