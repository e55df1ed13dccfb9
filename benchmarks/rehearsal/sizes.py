"""How much there is: takes, segments, labels. Windows follow from them (every start, the recipe's horizons)."""

from dataclasses import dataclass
from typing import Self


@dataclass(frozen=True)
class Sizes:
    """Counts of one store."""

    takes: int
    segments: int
    labels: int
    dev_share: float = 0.02
    """Of the takes: ranking every label for every dev window is most of what a training takes on a CPU, and arithmetic
    only. What dev does not get is trained on. A recipe that is rehearsed as it stands has DEV_SHARE."""

    def scaled(self, share: float) -> Self:
        """Return `share` of every count, rounded."""
        counts = (max(1, round(share * n)) for n in (self.takes, self.segments, self.labels))
        return type(self)(*counts, dev_share=self.dev_share)

    def times(self, takes: int = 1, labels: int = 1) -> Self:
        """Return the same with as many times the takes (and their segments), and as many times the labels."""
        return type(self)(takes * self.takes, takes * self.segments, labels * self.labels, self.dev_share)


PAPER = Sizes(takes=2_549, segments=151_838, labels=8_472)
"""Source: paper, 4.1; segments as our reader counts them (docs/decisions/ingest.md)."""
DEV_SHARE, TEST_SHARE = 0.099, 0.0715
"""Of the takes: 83,514 and 60,186 of 842,295 windows. Source: docs/scale.md."""
TAKES_OF_CAPTURE = 2
SHORTEST_TAKE = 9
"""Segments: a take has a window of every horizon."""
