"""What a drill of docs/RELIABILITY.md sees of a server."""

import json
import socket

from . import servers
from .process import end

# Longer than a busy machine takes for a call, and short beside what a drill waits.
SOON_S = 10


def compared(server, upstream, method="eth_getBlockByNumber", more=(True,)):
    """How many results are right, absent or wrong, as JSON: neve 0.2.2 writes keys in another order."""
    counts = {"right": 0, "absent": 0, "wrong": 0}
    first, head = servers.held(server) or (1, 0)
    ours, theirs = server.client(), upstream.client()
    for height in range(first, head + 1):
        params = [hex(height), *more]
        try:
            answer = ours.call(method, *params)
        except (OSError, ValueError, RuntimeError):
            ours, answer = server.client(), None
        expected = theirs.call(method, *params)
        key = "absent" if answer is None else "right" if answer == expected else "wrong"
        counts[key] += 1
    return counts


def soon(server):
    """A client that does not wait for a server that stands still."""
    client = server.client()
    host, port = server.address.split(":")
    client.socket = socket.create_connection((host, int(port)), timeout=SOON_S)
    return client


def is_served(server):
    try:
        return server.process.poll() is None and soon(server).call("eth_chainId") is not None
    except (OSError, ValueError, RuntimeError):
        return False


def head_of(server):
    try:
        blocks = soon(server).get("/health")["blocks"]
        return blocks.get("head", blocks.get("max_contiguous_height")) or 0
    except (OSError, ValueError):
        return None


def says(server):
    """What a server says of itself: status of /ready and of /health, and what it gives as reason."""
    try:
        status, _, body = soon(server).asked("GET /health", b"", {})
        health = json.loads(body)
        ready = soon(server).asked("GET /ready", b"", {})[0]
        return {"ready": ready, "health": status, "status": health.get("status"), "reason": health.get("reason")}
    except (OSError, ValueError):
        return None


def gain(server, before):
    """Heads since then; `None` if the server does not say."""
    now = head_of(server)
    return None if now is None or before is None else now - before


def compared_if_alive(server, upstream, *what):
    """As `compared` says, and ends the server. One that does not answer any more is a result, too."""
    try:
        return compared_if_answered(server, upstream, *what)
    finally:
        end(server.process)


def compared_if_answered(server, upstream, *what):
    try:
        return compared(server, upstream, *what)
    except (OSError, ValueError, RuntimeError) as why:
        return {"blocks": f"none: {why}"[:200]}
