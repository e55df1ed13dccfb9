"""Judging the statements of `hypotheses`: from the tables to figures and verdicts."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np

from schemas.claims import ClaimsConfig, world_seeds
from trajpilot_core.arrays import Array
from trajpilot_core.evaluation.paper_claims import sign_verdict
from trajpilot_core.studies.claims.evidence import statistics
from trajpilot_core.studies.claims.evidence.contrasts import Contrast, contrast, untrained
from trajpilot_core.studies.claims.evidence.statistics import (
    Equivalence,
    Estimate,
    Profile,
    at_each,
    estimate,
    mean_of,
)
from trajpilot_core.studies.claims.evidence.tables import KINDS, Evidence
from trajpilot_core.studies.claims.verdicts.hypotheses import (
    CLAIMS,
    NOTHING_TO_BREAK,
    Claim,
    Statement,
    StatementKind,
    Verdict,
    conjunction,
    undertrained,
)

GEOMETRY_STEPS = ("same take, far − adjacent", "other take, same action − same take, far", "random − other take")
"""Names of the three differences between neighbouring kinds of pairs."""
ACROSS_TAKES = ("other_take_same_action", "random")
"""Kinds whose pairs join two takes: the resamples of their sums per take move one end of each pair."""
UNITS: dict[StatementKind, str] = {
    "slope": "points per step of H",
    "order": "distance, 2nd of 3 differences",
    "swap": "distance, 2nd difference",
}
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
    """Why it was not run, which model is not trained, what the intervals alone would say."""
    broken: Estimate | None = None
    """Of a control: the same difference in the world `Statement.against`, plain mean over H, which it must break."""
    unit: str = ""
    """Of the headline."""


@dataclass(frozen=True)
class Judged:
    """One row of the claims table, judged."""

    claim: Claim
    findings: tuple[JudgedStatement, ...]

    def verdict(self, role: str) -> Verdict | None:
        """Return the verdict of all its claims, or of all its controls; None where there are none."""
        found = [finding.verdict for finding in self.findings if finding.statement.role == role]
        return conjunction(found) if found else None


def judge_claims(evidence: Evidence, cfg: ClaimsConfig) -> tuple[Judged, ...]:
    """Judge every row of the claims table."""
    return tuple(Judged(claim, tuple(judge(s, evidence, cfg) for s in claim.statements)) for claim in CLAIMS)


def judge(statement: Statement, evidence: Evidence, cfg: ClaimsConfig) -> JudgedStatement:
    """Judge one statement by the rule of its kind."""
    is_geometry = statement.kind in ("order", "swap")
    found = _geometry(statement, evidence, cfg) if is_geometry else _difference(statement, evidence, cfg)
    return replace(found, unit=unit_of(statement, cfg))


def unit_of(statement: Statement, cfg: ClaimsConfig) -> str:
    """State what the headline of a statement is: unit, average, and level where it is not that of other intervals."""
    if statement.is_deep:
        return f"points, mean over H >= {cfg.deep_horizon}"
    level = f", {100 * cfg.equivalence_level:g} %" if statement.kind == "equal" else ""
    return UNITS.get(statement.kind, "points, mean over H") + level


def _difference(statement: Statement, evidence: Evidence, cfg: ClaimsConfig) -> JudgedStatement:
    """Judge a statement on a paired difference; next to a control stands the difference that it must break."""
    here, there = (
        contrast(evidence, world, statement.row, statement.reference, statement.metric, cfg) if world else None
        for world in (statement.world, statement.against)
    )
    assert here is not None
    broken = None if there is None else mean_of(there.profile, cfg)
    gap = "; ".join(part.gap for part in (here, there) if part is not None and part.gap)
    of = _shrinking(here, there) if statement.kind == "shrinks" else here.profile
    if of is None:
        return JudgedStatement(statement, "not run", None, note=gap, broken=broken)
    judged = _equivalence(statement, of, cfg) if statement.kind == "equal" else _signs(statement, of, cfg)
    if statement.against:
        judged = _unless_vacuous(replace(judged, broken=broken), of)
    rows, worlds = (statement.row, statement.reference), (statement.world, statement.against)
    return _with_doubts(judged, gap, [name for world in worlds for name in untrained(evidence, world, rows, cfg)])


def _unless_vacuous(finding: JudgedStatement, of: Profile) -> JudgedStatement:
    """Withhold `holds` from a control that has nothing to break; a failure stands."""
    statement, broken = finding.statement, finding.broken
    if finding.verdict != "holds":
        return finding
    if broken is None or sign_verdict([broken], statement.sign) != "holds":
        side = "above" if statement.sign > 0 else "below"
        why = f"in {statement.against} the difference is not shown to lie {side} zero"
    elif statement.kind == "equal" and statistics.has_nothing_to_compare(of):
        why = "in some seed the two rows answer alike everywhere"
    else:
        return finding
    return replace(finding, verdict="undecided", note=f"{NOTHING_TO_BREAK}: {why}")


def _with_doubts(finding: JudgedStatement, gap: str, weak: Sequence[str]) -> JudgedStatement:
    """Withhold a verdict where a planned seed is missing or a model is not trained; the figures stay."""
    doubt = undertrained(weak)
    if finding.verdict == "reported":
        return replace(finding, note="; ".join(part for part in (finding.note, gap, doubt) if part))
    if gap:
        return replace(finding, verdict="not run", note=f"{gap}; no verdict on a part")
    if weak:
        by_intervals = f"{finding.verdict} ({finding.note})" if finding.note else finding.verdict
        return replace(finding, verdict="undertrained", note=f"{doubt}; by the intervals: {by_intervals}")
    return finding


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


def _geometry(statement: Statement, evidence: Evidence, cfg: ClaimsConfig) -> JudgedStatement:
    """Judge the order of the four mean distances, or that the second and the third have swapped."""
    planned = world_seeds(cfg, statement.world)
    held = {seed: sums for seed, sums in evidence.geometry.get(statement.world, {}).items() if seed in planned}
    if not held:
        return JudgedStatement(statement, "not run", None, note=f"no distances of the world {statement.world}")
    is_across = np.array([kind in ACROSS_TAKES for kind in KINDS])
    of = statistics.with_both_takes(statistics.profile(statement.world, held, cfg), is_across)
    read = [estimate(of, row, cfg.confidence) for row in np.diff(np.eye(len(KINDS)), axis=0)]
    parts = tuple(Part(name, figure) for name, figure in zip(GEOMETRY_STEPS, read, strict=True))
    is_order = statement.kind == "order"
    verdict = sign_verdict(read, 1) if is_order else sign_verdict(read[1:2], -1)
    missing = [str(seed) for seed in planned if seed not in held]
    why = "too few takes" if verdict == "not run" else ""
    finding = JudgedStatement(statement, verdict, read[1], parts if is_order else (), why)
    return _with_doubts(finding, f"{statement.world} lacks seed {', '.join(missing)}" if missing else "", ())
