"""Everyday steps with ponder: it indexes a contract's logs, and its handler reads a balance."""

import os
import pathlib
import shutil
import subprocess
import sys
import time

# Its database alone takes 20 s on a busy machine. ponder repeats a refused call for ever: five times are enough.
LIMIT_S, REFUSED = 220, "retry_count=5"
url, facts, project = sys.argv[1:4]
lines = pathlib.Path(f"{facts}.lines")
lines.unlink(missing_ok=True)
# Its database and its generated files stand in the project.
shutil.rmtree(pathlib.Path(project) / ".ponder", ignore_errors=True)
told = {**os.environ, "EVERYDAY_URL": url, "EVERYDAY_FACTS": facts, "EVERYDAY_LINES": str(lines), "PONDER_TELEMETRY_DISABLED": "true"}
command = ["node_modules/.bin/ponder", "start", "--schema", "everyday", "--hostname", "127.0.0.1", "--port", "0", "--log-level", "warn"]
said_there = pathlib.Path(f"{facts}.log")
with said_there.open("wb") as log:
    process = subprocess.Popen(command, cwd=project, env=told, stdout=log, stderr=log, stdin=subprocess.DEVNULL)


def said():
    return dict.fromkeys(lines.read_text().splitlines()) if lines.exists() else {}


end = time.monotonic() + LIMIT_S
while time.monotonic() < end and process.poll() is None and not any("balance" in line for line in said()):
    if REFUSED in said_there.read_text(errors="replace"):
        break
    time.sleep(0.2)
process.terminate()
process.wait()
print("\n".join(list(said())[:2]))
if not any("balance" in line for line in said()):
    print('{"step": "balance in a handler", "error": "repeated, or not in time"}')
