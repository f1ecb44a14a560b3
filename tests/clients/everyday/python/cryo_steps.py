"""Everyday steps with cryo: each collects a data set of a range of blocks, and its value is the rows."""

import hashlib
import json

import cryo
from steps import facts, step, url


def rows(kind, **options):
    found = cryo.collect(kind, rpc=url, start_block=1, end_block=facts["height"] + 1, output_format="list", verbose=False, **options)
    if not found:
        raise RuntimeError("no rows")
    return hashlib.sha256(json.dumps(found, default=repr).encode()).hexdigest()


contract, address = [facts["contract"]], [facts["address"]]
step("blocks", lambda: rows("blocks"))
step("transactions", lambda: rows("transactions"))
step("logs", lambda: rows("logs"))
step("balances", lambda: rows("balances", address=address))
step("nonces", lambda: rows("nonces", address=address))
step("codes", lambda: rows("codes", address=contract))
step("storages", lambda: rows("storages", address=contract, slot=["0x" + "00" * 32]))
step("calls", lambda: rows("eth_calls", contract=contract, call_data=["0x"]))
