"""The predictions table as integer arrays: one block per variant, seed and horizon.

Shapes: N windows of the block, H positions, K ranked answers.
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from trajpilot_core.arrays import Codes
from trajpilot_core.errors import TrajPilotError
from trajpilot_core.methods.base import RANKED

Narrow = NDArray[np.int32]
Columns = dict[str, NDArray[Any]]
"""Name -> (rows, ...)."""


class EvaluationError(TrajPilotError):
    """A predictions table cannot be scored."""


@dataclass(frozen=True)
class PredictionBlock:
    """Predictions of one variant and seed on the windows of one horizon, sorted by window id."""

    variant: str
    seed: int
    horizon: int
    windows: Codes
    """(N,) index into Predictions.window_ids, ascending."""
    takes: Codes
    """(N,) index into Predictions.take_ids."""
    labels: Codes
    """(N, H) index into Predictions.label_ids."""
    decoded: Codes
    """(N, H)."""
    rankings: Codes
    """(N, H, 5), best first, -1 where the vocabulary is smaller."""
    gate: NDArray[np.float64]
    """(N,), NaN where the row has no gate."""
    opened: NDArray[np.int8]
    """(N,) 1 opened, 0 closed, -1 where the row has no gate."""
    candidates: Codes
    """(N,) index into Predictions.window_ids, -1 for none."""


@dataclass(frozen=True)
class Predictions:
    """All blocks and the ids of their codes, each sorted."""

    window_ids: tuple[str, ...]
    """Predicted windows, and windows of the bank that were used."""
    take_ids: tuple[str, ...]
    label_ids: tuple[str, ...]
    blocks: tuple[PredictionBlock, ...]
    """Sorted by variant, seed, horizon."""

    def of(self, variant: str) -> Iterator[PredictionBlock]:
        """Iterate over the blocks of one variant."""
        return (block for block in self.blocks if block.variant == variant)

    def variants(self) -> tuple[str, ...]:
        """Return the variants, sorted."""
        return tuple(sorted({block.variant for block in self.blocks}))

    def seeds(self, variant: str) -> tuple[int, ...]:
        """Return the seeds of a variant, sorted."""
        return tuple(sorted({block.seed for block in self.of(variant)}))

    def horizons(self) -> tuple[int, ...]:
        """Return the horizons, sorted."""
        return tuple(sorted({block.horizon for block in self.blocks}))


def _encode(column: pa.ChunkedArray | pa.Array) -> tuple[Codes, list[str]]:
    """Return (rows,) codes into the returned dictionary; -1 for null.

    Chunks are encoded before they are joined: joined strings of over 2 GiB would overflow their 32-bit offsets.
    """
    encoded = pc.dictionary_encode(column)
    if isinstance(encoded, pa.ChunkedArray):
        encoded = encoded.unify_dictionaries().combine_chunks()
    codes = pc.fill_null(encoded.indices, -1).to_numpy(zero_copy_only=False)
    return codes.astype(np.int64), encoded.dictionary.to_pylist()


class IdNumbers:
    """Numbers ids in order of appearance; `sorted` maps the numbers to places in the sorted list."""

    def __init__(self) -> None:
        self._number: dict[str, int] = {}

    def codes(self, column: pa.ChunkedArray | pa.Array) -> Narrow:
        """Return the numbers of a column's ids, -1 for null, shape (rows,)."""
        codes, names = _encode(column)
        numbers = [self._number.setdefault(name, len(self._number)) for name in names]
        return np.array([*numbers, -1], dtype=np.int32)[codes]

    def sorted(self) -> tuple[tuple[str, ...], Codes]:
        """Return all ids, sorted, and (numbers + 1,) the place of each number; the last, for -1, is -1."""
        ids = tuple(sorted(self._number))
        places = np.full(len(ids) + 1, -1, dtype=np.int64)
        places[[self._number[name] for name in ids]] = np.arange(len(ids))
        return ids, places


