"""The rows of the table of shots, and what each may see of the shot that it answers.

They are not of the type `Method`, which ranks labels at every position of a plan (docs/decisions/outcome.md).
Shapes: n shots that are answered, N shots.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal, NamedTuple

import torch
from torch import Tensor

from schemas.events import CompletedOutcome, OutcomeRow
from trajpilot_core.data.events import BEFORE, DURING, Shots
from trajpilot_core.methods.plans import derangement
from trajpilot_core.methods.sight import refuse_leaks
from trajpilot_core.models.events import MADE, ShotProbe
from trajpilot_core.models.scorer import GateThenRankScorer
from trajpilot_core.retrieval.events import EventChain, find_events, latents_of, vote
from trajpilot_core.training.event_scorer import scored, shot_target
from trajpilot_core.training.fit_event import PROBE
from trajpilot_core.training.scorer_fit import ScorerDecision

ShotSight = Literal["nothing", "context", "context_motion", "shot_motion"]
"""What a row sees of a shot: nothing; the pixels before it; the head motion before it too; that during it too."""
PROBES = 64
"""Shots for the check of sight."""


@dataclass(frozen=True)
class OutcomeModels:
    """Models of the rows of one seed."""

    chain: EventChain
    """Models of the chain `final`."""
    scorer: GateThenRankScorer
    decision: ScorerDecision
    cfg: CompletedOutcome
    probe: ShotProbe | None = None
    """None where features have one vector per clip."""


class SaidOfShots(NamedTuple):
    """Answers of one row for n shots."""

    p_made: Tensor
    """(n,) float32."""
    gate: Tensor | None = None
    """(n,) float32."""
    opened: Tensor | None = None
    """(n,) bool."""
    candidate: Tensor | None = None
    """(n,) long, the shot whose head motion was used; -1 for the fallback."""


@dataclass(frozen=True)
class ShotMethod:
    """One row."""

    id: OutcomeRow
    name: str
    given: str
    """Its inputs, in words."""
    sees: ShotSight
    answer: Callable[[OutcomeModels, Shots, Tensor], SaidOfShots | None]
    """(models, all shots, (n,) long numbers of the answered ones) -> answers; None where it was not trained."""


@torch.no_grad()
def no_traj(models: OutcomeModels, shots: Shots, rows: Tensor) -> SaidOfShots:
    """Answer shots `rows`, shape (n,), by the pixels before them alone."""
    start_nE = latents_of(models.chain.e_tau, shots, rows, BEFORE)
    none_n2E = torch.zeros_like(start_nE)[:, None].expand(-1, 2, -1)
    return SaidOfShots(p_made(models.chain.no_traj(shots.context[rows], none_n2E)))


@torch.no_grad()
def attentive_probe(models: OutcomeModels, shots: Shots, rows: Tensor) -> SaidOfShots | None:
    """Answer shots `rows`, shape (n,), by the tokens of the pixels before them, no predictor; None without tokens."""
    return None if models.probe is None else SaidOfShots(p_made(models.probe(shots.tokens[rows])))


@torch.no_grad()
def endpoint_traj(models: OutcomeModels, shots: Shots, rows: Tensor) -> SaidOfShots:
    """Answer by the pixels and the head motion before the shots `rows`, shape (n,)."""
    assert models.chain.endpoint_traj is not None
    start_nE = latents_of(models.chain.e_tau, shots, rows, BEFORE)
    latents_n2E = torch.stack([start_nE, torch.zeros_like(start_nE)], dim=1)
    return SaidOfShots(p_made(models.chain.endpoint_traj(shots.context[rows], latents_n2E)))


@torch.no_grad()
def oracle(models: OutcomeModels, shots: Shots, rows: Tensor) -> SaidOfShots:
    """Answer shots `rows`, shape (n,), by the pixels before them, and the head motion before and during them."""
    latents_n2E = torch.stack([latents_of(models.chain.e_tau, shots, rows, part) for part in (BEFORE, DURING)], dim=1)
    return SaidOfShots(p_made(models.chain.traj(shots.context[rows], latents_n2E)))


def scorer(models: OutcomeModels, shots: Shots, rows: Tensor) -> SaidOfShots:
    """Answer shots `rows`, shape (n,), under the head motion of a retrieved one, or none where the gate is closed."""
    return _scored(models, shots, rows, None)


def permuted_candidates(models: OutcomeModels, shots: Shots, rows: Tensor) -> SaidOfShots:
    """Answer shots `rows`, shape (n,), by the same scorer where candidates have the motion of other training shots."""
    return _scored(models, shots, rows, permuted(models.chain.bank, len(shots), models.cfg.shuffle_seed))


def _scored(models: OutcomeModels, shots: Shots, rows: Tensor, motion_of: Tensor | None) -> SaidOfShots:
    target = shot_target(shots, models.cfg, models.chain.e_tau.text_width)
    answers = scored(models.chain, models.scorer, models.decision, shots, rows, target, motion_of)
    return SaidOfShots(p_made(answers.prediction), *answers[1:])


def permuted(bank: Tensor, n_shots: int, seed: int) -> Tensor:
    """Return long of shape (N,): each shot of the bank -> another one, by a random cycle; other shots -> themselves."""
    motion_of = torch.arange(n_shots, device=bank.device)
    motion_of[bank] = bank[derangement(len(bank), seed).to(bank.device)]
    return motion_of


def knn_outcome(models: OutcomeModels, shots: Shots, rows: Tensor) -> SaidOfShots:
    """Answer shots `rows`, shape (n,), by the outcomes of the retrieved training shots alone."""
    neighbours = find_events(models.chain, shots, rows, models.cfg.scorer.candidates)
    return SaidOfShots(vote(shots.made, neighbours, models.decision.knn_temperature))


def majority(models: OutcomeModels, shots: Shots, rows: Tensor) -> SaidOfShots:
    """Answer shots `rows`, shape (n,), by the share of made shots among the fitted ones."""
    return SaidOfShots(shots.made[models.chain.bank].float().mean().expand(len(rows)))


def p_made(logits_n2: Tensor) -> Tensor:
    """Return probabilities of made, of shape (n,)."""
    return logits_n2.softmax(-1)[:, MADE]


METHODS: tuple[ShotMethod, ...] = (
    ShotMethod("no_traj", "No-Traj", "pixels before the shot", "context", no_traj),
    ShotMethod("attentive_probe", "Visual probe", "tokens of the pixels before the shot", "context", attentive_probe),
    ShotMethod(
        "scorer", "Scorer", "the same, head motion before it, that of retrieved shots", "context_motion", scorer
    ),
    ShotMethod("oracle", "Oracle", "pixels before the shot, all head motion", "shot_motion", oracle),
    ShotMethod("endpoint_traj", "Endpoint-Traj", "pixels and head motion before it", "context_motion", endpoint_traj),
    ShotMethod(
        "permuted_candidates",
        "Scorer, permuted candidates",
        "as Scorer, but each candidate has the head motion of another",
        "context_motion",
        permuted_candidates,
    ),
    ShotMethod("knn_outcome", "kNN-outcome", "outcomes of the retrieved shots alone", "context_motion", knn_outcome),
    ShotMethod("majority", "majority", "share of made training shots", "nothing", majority),
)
"""In the order of the table."""
SHOT_NAMES: Mapping[OutcomeRow, str] = {method.id: method.name for method in METHODS}
"""Row -> its printed name, in the order of the table."""
FLOORS: tuple[OutcomeRow, ...] = ("majority", "knn_outcome")
MODELS: Mapping[str, tuple[str, ...]] = {
    "no_traj": ("no_traj",),
    "attentive_probe": (PROBE,),
    "scorer": ("no_traj", "traj"),
    "oracle": ("traj",),
    "endpoint_traj": ("endpoint_traj",),
}
"""Learned row -> the models behind it; floors and controls are not learned."""
WANTS: Mapping[OutcomeRow, str] = {
    "attentive_probe": "it reads tokens, and the features have one vector per clip; set features.tokens=temporal"
}
"""Row that a run may lack -> reason and remedy."""


def not_run(present: Iterable[OutcomeRow]) -> list[str]:
    """Return a sentence for each row that a run lacks; `present`: its rows."""
    known = set(present)
    return [f"{SHOT_NAMES[row]}: not run; {why}" for row, why in WANTS.items() if row not in known]


def hidden(shots: Shots, rows: Tensor, sees: ShotSight) -> Shots:
    """Return the shots with everything exchanged, at `rows`, that a row of this sight must not see.

    `rows` is long, of shape (n,). Outcomes are inverted; pixels, durations, texts, moments of evidence and head motion
    are those of other shots.
    """
    made = shots.made.clone()
    made[rows] = ~made[rows]
    both = (BEFORE, DURING)
    parts = {"nothing": both, "context": both, "context_motion": (DURING,), "shot_motion": ()}[sees]
    pixels = ("tokens", "context") if sees == "nothing" else ()
    return replace(shots.hidden(rows, ("shot", "seconds", "labels", "evidence", *pixels), parts), made=made)


def check_sight(methods: Sequence[ShotMethod], models: OutcomeModels, shots: Shots, rows: Tensor) -> None:
    """Check that the answer of every row depends on no more than it declares.

    Args:
        rows: long, of shape (n,): shots that no model was fitted on.

    Raises:
        LeakError: names a row that sees more.
    """
    probed = rows[:PROBES]

    def answers(group: Sequence[ShotMethod], is_blind: bool) -> dict[str, SaidOfShots | None]:
        seen = hidden(shots, probed, group[0].sees) if is_blind else shots
        return {row.id: row.answer(models, seen, probed) for row in group}

    def are_equal(one: SaidOfShots | None, other: SaidOfShots | None) -> bool:
        return one is None or other is None or torch.equal(one.p_made, other.p_made)

    file = "trajpilot_core/evaluation/shot_rows.py"
    refuse_leaks(methods, answers, are_equal, f"{len(probed)} shots checked", file)
