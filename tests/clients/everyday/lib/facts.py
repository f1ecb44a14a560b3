"""The chain that all clients read: transfers to their accounts, and a contract that logs and answers 42."""

import hashlib

from eth_account import Account
from eth_utils import to_checksum_address

from .servers import call, wait_until

# The key that every local avalanchego network funds; it is printed in avalanchego's sources.
FUNDED = "0x56289e99c94b6912bfc12adc093c9b51124f0dc54ac7a766b2bc5ccf558d8027"
GAS_PRICE, FUND_WEI = 500 * 10**9, 10**18
TRANSFER = "ddf252ad1be2c89b69c2b068fc378daa952ba7f163c4a11628f55a4df523b3ef"
# Logs Transfer(caller, caller, 42), and returns 42: as bytes, and as an init code that returns them.
RUNTIME = f"602a6000523333" f"7f{TRANSFER}" "60206000a3" "60206000f3"
INIT = f"60{len(RUNTIME) // 2:02x}600c60003960{len(RUNTIME) // 2:02x}6000f3{RUNTIME}"


def key_of(name):
    """The key of a client at a server: each sends from an account of its own."""
    return "0x" + hashlib.sha256(name.encode()).hexdigest()


def fill(url, accounts):
    """Sends all transactions; returns what the clients are told."""
    sender, chain = Account.from_key(FUNDED), int(call(url, "eth_chainId"), 16)
    drafts = [{"data": "0x" + INIT, "gas": 200_000, "value": 0}]
    drafts += [{"to": Account.from_key(key_of(name)).address, "gas": 21_000, "value": FUND_WEI} for name in accounts]
    sent = [send(url, sender, chain, nonce, draft) for nonce, draft in enumerate(drafts)]
    created = receipt(url, sent[0])
    contract = to_checksum_address(created["contractAddress"])
    logged = [send(url, sender, chain, len(sent) + number, {"to": contract, "gas": 100_000, "value": 0}) for number in range(3)]
    last = [receipt(url, hash_of) for hash_of in (*sent, *logged)][-1]
    return {
        "node": url, "chain": chain, "contract": contract, "transaction": logged[-1],
        "address": sender.address, "height": int(last["blockNumber"], 16),
    }  # fmt: skip


def send(url, sender, chain, nonce, draft):
    whole = {**draft, "nonce": nonce, "chainId": chain, "gasPrice": GAS_PRICE}
    return call(url, "eth_sendRawTransaction", sender.sign_transaction(whole).raw_transaction.to_0x_hex())


def receipt(url, hash_of):
    found = wait_until(f"the receipt of {hash_of}", lambda: call(url, "eth_getTransactionReceipt", hash_of))
    if found["status"] != "0x1":
        raise RuntimeError(f"{hash_of} failed: {found}")
    return found
