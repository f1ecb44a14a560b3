"""Medians of few rounds, how sure they are, and what may be concluded."""

import math
import random
import statistics
from dataclasses import dataclass

DRAWS = 4000
CONFIDENCE = 0.95


@dataclass(frozen=True)
class Estimate:
    """A median with the range of the rounds and the interval that the bootstrap gives it."""

    median: float
    low: float
    high: float
    least: float
    most: float
    rounds: int

    def text(self, digits=2):
        return f"{self.median:.{digits}f} ({self.least:.{digits}f}..{self.most:.{digits}f})"


def estimate(values, seed=1):
    """Rounds are drawn, not requests: requests of one round share its luck."""
    chance = random.Random(seed)
    medians = sorted(statistics.median(chance.choices(values, k=len(values))) for _ in range(DRAWS))
    edge = int(DRAWS * (1 - CONFIDENCE) / 2)
    return Estimate(statistics.median(values), medians[edge], medians[-1 - edge], min(values), max(values), len(values))


def ratios(ours, theirs):
    """Round by round, so that what slowed both down cancels out."""
    return [a / b for a, b in zip(ours, theirs, strict=True)]


def verdict_at_most(ratio, bound):
    """Held by the median; missed when the whole interval is beyond the bound; else the noise decides."""
    if ratio.median <= bound:
        return "holds"
    return "missed" if ratio.low > bound else "unresolved"


def verdict_at_least(ratio, bound):
    if ratio.median >= bound:
        return "holds"
    return "missed" if ratio.high < bound else "unresolved"


def compare(before, after, floor=0.0):
    """A/B of a cost (less is better), paired: better, worse, or what could have been seen."""
    change = estimate([a / b - 1 for a, b in zip(after, before, strict=True)])
    if change.high < -floor:
        return "better", change
    if change.low > floor:
        return "worse", change
    return "unresolved", change


def detectable(change, floor=0.0):
    """A change beyond this, either way, would have been called one with the noise of these rounds."""
    return floor + max(change.median - change.low, change.high - change.median)


def percentile(values, share):
    """By nearest rank, from raw samples."""
    rank = math.ceil(len(values) * share / 100)
    return sorted(values)[max(rank, 1) - 1]
