"""The table of cases. Each gets a front's address and its rig, and raises `Failed` with both sides."""

import time
from urllib.parse import unquote

from . import wire
from .rig import AGE, wait_until
from .tap import values
from .wire import call, post

RPC, SOCKET = "/ext/bc/C/rpc", "/ext/bc/C/ws"
BLOCK = call("eth_getBlockByNumber", "0x10", True)
BALANCE = call("eth_getBalance", "0x" + "0" * 39 + "1", "latest")
FORGED = "203.0.113.9"


class Failed(Exception):
    """A case did not hold."""


def expect(what, expected, got):
    if expected != got:
        raise Failed(f"{what}: expected {str(expected)[:300]}, got {str(got)[:300]}")


def expect_true(what, condition, got):
    if not condition:
        raise Failed(f"{what}: got {str(got)[:400]}")


def expect_node(what, rig, response, message):
    """The response is the node's own, byte for byte."""
    expect(f"{what}: status", 200, response.status)
    expect(f"{what}: body", rig.direct(message).body, response.body)


def expect_asked(what, rig, lines):
    """The node was asked this, and nothing more."""
    expect(f"{what}: requests at the node", lines, [line.rsplit(" ", 1)[0] for line in rig.node_tap.lines()])


def hit(front, rig):
    for path in ("/", RPC):
        response = post(front.address, BLOCK, path)
        expect_node(path, rig, response, BLOCK)
        expect(f"{path}: x-neve", "hit", response.header("x-neve"))
    expect_asked("hit", rig, [])


def miss(front, rig):
    for path in ("/", RPC):
        rig.clear()
        expect_node(path, rig, post(front.address, BALANCE, path), BALANCE)
        expect_asked(path, rig, [f"POST {RPC}"])
    rig.clear()
    transaction = call("eth_sendRawTransaction", "0x02f8" + "11" * 100)
    expect_node("transaction", rig, post(front.address, transaction), transaction)
    expect_asked("transaction", rig, [f"POST {RPC}"])


def large_miss(front, rig):
    """A missed call in a body of each size that neve takes."""
    for size in (10_000, 60_000, 400_000, 4_500_000):
        body = wire.encoded(BALANCE)
        response = post(front.address, body + b" " * (size - len(body)))
        expect_node(f"a miss of {size} bytes", rig, response, BALANCE)


def mixed_batch(front, rig):
    batch = [call("eth_chainId", number=7), call(BALANCE["method"], *BALANCE["params"], number=8)]
    expect_node("batch", rig, post(front.address, batch), batch)
    expect_asked("batch", rig, [f"POST {RPC}"])


def no_404_of_the_node(front, rig):
    """The node has JSON-RPC at its own path only. Paths that only neve has stay with neve."""
    for path in ("/", RPC):
        expect(f"miss at {path}", 200, post(front.address, BALANCE, path).status)
    rig.clear()
    missed = wire.request(front.address, "GET", "/v1/block/9999999")
    expect("document that is missed", front.miss_status, missed.status)
    expect_true("document that is missed has neve's error", b"header not found" in missed.body, missed)
    expect("document", 200, wire.request(front.address, "GET", "/v1/block/16").status)
    expect("unknown path", 404, wire.request(front.address, "GET", "/nothing").status)
    expect_asked("paths", rig, [])


def neve_dead(front, rig):
    rig.neve.tap.set("dead")
    for number in range(4):
        for message in (BLOCK, BALANCE):
            started = time.monotonic()
            expect_node(f"call {number}", rig, post(front.address, message), message)
            expect_true("time of a call", time.monotonic() - started < 5, time.monotonic() - started)
    expect_asked("calls", rig, [f"POST {RPC}"] * 8)
    expect_true("GET /ready", wire.request(front.address, "GET", "/ready").status in (0, 502, 503, 504), "ready")
    rig.neve.tap.set("pass")
    back = lambda: post(front.address, BLOCK).header("x-neve") == "hit"
    wait_until("hits come back", back, 15)


