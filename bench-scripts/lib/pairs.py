"""Two servers of one kind on the same store, in pairs of rounds: A B, B A, A B ..."""

import collections

from . import load, rig as rigs, servers, setup

METRICS = {"cpu_us": "processor us a request", "p50_us": "p50 at one connection, us"}


def start(args, first, second):
    """Two processes with stores of their own, filled from one upstream."""
    rig = rigs.Rig()
    try:
        upstream = servers.devnet(args.blocks or 2000)
        rig.stack.callback(upstream.stop)
        for name, binary in (("a", first), ("b", second)):
            rig.add(servers.neve(rig.directory / name, upstream, binary=binary, name=name))
        return rig
    except BaseException:
        rig.__exit__(None, None, None)
        raise


def measure(rig, args, folder):
    """Metric to server to values, one a round."""
    question = setup.questions(rig, [args.row])[0]
    for server in rig.servers.values():
        if wrong := question.mismatch(server):
            raise SystemExit(f"{server.name}: {wrong}")
    found = {title: collections.defaultdict(list) for title in METRICS.values()}
    order = list(rig.servers.values())
    for number in range(args.rounds):
        for server in order[:: 1 if number % 2 else -1]:
            for connections, metric in ((16, "cpu_us"), (1, "p50_us")):
                row = load.closed(server, question.file, connections, args.seconds, question.row.headers, number)
                if why := load.void(row, question.bytes_mean * rigs.BYTES_SHARE):
                    raise SystemExit(f"{server.name}: {why}")
                folder.add(kind="pair", metric=metric, round=number, **row)
                found[METRICS[metric]][server.name].append(row[metric])
    return found
