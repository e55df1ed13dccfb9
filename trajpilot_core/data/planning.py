"""Tables -> tensors on the device, and the planning windows that all rows of the tables share.

Shapes: S segments, C tokens per feature (1 pooled, 8 temporal), D feature width, V labels, E text width, N windows,
H horizon (positions of a window, Start and Goal included).
"""

from collections.abc import Container, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Self

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import torch
from numpy.typing import DTypeLike, NDArray
from torch import Tensor

from schemas.annotation import DOF, MOTIONS
from schemas.rejects import Reject, RejectCode, reject
from trajpilot_core.errors import StoreError
from trajpilot_core.poses.sources.base import check_one_source
from trajpilot_core.store.parquet import vectors_of
from trajpilot_core.store.reading import Inputs

SPLITS = ("train", "dev", "test")
"""Splits; every tensor called `split` has indices into them."""
NO_FOLD = -2
"""Fold of a take that is not for training. Training takes have -1 (fitted, cheap mode) or their fold from 0 on."""


@dataclass(frozen=True)
class OnDevice:
    """A record whose tensors are on one device."""

    def to(self, device: str) -> Self:
        """Return the same with every tensor on `device`; tensors that are there already are not copied."""
        movable = (Tensor, OnDevice)
        moved: dict[str, Any] = {k: value.to(device) for k, value in vars(self).items() if isinstance(value, movable)}
        return replace(self, **moved)


@dataclass(frozen=True)
class WindowSet(OnDevice):
    """Planning windows of one horizon, in order of their ids."""

    window_ids: tuple[str, ...]
    take: Tensor
    """(N,) long, index into take_ids."""
    split: Tensor
    """(N,) long, index into SPLITS."""
    segments: Tensor
    """(N, H) long, rows of features, motions and labels."""

    @cached_property
    def id_column(self) -> pa.Array:
        """Return the ids as an Arrow array of shape (N,)."""
        return pa.array(self.window_ids, pa.string())


@dataclass(frozen=True)
class ClosedTables(OnDevice):
    """Further inputs of decoding on a closed vocabulary."""

    segments: pa.Table
    """All segments, with the columns `take_id`, `split`, `position`, `run` and `label_id`."""
    allowed: Tensor
    """(takes, V) bool, labels of the scenario of each take."""


@dataclass(frozen=True)
class MotionData(OnDevice):
    """The data of alignment: S segments with motions, with or without a feature."""

    take_ids: tuple[str, ...]
    segment_ids: tuple[str, ...]
    label_ids: tuple[str, ...]
    """In the order of the bank, (V,)."""
    motions: Tensor
    """(S, 16, 6) float32, raw: metres and radians."""
    labels: Tensor
    """(S,) long, index into label_ids."""
    bank: Tensor
    """(V, E) float32, unit norm."""
    segment_take: Tensor
    """(S,) long, index into take_ids."""
    take_split: Tensor
    """(takes,) long, index into SPLITS."""


@dataclass(frozen=True)
class PlanningData(MotionData):
    """The data of predictor, scorer and evaluation; S counts the segments with feature and motions."""

    captures: tuple[str, ...]
    features: Tensor
    """(S, C, D) float16, raw."""
    fold: Tensor
    """(takes,) long; see NO_FOLD."""
    windows: dict[int, WindowSet]
    """Horizon -> its windows, horizons ascending; every row of every table uses exactly these windows."""
    rejects: list[Reject]
    """One WINDOW_INCOMPLETE per window that lacks a feature or motions."""
    closed: ClosedTables | None = None
    """None unless models have class heads."""
    own_labels: Tensor | None = None
    """(S,) long, index into `own_bank`: the labels themselves, if `labels` and `bank` are those of classes."""
    own_bank: Tensor | None = None
    """(labels, E) float32, unit norm."""
    class_of: Tensor | None = None
    """(labels,) long, the class of each label of `own_bank`."""
    code_of: Mapping[str, int] | None = None
    """Label id -> class, if `labels` are classes."""

    @property
    def codes(self) -> Mapping[str, int]:
        """Return label id -> index into `label_ids`; that of its class if those are classes."""
        return {label: code for code, label in enumerate(self.label_ids)} if self.code_of is None else self.code_of

    @property
    def read_labels(self) -> Tensor:
        """Return (S,) long: the labels of a bank's segments that models read as inputs, as in training."""
        return self.labels if self.own_labels is None else self.own_labels

    @property
    def read_bank(self) -> Tensor:
        """Return (labels, E): the texts that `read_labels` indexes."""
        return self.bank if self.own_bank is None else self.own_bank

    def to(self, device: str) -> Self:
        """Return the same data with every tensor on `device`, those of the windows included."""
        return replace(super().to(device), windows={h: w.to(device) for h, w in self.windows.items()})


