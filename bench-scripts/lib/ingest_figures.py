"""Figures of an ingest run, from its events and its raw data."""

import collections
import json

import matplotlib.pyplot as plt

MIB = 1 << 20


def draw(folder, save):
    """What there is to see of a run of `bench-scripts/ingest`."""
    raw = [json.loads(line) for line in (folder / "raw.jsonl").read_text().splitlines()]
    samples = collections.defaultdict(list)
    for line in (folder / "events.jsonl").read_text().splitlines():
        row = json.loads(line)
        if row["event"] == "sample":
            samples[row["run"]].append(row)
    files = []
    for profile in dict.fromkeys(row["run"].split("-0-")[0].removesuffix("-killed") for row in raw if "-0-" in row["run"]):
        own = [row for row in raw if row["run"].startswith(profile) and not row["killed"]]
        first = {name: rows for name, rows in samples.items() if name.startswith(f"{profile}-0-")}
        files += over_time(profile, first, folder, save) + stages(profile, own, folder, save)
    return files


def over_time(profile, samples, folder, save):
    """Blocks, memory and room taken over time, of the first round."""
    figure, (blocks, memory, room) = plt.subplots(1, 3, figsize=(11, 3.6))
    for name, rows in samples.items():
        at, label = [row["s"] for row in rows], name.rsplit("-", 1)[1]
        blocks.plot(at, [row.get("have", row["head"]) for row in rows], label=label)
        memory.plot(at, [row["anonymous"] / MIB for row in rows], label=label)
        room.plot(at, [row["budget"] / MIB for row in rows], label=label)
    for axes, title in ((blocks, "blocks"), (memory, "memory apart from mapped files, MiB"), (room, "room taken by blocks on their way, MiB")):
        axes.set(title=title, xlabel="seconds", ylim=(0, None))
    blocks.legend()
    return save(figure, folder, f"{profile}-time")


def stages(profile, runs, folder, save):
    """Processor time a block by run, and what the stages took of it."""
    names = list(dict.fromkeys(row["setting"] for row in runs))
    figure, axes = plt.subplots(figsize=(8, 3.6))
    bottom = [0.0] * len(names)
    for stage in ("prove", "assemble", "write"):
        means = [mean([row["stages"][stage] / row["blocks"] * 1e6 for row in runs if row["setting"] == name]) for name in names]
        axes.bar(names, means, 0.6, bottom=bottom, label=stage)
        bottom = [low + high for low, high in zip(bottom, means)]
    cpu = [[row["cpu_s"] / row["blocks"] * 1e6 for row in runs if row["setting"] == name] for name in names]
    axes.errorbar(names, [mean(values) for values in cpu], [[mean(v) - min(v) for v in cpu], [max(v) - mean(v) for v in cpu]],
                  fmt="ko", markersize=4, label="processor time, all threads")  # fmt: skip
    axes.set(title=f"{profile}: µs a block (bars: time in a stage, waiting for a processor included)")
    axes.legend()
    return save(figure, folder, f"{profile}-stages")


def mean(values):
    return sum(values) / len(values)
