"""An open loop on one connection, with raw latencies: for rates that one connection can keep."""

import json
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
