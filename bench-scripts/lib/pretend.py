"""Servers that answer as a test wants, and loads of them."""

import http.server
import json
import pathlib
import tempfile
import threading
import time
import types

from . import folder, rig, rows, servers

ANSWER = {"jsonrpc": "2.0", "id": 1, "result": "0x1"}


class Pretender(http.server.BaseHTTPRequestHandler):
    """A server that answers as its class says."""

    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True  # head and body are written apart
    status, answer, stall_every, asked = 200, ANSWER, 0, 0
    # After so many requests it says null, in as many bytes.
    null_after = None
    # After so many its answers end before their end.
    cut_after = None

    def do_POST(self):  # noqa: N802
        self.rfile.read(int(self.headers["Content-Length"]))
        Pretender.asked += 1
        if self.stall_every and Pretender.asked % self.stall_every == 0:
            time.sleep(0.1)
        late = self.null_after is not None and Pretender.asked > self.null_after
        body = json.dumps(self.answer | {"result": None} if late else self.answer).encode()
        self.send_response(self.status)
        self.send_header("Content-Length", str(len(body)))
        if self.cut_after is not None and Pretender.asked > self.cut_after:
            body, self.close_connection = body[:-1], True
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_):
        pass


def pretend(name="pretender", **said):
    """A server of that kind, as the scripts see one that somebody else runs."""
    handler = type("Handler", (Pretender,), said)
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler)
    server.handle_error = lambda *_: None  # a generator goes without a word
    threading.Thread(target=server.serve_forever, daemon=True).start()
    Pretender.asked = 0
    return servers.Remote(name, f"http://127.0.0.1:{server.server_port}/")


def loaded(generator, **said):
    """A row of load on a server of that kind."""
    with tempfile.NamedTemporaryFile("w", suffix=".jsonl") as file:
        file.write('{"jsonrpc":"2.0","id":1,"method":"eth_blockNumber","params":[]}\n')
        file.flush()
        return generator(pretend(**said), pathlib.Path(file.name), 2, 1)


def stage(test, **said):
    """A rig with one such server, called neve, what it is asked, and a folder; gone after the test."""
    stage = types.SimpleNamespace(rig=rig.Rig(), args=types.SimpleNamespace(rounds=1, seconds=1, servers=""))
    test.addCleanup(stage.rig.__exit__, None, None, None)
    stage.server = stage.rig.add(pretend("neve", **said))
    stage.question = rig.Question(rows.BY_NAME["number"], None, stage.server, stage.rig.directory)
    stage.folder = folder.Folder("test", stage.rig.directory / "out")
    test.addCleanup(stage.folder.raw.close)
    return stage
