"""Strict CSV: UTF-8, columns by name, and a row of another width noticed where it stands."""

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
    """Column -> text; None where the line has another number of cells than the header."""
    n_cells: int


def parse_table(
    content: bytes, where: str, columns: Sequence[str], delimiter: str = ",", *, ends_lines: bool = False
) -> list[CsvRow]:
    """Parse a table with a header; further columns than those asked for do no harm.

    Args:
        columns: what the header must name.
        delimiter: between cells.
        ends_lines: the release ends its last line too, so that a file which does not is cut off.

    Raises FileFaultError: not UTF-8, no table, a column absent or named twice, or the last row is cut off.
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
