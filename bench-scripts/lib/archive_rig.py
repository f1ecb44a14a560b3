"""An archive in versitygw, a real object store, with toxiproxy before it: a network of any delay."""

import datetime
import hashlib
import hmac
import http.client
import json
import os
import pathlib
import subprocess
import urllib.request

from . import servers, tools
from .process import end, free_port, wait_until
from .rpc import Client

GATEWAY = "github.com/versity/versitygw/cmd/versitygw@v1.8.0"
TOXIPROXY = "github.com/Shopify/toxiproxy/v2/cmd/server@v2.12.0"
KEY, SECRET, REGION, BUCKET = "test", "testsecret", "us-east-1", "bucket"
KEYS = {"AWS_ACCESS_KEY_ID": KEY, "AWS_SECRET_ACCESS_KEY": SECRET, "AWS_REGION": REGION, "AWS_DEFAULT_REGION": REGION}
RANGE, START_S = 1024, 120


def built(name, package, program):
    """A program that Go builds once."""
    home = tools.CACHE / name
    if not (home / program).exists():
        tools.build(name, ["go", "install", package], home / program, {"GOBIN": str(home), "CGO_ENABLED": "0"})
    return home / program


class Listener:
    """A program that listens on a port of its choice."""

    def __init__(self, rig, command, port, environment=None):
        told = {**os.environ, **(environment or {})}
        self.process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, env=told)
        rig.stack.callback(end, self.process)
        self.address = f"127.0.0.1:{port}"
        wait_until(lambda: listens(self.address), str(command[0]), START_S, self.process)

    @property
    def url(self):
        return f"http://{self.address}"


def listens(address):
    connection = http.client.HTTPConnection(address, timeout=1)
    try:
        connection.connect()
        return True
    except OSError:
        return False
    finally:
        connection.close()


class Gateway(Listener):
    """versitygw over a directory, with one bucket."""

    def __init__(self, rig):
        self.data = rig.directory / "objects"
        (self.data / BUCKET).mkdir(parents=True)
        port = free_port()
        command = [built("versitygw-1.8.0", GATEWAY, "versitygw"), "--port", f"127.0.0.1:{port}", "--keep-alive", "--quiet"]
        super().__init__(rig, [*command, "posix", self.data], port, {"ROOT_ACCESS_KEY": KEY, "ROOT_SECRET_KEY": SECRET})

    def folder(self, prefix):
        return self.data / BUCKET / prefix


class Network(Listener):
    """toxiproxy with one proxy."""

    def __init__(self, rig, upstream):
        port, self.port = free_port(), free_port()
        super().__init__(rig, [built("toxiproxy-2.12.0", TOXIPROXY, "server"), "-host", "127.0.0.1", "-port", str(port)], port)
        proxy = {"name": "store", "listen": f"127.0.0.1:{self.port}", "upstream": upstream, "enabled": True}
        self.post("/proxies", proxy)
        self.endpoint = f"http://127.0.0.1:{self.port}"

    def post(self, path, body):
        request = urllib.request.Request(self.url + path, json.dumps(body).encode(), {"Content-Type": "application/json"})
        urllib.request.urlopen(request, timeout=START_S).read()

    def delay(self, milliseconds):
        self.post("/proxies/store/toxics", {"type": "latency", "stream": "downstream", "attributes": {"latency": milliseconds}})

    def cut(self):
        self.post("/proxies/store", {"enabled": False})

    def mend(self):
        self.post("/reset", {})


def presigned(address, path, seconds=86400):
    """Path and query that read an object without a header (AWS, signature version 4)."""
    now = datetime.datetime.now(datetime.timezone.utc)
    stamp, day = now.strftime("%Y%m%dT%H%M%SZ"), now.strftime("%Y%m%d")
    scope = f"{day}/{REGION}/s3/aws4_request"
    query = f"X-Amz-Algorithm=AWS4-HMAC-SHA256&X-Amz-Credential={KEY}%2F{scope.replace('/', '%2F')}&X-Amz-Date={stamp}"
    query += f"&X-Amz-Expires={seconds}&X-Amz-SignedHeaders=host"
    request = f"GET\n{path}\n{query}\nhost:{address}\n\nhost\nUNSIGNED-PAYLOAD"
    text = f"AWS4-HMAC-SHA256\n{stamp}\n{scope}\n{hashlib.sha256(request.encode()).hexdigest()}"
    key = f"AWS4{SECRET}".encode()
    for part in (day, REGION, "s3", "aws4_request"):
        key = hmac.digest(key, part.encode(), "sha256")
    return f"{path}?{query}&X-Amz-Signature={hmac.new(key, text.encode(), 'sha256').hexdigest()}"


