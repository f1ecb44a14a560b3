"""What is demanded of neve besides its cost at 16 connections, each beside what it is compared with."""

import pathlib
import re
import socket
import statistics
import sys
from dataclasses import dataclass

from . import load, sample, stats, tools
from .ask import Void, ask

# CPU time a request of neve against the floor, and of others against neve.
FLOOR_AT_MOST = 1.3
OTHERS_AT_LEAST = 12.0
SERVICE_AT_MOST = 1.15
PLATEAU_AT_LEAST = 0.97
IDLE_CONNECTIONS = 10_000
# Descriptors that neve keeps from clients (src/observe/process.rs), besides half of all; and connections of the load.
DESCRIPTORS_LEFT = 128 + 128
# Opening them takes longer than measuring.
IDLE_ROUNDS = 3
IDLE_BYTES_AT_MOST = 100 << 20
# "Changes nothing else": what two rounds of one server differ by anyway.
IDLE_COST_AT_MOST = 1.05
ONE, HALF, COST = "one connection, median", "load at half the capacity", "processor time a request"


@dataclass
class Line:
    """One demand: what was measured, what was wanted, and what follows."""

    name: str
    measured: str
    bound: str
    verdict: str

    @property
    def missed(self):
        """Where answers were none, nothing shows that the bound holds."""
        return self.verdict.startswith("missed") or self.verdict == "void"


def table(rig, question, args, folder):
    """Service time, plateau, open loop and idle connections of neve."""
    demands = [("256 connections", plateau), (f"{IDLE_CONNECTIONS:,} idle connections", idle)]
    if rig.floors:
        demands.insert(0, (ONE, service_time))
    return [line for name, demand in demands for line in or_void(name, demand, rig, question, args, folder)]


def or_void(name, demand, *what):
    """The lines of a demand, or why there are none."""
    try:
        return demand(*what)
    except Void as void:
        return [Line(name, str(void), "an answer", "void")]


def service_time(rig, question, args, folder):
    """One connection: the median against the floor's."""
    medians = {"neve": [], "floor": []}
    both = [rig.servers["neve"], rig.floor(question)]
    for number in range(args.rounds):
        for server in both[:: 1 if number % 2 else -1]:
            about, how = {"kind": "service", "round": number}, {"connections": 1, "seconds": args.seconds, "seed": number}
            row = ask(folder, about, load.closed, server, question, **how)
            medians[server.name].append(row["p50_us"])
    ratio = stats.estimate(stats.ratios(medians["neve"], medians["floor"]))
    text = f"{ratio.text()} of the floor's {statistics.median(medians['floor']):.0f} us"
    verdict = stats.verdict_at_most(ratio, SERVICE_AT_MOST)
    return [Line(ONE, text, f"at most {SERVICE_AT_MOST}", verdict)]


# wrk is itself the limit of a server that needs less than it; the floor of asking is not.
GENERATORS = {"wrk": load.closed, "neve-floor-load": load.busiest}


def plateau(rig, question, args, folder):
    """256 connections against the best of fewer, beside the floor; and a load of half the capacity that this shows."""
    both = {"neve": rig.servers["neve"]} | ({"floor": rig.floor(question)} if rig.floors else {})
    found = {generator: {name: [] for name in both} for generator in GENERATORS}
    for number in range(args.rounds):
        for generator in GENERATORS:
            for name, server in both.items():
                found[generator][name].append(by_connections(generator, server, question, args, folder, number))
    lines = [line for generator, rows in found.items() for line in plateau_lines(generator, rows)]
    most = capacity(found["wrk"]["neve"])
    return lines + or_void(HALF, open_loop, both["neve"], question, most, args, folder)


def capacity(rounds):
    """The best that any number of connections has in the middle of its rounds."""
    return max(rate(rounds, count) for count in rounds[0])


def rate(rounds, count):
    return statistics.median(rows[count]["rps"] for rows in rounds)


def plateau_lines(generator, found):
    """Of a server that somebody else runs there is no processor time to see."""
    seen = all(row["cpu_us"] is not None for row in found["neve"][0].values())
    return [plateau_rate(generator, found), plateau_cost(generator, found) if seen else unseen(f"256 connections, {COST} ({generator})")]


def unseen(name):
    return Line(name, "neve is no process of this machine", "-", "not measured")


def plateau_rate(generator, found):
    """Requests a second. A generator that is the limit falls as well, and shows it at the floor."""
    shares, texts = against_peak(found, "rps")
    verdict = beside_floor(stats.verdict_at_least, shares, PLATEAU_AT_LEAST)
    if verdict != "holds":
        verdict = out_of_reach(generator, found) or verdict
    beside = f"; the floor {texts['floor']} of its own" if "floor" in texts else ""
    peak = peak_at(found["neve"])
    text = f"{texts['neve']} of the peak, {rate(found['neve'], peak):.0f}/s at {peak} connections{beside}"
    return Line(f"256 connections, rate ({generator})", text, f"at least {PLATEAU_AT_LEAST}", verdict)


def out_of_reach(generator, found):
    """Why a generator shows nothing: it asks the floor less often than the bound demands, and neve as often as that."""
    if "floor" not in found:
        return None

    def rates(name, count):
        return [rows[count]["rps"] for rows in found[name]]

    neve, floor, peak = rates("neve", 256), rates("floor", 256), rates("neve", peak_at(found["neve"]))
    most, beside = stats.estimate(stats.ratios(floor, peak)), stats.estimate(stats.ratios(neve, floor))
    limits = most.median < PLATEAU_AT_LEAST <= beside.median
    return f"not shown: {generator} asks the floor for {most.text()} of that peak, and no more" if limits else None


