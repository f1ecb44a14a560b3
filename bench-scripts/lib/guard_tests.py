"""Of selftest: that no answer which is none gets into a table, and what is said of what was run."""

import contextlib
import importlib.machinery
import importlib.util
import io
import json
import os
import pathlib
import subprocess
import tempfile
import time
import types
import unittest
from unittest import mock

from . import ask, bounds, closed, load, node, rig, sample, servers, setup, tools
from .pretend import loaded, pretend, stage

SCRIPTS = pathlib.Path(__file__).resolve().parents[1]


def script(name):
    loader = importlib.machinery.SourceFileLoader(f"script_{name}", str(SCRIPTS / name))
    module = importlib.util.module_from_spec(importlib.util.spec_from_loader(loader.name, loader))
    loader.exec_module(module)
    return module


def slow(server, bodies, headers=None, connections=2, seconds=1, seed=1, rate=0):
    """A generator that leaves time to compare and asks nothing itself."""
    time.sleep(0.4)
    row = {"requests": 1000, "bytes": 99_000, "duration_us": 1e6, "rps": 1000.0, "mean_us": 2000, "p50_us": 1990}
    return load.measured(server, lambda: row | {"connections": connections})


def finished(folder):
    """The report."""
    with contextlib.redirect_stdout(io.StringIO()):
        return folder.finish("a table", figures=False)


class Voids(unittest.TestCase):
    def test_a_miss_voids_a_row_of_load(self):
        for generator in bounds.GENERATORS.values():
            self.assertIn("status", load.void(loaded(generator, status=421), 0))

    def test_answers_that_are_too_short_void_a_row(self):
        for generator in bounds.GENERATORS.values():
            self.assertIn("least to expect", load.void(loaded(generator), 4000))
            self.assertIsNone(load.void(loaded(generator), 30))

    def test_nulls_that_begin_under_load_void_a_row(self):
        for generator in bounds.GENERATORS.values():
            here = stage(self, null_after=20)
            how = {"connections": 2, "seconds": 1}
            with self.assertRaisesRegex(ask.Void, "null"):
                ask.ask(here.folder, {"kind": "any"}, generator, here.server, here.question, **how)
            self.assertIn("any, number, neve at 2 connections: null", finished(here.folder))

    def test_answers_are_compared_afterwards_if_not_meanwhile(self):
        here = stage(self, null_after=1)
        with self.assertRaisesRegex(ask.Void, "null"):
            ask.ask(here.folder, {"kind": "any"}, slow, here.server, here.question, compare=False, connections=2)

    def test_an_answer_that_is_cut_off_voids_a_row(self):
        here = stage(self, cut_after=5)
        with self.assertRaisesRegex(ask.Void, "closed the connection"):
            ask.ask(here.folder, {"kind": "any"}, slow, here.server, here.question, connections=2)

    def test_a_void_row_is_in_no_table(self):
        here = stage(self, null_after=4)
        with mock.patch.object(load, "closed", lambda *asked, threads, **how: slow(*asked, **how)):
            self.assertEqual(closed.points(here.rig, here.question, here.args, here.folder, (1, 2)), {})
        self.assertIn("at 1 connections: null", finished(here.folder))

    def test_a_server_of_other_answers_is_not_asked_under_load(self):
        here = stage(self)
        here.rig.add(pretend("other", answer={"jsonrpc": "2.0", "id": 1, "result": "0x2"}))
        with mock.patch.object(load, "closed", lambda *asked, threads, **how: slow(*asked, **how)):
            self.assertEqual(list(closed.points(here.rig, here.question, here.args, here.folder, (1,))), [("neve", 1)])
        self.assertIn("sample, number, other: another answer", finished(here.folder))

    def test_a_bound_of_void_rows_does_not_hold(self):
        here = stage(self, null_after=4)
        with mock.patch.object(bounds, "GENERATORS", {"wrk": slow}):
            [line] = bounds.or_void("256 connections", bounds.plateau, here.rig, here.question, here.args, here.folder)
        self.assertEqual((line.verdict, line.missed), ("void", True))

    def oha(self, statuses, errors):
        names = ("p50", "p90", "p99", "p99.9")
        said = {"summary": {"total": 1.0, "slowest": 0.01, "totalData": 100 * sum(statuses.values())}}
        said |= {"latencyPercentiles": dict.fromkeys(names, 0.001), "statusCodeDistribution": statuses, "errorDistribution": errors}
        return load.from_oha(said, 100)

    def test_misses_and_errors_void_a_row_at_a_fixed_rate(self):
        self.assertIsNone(load.void(self.oha({"200": 100}, {"aborted due to deadline": 64}), 60))
        self.assertIn("'status': 1", load.void(self.oha({"200": 99, "421": 1}, {}), 60))
        self.assertIn("'errors': 3", load.void(self.oha({"200": 99}, {"connection refused": 3}), 60))
        self.assertIn("least to expect", load.void(self.oha({"200": 99}, {}), 200))


class Targets(unittest.TestCase):
    """A server that somebody else runs."""

    def test_what_cannot_be_seen_of_a_target_is_said_and_is_no_number(self):
        here = stage(self)
        with mock.patch.object(bounds, "GENERATORS", {"wrk": slow}), mock.patch.object(tools, "oha", lambda: None):
            lines = bounds.table(here.rig, here.question, here.args, here.folder)
        self.assertEqual([line.verdict for line in lines], ["holds", "not measured", "not measured", "not measured"])
        rows = [json.loads(line) for line in (here.folder.path / "raw.jsonl").read_text().splitlines()]
        self.assertEqual({row["cpu_us"] for row in rows}, {None})

    def test_the_generator_has_all_processors_where_no_server_is(self):
        with mock.patch.object(load, "PROCESSORS", 4), mock.patch.object(load.shutil, "which", lambda _: "/taskset"):
            self.assertEqual(load.pinned(["wrk"], pretend()), ["taskset", "-c", "0-3", "wrk"])
            self.assertEqual(load.pinned(["wrk"], types.SimpleNamespace(pid=1)), ["taskset", "-c", "1", "wrk"])