def load_planning_data(inputs: Inputs, stage: str, motions: pa.Table | None = None) -> PlanningData:
    """Read takes, segments, windows, motions, features, text_bank and folds into tensors on the CPU.

    `motions` replaces the table of this name; `stage` is noted in the rejects.

    Raises StoreError: tables do not match (an id of one is missing in another).
    """
    features = inputs.table("features")
    data = load_motion_data(inputs, motions, features)
    takes, take_of, row_of = _takes(inputs), _index(data.take_ids), _index(data.segment_ids)
    kept, rejects = _usable_windows(inputs.table("windows"), row_of, stage)
    windows = {}
    for horizon, rows in kept.items():
        segments = [row_of[segment] for row in rows for segment in row["segment_ids"]]
        windows[horizon] = WindowSet(
            window_ids=tuple(row["window_id"] for row in rows),
            take=indices([row["take_id"] for row in rows], take_of, "takes"),
            split=torch.tensor([SPLITS.index(row["split"]) for row in rows], dtype=torch.long),
            segments=torch.tensor(segments, dtype=torch.long).view(len(rows), horizon),
        )
    tokens = int((features.schema.metadata or {}).get(b"tokens", b"1"))
    flat = _gather(features, "vector", data.segment_ids, np.float16)
    if flat.shape[1] % tokens:
        raise StoreError(
            f"features: {flat.shape[1]} numbers per segment cannot be {tokens} tokens; recompute the features"
        )
    return PlanningData(
        **vars(data),
        captures=tuple(take["capture"] for take in takes),
        features=torch.from_numpy(flat).view(len(flat), tokens, -1),
        fold=fold_tensor(inputs.table("folds"), take_of),
        windows=windows,
        rejects=rejects,
    )


def load_motion_data(inputs: Inputs, motions: pa.Table | None = None, features: pa.Table | None = None) -> MotionData:
    """Read takes, segments, motions and text_bank into tensors on the CPU; `motions` replaces the table of this name.

    Only segments that are in `features`, too, are kept; None: every segment with motions.

    Raises StoreError: tables do not match.
    """
    motions = inputs.table("motions") if motions is None else motions
    check_one_source(motions)
    kept = set(motions["segment_id"].to_pylist())
    if features is not None:
        kept &= set(features["segment_id"].to_pylist())
    segments = inputs.table("segments", ["segment_id", "take_id", "label_id"]).to_pylist()
    rows = sorted((row for row in segments if row["segment_id"] in kept), key=lambda row: str(row["segment_id"]))
    takes, (label_ids, bank) = _takes(inputs), read_bank(inputs)
    take_ids, segment_ids = tuple(row["take_id"] for row in takes), tuple(row["segment_id"] for row in rows)
    return MotionData(
        take_ids=take_ids,
        segment_ids=segment_ids,
        label_ids=label_ids,
        motions=motions_tensor(motions, segment_ids),
        labels=indices([row["label_id"] for row in rows], _index(label_ids), "text_bank"),
        bank=bank,
        segment_take=indices([row["take_id"] for row in rows], _index(take_ids), "takes"),
        take_split=torch.tensor([SPLITS.index(take["split"]) for take in takes], dtype=torch.long),
    )


def _takes(inputs: Inputs) -> list[dict[str, Any]]:
    """Return the takes in order of their ids."""
    return sorted(inputs.table("takes").to_pylist(), key=lambda row: str(row["take_id"]))


def in_classes(data: PlanningData, label_classes: pa.Table) -> PlanningData:
    """Return the same data with classes instead of labels as answers; the label inputs of models do not change.

    The class of a label has the text of the label with the id of the class.

    Raises StoreError: a label has no class, or a class has the text of a label from another class.
    """
    class_of = dict(zip(label_classes["label_id"].to_pylist(), label_classes["class_id"].to_pylist(), strict=True))
    for label in data.label_ids:
        if label not in class_of or class_of.get(class_of[label]) != class_of[label]:
            raise StoreError(f"label {label!r} is in no class of label_classes; run ingest again")
    kept = [i for i, label in enumerate(data.label_ids) if class_of[label] == label]
    class_ids = tuple(data.label_ids[i] for i in kept)
    codes = indices([class_of[label] for label in data.label_ids], _index(class_ids), "text_bank")
    codes = codes.to(data.labels.device)
    return replace(
        data,
        label_ids=class_ids,
        labels=codes[data.labels],
        bank=data.bank[kept],
        own_labels=data.labels,
        own_bank=data.bank,
        class_of=codes,
        code_of=dict(zip(data.label_ids, codes.tolist(), strict=True)),
    )