def plateau_cost(generator, found):
    """The same as processor time a request, of which the generator is no part; neighbours in its caches are."""
    costs, texts = against_peak(found, "cpu_us")
    bound = 1 / PLATEAU_AT_LEAST
    verdict = beside_floor(stats.verdict_at_most, costs, bound)
    beside = f"; the floor's {texts['floor']}" if "floor" in texts else ""
    text = f"{texts['neve']} of that at the peak{beside}"
    return Line(f"256 connections, {COST} ({generator})", text, f"at most {bound:.2f}", verdict)


def against_peak(found, key):
    """What 256 connections have of what the peak has, round by round, of each server."""
    values = {}
    for name, rounds in found.items():
        peak = peak_at(rounds)
        values[name] = stats.ratios(*([rows[count][key] for rows in rounds] for count in (256, peak)))
    return values, {name: stats.estimate(shares).text() for name, shares in values.items()}


def peak_at(rounds):
    """The number of connections, of fewer than 256, with the best rate in the middle of its rounds.

    Not the best of each round: that is mostly whoever had luck in it, so that a rate which does not fall
    at all seems to, by about half of what rounds differ by.
    """
    return max((count for count in rounds[0] if count < 256), key=lambda count: rate(rounds, count))


def beside_floor(verdict_of, values, bound):
    """A miss of the floor as well is said, and is no excuse."""
    verdicts = {name: verdict_of(stats.estimate(shares), bound) for name, shares in values.items()}
    both = set(verdicts.values()) == {"missed"} and "floor" in verdicts
    return "missed; the floor too" if both else verdicts["neve"]


def by_connections(generator, server, question, args, folder, number):
    rows, about = {}, {"kind": "plateau", "generator": generator, "round": number}
    for connections in (16, 256, 64)[:: 1 if number % 2 else -1]:
        how = {"connections": connections, "seconds": args.seconds, "seed": number}
        rows[connections] = ask(folder, about, GENERATORS[generator], server, question, **how)
    return rows


def open_loop(server, question, capacity, args, folder):
    """Half the capacity at fixed times; shown, not bound: absolute latencies belong to a machine."""
    if not tools.oha():
        return [Line(HALF, tools.OHA_MISSING, "shown", "not measured")]
    how = {"rate": capacity / 2, "connections": 64, "seconds": args.seconds}
    rows = [ask(folder, {"kind": "open", "round": number}, load.fixed_rate, server, question, **how) for number in range(args.rounds)]
    texts = [f"{name} {stats.estimate([row[key] / 1000 for row in rows]).text(2)} ms" for name, key in PERCENTILES]
    kept = statistics.median(row["rps"] / row["rate"] for row in rows)
    # A generator that cannot keep its schedule measures itself.
    verdict = "shown" if kept >= 0.99 else f"not shown: {kept:.0%} of the schedule was kept"
    return [Line(f"open loop at {capacity / 2:.0f}/s", ", ".join(texts), "shown", verdict)]


PERCENTILES = (("p50", "p50_us"), ("p99", "p99_us"), ("p99.9", "p99_9_us"))


def idle(rig, question, args, folder):
    """Ten thousand keep-alive connections that were used once and say nothing more; fewer if descriptors are few."""
    server = rig.servers["neve"]
    if server.pid is None:
        return [unseen(f"{IDLE_CONNECTIONS:,} idle connections, memory and cost of the others")]
    count = min(IDLE_CONNECTIONS, descriptors(server.pid) // 2 - DESCRIPTORS_LEFT)
    before, alone, among = sample.memory(server.pid)["anonymous"], [], []
    rounds = min(args.rounds, IDLE_ROUNDS)
    for number in range(rounds):
        alone.append(cost(server, question, args, folder, "alone", number))
        sockets = connections(server, count)
        among.append(cost(server, question, args, folder, "among idle", number))
        if number + 1 < rounds:
            close(sockets)
    grown = sample.memory(server.pid)["anonymous"] - before
    close(sockets)
    ratio = stats.estimate(stats.ratios(among, alone))
    verdict = "holds" if grown < IDLE_BYTES_AT_MOST else "missed"
    name = f"{count:,} idle connections"
    return [
        Line(f"{name}, memory", f"{grown / 2**20:.0f} MiB", f"under {IDLE_BYTES_AT_MOST >> 20} MiB", verdict),
        Line(f"{name}, cost of the others", f"{ratio.text()} of without", f"at most {IDLE_COST_AT_MOST}",
             stats.verdict_at_most(ratio, IDLE_COST_AT_MOST)),
    ]  # fmt: skip


def descriptors(pid):
    """The limit on descriptors of a process."""
    limits = pathlib.Path(f"/proc/{pid}/limits").read_text()
    soft = re.search(r"^Max open files +(\S+)", limits, re.MULTILINE)[1]
    return sys.maxsize if soft == "unlimited" else int(soft)


def cost(server, question, args, folder, kind, number):
    how = {"connections": 16, "seconds": args.seconds, "seed": number}
    return ask(folder, {"kind": kind, "round": number}, load.closed, server, question, **how)["cpu_us"]


def connections(server, count):
    """Connections that each have had an answer."""
    host, port = server.address.split(":")
    body = b'{"jsonrpc":"2.0","id":1,"method":"eth_blockNumber","params":[]}'
    head = f"POST {server.path} HTTP/1.1\r\nHost: {server.address}\r\nContent-Type: application/json\r\n"
    request = f"{head}Content-Length: {len(body)}\r\n\r\n".encode() + body
    sockets = []
    for _ in range(count):
        sockets.append(socket.create_connection((host, int(port)), timeout=10))
        sockets[-1].sendall(request)
    for one in sockets:
        if b" 200 " not in one.recv(4096):
            raise SystemExit(f"{server.name} refuses one of {count} connections")
    return sockets


def close(sockets):
    for one in sockets:
        one.close()
