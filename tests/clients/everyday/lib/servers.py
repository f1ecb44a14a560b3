"""The servers: a neve that refuses misses, one that relays them, and requests to any of them."""

import json
import re
import subprocess
import time
import urllib.request

LIMIT_S = 60
MODES = {"neve alone": "refuse", "neve with relay": "relay"}


def call(url, method, *params):
    """The result of a call."""
    body = {"jsonrpc": "2.0", "id": 1, "method": method, "params": params}
    request = urllib.request.Request(url, json.dumps(body).encode(), {"content-type": "application/json"})
    with urllib.request.build_opener(urllib.request.ProxyHandler({})).open(request, timeout=LIMIT_S) as response:
        answer = json.load(response)
    if "error" in answer:
        raise RuntimeError(f"{method}: {answer['error']}")
    return answer["result"]


def wait_until(what, look):
    """Repeats `look` until it finds something, and returns that."""
    end = time.monotonic() + LIMIT_S
    while not (found := look()):
        if time.monotonic() > end:
            raise TimeoutError(f"{what}: not within {LIMIT_S} s")
        time.sleep(0.1)
    return found


class Neve:
    """A neve that follows a node from its first block on."""

    def __init__(self, program, directory, upstream, mode):
        command = [program, "serve", "--config", "none", "--listen", "127.0.0.1:0", "--data-dir", directory / mode, "--upstream", upstream]
        command += ["--start", "0", "--disk-reserve-bytes", "1MiB", "--on-miss", mode]
        with open(directory / f"{mode}.log", "wb") as log:
            self.process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=log, text=True)
        address = re.search(r"http://([^/\s]+)", self.process.stdout.readline())
        if not address:
            raise SystemExit(f"neve did not start: see {directory / mode}.log")
        self.url = f"http://{address[1]}/ext/bc/C/rpc"

    def reaches(self, height):
        """Waits until its head is that high."""
        def head():
            try:
                return int(call(self.url, "eth_blockNumber"), 16)
            except OSError:
                return -1
        wait_until(f"neve at height {height}", lambda: head() >= height)

    def stop(self):
        self.process.terminate()
        self.process.wait()
