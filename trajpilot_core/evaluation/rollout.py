"""Every row of the tables as ranked labels, on one batch of windows; and the shuffles, on a whole horizon.

Axes: B windows of one horizon H, N all of them, M middle steps, R ranked answers, E text space, V labels.
Source: paper, 4 and its appendix; docs/decisions/paper-gaps.md (15, 29, 40, 47, 51, 52); docs/decisions/scorer.md.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import NamedTuple

import torch
from torch import Tensor

from schemas.config import Ablation, ScorerConfig
from schemas.results import Variant
from trajpilot_core.errors import StoreError
from trajpilot_core.evaluation.ranking import best, best_labels
from trajpilot_core.models.predictor import CausalPredictor
from trajpilot_core.models.scorer import GateThenRankScorer
from trajpilot_core.models.scorer_plus import ScorerPlus
from trajpilot_core.retrieval.bank import ChainView
from trajpilot_core.retrieval.candidates import Candidates, label_votes, pool_mean, roll_out
from trajpilot_core.training.chains import fit_takes
from trajpilot_core.training.scorer import Queries, decide, queries_of
from trajpilot_core.training.scorer_fit import Decision
from trajpilot_core.training.scorer_plus import plus_answers, plus_queries
from trajpilot_core.training.scorer_plus_fit import PlusDecision
from trajpilot_core.training.scorer_plus_lore import PlusSource

RANKED = 5
DECIDE_BATCH = 512


@dataclass(frozen=True)
class Answers:
    """What one row of the tables says about B windows of one horizon."""

    variant: Variant
    ids: Tensor
    """Long, best labels per position, descending, ties by smaller index."""
    scores: Tensor
    """Float32."""
    gate: Tensor | None = None
    """(B,) float32."""
    opened: Tensor | None = None
    """(B,) bool."""
    window: Tensor | None = None
    """(B,) long, row of the retrieved window that was used, -1 for the fallback."""
    decoded: Tensor | None = None
    """(B, H) long, the sequence that the row stands for; None: the best labels."""


class ReadyScorer(NamedTuple):
    """A frozen scorer and what dev decided for it."""

    scorer: GateThenRankScorer
    decision: Decision


class ReadyPlus(NamedTuple):
    """Scorer+, what dev decided for it, and what it takes from the training takes."""

    scorer: ScorerPlus
    decision: PlusDecision
    source: PlusSource


@dataclass(frozen=True)
class Trained:
    """The scorers of one seed."""

    config: ScorerConfig
    paper: ReadyScorer
    ablated: Mapping[Ablation, ReadyScorer]
    plus: ReadyPlus | None


@dataclass(frozen=True)
class Asked:
    """B windows of one horizon, and everything that the rows of the tables are made from."""

    found: Candidates
    """Fallback and candidate plans."""
    queries: Queries
    """The same windows as the scorers read them."""
    permuted: Candidates
    """The candidates with the trajectories of other bank windows."""
    donors: Tensor
    """(B, M) long, segments whose trajectories stand in for the middles in the row `shuffled`, -1 for none."""


def all_answers(view: ChainView, asked: Asked, trained: Trained) -> Iterator[Answers]:
    """Yield every row of the tables for B windows.

    Args:
        view: the final chain.
        asked: the windows.
        trained: scorers and decisions of the view's seed.
    """
    data, found, decision = view.data, asked.found, trained.paper.decision
    yield rank_plan("no_traj", found.fallback, view)
    yield rank_plan("endpoint_traj", own_plan(view, _endpoint_model(view), found.segments, with_mids=False), view)
    yield from scorer_rows(view, asked, trained)
    yield rank_plan("oracle", own_plan(view, view.models.traj, found.segments, with_mids=True), view)
    nearest = _with_ends(found, found.plans[:, 0])
    yield replace(rank_plan("top1", nearest, view), window=found.window[:, 0])
    yield knn_answers(view, found, decision.knn_temperature)
    yield rank_plan("pool_mean", _with_ends(found, pool_mean(found, decision.pool_temperature)), view)
    yield rank_plan("shuffled", shuffled_plan(view, found.segments, asked.donors), view)
    order = label_order(view)
    yield majority_answers(found.segments, order)
    yield previous_answers(data.labels[found.segments], order)


def rank_plan(variant: Variant, plan_BHE: Tensor, view: ChainView) -> Answers:
    """Rank the labels by their cosine with each predicted embedding."""
    ids, scores = best_labels(plan_BHE.flatten(0, 1), view.data.bank, RANKED)
    shape = (*plan_BHE.shape[:2], ids.shape[1])
    return Answers(variant, ids.view(shape), scores.view(shape))


@torch.inference_mode()
def own_plan(view: ChainView, model: CausalPredictor, segments_BH: Tensor, with_mids: bool) -> Tensor:
    """Return (B, H, E): the prediction under the windows' own endpoint trajectories, with or without their middles."""
    latents = view.latents[segments_BH].clone()
    if not with_mids:
        latents[:, 1:-1] = 0
    features = view.data.features
    plan: Tensor = model(features[segments_BH[:, 0]], features[segments_BH[:, -1]], latents, segments_BH.shape[1])
    return plan


