"""What a process and the machine use: processor time to the nanosecond, memory, theft."""

import contextlib
import os
import pathlib
import threading
import time

from .process import cpu_seconds

TICKS = os.sysconf("SC_CLK_TCK")


def memory(pid):
    """Bytes: resident, of it anonymous and of files, and the peak."""
    wanted = {"VmRSS": "resident", "RssAnon": "anonymous", "RssFile": "file", "VmHWM": "peak", "VmSwap": "swapped"}
    found = {}
    with open(f"/proc/{pid}/status") as file:
        for line in file:
            name, _, rest = line.partition(":")
            if name in wanted:
                found[wanted[name]] = int(rest.split()[0]) * 1024
    return found


def serving_faults(pid):
    """How often threads that serve have waited for the disk: their major page faults."""
    faults = 0
    for thread in pathlib.Path(f"/proc/{pid}/task").iterdir():
        # Those that wait for the disk come and go; these stay.
        with contextlib.suppress(FileNotFoundError, ProcessLookupError):
            if thread.joinpath("comm").read_text().startswith("http-"):
                faults += int(thread.joinpath("stat").read_text().rsplit(")", 1)[1].split()[9])
    return faults


def machine_times():
    """Seconds of all processors: idle, of it waiting for the disk, stolen, all."""
    with open("/proc/stat") as file:
        fields = [int(field) / TICKS for field in file.readline().split()[1:9]]
    return {"idle": fields[3] + fields[4], "iowait": fields[4], "steal": fields[7], "all": sum(fields)}


def disk_bytes(directory):
    """What was written, not what is reserved or how long files are."""
    return sum(written(path) for path in pathlib.Path(directory).rglob("*") if path.is_file())


def written(path):
    """Without holes; the system calls a hole, too, what is reserved and not written."""
    with path.open("rb") as file:
        at, found, size = 0, 0, path.stat().st_size
        while at < size:
            try:
                data = os.lseek(file.fileno(), at, os.SEEK_DATA)
            except OSError:
                break  # nothing but a hole is left
            at = os.lseek(file.fileno(), data, os.SEEK_HOLE)
            found += at - data
        return found


def shares(before, after):
    spent = max(after["all"] - before["all"], 1e-9)
    return {name: (after[name] - before[name]) / spent for name in ("idle", "iowait", "steal")}


class Watch(threading.Thread):
    """Memory and processor time of processes over time, four times a second."""

    def __init__(self, pids, every=0.25):
        super().__init__(daemon=True)
        self.pids, self.every, self.rows = pids, every, []
        self.over = threading.Event()

    def run(self):
        began = time.monotonic()
        while not self.over.wait(self.every):
            for name, pid in self.pids.items():
                try:
                    row = {"s": time.monotonic() - began, "server": name, "cpu_s": cpu_seconds(pid), **memory(pid)}
                except (OSError, ValueError):
                    continue
                self.rows.append(row)

    def __enter__(self):
        self.start()
        return self

    def __exit__(self, *_):
        self.over.set()
        self.join()
