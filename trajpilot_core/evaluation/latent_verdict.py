"""Whether models of latents are trained, and whether a search in their space harms.

Source: docs/decisions/latent-planning.md.
"""

import math
from collections.abc import Sequence

from schemas.latent import ENERGIES, EnergySpread
from schemas.results import CurvePoint, Judgement, Metric
from trajpilot_core.evaluation.trained_rows import TRAINED
from trajpilot_core.methods.latent import CEM, CEM_BANK, NO_TRAJ
from trajpilot_core.training.convergence import judge_scores

FLAT = 0.02
"""Least spread of the energies of real motions; below it an energy chooses by noise."""


def judge_latents(curve: Sequence[CurvePoint]) -> list[Judgement]:
    """Judge every training by the one rule (`training.convergence`).

    The floor of a predictor is the l1 of copying the current latent, that of the classifier the commonest label.
    """
    judged = []
    for model, seed in sorted({(row.model, row.seed) for row in curve}):
        mine = [row for row in curve if (row.model, row.seed, row.split) == (model, seed, "dev")]
        is_head = model.endswith("latent_head")
        quantity, floor = ("right", "right of majority") if is_head else ("-l1", "-l1 of copy")
        scores = [row.value for row in mine if row.quantity == quantity]
        floors = {floor.split(" of ")[1]: row.value for row in mine if row.quantity == floor}
        judged.append(judge_scores(f"{TRAINED}{model}, seed {seed}", scores, floors, quantity, is_share=is_head))
    return judged


def judge_energies(spreads: Sequence[EnergySpread]) -> list[Judgement]:
    """Judge whether energies tell candidates apart: one that hardly varies cannot choose, as where the goal is seen."""
    judged = []
    for name in ENERGIES:
        mine = [row for row in spreads if row.energy == name]
        if mine:
            least = min(mine, key=lambda row: row.spread)
            said = f"least spread {100 * least.spread:.2f} % of the distance between goals (H={least.horizon})"
            flat = least.spread < FLAT
            why = "; a predictor that sees the goal, or ignores head motion, has such an energy" if flat else ""
            check = f"latent planning: the energy {name} varies among candidates"
            judged.append(Judgement(check=check, verdict="fails" if flat else "holds", detail=said + why))
    return judged


def judge_harm(metrics: Sequence[Metric], metric: str = "Full mAcc") -> Judgement:
    """Judge whether the search harms: at every horizon CEM and CEM-bank both lie below No-Traj, intervals and all.

    CEM alone below it may be the fault of motions that nobody makes; CEM-bank follows real ones.
    """
    check = "latent planning: the search by energy harms (CEM and CEM-bank below Latent No-Traj)"
    ends: dict[str, list[tuple[int, float, float]]] = {}
    for row in metrics:
        is_paired = row.reference == NO_TRAJ.id and row.metric == metric and row.seed is None and row.cluster == "take"
        if is_paired and row.horizon is not None and row.variant in (CEM.id, CEM_BANK.id):
            ends.setdefault(row.variant, []).append((row.horizon, row.low, row.high))
    if set(ends) != {CEM.id, CEM_BANK.id}:
        return Judgement(check=check, verdict="not run", detail="no paired differences of both rows")
    below = {row: all(high < 0 for _, _, high in found) for row, found in ends.items()}
    above = {row: any(low > 0 for _, low, _ in found) for row, found in ends.items()}
    said = "; ".join(
        f"{row}: " + ", ".join(f"H={h} [{low:.1f}, {high:.1f}]" for h, low, high in sorted(found))
        for row, found in sorted(ends.items())
    )
    if any(not math.isfinite(low) for found in ends.values() for _, low, _ in found):
        return Judgement(check=check, verdict="undecided", detail=f"too few takes for an interval; {said}")
    verdict = "holds" if all(below.values()) else "fails" if any(above.values()) else "undecided"
    return Judgement(check=check, verdict=verdict, detail=f"{metric}, points: {said}")
