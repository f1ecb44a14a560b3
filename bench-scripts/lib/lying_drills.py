"""Drills with an upstream that lies, stands still or is silent for a while."""

import signal
import subprocess
import time

from . import liar, servers
from .drilled import compared, compared_if_alive, gain, head_of, is_served, says
from .process import end

WHILE_S, AFTER_S, START_S = 30, 60, 10


def forged_keys(start, directory, upstream):
    """From the first block on: a store that took it has nothing else."""
    between = liar.Liar(upstream)
    between.lie = liar.ForgedKey()
    try:
        server = start(directory, between.remote())
    except SystemExit as why:
        return {"blocks": f"none: {why}"[:200]}
    counts = compared(server, upstream)
    server.stop()
    return counts


def told(start, directory, upstream, lie, *what):
    """Blocks come; for a while the upstream lies, then it tells the truth again. `what` is compared, else blocks."""
    between = liar.Liar(upstream)
    server = start(directory, between.remote())
    time.sleep(START_S)  # until it follows, and fetches nothing ahead
    before, between.lie = head_of(server), lie(head_of(server))
    time.sleep(WHILE_S)
    result = {"lies": between.told, "heads meanwhile": gain(server, before), "says": says(server)}
    result |= {f"{key} meanwhile": count for key, count in compared_if_answered(server, upstream, *what).items()}
    before, between.lie = head_of(server), liar.Truth()
    time.sleep(AFTER_S)
    result |= {f"heads in {AFTER_S} s after": gain(server, before), "alive": server.process.poll() is None}
    return result | {"says after": says(server)} | compared_if_alive(server, upstream, *what)


def false_head(start, directory, upstream):
    return told(start, directory, upstream, lambda _: liar.FalseHead())


def false_hash(start, directory, upstream):
    return told(start, directory, upstream, lambda _: liar.FalseHash())


def other_receipts(start, directory, upstream):
    return told(start, directory, upstream, lambda _: liar.OtherReceipts(), "eth_getBlockReceipts", ())


def no_json(start, directory, upstream):
    return told(start, directory, upstream, lambda _: liar.NoJson())


def frozen_upstream(start, directory, upstream):
    return told(start, directory, upstream, liar.Frozen)


def silent_upstream(start, directory, upstream):
    """The node's process is stopped: the kernel accepts connections for it, and nobody answers."""
    server = start(directory, upstream)
    upstream.process.send_signal(signal.SIGSTOP)
    try:
        before = head_of(server)
        time.sleep(WHILE_S)
        result = {"served": is_served(server), "heads meanwhile": gain(server, before), "says": says(server)}
        end(server.process)
        server = again(server)
        time.sleep(START_S)
        result |= {"served after a restart": is_served(server), "head after a restart": head_of(server)}
    finally:
        upstream.process.send_signal(signal.SIGCONT)
    before = head_of(server)
    time.sleep(AFTER_S)
    result |= {f"heads in {AFTER_S} s after": gain(server, before)}
    return result | compared_if_alive(server, upstream)


def again(server, **output):
    """The same server once more, at an address that is known before it says it."""
    command = list(server.command)
    if "127.0.0.1:0" in command:
        command[command.index("127.0.0.1:0")] = server.address
    quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    process = subprocess.Popen(command, **{**quiet, **output})
    return servers.Server(server.name, process, server.address, server.path, command)


DRILLS = {
    "forged-keys": forged_keys,
    "false-head": false_head,
    "false-hash": false_hash,
    "other-receipts": other_receipts,
    "no-json": no_json,
    "frozen-upstream": frozen_upstream,
    "silent-upstream": silent_upstream,
}
LIVE = DRILLS.keys() - {"forged-keys"}
