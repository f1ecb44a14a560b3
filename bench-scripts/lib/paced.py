"""An open loop on one connection, with raw latencies: for rates that one connection can keep."""

import contextlib
import json
import os
import random
import threading
import time

from .rpc import Client, fault_of


class Paced(threading.Thread):
    """Asks at fixed times, and counts from those times: a stall delays all that were due in it."""

    def __init__(self, server, bodies, rate, seconds, seed=1):
        super().__init__(daemon=True)
        self.client = Client(server.address, server.path)
        self.bodies, self.rate, self.seconds = bodies, rate, seconds
        self.chance, self.latencies, self.failed = random.Random(seed), [], None

    def run(self):
        first_in_line()
        began = time.monotonic()
        for number in range(int(self.rate * self.seconds)):
            due = began + number / self.rate
            time.sleep(max(0, due - time.monotonic()))
            status, _, answer = self.client.exchange(self.chance.choice(self.bodies))
            self.latencies.append(time.monotonic() - due)
            if status != 200 or b'"result":null' in answer[:64] or b'"error"' in answer[:64]:
                self.failed = fault_of(status, json.loads(answer))
        self.client.close()

    def measure(self):
        """Latencies in seconds, raw; none may have failed."""
        self.start()
        self.join()
        if self.failed:
            raise SystemExit(f"a paced request failed: {self.failed}")
        return self.latencies


def first_in_line():
    """Lets this thread run as soon as it can: it shares a processor with other load, and would
    otherwise count how long it waits for that one's turn to end. Who may not ask goes without."""
    with contextlib.suppress(PermissionError):
        os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(1))
