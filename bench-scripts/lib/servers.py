"""Servers under load: started, pinned, watched, and ended by their own process id."""

import os
import re
import subprocess
import tempfile

from . import tools
from .process import cpu_seconds, end, free_port, wait_until
from .rpc import Client

START_S = 120
FILL_S = 1200
# Heights of a packed file, at most.
RANGE_MAX = 1024


class Server:
    """A process that answers JSON-RPC at an address and a path."""

    def __init__(self, name, process, address, path="/", command=()):
        self.name, self.process, self.address, self.path = name, process, address, path
        self.pid, self.command = process.pid, [str(word) for word in command]
        # Of neve's full /health and of /metrics.
        self.admin = address
        # Which program it is, also where something else starts it.
        self.binary = self.command[0] if self.command else None

    @property
    def url(self):
        return f"http://{self.address}{self.path}"

    def client(self):
        return Client(self.address, self.path)

    def cpu(self):
        return cpu_seconds(self.pid)

    def stop(self):
        end(self.process)


class Remote:
    """A server that somebody else runs: only its answers and latencies can be seen."""

    pid = None

    def __init__(self, name, url):
        match = re.fullmatch(r"http://([^/]+)(/.*)?", url)
        if not match:
            raise SystemExit(f"{url}: wanted http://HOST:PORT/PATH")
        self.name, self.path = name, match[2] or "/"
        self.address = match[1] if ":" in match[1] else f"{match[1]}:80"
        self.url, self.command, self.binary = f"http://{self.address}{self.path}", [url], None

    def client(self):
        return Client(self.address, self.path)

    def cpu(self):
        return None

    def stop(self):
        pass


def pin(pid, processor):
    """Binds all threads of a process to a processor, if there are two to choose from."""
    if (os.cpu_count() or 1) < 2:
        return
    for thread in os.listdir(f"/proc/{pid}/task"):
        try:
            os.sched_setaffinity(int(thread), {processor})
        except (ProcessLookupError, PermissionError):
            pass


def unpin(pid):
    """All processors, whatever this process is bound to: until it has the blocks, it may use them."""
    os.sched_setaffinity(pid, range(os.cpu_count() or 1))


def spawn(name, command, path="/", environment=None, log=None):
    """Starts a server that prints its address first."""
    log = open(log, "w") if log else subprocess.DEVNULL
    told = {**os.environ, **(environment or {})}
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=log, text=True, env=told)
    unpin(process.pid)
    first = process.stdout.readline()
    match = re.search(r"http://([^/\s]+)", first)
    if not match:
        end(process)
        raise SystemExit(f"{name} did not start: {' '.join(map(str, command))}")
    server = Server(name, process, match[1], path, command)
    if first.startswith("neve "):
        server.admin = admin(process.stdout) or server.address
    return server


def admin(greeting):
    """The address of the line `health   http://ADDRESS/health`, the third."""
    lines = (re.match(r"health\s+http://([^/\s]+)", greeting.readline()) for _ in range(2))
    return next((match[1] for match in lines if match), None)


def answers(client):
    def asked():
        try:
            return client().call("eth_chainId") is not None
        except (OSError, ValueError):
            return False

    return asked


def devnet(heights, rate=0):
    """An upstream with blocks of mainnet's size, and so many more a second."""
    return spawn("devnet", [tools.devnet(), str(heights), str(rate)], "/ext/bc/C/rpc")


def neve(directory, upstream, threads=1, binary=None, name="neve", options=(), start=1):
    """neve, with all that the upstream has from `start` on; unpacked, unless the options say otherwise."""
    command = [binary or tools.neve(), "serve", "--data-dir", directory, "--upstream", f"http://{upstream.address}"]
    if "--unpacked-bytes" not in options:
        # By default 20,000 blocks of mainnet's size would be packed in part, and a row would mix both.
        command += ["--unpacked-bytes", "none"]
    command += ["--start", str(start), "--retain-bytes", "none", "--threads", str(threads), "--precompress", "gzip"]
    command += ["--listen", "127.0.0.1:0", *options]
    server = spawn(name, command, log=f"{directory}.log")
    fill(server, upstream, name)
    return server


def fill(server, upstream, name):
    """Waits for all that the upstream has now. A server that does not get it is ended."""
    head = int(upstream.client().call("eth_blockNumber"), 16)
    try:
        wait_until(lambda: (held(server) or (0, 0))[1] >= head, f"{name} at height {head}", FILL_S, server.process)
    except SystemExit:
        end(server.process)
        raise


def packed(directory, upstream, threads=1, options=()):
    """neve, of which all whole ranges are packed: from height 0 on, so that the first one is whole."""
    head = int(upstream.client().call("eth_blockNumber"), 16)
    # Smaller ranges, if it has fewer blocks than the usual one.
    length = min(RANGE_MAX, 1 << head.bit_length() - 1)
    options = ("--unpacked-bytes", "0B", "--segment-blocks", str(length), *options)
    server = neve(directory, upstream, threads, name="packed", options=options, start=0)
    settled = head // length * length
    wait_until(lambda: packed_heights(server) >= settled, f"{settled} packed heights", FILL_S, server.process)
    return server


def range_length(blocks, ranges):
    """Heights of a range, a power of two, so that the blocks fill as many ranges or more."""
    return min(RANGE_MAX, 1 << (blocks // ranges).bit_length() - 1)


def packed_heights(server):
    return Client(server.admin).get("/health")["storage"]["packed_heights"]


def held(server):
    """The range that a cache says it has, in either neve's words."""
    blocks = Client(server.address).get("/health")["blocks"]
    first = blocks.get("first_height", blocks.get("min_height"))
    head = blocks.get("head", blocks.get("max_contiguous_height"))
    return None if head is None else (first, head)


def peer(directory, upstream, threads=1):
    """The published neve with the same blocks. It takes no free port and says none."""
    address = f"127.0.0.1:{free_port()}"
    command = [tools.peer(), "--chains", "c", "--data-dir", directory, "--rpc-addr", address, "--backfill-floor", "1"]
    command += ["--rpc-url", f"http://{upstream.address}/ext/bc/C/rpc", "--request-interval", "0ms"]
    command += ["--ws-url", f"ws://{upstream.address}/ext/bc/C/ws"]
    told = {**os.environ, "TOKIO_WORKER_THREADS": str(threads)}
    with open(f"{directory}.log", "w") as log:
        process = subprocess.Popen(command, stdout=log, stderr=log, env=told)
    unpin(process.pid)
    server = Server("peer", process, address, "/", command)
    wait_until(answers(server.client), "neve 0.2.2", START_S, process)
    fill(server, upstream, "neve 0.2.2")
    return server


def floor(answers_file, name="floor"):
    return spawn(name, [tools.floor(), answers_file])


def workplace():
    """A directory for stores, on the disk where the build is and not in memory."""
    tools.CACHE.mkdir(parents=True, exist_ok=True)
    return tempfile.TemporaryDirectory(dir=tools.CACHE, prefix="stores-")