def scorer_rows(view: ChainView, asked: Asked, trained: Trained) -> Iterator[Answers]:
    """Yield the paper's scorer, the same one on permuted candidates, and the ablated ones."""
    yield scorer_answers("scorer", view, asked.found, asked.queries, trained.paper)
    foreign = queries_of(view, asked.permuted, trained.config)
    yield scorer_answers("scorer_permuted", view, asked.permuted, foreign, trained.paper)
    for ablation, scorer in trained.ablated.items():
        variant: Variant = "scorer_no_labels" if ablation == "no_labels" else "scorer_no_motion"
        yield scorer_answers(variant, view, asked.found, asked.queries, scorer)
    if trained.plus is not None:
        yield plus_row(view, asked.found, trained.plus)


def plus_row(view: ChainView, found: Candidates, plus: ReadyPlus) -> Answers:
    """Answer with Scorer+ where its expected gain over the fallback reaches the threshold, else with the fallback."""
    queries = plus_queries(plus.source, found)
    fallback = rank_plan("scorer_plus", found.fallback, view)
    parts = list(plus_answers(plus.scorer, queries, plus.source.lore))
    ranked = [best(part.probability.flatten(0, 1), RANKED) for part in parts]
    ids, scores = (torch.cat([part[i] for part in ranked]).view(fallback.ids.shape) for i in (0, 1))
    gain, decoded = torch.cat([part.gain for part in parts]), torch.cat([part.decoded for part in parts])
    opened = gain >= plus.decision.threshold
    return Answers(
        "scorer_plus", torch.where(opened[:, None, None], ids, fallback.ids),
        torch.where(opened[:, None, None], scores, fallback.scores), gate=gain, opened=opened,
        window=torch.full_like(found.take, -1),
        decoded=torch.where(opened[:, None], decoded, fallback.ids[:, :, 0]),
    )  # fmt: skip


def scorer_answers(
    variant: Variant, view: ChainView, found: Candidates, queries: Queries, ready: ReadyScorer
) -> Answers:
    """Answer with the highest-ranked candidate where the gate opens, else with the fallback (paper, 3.5)."""
    gate, choice = decide(ready.scorer, queries, DECIDE_BATCH)
    opened = (gate >= ready.decision.threshold) & found.valid.any(1)
    here = torch.arange(len(choice), device=choice.device)
    candidate = _with_ends(found, found.plans[here, choice])
    answers = rank_plan(variant, torch.where(opened[:, None, None], candidate, found.fallback), view)
    window = torch.where(opened, found.window[here, choice], -1)
    return replace(answers, gate=gate, opened=opened, window=window)


def knn_answers(view: ChainView, found: Candidates, temperature: float) -> Answers:
    """Answer with the weighted vote of the retrieved windows' labels; with the fallback where nothing was retrieved."""
    votes = label_votes(found, view.data, temperature)
    fallback = rank_plan("knn_labels", found.fallback, view)
    ids, scores = best(votes.flatten(0, 1), RANKED)
    some = found.valid.any(1)[:, None, None]
    shape = fallback.ids.shape
    ids_BHR = torch.where(some, ids.view(shape), fallback.ids)
    return Answers("knn_labels", ids_BHR, torch.where(some, scores.view(shape), fallback.scores))


