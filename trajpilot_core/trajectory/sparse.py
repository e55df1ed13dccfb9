"""The few lines of a pose file that a set of knots needs, found without parsing the rest.

A pose file is written in order of time, so the two rows around a knot are found by interpolation search over byte
offsets. What is returned is a small CSV with the same header: it goes through the same parser and the same checks as
the whole file, and gives the same answers, because it holds

- the first two and the last two rows (what the file covers),
- the two rows around every knot,
- between the knots of one segment enough rows that two neighbours are either no further apart than the longest hole
  allowed, or neighbours in the file too. So a hole inside a segment shows, wherever it is: while a stretch is longer
  than the limit, the line in its middle is looked at, until the stretch is short enough or has no line left.

Cost: two or three lines looked at per knot, plus about one per 0.1 s of segment for the holes; a segment of 2 s needs
some 70 of its 2,000 lines. Order is not proven, only never contradicted by the lines that were looked at; any
contradiction or unreadable stamp gives up, and the whole file is read instead.
"""

import mmap
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

GUESSES = 8
"""Interpolated guesses before a search goes on by halving."""


class Row(NamedTuple):
    """One line of the file: where it begins, and its time stamp."""

    offset: int
    stamp_us: int


@dataclass(frozen=True)
class Lines:
    """The data lines of a mapped file."""

    mapped: mmap.mmap
    start: int
    """Offset of the first data line."""
    end: int
    """Offset behind the last data line, its line end left out."""
    column: int
    """Position of the time stamp in a line."""


class NotInOrderError(ValueError):
    """The lines looked at contradict an order of time, or a stamp is unreadable."""


def thin(path: Path, column: int, knots_us: NDArray[np.int64], max_inner_gap_us: int) -> bytes | None:
    """Return a CSV with the header and the lines that the knots need.

    Args:
        path: local CSV file, not compressed.
        column: position of the time stamp among the columns.
        knots_us: (S, K) knot times of S segments, rising along K, microseconds.
        max_inner_gap_us: a longer hole inside a segment must show in the lines returned.

    Returns:
        The CSV, or None where the file is not in order of time or too small or odd to search.
    """
    with path.open("rb") as stream, mmap.mmap(stream.fileno(), 0, access=mmap.ACCESS_READ) as mapped:
        if hasattr(mmap, "MADV_RANDOM"):
            mapped.madvise(mmap.MADV_RANDOM)
        lines = data_lines(mapped, column)
        if lines is None:
            return None
        try:
            offsets = needed_rows(lines, knots_us, max_inner_gap_us)
        except NotInOrderError:
            return None
        chosen = [mapped[: lines.start - 1], *(mapped[at : line_end(lines, at)] for at in sorted(offsets))]
        return b"\n".join(chosen) + b"\n"


def data_lines(mapped: mmap.mmap, column: int) -> Lines | None:
    """Return the data lines; None where there are not even two lines, or a field is quoted."""
    end = len(mapped)
    while end and mapped[end - 1] in b"\r\n":
        end -= 1
    start = mapped.find(b"\n") + 1
    if start == 0 or start >= end or mapped.find(b'"', 0, start) >= 0:
        return None
    return Lines(mapped, start, end, column)


def needed_rows(lines: Lines, knots_us: NDArray[np.int64], max_inner_gap_us: int) -> set[int]:
    """Return the offsets of the lines that the knots need.

    Raises:
        NotInOrderError: a contradiction was seen.
    """
    first, last = row_at(lines, lines.start), row_at(lines, line_start(lines, lines.end))
    if last.stamp_us < first.stamp_us:
        raise NotInOrderError
    offsets = {first.offset, min(line_end(lines, first.offset) + 1, last.offset), last.offset}
    offsets.add(line_start(lines, max(last.offset - 1, lines.start)))
    brackets = search(lines, np.unique(knots_us).tolist(), first, last)
    offsets.update(row.offset for bracket in brackets.values() for row in bracket)
    for segment in knots_us.tolist():
        inside = [brackets[knot] for knot in segment if knot in brackets]
        for (_, left), (right, _) in pairwise(inside):
            fill_stretch(lines, left, right, max_inner_gap_us, offsets)
    return offsets


