"""Families of comparisons in the world `base`: rows x {M@1, MSeq} count together in Holm's procedure.

Three families: what Scorer+ must beat to stay a main row, the 2 x 2 of the retrieval attention, and every row against
the reference. Source of the rules: docs/decisions/claims-statistics.md.
"""

from collections.abc import Sequence
from typing import NamedTuple

from schemas.claims import BASE, LIMITS, NO_INFORMATION, ClaimsConfig, VerdictConfig
from trajpilot_core.methods import in_order
from trajpilot_core.methods.base import REFERENCE
from trajpilot_core.studies.claims.evidence import statistics
from trajpilot_core.studies.claims.evidence.contrasts import contrast
from trajpilot_core.studies.claims.evidence.readings import SHOWN_METRICS, reading, rows_of
from trajpilot_core.studies.claims.evidence.statistics import Equivalence, Estimate, mean_of
from trajpilot_core.studies.claims.evidence.tables import Evidence
from trajpilot_core.studies.claims.verdicts.doubts import power_doubts, training_doubts, withheld
from trajpilot_core.studies.claims.verdicts.hypotheses import BOTH, QUERY_MOTION, conjunction
from trajpilot_core.studies.claims.verdicts.words import Verdict

PLUS = "scorer_plus"
RIVALS = ("hmm", "hmm_motion", "endpoint_traj_viterbi")
"""Rows that Scorer+ must be above in both metrics to stay a main row: they decode jointly, too."""
SQUARE: dict[str, tuple[str, str]] = {
    "Do retrieved trajectories add anything when the query's motion is known?": (BOTH, QUERY_MOTION),
    "Do they when it is not?": ("retrieval_attention_retrieved_motion", "retrieval_attention_no_motion"),
    "Does retrieval add anything, labels included?": (BOTH, "retrieval_attention_alone"),
    "Does the reader beat the predictor without retrieval?": ("retrieval_attention_alone", "endpoint_traj"),
}
"""Question -> (row, what is subtracted). The first tests what the paper claims of retrieval."""


class Compared(NamedTuple):
    """One row minus another in one metric, plain mean over H."""

    row: str
    reference: str
    metric: str
    figure: Estimate | None
    adjusted_p: float
    """Holm's over the whole family; 1 where a planned seed is missing."""
    shown: Verdict
    """By the p-value alone: holds above, fails below."""
    verdict: Verdict
    note: str


def family(
    evidence: Evidence, pairs: Sequence[tuple[str, str]], cfg: ClaimsConfig, limits: VerdictConfig = LIMITS
) -> tuple[Compared, ...]:
    """Compare pairs of rows in both metrics; Holm counts all of them, whatever was run.

    Args:
        evidence: the tables.
        pairs: (row, what is subtracted).
        cfg: planned seeds, resampling, family-wise level.
        limits: what withholds a verdict.
    """
    asked = [(row, reference, metric) for row, reference in pairs for metric in SHOWN_METRICS]
    found = [contrast(evidence, BASE, row, reference, metric, cfg) for row, reference, metric in asked]
    read = [mean_of(of, cfg) for of, _ in found]
    counted = [1.0 if figure is None or one.gap else figure.p for figure, one in zip(read, found, strict=True)]
    adjusted = statistics.holm(counted)
    doubts = {
        pair: [*training_doubts(evidence, (BASE,), pair, cfg), *power_doubts(evidence, BASE, pair, cfg, limits)]
        for pair in pairs
    }
    compared = []
    for (row, reference, metric), (_, gap), figure, p in zip(asked, found, read, adjusted, strict=True):
        shown: Verdict = "not run" if gap else holm_verdict(figure, p, cfg)
        verdict, note = withheld(shown, gap, doubts[row, reference], "p-value")
        compared.append(Compared(row, reference, metric, figure, p, shown, verdict, note))
    return tuple(compared)


def holm_verdict(figure: Estimate | None, adjusted_p: float, cfg: ClaimsConfig) -> Verdict:
    """Judge whether a row is above another (holds), below (fails), or neither, at the family-wise level."""
    if figure is None:
        return "not run"
    if adjusted_p > cfg.alpha:
        return "undecided"
    return "holds" if figure.value > 0 else "fails"


def judge_plus(evidence: Evidence, cfg: ClaimsConfig) -> tuple[Compared, ...]:
    """Compare Scorer+ with the rows that it must be above."""
    return family(evidence, [(PLUS, rival) for rival in RIVALS], cfg)


def stays_main(compared: Sequence[Compared]) -> Verdict:
    """Return whether Scorer+ is above all of its rivals in both metrics, by the p-values."""
    return conjunction([one.shown for one in compared])


class SquareAnswer(NamedTuple):
    """One question of the 2 x 2 in one metric."""

    question: str
    compared: Compared
    equal: Equivalence | None
    """Of M@1: the test of equivalence of the same difference."""
    blind: Estimate | None
    """The same difference where motion carries no information."""


def judge_square(evidence: Evidence, cfg: ClaimsConfig) -> tuple[SquareAnswer, ...]:
    """Answer the questions of the 2 x 2, each in both metrics."""
    found = family(evidence, list(SQUARE.values()), cfg)
    questions = [question for question in SQUARE for _ in SHOWN_METRICS]
    return tuple(
        SquareAnswer(
            question,
            one,
            _equivalence(evidence, one, cfg) if one.metric == "m1" else None,
            reading(evidence, NO_INFORMATION, one.row, one.reference, one.metric, cfg),
        )
        for question, one in zip(questions, found, strict=True)
    )


def _equivalence(evidence: Evidence, one: Compared, cfg: ClaimsConfig) -> Equivalence | None:
    """Test a difference for equivalence; None where it was not run."""
    of, gap = contrast(evidence, BASE, one.row, one.reference, one.metric, cfg)
    return None if of is None or gap else statistics.equivalence(of, statistics.plain_mean(len(cfg.horizons)), cfg)


def against_reference(evidence: Evidence, cfg: ClaimsConfig) -> tuple[Compared, ...]:
    """Compare every row of the world, floors and ceilings left out, with the reference."""
    return family(evidence, [(row, REFERENCE) for row in in_order(rows_of(evidence, BASE) - {REFERENCE})], cfg)
