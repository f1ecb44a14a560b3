"""Arguments and steps of a session in Python: URL and facts in, a line of JSON for each step out."""

import json
import pathlib
import sys

url = sys.argv[1]
facts = json.loads(pathlib.Path(sys.argv[2]).read_text())


def step(name, ask, show=str):
    """Does a step. `show` makes plain data of its value."""
    try:
        line = {"step": name, "value": show(ask())}
    except BaseException as error:  # cryo raises panics of Rust
        line = {"step": name, "error": f"{type(error).__name__}: {error}"[:200]}
    print(json.dumps(line), flush=True)


def positive(value):
    return int(value) > 0


def reached(value):
    return int(value) >= facts["height"]
