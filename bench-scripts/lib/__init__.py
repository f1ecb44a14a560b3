"""What the benchmarks share. Python's standard library alone; figures.py wants matplotlib."""

import pathlib
import sys

# node.py and neve.py are also used by themselves and import each other by their bare names.
sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
