"""matplotlib in an environment of its own, made when a figure is first drawn."""

import pathlib
import subprocess
import sys

from . import tools

REQUIREMENTS = pathlib.Path(__file__).resolve().parents[1] / "requirements.txt"
# What `all` tells from a bound that was missed, which is 1.
BROKEN = 2
DRAWER = pathlib.Path(__file__).resolve().parents[1] / "draw"


def python():
    home = tools.CACHE / "venv"
    done = home / "made"
    if not done.exists() or done.read_text() != REQUIREMENTS.read_text():
        command = [sys.executable, "-m", "venv", home]
        tools.build("a Python environment for figures", command, home)
        install = [home / "bin/python", "-m", "pip", "install", "--quiet", "-r", REQUIREMENTS]
        tools.build("matplotlib", install, home)
        done.write_text(REQUIREMENTS.read_text())
    return home / "bin/python"


def draw(folder):
    """Draws the figures of a run's folder. Where matplotlib cannot be had a run is still a run; where it can,
    figures that break are a script that broke."""
    try:
        drawer = python()
    except (OSError, subprocess.CalledProcessError) as error:
        return print(f"no figures: {error}", file=sys.stderr)
    done = subprocess.run([drawer, DRAWER, folder], stdout=subprocess.DEVNULL)
    if done.returncode:
        raise SystemExit(BROKEN)
    return None
