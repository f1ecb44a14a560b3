//! Heads of requests that Go's server, rs/cors and gorilla/websocket judge in ways of their own. A node of v1.14.2
//! answered each request as it stands here; the last test sends them to a node again.

use std::io::{BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use super::http_rows::COMPARED;
use crate::support::client::read;
use crate::support::corpus::MAIN;
use crate::support::neve::{LIMIT, Neve, fresh_dir};
use crate::support::node::{Node, Options, knows_helicon};
use crate::support::recorded::Recorded;

const CALL: &str = r#"{"jsonrpc":"2.0","id":1,"method":"eth_chainId"}"#;
const RPC: &str = "POST /ext/bc/C/rpc HTTP/1.1\r\nHost: localhost\r\n";
const JSON: &str = "Content-Type: application/json\r\n";
const WS: &str = "GET /ext/bc/C/ws HTTP/1.1\r\nHost: localhost\r\n";
const UPGRADE: &str = "Connection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\n";
const KEY: &str = "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n";

// Responses, as `exchange` writes them.
const RESULT: &str = "200 [content-type: application/json] [vary: Origin] {\"jsonrpc\":\"2.0\",\"id\":1,\"result\":\"0xa868\"}\n";
const EMPTY: &str = "200 ";
const MEDIA_TYPE: &str = "415 [content-type: text/plain; charset=utf-8] [vary: Origin] [x-content-type-options: nosniff] \
    invalid content type, only application/json is supported\n";
const NOT_FOUND: &str = "404 [content-type: text/plain; charset=utf-8] [vary: Origin] [x-content-type-options: nosniff] 404 page not found\n";
const NOT_SERVED_HOST: &str = "403 [content-type: text/plain; charset=utf-8] [vary: Origin] [x-content-type-options: nosniff] \
    invalid host specified\n";
const NO_HOST: &str = "400 [connection: close] [content-type: text/plain; charset=utf-8] 400 Bad Request: missing required Host header";
const BAD_HOST: &str = "400 [connection: close] [content-type: text/plain; charset=utf-8] 400 Bad Request: malformed Host header";
const BAD: &str =
    "400 [connection: close] [content-type: text/plain; charset=utf-8] 400 Bad Request";
const CODING: &str = "501 [connection: close] [content-type: text/plain; charset=utf-8] Unsupported transfer encoding";
const EXPECTATION: &str = "417 [connection: close] ";
const NO_HANDSHAKE: &str = "400 [content-type: text/plain; charset=utf-8] [sec-websocket-version: 13] [vary: Origin] \
    [x-content-type-options: nosniff] Bad Request\n";
const NOT_GET: &str = "405 [content-type: text/plain; charset=utf-8] [sec-websocket-version: 13] [vary: Origin] \
    [x-content-type-options: nosniff] Method Not Allowed\n";
const NOT_ALLOWED: &str = "200 [vary: Access-Control-Request-Headers] [vary: Access-Control-Request-Method] [vary: Origin] ";

/// A request, and the response of the node.
type Row = (Vec<u8>, String);

fn row(request: &str, response: &str) -> Row {
    (request.as_bytes().to_vec(), response.to_owned())
}

/// Puts a body behind a head that has no length.
fn with_call(head: &str) -> String {
    format!("{head}Content-Length: {}\r\n\r\n{CALL}", CALL.len())
}

fn chunked(head: &str) -> String {
    format!("{head}\r\n{:x}\r\n{CALL}\r\n0\r\n\r\n", CALL.len())
}

fn media_types() -> Vec<Row> {
    let of = |parameters: &[u8], response: &str| {
        let head = format!("{RPC}Content-Type: application/json");
        let rest = format!("\r\nContent-Length: {}\r\n\r\n{CALL}", CALL.len());
        ([head.as_bytes(), parameters, rest.as_bytes()].concat(), response.to_owned())
    };
    vec![
        of(b"; charset=utf-8; charset=utf-8", RESULT),
        of(b"; a=b; A=\"b\"; a=b", RESULT),
        of(br#"; a="x\y"; a="x\\y""#, RESULT),
        of(br#"; a="\;"; a=";""#, RESULT),
        of(b"; x=\"\xff\"", RESULT),
        of(b"; x=\"\xff\"; x=\"\xff\"", RESULT),
        of(b";\xe2\x80\x83a=b\xc2\xa0", RESULT),
        of(b"; a=b; a=B", MEDIA_TYPE),
        of(b"; a=b; c=d; a=c", MEDIA_TYPE),
        of(b"; x=\"\xff\"; x=\"\xfe\"", MEDIA_TYPE),
        of(b"; x=\xff", MEDIA_TYPE),
        of(b"\xff", MEDIA_TYPE),
    ]
}

fn hosts() -> Vec<Row> {
    let preflight = "Origin: http://a.example\r\nAccess-Control-Request-Method: POST\r\n";
    let all = [
        (with_call(&format!("{RPC}{JSON}")), NO_HOST),
        (with_call(&format!("{RPC}Content-Type: text/plain\r\n")), NO_HOST),
        (with_call(&format!("{RPC}{JSON}Expect: nope\r\n")), NO_HOST),
        (with_call(&format!("{RPC}{JSON}Avalanche-Api-Route: x\r\n")), NO_HOST),
        (with_call(&RPC.replace("POST", "PUT")), NO_HOST),
        (format!("{}\r\n", RPC.replace("POST", "GET")), NO_HOST),
        (format!("{}{preflight}\r\n", RPC.replace("POST", "OPTIONS")), NO_HOST),
        (format!("{WS}{UPGRADE}{KEY}\r\n"), NO_HOST),
        (format!("{}\r\n", WS.replace("/ext/bc/C/ws", "/nothing")), NO_HOST),
        (format!("{}\r\n", WS.replace("/ext/bc/C/ws", "//ext")), NO_HOST),
        ("OPTIONS * HTTP/1.1\r\nHost: localhost\r\n\r\n".to_owned(), NO_HOST),
        (with_call(&RPC.replace("C/rpc", "C/%zz")), BAD),
        (chunked(&format!("{RPC}{JSON}Transfer-Encoding: gzip, chunked\r\n")), CODING),
        (with_call(&format!("{}{JSON}", RPC.replace("HTTP/1.1", "HTTP/1.0"))), RESULT),
    ];
    let without = |(request, response): &(String, &str)| {
        row(&request.replacen("Host: localhost\r\n", "", 1), response)
    };
    let mut rows: Vec<Row> = all.iter().map(without).collect();
    let malformed = "Host: local host";
    let preflight = format!("{}{preflight}\r\n", RPC.replace("POST", "OPTIONS"));
    for request in [with_call(&format!("{RPC}{JSON}")), preflight, format!("{WS}\r\n")] {
        rows.push(row(&request.replace("Host: localhost", malformed), BAD_HOST));
    }
    rows.push(row(&with_call(&RPC.replace("localhost\r\n", &format!("\r\n{JSON}"))), RESULT));
    // `Host` says nothing beside a whole address.
    for (address, host, response) in
        [("localhost", "a.example", RESULT), ("a.example", "localhost", NOT_SERVED_HOST)]
    {
        let request = RPC.replace("/ext/", &format!("http://{address}/ext/"));
        let request = request.replace("Host: localhost", &format!("Host: {host}"));
        rows.push(row(&with_call(&format!("{request}{JSON}")), response));
    }
    rows
}

/// A handshake with a key that is none by RFC 6455.
fn odd_keys() -> Vec<Row> {
    [
        ("SGVsbG8sIHdvcmxkIQ==", "qGEgH3En71di5rrssAZTmtRTyFk="),
        ("x", "JVxkmtKFjDcI/Pm/AGPEKSN6wT8="),
    ]
    .map(|(key, accept)| {
        let request = format!("{WS}{UPGRADE}Sec-WebSocket-Key: {key}\r\n\r\n");
        row(&request, &format!("101 [sec-websocket-accept: {accept}] "))
    })
    .into()
}

fn handshakes() -> Vec<Row> {
    let post = WS.replace("GET", "POST");
    let no_connection = UPGRADE.replace("Connection: Upgrade\r\n", "");
    let no_upgrade = UPGRADE.replace("Upgrade: websocket\r\n", "");
    let length = "Content-Length: 0\r\n\r\n";
    vec![
        row(
            &format!("{WS}{UPGRADE}{KEY}\r\n"),
            "101 [sec-websocket-accept: s3pPLMBiTxaQ9kYGzzhZRbK+xOo=] ",
        ),
        row(&format!("{WS}{UPGRADE}\r\n"), NO_HANDSHAKE),
        row(&format!("{WS}{UPGRADE}Sec-WebSocket-Key:\r\n\r\n"), NO_HANDSHAKE),
        row(&format!("{WS}{}{KEY}\r\n", UPGRADE.replace("13", "12")), NO_HANDSHAKE),
        row(&format!("{post}{no_connection}{KEY}{length}"), NO_HANDSHAKE),
        row(&format!("{post}{no_upgrade}{KEY}{length}"), NO_HANDSHAKE),
        row(&format!("{post}{UPGRADE}{KEY}{length}"), NOT_GET),
        row(&format!("{post}{}{length}", UPGRADE.replace("13", "12")), NOT_GET),
    ]
}

fn preflights() -> Vec<Row> {
    let of = |method: &[u8], list: &[u8], response: &str| {
        let head = RPC.replace("POST", "OPTIONS");
        let head = format!("{head}Origin: http://a.example\r\nAccess-Control-Request-Method: ");
        let name = b"\r\nAccess-Control-Request-Headers: ";
        let request = [head.as_bytes(), method, name, list, b"\r\n\r\n"].concat();
        (request, response.to_owned())
    };
    let allowed = |names: &str| {
        let names = if names.is_empty() {
            String::new()
        } else {
            format!("[access-control-allow-headers: {names}] ")
        };
        let begin = "200 [access-control-allow-credentials: true] ";
        let origin = "[access-control-allow-methods: POST] [access-control-allow-origin: *] ";
        format!("{begin}{names}{origin}{}", NOT_ALLOWED.replace("200 ", ""))
    };
    vec![
        of(b"POST", b"content-type,\tx-requested-with", &allowed("Content-Type, x-Requested-With")),
        of(b"POST", b"content-type;", &allowed("Content-Type")),
        of(b"POST", b"content-type;accept", NOT_ALLOWED),
        of(b"POST", b"acc/ept,\t, origin", &allowed("Accept, origin")),
        of(b"POST", b"accept\xff,\xfforigin", &allowed("Accept, origin")),
        of(b"POST", b";", &allowed("")),
        of(b"POST", b"content_type", NOT_ALLOWED),
        of(b"post", b"", &allowed("")),
        of(b"PO\xff", b"", NOT_ALLOWED),
    ]
}

fn methods_of_pages() -> Vec<Row> {
    let origin = "Origin: http://a.example\r\n";
    let allowed = "[access-control-allow-credentials: true] [access-control-allow-origin: *] ";
    let mut rows = Vec::new();
    for method in ["post", "Post"] {
        let head = RPC.replace("POST", method);
        let result = RESULT.replace("200 ", &format!("200 {allowed}"));
        rows.push(row(&with_call(&format!("{head}{origin}{JSON}")), &result));
        rows.push(row(&with_call(&format!("{head}{JSON}")), RESULT));
    }
    rows
}

fn paths() -> Vec<Row> {
    let at = |path: &str| format!("{}\r\n", WS.replace("/ext/bc/C/ws", path));
    let mut rows = vec![
        row(&with_call(&RPC.replace("C/rpc", "C/%zz")), BAD),
        row(&with_call(&format!("{}{JSON}", RPC.replace("C/rpc", "C/rpc?%zz"))), RESULT),
        row(&at("/%ff"), NOT_FOUND),
        row("OPTIONS * HTTP/1.1\r\nHost: localhost\r\n\r\n", EMPTY),
        row("OPTIONS * HTTP/1.1\r\nHost: localhost\r\nContent-Length: 5\r\n\r\nhello", EMPTY),
        row(
            "OPTIONS * HTTP/1.1\r\nHost: x.example\r\nOrigin: http://a.example\r\n\
             Access-Control-Request-Method: POST\r\n\r\n",
            EMPTY,
        ),
    ];
    rows.extend(["/%", "/%7", "/%+1", "/a%2/b", "//%zz"].map(|path| row(&at(path), BAD)));
    rows
}

fn expectations() -> Vec<Row> {
    let of = |lines: &str, response| row(&with_call(&format!("{RPC}{JSON}{lines}")), response);
    vec![
        of("Expect: 100-continue, x\r\n", RESULT),
        of("Expect: x\t100-CONTINUE\r\n", RESULT),
        of("Expect:\r\n", RESULT),
        of("Expect: 100-continue\r\nExpect: x\r\n", RESULT),
        of("Expect: x\r\nExpect: 100-continue\r\n", EXPECTATION),
        of("Expect: 100-continue;q=1\r\n", EXPECTATION),
    ]
}

fn transfer_codings() -> Vec<Row> {
    let of = |coding: &str, response| {
        row(&chunked(&format!("{RPC}{JSON}Transfer-Encoding: {coding}\r\n")), response)
    };
    vec![
        of("Chunked", RESULT),
        of("gzip, chunked", CODING),
        of("chunked, chunked", CODING),
        of("chunked\r\nTransfer-Encoding: chunked", CODING),
        of("gzip\r\nTransfer-Encoding: chunked", CODING),
        of(",chunked", CODING),
    ]
}

fn rows() -> Vec<Row> {
    let all = [
        media_types(),
        hosts(),
        odd_keys(),
        handshakes(),
        preflights(),
        methods_of_pages(),
        paths(),
        expectations(),
        transfer_codings(),
    ];
    all.concat()
}

/// Sends a request; returns status, compared headers and body.
fn exchange(address: SocketAddr, request: &[u8]) -> String {
    let mut stream = TcpStream::connect(address).expect("it listens");
    stream.set_read_timeout(Some(LIMIT)).expect("a time");
    stream.write_all(request).expect("it fits the buffers");
    let mut stream = BufReader::new(stream);
    let mut response = loop {
        match read(&mut stream, false) {
            Ok(response) if response.status == 100 => {}
            Ok(response) => break response,
            Err(error) => return format!("{error}"),
        }
    };
    // Go's server sends its own refusals without a length.
    let closes = response.header("connection") == Some("close");
    if closes && let Err(error) = stream.read_to_end(&mut response.body) {
        return format!("{error}");
    }
    let is_compared = |name: &str, value: &str| {
        // `Connection: close` too: it ends the exchange.
        COMPARED.contains(&name) || (name == "connection" && value == "close")
    };
    let headers = response.headers.iter().filter(|(name, value)| is_compared(name, value));
    let mut headers: Vec<String> =
        headers.map(|(name, value)| format!("[{name}: {value}] ")).collect();
    headers.sort();
    let headers = headers.concat();
    format!("{} {headers}{}", response.status, response.text())
}

/// Requests that are answered otherwise than they should be.
fn wrong(address: SocketAddr, rows: &[Row]) -> Vec<String> {
    let found =
        rows.iter().map(|(request, expected)| (request, expected, exchange(address, request)));
    let wrong = found.filter(|(_, expected, found)| *found != **expected);
    wrong
        .map(|(request, expected, found)| {
            format!("{}\n  node {expected:?}\n  here {found:?}", request.escape_ascii())
        })
        .collect()
}

#[test]
fn heads_are_judged_as_the_node_judged_them() {
    let (node, dir) = (Recorded::start(MAIN), fresh_dir());
    let url = node.url();
    let neve = Neve::start(
        dir.path(),
        &["--upstream", &url, "--start", "300", "--allowed-hosts", "localhost"],
    );
    neve.wait_for_head(MAIN.head);
    let mut rows = rows();
    let fast = neve.count("neve_http_fast_requests_total");
    let mut found = wrong(neve.address, &rows);
    assert!(neve.count("neve_http_fast_requests_total") > fast);
    // Once more by hyper: with a header that says nothing, and that the fast path leaves alone.
    for (request, _) in &mut rows {
        let at = request.iter().position(|byte| *byte == b'\n').expect("a line") + 1;
        request.splice(at..at, *b"Connection: keep-alive, te\r\n");
    }
    found.extend(wrong(neve.address, &rows));
    assert!(found.is_empty(), "{} of {}:\n{}", found.len(), 2 * rows.len(), found.join("\n"));
    for (reason, count) in [("expectation", 4), ("transfer_coding", 12)] {
        let name = format!("neve_http_refused_requests_total{{reason=\"{reason}\"}}");
        assert_eq!(neve.count(&name), count, "{reason}");
    }
}

#[test]
#[ignore = "needs avalanchego, which Go builds: ./check"]
fn node_judges_heads_as_they_were_recorded() {
    let node = Node::start(Options::default());
    node.within(Duration::from_mins(2), || {
        let address = node.base_url().trim_start_matches("http://").parse().expect("an address");
        let mut rows = rows();
        // From version 1.5.1 on, gorilla/websocket takes keys of 16 bytes only.
        rows.retain(|row| !knows_helicon() || !odd_keys().contains(row));
        let found = wrong(address, &rows);
        assert!(found.is_empty(), "{} of {}:\n{}", found.len(), rows.len(), found.join("\n"));
    });
}
