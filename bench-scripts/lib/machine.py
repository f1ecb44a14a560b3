"""The machine and the versions of a run, and what its numbers are fit for."""

import os
import pathlib
import platform
import subprocess

from . import sample, tools


def first_line(path, otherwise="unknown"):
    try:
        return pathlib.Path(path).read_text().splitlines()[0].strip()
    except (OSError, IndexError):
        return otherwise


def said(*command):
    try:
        return subprocess.run(command, capture_output=True, text=True, timeout=10, cwd=tools.ROOT).stdout.strip()
    except OSError:
        return ""


def describe():
    """Everything about this machine that a reader of a number would ask."""
    cpuinfo = pathlib.Path("/proc/cpuinfo").read_text()
    models = [line.split(":", 1)[1].strip() for line in cpuinfo.splitlines() if line.startswith(("model name", "Model"))]
    memory = dict(line.split(":", 1) for line in pathlib.Path("/proc/meminfo").read_text().splitlines())
    times = sample.machine_times()
    return {
        "processor": models[0] if models else platform.machine(),
        "processors": os.cpu_count(),
        "memory_gib": round(int(memory["MemTotal"].split()[0]) / 2**20, 1),
        "kernel": platform.release(),
        "system": said("sh", "-c", ". /etc/os-release && echo $PRETTY_NAME"),
        "governor": first_line("/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor", "none to see (a virtual machine)"),
        "stolen_since_boot": round(times["steal"] / times["all"], 4),
        "load_average": [round(load, 2) for load in os.getloadavg()],
        "commit": said("git", "rev-parse", "--short=12", "HEAD"),
        "uncommitted": bool(said("git", "status", "--porcelain", "--untracked-files=no")),
        "rustc": said("rustc", "--version"),
        "fit_for": fitness(),
    }


def fitness():
    """Two processors hold a server and a generator, and then nothing is left for the rest."""
    if (os.cpu_count() or 1) < 4:
        return "ratios and processor time a request; not for absolute rates or latencies"
    return "ratios, processor time a request, and rates of one server thread over loopback"
