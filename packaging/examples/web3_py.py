"""web3.py 8: neve first, the node for calls that neve refuses.

Copy the class. Web3(NeveFirst(NEVE, NODE)) takes the place of Web3(HTTPProvider(NODE)).

    python web3_py.py http://127.0.0.1:8545 http://127.0.0.1:9650/ext/bc/C/rpc
"""

import json
import sys

import requests
from web3 import HTTPProvider, Web3
from web3.middleware import ExtraDataToPOAMiddleware


class NeveFirst(HTTPProvider):
    def __init__(self, neve, node, **options):
        # Without this None web3.py asks neve five times, over two seconds, before it gives up.
        super().__init__(neve, exception_retry_configuration=None, **options)
        self.node = HTTPProvider(node, **options)

    # A miss is HTTP 421, which web3.py raises, as it does if neve is down. To ask twice is harmless:
    # neve sends no transaction. neve refuses a batch with a miss whole.
    def make_request(self, method, params):
        try:
            return super().make_request(method, params)
        except requests.RequestException:
            return self.node.make_request(method, params)

    def make_batch_request(self, calls):
        try:
            return super().make_batch_request(calls)
        except requests.RequestException:
            return self.node.make_batch_request(calls)


w3 = Web3(NeveFirst(*sys.argv[1:3]))
# The C-chain's extra data is longer than web3.py expects.
w3.middleware_onion.inject(ExtraDataToPOAMiddleware, layer=0)
head = w3.eth.block_number
address = "0x0000000000000000000000000000000000000001"
with w3.batch_requests() as batch:
    batch.add(w3.eth.get_block(head - 1))
    batch.add(w3.eth.get_balance(address, head))
    earlier, balance = batch.execute()
print(json.dumps({
    "chain": str(w3.eth.chain_id),
    "hash": w3.eth.get_block(head)["hash"].to_0x_hex(),
    "parent": earlier["hash"].to_0x_hex(),
    "balance": str(balance),
    "code": w3.eth.get_code(address, head).to_0x_hex(),
}))
