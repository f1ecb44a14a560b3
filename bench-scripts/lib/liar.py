"""An upstream that stands between a node and a server, and changes what the server is told."""

import http.server
import json
import re
import socket
import threading
import urllib.request

from . import servers

FALSE_HEAD = 10**9
NUMBER = re.compile(rb'"number":"0x([0-9a-f]+)"')


class Truth:
    """Hands on everything. A lie changes requests, answers or heads of a WebSocket."""

    def calls(self, calls):
        return calls

    def answer(self, calls, answer):
        return answer

    def head(self, message):
        """A message of a WebSocket; nothing to leave it out."""
        return message


class ForgedKey(Truth):
    """A key "To" beside "to", which Go clients read instead."""

    def answer(self, calls, answer):
        return answer.replace(b'"to":"0x', b'"To":"0x' + b"ab" * 20 + b'","to":"0x')


class FalseHead(Truth):
    """A head that is far above the true one; there is no block."""

    def answer(self, calls, answer):
        if methods(calls) != {"eth_blockNumber"}:
            return answer
        message = json.loads(answer)
        return json.dumps({**message, "result": hex(int(message["result"], 16) + FALSE_HEAD)}).encode()

    def head(self, message):
        return NUMBER.sub(lambda match: b'"number":"%#x"' % (int(match[1], 16) + FALSE_HEAD), message)


class FalseHash(Truth):
    """Each block has another hash than its header's, everywhere in it."""

    def answer(self, calls, answer):
        if "eth_getBlockByNumber" not in methods(calls):
            return answer
        for result in results(answer):
            if isinstance(result, dict) and "parentHash" in result:
                answer = answer.replace(result["hash"].encode(), b"0x" + b"ab" * 32)
        return answer


class OtherReceipts(Truth):
    """The receipts of the block before, and for `latest` those of the first block."""

    def calls(self, calls):
        return [before(call) if call["method"] == "eth_getBlockReceipts" else call for call in calls]


class NoJson(Truth):
    """A block that ends in the middle, and a client version that begins another answer."""

    def answer(self, calls, answer):
        if "web3_clientVersion" in methods(calls):
            return b'{"jsonrpc":"2.0","id":1,"result":"v1"},{"jsonrpc":"2.0","id":2,"result":"0xbad"}'
        return answer[: len(answer) // 2] if "eth_getBlockByNumber" in methods(calls) else answer


class Frozen(Truth):
    """The head that there was at first, for ever."""

    def __init__(self, head):
        self.last = head

    def calls(self, calls):
        """For heights above the head, a height that no node has."""
        return [{**call, "params": [self.seen(value) for value in call.get("params", [])]} for call in calls]

    def seen(self, value):
        if value == "latest":
            return hex(self.last)
        is_height = isinstance(value, str) and re.fullmatch("0x[0-9a-f]{1,15}", value)
        return hex(FALSE_HEAD) if is_height and int(value, 16) > self.last else value

    def answer(self, calls, answer):
        if methods(calls) != {"eth_blockNumber"}:
            return answer
        return json.dumps({**json.loads(answer), "result": hex(self.last)}).encode()

    def head(self, message):
        return None if b'"eth_subscription"' in message else message


def methods(calls):
    return {call["method"] for call in calls}


def results(answer):
    messages = json.loads(answer)
    return [message.get("result") for message in (messages if isinstance(messages, list) else [messages])]


def before(call):
    try:
        return {**call, "params": [hex(max(1, int(call["params"][0], 16) - 1))]}
    except (TypeError, ValueError):  # a tag
        return {**call, "params": ["0x1"]}


class Liar:
    """Listens before `upstream`; `lie` is what it does to the answers, and `told` how many it changed."""

    def __init__(self, upstream):
        self.upstream, self.lie, self.told = upstream, Truth(), 0
        self.server = Listener(("127.0.0.1", 0), Handler)
        self.server.liar = self
        threading.Thread(target=self.server.serve_forever, daemon=True).start()

    def remote(self):
        return servers.Remote("liar", f"http://127.0.0.1:{self.server.server_port}{self.upstream.path}")

    def changed(self, before, after):
        self.told += before != after
        return after

    def answered(self, body):
        """The node's answer to a body, as the lie has it."""
        asked = json.loads(body)
        calls = asked if isinstance(asked, list) else [asked]
        changed = self.lie.calls(calls)
        self.told += changed != calls
        if changed != calls:
            body = json.dumps(changed if isinstance(asked, list) else changed[0]).encode()
        request = urllib.request.Request(self.upstream.url, body, {"Content-Type": "application/json"})
        with urllib.request.urlopen(request) as response:
            answer = response.read()
        return self.changed(answer, self.lie.answer(calls, answer))


class Listener(http.server.ThreadingHTTPServer):
    daemon_threads = True

    def handle_error(self, *_):
        """A connection that breaks is the server's to open again."""


class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_POST(self):
        answer = self.server.liar.answered(self.rfile.read(int(self.headers["Content-Length"])))
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(answer)))
        self.end_headers()
        self.wfile.write(answer)

    def do_GET(self):
        """A WebSocket: bytes of the client as they come, frames of the node as the lie has them."""
        self.close_connection = True
        host, port = self.server.liar.upstream.address.split(":")
        node = socket.create_connection((host, int(port)))
        head = f"{self.requestline}\r\n" + "".join(f"{name}: {value}\r\n" for name, value in self.headers.items())
        node.sendall(f"{head}\r\n".encode())
        threading.Thread(target=self.from_client, args=(node,), daemon=True).start()
        try:
            self.from_node(node.makefile("rb"))
        except OSError:
            pass
        node.close()

    def from_client(self, node):
        try:
            while data := self.rfile.read1(1 << 16):
                node.sendall(data)
            node.shutdown(socket.SHUT_RDWR)
        except (OSError, ValueError):
            pass

    def from_node(self, node):
        for line in iter(node.readline, b"\r\n"):
            self.wfile.write(line)
        self.wfile.write(b"\r\n")
        liar = self.server.liar
        while frame := read_frame(node):
            kind, message = frame
            told = liar.changed(message, liar.lie.head(message))
            if told is not None:
                self.wfile.write(framed(kind, told))

    def log_message(self, *_):
        pass


def read_frame(stream):
    """First byte and payload of a server's frame (RFC 6455); nothing at the end."""
    head = stream.read(2)
    if len(head) < 2:
        return None
    long = {126: 2, 127: 8}.get(head[1] & 127, 0)
    length = int.from_bytes(stream.read(long), "big") if long else head[1] & 127
    return head[0], stream.read(length)


def framed(kind, message):
    short = len(message) if len(message) < 126 else 126 if len(message) < 1 << 16 else 127
    long = len(message).to_bytes({126: 2, 127: 8}.get(short, 0), "big") if short > 125 else b""
    return bytes([kind, short]) + long + message
