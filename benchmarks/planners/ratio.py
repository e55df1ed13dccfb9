"""How much faster ours is than an original: medians of interleaved repeats in one process."""

import statistics
import time
from collections.abc import Callable
from typing import NamedTuple


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
    """Run both once to warm up, then in turn, and return the medians of their wall times."""
    ours_s, theirs_s = [], []
    ours(), theirs()
    for _ in range(repeats):
        ours_s.append(seconds(ours))
        theirs_s.append(seconds(theirs))
    return Ratio(name, statistics.median(ours_s), statistics.median(theirs_s), wanted)


def seconds(work: Callable[[], object]) -> float:
    start = time.perf_counter()
    work()
    return time.perf_counter() - start
