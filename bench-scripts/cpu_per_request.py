#!/usr/bin/env python3
"""CPU time a request, of several kinds of request beside each other in one run.

Starts `neve serve --dev` with one serving thread on a chain that stands still, asks with wrk, kind
after kind, round after round, and reads the server's CPU clock. Prints the median and the
range of each kind, and its ratio to the first kind, round by round. Needs wrk (Debian: wrk).

    cargo build --release && bench-scripts/cpu_per_request.py --rounds 7
"""

import argparse
import json
import re
import statistics
import subprocess
import tempfile

from lib.process import cpu_seconds, end

CALL = '{{"jsonrpc":"2.0","id":1,"method":"{}","params":{}}}'
# Name, method, parameters (Lua, from a height), headers.
KINDS = [
    ("block plain", "eth_getBlockByNumber", '["0x%x",true]', {}),
    ("block gzip", "eth_getBlockByNumber", '["0x%x",true]', {"Accept-Encoding": "gzip"}),
    ("receipts plain", "eth_getBlockReceipts", '["0x%x"]', {}),
    ("receipts gzip", "eth_getBlockReceipts", '["0x%x"]', {"Accept-Encoding": "gzip"}),
    ("hashes plain", "eth_getBlockByNumber", '["0x%x",false]', {}),
]
LUA = """
local headers = {{["Content-Type"] = "application/json"{headers}}}
request = function()
  return wrk.format("POST", "/", headers, string.format('{body}', math.random(1, {last})))
end
"""


def lua(kind, last):
    _, method, params, headers = kind
    extra = "".join(f', ["{name}"] = "{value}"' for name, value in headers.items())
    return LUA.format(headers=extra, body=CALL.format(method, params), last=last)


def measure(kind, pid, address, args):
    with tempfile.NamedTemporaryFile("w", suffix=".lua") as script:
        script.write(lua(kind, 100))
        script.flush()
        before = cpu_seconds(pid)
        wrk = ["wrk", "-t1", f"-c{args.connections}", f"-d{args.seconds}", "-s", script.name, f"http://{address}/"]
        said = subprocess.run(wrk, check=True, capture_output=True, text=True).stdout
        used = cpu_seconds(pid) - before
    if "Non-2xx" in said:
        raise SystemExit(f"{kind[0]}: {said}")
    requests = int(re.search(r"(\d+) requests in", said).group(1))
    return used / requests * 1e6


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--binary", default="target/release/neve")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=int, default=3)
    parser.add_argument("--connections", type=int, default=16)
    args = parser.parse_args()
    command = [args.binary, "serve", "--dev", "--dev-rate", "0", "--threads", "1", "--compress", "gzip"]
    command += ["--listen", "127.0.0.1:0"]
    server = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
    try:
        address = re.search(r"http://([^/]+)/", server.stdout.readline()).group(1)
        health = f"http://{address}/health"
        while json.loads(subprocess.check_output(["curl", "-s", health]))["blocks"]["head"] != 100:
            pass
        rounds = [[measure(kind, server.pid, address, args) for kind in KINDS] for _ in range(args.rounds)]
    finally:
        end(server)
    for at, kind in enumerate(KINDS):
        values = [values[at] for values in rounds]
        ratios = [values[at] / values[0] for values in rounds]
        print(
            f"{kind[0]:16} {statistics.median(values):7.1f} us a request ({min(values):.1f} to {max(values):.1f}),"
            f" {statistics.median(ratios):.2f} of {KINDS[0][0]} ({min(ratios):.2f} to {max(ratios):.2f})"
        )


if __name__ == "__main__":
    main()
