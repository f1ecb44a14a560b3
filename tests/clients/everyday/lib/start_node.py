"""Starts a node in a directory as the benchmarks do, prints its URL, and ends it when its own input ends."""

import pathlib
import sys

# Another `lib` than the one that this file stands in: a script's own folder is no package.
sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[4] / "bench-scripts"))
from lib.node import Node  # noqa: E402

with Node(sys.argv[1]) as node:
    print(node.url, flush=True)
    sys.stdin.read()
