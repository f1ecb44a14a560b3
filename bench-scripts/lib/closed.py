"""Scripts that ask one question in a closed loop, of each server, at some numbers of connections."""

import collections
import statistics

from . import load, setup, tables
from .ask import Void, ask

LITTLE_ROUNDS, LITTLE_SECONDS, LITTLE_SHARE = 2, 1, 0.05
POINTS = (1, 2, 4, 8, 16, 32, 64, 128, 256)


def points(rig, question, args, folder, connections, threads=1):
    """Rows by server and connections, rounds interleaved, servers in turn; without any that was void."""

    def one(server, number, count):
        how = {"connections": count, "seconds": args.seconds, "seed": number, "threads": threads}
        return ask(folder, {"kind": folder.name, "round": number}, load.closed, server, question, **how)

    return in_turn(rig, question, args, folder, connections, args.rounds, one)


def little(rig, question, args, folder, connections):
    """Mean latency against connections a rate, which a closed loop makes equal, by server and connections.

    Asked by the floor of asking, whose latencies are raw: wrk corrects its mean. It knows the end of an
    answer by its length, which a node does not always say: such servers are left out.
    """

    def one(server, number, count):
        if not question.says_lengths(server):
            raise Void(f"{server.name}: answers without a length")
        how = {"connections": count, "seconds": LITTLE_SECONDS, "seed": number}
        row = ask(folder, {"kind": "little", "round": number}, load.busiest, server, question, **how)
        return row["mean_us"] / (count / row["rps"] * 1e6)

    return in_turn(rig, question, args, folder, connections, LITTLE_ROUNDS, one)


def little_verdict(shares):
    """Of the median over rounds."""
    if not shares:
        return "not seen"
    middle = statistics.median(shares)
    return f"holds ({middle:.2f})" if abs(middle - 1) <= LITTLE_SHARE else f"does not hold: {middle:.2f}"


def in_turn(rig, question, args, folder, connections, rounds, one):
    """What `one` gives of each server and number of connections; nothing of those that were void once."""
    found, voids = collections.defaultdict(list), set()
    wrong = {server.name for server in rig.servers.values() if not answers(server, question, folder)}
    for number in range(rounds):
        for server in setup.in_turn(rig, question, args, number):
            if server.name in wrong:
                continue
            for count in connections:
                try:
                    found[server.name, count].append(one(server, number, count))
                except Void:
                    voids.add((server.name, count))
    return {key: rows for key, rows in found.items() if key not in voids}


def answers(server, question, folder):
    """Whether a server's answers are those of the others; if not, it is not asked under load."""
    wrong = question.mismatch(server)
    if wrong:
        folder.add(kind="sample", row=question.row.name, server=server.name, void=wrong)
    return not wrong


def titled(found, rig):
    """The same by what servers are called, and not by what they are here."""
    called = tables.titles(rig.versions())
    return {(called.get(name, name), count): value for (name, count), value in found.items()}


WRK_NOTE = (
    "RPS and p50 are as measured. wrk repairs its other percentiles and the mean for coordinated omission before it"
    " says them, so they compare with wrk's only; `rate` has them from the time that a request was due."
)


def middle(rows, key):
    return statistics.median(row[key] for row in rows)


def spread(rows, key, scale=1.0, digits=0):
    if any(row[key] is None for row in rows):
        return "-"
    values = [row[key] * scale for row in rows]
    if len(values) == 1:
        return f"{values[0]:,.{digits}f}"
    return f"{statistics.median(values):,.{digits}f} ({min(values):,.{digits}f}..{max(values):,.{digits}f})"


def knee(found, server, share=0.95):
    """The fewest connections that reach nearly all of the best rate."""
    rates = {count: middle(rows, "rps") for (name, count), rows in found.items() if name == server}
    best = max(rates.values())
    return next(count for count, rate in sorted(rates.items()) if rate >= share * best), best
