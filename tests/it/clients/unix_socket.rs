//! A listener in the file system.

use std::io::{BufReader, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;

use crate::support::client::{Client, Response, read};
use crate::support::neve::{Neve, fresh_dir, run};
use crate::support::served::devnet;

const BLOCK: &str = r#"["0x5",true]"#;
const BALANCE: &str = r#"["0x0000000000000000000000000000000000000001","latest"]"#;

fn ask(path: &Path, method: &str, params: &str) -> Response {
    let body = format!(r#"{{"jsonrpc":"2.0","id":1,"method":"{method}","params":{params}}}"#);
    let head = "POST / HTTP/1.1\r\nHost: x\r\nContent-Type: application/json";
    let mut stream = UnixStream::connect(path).expect("it listens");
    let request = format!("{head}\r\nContent-Length: {}\r\n\r\n{body}", body.len());
    stream.write_all(request.as_bytes()).expect("it reads");
    read(&mut BufReader::new(stream), false).expect("a response")
}

#[test]
fn socket_in_the_file_system_serves_both_paths_and_goes_with_its_listener() {
    let (node, dir) = (devnet(5), fresh_dir());
    let path = dir.path().join("neve.sock");
    let listen = format!("unix:{}", path.display());
    let url = node.base_url();
    let store = dir.path().join("store").display().to_string();
    let fixed = ["serve", "--start", "0", "--on-miss", "relay", "--disk-reserve-bytes", "1MiB"];
    let own = ["--upstream", &url, "--listen", &listen, "--data-dir", &store];
    let arguments = [&fixed[..], &own, &["--admin-listen", "127.0.0.1:0"]].concat();
    let neve = Neve::spawn(dir.path(), &arguments);
    neve.wait_for_head(5);
    let block = ask(&path, "eth_getBlockByNumber", BLOCK);
    assert_eq!((block.status, block.header("x-neve")), (200, Some("hit")));
    let relayed = ask(&path, "eth_getBalance", BALANCE);
    assert_eq!((relayed.status, relayed.header("x-neve")), (200, Some("relay")));
    // Another neve does not take it over, and a file that is no socket stays.
    let second = |listen: &str| {
        let output = run(&["serve", "--dev", "--listen", listen]);
        (output.status.code(), String::from_utf8_lossy(&output.stderr).into_owned())
    };
    let (code, said) = second(&listen);
    assert_eq!(code, Some(1), "{said}");
    assert!(said.contains("in use"), "{said}");
    let file = dir.path().join("file");
    std::fs::write(&file, "x").expect("a file");
    let (code, said) = second(&format!("unix:{}", file.display()));
    assert_eq!((code, file.exists()), (Some(1), true), "{said}");
    let (code, said) = second("unix:relative");
    assert_eq!(code, Some(64), "{said}");
    neve.stop_in_time();
    assert!(!path.exists());
    // A socket that a killed neve left is no obstacle.
    drop(std::os::unix::net::UnixListener::bind(&path).expect("a socket"));
    let neve = Neve::spawn(dir.path(), &arguments);
    neve.wait_for_head(5);
    assert_eq!(ask(&path, "eth_getBlockByNumber", BLOCK).status, 200);
}

#[test]
fn several_addresses_are_served_by_the_same_threads() {
    let (node, dir) = (devnet(5), fresh_dir());
    let path = dir.path().join("neve.sock");
    let free = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
    let second = free.local_addr().expect("it has one");
    drop(free);
    let listen = format!("{second},unix:{}", path.display());
    let url = node.base_url();
    // The harness names another one, with any port: the flag again adds to the list.
    let own = ["--upstream", &url, "--start", "0", "--threads", "1", "--listen", &listen];
    let neve = Neve::start(dir.path(), &own);
    neve.wait_for_head(5);
    // Not in the order of the list: none waits for another one.
    for address in [second, second, neve.address, second] {
        let block = Client::new(address).call("eth_getBlockByNumber", BLOCK);
        assert_eq!((block.status, block.header("x-neve")), (200, Some("hit")), "{address}");
    }
    assert_eq!(ask(&path, "eth_getBlockByNumber", BLOCK).status, 200);
    assert!(neve.greeting.contains(&format!("http://{second}/, unix:")), "{}", neve.greeting);
    // One of the ports is taken: no neve starts, and the message names it.
    let output = run(&["serve", "--dev", "--listen", "127.0.0.1:0", "--listen", &listen]);
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(1), "{said}");
    assert!(said.contains(&format!("{second}: port in use")), "{said}");
    let output = run(&["serve", "--dev", "--listen", "127.0.0.1:1,127.0.0.1:1"]);
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(64), "{said}");
    assert!(said.contains("is named twice"), "{said}");
    neve.stop_in_time();
    assert!(!path.exists());
}
