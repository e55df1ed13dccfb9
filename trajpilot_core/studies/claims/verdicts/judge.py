"""Judging the statements of `hypotheses`: from the tables to figures and verdicts."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np

from schemas.claims import LIMITS, ClaimsConfig, VerdictConfig
from trajpilot_core.arrays import Array
from trajpilot_core.evaluation.paper_claims import sign_verdict
from trajpilot_core.studies.claims.evidence import statistics
from trajpilot_core.studies.claims.evidence.contrasts import Contrast, contrast
from trajpilot_core.studies.claims.evidence.statistics import (
    Equivalence,
    Estimate,
    Profile,
    at_each,
    estimate,
    mean_of,
)
from trajpilot_core.studies.claims.evidence.tables import Evidence
from trajpilot_core.studies.claims.verdicts.doubts import Doubt, power_doubts, training_doubts, withheld
from trajpilot_core.studies.claims.verdicts.exact import BOUND_ONLY, ExactAnswer, exact_word, of_ceilings
from trajpilot_core.studies.claims.verdicts.hypotheses import CLAIMS, Claim, Statement, StatementKind, conjunction
from trajpilot_core.studies.claims.verdicts.words import Verdict

UNITS: dict[StatementKind, str] = {"slope": "points per step of H"}
"""What the headline of a statement is; of other kinds the mean over H, though `each` is judged at every H."""


class Part(NamedTuple):
    """One figure of a statement."""

    name: str
    figure: Estimate


@dataclass(frozen=True)
class JudgedStatement:
    """One statement with its figures and verdict."""

    statement: Statement
    verdict: Verdict
    headline: Estimate | Equivalence | None
    """The figure that stands in the table; None where nothing was run."""
    parts: tuple[Part, ...] = ()
    """Figures that were judged one by one, where there are several."""
    note: str = ""
    """Why it was not run, what withholds the verdict, what the intervals alone would say."""
    broken: Estimate | None = None
    """Of a control: the same difference in the world `Statement.against`, plain mean over H, which it must break."""
    unit: str = ""
    """Of the headline."""
    exact: ExactAnswer = BOUND_ONLY
    """Whether the world supports it."""
    shown: Verdict = "not run"
    """The verdict by the intervals alone."""
    doubts: tuple[Verdict, ...] = ()
    """Every reason that withholds the verdict; the first of `words.ORDER` among them is the verdict."""


@dataclass(frozen=True)
class Judged:
    """One row of the claims table, judged."""

    claim: Claim
    findings: tuple[JudgedStatement, ...]

    def verdict(self, role: str) -> Verdict | None:
        """Return the verdict of all its claims, or of all its controls; None where there are none."""
        found = [finding.verdict for finding in self.findings if finding.statement.role == role]
        return conjunction(found) if found else None

    def shown(self, role: str) -> Verdict | None:
        """Return the same by the intervals alone."""
        found = [finding.shown for finding in self.findings if finding.statement.role == role]
        return conjunction(found) if found else None


def judge_claims(evidence: Evidence, cfg: ClaimsConfig, limits: VerdictConfig = LIMITS) -> tuple[Judged, ...]:
    """Judge every row of the claims table."""
    return tuple(Judged(claim, tuple(judge(s, evidence, cfg, limits) for s in claim.statements)) for claim in CLAIMS)


def judge(
    statement: Statement, evidence: Evidence, cfg: ClaimsConfig, limits: VerdictConfig = LIMITS
) -> JudgedStatement:
    """Judge one statement by the rule of its kind, for the models and for the world.

    Args:
        statement: what is claimed, or the control.
        evidence: the tables.
        cfg: margins, levels, planned seeds.
        limits: what withholds a verdict.
    """
    found = _learned(statement, evidence, cfg, limits)
    return replace(found, exact=_exact(statement, evidence, cfg), unit=unit_of(statement, cfg))


def unit_of(statement: Statement, cfg: ClaimsConfig) -> str:
    """State what the headline of a statement is: unit, average, and level where it is not that of other intervals."""
    if statement.is_deep:
        return f"points, mean over H >= {cfg.deep_horizon}"
    level = f", {100 * cfg.equivalence_level:g} %" if statement.kind == "equal" else ""
    return UNITS.get(statement.kind, "points, mean over H") + level


def _exact(statement: Statement, evidence: Evidence, cfg: ClaimsConfig) -> ExactAnswer:
    """Judge a statement on the ceilings of its rows; ceilings are computed, so that nothing but a gap withholds it."""
    on_ceilings = of_ceilings(statement)
    if on_ceilings is None:
        return BOUND_ONLY
    found, of, gap = _difference(on_ceilings, evidence, cfg)
    verdict: Verdict = "not run" if gap else found.verdict
    return ExactAnswer(exact_word(verdict, of, statement), found.headline)


def _learned(statement: Statement, evidence: Evidence, cfg: ClaimsConfig, limits: VerdictConfig) -> JudgedStatement:
    """Judge a statement on what the models show."""
    found, of, gap = _difference(statement, evidence, cfg)
    if of is None:
        return found
    found = replace(found, shown=found.verdict)
    rows = (statement.row, statement.reference)
    worlds = [world for world in (statement.world, statement.against) if world]
    doubts = training_doubts(evidence, worlds, rows, cfg)
    if statement.role == "claim":
        doubts += power_doubts(evidence, statement.world, rows, cfg, limits)
    else:
        found = _unless_vacuous(found, of, cfg)
    return _with_doubts(found, gap, doubts)


def _difference(
    statement: Statement, evidence: Evidence, cfg: ClaimsConfig
) -> tuple[JudgedStatement, Profile | None, str]:
    """Judge a paired difference by intervals; next to a control stands the difference that it must break.

    Returns:
        The statement judged, the profile of its difference, and what is missing.
    """
    here, there = (
        contrast(evidence, world, statement.row, statement.reference, statement.metric, cfg) if world else None
        for world in (statement.world, statement.against)
    )
    assert here is not None
    broken = None if there is None else mean_of(there.profile, cfg)
    gap = "; ".join(part.gap for part in (here, there) if part is not None and part.gap)
    of = _shrinking(here, there) if statement.kind == "shrinks" else here.profile
    if of is None:
        return JudgedStatement(statement, "not run", None, note=gap, broken=broken), None, gap
    judged = _equivalence(statement, of, cfg) if statement.kind == "equal" else _signs(statement, of, cfg)
    return replace(judged, broken=broken), of, gap


def _unless_vacuous(finding: JudgedStatement, of: Profile, cfg: ClaimsConfig) -> JudgedStatement:
    """Call a control vacuous that has nothing to break, and say what it would be; a failure stands."""
    statement, broken = finding.statement, finding.broken
    if finding.verdict not in ("holds", "undecided"):
        return finding
    if broken is None or not lies_beyond(broken, statement.sign, cfg.margin):
        side = "above +" if statement.sign > 0 else "below −"
        why = f"in {statement.against} the difference is not shown to lie {side}{cfg.margin:g} points"
    elif statement.kind == "equal" and statistics.has_nothing_to_compare(of):
        why = "in some seed the two rows answer alike everywhere"
    else:
        return finding
    return replace(finding, verdict="vacuous", note=f"{why}; by the intervals: {finding.verdict}")


def lies_beyond(figure: Estimate, sign: int, margin: float) -> bool:
    """Return whether the whole interval lies beyond a margin, on the side of `sign`; never where there is none."""
    return sign_verdict([figure], sign) == "holds" and min(abs(figure.low), abs(figure.high)) > margin


def _with_doubts(finding: JudgedStatement, gap: str, doubts: Sequence[Doubt]) -> JudgedStatement:
    """Withhold a verdict where a planned seed is missing or something speaks against it; the figures stay.

    A vacuous control stays vacuous, and one that fails is excused by training only: that nobody judged a ranking
    changes nothing in what was seen.
    """
    is_failure = finding.statement.role == "control" and finding.verdict == "fails"
    is_excused = any(doubt.word == "undertrained" for doubt in doubts)
    is_kept = finding.verdict in ("reported", "vacuous") or (is_failure and not is_excused)
    if gap and finding.verdict != "reported":
        return replace(finding, verdict="not run", note=f"{gap}; no verdict on a part")
    finding = replace(finding, doubts=tuple(dict.fromkeys(doubt.word for doubt in doubts)))
    if is_kept:
        return replace(finding, note="; ".join(part for part in (finding.note, gap, *(d.why for d in doubts)) if part))
    verdict, note = withheld(finding.verdict, "", doubts, note=finding.note)
    return replace(finding, verdict=verdict, note=note)


def _signs(statement: Statement, of: Profile, cfg: ClaimsConfig) -> JudgedStatement:
    """Judge the sign of a paired difference: at each H, in the mean, or of its slope."""
    least = cfg.deep_horizon if statement.is_deep else 0
    read = zip(cfg.horizons, at_each(of, cfg), strict=True)
    parts = tuple(Part(f"H={horizon}", figure) for horizon, figure in read if horizon >= least)
    headline = estimate(of, _weights(statement, cfg), cfg.confidence)
    judged = [part.figure for part in parts] if statement.kind == "each" else [headline]
    sign = -1 if statement.kind == "shrinks" else statement.sign
    verdict: Verdict = "reported" if statement.kind == "reported" else sign_verdict(judged, sign)
    return JudgedStatement(statement, verdict, headline, parts, "too few takes" if verdict == "not run" else "")


def _weights(statement: Statement, cfg: ClaimsConfig) -> Array:
    """Return what the headline of a statement is: the slope, or the plain mean over the horizons that are tested."""
    if statement.kind == "slope":
        return statistics.slope_weights(cfg.horizons)
    if statement.is_deep:
        deep = [float(horizon >= cfg.deep_horizon) for horizon in cfg.horizons]
        return np.array(deep) / sum(deep)
    return statistics.plain_mean(len(cfg.horizons))


def _equivalence(statement: Statement, of: Profile, cfg: ClaimsConfig) -> JudgedStatement:
    """Judge equivalence."""
    tested = statistics.equivalence(of, statistics.plain_mean(len(cfg.horizons)), cfg)
    return JudgedStatement(statement, equivalence_verdict(tested, cfg), tested)


def equivalence_verdict(tested: Equivalence, cfg: ClaimsConfig) -> Verdict:
    """Judge whether two rows are equivalent (holds), differ by more than the margin (fails), or neither."""
    if tested.low > cfg.margin or tested.high < -cfg.margin:
        return "fails"
    inside = -cfg.margin < tested.low and tested.high < cfg.margin
    return "holds" if inside and tested.standard_error <= cfg.target_se else "undecided"


def _shrinking(here: Contrast, there: Contrast | None) -> Profile | None:
    """Subtract the same difference in the reference world, seed by seed; None where a side is missing."""
    assert there is not None, "a lead shrinks against another world"
    if here.profile is None or there.profile is None or here.profile.seeds != there.profile.seeds:
        return None
    return statistics.minus(here.profile, there.profile)
