"""Figures from raw.jsonl: each is drawn if the run has what it shows."""

import collections
import json
import statistics

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt  # noqa: E402

# A server has its colour in every figure. Colours that people with colour blindness tell apart.
COLOURS = {"neve": "#0072B2", "floor": "#999999", "peer": "#D55E00", "node": "#CC79A7", "a": "#0072B2", "b": "#E69F00"}
TITLES = {"peer": "neve 0.2.2", "node": "avalanchego"}
# One date in every file: a figure that shows the same has the same bytes.
METADATA = {"svg": {"Date": None}, "png": {"Software": None}}


def draw(folder):
    """Draws what there is; gives the files."""
    plt.rcParams.update({"font.size": 9, "axes.grid": True, "grid.alpha": 0.3, "svg.hashsalt": "neve", "figure.figsize": (7, 4)})
    rows = [json.loads(line) for line in (folder / "raw.jsonl").read_text().splitlines()]
    kinds = collections.defaultdict(list)
    for row in rows:
        if not row.get("void"):
            kinds[row["kind"]].append(row)
    files = []
    for kind, figure in (("sweep", sweep), ("open", rate), ("cost", cost), ("watch", memory)):
        if kinds[kind]:
            files += figure(kinds[kind], folder)
    if kinds["ingest"]:
        from . import ingest_figures

        files += ingest_figures.draw(folder, save)
    return files


def save(figure, folder, name):
    figure.tight_layout()
    files = [folder / f"{name}.{suffix}" for suffix in ("svg", "png")]
    for file in files:
        figure.savefig(file, dpi=150, metadata=METADATA[file.suffix[1:]])
    plt.close(figure)
    return files


def series(rows, by, value):
    """Server to sorted points of `by`, median, least and most."""
    found = collections.defaultdict(lambda: collections.defaultdict(list))
    for row in rows:
        found[row["server"]][row[by]].append(row[value])
    return {
        name: [(at, statistics.median(values), min(values), max(values)) for at, values in sorted(points.items())]
        for name, points in found.items()
    }


def lines(axes, rows, by, value, scale=1.0, label=""):
    for name, points in series(rows, by, value).items():
        at, middle, low, high = zip(*points)
        style = {"color": COLOURS.get(name), "label": f"{TITLES.get(name, name)}{label}"}
        axes.plot(at, [value * scale for value in middle], marker="o", markersize=3, **style)
        axes.fill_between(at, [v * scale for v in low], [v * scale for v in high], alpha=0.2, color=COLOURS.get(name), linewidth=0)


def sweep(rows, folder):
    """Rate and median latency over connections."""
    figure, (rates, latencies) = plt.subplots(1, 2, figsize=(9, 4))
    lines(rates, rows, "connections", "rps")
    lines(latencies, rows, "connections", "p50_us", 1e-3)
    for axes, title in ((rates, "requests a second"), (latencies, "p50, ms")):
        axes.set(xscale="log", yscale="log", xlabel="connections", title=title)
        counts = sorted({row["connections"] for row in rows})
        axes.set_xticks(counts, [str(count) for count in counts])
        axes.minorticks_off()
    rates.legend()
    return save(figure, folder, "sweep")


def rate(rows, folder):
    """Latency over offered load: p50 and p99 from the time that a request was due."""
    if len({row.get("rate") for row in rows}) < 2 or "share" not in rows[0]:
        return []
    figure, both = plt.subplots(1, 2, figsize=(9, 4), sharey=True)
    for axes, key, title in zip(both, ("p50_us", "p99_us"), ("p50", "p99")):
        lines(axes, rows, "share", key, 1e-3)
        axes.set(yscale="log", xlabel="offered load, % of the server's own capacity", title=f"{title}, ms from the intended time")
    both[0].legend()
    return save(figure, folder, "rate")


def cost(rows, folder):
    """Processor time a request by kind of request and server, on a log scale: it spans three orders."""
    kinds, servers = (list(dict.fromkeys(row[key] for row in rows)) for key in ("row", "server"))
    order = [name for name in ("floor", "neve", "peer", "node") if name in servers]
    order += [name for name in servers if name not in order]
    figure, axes = plt.subplots(figsize=(9, 4))
    for place, name in enumerate(order):
        middles, ats = [], []
        for at, kind in enumerate(kinds):
            values = [row["cpu_us"] for row in rows if row["row"] == kind and row["server"] == name]
            if values:
                middles.append((statistics.median(values), min(values), max(values)))
                ats.append(at + (place - (len(order) - 1) / 2) * 0.8 / len(order))
        heights = [middle for middle, _, _ in middles]
        errors = [[m - low for m, low, _ in middles], [high - m for m, _, high in middles]]
        axes.bar(ats, heights, 0.8 / len(order), yerr=errors, color=COLOURS.get(name), label=TITLES.get(name, name), error_kw={"linewidth": 0.8})
    axes.set(yscale="log", ylabel="processor µs a request (least to most of the rounds)")
    axes.set_xticks(range(len(kinds)), kinds, rotation=20)
    axes.grid(axis="x", visible=False)
    axes.legend()
    return save(figure, folder, "cpu")


def memory(rows, folder):
    """Resident memory over time."""
    figure, axes = plt.subplots()
    for name in dict.fromkeys(row["server"] for row in rows):
        own = [row for row in rows if row["server"] == name]
        style = {"color": COLOURS.get(name)}
        axes.plot([row["s"] for row in own], [row["resident"] / 2**20 for row in own], label=TITLES.get(name, name), **style)
        axes.plot([row["s"] for row in own], [row["anonymous"] / 2**20 for row in own], linestyle=":", **style)
    axes.set(yscale="log", xlabel="seconds, servers under load one after the other", ylabel="MiB (dotted: anonymous)")
    axes.legend()
    return save(figure, folder, "memory")
