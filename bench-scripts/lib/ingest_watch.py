"""A process that ingests, looked at several times a second: what it has, what it takes, where time goes."""

import contextlib
import re
import threading
import time
import urllib.request

from . import sample, tools

LINE = re.compile(r"^(\w+)(?:\{([^}]*)\})? (\S+)$")


def metrics(address):
    """Series by name and labels, as /metrics has them."""
    with urllib.request.urlopen(f"http://{address}/metrics", timeout=10) as answer:
        text = answer.read().decode()
    found = (LINE.match(line) for line in text.splitlines() if not line.startswith("#"))
    return {(match[1], match[2] or ""): float(match[3]) for match in found if match}


def total(series, name):
    return sum(value for (other, _), value in series.items() if other == name)


def stages(series):
    """Seconds by stage, over all threads."""
    return {labels.split('"')[1]: value for (name, labels), value in series.items() if name == "neve_ingest_stage_seconds_total"}


class Histogram:
    """A histogram's buckets, of which percentiles are read as well as they tell."""

    def __init__(self, series, name):
        self.count, self.sum = total(series, f"{name}_count"), total(series, f"{name}_sum")
        bounds = {}
        for (other, labels), value in series.items():
            if other == f"{name}_bucket":
                bound = float(re.search(r'le="([^"]+)"', labels)[1])
                bounds[bound] = bounds.get(bound, 0) + value
        self.buckets = sorted(bounds.items())

    def percentile(self, share):
        """By straight lines within a bucket; the last bound for what is beyond it."""
        wanted, below, least = self.count * share / 100, 0, 0.0
        for bound, count in self.buckets:
            if count >= wanted and count > below:
                if bound == float("inf"):
                    return least
                return least + (bound - least) * (wanted - below) / (count - below)
            below, least = count, bound if bound != float("inf") else least
        return least


class Watch(threading.Thread):
    """Samples until it is told to end, each also given to `event`."""

    EVERY = 0.2
    # Memory has peaks that are shorter.
    LOOKS = 5

    def __init__(self, server, event, blocks, upward):
        super().__init__(daemon=True)
        self.server, self.event, self.wanted, self.upward = server, event, blocks, upward
        self.samples, self.over, self.reached = [], threading.Event(), threading.Event()
        self.began, self.most = time.monotonic(), 0

    @property
    def head(self):
        return self.samples[-1]["head"] if self.samples else 0

    @property
    def have(self):
        return self.samples[-1]["have"] if self.samples else 0

    @property
    def lowest(self):
        return self.samples[-1]["first"]

    def look(self):
        machine, memory = sample.machine_times(), sample.memory(self.server.pid)
        series = metrics(self.server.admin)
        row = {"s": round(time.monotonic() - self.began, 3), "head": int(total(series, "neve_head_height")), "first": int(total(series, "neve_first_height")),
               "cpu_s": sample.cpu_seconds(self.server.pid), "anonymous": memory["anonymous"], "resident": memory["resident"],
               "swapped": memory.get("swapped", 0), "budget": total(series, "neve_ingest_reserved_bytes"), "queue": total(series, "neve_ingest_queue_bytes"),
               "under_way": total(series, "neve_upstream_in_flight_heights"), "window": total(series, "neve_upstream_concurrency_limit"),
               "fetched": total(series, "neve_upstream_received_bytes_total"), "logs": total(series, "neve_logs_stored_total"),
               "stages": stages(series), "machine": machine}  # fmt: skip
        # Upward the oldest may be evicted by now; downward the head is there from the beginning.
        served = row["head"] - row["first"] + 1 if row["head"] else 0
        row["have"] = row["head"] if self.upward else served
        self.samples.append(row)
        self.most = max(self.most, row["anonymous"])
        self.event("sample", **row)
        if row["have"] >= self.wanted:
            self.reached.set()

    def remember(self):
        with contextlib.suppress(OSError):
            self.most = max(self.most, sample.memory(self.server.pid).get("anonymous", 0))

    def run(self):
        while not self.over.is_set() and not self.reached.is_set():
            try:
                self.look()
            except (OSError, ValueError):
                break  # it was killed, or has ended
            for _ in range(self.LOOKS):
                self.over.wait(self.EVERY / self.LOOKS)
                self.remember()

    def stop(self):
        self.over.set()
        self.join()

    def wait(self, seconds, blocks=None):
        """Until it has so many, or all."""
        until = time.monotonic() + seconds
        while time.monotonic() < until:
            if self.have >= (blocks or self.wanted):
                return
            if not self.is_alive() and not self.reached.is_set():
                break
            time.sleep(0.02)
        raise SystemExit(f"neve has {self.have} blocks of {blocks or self.wanted}: {tools.told(self.server.command)}")
