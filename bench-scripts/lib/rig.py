"""Servers over the same blocks, the questions that all can answer, and the answers they must give."""

import contextlib
import http.client
import json
import math
import pathlib
import random
import statistics
import threading
from dataclasses import dataclass

from . import load, servers, tools
from .rpc import decoded, fault_of, one_of, raw_answer

# The floor's answers of a row: more than a processor caches, less than a machine minds.
RECORDED_BYTES_MAX = 256 << 20
CHECKED = 40
# Blocks whose hashes and transactions are asked for, and blocks of which the largest are known.
SAMPLED, MEASURED = 400, 2000
# Answers may be coded smaller than ours (gzip), and heads differ: only far fewer bytes are suspect.
BYTES_SHARE = 0.6


@dataclass
class Corpus:
    """What there is to ask about."""

    heights: list
    # Of some of them: hashes of transactions and of blocks, heights with an index of a transaction.
    transactions: list
    blocks: list
    places: list
    # Heights of the largest 1 % of the blocks, by the size that the node says.
    largest: list


def corpus(server, heights, seed=1):
    """Heights, and what is found in some of them."""
    found, client, sizes = Corpus(list(heights), [], [], [], []), server.client(), []
    for number, height in enumerate(random.Random(seed).sample(heights, min(len(heights), MEASURED))):
        block = client.call("eth_getBlockByNumber", hex(height), False)
        sizes.append((int(block["size"], 16), height))
        if number >= SAMPLED:
            continue
        found.blocks.append(block["hash"])
        found.transactions += block["transactions"]
        found.places += [(height, index) for index in range(len(block["transactions"]))]
    client.close()
    found.largest = [height for _, height in sorted(sizes)[-math.ceil(len(sizes) / 100) :]]
    return found


class Question:
    """A row over these blocks: its bodies in a file, and the answers of the first server."""

    def __init__(self, row, corpus_of, server, directory):
        self.row, self.bodies = row, row.requests(corpus_of)
        self.file = pathlib.Path(directory) / f"{row.name}.jsonl"
        self.file.write_text("\n".join(self.bodies) + "\n")
        self.recorded = pathlib.Path(directory) / f"{row.name}.answers"
        self.answers, self.bytes_mean, self.bytes_most = {}, 0, 0
        # Of an answer with its head, by server, as the load found it.
        self.sent = {}
        self.record(server)

    def record(self, server):
        client, sizes, total = server.client(), [], 0
        chance = random.Random(2)
        checked = set(chance.sample(self.bodies, min(CHECKED, len(self.bodies))))
        with self.recorded.open("wb") as file:
            for body in self.bodies:
                status, headers, answer = client.exchange(body, self.row.headers)
                said = json.loads(decoded(headers, answer))
                if fault := fault_of(status, said):
                    raise SystemExit(f"{self.row.name}: {server.name} answers {fault} to {body[:200]}")
                if body in checked:
                    self.answers[body] = said
                whole = raw_answer(status, headers, answer)
                file.write(len(whole).to_bytes(4, "little") + whole)
                sizes.append(len(answer))
                total += len(whole)
                if total > RECORDED_BYTES_MAX:
                    break
        self.bytes_mean, self.bytes_most = statistics.fmean(sizes), max(sizes)
        client.close()

    def mismatch(self, server):
        """Why a server's answers are not those of the first one, or None."""
        client = server.client()
        try:
            return next((found for body in self.answers if (found := self.differs(client, body))), None)
        finally:
            client.close()

    def says_lengths(self, server):
        """Whether its answers say how long they are."""
        client = server.client()
        try:
            return all(one_of(client.exchange(body, self.row.headers)[1], "content-length") for body in self.answers)
        finally:
            client.close()

    def differs(self, client, body):
        """The same of one answer."""
        status, headers, answer = client.exchange(body, self.row.headers)
        said = json.loads(decoded(headers, answer) or b"null")
        fault = fault_of(status, said) or ("another answer" if said != self.answers[body] else None)
        return f"{fault} to {body[:120]}" if fault else None


class Comparer(threading.Thread):
    """Compares answers while a server is under load, twenty times a second."""

    def __init__(self, question, server):
        super().__init__(daemon=True)
        self.question, self.client, self.found, self.compared = question, server.client(), None, 0
        self.over = threading.Event()

    def run(self):
        bodies = list(self.question.answers)
        while not self.over.wait(0.05) and not self.found:
            body = bodies[self.compared % len(bodies)]
            try:
                self.found = self.question.differs(self.client, body)
            except (OSError, ValueError, http.client.HTTPException) as error:
                self.found = f"{error!r} in answer to {body[:120]}"
            self.compared += 1

    def __enter__(self):
        self.start()
        return self

    def __exit__(self, *_):
        self.over.set()
        self.join()
        self.client.close()


class Rig:
    """Everything that a benchmark starts; ended in the opposite order."""

    def __init__(self):
        self.stack = contextlib.ExitStack()
        self.directory = pathlib.Path(self.stack.enter_context(servers.workplace()))
        self.servers, self.floors, self.missing = {}, {}, {}

    def __enter__(self):
        return self

    def __exit__(self, *exception):
        return self.stack.__exit__(*exception)

    def add(self, server, processor=0):
        self.stack.callback(server.stop)
        if server.pid and processor is not None:
            servers.pin(server.pid, processor)
        self.servers[server.name] = server
        return server

    def floor(self, question):
        """The floor that gives the answers of this question."""
        name = question.row.name
        if name not in self.floors:
            self.floors[name] = servers.floor(question.recorded)
            self.stack.callback(self.floors[name].stop)
            servers.pin(self.floors[name].pid, 0)
        return self.floors[name]

    def heights(self):
        """What all caches hold."""
        ranges = [span(server) for server in self.servers.values()]
        first, head = max(low for low, _ in ranges), min(high for _, high in ranges)
        if first >= head:
            raise SystemExit(f"no heights in common: {ranges}")
        return range(first, head + 1)

    def versions(self):
        """What was run: the command, and which program that was; the floors are one program."""
        run = self.servers | ({"floor": next(iter(self.floors.values()))} if self.floors else {})
        told = {name: {"command": tools.told(server.command), **tools.identity(server.binary)} for name, server in run.items()}
        return told | load.versions()


def span(server):
    """The heights that a server answers for: what a cache says, or 1 to a node's head. Of a neve that
    packs, those that are packed."""
    try:
        found = servers.held(server)
    except (KeyError, ValueError, TypeError, OSError):
        found = None
    if server.name == "packed":
        return found[0], found[0] + servers.packed_heights(server) - 1
    return found or (lowest(server), int(server.client().call("eth_blockNumber"), 16))


def lowest(server):
    """The first height that a node has, by halving: below it, it says null."""
    client = server.client()
    low, high = 1, int(client.call("eth_blockNumber"), 16)
    while low < high:
        middle = (low + high) // 2
        try:
            client.call("eth_getBlockByNumber", hex(middle), False)
            high = middle
        except ValueError:
            low = middle + 1
    return low
