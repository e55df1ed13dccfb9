"""Every row against the reference row in M@1 and MSeq, all of them together one family of Holm's procedure."""

from typing import NamedTuple

from schemas.claims import ClaimsConfig
from trajpilot_core.methods import in_order
from trajpilot_core.methods.base import REFERENCE
from trajpilot_core.studies.claims.evidence import statistics
from trajpilot_core.studies.claims.evidence.contrasts import contrast
from trajpilot_core.studies.claims.evidence.readings import SHOWN_METRICS
from trajpilot_core.studies.claims.evidence.statistics import Estimate, mean_of
from trajpilot_core.studies.claims.evidence.tables import Evidence
from trajpilot_core.studies.claims.verdicts.aims import holm_verdict
from trajpilot_core.studies.claims.verdicts.entries import rows_of
from trajpilot_core.studies.claims.verdicts.words import Verdict

SIDES: dict[Verdict, str] = {
    "holds": "above",
    "fails": "below",
    "undecided": "not apart",
    "not run": "not run",
}
"""A verdict on the sign in words: no claim is judged here, so none of the words of verdicts is used."""


class AgainstReference(NamedTuple):
    """One row minus the reference in one metric."""

    row: str
    metric: str
    figure: Estimate | None
    adjusted_p: float
    """Holm's over rows x metrics; 1 where a planned seed is missing."""
    side: str
    gap: str


def against_reference(evidence: Evidence, world: str, cfg: ClaimsConfig) -> tuple[AgainstReference, ...]:
    """Compare every row of a world, floors and ceilings left out, with the reference.

    Args:
        evidence: the tables.
        world: name of the world.
        cfg: planned seeds, resampling, family-wise level.
    """
    rows = in_order(rows_of(evidence, world) - {REFERENCE})
    pairs = [(row, metric) for row in rows for metric in SHOWN_METRICS]
    found = [contrast(evidence, world, row, REFERENCE, metric, cfg) for row, metric in pairs]
    read = [mean_of(of, cfg) for of, _ in found]
    counted = [1.0 if figure is None or one.gap else figure.p for figure, one in zip(read, found, strict=True)]
    adjusted = statistics.holm(counted)
    return tuple(
        AgainstReference(row, metric, figure, p, SIDES["not run" if gap else holm_verdict(figure, p, cfg)], gap)
        for (row, metric), (_, gap), figure, p in zip(pairs, found, read, adjusted, strict=True)
    )