class Little(unittest.TestCase):
    def test_a_sweep_of_void_rows_has_a_report(self):
        sweep = script("sweep")
        self.assertEqual(sweep.verdict({}, {}, {}), "### Verdict\n")
        row = {"rps": 100.0, "p50_us": 1e3}
        text = sweep.verdict(["neve", "peer"], {("neve", 1): [row], ("peer", 4): [row]}, {})
        self.assertIn("neve against peer: void", text)

    def test_the_law_is_of_the_median_of_rounds(self):
        self.assertEqual(closed.little_verdict([1.0, 1.3, 1.02]), "holds (1.02)")
        self.assertEqual(closed.little_verdict([0.9, 0.9]), "does not hold: 0.90")
        self.assertEqual(closed.little_verdict(None), "not seen")

    def test_the_law_holds_for_raw_latencies(self):
        here = stage(self)
        [shares] = closed.little(here.rig, here.question, here.args, here.folder, (2,)).values()
        self.assertTrue(closed.little_verdict(shares).startswith("holds"), shares)


FAKE_CARGO = """#!/bin/sh
mkdir -p "$CARGO_TARGET_DIR/release"
{ cat rust-toolchain.toml; above=$PWD; while [ "$above" != / ]; do cat "$above/.cargo/config.toml"; above=$(dirname "$above"); done; } \
  >"$CARGO_TARGET_DIR/release/neve" 2>/dev/null
"""


class Programs(unittest.TestCase):
    def setUp(self):
        directory = tempfile.TemporaryDirectory()
        self.addCleanup(directory.cleanup)
        self.directory = pathlib.Path(directory.name)

    def program(self, name, text):
        path = self.directory / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        path.chmod(0o755)
        return path

    def test_a_commit_is_built_with_its_own_settings(self):
        root = self.directory / "root"
        (root / ".cargo").mkdir(parents=True)
        git = ["git", "-C", root, "-c", "user.name=a", "-c", "user.email=a@b"]
        for settings in ("old", "new"):
            (root / "rust-toolchain.toml").write_text(f"{settings} Rust\n")
            (root / ".cargo/config.toml").write_text(f"{settings} settings\n")
            for command in (["init", "-q"], ["add", "-A"], ["commit", "-qm", settings]):
                subprocess.run([*git, *command], check=True)
        self.program("bin/cargo", FAKE_CARGO)
        path = {"PATH": f"{self.directory / 'bin'}:{os.environ['PATH']}"}
        with mock.patch.multiple(tools, ROOT=root, CACHE=root / "target/bench"), mock.patch.dict(os.environ, path):
            kept = script("ab").binary("HEAD~1")
        self.assertEqual(kept.read_text(), "old Rust\nold settings\n")

    def test_what_is_built_and_filled_may_use_all_processors(self):
        def build(*_, threads):
            seen.append((len(os.sched_getaffinity(0)), os.environ.get("GOMAXPROCS"), threads))
            raise KeyboardInterrupt

        seen, before = [], os.sched_getaffinity(0)
        with mock.patch.object(setup, "real_node", build), self.assertRaises(KeyboardInterrupt):
            setup.start(types.SimpleNamespace(servers="node", blocks=1, target=[]), threads=1)
        self.assertEqual((seen, os.sched_getaffinity(0)), ([(len(before), None, 1)], before))

    def test_a_node_has_its_number_of_threads(self):
        given = {"NEVE_TEST_AVALANCHEGO": str(self.program("node", "#!/bin/sh\necho threads $GOMAXPROCS\n"))}
        with mock.patch.dict(os.environ, given), self.assertRaises(SystemExit):
            node.Node(self.directory / "own", environment={"GOMAXPROCS": "3"})
        self.assertEqual((self.directory / "own/node.log").read_text(), "threads 3\n")

    def test_versions_have_generators_the_floor_and_what_a_launcher_starts(self):
        wrk, floor, launcher = (self.program(name, f"#!/bin/sh\necho {name} 1\n") for name in ("wrk", "neve-floor", "confined"))
        process = types.SimpleNamespace(pid=None, poll=lambda: 0, wait=lambda *_: 0)
        here = rig.Rig()
        self.addCleanup(here.__exit__, None, None, None)
        here.floors["hashes"] = servers.Server("floor", process, "127.0.0.1:1", command=[floor])
        started = lambda *_, binary, name, **_how: servers.Server(name, process, "127.0.0.1:1", command=[binary])
        with mock.patch.object(servers, "neve", started):
            cold, bound = script("cold"), types.SimpleNamespace(path=self.directory)
            here.add(cold.confined(launcher.parent / "store", None, bound, cold.Way("neve", wrk)))
        with mock.patch.object(load, "programs", {wrk}):
            versions = here.versions()
        self.assertEqual({name: said["version"] for name, said in versions.items()}, {"neve": "wrk 1", "floor": "neve-floor 1", "wrk": "wrk 1"})
        self.assertEqual(versions["neve"]["sha256"], versions["wrk"]["sha256"])

    def test_disk_that_is_reserved_is_not_used(self):
        with (self.directory / "segment").open("wb") as file:
            os.posix_fallocate(file.fileno(), 0, 1 << 20)
            file.write(b"1" * (64 << 10))
            file.flush()
            os.fsync(file.fileno())
        self.assertEqual(sample.disk_bytes(self.directory), 64 << 10)
