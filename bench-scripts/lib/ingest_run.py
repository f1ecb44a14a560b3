"""One ingest from nothing: started, watched, asked while it goes on, verified; perhaps killed in between."""

import json
import os
import random
import shutil
import signal
import subprocess
import threading
import time

from . import load, sample, servers, stats, tools
from .ingest_watch import Histogram, Watch, metrics, total
from .rpc import Client

RATE = 50
# Newest blocks that are asked for: older ones may have been evicted.
ASKED = 1000
SECONDS_MAX = 3600


class Run:
    """A store that is filled. Everything of it goes into `events`, a line of JSON each."""

    def __init__(self, name, setting, upstream, head, directory, events, way="catch-up", retain="none"):
        self.name, self.setting, self.upstream, self.head, self.way = name, setting, upstream, head, way
        self.retain = retain
        self.store, self.events = directory / "store", events
        self.log = directory / f"{name}.log"
        self.began, self.upward = time.monotonic(), way == "catch-up"

    def event(self, kind, **told):
        self.events.write(json.dumps({"run": self.name, "event": kind, "at_s": round(time.monotonic() - self.began, 3), **told}) + "\n")

    def start(self):
        begin = ["--start", "1"] if self.upward else ["--start", "latest", "--backfill-to", "1"]
        command = [tools.neve(), "serve", "--data-dir", self.store, "--upstream", f"http://{self.upstream.address}"]
        command += [*begin, "--retain-bytes", self.retain, "--threads", "1", "--listen", "127.0.0.1:0"]
        command += ["--recover-senders", "never", "--log-format", "json", *self.setting.options()]
        server = servers.spawn("neve", command, log=self.log, environment=self.setting.environment)
        load.commands.append(tools.told(command))
        self.event("start", command=tools.told(command), environment=self.setting.environment)
        return server

    def measure(self, kill_at=None):
        """The whole of it. With `kill_at` it is killed at that height, and started again."""
        shutil.rmtree(self.store, ignore_errors=True)
        restarts = self.killed(kill_at) if kill_at else None
        server = self.start()
        try:
            watch, asker = Watch(server, self.event, self.head, self.upward), None
            watch.start()
            asker = Asker(server.address, watch)
            asker.start()
            watch.wait(SECONDS_MAX)
            found = self.found(server, watch, asker.stop())
            found["alone_ms"] = percentiles(Asker(server.address, watch).measure(1.0))
        finally:
            server.stop()
        found |= self.verified() | {"disk_bytes": sample.disk_bytes(self.store), "killed": restarts}
        self.event("end", **found)
        shutil.rmtree(self.store, ignore_errors=True)
        return found

    def killed(self, height):
        """Killed without warning as soon as it has the height; what it has then is what it goes on from."""
        server = self.start()
        watch = Watch(server, self.event, self.head, self.upward)
        watch.start()
        watch.wait(SECONDS_MAX, height)
        os.kill(server.pid, signal.SIGKILL)
        server.process.wait()
        watch.stop()
        self.event("killed", have=watch.have)
        return {"at": watch.have}

    def found(self, server, watch, asked):
        """Figures of the run, from what was seen of it."""
        rows, last = watch.samples, watch.samples[-1]
        series, seconds = metrics(server.admin), last["s"]
        blocks, cpu = last["have"] - rows[0]["have"], last["cpu_s"]
        answers, syncs = Histogram(series, "neve_upstream_response_duration_seconds"), Histogram(series, "neve_store_fsync_duration_seconds")
        return {
            "run": self.name, "setting": self.setting.name, "way": self.way, "blocks": blocks, "elapsed_s": seconds, "cpu_s": cpu,
            "blocks_s": blocks / seconds, "blocks_cpu_s": blocks / cpu, "logs": last["logs"], "logs_s": last["logs"] / seconds,
            "fetched_bytes": last["fetched"], "mib_s": last["fetched"] / seconds / 2**20,
            "anonymous_bytes": watch.most, "resident_bytes": max(row["resident"] for row in rows),
            "swapped_bytes": max(row["swapped"] for row in rows),
            "cpu": of_processors(rows), **machine_shares(rows), "stages": last["stages"],
            "batches": answers.count, "batch_ms": {share: answers.percentile(share) * 1000 for share in (50, 95, 99)},
            "parallel": answers.sum / seconds, "syncs": syncs.count, "sync_ms": {share: syncs.percentile(share) * 1000 for share in (50, 95)},
            "sync_s": syncs.sum, "stored_bytes": total(series, "neve_store_written_bytes_total"), "stored": self.stored(series),
            "refused": total(series, "neve_blocks_rejected_total"), "failed": total(series, "neve_upstream_call_errors_total"),
            "budget_share": sum(row["budget"] for row in rows) / len(rows) / (self.setting.queue_mib << 20),
            "serving_ms": percentiles(asked), "asked": len(asked),
        }  # fmt: skip

    def stored(self, series):
        return total(series, "neve_blocks_stored_total") + total(series, "neve_blocks_backfilled_total")

    def verified(self):
        """What `neve verify` says of the store: every block proven again, and the digest of all."""
        command = [tools.neve(), "verify", "--data-dir", self.store, "--digest", "--json"]
        done = subprocess.run(command, capture_output=True, text=True)
        lines = [json.loads(line) for line in done.stdout.splitlines()]
        summary = next((line for line in lines if line.get("summary")), None)
        if done.returncode or not summary:
            raise SystemExit(f"{self.name}: the store does not verify: {done.stdout[-500:]}{done.stderr[-500:]}")
        return {"digest": summary["digest"], "records": summary["records"], "segments": summary["segments"]}


