"""Mixes of methods as a sample of real traffic has them (mixes.json says which, and what it leaves open)."""

import json
import pathlib

from .rows import Row, call, full, hashes, receipt, transaction

FILE = pathlib.Path(__file__).resolve().parents[1] / "mixes.json"


def block(corpus, chance):
    return chance.choice((hashes, full))(corpus, chance)


def logs(corpus, chance):
    height = hex(chance.choice(corpus.heights))
    return call("eth_getLogs", [{"fromBlock": height, "toBlock": height}])


def by_index(corpus, chance):
    height, index = chance.choice(corpus.places)
    return call("eth_getTransactionByBlockNumberAndIndex", [hex(height), hex(index)])


MAKERS = {
    "eth_getBlockByNumber": block,
    "eth_getTransactionReceipt": receipt,
    "eth_getLogs": logs,
    "eth_getTransactionByHash": transaction,
    "eth_blockNumber": lambda *_: call("eth_blockNumber", []),
    "eth_getTransactionByBlockNumberAndIndex": by_index,
    "eth_getBlockByHash": lambda corpus, chance: call("eth_getBlockByHash", [chance.choice(corpus.blocks), False]),
    "eth_getBlockTransactionCountByNumber": lambda corpus, chance: call(
        "eth_getBlockTransactionCountByNumber", [hex(chance.choice(corpus.heights))]
    ),
}


def maker(methods, percent):
    weights = [percent[method] for method in methods]

    def make(corpus, chance):
        return MAKERS[chance.choices(methods, weights)[0]](corpus, chance)

    return make


def read():
    """The mixes, and the share of the sample that each covers in percent."""
    said = json.loads(FILE.read_text())
    percent = said["percent"]
    rows, covered = [], {}
    for name, mix in said["mixes"].items():
        rows.append(Row(name, mix["title"], maker(mix["methods"], percent), servers=tuple(mix["servers"])))
        covered[name] = sum(percent[method] for method in mix["methods"])
    return rows, covered
