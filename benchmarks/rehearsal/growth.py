"""Whether time and memory grow as they should: two sizes of a rehearsal, held against each other stage by stage.

Fixed costs hide a square at small sizes, so this finds what is grossly wrong, and never proves that nothing is.
"""

import math
from collections.abc import Sequence

from benchmarks.rehearsal.runner import Measured

EXPONENT = 1.4
"""Steepest growth that passes: n log n and caches that no longer fit are below it, a square is not."""
FREE_S, FREE_BYTES = 1.5, 160 * 2**20
"""What a stage may take on top, whatever the size: the noise of a shared machine, buffers of an allocator."""
LEFT_BYTES_PER_ROW = 4_096
"""What a stage may leave in its process for each further row of its output."""


def exponent(small: float, large: float, ratio: float) -> float:
    """Return p where large = small * ratio^p."""
    return math.log(max(large, 1e-9) / max(small, 1e-9)) / math.log(ratio)


def broken(small: Sequence[Measured], large: Sequence[Measured], ratio: float, what: str) -> list[str]:
    """Return a sentence for every stage that grows too fast between two sizes, or leaves too much in its process.

    Args:
        small: the figures of the smaller size.
        large: of the larger, the same stages in the same order.
        ratio: how many times larger it is.
        what: what there is more of, for the sentences.
    """
    found = []
    allowed = ratio**EXPONENT
    for one, other in zip(small, large, strict=True):
        where = f"{one.part}/{one.stage}, {ratio:g} times the {what}"
        if other.cpu_s > allowed * one.cpu_s + FREE_S:
            found.append(f"{where}: {other.cpu_s:.1f} CPU seconds after {one.cpu_s:.1f}")
        if other.own_bytes > allowed * one.own_bytes + FREE_BYTES:
            found.append(f"{where}: {other.own_bytes / 2**20:.0f} MiB after {one.own_bytes / 2**20:.0f}")
        further = other.left_bytes - one.left_bytes
        if further > LEFT_BYTES_PER_ROW * max(0, other.rows - one.rows) + FREE_BYTES:
            found.append(f"{where}: leaves {further / 2**20:.0f} MiB more in its process")
    return found
