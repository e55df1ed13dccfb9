"""How much faster ours is than an original: medians of interleaved repeats in one process."""

import math
import statistics
import time
from collections.abc import Callable
from typing import NamedTuple

LEAST_S, MOST_CALLS = 0.1, 100


class Ratio(NamedTuple):
    """Seconds of ours and of an original for the same work, medians."""

    name: str
    ours_s: float
    theirs_s: float
    wanted: float
    """The original should take at least so many times as long."""

    @property
    def factor(self) -> float:
        """How many times as long the original takes."""
        return self.theirs_s / self.ours_s


def compare(
    name: str, ours: Callable[[], object], theirs: Callable[[], object], wanted: float, repeats: int = 5
) -> Ratio:
    """Run both twice to warm up, then time them in turn, and return the medians of the wall times of a call.

    What takes less than `LEAST_S` is called several times in a row, so that a pause of the machine weighs less.
    """
    calls = [math.ceil(LEAST_S / max(seconds(work, 2), LEAST_S / MOST_CALLS)) for work in (ours, theirs)]
    times: tuple[list[float], list[float]] = ([], [])
    for _ in range(repeats):
        for place, work in enumerate((ours, theirs)):
            times[place].append(seconds(work, calls[place]))
    return Ratio(name, statistics.median(times[0]), statistics.median(times[1]), wanted)


def seconds(work: Callable[[], object], calls: int) -> float:
    """Return the wall time of one of `calls` calls in a row."""
    start = time.perf_counter()
    for _ in range(calls):
        work()
    return (time.perf_counter() - start) / calls
