"""neve beside an upstream.

    from neve import Neve
    with Neve(binary, directory, node.base, "--threads", "1") as neve: ...   # neve.url, neve.pid
        neve.wait_for(0, node.head())
"""

import json
import pathlib
import re
import subprocess
import urllib.request

from node import REPOSITORY, call
from process import end, wait_until

BINARY = REPOSITORY / "target" / "release" / "neve"


class Neve:
    """A running `neve serve` that keeps all that it fetches, from height 0."""

    def __init__(self, binary, directory, upstream, *options):
        directory = pathlib.Path(directory).resolve()
        directory.mkdir(parents=True, exist_ok=True)
        self.log = directory / "neve.log"
        command = [binary, "serve", "--listen", "127.0.0.1:0", "--upstream", upstream]
        command += ["--data-dir", directory / "store", "--start", "0", "--retain-bytes", "none"]
        with self.log.open("w") as log:
            self.process = subprocess.Popen(
                [*command, *options], stdout=subprocess.PIPE, stderr=log, text=True
            )
        self.pid = self.process.pid
        greeting = re.search(r"http://([^/:]+):(\d+)/", self.process.stdout.readline())
        if greeting is None:
            self.stop()
            raise RuntimeError(f"neve did not start; see {self.log}")
        self.address, self.path = (greeting[1], int(greeting[2])), "/"
        self.base = f"http://{greeting[1]}:{greeting[2]}"
        self.url = f"{self.base}/"

    def call(self, method, *params):
        return call(self.url, method, *params)

    def health(self):
        with urllib.request.urlopen(f"{self.base}/health", timeout=10) as answer:
            return json.load(answer)

    def wait_for(self, first, head, seconds=1800):
        """Waits until it holds all heights from `first` to `head`."""
        def held():
            blocks = self.health()["blocks"]
            return blocks if (blocks.get("head") or -1) >= head else None

        blocks = wait_until(held, f"neve at height {head}; see {self.log}", seconds, self.process)
        if blocks["min_height"] > first:
            raise RuntimeError(f"neve begins at {blocks['min_height']}, not at {first}: {blocks}")

    def stop(self):
        end(self.process)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.stop()
