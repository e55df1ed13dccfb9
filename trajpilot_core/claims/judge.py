"""Judging the statements of `rules`: from the tables to figures and verdicts."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from schemas.claims import ClaimsConfig, world_seeds
from trajpilot_core.claims import statistics
from trajpilot_core.claims.contrasts import Contrast, contrast, untrained
from trajpilot_core.claims.rules import CLAIMS, Claim, Statement, Verdict, conjunction
from trajpilot_core.claims.statistics import Array, Equivalence, Estimate, estimate
from trajpilot_core.claims.tables import KINDS, Evidence

GEOMETRY_STEPS = ("same take, far − adjacent", "other take, same action − same take, far", "random − other take")
"""Names of the three differences between neighbouring kinds of pairs."""


class Part(NamedTuple):
    """One figure of a statement."""

    name: str
    figure: Estimate


@dataclass(frozen=True)
class Finding:
    """One statement with its figures and verdict."""

    statement: Statement
    verdict: Verdict
    headline: Estimate | Equivalence | None
    """The figure that stands in the table; None where nothing was run."""
    parts: tuple[Part, ...] = ()
    """Figures that were judged one by one, where there are several."""
    note: str = ""
    """Why it was not run, which model is not trained, what the intervals alone would say."""


@dataclass(frozen=True)
class Judged:
    """One row of the claims table, judged."""

    claim: Claim
    findings: tuple[Finding, ...]

    def verdict(self, role: str) -> Verdict | None:
        """Return the verdict of all its claims, or of all its controls; None where there are none."""
        found = [finding.verdict for finding in self.findings if finding.statement.role == role]
        return conjunction(found) if found else None


def judge_claims(evidence: Evidence, cfg: ClaimsConfig) -> tuple[Judged, ...]:
    """Judge every row of the claims table."""
    return tuple(Judged(claim, tuple(judge(s, evidence, cfg) for s in claim.statements)) for claim in CLAIMS)


def judge(statement: Statement, evidence: Evidence, cfg: ClaimsConfig) -> Finding:
    """Judge one statement by the rule of its kind."""
    if statement.kind in ("order", "swap"):
        return _geometry(statement, evidence, cfg)
    found = contrast(evidence, statement.world, statement.row, statement.reference, statement.metric, cfg)
    if statement.kind == "shrinks":
        found = _against(statement, found, evidence, cfg)
    if found.profile is None:
        return Finding(statement, "not run", None, note=found.gap)
    drawn = _equivalence(statement, found, cfg) if statement.kind == "equal" else _signs(statement, found, cfg)
    return _with_doubts(drawn, found.gap, untrained(evidence, statement.world, (statement.row, statement.reference)))


def _with_doubts(finding: Finding, gap: str, weak: Sequence[str]) -> Finding:
    """Withhold a verdict where a planned seed is missing or a model is not trained; the figures stay."""
    if finding.verdict == "reported":
        return finding
    verdict, note = finding.verdict, finding.note
    if weak:
        verdict, note = "undertrained", f"UNDERTRAINED: {', '.join(weak)}; by the intervals: {finding.verdict}"
    if gap:
        verdict, note = "not run", f"{gap}; no verdict on a part"
    return Finding(finding.statement, verdict, finding.headline, finding.parts, note)


def sign_verdict(figures: Sequence[Estimate], sign: int) -> Verdict:
    """Say whether all intervals lie on the side of `sign` (holds), one on the other side (fails), or neither."""
    if not all(math.isfinite(f.low) and math.isfinite(f.high) for f in figures):
        return "not run"
    on_side = [f.is_above_zero() if sign > 0 else f.is_below_zero() for f in figures]
    against = [f.is_below_zero() if sign > 0 else f.is_above_zero() for f in figures]
    if all(on_side):
        return "holds"
    return "fails" if any(against) else "undecided"


def _signs(statement: Statement, found: Contrast, cfg: ClaimsConfig) -> Finding:
    """Judge the sign of a paired difference: at each H, in the mean, or of its slope."""
    assert found.profile is not None
    n = len(cfg.horizons)
    read = [estimate(found.profile, statistics.only(n, place), cfg.confidence) for place in range(n)]
    parts = tuple(Part(f"H={horizon}", figure) for horizon, figure in zip(cfg.horizons, read, strict=True))
    if statement.is_deep:
        parts = tuple(part for part, horizon in zip(parts, cfg.horizons, strict=True) if horizon >= cfg.deep_horizon)
    headline = estimate(found.profile, _weights(statement, cfg), cfg.confidence)
    judged = [part.figure for part in parts] if statement.kind == "each" else [headline]
    sign = -1 if statement.kind == "shrinks" else statement.sign
    verdict: Verdict = "reported" if statement.kind == "reported" else sign_verdict(judged, sign)
    return Finding(statement, verdict, headline, parts, "too few takes" if verdict == "not run" else "")


def _weights(statement: Statement, cfg: ClaimsConfig) -> Array:
    """Return what the headline of a statement is: the slope, or the plain mean over the horizons that are tested."""
    if statement.kind == "slope":
        return statistics.slope_weights(cfg.horizons)
    if statement.is_deep:
        deep = [float(horizon >= cfg.deep_horizon) for horizon in cfg.horizons]
        return np.array(deep) / sum(deep)
    return statistics.plain_mean(len(cfg.horizons))


def _equivalence(statement: Statement, found: Contrast, cfg: ClaimsConfig) -> Finding:
    """Judge equivalence."""
    assert found.profile is not None
    tested = statistics.equivalence(found.profile, statistics.plain_mean(len(cfg.horizons)), cfg)
    return Finding(statement, equivalence_verdict(tested, cfg), tested)


def equivalence_verdict(tested: Equivalence, cfg: ClaimsConfig) -> Verdict:
    """Say whether two rows are equivalent (holds), differ by more than the margin (fails), or neither."""
    if tested.low > cfg.margin or tested.high < -cfg.margin:
        return "fails"
    inside = -cfg.margin < tested.low and tested.high < cfg.margin
    return "holds" if inside and tested.standard_error <= cfg.target_se else "undecided"


def _against(statement: Statement, found: Contrast, evidence: Evidence, cfg: ClaimsConfig) -> Contrast:
    """Take the same difference in the reference world off, seed by seed."""
    other = contrast(evidence, statement.against, statement.row, statement.reference, statement.metric, cfg)
    gap = "; ".join(part for part in (found.gap, other.gap) if part)
    if found.profile is None or other.profile is None or found.profile.seeds != other.profile.seeds:
        return Contrast(None, gap)
    return Contrast(statistics.minus(found.profile, other.profile), gap)


def _geometry(statement: Statement, evidence: Evidence, cfg: ClaimsConfig) -> Finding:
    """Judge the order of the four mean distances, or that the second and the third have swapped."""
    planned = world_seeds(cfg, statement.world)
    held = {seed: sums for seed, sums in evidence.geometry.get(statement.world, {}).items() if seed in planned}
    if not held:
        return Finding(statement, "not run", None, note=f"no distances of the world {statement.world}")
    of = statistics.profile(statement.world, held, cfg)
    read = [estimate(of, row, cfg.confidence) for row in np.diff(np.eye(len(KINDS)), axis=0)]
    parts = tuple(Part(name, figure) for name, figure in zip(GEOMETRY_STEPS, read, strict=True))
    is_order = statement.kind == "order"
    verdict = sign_verdict(read, 1) if is_order else sign_verdict(read[1:2], -1)
    missing = [str(seed) for seed in planned if seed not in held]
    finding = Finding(statement, verdict, read[1], parts if is_order else ())
    return _with_doubts(finding, f"{statement.world} lacks seed {', '.join(missing)}" if missing else "", ())
