"""Load from outside, on the second processor: wrk and the floor of asking as fast as answers come, oha at a rate."""

import json
import os
import pathlib
import shutil
import subprocess
import time

from . import sample, tools

SCRIPT = pathlib.Path(__file__).resolve().parents[1] / "load.lua"
GRACE_S = 30
PROCESSORS = os.cpu_count() or 1
# What generators were asked to do, and which programs they were.
commands, programs = [], set()


def pinned(command, server):
    """The generator has a processor of its own, as the servers have the first one; where none is here, all."""
    own = f"0-{PROCESSORS - 1}" if server.pid is None else "1"
    taskset = ["taskset", "-c", own] if PROCESSORS >= 2 and shutil.which("taskset") else []
    return [*taskset, *map(str, command)]


def run(command, server, seconds):
    programs.add(command[0])
    command = pinned(command, server)
    commands.append(tools.told(command))
    done = subprocess.run(command, capture_output=True, text=True, timeout=seconds + GRACE_S)
    if done.returncode != 0:
        raise SystemExit(f"{commands[-1]}\n{done.stdout}{done.stderr}")
    return done.stdout


def measured(server, load):
    """What a load says, with the server's processor time and the machine's meanwhile."""
    machine, cpu, began = sample.machine_times(), server.cpu(), time.monotonic()
    row = load()
    row["wall_s"] = time.monotonic() - began
    # Of a server that somebody else runs there is none to see.
    row["cpu_s"] = None if cpu is None else server.cpu() - cpu
    row.update(sample.shares(machine, sample.machine_times()))
    row["server"] = server.name
    return row


def versions():
    """Which generators these were."""
    return {program.name: tools.identity(program) for program in sorted(map(pathlib.Path, programs))}


def closed(server, bodies, connections, seconds, headers=None, seed=1, threads=1):
    """Each connection asks again when it is answered. Latencies as wrk corrects them, but p50 is close."""
    words = [f"{name}={value}" for name, value in (headers or {}).items()]
    threads = min(connections, PROCESSORS if server.pid is None else threads)
    command = [tools.wrk(), f"-t{threads}", f"-c{connections}", f"-d{seconds}s", "--timeout", "10s", "-s", SCRIPT, server.url]
    command += ["--", bodies, seed, *words]
    return measured(server, lambda: from_line(run(command, server, seconds), connections))


def busiest(server, bodies, connections, seconds, headers=None, seed=1):
    """The same by the floor of asking, which keeps servers busy that wrk does not. It checks no body."""
    words = [f"{name}={value}" for name, value in (headers or {}).items()]
    command = [tools.asker(), server.address, server.path, bodies, connections, seconds, seed, *words]
    return measured(server, lambda: from_line(run(command, server, seconds), connections))


def from_line(said, connections):
    """What load.lua says, and what the floor of asking says in the same words."""
    line = next(line for line in said.splitlines() if line.startswith("JSON "))
    row = json.loads(line[5:])
    row["rps"] = row["requests"] / (row["duration_us"] / 1e6)
    row["connections"] = connections
    return row


def fixed_rate(server, bodies, rate, connections, seconds, headers=None):
    """Requests at their times, answered or not; latency from the time at which one was due."""
    oha = tools.oha()
    if not oha:
        raise SystemExit(tools.OHA_MISSING)
    words = [word for name, value in (headers or {}).items() for word in ("-H", f"{name}: {value}")]
    command = [oha, "--no-tui", "--output-format", "json", "-z", f"{seconds}s", "-q", str(int(rate)), "-c"]
    command += [str(connections), "--latency-correction", "-m", "POST", "-T", "application/json", "-Z", bodies]
    command += [*words, server.url]
    return measured(server, lambda: from_oha(json.loads(run(command, server, seconds)), rate))


def from_oha(said, rate):
    percentiles = said["latencyPercentiles"]
    statuses = {int(status): count for status, count in said["statusCodeDistribution"].items()}
    seconds = said["summary"]["total"]
    row = {name: (percentiles[name] or 0) * 1e6 for name in ("p50", "p90", "p99", "p99.9")}
    row = {f"{name.replace('.', '_')}_us": value for name, value in row.items()}
    requests = sum(statuses.values())
    row.update(requests=requests, rate=rate, rps=requests / seconds, max_us=said["summary"]["slowest"] * 1e6)
    row["status"] = requests - statuses.get(200, 0)
    row["bytes"] = said["summary"]["totalData"]
    # What is under way when time is over has not failed.
    row["errors"] = sum(count for name, count in said["errorDistribution"].items() if "deadline" not in name)
    return row


def void(row, bytes_expected=0):
    """Why a row counts for nothing, or None."""
    failed = {name: row[name] for name in ("connect", "read", "write", "status", "timeout", "errors") if row.get(name)}
    if failed:
        return f"failed requests: {failed}"
    if row["requests"] == 0:
        return "no request was answered"
    if row["bytes"] / row["requests"] < bytes_expected:
        return f"answers of {row['bytes'] / row['requests']:.0f} bytes where {bytes_expected:.0f} were the least to expect"
    return None
