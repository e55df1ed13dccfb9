"""The committed tables of the claims, read: what is absent is absent, never an error and never filled in.

Files under docs/claims: `<name>.parquet` with the columns of a record after `world` (and `world_seed`, where no seed in
the record says it), and run.json (`schemas.claims.ClaimsRun`).
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
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
    GeometryScore,
    GoalProgress,
    Headroom,
    Judgement,
    LeakCheck,
    ScorerStudy,
)
from trajpilot_core.arrays import Array
from trajpilot_core.errors import InputError
from trajpilot_core.store.parquet import read_table, table_bytes
from trajpilot_core.studies.claims.evidence.statistics import Sums

R = TypeVar("R", bound=Record)
T = TypeVar("T")
METRICS = ("m1", "m5", "mseq", "f1", "f5", "fseq")
"""Columns of `ClaimScore`, in the order of the last axis of `SeedScores.values`."""
KINDS = ("adjacent", "same_take_far", "other_take_same_action", "random")
"""Kinds of pairs in the order in which the paper's claim puts their distances."""
RUN_FILE = "run.json"
CEILING = "ceiling/"
"""How the exact ceiling of a row is called among the rows."""


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
    File("curves", CurvePoint, True, ("alignment_curves", "predictor_curves", "scorer_curves")),
    File("judgements", Judgement, True, ("judgements",)),
    File("ceilings", Ceiling, True, ("ceilings",)),
    File("leaks", LeakCheck, True, ("leaks",)),
    File("geometry", GeometryScore, True, ("geometry",)),
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
    geometry: Mapping[str, Mapping[int, Sums]]
    """World -> seed -> (T, kinds) sums of distances and counts of pairs."""
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


def write_claims_table(folder: Path, name: str, rows: Iterable[tuple[Origin, Record]]) -> Path:
    """Write one table of the claims into `folder`; equal rows give equal bytes.

    Args:
        folder: docs/claims.
        name: which.
        rows: its records with the world and seed that they come from.

    Raises:
        InputError: no table is called `name`.
    """
    found = {file.name: file for file in FILES}
    if name not in found:
        raise InputError(f"the claims have no table {name!r}; the tables are {', '.join(sorted(found))}")
    path = folder / f"{name}.parquet"
    origins = [pa.field("world", pa.string(), nullable=False)]
    origins += [pa.field("world_seed", pa.int64(), nullable=False)] if found[name].has_world_seed else []
    values = [{"world": at.world, "world_seed": at.seed, **record.model_dump(mode="json")} for at, record in rows]
    schema = pa.schema([*origins, *arrow_schema(found[name].row)])
    path.write_bytes(table_bytes(pa.Table.from_pylist(values, schema=schema)))
    return path


def origins_of(folder: Path, file: File) -> set[Origin]:
    """Return the worlds and seeds that a table in `folder` holds; none where it is absent."""
    frame = _frame(folder, file)
    if frame is None:
        return set()
    return {Origin(world, seed) for world, seed in frame.select("world", "world_seed").unique().iter_rows()}


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
        geometry=_sums(frames["geometry"], "kind", KINDS, ("distance", "n"), 1.0),
        goal_progress=_sums(frames["goal_progress"], "horizon", horizons, ("monotone", "n_windows"), 100.0),
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

    def of_seed(part: pl.DataFrame, where: str) -> SeedScores:
        """Read the rows of one world and seed."""
        takes = tuple(sorted(part["take_id"].unique()))
        columns = (*METRICS, "n_windows")
        cells = {
            str(row): _cells(own, takes, "horizon", horizons, columns, f"scores.parquet, {row} ({where})")
            for (row,), own in part.partition_by("variant", as_dict=True).items()
        }
        values = {row: cell[..., :-1] for row, cell in cells.items()}
        return SeedScores(takes, values, {row: cell[..., -1] for row, cell in cells.items()})

    return _by_seed(frame, of_seed)


def _sums(
    frame: pl.DataFrame | None, axis: str, names: Sequence[object], columns: tuple[str, str], scale: float
) -> Mapping[str, Mapping[int, Sums]]:
    """Lay sums and counts, the two `columns`, out over takes and the `names` of another column."""

    def of_seed(part: pl.DataFrame, where: str) -> Sums:
        """Read one world and seed."""
        cells = _cells(part, sorted(part["take_id"].unique()), axis, names, columns, where)
        return Sums(scale * cells[..., 0], cells[..., 1])

    return _by_seed(frame, of_seed)


def _by_seed(frame: pl.DataFrame | None, read: Callable[[pl.DataFrame, str], T]) -> dict[str, dict[int, T]]:
    """Return world -> seed -> what is read from its rows."""
    found: dict[str, dict[int, T]] = {}
    parts = {} if frame is None else frame.partition_by("world", "world_seed", as_dict=True)
    for (world, seed), part in parts.items():
        found.setdefault(str(world), {})[int(seed)] = read(part, f"{world}, seed {seed}")
    return found


def _cells(
    part: pl.DataFrame, takes: Sequence[str], axis: str, names: Sequence[object], columns: Sequence[str], where: str
) -> Array:
    """Return (T, N, C): the `columns` over T takes and the N `names` of an axis; zero where there is no row.

    Raises:
        InputError: a cell is there twice.
    """
    if part.select("take_id", axis).is_duplicated().any():
        raise InputError(f"{where}: a take and {axis} is there twice; write the table again")
    cells: Array = np.zeros((len(takes), len(names), len(columns)))
    at = np.searchsorted(takes, part["take_id"].to_list()), [names.index(name) for name in part[axis]]
    cells[at] = part.select(columns).to_numpy()
    return cells
