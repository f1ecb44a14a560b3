"""A node, a neve that follows it, taps between all of them, and processes that end."""

import os
import random
import re
import socket
import subprocess
import threading
import time

from . import wire
from .tap import Tap

START_S = 60
# A head this old counts as old, so that a node that neve lost shows soon.
AGE = 6
# A head of this age is served by a neve that lags.
LAGGING_AGE = 300


# Set when the whole run is to end: no wait goes on, and no case begins.
STOP = threading.Event()


def wait_until(what, test, limit=START_S):
    """Repeats the test until it returns something true, and returns that."""
    end = time.monotonic() + limit
    while True:
        if STOP.is_set():
            raise InterruptedError(f"{what}: the run was ended")
        found = test()
        if found:
            return found
        if time.monotonic() > end:
            raise TimeoutError(f"{what}: not within {limit} s")
        time.sleep(0.05)


def free_address():
    """An address below the ports that the kernel gives to clients: none of them takes it meanwhile."""
    while True:
        address = ("127.0.0.1", random.randrange(12_000, 32_000))
        try:
            socket.create_server(address).close()
            return address
        except OSError:
            continue


def listens(address):
    try:
        socket.create_connection(address, 1).close()
        return True
    except OSError:
        return False


class Process:
    """A program with a log. Its end is that of its own id."""

    def __init__(self, command, directory, name, **options):
        self.name, self.log = name, directory / f"{name}.log"
        with open(self.log, "wb") as log:
            self.child = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, cwd=directory, **options)

    def said(self):
        return self.log.read_text(errors="replace")

    def wait_for(self, test):
        def ready():
            if self.child.poll() is not None:
                raise ChildProcessError(f"{self.name} ended with {self.child.returncode}: {self.said()[-2000:]}")
            return test()
        try:
            return wait_until(self.name, ready)
        except TimeoutError as error:
            raise TimeoutError(f"{error}: {self.said()[-2000:]}") from None

    def end(self):
        self.child.terminate()
        try:
            self.child.wait(10)
        except subprocess.TimeoutExpired:
            self.child.kill()
            self.child.wait(10)


def start_node(program, directory):
    """The development node, with a block every two seconds, as its blocks are stamped. Returns the process and its address."""
    process = Process([program, "60", "0.5", "--filler"], directory, "node")
    found = process.wait_for(lambda: re.search(r"http://([\d.]+):(\d+)/", process.said()))
    return process, (found[1], int(found[2]))


class Neve:
    """A neve with a tap on each side. It has pages that no front may show."""

    def __init__(self, program, node, directory, name, flags, age):
        self.upstream = Tap(node)
        self.address = free_address()
        command = [program, "serve", "--config", "none", "--upstream", f"http://127.0.0.1:{self.upstream.address[1]}"]
        command += ["--data-dir", str(directory / name), "--listen", f"127.0.0.1:{self.address[1]}", "--start", "0"]
        command += ["--disk-reserve-bytes", "1MiB", "--recover-senders", "never", "--threads", "1", "--serve-mirrors", "--admin-on-main"]
        command += ["--trusted-proxies", "127.0.0.1", "--stale-heads", "miss", "--ready-age-max", f"{age}s"]
        environment = {key: value for key, value in os.environ.items() if not key.startswith("NEVE_")}
        self.process = Process(command + flags, directory, name, env=environment)
        self.tap = Tap(self.address)

    def ready(self):
        return wire.request(self.address, "GET", "/ready").status == 200

    def fresh(self):
        """True if calls of the head are hits."""
        return wire.post(self.address, wire.call("eth_blockNumber")).status == 200

    def wait_until_ready(self):
        self.process.wait_for(lambda: listens(self.address) and self.ready() and self.fresh())

    def end(self):
        self.process.end()
        self.tap.close()
        self.upstream.close()


class Rig:
    """All that a front stands before: one node, and its own neves."""

    def __init__(self, program, node, directory, flags, neves=1):
        # Of several neves one lags, and both serve their head.
        age = AGE if neves == 1 else LAGGING_AGE
        self.node, self.node_tap, self.directory = node, Tap(node), directory
        self.neves = []
        try:
            for number in range(neves):
                self.neves.append(Neve(program, node, directory, f"neve{number}", flags, age))
            for neve in self.neves:
                neve.wait_until_ready()
        except BaseException:
            self.end()
            raise

    @property
    def neve(self):
        return self.neves[0]

    def direct(self, message):
        """The node's own response."""
        return wire.post(self.node, message, "/ext/bc/C/rpc")

    def reset(self):
        """All is well again, and nothing is noted."""
        for neve in self.neves:
            neve.upstream.set("pass")
            neve.tap.set("pass")
        self.node_tap.set("pass")
        for neve in self.neves:
            neve.wait_until_ready()
        self.clear()

    def clear(self):
        for tap in (self.node_tap, *(neve.tap for neve in self.neves)):
            tap.clear()

    def end(self):
        for neve in self.neves:
            neve.end()
        self.node_tap.close()
