"""The few lines of a pose file that a set of knots needs, found without parsing the rest.

A pose file is written in order of time. The result is a small CSV with the same header, which goes through the same
parser and checks as the whole file and gives the same answers, because it contains

- the first two and the last two rows (the time that the file covers),
- the two rows around every knot,
- between the knots of one segment enough rows that two neighbours are either no further apart than the longest hole
  allowed, or neighbours in the file too, so that every hole inside a segment shows.

Lines are read, not mapped: mapped pages counted 100 MB of memory, and a mapped file that another process cuts would end
this one. Order is not proven, only never contradicted by the lines that were read. After a contradiction or an
unreadable time stamp the whole file is read instead.
"""

import os
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

BLOCK = 768
"""Bytes read at once: a line, and what is around it."""
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


class Lines(NamedTuple):
    """The data lines of an open file."""

    descriptor: int
    start: int
    """Offset of the first data line."""
    end: int
    """Offset after the last data line, without its line end."""
    column: int
    """Position of the time stamp in a line."""
    read: dict[int, PoseLine]
    """Offset -> every line that was read."""

    def at(self, offset: int) -> PoseLine:
        """Read the line that contains the byte at an offset. Raises ValueError or IndexError: it has no time stamp."""
        size = BLOCK
        while True:
            begin = max(offset - size // 2, self.start - 1)
            block = os.pread(self.descriptor, min(size, self.end - begin), begin)
            first = block.rfind(b"\n", 0, offset - begin) + 1
            last = block.find(b"\n", offset - begin)
            if last < 0 and begin + len(block) == self.end:
                last = len(block)
            if first and last >= 0:
                break
            if len(block) < min(size, self.end - begin):
                raise ValueError("the file became shorter while it was read")
            size *= 2
        text = block[first:last]
        stamp_us = int(text.split(b",", self.column + 1)[self.column])
        row = PoseLine(begin + first, begin + last + 1, stamp_us, text)
        self.read[row.offset] = row
        return row


def thin(path: Path, column: int, knots_us: NDArray[np.int64], max_inner_gap_us: int) -> bytes | None:
    """Return a CSV with the header and the lines that the knots need.

    Args:
        path: local CSV file, not compressed.
        column: position of the time stamp among the columns.
        knots_us: (S, K) knot times of S segments, rising along K, microseconds.
        max_inner_gap_us: a longer hole inside a segment must show in the lines returned.

    Returns:
        The CSV, or None where the file is not in order of time, has an odd header or no data, or ends in empty lines.
    """
    with path.open("rb", buffering=0) as stream:
        descriptor, size = stream.fileno(), os.fstat(stream.fileno()).st_size
        header, newline, _ = os.pread(descriptor, HEADER_LIMIT, 0).partition(b"\n")
        tail = os.pread(descriptor, TAIL, max(size - TAIL, 0))
        end = size - (len(tail) - len(tail.rstrip(b"\r\n")))
        lines = Lines(descriptor, len(header) + 1, end, column, {})
        if not newline or b'"' in header or lines.start >= end or not tail.strip():
            return None
        try:
            rows = needed_rows(lines, knots_us, max_inner_gap_us)
        except (ValueError, IndexError):
            return None
    stamps = [lines.read[offset].stamp_us for offset in sorted(lines.read)]
    if stamps != sorted(stamps):
        return None
    return b"\n".join([header, *(rows[offset] for offset in sorted(rows))]) + b"\n"


def needed_rows(lines: Lines, knots_us: NDArray[np.int64], max_inner_gap_us: int) -> dict[int, bytes]:
    """Return the lines that the (S, K) knots need, by offset. Raises as `Lines.at`."""
    first, last = lines.at(lines.start), lines.at(lines.end - 1)
    rows = [first, last, lines.at(min(first.after, last.offset)), lines.at(max(last.offset - 1, first.offset))]
    for segment in knots_us.tolist():
        low, brackets = first, []
        for knot in segment:
            if first.stamp_us <= knot < last.stamp_us:
                low, high = bracket_knot(lines, knot, low, last)
                brackets.append((low, high))
        rows += [row for pair in brackets for row in pair]
        stretches = [(left, right) for (_, left), (right, _) in pairwise(brackets)]
        while stretches:
            left, right = stretches.pop()
            if right.stamp_us - left.stamp_us > max_inner_gap_us and left.after < right.offset:
                middle = lines.at((left.after + right.offset) // 2)
                rows.append(middle)
                stretches += [(left, middle), (middle, right)]
    return {row.offset: row.text for row in rows}


def bracket_knot(lines: Lines, knot_us: int, low: PoseLine, high: PoseLine) -> tuple[PoseLine, PoseLine]:
    """Narrow low <= knot < high until the two are neighbours in the file: interpolation and halving in turn."""
    halve = False
    while low.after < high.offset:
        share = 0.5 if halve else (knot_us - low.stamp_us) / max(high.stamp_us - low.stamp_us, 1)
        guess = low.after + int(share * (high.offset - low.after))
        row = lines.at(min(max(guess, low.after), high.offset - 1))
        low, high = (row, high) if row.stamp_us <= knot_us else (low, row)
        halve = not halve
    return low, high
