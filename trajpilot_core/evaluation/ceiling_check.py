"""The judgements on ceilings: no row is above its ceiling, and the ceilings are as often right as they predict.

Check names begin with `ceiling`. A failed one proves a leak, or a fault in the inference.
Source: docs/decisions/ceiling.md.
"""

import math
from collections.abc import Iterable, Sequence

import numpy as np

from schemas.results import Ceiling, Judgement
from trajpilot_core.arrays import Array
from trajpilot_core.evaluation.bootstrap import cluster_sums
from trajpilot_core.evaluation.ceiling import (
    BINDING,
    BINDING_AFTER_START,
    ERRORS,
    ExactCeilings,
    bounded_metrics,
    paired,
)
from trajpilot_core.simworld.inference.visible import InputKind

CALIBRATED = 4.0
"""Standard errors by which the ceilings may miss their own probabilities: there are two to four figures per kind."""
NO_CEILING = "ceiling: no exact ceiling for this layout"
"""The only check where a simulated world has no ceiling; the detail is the reason."""
ROUNDING = 1e-6
"""Rounding error of a sum, points."""


def ceiling_checks(rows: Sequence[Ceiling], known: ExactCeilings | str | None) -> list[Judgement]:
    """Judge every row by its binding figures, warn of the others, and check the ceilings themselves.

    Args:
        known: the ceilings; the reason why a simulated world has none; None where the corpus is not simulated: nothing
            is judged.
    """
    if known is None:
        return []
    if isinstance(known, str):
        return [Judgement(check=NO_CEILING, verdict="not run", detail=known)]
    variants = list(dict.fromkeys(row.variant for row in rows))
    return [
        *(row_check(variant, [r for r in rows if r.variant == variant and r.binding]) for variant in variants),
        other_cells_check(rows),
        calibration_check(known),
    ]


def row_check(variant: str, rows: Sequence[Ceiling]) -> Judgement:
    """Judge one row by its binding figures, plain means over horizons: 3 standard errors above prove a leak."""
    check = f"ceiling: {variant} is below what can be known"
    detail = "; ".join(_figure(row) for row in rows)
    if any(row.above for row in rows):
        return Judgement(check=check, verdict="fails", detail=f"{detail}: it received inputs that it must not see")
    if not all(math.isfinite(row.standard_error) for row in rows):
        return Judgement(check=check, verdict="not run", detail=f"too few takes; {detail}")
    return Judgement(check=check, verdict="holds", detail=detail)


def _figure(row: Ceiling) -> str:
    """Return one comparison as text."""
    place = "" if row.horizon is None else f" at H={row.horizon}"
    error = f"standard error {row.standard_error:.2f}" if math.isfinite(row.standard_error) else "no standard error"
    return f"{row.metric}{place} {row.value:.1f}, ceiling {row.ceiling:.1f} ({row.difference:+.1f}, {error})"


def other_cells_check(rows: Iterable[Ceiling]) -> Judgement:
    """Warn of single cells above their ceiling: among hundreds one may be above by chance."""
    others = [row for row in rows if not row.binding]
    above = [f"{row.variant}, {_figure(row)}" for row in others if row.above]
    check = "ceiling: no other metric or horizon is above what can be known"
    if not above:
        detail = f"{len(others)} figures within {ERRORS:g} standard errors"
        return Judgement(check=check, verdict="holds", detail=detail)
    more = f"; and {len(above) - 5} more" if len(above) > 5 else ""
    return Judgement(check=check, verdict="undecided", detail=f"warning: {'; '.join(above[:5])}{more}")


def calibration_check(known: ExactCeilings) -> Judgement:
    """Check that the exact decisions are right as often as their probabilities predict, so the inference is correct."""
    check = "ceiling: what can be known is right as often as predicted"
    measured = [line for kind in known.values for line in _calibration(known, kind)]
    faults = [text for text, gap, error in measured if abs(gap) > CALIBRATED * error + ROUNDING]
    unproven = f"; {known.n_unproven} best sequences are not proven and count as right" if known.n_unproven else ""
    if not all(math.isfinite(error) for _, _, error in measured):
        return Judgement(check=check, verdict="not run", detail=f"too few takes{unproven}")
    texts = faults or [text for text, _, _ in measured]
    return Judgement(check=check, verdict="fails" if faults else "holds", detail="; ".join(texts) + unproven)


def _calibration(known: ExactCeilings, kind: InputKind) -> list[tuple[str, float, float]]:
    """Return per binding metric a text, reached - expected in points, and its standard error, over all horizons."""
    takes, take = np.unique(np.array(known.take_ids, dtype=str), return_inverse=True)
    sums, counts = [], []
    for horizon in sorted(set(known.horizons.tolist())):
        here = known.horizons == horizon
        both: Array = np.concatenate([known.values[kind][here], known.expected[kind][here]], axis=1)
        summed, counted = cluster_sums(both, take[here], len(takes))
        sums.append(np.moveaxis(summed.reshape(len(takes), 2, -1), 1, 0))
        counts.append(counted)
    reached, expected, error = paired(np.stack(sums, axis=2), np.stack(counts, axis=1))
    figures = []
    metrics = bounded_metrics(kind)
    for m in (metrics.index(metric) for metric in (*BINDING, *BINDING_AFTER_START) if metric in metrics):
        gap = float(reached[m] - expected[m])
        text = f"{kind}, {metrics[m]}: {reached[m]:.1f}, expected {expected[m]:.1f} ({gap:+.1f})"
        figures.append((text, gap, float(error[m])))
    return figures
