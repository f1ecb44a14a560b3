"""A process that a script starts: waited for, watched, and ended by its own id."""

import socket
import subprocess
import time

STOP_S = 60


def end(process):
    """Ends a process as an operator would, and by force if it does not end."""
    if process.poll() is None:
        process.terminate()
        try:
            process.wait(STOP_S)
        except subprocess.TimeoutExpired:
            process.kill()
    process.wait()


def wait_until(look, what, seconds, process=None):
    """What `look` finds, as soon as that is something. Gives up when `process` has ended."""
    until = time.monotonic() + seconds
    while not (found := look()):
        if process and process.poll() is not None:
            raise SystemExit(f"{what}: ended with {process.returncode}")
        if time.monotonic() > until:
            raise SystemExit(f"{what}: not there after {seconds} s")
        time.sleep(0.1)
    return found


def cpu_seconds(pid):
    """Processor time of a whole process, ended threads included, in nanosecond steps.

    The clock of clock_getcpuclockid(3). /proc/PID/schedstat knows one thread, /proc/PID/stat counts
    in hundredths of a second.
    """
    return time.clock_gettime((~pid << 3) | 2)


def free_port():
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return listener.getsockname()[1]
