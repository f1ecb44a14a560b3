"""What a run leaves: one folder, from which every table and figure can be made again."""

import json
import pathlib
import sys
import time

from . import load, machine, tools


class Folder:
    """machine.json, commands.txt, raw.jsonl, report.md and figures of one run."""

    def __init__(self, name, out=None):
        stamp = time.strftime("%Y%m%d-%H%M%S", time.gmtime())
        self.name, self.began = name, time.monotonic()
        self.path = pathlib.Path(out) if out else tools.CACHE / "results" / f"{stamp}-{name}"
        self.path.mkdir(parents=True, exist_ok=True)
        self.machine = machine.describe()
        self.machine |= {"began": time.strftime("%Y-%m-%d %H:%M UTC", time.gmtime()), "arguments": tools.told(sys.argv)}
        self.voids = []
        self.raw = (self.path / "raw.jsonl").open("w")

    def add(self, **row):
        """Keeps one measurement, whatever it becomes in a table; why it counts for nothing goes into the report."""
        self.raw.write(json.dumps(row, allow_nan=False) + "\n")
        self.raw.flush()
        if row.get("void"):
            self.voids.append(void_line(row))

    def finish(self, text, versions=None, figures=True):
        """Writes the report, prints it, and draws; returns what it printed."""
        self.raw.close()
        if self.voids:
            text = "\n".join([text, "", "Void, and in no table:", "", *dict.fromkeys(self.voids)])
        self.machine |= {"versions": versions or {}, "builds_s": tools.builds}
        self.machine["took_s"] = round(time.monotonic() - self.began - sum(tools.builds.values()), 1)
        (self.path / "machine.json").write_text(json.dumps(self.machine, indent=1, default=str) + "\n")
        (self.path / "commands.txt").write_text("\n".join(load.commands) + "\n")
        (self.path / "report.md").write_text(f"{header(self)}\n{text}\n")
        print(text)
        print(f"\n{self.machine['took_s']} s, builds apart: {tools.builds or 'none'}. Everything is in {self.path}")
        if figures:
            from . import venv

            venv.draw(self.path)
        return text


def void_line(row):
    at = f" at {row['connections']} connections" if "connections" in row else ""
    return f"- {row['kind']}, {row['row']}, {row['server']}{at}: {row['void']}"


def header(folder):
    about = folder.machine
    lines = [
        f"# {folder.name}, {about['began']}",
        "",
        f"{about['processor']}, {about['processors']} processors, {about['memory_gib']} GiB, Linux {about['kernel']},"
        f" {about['system']}. Load average at the start {about['load_average'][0]}. Scripts at {about['commit']}"
        f"{' with uncommitted changes' if about['uncommitted'] else ''}. Fit for: {about['fit_for']}.",
        "",
        f"`{about['arguments']}`",
        "",
    ]
    return "\n".join(lines)


def table(headings, rows):
    """A Markdown table, numbers to the right, aligned for a terminal too."""
    cells = [[str(cell) for cell in row] for row in [headings, *rows]]
    widths = [max(3, *(len(row[at]) for row in cells)) for at in range(len(headings))]
    lines = []
    for number, row in enumerate(cells):
        texts = [cell.ljust(width) if at == 0 else cell.rjust(width) for at, (cell, width) in enumerate(zip(row, widths))]
        lines.append("| " + " | ".join(texts) + " |")
        if number == 0:
            rule = ["-" * widths[0]] + ["-" * (width - 1) + ":" for width in widths[1:]]
            lines.append("| " + " | ".join(rule) + " |")
    return "\n".join(lines)
