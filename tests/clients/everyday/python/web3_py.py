"""Everyday steps with web3.py; with "defi" over eth_defi's FallbackProvider of URL and the node."""

import sys

from steps import facts, positive, reached, step, url
from web3 import HTTPProvider, Web3
from web3.middleware import ExtraDataToPOAMiddleware


def provider():
    if "defi" not in sys.argv:
        return HTTPProvider(url)
    from eth_defi.provider.fallback import FallbackProvider

    both = [HTTPProvider(address, exception_retry_configuration=None) for address in (url, facts["node"])]
    return FallbackProvider(both, sleep=0.1, backoff=1.1, retries=3)


w3 = Web3(provider())
w3.middleware_onion.inject(ExtraDataToPOAMiddleware, layer=0)
eth, height = w3.eth, facts["height"]
address, contract = (Web3.to_checksum_address(facts[name]) for name in ("address", "contract"))


def send():
    account = eth.account.from_key(facts["key"])
    call = {"to": address, "value": 1, "gas": 21000, "chainId": facts["chain"], "nonce": eth.get_transaction_count(account.address)}
    signed = account.sign_transaction({**call, "gasPrice": 2 * eth.gas_price + 1})
    return eth.wait_for_transaction_receipt(eth.send_raw_transaction(signed.raw_transaction), timeout=60)


step("chain id", lambda: eth.chain_id)
step("head", lambda: eth.block_number, reached)
step("block", lambda: eth.get_block(height)["hash"].hex())
step("transaction", lambda: eth.get_transaction(facts["transaction"])["from"])
step("receipt", lambda: eth.get_transaction_receipt(facts["transaction"])["gasUsed"])
step("logs", lambda: len(eth.get_logs({"address": contract, "fromBlock": 0, "toBlock": height})))
step("balance", lambda: eth.get_balance(address, height))
step("nonce", lambda: eth.get_transaction_count(address, height))
step("code", lambda: eth.get_code(contract, height).hex())
step("storage", lambda: eth.get_storage_at(contract, 0, height).hex())
step("call", lambda: eth.call({"to": contract}, height).hex())
step("estimate", lambda: eth.estimate_gas({"from": address, "to": contract}))
step("prices", lambda: eth.gas_price, positive)
step("send and wait", send, lambda receipt: receipt["status"])