class PredictionCollector:
    """Collects tables with the columns of `schemas.results.Prediction` and keeps integers only.

    A row needs about 50 bytes here, 300 as a row of the table.
    """

    def __init__(self) -> None:
        self._windows, self._takes, self._labels = IdNumbers(), IdNumbers(), IdNumbers()
        self._parts: dict[tuple[str, int, int], list[Columns]] = defaultdict(list)
        """Variant, seed and horizon -> rows in the order of their tables."""
        self._used: set[int] = set()

    def passing(self, tables: Iterable[pa.Table]) -> Iterator[pa.Table]:
        """Add tables and yield them again, one after the other."""
        for table in tables:
            self.add(table)
            yield table

    def add(self, table: pa.Table) -> None:
        """Add the rows of a table."""
        if not table.num_rows:
            return
        (variant, names), seed, horizon = _encode(table["variant"]), *(_integers(table, n) for n in ("seed", "horizon"))
        lengths = pc.list_value_length(table["top_ids"]).to_numpy().astype(np.int64)
        places = (np.cumsum(lengths) - lengths)[:, None] + np.arange(RANKED)
        inside = np.arange(RANKED) < lengths[:, None]  # a list that is shorter is filled up with -1
        ranked = np.append(self._labels.codes(pc.list_flatten(table["top_ids"])), np.int32(-1))
        columns = {
            "labels": self._labels.codes(table["label_id"]),
            "decoded": self._labels.codes(table["decoded_id"]),
            "rankings": ranked[np.where(inside, places, -1)],
            "take": self._takes.codes(table["take_id"]),
            "window": self._windows.codes(table["window_id"]),
            "candidate": self._windows.codes(table["candidate"]),
            "position": _integers(table, "position").astype(np.int32),
            "gate": pc.fill_null(pc.cast(table["gate"], pa.float64()), np.nan).to_numpy(),
            "opened": pc.fill_null(pc.cast(table["opened"], pa.int8()), -1).to_numpy(),
        }
        self._used.update(np.unique(columns["candidate"]).tolist())
        order = np.lexsort((horizon, seed, variant))
        changed = np.zeros(max(len(order) - 1, 0), dtype=bool)
        for column in (variant, seed, horizon):
            changed |= np.diff(column[order]) != 0
        for rows in np.split(order, np.flatnonzero(changed) + 1):
            head = names[variant[rows[0]]], int(seed[rows[0]]), int(horizon[rows[0]])
            self._parts[head].append({name: values[rows] for name, values in columns.items()})

    def candidates(self) -> list[str]:
        """Return the ids of all windows that served as a candidate, sorted."""
        window_ids, places = self._windows.sorted()
        return [window_ids[index] for index in sorted(places[list(self._used - {-1})].tolist())]

    def predictions(self) -> Predictions:
        """Return the blocks of all rows, and drop the rows.

        Raises:
            EvaluationError: there is no row, or a window lacks a position or has one twice.
        """
        if not self._parts:
            raise EvaluationError(
                "no prediction to score: the predictions table is empty; see the rejects of evaluation"
            )
        (windows, window), (takes, take), (labels, label) = (
            ids.sorted() for ids in (self._windows, self._takes, self._labels)
        )
        places = {"window": window, "candidate": window, "take": take}
        places |= dict.fromkeys(("labels", "decoded", "rankings"), label)
        blocks = []
        for head in sorted(self._parts):
            parts = self._parts.pop(head)
            columns = {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}
            columns |= {name: place[columns[name]] for name, place in places.items()}
            order = np.lexsort((columns["position"], columns["window"]))
            blocks.append(_block(head, {name: values[order] for name, values in columns.items()}, windows))
        return Predictions(windows, takes, labels, tuple(blocks))


def _integers(table: pa.Table, name: str) -> Codes:
    values: Codes = table[name].to_numpy().astype(np.int64)
    return values


def _block(head: tuple[str, int, int], columns: Columns, window_ids: tuple[str, ...]) -> PredictionBlock:
    """Build the block of (variant, seed, horizon) from its rows, sorted by window and position."""
    variant, seed, horizon = head
    window, position = columns["window"], columns["position"]
    wanted = np.resize(np.arange(horizon), len(position))
    whole = len(position) % horizon == 0 and (position == wanted).all()
    if not whole or (window.reshape(-1, horizon) != window[::horizon, None]).any():
        at = int(np.flatnonzero(position != wanted)[0]) if (position != wanted).any() else len(position) - 1
        raise EvaluationError(
            f"window {window_ids[window[at]]} of variant {variant}, seed {seed}: position {position[at]} follows "
            f"where {wanted[at]} must; every window needs the positions 0 to {horizon - 1} exactly once"
        )
    first = slice(None, None, horizon)
    return PredictionBlock(
        variant,
        seed,
        horizon,
        window[first],
        columns["take"][first],
        columns["labels"].reshape(-1, horizon),
        columns["decoded"].reshape(-1, horizon),
        columns["rankings"].reshape(-1, horizon, RANKED),
        columns["gate"][first],
        columns["opened"][first],
        columns["candidate"][first],
    )
