"""Data health: the rows in and out of every stage, and the reasons of the rejected ones."""

import re
from collections.abc import Mapping
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc

from schemas.rejects import MEANING, RejectCode

SPLITS = ("train", "dev", "test")
SAMPLES = 2


@dataclass(frozen=True)
class Problem:
    """All rejects of one stage with one code."""

    stage: str
    code: str
    severity: str
    meaning: str
    action: str
    n_rows: int
    n_units: int
    n_takes: int
    samples: tuple[str, ...]


@dataclass(frozen=True)
class Flow:
    """Rows in and out of one stage."""

    stage: str
    unit: str
    n_in: int
    n_lost: int
    n_out: int


@dataclass(frozen=True)
class Count:
    """One row of the table of counts."""

    what: str
    per_split: tuple[int, ...]
    total: int


def problems(rejects: Mapping[str, pa.Table]) -> list[Problem]:
    """Group the rejects of all stages by stage and code, heaviest first within a stage.

    Args:
        rejects: stage -> table with the columns of `schemas.rejects.Reject`.
    """
    found = []
    for stage, table in rejects.items():
        rows = [
            _problem(stage, RejectCode(code), table.filter(pc.equal(table["code"], code)))
            for code in sorted(pc.unique(table["code"]).to_pylist())
        ]
        found += sorted(rows, key=lambda row: (-row.n_units, -row.n_rows, row.code))
    return found


def _problem(stage: str, code: RejectCode, rows: pa.Table) -> Problem:
    """Summarise the rejects of one stage and code."""
    severity, meaning, action = MEANING[code]
    samples = sorted(
        {f"{take}: {detail}" for take, detail in zip(rows["take"].to_pylist(), rows["detail"].to_pylist(), strict=True)}
    )[:SAMPLES]
    return Problem(
        stage,
        code.value,
        severity,
        meaning,
        action,
        rows.num_rows,
        int(pc.sum(rows["n_units"]).as_py() or 0),
        len(pc.unique(rows["take"])),
        tuple(samples),
    )


WINDOW = re.compile(r"window (\S+): ")
"""Start of the detail of a WINDOW_INCOMPLETE."""


def lost_units(rejects: Mapping[str, pa.Table]) -> dict[str, int]:
    """Return stage -> rejected units; a window that several stages reject counts once, at the first of them.

    Args:
        rejects: stage -> table with the columns of `schemas.rejects.Reject`, in the order of the stages.
    """
    seen: set[str] = set()
    lost = {}
    for stage, table in rejects.items():
        is_window = pc.equal(table["code"], RejectCode.WINDOW_INCOMPLETE.value)
        fresh = 0
        for row in table.filter(is_window).select(("detail", "n_units")).to_pylist():
            found = WINDOW.match(row["detail"])
            name = found[1] if found else row["detail"]
            fresh += 0 if name in seen else row["n_units"]
            seen.add(name)
        lost[stage] = fresh + int(pc.sum(table.filter(pc.invert(is_window))["n_units"]).as_py() or 0)
    return lost


def flows(kept: Mapping[str, tuple[str, int]], rejects: Mapping[str, pa.Table]) -> list[Flow]:
    """Return rows in, lost and out per stage; in = out + lost, as the store checks at every commit.

    Args:
        kept: stage -> (unit, rows that came out).
        rejects: stage -> rejects table.
    """
    lost = {stage: int(pc.sum(table["n_units"]).as_py() or 0) for stage, table in rejects.items()}
    return [
        Flow(stage, unit, n_out + lost.get(stage, 0), lost.get(stage, 0), n_out)
        for stage, (unit, n_out) in kept.items()
    ]


def counts(takes: pa.Table, segments: pa.Table, windows: pa.Table) -> list[Count]:
    """Count takes, segments and windows (per horizon too) by split.

    Args:
        takes: column split.
        segments: column split.
        windows: columns split and horizon.
    """
    rows = [_count("takes", takes), _count("action segments", segments), _count("planning windows", windows)]
    for horizon in sorted(pc.unique(windows["horizon"]).to_pylist()):
        rows.append(_count(f"windows with H = {horizon}", windows.filter(pc.equal(windows["horizon"], horizon))))
    return rows


def _count(what: str, table: pa.Table) -> Count:
    """Count the rows of a table by split."""
    found = {row["values"]: row["counts"] for row in pc.value_counts(table["split"]).to_pylist()}
    return Count(what, tuple(found.get(split, 0) for split in SPLITS), table.num_rows)


def unseen_share(labels: pa.Table) -> float:
    """Return the percentage of test steps whose label no training segment has; `labels`: columns n_train and n_test."""
    total = pc.sum(labels["n_test"]).as_py() or 0
    unseen = pc.sum(labels.filter(pc.equal(labels["n_train"], 0))["n_test"]).as_py() or 0
    return 100.0 * unseen / total if total else 0.0