def noticed(front):
    """Waits until the front's checks of /ready have failed. Calls go to the node then, if the front checks for them."""
    time.sleep(front.notices_s)
    if not front.calls_need_ready:
        return
    by_node = lambda answer: answer.status == 200 and not answer.header("x-neve")
    wait_until("the front notices", lambda: by_node(post(front.address, BLOCK, timeout=2)), 30)


def neve_stuck(front, rig):
    """neve takes connections and says nothing."""
    rig.neve.tap.set("stuck")
    if front.needs_check_if_stuck:
        noticed(front)
    started = time.monotonic()
    expect_node("call", rig, post(front.address, BLOCK), BLOCK)
    expect_true("time of a call", time.monotonic() - started < 15, time.monotonic() - started)


def node_dead(front, rig):
    rig.node_tap.set("dead")
    for number in range(4):
        served = post(front.address, BLOCK)
        expect(f"hit {number}", (200, "hit"), (served.status, served.header("x-neve")))
        started = time.monotonic()
        missed = post(front.address, BALANCE)
        expect_true(f"miss {number} is 502, 503 or 504", missed.status in (502, 503, 504), missed)
        error = (missed.json() or {}).get("error", {})
        expect_true(f"miss {number} has an error of JSON-RPC", "message" in error, missed)
        expect_true("time of a miss", time.monotonic() - started < 5, time.monotonic() - started)
    rig.node_tap.set("pass")
    answered = lambda: post(front.address, BALANCE).status == 200
    wait_until("misses are answered again", answered, 15)


def neve_lags(front, rig):
    """neve lost its node, which goes on: calls of the head are the node's, others are hits."""
    rig.neve.upstream.set("dead")
    wait_until("neve is behind", lambda: not rig.neve.ready() and not rig.neve.fresh(), AGE + 15)
    noticed(front)
    rig.clear()
    for number in range(3):
        before = int(rig.direct(call("eth_blockNumber")).json()["result"], 16)
        response = post(front.address, call("eth_blockNumber"))
        expect("status", 200, response.status)
        height = int(response.json()["result"], 16)
        expect_true(f"head {number} is not older than {before}", height >= before, height)
    expect_node("old block", rig, post(front.address, BLOCK), BLOCK)
    if front.sockets_need_ready:
        opened = subscribe(front, rig)
        opened.close()
        expect_asked("socket", rig, [f"POST {RPC}"] * 3 + expected_block(front) + [f"GET {SOCKET}"])


def expected_block(front):
    """Fronts that check /ready send every call to the node while neve is not."""
    return [f"POST {RPC}"] if front.calls_need_ready else []


def subscribe(front, rig, path="/ws", source="127.0.0.7"):
    """A socket that got a head. Gives it back open."""
    opened = wire.WebSocket(front.address, path, source=source)
    expect(f"handshake at {path}", 101, opened.status)
    answer = opened.call("eth_subscribe", "newHeads")
    expect_true("eth_subscribe", "result" in answer, answer)
    opened.head = opened.receive()["params"]["result"]["number"]
    return opened


def web_socket(front, rig):
    for path in ("/", "/ws", SOCKET):
        rig.clear()
        opened = subscribe(front, rig, path)
        # A head that the socket told of is there for calls: both go to the same neve.
        block = post(front.address, call("eth_getBlockByNumber", opened.head, False), source="127.0.0.7")
        expect("x-neve of the head", "hit", block.header("x-neve"))
        expect("number of the head", opened.head, block.json()["result"]["number"])
        expect_asked(path, rig, [])
        expect("sockets at neve", 1, sum(line.startswith("GET") for line in rig.neve.tap.lines()))
        opened.close()


def web_socket_neve_dead(front, rig):
    rig.neve.tap.set("dead")
    noticed(front)
    for path in ("/", "/ws", SOCKET):
        rig.clear()
        subscribe(front, rig, path).close()
        expect_asked(path, rig, [f"GET {SOCKET}"])


def web_socket_quiet(front, rig):
    """A socket outlives the timeouts of calls."""
    opened = wire.WebSocket(front.address)
    expect("eth_chainId", "0xa868", opened.call("eth_chainId").get("result"))
    time.sleep(12)
    expect("eth_chainId after 12 s", "0xa868", opened.call("eth_chainId").get("result"))
    opened.close()


