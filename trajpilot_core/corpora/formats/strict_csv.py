"""Strict CSV: UTF-8, columns by name, rows of another width marked."""

import csv
import io
from collections.abc import Sequence
from typing import NamedTuple

from trajpilot_core.corpora.formats.fields import shown
from trajpilot_core.corpora.formats.strict_json import FileFaultError, text_of
from trajpilot_core.incoming import BOM


class CsvRow(NamedTuple):
    """One line below the header."""

    line: int
    cells: dict[str, str] | None
    """Column -> text; None where the number of cells differs from that of the header."""
    n_cells: int


def parse_table(
    content: bytes, where: str, columns: Sequence[str], delimiter: str = ",", *, ends_lines: bool = False
) -> list[CsvRow]:
    """Parse a table with a header; further columns are ignored.

    Args:
        columns: names that the header must contain.
        delimiter: between cells.
        ends_lines: the release ends its last line, so a file without that line end is cut off.

    Raises FileFaultError: not UTF-8, no table, a column is missing or named twice, or the last row is cut off.
    """
    text = text_of(content.removeprefix(BOM), where)
    reader = csv.reader(io.StringIO(text, newline=""), delimiter=delimiter, strict=True)
    try:
        header = next(reader, [])
        _check_header(header, columns, where)
        rows = [_row(reader.line_num, header, cells) for cells in reader if cells]
    except csv.Error as error:
        raise FileFaultError(where, f"no table ({error})", reader.line_num, "line") from error
    if rows and not text.endswith("\n") and (ends_lines or rows[-1].cells is None):
        raise FileFaultError(where, "the last row has no end, the file is cut off", rows[-1].line, "line")
    return rows


def _check_header(header: list[str], columns: Sequence[str], where: str) -> None:
    missing = [name for name in columns if header.count(name) != 1]
    if missing:
        names = shown(", ".join(header)) or "nothing"
        raise FileFaultError(where, f"the header must name once: {', '.join(missing)}; it is: {names}", 1, "line")


def _row(line: int, header: list[str], cells: list[str]) -> CsvRow:
    named = dict(zip(header, cells, strict=True)) if len(cells) == len(header) else None
    return CsvRow(line, named, len(cells))
