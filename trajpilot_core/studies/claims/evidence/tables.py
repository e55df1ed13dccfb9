"""The committed tables of the claims, read and written: what is absent is absent, never an error and never filled in.

Files under docs/claims: `<name>.parquet` with the columns of a record after `world` (and `world_seed`, where no seed in
the record says it), and run.json (`schemas.claims.ClaimsRun`).
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple, TypeVar

import numpy as np
import polars as pl
import pyarrow as pa

from schemas.arrow import arrow_schema
from schemas.base import Record
from schemas.claims import ClaimScore, ClaimsRun
from schemas.results import (
    Ceiling,
    CurvePoint,
    GateRow,
    GoalProgress,
    Headroom,
    Judgement,
    LeakCheck,
    ScorerStudy,
)
from trajpilot_core.arrays import Array, Codes
from trajpilot_core.errors import InputError
from trajpilot_core.store.parquet import read_table, table_bytes
from trajpilot_core.studies.claims.evidence.poses import PoseFindings, read_poses
from trajpilot_core.studies.claims.evidence.statistics import Sums

R = TypeVar("R", bound=Record)
COLUMNS: Mapping[str, str] = {"M@1": "m1", "MSeq": "mseq", "F@1": "f1"}
"""Metric -> its column of `ClaimScore`."""
METRICS = tuple(COLUMNS.values())
"""In the order of the last axis of `SeedScores.rows`."""
RUN_FILE = "run.json"
CEILING = "ceiling/"
"""How the exact ceiling of a row is called among the rows."""
NO_SEED = -1
"""Seed in the rows of the ceilings, which know none."""


class File(NamedTuple):
    """One table of the claims."""

    name: str
    row: type[Record]
    has_world_seed: bool
    """False where the record's own `seed` is the seed of the world."""
    entries: tuple[str, ...]
    """Entries of the store that it gathers."""


FILES: tuple[File, ...] = (
    File("scores", ClaimScore, False, ("take_scores",)),
    File("gate", GateRow, False, ("gate",)),
    File("headroom", Headroom, False, ("headroom",)),
    File("curves", CurvePoint, True, ("alignment_curves", "predictor_curves", "scorer_curves", "attention_curves")),
    File("judgements", Judgement, True, ("judgements",)),
    File("ceilings", Ceiling, True, ("ceilings",)),
    File("leaks", LeakCheck, True, ("leaks",)),
    File("study", ScorerStudy, True, ("study",)),
    File("goal_progress", GoalProgress, True, ("goal_progress",)),
)
"""Every table that the pages read."""


class Origin(NamedTuple):
    """Where a row comes from."""

    world: str
    seed: int


@dataclass(frozen=True, eq=False)
class SeedScores:
    """Rows of one world and seed, per take and horizon."""

    takes: tuple[str, ...]
    rows: Mapping[str, np.ndarray]
    """Row -> (T, H, metrics) sums over windows, in percent."""
    counts: Mapping[str, np.ndarray]
    """Row -> (T, H) windows."""


Scores = Mapping[str, Mapping[int, SeedScores]]
"""World -> seed -> scores."""


@dataclass(frozen=True, eq=False)
class Evidence:
    """Everything that the pages are made from."""

    horizons: tuple[int, ...]
    scores: Scores
    goal_progress: Mapping[str, Mapping[int, Sums]]
    """World -> seed -> (T, H) plans that approach the goal, in percent times windows, and windows."""
    gate: tuple[tuple[Origin, GateRow], ...]
    headroom: tuple[tuple[Origin, Headroom], ...]
    curves: tuple[tuple[Origin, CurvePoint], ...]
    judgements: tuple[tuple[Origin, Judgement], ...]
    ceilings: tuple[tuple[Origin, Ceiling], ...]
    leaks: tuple[tuple[Origin, LeakCheck], ...]
    study: tuple[tuple[Origin, ScorerStudy], ...]
    run: ClaimsRun | None
    absent: tuple[str, ...]
    """Files that are not there."""
    poses: PoseFindings | None = None
    """Of a run with two sources of head motion; None: none was named."""


