"""Data health: the rows in and out of every stage, and the reasons of the rejected ones."""

from collections.abc import Mapping

import pyarrow as pa
import pyarrow.compute as pc

from schemas.rejects import RejectCode
from trajpilot_core.report.tables.table import Cell, Table

SPLITS = ("train", "dev", "test")
SAMPLES = 2
"""Examples of each kind of reject."""


def problems(rejects: Mapping[str, pa.Table]) -> Table:
    """Return the rejects (stage -> columns of `Reject`) by stage and code, heaviest first within a stage."""
    rows: list[tuple[Cell, ...]] = []
    for stage, table in rejects.items():
        groups = []
        for code in sorted(pc.unique(table["code"]).to_pylist()):
            of_code = table.filter(pc.equal(table["code"], code))
            groups.append((-_units(of_code), -of_code.num_rows, code, of_code))
        groups.sort(key=lambda group: group[:3])
        rows += [_problem(stage, RejectCode(code), of_code) for *_, code, of_code in groups]
    header = ("stage", "code", "severity", "meaning", "what to do", "found", "rows lost", "takes", "examples")
    return Table("Problems with the input", header, tuple(rows))


def _problem(stage: str, code: RejectCode, rows: pa.Table) -> tuple[Cell, ...]:
    """Summarise the rejects of one stage and code."""
    details = zip(rows["take"].to_pylist(), rows["detail"].to_pylist(), strict=True)
    samples = sorted({f"{take}: {detail}" for take, detail in details})[:SAMPLES]
    numbers = (rows.num_rows, _units(rows), len(pc.unique(rows["take"])))
    about = (stage, code.value, code.severity, code.meaning, code.action)
    return (*about, *(f"{n:,}" for n in numbers), "; ".join(samples))


def _units(rejects: pa.Table) -> int:
    return int(pc.sum(rejects["n_units"]).as_py() or 0)


def flows(kept: Mapping[str, tuple[str, int]], rejects: Mapping[str, pa.Table]) -> Table:
    """Return rows in, lost and out per stage; in = out + lost; `kept`: stage -> (unit, rows that came out)."""
    lost = {stage: _units(table) for stage, table in rejects.items()}
    rows = tuple(
        (stage, unit, *(f"{n:,}" for n in (n_out + lost.get(stage, 0), lost.get(stage, 0), n_out)))
        for stage, (unit, n_out) in kept.items()
    )
    return Table("Rows in and out, per stage", ("stage", "unit", "in", "lost", "out"), rows)


def counts(takes: pa.Table, segments: pa.Table, windows: pa.Table) -> Table:
    """Return the numbers of takes, segments and windows (per horizon too) by split; columns split and horizon."""
    rows = [_count("takes", takes), _count("action segments", segments), _count("planning windows", windows)]
    for horizon in sorted(pc.unique(windows["horizon"]).to_pylist()):
        rows.append(_count(f"windows with H = {horizon}", windows.filter(pc.equal(windows["horizon"], horizon))))
    return Table("Counts by split", ("", *SPLITS, "all"), tuple(rows))


def _count(what: str, table: pa.Table) -> tuple[Cell, ...]:
    """Count the rows of a table by split."""
    counts = {row["values"]: row["counts"] for row in pc.value_counts(table["split"]).to_pylist()}
    return (what, *(f"{n:,}" for n in (*(counts.get(split, 0) for split in SPLITS), table.num_rows)))
