"""What is varied in an ingest: the six settings of a published log, as neve has them.

The log is that of vicnaum/shinode's ingest of a million Ethereum blocks (January 2026, 12 processors,
peers of a live network). Its settings and ours:

| there | here |
| --- | --- |
| allocator: system, jemalloc | jemalloc is built in; "system" runs with jemalloc's own defaults, which keep memory |
| batches in flight | `--upstream-concurrency-max` |
| blocks a batch | always one: block and receipts of a height in one request |
| time-out | `--upstream-request-timeout` |
| blocks buffered | `--ingest-bytes-max`, which counts bytes: 2,048 blocks there are 8 MiB here, in the same steps |
| failed blocks, 1.3 % | the upstream refuses 13 of 1,000 |
"""

from dataclasses import dataclass, field

MIB = 1 << 20
# Memory apart from mapped files, beyond what may be on its way.
BESIDES_BYTES = 64 * MIB
JEMALLOC_DEFAULTS = "narenas:8,dirty_decay_ms:10000,muzzy_decay_ms:0"


@dataclass(frozen=True)
class Profile:
    """Blocks of one kind, and the blocks a second of neve's processor time that are demanded of them."""

    name: str
    title: str
    bound: int
    # By default, and with --quick.
    blocks: tuple


PROFILES = {
    profile.name: profile
    for profile in (
        Profile("c-chain", "C-chain blocks of mainnet's size", 1500, (4500, 2000)),
        Profile("many-logs", "blocks of 273 KB encoded, logs p50 597 and p95 1,810", 250, (600, 250)),
    )
}


@dataclass(frozen=True)
class Setting:
    """One way to run neve, and the upstream that it gets."""

    name: str
    concurrency: int = 64
    queue_mib: int = 32
    timeout_s: int = 10
    # Whether the upstream is slow and fails as in the log, or is as good as it can be.
    hard: bool = False
    allocator: str = "built in"
    environment: dict = field(default_factory=dict, hash=False)

    def options(self):
        options = ["--upstream-concurrency-max", self.concurrency, "--ingest-bytes-max", f"{self.queue_mib}MiB"]
        return [str(word) for word in [*options, "--upstream-request-timeout", f"{self.timeout_s}s"]]

    @property
    def memory_bound(self):
        """None where the allocator is told to keep what is free."""
        return None if self.environment else self.queue_mib * MIB + BESIDES_BYTES


def setting(name, concurrency, queue_mib, timeout_s, system=False):
    environment = {"_RJEM_MALLOC_CONF": JEMALLOC_DEFAULTS} if system else {}
    allocator = "its defaults" if system else "built in"
    return Setting(name, concurrency, queue_mib, timeout_s, True, allocator, environment)


PLAIN = Setting("baseline")
SIX = [
    setting("A", 15, 8, 5, system=True),
    setting("B", 15, 8, 5),
    setting("C", 30, 16, 10, system=True),
    setting("D", 30, 16, 10),
    setting("E", 60, 32, 15),
    setting("F", 60, 64, 15),
]
