"""Clients over HTTP and WebSocket, with nothing that hides what a front does."""

import base64
import http.client
import io
import json
import os
import socket
import struct
import time


class Response:
    def __init__(self, status, headers, body):
        self.status, self.headers, self.body = status, headers, body

    def json(self):
        try:
            return json.loads(self.body)
        except ValueError:
            return None

    def header(self, name):
        return next((value for key, value in self.headers if key.lower() == name), None)

    def __str__(self):
        return f"{self.status} {self.header('x-neve') or ''} {self.body[:160]!r}"


def request(address, method, path, body=b"", headers=(), source="127.0.0.1", timeout=20, whole=True):
    """Sends one request on a connection of its own. An error of the connection is a response with status 0.

    Without `whole` a body that does not come in time is empty: some responses never end."""
    connection = http.client.HTTPConnection(*address, timeout=timeout, source_address=(source, 0))
    try:
        connection.putrequest(method, path, skip_accept_encoding=True)
        if method == "POST":
            connection.putheader("content-type", "application/json")
            connection.putheader("content-length", str(len(body)))
        for name, value in headers:
            connection.putheader(name, value)
        connection.endheaders(body or None)
        response = connection.getresponse()
        return Response(response.status, response.getheaders(), response.read() if whole else begun(response))
    except (OSError, http.client.HTTPException) as error:
        return Response(0, [], repr(error).encode())
    finally:
        connection.close()


def begun(response):
    """The beginning of a body."""
    try:
        return response.read1(65536)
    except OSError:
        return b""


def call(method, *params, number=1):
    return {"jsonrpc": "2.0", "id": number, "method": method, "params": list(params)}


def encoded(message):
    return json.dumps(message, separators=(",", ":")).encode()


def post(address, message, path="/", **options):
    body = message if isinstance(message, bytes) else encoded(message)
    return request(address, "POST", path, body, **options)


class WebSocket:
    """A client of RFC 6455. `status` is that of the handshake."""

    def __init__(self, address, path="/ws", source="127.0.0.1", timeout=10):
        self.stream = socket.create_connection(address, timeout, source_address=(source, 0))
        key = base64.b64encode(os.urandom(16)).decode()
        lines = [f"GET {path} HTTP/1.1", f"Host: {address[0]}:{address[1]}", "Connection: Upgrade", "Upgrade: websocket"]
        lines += ["Sec-WebSocket-Version: 13", f"Sec-WebSocket-Key: {key}", "X-Forwarded-For: 203.0.113.9"]
        self.stream.sendall("\r\n".join(lines + ["", ""]).encode())
        self.data = b""
        head = self.until(b"\r\n\r\n")
        self.status = int(head.split(b" ", 2)[1])

    def more(self):
        data = self.stream.recv(65536)
        if not data:
            raise OSError("the socket was closed")
        self.data += data

    def until(self, mark):
        while mark not in self.data:
            self.more()
        taken, self.data = self.data.split(mark, 1)
        return taken

    def take(self, length):
        while len(self.data) < length:
            self.more()
        taken, self.data = self.data[:length], self.data[length:]
        return taken

    def send(self, payload, opcode=1):
        mask = os.urandom(4)
        length = struct.pack("!B", 0x80 | len(payload)) if len(payload) < 126 else struct.pack("!BH", 0xFE, len(payload))
        masked = bytes(byte ^ mask[index % 4] for index, byte in enumerate(payload))
        self.stream.sendall(bytes([0x80 | opcode]) + length + mask + masked)

    def receive(self, timeout=10):
        """The next message, as JSON. Pings are answered."""
        end = time.monotonic() + timeout
        while True:
            self.stream.settimeout(max(end - time.monotonic(), 0.01))
            first, second = self.take(2)
            length = second & 127
            if length > 125:
                form, width = ("!H", 2) if length == 126 else ("!Q", 8)
                (length,) = struct.unpack(form, self.take(width))
            payload = self.take(length)
            if first & 15 == 9:
                self.send(payload, 10)
            elif first & 15 == 8:
                raise OSError(f"closed: {payload!r}")
            elif first & 15 == 1:
                return json.loads(payload)

    def call(self, method, *params):
        self.send(encoded(call(method, *params)))
        while True:
            answer = self.receive()
            if "id" in answer:
                return answer

    def close(self):
        self.stream.close()
