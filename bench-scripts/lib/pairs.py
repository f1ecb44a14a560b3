"""Two servers of one kind on the same store, in pairs of rounds: A B, B A, A B ..."""

import collections

from . import load, rig as rigs, servers, setup
from .ask import Void, ask

METRICS = {"cpu_us": "processor us a request", "p50_us": "p50 at one connection, us"}


def start(args, first, second):
    """Two processes with stores of their own, filled from one upstream."""
    rig = rigs.Rig()
    try:
        upstream = servers.devnet(args.blocks or 2000)
        rig.stack.callback(upstream.stop)
        for name, binary in (("a", first), ("b", second)):
            rig.add(servers.neve(rig.directory / name, upstream, binary=binary, name=name))
        setup.out_of_the_way()
        return rig
    except BaseException:
        rig.__exit__(None, None, None)
        raise


def measure(rig, args, folder):
    """Metric to server to values, one a round; without a metric of which a row was void."""
    question = setup.questions(rig, [args.row])[0]
    for server in rig.servers.values():
        if wrong := question.mismatch(server):
            raise SystemExit(f"{server.name}: {wrong}")
    found, voids = {title: collections.defaultdict(list) for title in METRICS.values()}, set()
    order = list(rig.servers.values())
    for number in range(args.rounds):
        for server in order[:: 1 if number % 2 else -1]:
            for connections, metric in ((16, "cpu_us"), (1, "p50_us")):
                about = {"kind": "pair", "metric": metric, "round": number}
                how = {"connections": connections, "seconds": args.seconds, "seed": number}
                try:
                    row = ask(folder, about, load.closed, server, question, **how)
                    found[METRICS[metric]][server.name].append(row[metric])
                except Void:
                    voids.add(METRICS[metric])
    return {metric: values for metric, values in found.items() if metric not in voids}
