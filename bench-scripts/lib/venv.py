"""matplotlib in an environment of its own, made when a figure is first drawn."""

import pathlib
import subprocess
import sys

from . import tools

REQUIREMENTS = pathlib.Path(__file__).resolve().parents[1] / "requirements.txt"
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
    """Draws the figures of a run's folder. A run without figures is still a run."""
    try:
        subprocess.run([python(), DRAWER, folder], check=True, stdout=subprocess.DEVNULL)
    except (OSError, subprocess.CalledProcessError) as error:
        print(f"no figures: {error}", file=sys.stderr)
