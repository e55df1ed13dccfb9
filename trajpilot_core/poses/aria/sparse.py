"""The few lines of a pose file that a set of knots needs, found without parsing the rest.

A pose file is written in order of time, so the two rows around a knot are found by interpolation search over byte
offsets. What is returned is a small CSV with the same header: it goes through the same parser and the same checks as
the whole file, and gives the same answers, because it holds

- the first two and the last two rows (what the file covers),
- the two rows around every knot,
- between the knots of one segment enough rows that two neighbours are either no further apart than the longest hole
  allowed, or neighbours in the file too. So a hole inside a segment shows, wherever it is: while a stretch is longer
  than the limit, the line in its middle is looked at, until the stretch is short enough or has no line left.

Cost: 1.2 blocks of 1.5 kB read per knot, plus one of 0.75 kB per 0.1 s of segment for the holes; a segment of 2 s needs
some 50 of its 2,000 lines. Blocks are read, not mapped: mapped pages counted 100 MB of memory where blocks need 15, and
a mapped file that another process cuts would end this one. Order is not proven, only never contradicted by the lines
that were looked at; any contradiction or unreadable stamp gives up, and the whole file is read instead.
"""

import os
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

GUESSES = 8
"""Interpolated guesses before a search goes on by halving."""
BLOCK = 1536
"""Bytes read at once around a knot: some four lines, so that the first guess mostly holds both of its rows."""
SMALL_BLOCK = 768
"""Bytes read at once where any one line will do."""
HEADER_LIMIT = 1 << 16
TAIL = 64
"""Bytes at the end of the file among which the last data must be."""


class PoseLine(NamedTuple):
    """One data line of the file."""

    offset: int
    after: int
    """Offset of the next line."""
    stamp_us: int
    text: bytes


@dataclass(frozen=True)
class Lines:
    """The data lines of an open file."""

    descriptor: int
    header: bytes
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
    with path.open("rb", buffering=0) as stream:
        lines = data_lines(stream.fileno(), os.fstat(stream.fileno()).st_size, column)
        if lines is None:
            return None
        try:
            rows = needed_rows(lines, knots_us, max_inner_gap_us)
        except NotInOrderError:
            return None
    return b"\n".join([lines.header, *(rows[offset] for offset in sorted(rows))]) + b"\n"


def data_lines(descriptor: int, size: int, column: int) -> Lines | None:
    """Find the data lines of a file; None where there are none, the header is odd, or the file ends in empty lines."""
    header, newline, _ = os.pread(descriptor, HEADER_LIMIT, 0).partition(b"\n")
    tail = os.pread(descriptor, TAIL, max(size - TAIL, 0))
    end = size - (len(tail) - len(tail.rstrip(b"\r\n")))
    start = len(header) + 1
    if not newline or b'"' in header or start >= end or not tail.strip():
        return None
    return Lines(descriptor, header, start, end, column)


def needed_rows(lines: Lines, knots_us: NDArray[np.int64], max_inner_gap_us: int) -> dict[int, bytes]:
    """Return the lines that the (S, K) knots need, by offset.

    Raises:
        NotInOrderError: a contradiction was seen.
    """
    head, tail = rows_around(lines, lines.start, BLOCK), rows_around(lines, lines.end - 1, BLOCK)
    first, last = head[0], tail[-1]
    if last.stamp_us < first.stamp_us:
        raise NotInOrderError
    brackets = search(lines, np.unique(knots_us).tolist(), first, last)
    rows = [*head[:2], *tail[-2:], *(row for pair in brackets.values() for row in pair)]
    for segment in knots_us.tolist():
        inside = [brackets[knot] for knot in segment if knot in brackets]
        for (_, left), (right, _) in pairwise(inside):
            rows += fill_stretch(lines, left, right, max_inner_gap_us)
    return {row.offset: row.text for row in rows}


def search(lines: Lines, knots_us: list[int], first: PoseLine, last: PoseLine) -> dict[int, tuple[PoseLine, PoseLine]]:
    """Find the two neighbouring rows around every knot that the file covers: row <= knot < next row.

    Args:
        lines: the file.
        knots_us: sorted knot times.
        first: first row.
        last: last row.

    Raises:
        NotInOrderError: a contradiction was seen.
    """
    brackets: dict[int, tuple[PoseLine, PoseLine]] = {}
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


def bracket_knot(
    lines: Lines, knot_us: int, low: PoseLine, high: PoseLine, bytes_per_us: float
) -> tuple[PoseLine, PoseLine]:
    """Narrow low <= knot < high until the two are neighbours in the file.

    Raises:
        NotInOrderError: a row between the two has a stamp outside theirs.
    """
    nearest, tries = low, 0
    while low.after < high.offset:
        guess = (low.offset + high.offset) // 2
        if tries < GUESSES:
            guess = nearest.offset + int((knot_us - nearest.stamp_us) * bytes_per_us)
        tries += 1
        for row in rows_between(lines, low, high, guess, BLOCK):
            if row.stamp_us <= knot_us:
                low = nearest = row
            else:
                high = nearest = row
                break
    return low, high


def fill_stretch(lines: Lines, left: PoseLine, right: PoseLine, limit_us: int) -> list[PoseLine]:
    """Return rows between two rows such that no two neighbours are further apart than the limit, or none is between.

    Raises:
        NotInOrderError: a row between the two has a stamp outside theirs.
    """
    found, open_stretches = [], [(left, right)]
    while open_stretches:
        low, high = open_stretches.pop()
        if high.stamp_us - low.stamp_us <= limit_us or low.after >= high.offset:
            continue
        inside = rows_between(lines, low, high, (low.offset + high.offset) // 2, SMALL_BLOCK)
        middle = inside[len(inside) // 2]
        found.append(middle)
        open_stretches += [(low, middle), (middle, high)]
    return found


def rows_between(lines: Lines, low: PoseLine, high: PoseLine, offset: int, size: int) -> list[PoseLine]:
    """Return one row or more strictly between two rows that are no neighbours, in order, near a byte offset.

    Raises:
        NotInOrderError: they are not in order of time.
    """
    near = rows_around(lines, min(max(offset, low.after), high.offset - 1), size)
    inside = [row for row in near if low.offset < row.offset < high.offset]
    stamps = [low.stamp_us, *(row.stamp_us for row in inside), high.stamp_us]
    if stamps != sorted(stamps):
        raise NotInOrderError
    return inside


def rows_around(lines: Lines, offset: int, size: int) -> list[PoseLine]:
    """Read the line that holds a byte offset, and the whole lines next to it in one block (larger for a long line).

    Raises:
        NotInOrderError: a time stamp is absent or not a whole number.
    """
    while True:
        begin = max(offset - size // 2, lines.start - 1)
        stop = min(begin + size, lines.end)
        block = os.pread(lines.descriptor, stop - begin, begin)
        from_first = block.find(b"\n", 0, offset - begin) + 1
        to_last = len(block) if stop == lines.end else block.rfind(b"\n", offset - begin)
        if from_first and to_last >= 0:
            return _parse_lines(block[from_first:to_last], begin + from_first, lines.column)
        if stop == lines.end and begin == lines.start - 1:
            raise NotInOrderError  # the file shrank under the reader
        size *= 2


def _parse_lines(text: bytes, offset: int, column: int) -> list[PoseLine]:
    """Split whole lines into rows."""
    rows = []
    for line in text.split(b"\n"):
        after = offset + len(line) + 1
        try:
            rows.append(PoseLine(offset, after, int(line.split(b",", column + 1)[column]), line))
        except (ValueError, IndexError) as error:
            raise NotInOrderError from error
        offset = after
    return rows
