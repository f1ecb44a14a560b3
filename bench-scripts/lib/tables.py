"""Tables of a head-to-head run."""

import re

from . import bounds, rows, stats
from .folder import table

OTHERS = {"peer": "neve 0.2.2", "node": "avalanchego"}
# A neve that has packed all heights that are asked for.
PACKED = {"packed": "neve, packed"}
# Microseconds that a packed height may take more.
PACKED_AT_MOST = {"receipts": 45, "transaction": 12, "receipt": 12}
# Of a server that somebody else runs.
ELSEWHERE = "no process here"
# The bounds are set for blocks with hashes; what else is asked is measured against the same ones.
BOUND_ROWS = ("hashes",)


def titles(versions):
    """What servers are called: a node by its version, since they differ."""
    said = versions.get("node", {}).get("version", "")
    number = re.match(r"avalanchego/([0-9.]+)", said)
    return OTHERS | ({"node": f"avalanchego v{number[1]}"} if number else {})


def cost_bounds(costs, voided, called=OTHERS, names=BOUND_ROWS):
    """The ratios of neve's cost that are bound, as far as both sides were measured; void where neve or its floor is."""
    found = []
    for name in names:
        found += [line(name, f"{who}: {why}", "an answer", "void") for who in ("neve", "floor") if (why := voided.get((name, who)))]
        ours = costs.get((name, "neve"))
        if not ours:
            continue
        if floor := costs.get((name, "floor")):
            ratio = stats.estimate(stats.ratios(ours, floor))
            verdict = stats.verdict_at_most(ratio, bounds.FLOOR_AT_MOST)
            found.append(line(name, f"{ratio.text()} of the floor", f"at most {bounds.FLOOR_AT_MOST}", verdict))
        for other, title in called.items():
            if theirs := costs.get((name, other)):
                ratio = stats.estimate(stats.ratios(theirs, ours))
                verdict = stats.verdict_at_least(ratio, bounds.OTHERS_AT_LEAST)
                text = f"{title} takes {ratio.text(1)} times as much"
                found.append(line(name, text, f"at least {bounds.OTHERS_AT_LEAST:.0f}", verdict))
    return found


def packed_bounds(costs):
    """Microseconds that packed heights take more than unpacked ones, where that is bound."""
    found = []
    for name, bound in PACKED_AT_MOST.items():
        packed, unpacked = costs.get((name, "packed")), costs.get((name, "neve"))
        if packed and unpacked:
            more = stats.estimate([a - b for a, b in zip(packed, unpacked, strict=True)])
            verdict = stats.verdict_at_most(more, bound)
            found.append(line(name, f"packed, {more.text(1)} us more than unpacked", f"at most {bound}", verdict))
    return found


def line(name, measured, bound, verdict):
    return bounds.Line(rows.BY_NAME[name].title, measured, bound, verdict)


def head_to_head(questions, costs, voided, found, missing, called=OTHERS):
    """The table of costs, the bounds, and why anything is missing."""
    parts = ["## Processor time a request, 16 connections, one server thread", ""]
    parts += ["Microseconds, median (least..most of the rounds); ratios round by round.", ""]
    named = called | PACKED
    parts += [costs_table(questions, costs, voided, named), "", *coded(questions, named), "## Bounds", ""]
    lines = [*cost_bounds(costs, voided, called), *packed_bounds(costs), *found]
    parts.append(table(["what", "measured", "bound", ""], [[l.name, l.measured, l.bound, l.verdict] for l in lines]))
    rows_of = {question.row.name: question.row.title for question in questions}
    return "\n".join([*parts, *notes(voided, missing, rows_of)])


def coded(questions, called):
    """Where an answer may be coded, who does it."""
    lines = []
    for question in questions:
        if question.row.headers:
            sent = ", ".join(f"{called.get(name, name)} {size:,.0f}" for name, size in question.sent.items())
            lines.append(f"{question.row.title}: neve runs with `--precompress gzip`, which is off by default, and the floor gives its")
            lines.append(f"answers; avalanchego and neve 0.2.2 answer uncompressed. Bytes of an answer with its head: {sent}.")
    return [*lines, ""] if lines else []


def notes(voided, missing, titles):
    """Rows that count for nothing, and servers that are not there."""
    lines = [f"- {titles[row]}, {OTHERS.get(server, server)}: {why}" for (row, server), why in voided.items() if why != "not served"]
    lines += [f"- without {OTHERS.get(name, name)}: {why}" for name, why in missing.items()]
    return ["", "Not measured:", "", *lines] if lines else []


def costs_table(questions, costs, voided, called=OTHERS):
    others = [name for name in servers_in(costs) if name in OTHERS or name not in ("neve", "floor")]
    headings = ["request", "bytes, mean / most", "floor", "neve", "of the floor"]
    for name in others:
        headings += [called.get(name, name), "of neve"]
    return table(headings, [costs_row(question, costs, voided, others) for question in questions])


def servers_in(costs):
    return list(dict.fromkeys(server for _, server in costs))


def costs_row(question, costs, voided, others):
    name = question.row.name
    ours, floor = costs.get((name, "neve")), costs.get((name, "floor"))
    size = f"{question.bytes_mean:,.0f} / {question.bytes_most:,}"
    cells = [question.row.title, size, text(floor), ELSEWHERE if ours == [] else text(ours), ratio(ours, floor)]
    for other in others:
        theirs = costs.get((name, other))
        nothing = "not served" if voided.get((name, other)) == "not served" else "void"
        cells += [text(theirs), ratio(theirs, ours, 1)] if theirs else [nothing if theirs is None else ELSEWHERE, "-"]
    return cells


def text(values):
    return stats.estimate(values).text(1) if values else "-"


def ratio(values, of, digits=2):
    return stats.estimate(stats.ratios(values, of)).text(digits) if values and of else "-"
