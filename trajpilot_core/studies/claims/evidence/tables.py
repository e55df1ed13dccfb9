"""The committed tables of the claims, read: what is absent is absent, never an error and never filled in.

Files under docs/claims: `<name>.parquet` with the columns of a record after `world` (and `world_seed`, where no seed in
the record says it), and run.json (`schemas.claims.ClaimsRun`).
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
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
from trajpilot_core.errors import InputError
from trajpilot_core.store.parquet import read_table, table_bytes
from trajpilot_core.studies.claims.evidence.statistics import Sums

R = TypeVar("R", bound=Record)
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


FILES: tuple[File, ...] = (
    File("scores", ClaimScore, False),
    File("gate", GateRow, False),
    File("headroom", Headroom, False),
    File("curves", CurvePoint, True),
    File("judgements", Judgement, True),
    File("ceilings", Ceiling, True),
    File("leaks", LeakCheck, True),
    File("geometry", GeometryScore, True),
    File("study", ScorerStudy, True),
    File("goal_progress", GoalProgress, True),
)
"""Every table that the pages read."""


class Placed(NamedTuple):
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
    """Everything that the pages are drawn from."""

    horizons: tuple[int, ...]
    scores: Scores
    geometry: Mapping[str, Mapping[int, Sums]]
    """World -> seed -> (T, kinds) sums of distances and counts of pairs."""
    goal_progress: Mapping[str, Mapping[int, Sums]]
    """World -> seed -> (T, H) plans that approach the goal, in percent times windows, and windows."""
    gate: tuple[tuple[Placed, GateRow], ...]
    headroom: tuple[tuple[Placed, Headroom], ...]
    curves: tuple[tuple[Placed, CurvePoint], ...]
    judgements: tuple[tuple[Placed, Judgement], ...]
    ceilings: tuple[tuple[Placed, Ceiling], ...]
    leaks: tuple[tuple[Placed, LeakCheck], ...]
    study: tuple[tuple[Placed, ScorerStudy], ...]
    run: ClaimsRun | None
    absent: tuple[str, ...]
    """Files that are not there."""


def claims_table(file: File, rows: Iterable[tuple[Placed, Record]]) -> pa.Table:
    """Build one table of the claims.

    Args:
        file: which.
        rows: its records with the world and seed that they come from.
    """
    places = [pa.field("world", pa.string(), nullable=False)]
    places += [pa.field("world_seed", pa.int64(), nullable=False)] if file.has_world_seed else []
    schema = pa.schema([*places, *arrow_schema(file.row)])
    values = [
        {"world": place.world, "world_seed": place.seed, **record.model_dump(mode="json")} for place, record in rows
    ]
    return pa.Table.from_pylist(values, schema=schema)


def write_claims_table(folder: Path, name: str, rows: Iterable[tuple[Placed, Record]]) -> Path:
    """Write one table of the claims into `folder`; equal rows give equal bytes.

    Raises:
        InputError: no table is called `name`.
    """
    found = {file.name: file for file in FILES}
    if name not in found:
        raise InputError(f"the claims have no table {name!r}; the tables are {', '.join(sorted(found))}")
    path = folder / f"{name}.parquet"
    path.write_bytes(table_bytes(claims_table(found[name], rows)))
    return path


def places_of(folder: Path, file: File) -> set[Placed]:
    """Return the worlds and seeds that a table in `folder` holds; none where it is absent."""
    frame = _frame(folder, file)
    if frame is None:
        return set()
    return {Placed(world, seed) for world, seed in frame.select("world", "world_seed").unique().iter_rows()}


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
        geometry=_by_take(frames["geometry"], "kind", KINDS, ("distance", "n"), 1.0),
        goal_progress=_by_take(frames["goal_progress"], "horizon", horizons, ("monotone", "n_windows"), 100.0),
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


def _records(frame: pl.DataFrame | None, row: type[R]) -> tuple[tuple[Placed, R], ...]:
    """Read the rows back, in the order of the file."""
    if frame is None:
        return ()
    names = [name for name in row.model_fields if name in frame.columns]
    places = zip(frame["world"], frame["world_seed"], strict=True)
    values = frame.select(names).iter_rows(named=True)
    return tuple((Placed(*place), row.model_validate(v)) for place, v in zip(places, values, strict=True))


def _scores(frame: pl.DataFrame | None, horizons: tuple[int, ...]) -> Scores:
    """Group the scores by world and seed."""
    if frame is None:
        return MappingProxyType({})
    strange = sorted(set(frame["horizon"].unique()) - set(horizons))
    if strange:
        raise InputError(f"scores.parquet holds horizons {strange}; the claims know {list(horizons)} (ClaimsConfig)")
    found: dict[str, dict[int, SeedScores]] = {}
    for key, part in frame.partition_by("world", "world_seed", as_dict=True).items():
        found.setdefault(str(key[0]), {})[int(key[1])] = _seed_scores(part, horizons, f"{key[0]}, seed {key[1]}")
    return found


def _seed_scores(frame: pl.DataFrame, horizons: tuple[int, ...], where: str) -> SeedScores:
    """Lay the rows of one world and seed out over takes and horizons."""
    takes = tuple(sorted(frame["take_id"].unique()))
    place = {take: index for index, take in enumerate(takes)}
    column = {horizon: index for index, horizon in enumerate(horizons)}
    rows, counts = {}, {}
    for key, part in frame.partition_by("variant", as_dict=True).items():
        at = (
            np.array([place[take] for take in part["take_id"]], dtype=np.int64),
            np.array([column[horizon] for horizon in part["horizon"]], dtype=np.int64),
        )
        if len(set(zip(*at, strict=True))) < len(part):
            raise InputError(f"scores.parquet holds a take and horizon of {key[0]} ({where}) twice; write it again")
        values, held = np.zeros((len(takes), len(horizons), len(METRICS))), np.zeros((len(takes), len(horizons)))
        values[at], held[at] = part.select(METRICS).to_numpy(), part["n_windows"].to_numpy()
        rows[str(key[0])], counts[str(key[0])] = values, held
    return SeedScores(takes, rows, counts)


def _by_take(
    frame: pl.DataFrame | None, axis: str, names: Sequence[object], columns: tuple[str, str], scale: float
) -> Mapping[str, Mapping[int, Sums]]:
    """Lay sums and counts, the two `columns`, out over takes and the `names` of another column."""
    found: dict[str, dict[int, Sums]] = {}
    if frame is None:
        return found
    for key, part in frame.partition_by("world", "world_seed", as_dict=True).items():
        takes = sorted(part["take_id"].unique())
        place = {take: index for index, take in enumerate(takes)}
        sums, counts = np.zeros((len(takes), len(names))), np.zeros((len(takes), len(names)))
        for take, at, value, n in part.select("take_id", axis, *columns).iter_rows():
            sums[place[take], names.index(at)] += scale * value
            counts[place[take], names.index(at)] += n
        found.setdefault(str(key[0]), {})[int(key[1])] = Sums(sums, counts)
    return found