def schema_of(file: File) -> pa.Schema:
    """Return the columns of a file."""
    origins = [pa.field("world", pa.string(), nullable=False)]
    origins += [pa.field("world_seed", pa.int64(), nullable=False)] if file.has_world_seed else []
    return pa.schema([*origins, *arrow_schema(file.row)])


def with_origin(table: pa.Table, file: File, origin: Origin) -> pl.DataFrame:
    """Return the rows of one world and seed as they stand in the file; ceilings, which know no seed, get the world's.

    Args:
        table: columns of the file's record.
        file: which.
        origin: where they come from.
    """
    frame = pl.DataFrame(pl.from_arrow(table)).with_columns(world=pl.lit(origin.world), world_seed=pl.lit(origin.seed))
    if "seed" in frame.columns:
        known = pl.when(pl.col("seed") == NO_SEED).then(pl.lit(origin.seed)).otherwise(pl.col("seed"))
        frame = frame.with_columns(seed=known.cast(pl.Int64))
    return frame.select(schema_of(file).names)


def write_frames(folder: Path, file: File, frames: Sequence[pl.DataFrame]) -> None:
    """Write one file of the claims into `folder`; equal rows give equal bytes."""
    schema = schema_of(file)
    tables = [frame.select(schema.names).to_arrow().cast(schema) for frame in frames]
    (folder / f"{file.name}.parquet").write_bytes(table_bytes(pa.concat_tables([schema.empty_table(), *tables])))


def rows_by_origin(folder: Path, file: File) -> dict[Origin, pl.DataFrame]:
    """Return the rows of every world and seed that a file in `folder` holds; none where it is absent."""
    return dict(_by_origin(_frame(folder, file)))


def read_evidence(folder: Path, horizons: tuple[int, ...]) -> Evidence:
    """Read what is there.

    Args:
        folder: docs/claims.
        horizons: H, in the order of the axis of every figure.

    Raises:
        InputError: a table holds a horizon that is not among `horizons`, or one cell twice.
        StoreError: a damaged table.
    """
    frames = {file.name: _frame(folder, file) for file in FILES}
    run = folder / RUN_FILE
    return Evidence(
        horizons=horizons,
        scores=_scores(frames["scores"], horizons),
        goal_progress=_progress(frames["goal_progress"], horizons),
        gate=_records(frames["gate"], GateRow),
        headroom=_records(frames["headroom"], Headroom),
        curves=_records(frames["curves"], CurvePoint),
        judgements=_records(frames["judgements"], Judgement),
        ceilings=_records(frames["ceilings"], Ceiling),
        leaks=_records(frames["leaks"], LeakCheck),
        study=_records(frames["study"], ScorerStudy),
        run=ClaimsRun.model_validate_json(run.read_bytes()) if run.is_file() else None,
        absent=tuple(
            name for name in (*(f"{file.name}.parquet" for file in FILES), RUN_FILE) if not (folder / name).is_file()
        ),
        poses=read_poses(folder),
    )


def _frame(folder: Path, file: File) -> pl.DataFrame | None:
    """Read one table, pages verified; None where it is absent. `world_seed` is there whatever the file has."""
    path = folder / f"{file.name}.parquet"
    if not path.is_file():
        return None
    frame = pl.DataFrame(pl.from_arrow(read_table(path)))
    return frame if file.has_world_seed else frame.with_columns(world_seed=pl.col("seed"))


def _records(frame: pl.DataFrame | None, row: type[R]) -> tuple[tuple[Origin, R], ...]:
    """Read the rows back, in the order of the file."""
    if frame is None:
        return ()
    names = [name for name in row.model_fields if name in frame.columns]
    origins = zip(frame["world"], frame["world_seed"], strict=True)
    values = frame.select(names).iter_rows(named=True)
    return tuple((Origin(*origin), row.model_validate(v)) for origin, v in zip(origins, values, strict=True))


