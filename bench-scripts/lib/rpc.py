"""JSON-RPC as a client asks it, and what an answer is worth."""

import gzip
import http.client
import json

TIMEOUT_S = 30
FRAMING = ("content-length", "transfer-encoding", "connection")


class Client:
    """One keep-alive connection to one server."""

    def __init__(self, address, path="/"):
        self.connection = http.client.HTTPConnection(address, timeout=TIMEOUT_S)
        self.path = path

    def exchange(self, body, headers=None):
        """The whole answer: status, headers as sent, body as sent."""
        sent = {"Content-Type": "application/json", **(headers or {})}
        self.connection.request("POST", self.path, body, sent)
        response = self.connection.getresponse()
        return response.status, response.getheaders(), response.read()

    def call(self, method, *params):
        body = json.dumps({"jsonrpc": "2.0", "id": 1, "method": method, "params": list(params)})
        status, _, answer = self.exchange(body)
        fault = fault_of(status, json.loads(answer or b"null"))
        if fault:
            raise ValueError(f"{method}{params}: {fault}")
        return json.loads(answer)["result"]

    def get(self, path):
        self.connection.request("GET", path)
        return json.loads(self.connection.getresponse().read())

    def close(self):
        self.connection.close()


def decoded(headers, body):
    coded = dict((name.lower(), value) for name, value in headers).get("content-encoding")
    return gzip.decompress(body) if coded == "gzip" else body


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
