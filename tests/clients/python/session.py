"""The script of ../README.md with web3.py."""

import argparse
import asyncio
import json
import sys

import requests
from web3 import AsyncWeb3, HTTPProvider, Web3, WebSocketProvider
from web3.exceptions import Web3RPCError
from web3.middleware import ExtraDataToPOAMiddleware
from websockets.exceptions import ConnectionClosed

UNKNOWN = "0x" + "7e" * 32
FUNDED = "0x8db97C7cEcE249c2b98bDC0226Cc4C2A57BF52FC"
NOBODY = "0x" + "01" * 20
TAGS = ["latest", "safe", "finalized", "pending", "earliest"]
# How long heads and logs that the harness announced may take to come, in seconds.
FOLLOW_LIMIT = 60


def show(value):
    """Any answer of web3.py as plain data."""
    if isinstance(value, (bytes, bytearray)):
        return "0x" + bytes(value).hex()
    if isinstance(value, (list, tuple)):
        return [show(one) for one in value]
    if hasattr(value, "items"):
        return {key: show(one) for key, one in value.items()}
    return value


def explain(error):
    """What an error says, without the server's address."""
    shown = {"name": type(error).__name__}
    if isinstance(error, requests.HTTPError):
        shown["status"] = error.response.status_code
    elif isinstance(error, Web3RPCError) and error.rpc_response:
        shown["rpc"] = show(error.rpc_response.get("error"))
    else:
        shown["message"] = str(error)
    return shown


def write(line):
    print(json.dumps(line, sort_keys=True), flush=True)


def step(name, ask):
    """Does one step and prints what came of it."""
    try:
        value = ask()
    except Exception as error:
        write({"step": name, "error": explain(error)})
        return None
    write({"step": name, "value": show(value)})
    return value


async def async_step(name, ask):
    """The same with an answer that is waited for."""
    try:
        value = await ask
    except Exception as error:
        write({"step": name, "error": explain(error)})
        return
    write({"step": name, "value": show(value)})


def call(w3, method, *params):
    """A method that web3.py has no function for, or arguments that its functions would not send."""
    return w3.manager.request_blocking(method, list(params))


class Reads:
    """The script over HTTP."""

    def __init__(self, options):
        self.options = options
        self.w3 = Web3(HTTPProvider(options.http))
        # The C-chain's extra data may be longer than 32 bytes, which web3.py takes for a
        # proof-of-authority chain's.
        self.w3.middleware_onion.inject(ExtraDataToPOAMiddleware, layer=0)
        self.logs = []

    def run(self):
        eth = self.w3.eth
        step("chain id", lambda: eth.chain_id)
        step("network id", lambda: self.w3.net.version)
        head = step("head", lambda: eth.block_number)
        for number in range(head + 1):
            self.block(number)
        self.tags()
        self.batch(head)
        self.errors()
        if self.options.logs:
            self.read_logs(head)
        self.misses(head)

    def block(self, number):
        eth, w3 = self.w3.eth, self.w3
        step(f"block {number}", lambda: eth.get_block(number))
        block = step(f"block {number} full", lambda: eth.get_block(number, True))
        at = block["hash"]
        step(f"block {number} by hash", lambda: eth.get_block(at))
        step(f"block {number} by hash full", lambda: eth.get_block(at, True))
        step(f"header {number}", lambda: call(w3, "eth_getHeaderByNumber", hex(number)))
        step(f"header {number} by hash", lambda: call(w3, "eth_getHeaderByHash", show(at)))
        step(f"count {number}", lambda: eth.get_block_transaction_count(number))
        step(f"count {number} by hash", lambda: eth.get_block_transaction_count(at))
        step(f"receipts {number}", lambda: eth.get_block_receipts(number))
        step(f"receipts {number} by hash", lambda: eth.get_block_receipts(at))
        for index, transaction in enumerate(block["transactions"]):
            self.transaction(number, at, index, transaction["hash"])
        beyond = len(block["transactions"])
        step(f"transaction {number} beyond", lambda: eth.get_transaction_by_block(at, beyond))

    def transaction(self, number, block, index, at):
        eth, name = self.w3.eth, f"{number}/{index}"
        step(f"transaction {name}", lambda: eth.get_transaction(at))
        step(f"transaction {name} by index", lambda: eth.get_transaction_by_block(number, index))
        step(f"transaction {name} by hash and index", lambda: eth.get_transaction_by_block(block, index))
        receipt = step(f"receipt {name}", lambda: eth.get_transaction_receipt(at))
        self.logs.extend(receipt["logs"])
        if self.options.raw:
            step(f"raw transaction {name}", lambda: eth.get_raw_transaction(at))
            step(f"raw transaction {name} by index", lambda: eth.get_raw_transaction_by_block(number, index))

    def tags(self):
        eth = self.w3.eth
        for tag in TAGS:
            step(f"block {tag}", lambda: eth.get_block(tag))
            step(f"block {tag} full", lambda: eth.get_block(tag, True))
            step(f"count {tag}", lambda: eth.get_block_transaction_count(tag))
            step(f"receipts {tag}", lambda: eth.get_block_receipts(tag))

    def batch(self, head):
        def ask():
            eth = self.w3.eth
            with self.w3.batch_requests() as batch:
                batch.add(eth.get_block(head, True))
                batch.add(eth.get_block_receipts(head))
                batch.add(eth.get_block_transaction_count(head))
                batch.add(eth.get_transaction_by_block(head, 0))
                return batch.execute()

        step("batch", ask)

    def errors(self):
        w3 = self.w3
        step("error: nonsense number", lambda: call(w3, "eth_getBlockByNumber", "nonsense", False))
        step("error: missing argument", lambda: call(w3, "eth_getBlockByNumber", "0x0"))
        step("error: short hash", lambda: call(w3, "eth_getTransactionByHash", "0x12"))

    def read_logs(self, head):
        get = self.w3.eth.get_logs
        log = next(log for log in self.logs if len(log["topics"]) > 1)
        span = {"fromBlock": 0, "toBlock": head}
        first, second = log["topics"][:2]
        addresses = [log["address"] for log in self.logs]
        step("logs of a block", lambda: get({"blockHash": log["blockHash"]}))
        step("logs of the chain", lambda: get(span))
        step("logs by address", lambda: get({**span, "address": log["address"]}))
        step("logs by addresses", lambda: get({**span, "address": addresses}))
        step("logs by topic", lambda: get({**span, "topics": [first]}))
        step("logs by topics", lambda: get({**span, "topics": [None, [second, UNKNOWN]]}))
        step("logs of nobody", lambda: get({**span, "address": NOBODY}))

    def misses(self, head):
        """What a cache does not have and a node behind it does."""
        eth = self.w3.eth
        step("miss: future block", lambda: eth.get_block(head + 1000))
        step("miss: unknown block", lambda: eth.get_block(UNKNOWN))
        step("miss: unknown transaction", lambda: eth.get_transaction(UNKNOWN))
        step("miss: unknown receipt", lambda: eth.get_transaction_receipt(UNKNOWN))
        step("miss: balance", lambda: eth.get_balance(FUNDED, head))

        def ask():
            with self.w3.batch_requests() as batch:
                batch.add(eth.get_block(head))
                batch.add(eth.get_code(NOBODY, head))
                return batch.execute()

        step("miss: batch", ask)


