"""A real avalanchego node with a chain that was filled beforehand.

NEVE_TEST_AVALANCHEGO names a finished binary; otherwise the one that tests/avalanchego pins is
built into the cache, like the program that fills the chain. Both need Go.
"""

import json
import os
import pathlib
import shutil
import subprocess
import time

from . import helicon, tools
from .process import cpu_seconds, end, free_port, wait_until
from .rpc import Client

START_LIMIT = 120
# The tests' node (tests/support/node/config.rs), without what only debugging needs.
CHAIN_CONFIG = {
    "eth-apis": [
        "eth", "eth-filter", "net", "web3", "internal-eth", "internal-blockchain",
        "internal-transaction", "internal-tx-pool", "internal-debug", "debug", "debug-tracer",
    ],
    "apis": ["web3", "net", "txpool", "price", "chain", "tx", "subscription", "avalanche", "trace", "db"],
    "pruning-enabled": False,
    "state-sync-enabled": False,
    "allow-unprotected-txs": True,
}


def filled(blocks=20480, profile="mainnet", seed=1):
    """The directory of a node whose chain has so many blocks; filled now if the cache has none.

    A node that knows Helicon gets a chain that has gone over to it: the same blocks, some more, and
    all of them answered for by the VM that comes after the switch.
    """
    helicon_known = helicon.is_known(tools.avalanchego())
    directory = tools.CACHE / f"node-{profile}-{blocks}-{seed}{'-helicon' if helicon_known else ''}"
    if directory.is_dir():
        return directory
    fresh = directory.with_suffix(".new")
    shutil.rmtree(fresh, ignore_errors=True)
    program = tools.node_chain()
    options = [f"--blocks={blocks}", f"--profile={profile}", f"--seed={seed}"]
    files = [f"--data-dir={fresh / 'data'}", f"--chain-config={chain_config(fresh)}"]
    network = [f"--network-id={helicon.NETWORK}"] if helicon_known else []
    subprocess.run([program, *options, *files, *network], check=True)
    if helicon_known:
        helicon.switch(fresh, Node, [program, f"--profile={profile}", f"--seed={seed}"])
    # Renamed last, so that a broken-off filling is never taken for a whole one.
    fresh.rename(directory)
    return directory


def chain_config(directory):
    """Writes the C-chain's configuration; returns where."""
    path = directory / "chains" / "C" / "config.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(CHAIN_CONFIG))
    return path


class Node:
    """A running node, its own whole network, on loopback only."""

    def __init__(self, directory, more=(), environment=None):
        directory = pathlib.Path(directory).resolve()
        chain_config(directory)
        (directory / "plugins").mkdir(exist_ok=True)
        http, staking = free_port(), free_port()
        self.address, self.path = f"127.0.0.1:{http}", "/ext/bc/C/rpc"
        self.url = f"http://{self.address}{self.path}"
        self.log = directory / "node.log"
        with self.log.open("w") as log:
            command = [tools.avalanchego(), *flags(directory, http, staking), *more]
            told = {**os.environ, **(environment or {})}
            self.process = subprocess.Popen(command, stdout=log, stderr=log, env=told)
        self.pid = self.process.pid
        try:
            wait_until(self.answers, f"the node; see {self.log}", START_LIMIT, self.process)
        except BaseException:
            self.stop()
            raise

    def call(self, method, *params):
        return Client(self.address, self.path).call(method, *params)

    def answers(self):
        try:
            return self.call("eth_blockNumber")
        except (OSError, ValueError):
            return None

    def stop(self):
        end(self.process)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.stop()


def flags(directory, http, staking):
    """The tests' flags (tests/support/node/config.rs)."""
    return [
        *helicon.network(directory), "--sybil-protection-enabled=false", "--http-host=127.0.0.1",
        "--staking-host=127.0.0.1", "--public-ip=127.0.0.1", "--bootstrap-ips=", "--bootstrap-ids=",
        "--staking-ephemeral-cert-enabled=true", "--staking-ephemeral-signer-enabled=true",
        "--snow-sample-size=1", "--snow-quorum-size=1", "--network-health-min-conn-peers=0",
        "--system-tracker-disk-required-available-space-percentage=0",
        "--system-tracker-disk-warning-available-space-percentage=0",
        "--fd-limit=8192", f"--http-port={http}", f"--staking-port={staking}",
        f"--data-dir={directory / 'data'}", f"--plugin-dir={directory / 'plugins'}",
        f"--chain-config-dir={directory / 'chains'}",
    ]  # fmt: skip


def wait_until_idle(pid, seconds=300):
    """Waits until a process does nothing on its own any more, such as indexing after its start."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        before = cpu_seconds(pid)
        time.sleep(2)
        if cpu_seconds(pid) - before < 0.1:
            return
    raise RuntimeError(f"process {pid} is still busy after {seconds} s")
