"""Tables of a finished run as Parquet and CSV, with a record that describes them. Writes nothing below the root."""

import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Literal

import polars as pl

from schemas.base import Record
from trajpilot_core.errors import InputError
from trajpilot_core.opened import OpenRun
from trajpilot_core.store.files import TEMPORARY, naming_failures
from trajpilot_core.store.locations import resolved

TableFormat = Literal["parquet", "csv"]
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


def export_tables(run: OpenRun, names: Sequence[str], formats: Sequence[TableFormat], out: Path) -> Export:
    """Write tables into a folder, each checked against its digest first; the record of them is written last.

    Args:
        run: the finished run.
        names: of its tables.
        formats: one file each.
        out: the folder; existing files are replaced.

    Raises:
        InputError: a table does not exist, or the folder is inside the artifacts.
        StoreError: a table is damaged.
    """
    stage_of = run.tables()
    unknown = [name for name in names if name not in stage_of]
    if unknown:
        raise InputError(f"{run.root} has no table {unknown[0]!r}; it has {', '.join(sorted(stage_of))}")
    refuse_inside(run.root, out)
    with naming_failures("make the folder", out):
        out.mkdir(parents=True, exist_ok=True)
    exported = []
    for name in dict.fromkeys(names):
        table = run.table(name)
        files = tuple(f"{name}.{suffix}" for suffix in formats)
        for file in files:
            with replaced(out / file) as fresh:
                write_csv(table, fresh) if file.endswith(".csv") else table.write_parquet(fresh)
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
    with replaced(out / RECORD) as fresh:
        fresh.write_text(json.dumps(record.content(), indent=1) + "\n", encoding="utf-8")
    return record


def refuse_inside(root: str, out: Path) -> None:
    """Refuse to write inside the artifacts of a run.

    Raises:
        InputError: the folder is below `artifacts` of the root.
    """
    if "://" not in root and resolved(out).is_relative_to(resolved(Path(root) / "artifacts")):
        raise InputError(f"{out} is inside the artifacts of {root}; give another folder with --out")


@contextmanager
def replaced(target: Path) -> Iterator[Path]:
    """Yield a file to write next to `target`, which it replaces when the block ends well."""
    fresh = target.with_name(f"{TEMPORARY}{target.name}")
    try:
        with naming_failures("write", target):
            yield fresh
            fresh.replace(target)
    finally:
        fresh.unlink(missing_ok=True)


def write_csv(table: pl.DataFrame, path: Path) -> None:
    """Write a table as CSV: lists as JSON, texts that a spreadsheet takes for a formula with an apostrophe in front."""
    table.with_columns(*(_flat(table[name]) for name in table.columns)).write_csv(path)


def _flat(column: pl.Series) -> pl.Series:
    if column.dtype in (pl.List, pl.Array, pl.Struct):
        texts = [None if row is None else json.dumps(_plain(row), ensure_ascii=False) for row in column]
        return pl.Series(column.name, texts, pl.String)
    if column.dtype == pl.String:
        texts = [f"'{text}" if text is not None and text.startswith(FORMULA) else text for text in column]
        return pl.Series(column.name, texts, pl.String)
    return column


def _plain(value: object) -> object:
    if isinstance(value, pl.Series):
        return value.to_list()
    return value
