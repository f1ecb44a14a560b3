"""Chains that go over to Helicon (avalanchego v1.15), where there is a binary that knows it.

The switch needs a block stamped after the upgrade's time, and that time must be ahead when the node
begins to make it. So a node is started with Helicon a little later, fed until it has made blocks on
both sides, and ended; the upgrade file stays in its directory for every later start.
"""

import datetime
import json
import pathlib
import re
import subprocess
import time

# A network with an id of its own reads an upgrade file; the named ones refuse it.
NETWORK = 115115
SINCE = (1, 15)
GENESIS_TIME = "2020-12-05T05:00:00Z"
EARLIER = (
    "apricotPhase1Time", "apricotPhase2Time", "apricotPhase3Time", "apricotPhase4Time", "apricotPhase5Time",
    "apricotPhasePre6Time", "apricotPhase6Time", "apricotPhasePost6Time", "banffTime", "cortinaTime",
    "durangoTime", "etnaTime", "fortunaTime", "graniteTime",
)  # fmt: skip
# The transition block may be made ten seconds before (avalanchego, node/node.go, TransitionTime).
AHEAD_S, TRANSITION_S = 20, 10
# The first is the transition block; the last ones are not settled yet.
FED_BLOCKS = 8
FEED_S = 300


def is_known(binary):
    """Whether this avalanchego has Helicon in it."""
    said = subprocess.run([binary, "--version"], capture_output=True, text=True, timeout=60).stdout
    version = re.match(r"avalanchego/(\d+)\.(\d+)", said)
    return version is not None and tuple(map(int, version.groups())) >= SINCE


def network(directory):
    """The flags that say which network a node's directory is of."""
    file = upgrade_file(directory)
    return [f"--network-id={NETWORK}", f"--upgrade-file={file}"] if file.exists() else ["--network-id=local"]


def upgrade_file(directory):
    return pathlib.Path(directory) / "upgrade.json"


def switch(directory, node, feed):
    """Takes the chain in a directory over to Helicon; `feed` is the command that sends transactions."""
    when = datetime.datetime.now(datetime.timezone.utc) + datetime.timedelta(seconds=AHEAD_S)
    upgrade_file(directory).write_text(json.dumps(upgrades(when)))
    with node(directory) as running:
        time.sleep(max(0, when.timestamp() - TRANSITION_S + 1 - time.time()))
        subprocess.run([*feed, f"--feed={running.url}", f"--blocks={FED_BLOCKS}"], check=True, timeout=FEED_S)
        if "settledHeight" not in running.call("eth_getBlockByNumber", "latest", False):
            raise RuntimeError(f"the chain has not gone over to Helicon; see {running.log}")


def upgrades(when):
    """All before Helicon at the genesis."""
    return {
        **dict.fromkeys(EARLIER, GENESIS_TIME),
        "apricotPhase4MinPChainHeight": 0,
        "cortinaXChainStopVertexID": "11111111111111111111111111111111LpoYY",
        "graniteEpochDuration": 30_000_000_000,
        "heliconTime": when.strftime("%Y-%m-%dT%H:%M:%SZ"),
    }
