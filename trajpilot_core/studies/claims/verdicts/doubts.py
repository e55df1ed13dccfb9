"""What withholds a verdict on compared rows: models that are not trained, shares of the ceiling that are not reached.

Source: docs/decisions/claims-statistics.md.
"""

from collections.abc import Sequence
from itertools import combinations
from typing import NamedTuple

from schemas.claims import ClaimsConfig, VerdictConfig
from trajpilot_core.studies.claims.evidence.contrasts import untrained
from trajpilot_core.studies.claims.evidence.ranking import judge_ranking, ranked_models
from trajpilot_core.studies.claims.evidence.readings import name
from trajpilot_core.studies.claims.evidence.shares import ReachedShare, reached_share, rows_behind
from trajpilot_core.studies.claims.evidence.tables import Evidence
from trajpilot_core.studies.claims.verdicts.words import ORDER, Verdict


class Doubt(NamedTuple):
    """One reason to withhold a verdict."""

    word: Verdict
    """What stands in its place."""
    why: str


def training_doubts(evidence: Evidence, worlds: Sequence[str], rows: Sequence[str], cfg: ClaimsConfig) -> list[Doubt]:
    """Return the models behind some rows that are not trained in some worlds, and scorers that rank by chance.

    Args:
        evidence: the tables.
        worlds: in which the rows are compared.
        rows: the compared rows.
        cfg: planned seeds.
    """
    weak = [model for world in worlds for model in untrained(evidence, world, rows, cfg)]
    found = [Doubt("undertrained", undertrained(weak))] if weak else []
    for model in dict.fromkeys(model for row in rows for model in ranked_models(row)):
        for world in worlds:
            ranking = judge_ranking(evidence, world, model, cfg)
            if ranking.verdict != "holds":
                found.append(Doubt(ranking.verdict, f"ranking of {name(model)}: {ranking.text}"))
    return found


def power_doubts(
    evidence: Evidence, world: str, rows: Sequence[str], cfg: ClaimsConfig, limits: VerdictConfig
) -> list[Doubt]:
    """Return which rows have not reached the asked share of their ceiling, and whether shares differ by too much.

    Args:
        evidence: the tables.
        world: in which the rows are compared.
        rows: the compared rows; those that no model is behind are asked nothing.
        cfg: planned seeds and resampling.
        limits: what is asked.
    """
    behind = dict.fromkeys(each for row in rows for each in rows_behind(row))
    shares = [reached_share(evidence, world, row, cfg, limits) for row in behind]
    missing = "; ".join(dict.fromkeys(share.gap for share in shares if share.figure is None))
    if missing:
        return [Doubt("not run", f"share of the ceiling unknown: {missing}")]
    low = [share for share in shares if not share.is_reached]
    found = [Doubt("underpowered", f"reached of the ceiling: {', '.join(map(share_text, low))}")] if low else []
    apart = [
        f"{name(one.row)} {_percent(one)} % and {name(two.row)} {_percent(two)} %"
        for one, two in combinations(shares, 2)
        if one.figure and two.figure and abs(one.figure.value - two.figure.value) > limits.share_gap
    ]
    if apart:
        what = f"shares over {100 * limits.share_gap:g} points apart: {'; '.join(apart)}"
        found.append(Doubt("confounded by training", what))
    return found


def share_text(share: ReachedShare) -> str:
    """Return the share of a row and what was asked, in words."""
    return f"{name(share.row)} {_percent(share)} % of {100 * share.asked:g} %"


def _percent(share: ReachedShare) -> str:
    return "–" if share.figure is None else f"{100 * share.figure.value:.0f}"


def undertrained(models: Sequence[str]) -> str:
    """Name the models that are not trained; empty where all are."""
    return f"UNDERTRAINED: {', '.join(models)}" if models else ""


def withheld(
    verdict: Verdict, gap: str, doubts: Sequence[Doubt], by: str = "intervals", note: str = ""
) -> tuple[Verdict, str]:
    """Withhold a verdict where a planned seed is missing or something speaks against it.

    Args:
        verdict: what the figures say.
        gap: what is missing of the planned seeds.
        doubts: reasons to withhold it.
        by: what it rests on, in words.
        note: what was already noted with it.

    Returns:
        What is left, and why with what the figures alone would say.
    """
    if gap:
        return "not run", gap
    if not doubts:
        return verdict, note
    word = min((doubt.word for doubt in doubts), key=ORDER.index)
    reasons = "; ".join(doubt.why for doubt in doubts)
    return word, f"{reasons}; by the {by}: {verdict}" + (f" ({note})" if note else "")
