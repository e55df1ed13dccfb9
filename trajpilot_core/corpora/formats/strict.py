"""Strict JSON and CSV: UTF-8, no key twice in an object; rows of another width are marked.

A function of a single field returns None where the value is not of its kind; `as_object` and `as_list` return an
empty one.
"""

import csv
import io
import math
from collections.abc import Sequence
from typing import NamedTuple

from trajpilot_core.incoming import BOM, TextFaultError, decode_text, parse_json

TRUE, FALSE = ("1", "true"), ("0", "false")
SHOWN = 120


def as_object(value: object) -> dict[str, object]:
    """Return a JSON object; anything else has no fields."""
    return value if isinstance(value, dict) else {}


def as_list(value: object) -> list[object]:
    """Return a JSON list; anything else has no items."""
    return value if isinstance(value, list) else []


def n_items(value: object, name: str) -> int:
    """Return how many items the list `name` of an object has, even if the rest of the object is unusable."""
    return len(as_list(as_object(value).get(name)))


def as_text(value: object) -> str | None:
    """Return a string that UTF-8 can hold (a lone surrogate cannot be stored), else None."""
    if not isinstance(value, str):
        return None
    try:
        value.encode()
    except UnicodeEncodeError:
        return None
    return value


def as_id(value: object) -> str | None:
    """Return an id, written as a string or as an integer, as a string."""
    if isinstance(value, int) and not isinstance(value, bool):
        return str(value) if abs(value) < 10**18 else None
    return as_text(value) or None


def as_integer(value: object) -> int | None:
    """Return an integer that 64 bits hold."""
    if isinstance(value, int) and not isinstance(value, bool) and abs(value) < 2**63:
        return value
    return None


def as_bool(value: object) -> bool | None:
    """Return a truth value: true, false, 0, 1, or such a string; None for anything else.

    The corpus writes "0" and "1" for some annotators, and `bool("0")` is True in Python.
    """
    if isinstance(value, bool):
        return value
    if isinstance(value, int):
        return bool(value) if value in (0, 1) else None
    if isinstance(value, str):
        word = value.strip().lower()
        return True if word in TRUE else False if word in FALSE else None
    return None


def as_seconds(value: object) -> float | None:
    """Return a finite, non-negative time in seconds."""
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return None
    try:
        seconds = float(value)
    except OverflowError:
        return None
    return seconds if math.isfinite(seconds) and seconds >= 0 else None


def as_span(start: object, end: object) -> tuple[float, float] | None:
    """Return finite, non-negative start and end in seconds; the end may precede the start."""
    start_s, end_s = as_seconds(start), as_seconds(end)
    return None if start_s is None or end_s is None else (start_s, end_s)


def shown(value: object) -> str:
    """Return a value as short, storable text for a message."""
    try:
        text = value if isinstance(value, str) else repr(value)
    except RecursionError:  # parsed in fewer frames than this
        text = "a value that is nested too deeply"
    return text[:SHOWN].encode("utf-8", "backslashreplace").decode()


class FileFaultError(TextFaultError):
    """A file differs from the format that the corpus documents."""

    todo = "download the file again"


def parse(content: bytes, where: str) -> object:
    """Parse a JSON file; NaN and infinity, which Python writes, are floats that no function of a field accepts.

    Raises FileFaultError: not UTF-8, a byte order mark, no JSON, or an object that contains a key twice.
    """

    def once(pairs: list[tuple[str, object]]) -> dict[str, object]:
        fields = dict(pairs)
        if len(fields) < len(pairs):
            raise TextFaultError(where, f"an object contains a key twice: {shown(pairs)}")
        return fields

    try:
        return parse_json(content, where, object_pairs_hook=once)
    except TextFaultError as error:
        raise FileFaultError(where, error.detail, error.at) from error


def text_of(content: bytes, where: str) -> str:
    """Decode a file of a corpus. Raises FileFaultError: not UTF-8, or a byte order mark."""
    try:
        return decode_text(content, where)
    except TextFaultError as error:
        raise FileFaultError(where, error.detail, error.at) from error


class CsvRow(NamedTuple):
    """One line below the header."""

    line: int
    cells: dict[str, str] | None
    """Column -> text; None where the number of cells differs from that of the header."""
    n_cells: int


def parse_table(
    content: bytes, where: str, columns: Sequence[str], delimiter: str = ",", *, ends_lines: bool = False
) -> list[CsvRow]:
    """Parse a table whose header contains `columns`; further ones are ignored.

    Args:
        ends_lines: the release ends its last line, so a file without that line end is cut off.

    Raises FileFaultError: not UTF-8, no table, a column is missing or named twice, or the last row is cut off.
    """
    text = text_of(content.removeprefix(BOM), where)
    reader = csv.reader(io.StringIO(text, newline=""), delimiter=delimiter, strict=True)
    try:
        header = next(reader, [])
        missing = [name for name in columns if header.count(name) != 1]
        if missing:
            names = shown(", ".join(header)) or "nothing"
            raise FileFaultError(where, f"the header must name once: {', '.join(missing)}; it is: {names}", 1, "line")
        rows = [_row(reader.line_num, header, cells) for cells in reader if cells]
    except csv.Error as error:
        raise FileFaultError(where, f"no table ({error})", reader.line_num, "line") from error
    if rows and not text.endswith("\n") and (ends_lines or rows[-1].cells is None):
        raise FileFaultError(where, "the last row has no end, the file is cut off", rows[-1].line, "line")
    return rows


def _row(line: int, header: list[str], cells: list[str]) -> CsvRow:
    named = dict(zip(header, cells, strict=True)) if len(cells) == len(header) else None
    return CsvRow(line, named, len(cells))
