"""The accuracy of a pose source on a corpus that has pose files too: distributions over clips."""

from collections.abc import Sequence
from itertools import pairwise
from typing import NamedTuple

import numpy as np
import polars as pl
import pyarrow as pa

from schemas.annotation import DOF, MOTIONS, Take
from schemas.arrow import rows_of
from schemas.poses import TrajectoryConfig
from trajpilot_core.poses.accuracy import ClipError, take_errors

QUALITY_EDGES = (0.0, 0.7, 0.8, 0.9, 1.01)
"""Classes of quality that are distinguished."""


class Distribution(NamedTuple):
    """Errors of the clips of one class."""

    name: str
    n: int
    rotation_deg: tuple[float, float]
    """Median and 90 %."""
    position_cm: tuple[float, float]
    position_share: tuple[float, float]
    """Position error as a share of the spread of the true positions: 1 is no better than the mean, 0 is the truth."""
    turned_deg: float
    """Median of what the head turned."""


def corpus_errors(
    data_root: str, takes: pa.Table, segments: pa.Table, head_motions: pa.Table, cfg: TrajectoryConfig
) -> list[tuple[ClipError, float]]:
    """Return the error and the quality of every clip whose truth is known, take by take."""
    spans = pl.DataFrame(pl.from_arrow(segments.select(["segment_id", "start_s", "end_s"])))
    rows = pl.DataFrame(pl.from_arrow(head_motions)).join(spans, on="segment_id").sort("segment_id")
    errors: list[tuple[ClipError, float]] = []
    for take in rows_of(Take, takes):
        of_take = rows.filter(pl.col("take_id") == take.take_id)
        if take.trajectory is None or not len(of_take):
            continue
        motions = np.array(of_take["motions"].to_list()).reshape(-1, MOTIONS, DOF)
        spans_s = list(zip(of_take["start_s"].to_list(), of_take["end_s"].to_list(), strict=True))
        per_clip = take_errors(data_root, take, spans_s, motions, cfg)
        pairs = zip(per_clip, of_take["quality"].to_list(), strict=True)
        errors += [(error, quality) for error, quality in pairs if error is not None]
    return errors


def distributions(errors: Sequence[tuple[ClipError, float]]) -> list[Distribution]:
    """Summarise clips: all of them, then by class of quality; classes without clips are left out."""
    classes = {"all": [error for error, _ in errors]}
    for low, high in pairwise(QUALITY_EDGES):
        classes[f"quality {low:g} to {min(high, 1):g}"] = [error for error, q in errors if low <= q < high]
    return [_distribution(name, of_class) for name, of_class in classes.items() if of_class]


def _distribution(name: str, errors: Sequence[ClipError]) -> Distribution:
    share = [error.position_m / max(error.spread_m, 1e-9) for error in errors]
    return Distribution(
        name,
        len(errors),
        _middle_and_tail([error.rotation_deg for error in errors]),
        _middle_and_tail([100 * error.position_m for error in errors]),
        _middle_and_tail(share),
        float(np.median([error.turned_deg for error in errors])),
    )


def _middle_and_tail(values: Sequence[float]) -> tuple[float, float]:
    """Return median and 90 %."""
    middle, tail = np.percentile(values, [50, 90])
    return float(middle), float(tail)
