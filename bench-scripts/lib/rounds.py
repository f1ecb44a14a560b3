"""Rounds: each question of each server in turn, a different one first each time."""

import collections

from . import load, rig as rigs, rows, setup

# At which the cost of a request is measured.
CONNECTIONS = 16


def check(rig, questions):
    """Servers whose answers are none, or others: their rows count for nothing."""
    voided = {}
    for question in questions:
        for name, server in rig.servers.items():
            if name in rows.ROWS[0].servers and name not in question.row.servers:
                voided[question.row.name, name] = "not served"
            elif found := question.mismatch(server):
                voided[question.row.name, name] = found
    return voided


def measure(rig, questions, voided, args, folder):
    """Processor microseconds a request: row, server, round."""
    costs = collections.defaultdict(list)
    for number in range(args.rounds):
        for question in questions:
            everyone = list(rig.servers.values())
            if "floor" in setup.wanted(args):
                everyone.append(rig.floor(question))
            turn = number % len(everyone)
            for server in everyone[turn:] + everyone[:turn]:
                key = question.row.name, server.name
                if key not in voided:
                    row = one(question, server, args, number)
                    folder.add(kind="cost", row=question.row.name, round=number, **row)
                    costs[key].append(row["cpu_us"])
                    note_void(voided, costs, key, row, question)
    return costs


def one(question, server, args, number):
    seconds = max(args.seconds, question.row.seconds_least)
    ask = (server, question.file, CONNECTIONS, seconds, question.row.headers, number)
    if server.name == "floor":
        return load.closed(*ask)
    with rigs.Comparer(question, server) as comparer:
        row = load.closed(*ask)
    row["cpu_us"] = row["cpu_s"] / max(row["requests"] + comparer.compared, 1) * 1e6
    return row | {"compared": comparer.compared, "mismatch": comparer.found}


def note_void(voided, costs, key, row, question):
    found = row.get("mismatch") or load.void(row, question.bytes_mean * rigs.BYTES_SHARE)
    if found:
        voided[key] = found
        costs.pop(key)
