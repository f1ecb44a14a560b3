"""The kinds of request: what is asked, of which blocks, and what the project demands of each."""

import json
import random
from dataclasses import dataclass, field

BODIES = 2000
BATCHES = {10: 400, 100: 60}
# Long answers: as many as a processor does not cache.
LARGEST = 200


def call(method, params, number=1):
    return {"jsonrpc": "2.0", "id": number, "method": method, "params": params}


@dataclass(frozen=True)
class Row:
    """A kind of request. `make` gives one body from a corpus and a source of chance."""

    name: str
    title: str
    make: object
    headers: dict = field(default_factory=dict)
    # Which servers are asked.
    servers: tuple = ("neve", "packed", "floor", "peer", "node")
    bodies: int = BODIES
    # For how long to ask at least: a node takes a tenth of a second for the longest answers.
    seconds_least: int = 1

    def requests(self, corpus, seed=1):
        chance = random.Random(seed)
        made = [json.dumps(self.make(corpus, chance), separators=(",", ":")) for _ in range(self.bodies)]
        # A question without a parameter is the same each time.
        return made if len(set(made)) > 1 else made[:1]


def hashes(corpus, chance):
    return call("eth_getBlockByNumber", [hex(chance.choice(corpus.heights)), False])


def full(corpus, chance):
    return call("eth_getBlockByNumber", [hex(chance.choice(corpus.heights)), True])


def receipts(corpus, chance):
    return call("eth_getBlockReceipts", [hex(chance.choice(corpus.heights))])


def largest(corpus, chance):
    return call("eth_getBlockReceipts", [hex(chance.choice(corpus.largest))])


def transaction(corpus, chance):
    return call("eth_getTransactionByHash", [chance.choice(corpus.transactions)])


def receipt(corpus, chance):
    return call("eth_getTransactionReceipt", [chance.choice(corpus.transactions)])


def batch(size):
    def make(corpus, chance):
        asked = (chance.choice(corpus.heights) for _ in range(size))
        return [call("eth_getBlockByNumber", [hex(height), False], at) for at, height in enumerate(asked)]

    return make


NOT_PEER = ("neve", "packed", "floor", "node")
# Rows without packed heights, or with many in a request.
NOT_PACKED = ("neve", "floor", "peer", "node")
ROWS = [
    Row("hashes", "block, transaction hashes", hashes),
    Row("full", "block, whole transactions", full),
    Row("receipts", "receipts of a block", receipts, servers=NOT_PEER),
    Row("receipts-largest", "receipts of the largest 1 % of blocks", largest, servers=NOT_PEER, bodies=LARGEST, seconds_least=2),
    Row("transaction", "transaction by hash", transaction),
    Row("receipt", "receipt by hash", receipt, servers=NOT_PEER),
    Row("number", "eth_blockNumber", lambda *_: call("eth_blockNumber", []), servers=NOT_PACKED),
    Row("latest", "block `latest`", lambda *_: call("eth_getBlockByNumber", ["latest", False]), servers=NOT_PACKED),
    Row("batch10", "batch of 10 blocks", batch(10), servers=NOT_PACKED, bodies=BATCHES[10]),
    Row("batch100", "batch of 100 blocks", batch(100), servers=NOT_PACKED, bodies=BATCHES[100], seconds_least=3),
    Row("gzip", "whole block, gzip accepted", full, headers={"Accept-Encoding": "gzip"}, servers=NOT_PACKED),
]
BY_NAME = {row.name: row for row in ROWS}


def chosen(names):
    """Rows by their names, or all."""
    unknown = [name for name in names if name not in BY_NAME]
    if unknown:
        raise SystemExit(f"no row {', '.join(unknown)}; there are: {', '.join(BY_NAME)}")
    return [BY_NAME[name] for name in names] or ROWS
