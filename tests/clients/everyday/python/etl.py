"""Everyday steps with ethereum-etl: each is a command, and its value the file that it writes."""

import hashlib
import pathlib
import subprocess
import sys
import tempfile

from steps import facts, step, url

PROGRAM = pathlib.Path(sys.executable).parent / "ethereumetl"
folder = pathlib.Path(tempfile.mkdtemp(dir=pathlib.Path(sys.argv[2]).parent))
transactions, contracts = folder / "hashes", folder / "contracts"
transactions.write_text(facts["transaction"] + "\n")
contracts.write_text(facts["contract"] + "\n")
heights = ["--start-block", "1", "--end-block", str(facts["height"])]


def run(name, *arguments, out="--output"):
    """Runs a command with a file to write, and returns the file's hash."""
    file = folder / name
    command = [PROGRAM, name, *arguments, "--provider-uri", url, out, file, "--max-workers", "1"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    if done.returncode or not file.read_text():
        said = [line for line in done.stderr.splitlines() if "rror" in line] or [""]
        raise RuntimeError(f"{done.returncode}: {said[-1]}")
    return hashlib.sha256(file.read_bytes()).hexdigest()


step("blocks", lambda: run("export_blocks_and_transactions", *heights, out="--blocks-output"))
step("transactions", lambda: run("export_blocks_and_transactions", *heights, out="--transactions-output"))
step("receipts", lambda: run("export_receipts_and_logs", "--transaction-hashes", transactions, out="--receipts-output"))
step("logs", lambda: run("export_receipts_and_logs", "--transaction-hashes", transactions, out="--logs-output"))
step("token transfers", lambda: run("export_token_transfers", *heights))
step("contracts", lambda: run("export_contracts", "--contract-addresses", contracts))
