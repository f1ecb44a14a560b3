"""Scripts that ask one question in a closed loop, of each server, at some numbers of connections."""

import collections
import statistics

from . import load, rig as rigs, setup

POINTS = (1, 2, 4, 8, 16, 32, 64, 128, 256)


def points(rig, question, args, folder, connections, threads=1):
    """Rows by server and connections, rounds interleaved, servers in turn; and what was void."""
    found, voids = collections.defaultdict(list), {}
    everyone = list(rig.servers.values())
    if "floor" in setup.wanted(args):
        everyone.append(rig.floor(question))
    for server in rig.servers.values():
        if wrong := question.mismatch(server):
            raise SystemExit(f"{server.name}: {wrong}")
    for number in range(args.rounds):
        turn = number % len(everyone)
        for server in everyone[turn:] + everyone[:turn]:
            for count in connections:
                ask = (server, question.file, count, args.seconds, question.row.headers, number)
                row = load.closed(*ask, threads=min(threads, count))
                why = load.void(row, question.bytes_mean * rigs.BYTES_SHARE)
                folder.add(kind=folder.name, row=question.row.name, round=number, void=why, **row)
                if why:
                    voids[server.name, count] = why
                found[server.name, count].append(row)
    return {key: rows for key, rows in found.items() if key not in voids}, voids


def notes(voids):
    """Why numbers of connections are missing."""
    lines = [f"- {name} at {count} connections counts for nothing: {why}" for (name, count), why in voids.items()]
    return "\n".join([*lines, "", WRK_NOTE] if lines else [WRK_NOTE])


WRK_NOTE = (
    "RPS and p50 are as measured. wrk repairs its other percentiles and the mean for coordinated omission before it"
    " says them, so they compare with wrk's only; `rate` has them from the time that a request was due."
)


def middle(rows, key):
    return statistics.median(row[key] for row in rows)


def spread(rows, key, scale=1.0, digits=0):
    values = [row[key] * scale for row in rows]
    if len(values) == 1:
        return f"{values[0]:,.{digits}f}"
    return f"{statistics.median(values):,.{digits}f} ({min(values):,.{digits}f}..{max(values):,.{digits}f})"


def little(rows):
    """Connections a rate, against the mean latency: a closed loop makes them equal."""
    row = rows[len(rows) // 2]
    expected = row["connections"] / row["rps"] * 1e6
    return expected / 1000, row["mean_us"] / expected


def knee(found, server, share=0.95):
    """The fewest connections that reach nearly all of the best rate."""
    rates = {count: middle(rows, "rps") for (name, count), rows in found.items() if name == server}
    best = max(rates.values())
    return next(count for count, rate in sorted(rates.items()) if rate >= share * best), best