def _with_ends(found: Candidates, plan_BME: Tensor) -> Tensor:
    """Put (B, M, E) middles between the ends that traj predicts; the whole fallback where there is no candidate."""
    whole = torch.cat([found.ends[:, :1], plan_BME, found.ends[:, 1:]], dim=1)
    return torch.where(found.valid.any(1)[:, None, None], whole, found.fallback)


def shuffled_plan(view: ChainView, segments_BH: Tensor, donors_BM: Tensor) -> Tensor:
    """Return (B, H, E): traj under the windows' own endpoints and their donors' middles; null without a donor."""
    mids = view.latents[donors_BM.clamp_min(0)] * (donors_BM >= 0)[:, :, None]
    ends, plans = roll_out(view.models.traj, view, segments_BH, mids[:, None])
    return torch.cat([ends[:, :1], plans[:, 0], ends[:, 1:]], dim=1)


def derangement(n: int, seed: int) -> Tensor:
    """Return long of shape (n,) without a fixed point, one random cycle; -1 everywhere for n < 2 (D 40)."""
    if n < 2:
        return torch.full((n,), -1)
    order = torch.randperm(n, generator=torch.Generator().manual_seed(seed))
    donors = torch.empty(n, dtype=torch.long)
    donors[order] = order.roll(1)
    return donors


def donors_of(segments_NH: Tensor, seed: int, shuffle: int) -> Tensor:
    """Return (N, M) long: the middle segments that each window gets in one shuffle, -1 for none.

    The derangement depends on the seed of the evaluation, the shuffle and the horizon only.
    """
    donors = derangement(len(segments_NH), 1_000_003 * seed + 101 * shuffle + segments_NH.shape[1]).to(
        segments_NH.device
    )
    mids = segments_NH[donors.clamp_min(0)][:, 1:-1]
    return mids.masked_fill(donors[:, None] < 0, -1)


def label_order(view: ChainView) -> tuple[Tensor, Tensor]:
    """Return the RANKED + 1 most frequent mid labels of the fitted windows and their shares; ties by smaller index.

    Returns:
        Long labels and float32 shares, both of shape (min(RANKED + 1, V),), most frequent first.
    """
    takes, labels = fit_takes(view.data, view.chain), view.data.labels
    windows = view.data.windows.values()
    mids = [labels[w.segments[torch.isin(w.take, takes)][:, 1:-1]].flatten() for w in windows]
    counts = torch.bincount(torch.cat(mids), minlength=len(view.data.bank)).float()
    ids, values = best((counts / counts.sum().clamp_min(1))[None], RANKED + 1)
    return ids[0], values[0]


def majority_answers(segments_BH: Tensor, order: tuple[Tensor, Tensor]) -> Answers:
    """Answer every position with the most frequent mid labels of the fitted windows."""
    ids, shares = (values[:RANKED].expand(*segments_BH.shape, -1) for values in order)
    return Answers("majority", ids, shares)


def previous_answers(truth_BH: Tensor, order: tuple[Tensor, Tensor]) -> Answers:
    """Answer position t with the true label of t - 1, then the most frequent labels; position 0 as `majority`.

    It reads the truth one step late, which no other row does: a yardstick for what is trivial, not a method (D 51).
    """
    ids, shares = order
    ranked = min(RANKED, len(ids))
    previous = truth_BH[:, :-1, None]
    repeated = (ids == previous).long()
    rest = repeated.argsort(dim=-1, stable=True)[..., : ranked - 1]
    others, other_shares = ids[rest], shares[rest]
    later = torch.cat([previous, others], dim=-1)
    later_scores = torch.cat([torch.ones_like(previous, dtype=shares.dtype), other_shares], dim=-1)
    first = [values[:ranked].expand(len(truth_BH), 1, -1) for values in order]
    return Answers("previous", torch.cat([first[0], later], 1), torch.cat([first[1], later_scores], 1))


def _endpoint_model(view: ChainView) -> CausalPredictor:
    """Return the endpoint_traj checkpoint, which only the final chain has."""
    if view.models.endpoint_traj is None:
        raise StoreError(f"chain {view.chain.name} has no endpoint_traj checkpoint; rows are made with the final chain")
    return view.models.endpoint_traj
