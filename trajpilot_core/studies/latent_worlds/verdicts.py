"""Judging the statements of the study by the rules of the claims: from the tables to figures and verdicts."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import combinations
from typing import NamedTuple

import numpy as np

from schemas.claims import LIMITS, ClaimsConfig, VerdictConfig
from schemas.latent_worlds import LatentWorldsConfig
from trajpilot_core.evaluation.latent_scores import TRAININGS
from trajpilot_core.evaluation.paper_claims import sign_verdict
from trajpilot_core.methods.latent import MODELS, NO_TRAJ, ORACLE
from trajpilot_core.studies.claims.evidence import statistics
from trajpilot_core.studies.claims.evidence.contrasts import FINAL, TRAINED, models_of
from trajpilot_core.studies.claims.evidence.shares import ReachedShare, reached_share
from trajpilot_core.studies.claims.evidence.statistics import Equivalence, Estimate, Profile
from trajpilot_core.studies.claims.verdicts.doubts import Doubt, share_text, undertrained, withheld
from trajpilot_core.studies.claims.verdicts.hypotheses import conjunction
from trajpilot_core.studies.claims.verdicts.judge import equivalence_verdict, lies_beyond
from trajpilot_core.studies.claims.verdicts.words import Verdict
from trajpilot_core.studies.latent_worlds.profiles import claims_of, profile_of
from trajpilot_core.studies.latent_worlds.statements import LATENT_CLAIMS, LatentClaim, LatentStatement
from trajpilot_core.studies.latent_worlds.tables import LatentTables

BEHIND = (NO_TRAJ.id, ORACLE.id)
"""Rows whose shares of their ceilings say whether the planners have learned: what a search adds to one of them, or
takes away, is the question, so that its own share asks nothing."""


@dataclass(frozen=True)
class JudgedLatent:
    """One statement with its figures and verdict."""

    statement: LatentStatement
    verdict: Verdict
    figure: Estimate | Equivalence | None
    """None where nothing was run."""
    parts: tuple[Estimate, ...] = ()
    """At each H, where a statement is judged so."""
    broken: Estimate | None = None
    """Of a control: the same figure in the informative world."""
    note: str = ""
    shown: Verdict = "not run"
    """By the intervals alone."""


class JudgedLatentClaim(NamedTuple):
    """One row of the table, judged."""

    claim: LatentClaim
    findings: tuple[JudgedLatent, ...]

    def verdict(self, role: str) -> Verdict:
        """Return the verdict of all its statements of a role."""
        return conjunction([one.verdict for one in self.findings if one.statement.role == role])

    def shown(self, role: str) -> Verdict:
        """Return the same by the intervals alone."""
        return conjunction([one.shown for one in self.findings if one.statement.role == role])


def judge_latents_study(
    tables: LatentTables, cfg: LatentWorldsConfig, limits: VerdictConfig = LIMITS
) -> tuple[JudgedLatentClaim, ...]:
    """Judge every claim and control."""
    return tuple(
        JudgedLatentClaim(claim, tuple(judge_statement(one, tables, cfg, limits) for one in claim.statements))
        for claim in LATENT_CLAIMS
    )


def judge_statement(
    statement: LatentStatement, tables: LatentTables, cfg: LatentWorldsConfig, limits: VerdictConfig = LIMITS
) -> JudgedLatent:
    """Judge one statement: by its intervals, then by what withholds a verdict.

    Args:
        statement: what is claimed, or the control.
        tables: the study's.
        cfg: margins, horizons, seed.
        limits: what is asked of shares of the ceilings.
    """
    own = claims_of(cfg, statement.quantity)
    pair = (statement.row, statement.reference)
    of, gap = profile_of(tables, statement.quantity, statement.world, *pair, own)
    there, missing = (
        profile_of(tables, statement.quantity, statement.against, *pair, own) if statement.against else (None, "")
    )
    if of is None:
        return JudgedLatent(statement, "not run", None, note=gap)
    weights = weights_of(of, statement, cfg)
    broken = None if there is None else statistics.estimate(there, weights, own.confidence)
    found = replace(by_intervals(statement, of, weights, own), broken=broken)
    found = replace(found, shown=found.verdict)
    gap = "; ".join(part for part in (gap, missing) if part)
    return with_doubts(unless_vacuous(found, own), gap, doubts_of(statement, tables, own, limits))


def weights_of(of: Profile, statement: LatentStatement, cfg: LatentWorldsConfig) -> np.ndarray:
    """Return (H,) what the figure is: the plain mean over H, or the one short horizon."""
    n = of.points.shape[1]
    if statement.is_short and n == len(cfg.horizons):
        return np.array([float(horizon == cfg.short) for horizon in cfg.horizons])
    return statistics.plain_mean(n)


def by_intervals(statement: LatentStatement, of: Profile, weights: np.ndarray, cfg: ClaimsConfig) -> JudgedLatent:
    """Judge a statement by its intervals alone."""
    if statement.kind in ("equal", "recovers"):
        tested = statistics.equivalence(of, weights, cfg)
        judged = equivalence_verdict(tested, cfg) if statement.kind == "equal" else recovers(tested, cfg)
        return JudgedLatent(statement, judged, tested)
    figure = statistics.estimate(of, weights, cfg.confidence)
    if statement.kind == "beyond":
        return JudgedLatent(statement, beyond(figure, statement.sign, cfg.margin), figure)
    parts = statistics.at_each(of, cfg) if statement.kind == "each" else ()
    return JudgedLatent(statement, sign_verdict(parts or [figure], statement.sign), figure, parts)


def recovers(tested: Equivalence, cfg: ClaimsConfig) -> Verdict:
    """Judge whether a row is not below another by more than the margin."""
    if tested.high < -cfg.margin:
        return "fails"
    return "holds" if tested.low > -cfg.margin and tested.standard_error <= cfg.target_se else "undecided"


def beyond(figure: Estimate, sign: int, margin: float) -> Verdict:
    """Judge whether a figure lies wholly beyond the margin on the side of `sign`."""
    if sign_verdict([figure], sign) == "not run":
        return "not run"
    if lies_beyond(figure, sign, margin):
        return "holds"
    return "fails" if max(sign * figure.low, sign * figure.high) < margin else "undecided"


def unless_vacuous(found: JudgedLatent, cfg: ClaimsConfig) -> JudgedLatent:
    """Call a control vacuous that has nothing to break; a failure stands."""
    statement = found.statement
    if not statement.against or found.verdict not in ("holds", "undecided"):
        return found
    if found.broken is not None and lies_beyond(found.broken, statement.sign, cfg.margin):
        return found
    side = "above +" if statement.sign > 0 else "below −"
    why = f"in {statement.against} the figure is not shown to lie {side}{cfg.margin:g}"
    return replace(found, verdict="vacuous", note=f"{why}; by the intervals: {found.verdict}")


def with_doubts(found: JudgedLatent, gap: str, doubts: Sequence[Doubt]) -> JudgedLatent:
    """Withhold a verdict where a world is missing or something speaks against it; the figures stay.

    A vacuous control stays vacuous, and one that fails is excused by training only.
    """
    if gap:
        return replace(found, verdict="not run", note=f"{gap}; no verdict on a part")
    is_failure = found.statement.role == "control" and found.verdict == "fails"
    is_excused = any(doubt.word == "undertrained" for doubt in doubts)
    if found.verdict == "vacuous" or (is_failure and not is_excused):
        return replace(found, note="; ".join(part for part in (found.note, *(d.why for d in doubts)) if part))
    verdict, note = withheld(found.verdict, "", doubts, note=found.note)
    return replace(found, verdict=verdict, note=note)


def doubts_of(
    statement: LatentStatement, tables: LatentTables, cfg: ClaimsConfig, limits: VerdictConfig
) -> list[Doubt]:
    """Return what speaks against a verdict: models that are not trained; of a claim on plans also shares of the
    ceilings that are not reached, or differ too much."""
    worlds = [world for world in (statement.world, statement.against) if world]
    weak = [text for world in worlds for text in untrained(tables, world, trainings_of(statement), cfg)]
    found = [Doubt("undertrained", undertrained(weak))] if weak else []
    if statement.role == "control" or statement.quantity == "l1":
        return found
    rows = BEHIND if statement.quantity == "accuracy" else BEHIND[1:]
    return found + share_doubts(
        [reached_share(tables.evidence, statement.world, row, cfg, limits) for row in rows], limits
    )


def trainings_of(statement: LatentStatement) -> tuple[str, ...]:
    """Return the models behind a statement."""
    if statement.quantity == "r":
        return MODELS
    if statement.quantity == "accuracy":
        return tuple(dict.fromkeys(m for row in (statement.row, statement.reference) for m in models_of(row)))
    told = {str(condition): model for condition, model in TRAININGS.items()}
    return tuple(dict.fromkeys(told[one] for one in (statement.row, statement.reference) if one in told))


def untrained(tables: LatentTables, world: str, models: Sequence[str], cfg: ClaimsConfig) -> list[str]:
    """Name the models of a world that are not judged trained; one that nobody judged counts."""
    judged = {
        row.check.removeprefix(f"{TRAINED}{FINAL}").split(",")[0]: row.verdict
        for at, row in tables.evidence.judgements
        if (at.world, at.seed) == (world, cfg.single_seed) and row.check.startswith(TRAINED)
    }
    return [
        f"{model} ({world}{'' if model in judged else ': not judged'})"
        for model in models
        if judged.get(model) != "holds"
    ]


def share_doubts(shares: Sequence[ReachedShare], limits: VerdictConfig) -> list[Doubt]:
    """Return whether rows have reached the asked share of their ceilings, and whether shares differ by too much."""
    missing = "; ".join(dict.fromkeys(share.gap for share in shares if share.figure is None))
    if missing:
        return [Doubt("not run", f"share of the ceiling unknown: {missing}")]
    low = [share for share in shares if not share.is_reached]
    found = [Doubt("underpowered", f"reached of the ceiling: {', '.join(map(share_text, low))}")] if low else []
    values = [share.figure.value for share in shares if share.figure is not None]
    if any(abs(one - two) > limits.share_gap for one, two in combinations(values, 2)):
        texts = ", ".join(map(share_text, shares))
        found.append(Doubt("confounded by training", f"shares over {100 * limits.share_gap:g} points apart: {texts}"))
    return found