async def from_harness():
    """The harness's next line but `cut`, which is for libraries that hide a cut."""
    read = asyncio.get_running_loop().run_in_executor
    line = "cut"
    while line.strip() == "cut":
        line = await read(None, sys.stdin.readline)
    return line


def height_of(head):
    """Its number. web3.py takes what resembles Ethereum's heads for a head, and the C-chain's
    have too many members of their own: it leaves them as they came, in hex."""
    number = head["number"]
    return int(number, 16) if isinstance(number, str) else number


class Following:
    """Heads and logs of two subscriptions, in the order in which they came."""

    def __init__(self, w3):
        self.w3 = w3
        self.heads, self.logs = [], []

    async def subscribe(self):
        self.heads_id = await self.w3.eth.subscribe("newHeads")
        self.logs_id = await self.w3.eth.subscribe("logs", {})

    async def report(self):
        """Waits until all that the harness announces is here, and prints it."""
        line = await from_harness()
        word, height, logs = line.split()
        assert word == "until", line
        try:
            await asyncio.wait_for(self.collect(int(height), int(logs)), FOLLOW_LIMIT)
        except asyncio.TimeoutError:
            seen = [height_of(head) for head in self.heads]
            raise SystemExit(f"{line.strip()}: not in time; seen: {seen}, {len(self.logs)} logs")
        for head in self.heads:
            write({"step": f"head {height_of(head)}", "value": show(head)})
        for log in self.logs:
            write({"step": f"log of {log['blockNumber']}", "value": show(log)})

    async def collect(self, height, logs):
        def done():
            return len(self.logs) >= logs and any(height_of(one) >= height for one in self.heads)

        async for message in self.w3.socket.process_subscriptions():
            mine = self.heads if message["subscription"] == self.heads_id else self.logs
            mine.append(message["result"])
            if done():
                return


async def follow(options):
    """The script over WebSocket. As web3.py's documents say, a lost connection is a next turn."""
    turn = 0
    async for w3 in AsyncWeb3(WebSocketProvider(options.ws)):
        if turn == 0:
            w3.middleware_onion.inject(ExtraDataToPOAMiddleware, layer=0)
            await async_step("socket: chain id", w3.eth.chain_id)
            await async_step("socket: block", w3.eth.get_block("latest", True))
            await async_step("socket: error", w3.eth.get_block_receipts("nonsense"))
        following = Following(w3)
        await following.subscribe()
        write({"step": ["subscribed", "reconnected"][turn]})
        await following.report()
        if options.reconnect and turn == 0:
            turn = 1
            write({"step": "waiting for the cut"})
            try:
                async for _ in w3.socket.process_subscriptions():
                    pass
            except ConnectionClosed:
                continue
        for subscription in [following.heads_id, following.logs_id]:
            await async_step("unsubscribed", w3.eth.unsubscribe(subscription))
        return


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("http")
    parser.add_argument("ws", nargs="?")
    for flag in ["--logs", "--raw", "--reconnect"]:
        parser.add_argument(flag, action="store_true")
    options = parser.parse_args()
    Reads(options).run()
    if options.ws:
        asyncio.run(follow(options))


main()
