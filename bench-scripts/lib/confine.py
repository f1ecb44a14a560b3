"""A bound on a process's memory, page cache included: a cgroup, of whichever version is writable."""

import os
import pathlib
import time

ROOT = pathlib.Path("/sys/fs/cgroup")
MISSING = (
    "no memory cgroup can be made here. As root on a usual machine it can; in a container it needs a writable"
    " /sys/fs/cgroup (docker run --privileged --cgroupns=private), or start this under"
    " `systemd-run --user --scope -p MemoryMax=...` with --bytes none"
)


class Bound:
    """A cgroup of this process's making, with a limit in bytes."""

    def __init__(self, limit):
        self.v2 = "memory" in read(ROOT / "cgroup.controllers").split()
        base = ROOT if self.v2 else ROOT / "memory"
        self.path = base / f"neve-bench-{os.getpid()}"
        try:
            if self.v2:
                (base / "cgroup.subtree_control").write_text("+memory")
            self.path.mkdir()
            (self.path / ("memory.max" if self.v2 else "memory.limit_in_bytes")).write_text(str(limit))
        except OSError as error:
            raise SystemExit(f"{MISSING} ({error})") from error

    def remove(self):
        """Once its processes are gone; the kernel may need a moment for that."""
        for _ in range(50):
            try:
                return self.path.rmdir()
            except OSError:
                time.sleep(0.1)
        return None


def read(path):
    try:
        return path.read_text()
    except OSError:
        return ""


def drop(directory):
    """Gives up the cached pages of files that nobody maps."""
    for path in pathlib.Path(directory).rglob("*"):
        if path.is_file():
            with path.open("rb") as file:
                os.fsync(file.fileno())
                os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


def disk_rate(directory, bytes_max=64 << 20):
    """Bytes a second of the disk, and seconds of a random page: what cold requests can have at best."""
    path = max((path for path in pathlib.Path(directory).rglob("*") if path.is_file()), key=lambda path: path.stat().st_size)
    drop(directory)
    with path.open("rb", buffering=0) as file:
        began, got = time.monotonic(), 0
        while got < bytes_max and (part := file.read(1 << 20)):
            got += len(part)
        rate = got / (time.monotonic() - began)
    drop(directory)
    size, pages = path.stat().st_size, 200
    with path.open("rb", buffering=0) as file:
        os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_RANDOM)
        began = time.monotonic()
        for at in range(pages):
            os.pread(file.fileno(), 4096, at * 7919 * 4096 % size)
        page = (time.monotonic() - began) / pages
    drop(directory)
    return rate, page
