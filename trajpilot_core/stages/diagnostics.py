"""Diagnostics of the corpus with the frozen encoder alone: distances between segments, approach to the goal."""

from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from schemas.annotation import SHORTEST_PLAN
from schemas.arrow import table_of
from schemas.config import DiagnosticsConfig
from schemas.results import PairDistance, ProgressShare
from trajpilot_core.arrays import Codes
from trajpilot_core.engine.stage import Stage, Work
from trajpilot_core.store.reading import Inputs

if TYPE_CHECKING:
    from trajpilot_core.evaluation.feature_distances import SegmentPlaces

VERSION = 2  # raise when the numbers that this stage writes change
SPLITS = ("test", "train")


def run(work: Work[DiagnosticsConfig]) -> None:
    """Measure both; rows are segments with a feature."""
    from trajpilot_core.evaluation.feature_distances import PooledFeatures, pair_distances, progress_shares

    cfg, progress = work.config, work.runtime.progress
    progress(0, 3, "parts; reading the features")
    features = work.inputs.table("features", ["segment_id"])
    tokens = int((features.schema.metadata or {}).get(b"tokens", b"1"))
    ids = features["segment_id"].combine_chunks()
    places, split = places_of(work.inputs, ids)
    rows = {name: np.flatnonzero(split == name) for name in SPLITS}
    pooled = PooledFeatures(work.inputs.vectors("features", "vector"), tokens)
    progress(1, 3, "parts; pairs of segments")
    pairs = pair_distances(pooled, places, rows, cfg)
    progress(2, 3, "parts; approach to the goal")
    windows = windows_of(work.inputs, ids, places.take, cfg)
    work.sink.table("pair_distances", table_of(PairDistance, pairs))
    work.sink.table("progress_shares", table_of(ProgressShare, progress_shares(pooled, windows, cfg)))
    work.sink.count(len(ids), len(ids))


def places_of(inputs: Inputs, ids: pa.Array) -> "tuple[SegmentPlaces, NDArray[np.str_]]":
    """Return the positions of segments, in the order of `ids`, and their splits, of shape (S,)."""
    from trajpilot_core.evaluation.feature_distances import SegmentPlaces

    segments = inputs.table("segments", ["segment_id", "take_id", "run", "position", "label_id"])
    segments = segments.take(pc.index_in(ids, value_set=segments["segment_id"].combine_chunks()))
    takes = inputs.table("takes", ["take_id", "capture", "split"])
    takes = takes.take(pc.index_in(segments["take_id"], value_set=takes["take_id"].combine_chunks()))
    places = SegmentPlaces(
        take=_codes(segments["take_id"]),
        capture=_codes(takes["capture"]),
        run=segments["run"].to_numpy().astype(np.int64),
        position=segments["position"].to_numpy().astype(np.int64),
        label=_codes(segments["label_id"]),
    )
    return places, takes["split"].to_numpy(zero_copy_only=False).astype(str)


def windows_of(
    inputs: Inputs, ids: pa.Array, take: Codes, cfg: DiagnosticsConfig
) -> dict[tuple[str, int], tuple[Codes, Codes]]:
    """Return (split, H) -> (N, H) rows of features and (N,) takes: all test windows, a sample of the training windows.

    Windows with a segment without a feature are left out, as in every row; so are windows without a middle. `ids` are
    (S,) segment ids, in the order of the features, and `take` (S,) the take of each.
    """
    table = inputs.table("windows", ["split", "horizon", "segment_ids"])
    windows: dict[tuple[str, int], tuple[Codes, Codes]] = {}
    for horizon in sorted(pc.unique(table["horizon"]).to_pylist()):
        for split in SPLITS if horizon >= SHORTEST_PLAN else ():
            chosen = table.filter(pc.and_(pc.equal(table["horizon"], horizon), pc.equal(table["split"], split)))
            flat = pc.list_flatten(chosen["segment_ids"])
            rows = pc.fill_null(pc.index_in(flat, value_set=ids), -1).to_numpy().astype(np.int64).reshape(-1, horizon)
            rows = rows[(rows >= 0).all(axis=1)]
            if split == "train":
                sampled = np.random.default_rng((cfg.seed, horizon)).permutation(len(rows))[: cfg.train_windows]
                rows = rows[np.sort(sampled)]
            if len(rows):
                windows[split, horizon] = (rows, take[rows[:, 0]])
    return windows


def _codes(names: pa.ChunkedArray) -> Codes:
    """Return (S,) integer codes, equal for equal names."""
    codes: Codes = names.combine_chunks().dictionary_encode().indices.to_numpy().astype(np.int64)
    return codes


STAGE = Stage(
    name="diagnostics",
    reads=("takes", "segments", "windows", "features"),
    writes=("pair_distances", "progress_shares"),
    config=DiagnosticsConfig,
    run=run,
    version=VERSION,
    summary="Features -> distances between kinds of pairs of segments, and how often true plans approach the goal",
    lowers=("features.tokens",),
)
