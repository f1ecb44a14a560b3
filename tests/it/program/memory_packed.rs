//! Memory that a client makes neve hold with texts of packed heights: they stand in its response.

use std::io::Write as _;

use http_body_util::{BodyExt, Full};
use hyper::Request;
use hyper::body::Bytes;
use hyper::client::conn::http2::handshake;
use hyper_util::rt::{TokioExecutor, TokioIo};

use super::memory::{MIB, all_logs, call, start};
use crate::store::packed::wait_for_packed;
use crate::support::client::Client;
use crate::support::neve::Neve;
use crate::support::ws::Ws;

/// Memory of an address: less than twice the text of a search.
const SHARE: usize = 24 * MIB as usize;

/// A response to a request without a declared length, which hyper reads.
fn through_hyper(neve: &Neve, body: &str) -> Vec<u8> {
    let head = "POST / HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n";
    let chunk = format!("{:x}\r\n{body}\r\n0\r\n\r\n", body.len());
    let request = format!("{head}Transfer-Encoding: chunked\r\n\r\n{chunk}");
    Client::new(neve.address).raw(request.as_bytes()).expect("a whole response").body
}

fn over_http_2(neve: &Neve, body: &str) -> Vec<u8> {
    let request = Request::post(format!("http://{}/", neve.address))
        .header("content-type", "application/json")
        .body(Full::new(Bytes::copy_from_slice(body.as_bytes())));
    let exchange = async {
        let stream = tokio::net::TcpStream::connect(neve.address).await.expect("neve listens");
        let (mut sender, connection) =
            handshake(TokioExecutor::new(), TokioIo::new(stream)).await.expect("HTTP/2");
        tokio::spawn(connection);
        let response = sender.send_request(request.expect("a request")).await.expect("a response");
        response.into_body().collect().await.expect("a whole body").to_bytes().into()
    };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    runtime.expect("a runtime").block_on(exchange)
}

fn over_websocket(neve: &Neve, body: &str) -> Vec<u8> {
    let mut socket = Ws::open(neve);
    socket.send(body);
    socket.text().into_bytes()
}

/// The logs of all blocks, from two shorter searches.
fn in_two_parts(neve: &Neve) -> Vec<u8> {
    let mut client = neve.client();
    let parts = [("0x1", "0x96"), ("0x97", "latest")].map(|(from, to)| {
        let body = call("eth_getLogs", &format!(r#"[{{"fromBlock":"{from}","toBlock":"{to}"}}]"#));
        client.post(&body).text()
    });
    let first = parts[0].trim_end().strip_suffix("]}").expect("a list");
    let (_, second) = parts[1].split_once("\"result\":[").expect("a list");
    let mut joined = Vec::new();
    write!(joined, "{first},{second}").expect("a vector takes it");
    joined
}

/// Way to ask neve, which returns the body of the response.
type Way<'w> = &'w dyn Fn(&Neve, &str) -> Vec<u8>;

/// Packed heights that follow one another are one long text, and unpacked ones make many pieces of the body.
#[test]
fn search_of_packed_and_unpacked_heights_is_whole_within_the_share_of_its_client() {
    let share = SHARE.to_string();
    let packing = ["--segment-blocks", "64", "--unpacked-bytes", "0B"];
    let bounds = ["--client-bytes-address-max", share.as_str()];
    let (_node, _dir, neve) = start(&[&packing[..], &bounds].concat());
    wait_for_packed(&neve, 256);
    let (expected, search) = (in_two_parts(&neve), all_logs());
    assert!(expected.len() > SHARE / 2, "{} bytes", expected.len());
    let fast = |neve: &Neve, body: &str| neve.client().post(body).body;
    let ways: [(_, Way<'_>); 4] = [
        ("fast path", &fast),
        ("hyper", &through_hyper),
        ("HTTP/2", &over_http_2),
        ("WebSocket", &over_websocket),
    ];
    for (name, way) in ways {
        let found = way(&neve, &search);
        let is_same = found.trim_ascii_end() == expected.trim_ascii_end();
        assert!(is_same, "{name}: {} bytes of {}", found.len(), expected.len());
    }
    let refused = neve.count("neve_client_refused_reservations_total{reason=\"response\"}");
    assert_eq!(refused, 0);
    neve.stop_in_time();
}
