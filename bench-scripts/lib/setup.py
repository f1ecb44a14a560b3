"""What every script has in common: its arguments, and the servers that it starts."""

import argparse
import os
import pathlib
import shutil
import signal
import subprocess
import sys

from . import node, rig as rigs, rows, servers
from .folder import Folder

ALL = ("floor", "neve", "peer", "node")
BLOCKS = 2000


def arguments(name, text, quick_text):
    """The arguments of a script; `text` is its documentation."""
    parser = argparse.ArgumentParser(prog=name, description=text, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help=quick_text)
    parser.add_argument("--servers", default="floor,neve,peer,node", help=f"of {', '.join(ALL)}; what is not here is left out")
    parser.add_argument("--target", action="append", default=[], metavar="NAME=URL", help="a server that runs already")
    parser.add_argument("--blocks", type=int, help=f"blocks to serve (default {BLOCKS})")
    parser.add_argument("--out", type=pathlib.Path, help="the folder of this run")
    return parser


def rounds(parser, quick, whole):
    """Rounds and seconds, by default those of the form that is asked for."""
    parser.add_argument("--rounds", type=int, help=f"default {whole[0]}, with --quick {quick[0]}")
    parser.add_argument("--seconds", type=int, help=f"of each measurement; default {whole[1]}, with --quick {quick[1]}")
    parser.set_defaults(defaults={True: quick, False: whole})


def end_when_told():
    """SIGTERM ends a script as Control-C does, so that servers, stores and cgroups do not stay behind."""
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))


def parse(parser):
    end_when_told()
    args = parser.parse_args()
    count, seconds = args.defaults[args.quick]
    args.rounds, args.seconds = args.rounds or count, args.seconds or seconds
    return args


def wanted(args):
    names = [name for name in args.servers.split(",") if name]
    unknown = [name for name in names if name not in ALL]
    if unknown:
        raise SystemExit(f"--servers: {', '.join(unknown)} is not one of {', '.join(ALL)}")
    return names


def start(args, threads=1, options=(), packed=False):
    """Upstream, caches and targets, all with the same blocks; a neve that has packed them too, if that is wanted."""
    rig = rigs.Rig()
    try:
        names = wanted(args)
        # With targets alone nothing is to be fed.
        upstream = start_upstream(rig, names, args.blocks or BLOCKS, threads) if {"neve", "peer", "node"} & {*names} else None
        if "neve" in names:
            rig.add(servers.neve(rig.directory / "neve", upstream, threads, options=options))
            if packed:
                rig.add(servers.packed(rig.directory / "packed", upstream, threads, options=options))
        if "peer" in names:
            add_peer(rig, upstream, threads)
        for target in args.target:
            name, _, url = target.partition("=")
            rig.add(servers.Remote(name, url))
        out_of_the_way()
        return rig
    except BaseException:
        rig.__exit__(None, None, None)
        raise


def out_of_the_way():
    """This process watches and compares, off the servers' processor. Not before all is built: builds inherit it."""
    os.sched_setaffinity(0, {(os.cpu_count() or 1) - 1})


def start_upstream(rig, names, blocks, threads, processor=0):
    """A real node if one is wanted and can be had, or the development node."""
    if "node" in names:
        try:
            return rig.add(real_node(rig, blocks, threads=threads), processor)
        except (OSError, RuntimeError, SystemExit, subprocess.CalledProcessError) as error:
            leave_out(rig, "node", error)
    upstream = servers.devnet(blocks)
    rig.stack.callback(upstream.stop)
    return upstream


def real_node(rig, blocks, flags=(), threads=None):
    """A node with so many blocks, of so many threads; what builds and fills it may use all processors."""
    given = os.environ.get("NEVE_BENCH_NODE_DIR")
    filled = pathlib.Path(given) if given else node.filled(blocks)
    own = rig.directory / "node"
    # The node writes into its directory, and the cached one is for every run.
    shutil.copytree(filled, own)
    running = node.Node(own, flags, {"GOMAXPROCS": str(threads)} if threads else {})
    server = servers.Server("node", running.process, running.address, running.path, running.process.args)
    rig.stack.callback(server.stop)
    node.wait_until_idle(running.pid)
    return server


def add_peer(rig, upstream, threads):
    try:
        rig.add(servers.peer(rig.directory / "peer", upstream, threads))
    except (OSError, SystemExit) as error:
        leave_out(rig, "peer", error)


def leave_out(rig, name, error):
    rig.missing[name] = str(error)
    print(f"without {name}: {error}", file=sys.stderr)


def questions(rig, names, kinds=None):
    """The rows over what all servers hold, recorded from the first of them that answers all."""
    reference = rig.servers.get("neve") or next(iter(rig.servers.values()))
    corpus = rigs.corpus(reference, rig.heights())
    return [rigs.Question(row, corpus, reference, rig.directory) for row in kinds or rows.chosen(names)]


def in_turn(rig, question, args, number):
    """All servers, and the floor of this question if it is wanted; a different one first each round."""
    everyone = list(rig.servers.values())
    if "floor" in wanted(args):
        everyone.append(rig.floor(question))
    turn = number % max(len(everyone), 1)
    return everyone[turn:] + everyone[:turn]


def folder(name, args):
    return Folder(name, args.out)