def search(lines: Lines, knots_us: list[int], first: Row, last: Row) -> dict[int, tuple[Row, Row]]:
    """Find the two neighbouring rows around every knot that the file covers: row <= knot < next row.

    Args:
        lines: the file.
        knots_us: sorted knot times.
        first: first row.
        last: last row.

    Raises:
        NotInOrderError: a contradiction was seen.
    """
    brackets: dict[int, tuple[Row, Row]] = {}
    low = first
    rate = (last.offset - first.offset) / max(last.stamp_us - first.stamp_us, 1)
    for knot in knots_us:
        if not first.stamp_us <= knot < last.stamp_us:
            continue
        found, above = bracket_knot(lines, knot, low, last, rate)
        brackets[knot] = found, above
        if found.stamp_us > low.stamp_us:
            rate = (found.offset - low.offset) / (found.stamp_us - low.stamp_us)
        low = found
    return brackets


def bracket_knot(lines: Lines, knot_us: int, low: Row, high: Row, bytes_per_us: float) -> tuple[Row, Row]:
    """Narrow low <= knot < high until the two are neighbours in the file.

    Raises:
        NotInOrderError: a row between the two has a stamp outside theirs.
    """
    seen, tries = low, 0
    while (after := line_end(lines, low.offset) + 1) < high.offset:
        guess = (low.offset + high.offset) // 2
        if tries < GUESSES:
            guess = seen.offset + int((knot_us - seen.stamp_us) * bytes_per_us)
        tries += 1
        seen = row_at(lines, line_start(lines, min(max(guess, after), high.offset - 1)))
        if not low.stamp_us <= seen.stamp_us <= high.stamp_us:
            raise NotInOrderError
        if seen.stamp_us <= knot_us:
            low = seen
        else:
            high = seen
    return low, high


def fill_stretch(lines: Lines, left: Row, right: Row, limit_us: int, offsets: set[int]) -> None:
    """Add lines between two rows until no two neighbours are further apart than the limit, or none is left between.

    Raises:
        NotInOrderError: a row between the two has a stamp outside theirs.
    """
    open_stretches = [(left, right)]
    while open_stretches:
        low, high = open_stretches.pop()
        after = line_end(lines, low.offset) + 1
        if high.stamp_us - low.stamp_us <= limit_us or after >= high.offset:
            continue
        middle = row_at(lines, line_start(lines, max((low.offset + high.offset) // 2, after)))
        if not low.stamp_us <= middle.stamp_us <= high.stamp_us:
            raise NotInOrderError
        offsets.add(middle.offset)
        open_stretches += [(low, middle), (middle, high)]


def line_start(lines: Lines, offset: int) -> int:
    """Return where the line that holds `offset` begins."""
    return lines.mapped.rfind(b"\n", lines.start - 1, offset) + 1


def line_end(lines: Lines, offset: int) -> int:
    """Return where the line that holds `offset` ends, its newline left out."""
    at = lines.mapped.find(b"\n", offset, lines.end)
    return at if at >= 0 else lines.end


def row_at(lines: Lines, offset: int) -> Row:
    """Read the time stamp of the line that begins at `offset`.

    Raises:
        NotInOrderError: it is not a whole number.
    """
    mapped, begin = lines.mapped, offset
    for _ in range(lines.column):
        begin = mapped.find(b",", begin, lines.end) + 1
        if begin == 0:
            raise NotInOrderError
    try:
        return Row(offset, int(mapped[begin : mapped.find(b",", begin, lines.end)]))
    except ValueError as error:
        raise NotInOrderError from error