def of_processors(rows):
    """Share of all processors that neve had from sample to sample, in percent."""
    steps = [(b["cpu_s"] - a["cpu_s"]) / max(b["s"] - a["s"], 1e-9) / (os.cpu_count() or 1) * 100 for a, b in zip(rows, rows[1:])]
    steps = steps or [0.0]
    return {"avg": sum(steps) / len(steps), "p95": stats.percentile(steps, 95), "max": max(steps)}


def machine_shares(rows):
    """Of the machine: waiting for the disk and stolen, in percent of all processors' time."""
    shares = [sample.shares(a["machine"], b["machine"]) for a, b in zip(rows, rows[1:])] or [{"iowait": 0, "steal": 0}]
    return {name: {"avg": sum(row[name] for row in shares) / len(shares) * 100, "p95": stats.percentile([row[name] for row in shares], 95) * 100}
            for name in ("iowait", "steal")}  # fmt: skip


def percentiles(latencies):
    return {share: stats.percentile(latencies, share) * 1000 for share in (50, 99)} if latencies else {}


class Asker(threading.Thread):
    """Asks for blocks that are there, at fixed times, and counts from those."""

    def __init__(self, address, watch):
        super().__init__(daemon=True)
        self.client, self.watch, self.latencies = Client(address), watch, []
        self.chance, self.over, self.failed = random.Random(1), threading.Event(), None

    def run(self):
        began, number = time.monotonic(), 0
        while not self.over.wait(max(0.0, began + number / RATE - time.monotonic())):
            due = began + number / RATE
            number += 1
            # A store that begins empty has nothing to ask for at first.
            if self.watch.head:
                self.ask(due)

    def ask(self, due):
        try:
            self.client.call("eth_getBlockByNumber", hex(self.height()), False)
            self.latencies.append(time.monotonic() - due)
        except (OSError, ValueError) as error:
            self.failed = error

    def height(self):
        return self.chance.randint(max(self.watch.lowest, self.watch.head - ASKED), self.watch.head)

    def stop(self):
        self.over.set()
        self.join()
        if self.failed:
            raise SystemExit(f"a request during ingest failed: {self.failed}")
        return self.latencies

    def measure(self, seconds):
        self.start()
        time.sleep(seconds)
        return self.stop()
