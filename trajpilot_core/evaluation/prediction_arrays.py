"""The predictions table as integer arrays: one block per variant, seed and horizon.

Shapes: N windows of the block, H positions, K ranked answers.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from trajpilot_core.arrays import Codes
from trajpilot_core.errors import TrajPilotError

RANKED = 5


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
    """All blocks and the ids that their codes stand for, each sorted."""

    window_ids: tuple[str, ...]
    """Windows predicted, and windows of the bank that were used."""
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


def _shared_codes(columns: list[pa.ChunkedArray | pa.Array]) -> tuple[list[Codes], tuple[str, ...]]:
    """Return one (rows,) array of codes per column into one sorted list of ids; -1 for null."""
    parts = [_encode(column) for column in columns]
    ids = sorted(set().union(*(names for _, names in parts)))
    place = {name: index for index, name in enumerate(ids)}
    coded = [np.array([*map(place.__getitem__, names), -1], dtype=np.int64)[codes] for codes, names in parts]
    return coded, tuple(ids)


def _padded(lists: pa.ChunkedArray, codes: Codes) -> Codes:
    """Return (rows, 5): the first five codes of every list, -1 where a list is shorter."""
    lengths = pc.list_value_length(lists).to_numpy().astype(np.int64)
    starts = np.concatenate([[0], np.cumsum(lengths)[:-1]]) if len(lengths) else np.zeros(0, dtype=np.int64)
    places = starts[:, None] + np.arange(RANKED)
    inside = np.arange(RANKED) < lengths[:, None]
    return np.where(inside, np.append(codes, -1)[np.where(inside, places, -1)], -1)


def _boundaries(columns: list[NDArray[Any]], order: Codes) -> list[Codes]:
    """Split `order` where one of the sorted `columns` changes."""
    changed = np.zeros(max(len(order) - 1, 0), dtype=bool)
    for column in columns:
        ordered = column[order]
        changed |= ordered[1:] != ordered[:-1]
    return np.split(order, np.flatnonzero(changed) + 1)


def predictions_of(table: pa.Table) -> Predictions:
    """Turn a table with the columns of `schemas.results.Prediction` into integer blocks.

    Raises:
        EvaluationError: the table is empty, or a window lacks a position or holds one twice.
    """
    if table.num_rows == 0:
        raise EvaluationError("no prediction to score: the predictions table is empty; see the rejects of evaluation")
    (variant, window, candidate, take), names = _ids(table)
    seed, horizon, position = (table[name].to_numpy().astype(np.int64) for name in ("seed", "horizon", "position"))
    ranked_values = pc.list_flatten(table["top_ids"])
    (labels, decoded, ranked), label_ids = _shared_codes([table["label_id"], table["decoded_id"], ranked_values])
    columns = {
        "labels": labels,
        "decoded": decoded,
        "rankings": _padded(table["top_ids"], ranked),
        "take": take,
        "window": window,
        "candidate": candidate,
        "position": position,
        "gate": pc.fill_null(pc.cast(table["gate"], pa.float64()), np.nan).to_numpy(),
        "opened": pc.fill_null(pc.cast(table["opened"], pa.int8()), -1).to_numpy(),
    }
    order = np.lexsort((position, window, horizon, seed, variant))
    blocks = []
    for rows in _boundaries([variant, seed, horizon], order):
        head = names["variant"][variant[rows[0]]], int(seed[rows[0]]), int(horizon[rows[0]])
        blocks.append(_block(head, {name: values[rows] for name, values in columns.items()}, names["window"]))
    return Predictions(names["window"], names["take"], label_ids, tuple(blocks))


def _ids(table: pa.Table) -> tuple[tuple[Codes, Codes, Codes, Codes], dict[str, tuple[str, ...]]]:
    """Return (rows,) codes of variant, window, candidate and take, and the ids that they stand for."""
    (variant,), variants = _shared_codes([table["variant"]])
    (window, candidate), windows = _shared_codes([table["window_id"], table["candidate"]])
    (take,), takes = _shared_codes([table["take_id"]])
    return (variant, window, candidate, take), {"variant": variants, "window": windows, "take": takes}


def _block(
    head: tuple[str, int, int], columns: dict[str, NDArray[Any]], window_ids: tuple[str, ...]
) -> PredictionBlock:
    """Build the block of (variant, seed, horizon) from its rows, sorted by window and position."""
    variant, seed, horizon = head
    window, position = columns["window"], columns["position"]
    wanted = np.resize(np.arange(horizon), len(position))
    whole = len(position) % horizon == 0 and (position == wanted).all()
    if not whole or (window.reshape(-1, horizon) != window[::horizon, None]).any():
        at = int(np.flatnonzero(position != wanted)[0]) if (position != wanted).any() else len(position) - 1
        raise EvaluationError(
            f"window {window_ids[window[at]]} of variant {variant}, seed {seed}: position {position[at]} stands where "
            f"{wanted[at]} was expected; every window needs the positions 0 to {horizon - 1} exactly once"
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