class Field:
    """A chain of whole ranges, a neve that has packed them, and the store."""

    def __init__(self, rig, ranges):
        self.rig, self.ranges, self.last = rig, ranges, ranges * RANGE - 1
        command = [tools.devnet(), str(ranges * RANGE + 64), "0", "--filler", "--repeatable"]
        upstream = servers.spawn("devnet", command, "/ext/bc/C/rpc")
        rig.stack.callback(upstream.stop)
        self.source = self.neve("source", "--upstream", f"http://{upstream.address}", "--start", "0", "--unpacked-bytes", "0B",
                                "--serve-mirrors", "--retain-bytes", "none")  # fmt: skip
        look = lambda: servers.packed_heights(self.source) > self.last  # noqa: E731
        wait_until(look, f"{ranges} packed ranges", servers.FILL_S, self.source.process)
        self.store = rig.directory / "source"
        self.gateway = Gateway(rig)
        self.network = Network(rig, self.gateway.address)
        block = self.source.client().call("eth_getBlockByNumber", hex(self.last), False)
        self.anchor = f"{self.last}:{block['hash']}"

    def neve(self, name, *options, store=None):
        command = [tools.neve(), "serve", "--data-dir", store or self.rig.directory / name]
        command += ["--segment-blocks", str(RANGE), "--recover-senders", "never", "--listen", "127.0.0.1:0"]
        server = servers.spawn(name, [*command, *options], environment=KEYS, log=self.rig.directory / f"{name}.log")
        self.rig.stack.callback(server.stop)
        return server

    def push(self, prefix):
        """Pushes all packed files to a prefix."""
        command = [tools.neve(), "archive", "push", "--data-dir", self.store, "--archive-endpoint", self.gateway.url]
        told = {**os.environ, **KEYS}
        subprocess.run([*command, f"s3://{BUCKET}/{prefix}"], check=True, env=told, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)

    def replica(self, name, prefix, *options):
        """A neve without a node that reads the store over the network."""
        manifest = (self.gateway.folder(prefix) / "manifest.json").read_bytes()
        trust = f"sha256:{hashlib.sha256(manifest).hexdigest()}"
        return self.neve(name, "--archive", f"s3://{BUCKET}/{prefix}", "--archive-endpoint", self.network.endpoint,
                         "--archive-trust", trust, "--archive-anchor", self.anchor, *options)  # fmt: skip

    def reader(self, name, prefix, *options):
        """A replica whose tail is the newest range, once it answers the heights and hashes below."""
        server = self.replica(name, prefix, "--backfill-to", str((self.ranges - 1) * RANGE), *options)
        wait_until(lambda: is_filled(server, (self.ranges - 1) * RANGE, self.last), "the tail", servers.FILL_S, server.process)
        look = lambda: health(server)["archive"]["answers"].get("hashes_from_height") == 0  # noqa: E731
        wait_until(look, "filters", servers.FILL_S, server.process)
        return server

    def segments(self, prefix):
        """Objects of the segments, ascending by height: paths for the store."""
        found = [path for path in self.gateway.folder(prefix).rglob("segment-*") if path.is_file()]
        found.sort(key=lambda path: int(path.name.split("-")[1]))
        return [f"/{BUCKET}/{path.relative_to(self.gateway.data / BUCKET)}" for path in found]

    def packed_files(self):
        return sorted(pathlib.Path(self.store).glob("*.pack"))


def health(server):
    return Client(server.admin).get("/health")


def is_filled(server, first, last):
    blocks = health(server)["blocks"]
    held = blocks["min_height"], blocks["head"]
    return None not in held and held[0] <= first and held[1] >= last


def count(server, name):
    """Sum of a counter over its labels."""
    page = Client(server.admin).asked("GET /metrics", b"", {})[2].decode()
    lines = [line.rsplit(" ", 1) for line in page.splitlines() if line and not line.startswith("#")]
    return sum(float(value) for series, value in lines if series.split("{")[0] == name)
