"""JSON-RPC as a client asks it, and what an answer is worth."""

import gzip
import json
import socket

TIMEOUT_S = 120
FRAMING = ("content-length", "transfer-encoding", "connection")


class Client:
    """One keep-alive connection to one server, read as fast as Python can: into one buffer, until it is all.

    http.client takes longer than neve does for an answer, and splits a question in two.
    """

    def __init__(self, address, path="/"):
        self.address, self.path = address, path
        self.socket, self.buffer = None, bytearray(1 << 16)

    def exchange(self, body, headers=None):
        """The whole answer: status, headers as sent, body as sent."""
        sent = {"Content-Type": "application/json", **(headers or {})}
        return self.asked(f"POST {self.path}", body if isinstance(body, bytes) else body.encode(), sent)

    def asked(self, what, body, headers):
        lines = [f"{what} HTTP/1.1", f"Host: {self.address}", *(f"{name}: {value}" for name, value in headers.items())]
        request = "\r\n".join([*lines, f"Content-Length: {len(body)}", "", ""]).encode() + body
        try:
            self.socket = self.socket or connected(self.address)
            self.socket.sendall(request)
            begin, end = self.read()
        except OSError:
            self.close()
            raise
        status, headers = parsed(self.buffer[:begin])
        answer = bytes(memoryview(self.buffer)[begin:end])
        if one_of(headers, "connection").lower() == "close":
            self.close()
        return status, headers, joined(answer) if chunked(headers) else answer

    def read(self):
        """Reads one answer; where its body begins and ends in the buffer."""
        filled, begin, length = 0, None, None
        while True:
            if filled == len(self.buffer):
                self.buffer.extend(bytes(len(self.buffer)))
            with memoryview(self.buffer) as view:
                got = self.socket.recv_into(view[filled:])
            if not got:
                raise ConnectionError(f"{self.address} closed the connection")
            filled += got
            if begin is None and (at := self.buffer.find(b"\r\n\r\n", 0, filled)) >= 0:
                begin, length = at + 4, one_of(parsed(self.buffer[:at])[1], "content-length")
            if begin and (filled - begin == int(length) if length else self.buffer.endswith(LAST_CHUNK, 0, filled)):
                return begin, filled

    def call(self, method, *params):
        body = json.dumps({"jsonrpc": "2.0", "id": 1, "method": method, "params": list(params)})
        status, _, answer = self.exchange(body)
        fault = fault_of(status, json.loads(answer or b"null"))
        if fault:
            raise ValueError(f"{method}{params}: {fault}")
        return json.loads(answer)["result"]

    def get(self, path):
        return json.loads(self.asked(f"GET {path}", b"", {})[2])

    def close(self):
        if self.socket:
            self.socket.close()
        self.socket = None


LAST_CHUNK = b"\r\n0\r\n\r\n"


def connected(address):
    host, _, port = address.partition(":")
    connection = socket.create_connection((host, int(port or 80)), timeout=TIMEOUT_S)
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return connection


def parsed(head):
    """Status and headers."""
    first, *lines = head.decode("latin-1").strip().split("\r\n")
    return int(first.split()[1]), [(name, value.strip()) for name, _, value in (line.partition(":") for line in lines)]


def one_of(headers, wanted):
    return next((value for name, value in headers if name.lower() == wanted), "")


def chunked(headers):
    return one_of(headers, "transfer-encoding").lower() == "chunked"


def joined(body):
    """A body in HTTP's transfer coding of pieces, put together."""
    pieces, at = [], 0
    while True:
        end = body.index(b"\r\n", at)
        length = int(body[at:end], 16)
        if length == 0:
            return b"".join(pieces)
        pieces.append(body[end + 2 : end + 2 + length])
        at = end + 2 + length + 2


def decoded(headers, body):
    return gzip.decompress(body) if one_of(headers, "content-encoding") == "gzip" else body


def fault_of(status, answer):
    """Why an answer is none, or nothing. A null is as cheap as a miss, and as worthless here."""
    if status != 200:
        return f"HTTP {status}"
    for message in answer if isinstance(answer, list) else [answer]:
        if not isinstance(message, dict):
            return "no JSON-RPC answer"
        if message.get("error") is not None:
            return f"error {message['error'].get('code')}: {message['error'].get('message')}"
        if message.get("result") is None:
            return "null"
    return None


def raw_answer(status, headers, body):
    """The answer's bytes as they were on the wire, for the floor; in one piece, whatever it came in."""
    kept = [(name, value) for name, value in headers if name.lower() not in FRAMING]
    lines = [f"HTTP/1.1 {status} OK", *(f"{name}: {value}" for name, value in kept), f"Content-Length: {len(body)}"]
    return ("\r\n".join(lines) + "\r\n\r\n").encode() + body