def slow_client(front, rig):
    """A client that sends and reads slowly gets all of it, and holds up no other."""
    batch = [call("eth_getBlockByNumber", hex(height), True, number=height) for height in range(1, 41)]
    body = wire.encoded(batch)
    stream = wire.socket.socket()
    stream.setsockopt(wire.socket.SOL_SOCKET, wire.socket.SO_RCVBUF, 4096)
    stream.settimeout(10)
    stream.connect(front.address)
    head = f"POST / HTTP/1.1\r\nHost: x\r\nConnection: close\r\nContent-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
    stream.sendall(head.encode())
    for start in range(0, len(body), len(body) // 10 + 1):
        stream.sendall(body[start:start + len(body) // 10 + 1])
        quick(front)
        time.sleep(0.2)
    time.sleep(1)
    quick(front)
    taken = bytearray()
    while data := stream.recv(65536):
        taken += data
        time.sleep(0.001)
    stream.close()
    response = wire.http.client.HTTPResponse(Recorded(bytes(taken)))
    response.begin()
    expect("status", 200, response.status)
    got, expected = response.read(), rig.direct(batch).body
    expect("length of the response", len(expected), len(got))
    expect("the response is the node's", True, expected == got)


class Recorded:
    """Bytes, as a socket for http.client."""

    def __init__(self, data):
        self.data = data

    def makefile(self, *_):
        return wire.io.BytesIO(self.data)


def quick(front):
    started = time.monotonic()
    expect("another client", 200, post(front.address, BLOCK).status)
    expect_true("time of another client", time.monotonic() - started < 2, time.monotonic() - started)


def no_secrets(front, rig):
    """The full /health, /metrics and mirrors stay inside, also if neve is dead and the node is asked."""
    paths = ["/health", "/metrics", "/mirror/v1/records?from=0", "/mirror/v1/segments", "/metrics?x", "/metrics/", "//metrics", "/./metrics"]
    paths += ["/v1/../metrics", "/%6detrics", "/m%65trics", "/mirror%2fv1/records?from=0", "/%6dirror/v1/records?from=0", "/health/", "/healt%68"]
    paths += ["/ext/health", "/ext/admin", "/ext/metrics", "/ext/info", "/ext/bc/P"]
    expect_true("neve itself has the page", b"neve_" in wire.request(rig.neve.address, "GET", "/metrics").body, "nothing")
    for mode in ("pass", "dead"):
        rig.neve.tap.set(mode)
        for path in paths:
            for method in ("GET", "POST"):
                response = wire.request(front.address, method, path, b"{}" if method == "POST" else b"", timeout=12, whole=False)
                shown = response.status == 200 or b"neve_" in response.body or b"storage" in response.body
                expect_true(f"{method} {path} while neve is {mode}", not shown, response)
        route = [("Avalanche-Api-Route", "admin")]
        post(front.address, BALANCE, headers=route)
        for head in rig.node_tap.heads():
            expect("Avalanche-Api-Route at the node", [], values(head, "avalanche-api-route"))
            expect("path at the node", RPC, unquote(head.split(" ")[1]))


def client_address(front, rig):
    """The address reaches neve and the node once, whatever the client claims."""
    claims = [("X-Forwarded-For", FORGED), ("Forwarded", f"for={FORGED}"), ("X-Real-IP", FORGED)]
    for message, tap in ((BLOCK, rig.neve.tap), (BALANCE, rig.node_tap)):
        rig.clear()
        post(front.address, message, headers=claims, source="127.0.0.2")
        expect_address(tap.heads(), front.address_of("127.0.0.2"))
    rig.clear()
    wire.WebSocket(front.address, source="127.0.0.3").close()
    expect_address(rig.neve.tap.heads(), front.address_of("127.0.0.3"))


def expect_address(heads, address):
    expect("requests", 1, len(heads))
    expect("X-Forwarded-For", [address], values(heads[0], "x-forwarded-for"))
    expect("Forwarded", [], values(heads[0], "forwarded"))


CASES = [
    ("hit", hit),
    ("miss", miss),
    ("large miss", large_miss),
    ("mixed batch", mixed_batch),
    ("no 404 of node", no_404_of_the_node),
    ("neve dead", neve_dead),
    ("neve stuck", neve_stuck),
    ("neve lags", neve_lags),
    ("node dead", node_dead),
    ("socket", web_socket),
    ("socket, neve dead", web_socket_neve_dead),
    ("socket, quiet", web_socket_quiet),
    ("slow client", slow_client),
    ("no secrets", no_secrets),
    ("client address", client_address),
]


def lag(rig):
    """The first neve loses its node, which goes on: it serves a head that is older than the other one's."""
    rig.neves[0].upstream.set("stuck")
    heads = lambda: [ask_head(neve.address, "127.0.0.1") for neve in rig.neves]
    older = lambda: (lambda first, second: first < second)(*heads())
    wait_until("the two neves have different heads", older, 15)


def client_of(front, rig, index):
    """A client that the front sends to this neve."""
    for client in range(2, 34):
        rig.clear()
        post(front.address, BLOCK, source=f"127.0.0.{client}")
        if rig.neves[index].tap.lines():
            return f"127.0.0.{client}"
    raise Failed(f"no client is sent to neve {index}")


def heads_never_go_back(front, rig):
    """One of two neves lags. No client of either sees a head that is older than one it saw, in 200 calls."""
    lag(rig)
    for index in (0, 1):
        source = client_of(front, rig, index)
        seen = [ask_head(front.address, source) for _ in range(200)]
        expect(f"heads of {source}, in order", sorted(seen), seen)
        others = [number for number, neve in enumerate(rig.neves) if number != index and neve.tap.lines()]
        expect(f"other neves that {source} was sent to", [], others)
    expect_true("the first neve lags still", ask_head(rig.neves[0].address, "127.0.0.1") < seen[-1], seen[-1])


def ask_head(address, source):
    return int(post(address, call("eth_blockNumber"), source=source).json()["result"], 16)


def calls_and_sockets_meet(front, rig):
    """The socket of a client and its calls go to the same neve, and clients are shared out."""
    used = set()
    for client in range(2, 18):
        rig.clear()
        source = f"127.0.0.{client}"
        opened = wire.WebSocket(front.address, source=source)
        expect("handshake", 101, opened.status)
        for _ in range(3):
            post(front.address, BLOCK, source=source)
        opened.close()
        asked = [index for index, neve in enumerate(rig.neves) if neve.tap.lines()]
        expect(f"neves that {source} was sent to", 1, len(asked))
        used.update(asked)
    expect("neves that any client was sent to", {0, 1}, used)


def one_neve_dead(front, rig):
    """The clients of a neve that died are moved to the other one, and see no older head there."""
    lag(rig)
    source = client_of(front, rig, 0)
    seen = [ask_head(front.address, source) for _ in range(10)]
    rig.neves[0].tap.set("dead")
    # Until the front notices, a call may be the node's.
    moved = lambda: post(front.address, BLOCK, source=source).header("x-neve") == "hit"
    wait_until("the client is moved", moved, 30)
    rig.clear()
    seen += [ask_head(front.address, source) for _ in range(200)]
    expect(f"heads of {source}, in order", sorted(seen), seen)
    expect("calls at the other neve", 200, len(rig.neves[1].tap.lines()))
    expect_asked("calls of the head", rig, [])
    for client in range(2, 18):
        expect_node("hit", rig, post(front.address, BLOCK, source=f"127.0.0.{client}"), BLOCK)
    expect_node("miss", rig, post(front.address, BALANCE, source=source), BALANCE)
    document = lambda: wire.request(front.address, "GET", "/v1/block/16", source=source)
    wait_until("documents come from the other neve", lambda: document().status == 200, 15)
    rig.clear()
    subscribe(front, rig, source=source).close()
    expect("sockets at the other neve", 1, len(rig.neves[1].tap.lines()))


SEVERAL_CASES = [
    ("several: heads", heads_never_go_back),
    ("several: same side", calls_and_sockets_meet),
    ("several: one dead", one_neve_dead),
]
