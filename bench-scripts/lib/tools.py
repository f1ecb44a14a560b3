"""The programs that are measured and that measure: found, or built once, with the time it took."""

import contextlib
import functools
import hashlib
import os
import pathlib
import shutil
import subprocess
import sys
import time

ROOT = pathlib.Path(__file__).resolve().parents[2]
CACHE = pathlib.Path(os.environ.get("NEVE_BENCH_CACHE", ROOT / "target" / "bench"))
PEER_VERSION = "0.2.2"
OHA_VERSION = "1.16.0"
OURS = ["cargo", "build", "--release", "--locked", "--bins", "--example", "devnet", "--example", "freshness"]
# Each neve of a measurement has the defaults and what its command says, whatever /etc/neve/neve.toml of this machine says.
os.environ["NEVE_CONFIG"] = "none"
# What was built in this run, and how long that took: apart from the measurement.
builds = {}


def build(name, command, result, environment=None, directory=ROOT):
    """Runs a build whose result is a file. Cargo and Go know themselves what is up to date."""
    print(f"building {name}: {' '.join(map(str, command))}", file=sys.stderr, flush=True)
    environment = {**os.environ, **(environment or {})}
    with timed(name):
        subprocess.run(command, cwd=directory, check=True, stdout=sys.stderr, env=environment, preexec_fn=all_processors)
    return pathlib.Path(result)


def all_processors():
    """Whoever measures keeps to one; a build would take twice as long."""
    os.sched_setaffinity(0, range(os.cpu_count() or 1))


@contextlib.contextmanager
def timed(name):
    """Notes how long something took that is done once."""
    started = time.monotonic()
    yield
    builds[name] = round(time.monotonic() - started, 1)


def given(variable):
    path = os.environ.get(variable)
    if path and not os.access(path, os.X_OK):
        raise SystemExit(f"{variable}={path} is not a program")
    return pathlib.Path(path) if path else None


@functools.cache
def ours():
    """All of this workspace at once: cargo joins the features of what it is asked for, and would build
    the libraries again for the next with others."""
    return build("neve", OURS, ROOT / "target/release")


def neve():
    return given("NEVE_BIN") or ours() / "neve"


@functools.cache
def touching():
    """A neve whose serving threads wait for the disk themselves (crates/store/src/memory/residency.rs)."""
    if given("NEVE_BIN"):
        raise SystemExit("NEVE_BIN is given, and what is built from this checkout may differ from it in more than one thing")
    flags = f"{os.environ.get('RUSTFLAGS', '')} --cfg neve_no_residency".strip()
    environment = {"RUSTFLAGS": flags, "CARGO_TARGET_DIR": str(CACHE / "touching")}
    return build("neve without the hand-over", OURS, CACHE / "touching/release/neve", environment)


@functools.cache
def floor():
    manifest = ROOT / "benches/floor/Cargo.toml"
    command = ["cargo", "build", "--release", "--locked", "--manifest-path", manifest]
    return build("floor", command, ROOT / "benches/floor/target/release/neve-floor")


def asker():
    """The floor of asking: a generator that takes less than wrk. Built with the floor."""
    return floor().with_name("neve-floor-load")


def devnet():
    return given("NEVE_DEVNET") or ours() / "examples/devnet"


def freshness():
    return given("NEVE_FRESHNESS") or ours() / "examples/freshness"


@functools.cache
def packing():
    command = ["cargo", "build", "--release", "--locked", "--example", "packing"]
    return given("NEVE_PACKING") or build("packing", command, ROOT / "target/release/examples/packing")


@functools.cache
def node_chain():
    """The program that fills a node's chain, and feeds a running one."""
    command = ["go", "build", "-C", ROOT / "bench-scripts/node-chain", "-buildvcs=false", "-o", CACHE / "node-chain", "."]
    return given("NEVE_NODE_CHAIN") or build("the program that fills the node", command, CACHE / "node-chain")


@functools.cache
def avalanchego():
    """The node that the tests pin, unless one is given. Needs Go, which knows itself whether there is anything to do."""
    command = ["go", "build", "-C", ROOT / "tests/avalanchego", "-buildvcs=false", "-o", CACHE / "avalanchego"]
    command.append("github.com/ava-labs/avalanchego/main")
    return given("NEVE_TEST_AVALANCHEGO") or build("avalanchego", command, CACHE / "avalanchego")


@functools.cache
def peer():
    """The published neve, from the registry."""
    found = given("NEVE_PEER")
    home = CACHE / f"neve-{PEER_VERSION}"
    if found or os.access(home / "bin/neve", os.X_OK):
        return found or home / "bin/neve"
    # Its own target directory: what it is built from has nothing to do with ours.
    command = ["cargo", "install", "neve", "--version", PEER_VERSION, "--locked", "--root", home]
    return build("neve-" + PEER_VERSION, command, home / "bin/neve", {"CARGO_TARGET_DIR": str(home / "build")})


def wrk():
    found = shutil.which("wrk")
    if not found:
        raise SystemExit("wrk is missing, the load generator. Debian and Ubuntu: apt-get install wrk")
    return found


def oha():
    """None where it is not installed: only open-loop load needs it."""
    return given("NEVE_OHA") or shutil.which("oha")


OHA_MISSING = f"oha is missing, which makes load at a fixed rate: cargo install --locked oha@{OHA_VERSION} (or NEVE_OHA=/path/to/oha)"


def version(binary):
    """What a program says that it is, in one line."""
    said = subprocess.run([binary, "--version"], capture_output=True, text=True, timeout=20)
    lines = (said.stdout + said.stderr).strip().splitlines()
    # The floor and its generator take any argument for a file.
    return lines[0] if lines and not lines[0].startswith("Error") else "says no version"


def told(command):
    """A command as a reader elsewhere can use it: without where things happen to lie here."""
    return " ".join(shown(str(word)) for word in command)


def shown(word):
    for base, name in ((CACHE, "target/bench"), (ROOT, ".")):
        word = word.replace(f"{base}/", f"{name}/")
    return pathlib.Path(word).name if word.startswith("/") and word != "/" else word


def identity(binary):
    """Which program it was: what it says, and the beginning of its hash; nothing of one that is elsewhere."""
    if not binary:
        return {}
    try:
        with open(binary, "rb") as file:
            digest = hashlib.file_digest(file, "sha256").hexdigest()[:16]
        return {"version": version(binary), "sha256": digest}
    except OSError:
        return {}