def _scores(frame: pl.DataFrame | None, horizons: tuple[int, ...]) -> Scores:
    """Group the scores by world and seed; laid out over takes and horizons, those of one world over the same takes."""
    strange = sorted(set() if frame is None else set(frame["horizon"].unique()) - set(horizons))
    if strange:
        raise InputError(f"scores.parquet holds horizons {strange}; the claims know {list(horizons)} (ClaimsConfig)")
    found: dict[str, dict[int, SeedScores]] = {}
    for origin, part in _by_origin(frame):
        values: dict[str, Array] = {}
        counts: dict[str, Array] = {}
        shared: dict[bytes, Array] = {}
        (rows, row_N), (takes, take_N) = _coded(part, "variant"), _coded(part, "take_id")
        cells = _cells(part, take_N, horizons, (*METRICS, "n_windows"), (row_N, rows), f"scores.parquet, {origin}")
        for row, of_row in zip(rows, cells, strict=True):
            values[row] = of_row[..., :-1]
            counts[row] = shared.setdefault(of_row[..., -1].tobytes(), of_row[..., -1].copy())
        found.setdefault(origin.world, {})[origin.seed] = SeedScores(takes, values, counts)
    return found


def _progress(frame: pl.DataFrame | None, horizons: Sequence[int]) -> dict[str, dict[int, Sums]]:
    """Lay the plans that approach the goal out over takes and horizons."""
    found: dict[str, dict[int, Sums]] = {}
    for origin, part in _by_origin(frame):
        take_N = _coded(part, "take_id")[1]
        one = (np.zeros(len(take_N), np.int64), ("",))
        cells = _cells(part, take_N, horizons, ("monotone", "n_windows"), one, f"goal_progress.parquet, {origin}")[0]
        found.setdefault(origin.world, {})[origin.seed] = Sums(100.0 * cells[..., 0], cells[..., 1])
    return found


def _by_origin(frame: pl.DataFrame | None) -> list[tuple[Origin, pl.DataFrame]]:
    """Return the rows of every world and seed."""
    parts = {} if frame is None else frame.partition_by("world", "world_seed", as_dict=True, maintain_order=True)
    return [(Origin(str(world), int(seed)), part) for (world, seed), part in parts.items()]


def _coded(part: pl.DataFrame, column: str) -> tuple[tuple[str, ...], Codes]:
    """Return the names in a column, sorted, and the (N,) code of every row."""
    names = tuple(sorted(part[column].unique()))
    codes = part[column].replace_strict(names, range(len(names)), return_dtype=pl.Int64)
    return names, codes.to_numpy().astype(np.int64)


def _cells(
    part: pl.DataFrame,
    take_N: Codes,
    horizons: Sequence[int],
    columns: Sequence[str],
    rows: tuple[Codes, Sequence[str]],
    where: str,
) -> Array:
    """Return (R, T, H, C): the `columns` of R rows over T takes and H horizons; zero where there is nothing.

    Args:
        part: N rows of one world and seed.
        take_N: take of each.
        horizons: of the axis.
        columns: what is laid out.
        rows: row of each, and the names of the R rows.
        where: for errors.

    Raises:
        InputError: a cell is there twice.
    """
    row_N, names = rows
    place_N = np.searchsorted(np.sort(horizons), part["horizon"].to_numpy())
    cells: Array = np.zeros((len(names), int(take_N.max(initial=-1)) + 1, len(horizons), len(columns)))
    at_N = np.ravel_multi_index((row_N, take_N, place_N), cells.shape[:3])
    kept, n = np.unique(at_N, return_counts=True)
    if (n > 1).any():
        row = names[int(np.unravel_index(kept[n > 1][0], cells.shape[:3])[0])]
        raise InputError(f"{where} {row}: a take and horizon is there twice; write the table again")
    cells[row_N, take_N, place_N] = part.select(columns).to_numpy()
    return cells
