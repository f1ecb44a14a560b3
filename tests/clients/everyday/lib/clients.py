"""The clients: installed by their own tools into a folder, and run with a server's URL."""

import json
import os
import pathlib
import shutil
import subprocess
import sys

HERE = pathlib.Path(__file__).resolve().parents[1]
LIMIT_S = 240
# A virtual environment for each: they want different releases of web3.py.
PYTHONS = {
    "web3": ["-r", str(HERE.parent / "python/requirements.txt")],
    "defi": ["web3-ethereum-defi==1.2"],
    "etl": ["ethereum-etl==2.4.2"],
    "cryo": ["cryo==0.3.2", "polars==1.44.2", "pyarrow"],
}


class Clients:
    """Installs what a client needs when it is run first."""

    def __init__(self, folder):
        self.folder = folder

    def python(self, name):
        made, stamp = self.folder / f"python-{name}", self.folder / f"python-{name}.stamp"
        wanted = repr(PYTHONS[name]) + (HERE.parent / "python/requirements.txt").read_text()
        if not stamp.is_file() or stamp.read_text() != wanted:
            run([sys.executable, "-m", "venv", "--clear", made])
            run([made / "bin/pip", "install", "--quiet", "--disable-pip-version-check", *PYTHONS[name]])
            # ethereum-etl 2.4.2 wants a parsimonious that asks inspect for a name that Python 3.11 has no more.
            (next(made.glob("lib/*/site-packages")) / "sitecustomize.py").write_text(
                "import inspect\ninspect.getargspec = inspect.getfullargspec\n")  # fmt: skip
            stamp.write_text(wanted)
        return made / "bin/python"

    def npm(self, name):
        """The folder of a project whose packages are those of its lock file."""
        made = self.folder / name
        shutil.copytree(HERE / name, made, dirs_exist_ok=True)
        lock, installed = made / "package-lock.json", made / "installed-lock.json"
        if not installed.is_file() or installed.read_bytes() != lock.read_bytes():
            run(["npm", "ci", "--no-audit", "--no-fund"], made)
            shutil.copy(lock, installed)
        return made

    def node(self, script, *more):
        return lambda: (["node", self.npm("js") / script], more)

    def py(self, environment, script, *more):
        def command():
            script_of = HERE / "python" / script
            return [self.python(environment), "-B", script_of], more
        return command

    def foundry(self, *more):
        """cast and anvil are programs in npm packages; a script of Python runs them."""
        def command():
            self.npm("js")
            return [self.python("web3"), "-B", HERE / "python/foundry.py"], more
        return command

    def ponder(self):
        return [self.python("web3"), "-B", HERE / "python/ponder.py"], [self.npm("ponder")]

    def go(self):
        program = self.folder / "go-everyday"
        run(["go", "build", "-buildvcs=false", "-o", program, "./everyday"], HERE.parent / "go", {"GOTOOLCHAIN": "local"})
        return [program], ()

    def rust(self):
        """The program of ../rust, where tests/it builds it too: alloy is compiled once."""
        built = self.folder.parent / "clients/rust"
        run(["cargo", "build", "--locked", "--target-dir", built], HERE.parent / "rust")
        return [built / "debug/alloy-session", "everyday"], ()

    def java(self):
        made = self.folder / "java"
        if not (made / "target/lib").is_dir():
            shutil.copytree(HERE / "java", made, dirs_exist_ok=True)
            run(["mvn", "-q", "-B", "dependency:copy-dependencies", "-DoutputDirectory=target/lib"], made)
        return ["java", "-cp", f"{made}/target/lib/*", HERE / "java/Everyday.java"], ()

    def all(self):
        """For each its name, the number of its steps and its command, in the order of the table."""
        return {
            "ethers 6.17, `JsonRpcProvider`": (14, self.node("ethers.mjs")),
            "ethers 6.17, `FallbackProvider`": (14, self.node("ethers.mjs", "fallback")),
            "viem 2.57": (14, self.node("viem.mjs")),
            "viem 2.57, `fallback`": (14, self.node("viem.mjs", "fallback")),
            "web3.js 4.16": (14, self.node("web3js.mjs")),
            "web3.py 8.0": (14, self.py("web3", "web3_py.py")),
            "eth_defi 1.2, `FallbackProvider`": (14, self.py("defi", "web3_py.py", "defi")),
            "coreth's ethclient 1.14.2": (14, self.go),
            "alloy 2.5": (24, self.rust),
            "cast 1.7": (19, self.foundry()),
            "anvil 1.7, fork": (7, self.foundry("anvil")),
            "cryo 0.3.2": (8, self.py("cryo", "cryo_steps.py")),
            "subsquid's evm-processor 1.27": (5, self.node("subsquid.mjs")),
            "ponder 0.16": (2, self.ponder),
            "ethereum-etl 2.4.2": (6, self.py("etl", "etl.py")),
            "web3j 4.12": (16, self.java),
        }

    def steps(self, command, url, facts, name):
        """Runs a session to its end; returns the outcome of each step."""
        file = self.folder / f"facts-{abs(hash((name, url)))}.json"
        file.write_text(json.dumps(facts))
        program, more = command
        environment = {word: value for word, value in os.environ.items() if "proxy" not in word.lower()}
        environment["PATH"] = f"{self.folder / 'js/node_modules/.bin'}:{environment['PATH']}"
        done = subprocess.run([*program, url, file, *more], capture_output=True, text=True, timeout=LIMIT_S, env=environment)
        lines = [json.loads(line) for line in done.stdout.splitlines() if line.startswith('{')]
        steps = {line["step"]: (line.get("value"), line.get("error")) for line in lines}
        if done.returncode:
            # cryo's own panics end it: what it did before counts.
            steps["all"] = (None, f"ended with {done.returncode}: {done.stderr[-200:]}")
        return steps


def run(command, directory=None, environment=None):
    subprocess.run(command, cwd=directory, check=True, stdout=sys.stderr, env={**os.environ, **(environment or {})})
