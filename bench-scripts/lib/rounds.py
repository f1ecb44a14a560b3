"""Rounds: each question of each server in turn, a different one first each time."""

import collections

from . import load, rows, setup
from .ask import Void, ask

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
            for server in setup.in_turn(rig, question, args, number):
                key = question.row.name, server.name
                if key in voided:
                    continue
                try:
                    row = one(question, server, args, folder, number)
                    # A server that somebody else runs is asked, and has no process here to look at.
                    costs[key] += [] if row["cpu_us"] is None else [row["cpu_us"]]
                    question.sent[server.name] = row["bytes"] / row["requests"]
                except Void:
                    voided[key] = "void under load; see below"
                    costs.pop(key, None)
    return costs


def one(question, server, args, folder, number):
    seconds = max(args.seconds, question.row.seconds_least)
    how = {"connections": CONNECTIONS, "seconds": seconds, "seed": number}
    return ask(folder, {"kind": "cost", "round": number}, load.closed, server, question, **how)