def count_windows(inputs: Inputs, stage: str) -> tuple[int, list[Reject]]:
    """Return how many windows of training and dev `load_planning_data` keeps, and the rejects of the others."""
    features = {*inputs.table("features", ["segment_id"])["segment_id"].to_pylist()}
    usable = features.intersection(inputs.table("motions", ["segment_id"])["segment_id"].to_pylist())
    windows = inputs.table("windows")
    kept, rejects = _usable_windows(windows.filter(pc.not_equal(windows["split"], "test")), usable, stage)
    return sum(map(len, kept.values())), rejects


def rows_of_takes(segment_take: Tensor, takes: Tensor) -> Tensor:
    """Return (n,) long, the rows of `segment_take` (N,), long, whose take is one of `takes` (T,), long."""
    return torch.isin(segment_take, takes).nonzero().squeeze(1)


def read_bank(inputs: Inputs) -> tuple[tuple[str, ...], Tensor]:
    """Return the label ids in the order of the text bank, and its vectors (V, E)."""
    table = inputs.table("text_bank")
    label_ids = tuple(table["label_id"].to_pylist())
    return label_ids, torch.from_numpy(vectors_of(table, "vector").astype(np.float32, copy=False))


def motions_tensor(table: pa.Table, segment_ids: Sequence[str]) -> Tensor:
    """Return (S, 16, 6) float32, in the order of `segment_ids`."""
    return torch.from_numpy(_gather(table, "motions", segment_ids, np.float32)).view(-1, MOTIONS, DOF)


def _gather(table: pa.Table, column: str, segment_ids: Sequence[str], dtype: DTypeLike) -> NDArray[Any]:
    """Return the vectors of `column` (S, width) in the order of `segment_ids`; each has exactly one row."""
    row_of = _index(table["segment_id"].to_pylist())
    if len(row_of) != table.num_rows:
        raise StoreError(f"{column}: {table.num_rows - len(row_of)} segments occur twice; recompute that table")
    order = np.fromiter((row_of[s] for s in segment_ids), np.int64, len(segment_ids))
    vectors = vectors_of(table, column).astype(dtype, copy=False)
    return vectors if np.array_equal(order, np.arange(len(vectors))) else vectors[order]


def _usable_windows(
    table: pa.Table, segments: Container[str], stage: str
) -> tuple[dict[int, list[dict[str, Any]]], list[Reject]]:
    """Return horizon -> rows of the windows whose segments are all among `segments`; one reject for each other one."""
    kept: dict[int, list[dict[str, Any]]] = {}
    rejects = []
    for row in sorted(table.to_pylist(), key=lambda row: (row["horizon"], row["window_id"])):
        missing = [segment for segment in row["segment_ids"] if segment not in segments]
        if missing:
            detail = f"window {row['window_id']}: no feature or no head motions for {', '.join(missing)}"
            code = RejectCode.WINDOW_INCOMPLETE
            rejects.append(reject(stage, code, row["take_id"], detail, segment=missing[0]))
        else:
            kept.setdefault(row["horizon"], []).append(row)
    return kept, rejects


def fold_tensor(table: pa.Table, take_of: dict[str, int]) -> Tensor:
    """Return (takes,) long, NO_FOLD for takes that are not in the table of folds."""
    fold = torch.full((len(take_of),), NO_FOLD, dtype=torch.long)
    at = indices(table["take_id"].to_pylist(), take_of, "takes")
    fold[at] = torch.tensor(table["fold"].to_pylist(), dtype=torch.long)
    return fold


def _index(ids: Sequence[str]) -> dict[str, int]:
    return {key: i for i, key in enumerate(ids)}


def indices(keys: Sequence[str], index: Mapping[str, int], where: str) -> Tensor:
    """Return (N,) long, the positions of `keys` in `index`. Raises StoreError: one is not in it."""
    unknown = next((key for key in keys if key not in index), None)
    if unknown is not None:
        raise StoreError(f"{unknown!r} is not in {where}: the tables are from different runs; run the pipeline again")
    return torch.tensor([index[key] for key in keys], dtype=torch.long)
