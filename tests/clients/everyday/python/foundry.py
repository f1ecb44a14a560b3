"""Everyday steps with cast, and with "anvil" a fork by anvil that cast asks."""

import socket
import subprocess
import sys
import time

from steps import facts, positive, reached, step, url

HEIGHT, ADDRESS, CONTRACT = (str(facts[name]) for name in ("height", "address", "contract"))


def cast(command, *arguments, at=url):
    done = subprocess.run(["cast", command, *arguments, "--rpc-url", at], capture_output=True, text=True, timeout=90)
    # The program of the npm package ends with 0 when cast failed.
    if done.returncode or not done.stdout.strip():
        raise RuntimeError(done.stderr.strip())
    return done.stdout.strip()


def at_height(command, *arguments):
    return lambda: cast(command, *arguments, "--block", HEIGHT)


def send(at):
    return lambda: cast("send", "--private-key", facts["key"], ADDRESS, "--value", "1", "--json", at=at)


def status(text):
    return '"status":"0x1"' in text


def reads():
    step("chain id", lambda: cast("chain-id"))
    step("client", lambda: bool(cast("client")))
    step("head", lambda: cast("block-number"), reached)
    step("block", lambda: cast("block", HEIGHT, "--field", "hash"))
    step("age", lambda: cast("age", HEIGHT))
    step("find block", lambda: cast("find-block", cast("block", HEIGHT, "--field", "timestamp")))
    step("transaction", lambda: cast("tx", facts["transaction"], "from"))
    step("receipt", lambda: cast("receipt", facts["transaction"], "gasUsed"))
    step("logs", lambda: cast("logs", "--from-block", "0", "--to-block", HEIGHT, "--address", CONTRACT))
    step("base fee", lambda: cast("base-fee", HEIGHT))
    step("balance", at_height("balance", ADDRESS))
    step("nonce", at_height("nonce", ADDRESS))
    step("code", at_height("code", CONTRACT))
    step("storage", at_height("storage", CONTRACT, "0"))
    step("call", at_height("call", CONTRACT))
    step("estimate", lambda: cast("estimate", CONTRACT, "--from", ADDRESS))
    step("price", lambda: cast("gas-price"), positive)
    step("proof", lambda: len(cast("proof", ADDRESS)) > 100)
    step("send and wait", send(url), status)


def fork():
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    # A cache on disk would give one server the answers of another.
    command = ["anvil", "--fork-url", url, "--fork-block-number", HEIGHT, "--port", str(port), "--quiet", "--retries", "1", "--no-storage-caching"]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    ours = f"http://127.0.0.1:{port}"
    try:
        step("fork", lambda: started(process, ours))
        for name, asked in (("block", ["block", HEIGHT, "--field", "hash"]), ("balance", ["balance", ADDRESS]),
                            ("code", ["code", CONTRACT]), ("call", ["call", CONTRACT]),
                            ("receipt", ["receipt", facts["transaction"], "gasUsed"])):
            step(name, lambda asked=asked: cast(*asked, at=ours))
        step("send and wait", send(ours), status)
    finally:
        process.terminate()
        process.wait()


def started(process, at, limit=60):
    end = time.monotonic() + limit
    while time.monotonic() < end and process.poll() is None:
        try:
            return cast("block-number", at=at)
        except RuntimeError:
            time.sleep(0.2)
    raise RuntimeError(f"anvil ended with {process.poll()}")


fork() if "anvil" in sys.argv else reads()
