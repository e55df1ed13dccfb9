"""Tables of a finished run as Parquet and CSV, with a record that describes them. Writes nothing below the root."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Literal

import polars as pl

from schemas.base import Record
from trajpilot_core.errors import InputError
from trajpilot_core.opened import OpenRun

INGESTED = ("takes", "segments", "windows", "labels", "label_classes")
"""Tables that the ids in the tables of results refer to."""
SCORED = ("evaluation", "probe", "outcome", "pose_sources", "action_token")
"""Stages whose tables are results, predictions among them."""
RECORD = "export.json"
FORMULA = ("=", "+", "-", "@", "\t", "\r")
"""A spreadsheet reads a cell with such a first character as a formula; a leading apostrophe makes it text."""


class ExportedTable(Record):
    """One table as it was exported."""

    name: str
    stage: str
    key: str
    """Key of its output."""
    rows: int
    columns: tuple[str, ...]
    files: tuple[str, ...]


class Export(Record):
    """Contents of a folder of exported tables, written as `export.json`."""

    format: Literal["trajpilot export 1"] = "trajpilot export 1"
    root: str
    warning: str
    """Notice that belongs next to every number; empty for a recorded corpus."""
    tables: tuple[ExportedTable, ...]


def default_tables(run: OpenRun) -> list[str]:
    """Return the names of the tables that are exported by default: results, ids, rejects."""
    return [
        name for name, stage in run.tables().items() if name in INGESTED or stage in SCORED or name.endswith(".rejects")
    ]


def export_tables(run: OpenRun, names: Sequence[str], out: Path) -> Export:
    """Write tables into a folder as Parquet and CSV, each checked against its digest first; their record comes last.

    Args:
        run: the finished run.
        names: of its tables.
        out: the folder; existing files are replaced.

    Raises:
        InputError: a table does not exist.
        StoreError: a table is damaged.
    """
    stage_of = run.tables()
    unknown = [name for name in names if name not in stage_of]
    if unknown:
        raise InputError(f"{run.root} has no table {unknown[0]!r}; it has {', '.join(sorted(stage_of))}")
    out.mkdir(parents=True, exist_ok=True)
    exported = []
    for name in dict.fromkeys(names):
        table = run.table(name)
        files = f"{name}.parquet", f"{name}.csv"
        table.write_parquet(out / files[0])
        write_csv(table, out / files[1])
        output = run.outputs[stage_of[name]]
        exported.append(
            ExportedTable(
                name=name,
                stage=output.stage,
                key=output.key,
                rows=table.height,
                columns=tuple(table.columns),
                files=files,
            )
        )
    record = Export(root=run.root, warning=run.warning, tables=tuple(exported))
    (out / RECORD).write_text(json.dumps(record.content(), indent=1) + "\n", encoding="utf-8")
    return record


def write_csv(table: pl.DataFrame, path: Path) -> None:
    """Write a table as CSV: lists as JSON, texts that a spreadsheet takes for a formula with an apostrophe in front."""
    table.with_columns(*(_flat(table[name]) for name in table.columns)).write_csv(path)


def _flat(column: pl.Series) -> pl.Series:
    if column.dtype in (pl.List, pl.Array, pl.Struct):
        texts = [None if row is None else json.dumps(row, ensure_ascii=False) for row in column.to_list()]
        return pl.Series(column.name, texts, pl.String)
    if column.dtype == pl.String:
        texts = [f"'{text}" if text is not None and text.startswith(FORMULA) else text for text in column]
        return pl.Series(column.name, texts, pl.String)
    return column
