"""One round of freshness: a neve that follows a node, and somebody subscribed to both."""

import contextlib
import datetime
import json
import pathlib
import re
import subprocess
import threading
import time

from . import servers, tools
from .process import end, wait_until

# A line of the node's log at its level "trace", before anything of the block is done.
ACCEPTING = re.compile(r"\[(\d\d-\d\d\|\d\d:\d\d:\d\d\.\d{3})\] .*accepting block .*\"height\": (\d+)")
FIRST_BLOCK_S = 60


def measure(upstream, directory, heads, history):
    """The rows of `heads` heads, or of as many as come while history is filled; and what neve did.

    Without history to speak of (None) the node itself is asked, in neve's place.
    """
    if history is None:
        return listen(upstream, upstream, heads, None), {}
    with contextlib.ExitStack() as stack:
        server = neve(directory, upstream, "0" if history else "none")
        stack.callback(server.stop)
        first = wait_until(lambda: servers.held(server), "its first block", FIRST_BLOCK_S, server.process)[0]
        cpu, began = server.cpu(), time.monotonic()
        filled = Filled(server) if history else None
        rows = listen(upstream, server, heads, filled)
        done = {"cpu_s": server.cpu() - cpu, "seconds": time.monotonic() - began, "history": first - servers.held(server)[0]}
    if filled and filled.at:
        rows = [row for row in rows if row["unix_ms"] < filled.at]
    return rows, done


def neve(directory, upstream, backfill_to):
    command = [tools.neve(), "serve", "--data-dir", directory, "--upstream", f"http://{upstream.address}"]
    command += ["--start", "-20", "--backfill-to", backfill_to, "--retain-bytes", "none", "--listen", "127.0.0.1:0"]
    return servers.spawn("neve", command, log=f"{directory}.log")


class Filled:
    """Ends the subscriber when history is filled, and knows when that was."""

    def __init__(self, server):
        self.server, self.at = server, None

    def watch(self, process):
        while process.poll() is None:
            if servers.held(self.server)[0] == 0:
                self.at = time.time() * 1e3
                return process.terminate()
            time.sleep(0.1)
        return None


def listen(upstream, server, heads, filled):
    command = [tools.freshness(), socket_of(upstream), socket_of(server), server.url, str(heads)]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    if filled:
        threading.Thread(target=filled.watch, args=(process,), daemon=True).start()
    try:
        rows = [json.loads(line) for line in process.stdout]
        if process.wait() != 0 and not (filled and filled.at):
            raise SystemExit(f"the subscriber ended after {len(rows)} of {heads} heads")
        return rows
    finally:
        end(process)


def socket_of(server):
    return f"ws://{server.address}{server.path.replace('/rpc', '/ws')}"


@contextlib.contextmanager
def transactions(upstream):
    """A node gets what mainnet's blocks have."""
    command = [tools.node_chain(), "--feed", upstream.url, "--blocks", str(10**6)]
    process = subprocess.Popen(command)
    try:
        yield
    finally:
        end(process)


def accepted(log):
    """When the node began to accept each height, in milliseconds of Unix time."""
    found, year = {}, time.gmtime().tm_year
    for line in pathlib.Path(log).read_text(errors="replace").splitlines():
        if match := ACCEPTING.search(line):
            at = datetime.datetime.strptime(f"{year}-{match[1]}", "%Y-%m-%d|%H:%M:%S.%f").astimezone()
            found[int(match[2])] = at.timestamp() * 1e3
    return found
