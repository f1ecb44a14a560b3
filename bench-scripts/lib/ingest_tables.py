"""Tables and verdicts of ingest runs: the columns of the published log, and what is demanded."""

import os
import statistics

from . import stats
from .bounds import Line
from .folder import table
from .ingest_settings import MIB

# Shares of time from which on a stage is what the others wait for.
BUSY = 0.85
# Runs of one program on a busy machine differ by so much: a few of them do not show more.
NOISE = 0.3
ROUNDS_LEAST = 3


def of_setting(runs, name):
    return [run for run in runs if run["setting"] == name and not run["killed"]]


def spread(runs, value, digits=0):
    return stats.estimate([value(run) for run in runs]).text(digits)


def stage_shares(run):
    """Share of the time that each kind of thread was at it."""
    stages, seconds, processors = run["stages"], run["elapsed_s"], os.cpu_count() or 1
    return {
        "provers": (stages["prove"] + stages["assemble"]) / seconds / processors,
        "writer": stages["write"] / seconds,
        "room for bytes": run["budget_share"],
        "neve's processors": run["cpu_s"] / seconds / processors,
    }


def bottleneck(run):
    """What is busiest, or what is asked if nothing of neve's is busy."""
    name, share = max(stage_shares(run).items(), key=lambda item: item[1])
    return f"{name} ({share:.0%})" if share >= BUSY else f"upstream or machine ({name} {share:.0%})"


TOP = ["run", "allocator", "asked at a time", "queue MiB", "elapsed s", "blocks/s", "logs/s", "MiB/s", "blocks/CPU s", "memory MiB",
       "CPU % avg/p95/max", "iowait % p95", "failed, refused", "next bottleneck"]  # fmt: skip
STAGES = ["run", "batches", "batch ms p50/p95/p99", "in parallel", "prove s", "assemble s", "write s", "fetch s, waiting included", "syncs",
          "sync ms p50/p95", "disk MiB", "record bytes", "asked ms p50/p99", "alone ms p50/p99"]  # fmt: skip


def top(runs, settings):
    return table(TOP, [top_row(of_setting(runs, one.name), one) for one in settings if of_setting(runs, one.name)])


def top_row(runs, setting):
    cpu = [statistics.median(run["cpu"][key] for run in runs) for key in ("avg", "p95", "max")]
    return [
        setting.name, setting.allocator, setting.concurrency, setting.queue_mib, spread(runs, lambda run: run["elapsed_s"], 1),
        spread(runs, lambda run: run["blocks_s"]), spread(runs, lambda run: run["logs_s"]), spread(runs, lambda run: run["mib_s"]),
        spread(runs, lambda run: run["blocks_cpu_s"]), spread(runs, lambda run: run["anonymous_bytes"] / MIB),
        "/".join(f"{value:.0f}" for value in cpu), f"{statistics.median(run['iowait']['p95'] for run in runs):.1f}",
        f"{max(run['failed'] for run in runs):.0f}, {max(run['refused'] for run in runs):.0f}", bottleneck(runs[-1]),
    ]  # fmt: skip


def stages(runs, settings):
    return table(STAGES, [stages_row(of_setting(runs, one.name), one) for one in settings if of_setting(runs, one.name)])


def stages_row(runs, setting):
    def middle(value):
        return statistics.median(value(run) for run in runs)

    def shares(name, wanted):
        return "/".join(f"{middle(lambda run, share=share: run[name].get(share, float('nan'))):.1f}" for share in wanted)

    stage = [f"{middle(lambda run, name=name: run['stages'][name]):.1f}" for name in ("prove", "assemble", "write", "fetch")]
    return [
        setting.name, f"{middle(lambda run: run['batches']):.0f}", shares("batch_ms", (50, 95, 99)), f"{middle(lambda run: run['parallel']):.1f}",
        *stage, f"{middle(lambda run: run['syncs']):.0f}", shares("sync_ms", (50, 95)), f"{middle(lambda run: run['disk_bytes']) / MIB:.0f}",
        f"{middle(lambda run: run['stored_bytes'] / run['stored']):,.0f}", shares("serving_ms", (50, 99)), shares("alone_ms", (50, 99)),
    ]  # fmt: skip


def verdicts(runs, settings, profile):
    """What is demanded of these runs."""
    lines = []
    if baseline := of_setting(runs, "baseline"):
        rate = stats.estimate([run["blocks_cpu_s"] for run in baseline])
        verdict = rate_verdict(rate, profile.bound)
        lines.append(Line(f"{profile.name}: blocks a second of neve's processor time", rate.text(0), f"at least {profile.bound}", verdict))
    lines += [memory_line(of_setting(runs, one.name), one, profile) for one in settings if one.memory_bound and of_setting(runs, one.name)]
    digests = {run["digest"] for run in runs}
    killed = [run for run in runs if run["killed"]]
    verdict = "holds" if len(digests) == 1 else "missed"
    what = f"{profile.name}: digest of {len(runs)} runs, {len(killed)} of them killed with -9 on the way"
    lines.append(Line(what, ", ".join(sorted(digest[:18] for digest in digests)), "one", verdict))
    return lines


def rate_verdict(rate, bound):
    verdict = stats.verdict_at_least(rate, bound)
    few = rate.rounds < ROUNDS_LEAST and rate.median >= bound * (1 - NOISE)
    return "unresolved" if verdict == "missed" and few else verdict


def memory_line(runs, setting, profile):
    most = max(run["anonymous_bytes"] for run in runs)
    verdict = "holds" if most <= setting.memory_bound else "missed"
    name = f"{profile.name}: memory apart from mapped files, run {setting.name}, most of {len(runs)}"
    return Line(name, f"{most / MIB:.0f} MiB", f"at most {setting.memory_bound // MIB} MiB", verdict)
