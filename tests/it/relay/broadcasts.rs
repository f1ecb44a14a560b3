//! Transactions that go to all upstreams, and outlive their clients.

use std::io::Write;
use std::net::TcpStream;

use neve_devnet::Fault;

use super::attacks::start;
use crate::support::neve::Neve;
use crate::support::served::devnet;

const SEND: &str = "eth_sendRawTransaction";
/// Bytes of a transaction that a client makes neve hold.
const LEN: u32 = 1 << 20;

fn raw() -> String {
    format!("[\"0x02{}\"]", "00".repeat(LEN as usize / 2))
}

/// A request on a connection of its own, without a look at its response.
fn send(neve: &Neve) -> TcpStream {
    let body = format!(r#"{{"jsonrpc":"2.0","id":1,"method":"{SEND}","params":{}}}"#, raw());
    let head = "POST / HTTP/1.1\r\nHost: x\r\nContent-Type: application/json";
    let request = format!("{head}\r\nContent-Length: {}\r\n\r\n{body}", body.len());
    let mut stream = TcpStream::connect(neve.address).expect("it listens");
    stream.write_all(request.as_bytes()).expect("it reads");
    stream
}

#[test]
fn transaction_keeps_place_and_memory_of_its_client_until_all_upstreams_have_answered() {
    let nodes = [devnet(5), devnet(5)];
    let urls = nodes.each_ref().map(|node| node.base_url());
    let limits = ["--relayed-requests-address-max", "1", "--relay-timeout", "1h"];
    let (_dir, neve) = start(&urls, &[&["--relay-broadcast"], &limits[..]].concat());
    let stalls = nodes.each_ref().map(|node| node.faults().inject(Fault::Stall.on(SEND)));
    let client = send(&neve);
    neve.wait("both upstreams", |_| stalls.iter().all(|stall| stall.hits() == 1).then_some(()));
    drop(client);
    let in_flight = || neve.metric("neve_relay_in_flight_requests");
    neve.wait("the end of the client's request", |_| (in_flight() == Some(0.0)).then_some(()));
    let reserved = neve.metric("neve_client_reserved_bytes").unwrap_or_default();
    assert!(reserved >= f64::from(LEN), "{reserved} bytes are reserved, {LEN} are held");
    let balance = r#"["0x0000000000000000000000000000000000000001","latest"]"#;
    let second = neve.client().call("eth_getBalance", balance);
    assert_eq!(second.status, 429, "the address has its share: {}", second.text());
    stalls.into_iter().for_each(|stall| stall.clear());
    neve.wait("a place", |_| {
        (neve.client().call("eth_getBalance", balance).status == 200).then_some(())
    });
    neve.wait("the memory", |_| {
        (neve.metric("neve_client_reserved_bytes") < Some(f64::from(LEN))).then_some(())
    });
}
