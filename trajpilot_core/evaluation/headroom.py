"""Figures next to the rows: upper bounds of the retrieved pool, scores of every derangement.

Axes: B windows of one horizon H, K candidates, M = H - 2 middle steps, E text space.
Source: paper, appendix on headroom; docs/decisions/paper-gaps.md (37, D 40), docs/decisions/scorer.md (both readings of
its cosine column).
"""

from collections import defaultdict
from collections.abc import Iterable

import torch
from torch import Tensor

from schemas.config import EvaluationConfig
from schemas.results import Headroom, MaskCoverage, ShuffleScore
from trajpilot_core.data.planning import SPLITS, PlanningData
from trajpilot_core.data.transitions import ScenarioMasks
from trajpilot_core.methods.plans import donors_of, shuffled_plan
from trajpilot_core.models.blocks import ends_of
from trajpilot_core.retrieval.bank import Bank, ChainView
from trajpilot_core.retrieval.candidates import Candidates, truth_of
from trajpilot_core.training.scorer import Queries

PoolSums = dict[str, float]
N_WITH_POOL = "n_with_pool"
"""Windows with a candidate, over which the means of POOL_COSINES are computed."""
POOL_COSINES = ("endpoint_cosine", "best_mid_cosine")
PERCENT = ("same_step_recall", "any_step_recall", "oracle_m1", "oracle_mseq")


def pool_sums(view: ChainView, bank: Bank, candidates: Candidates, queries: Queries, pool: int, seed: int) -> PoolSums:
    """Return sums over B windows of the quantities of `Headroom` for the first `pool` candidates.

    A window without a candidate counts as wrong in the shares and is ignored in the two cosines of the pool.

    Args:
        bank: of the windows' horizon; the random pool is sampled from it with replacement, by `seed`.
    """
    labels_BM = truth_of(view.data, candidates.segments)
    mids_BPM = candidates.pool[:, :pool, 1:-1]
    valid_BP = candidates.valid[:, :pool]
    some_B = valid_BP.any(1)
    same_BPM = (view.data.labels[mids_BPM] == labels_BM[:, None]) & valid_BP[:, :, None]
    any_BPMM = (view.data.labels[mids_BPM][..., None] == labels_BM[:, None, None]) & valid_BP[:, :, None, None]
    generator = torch.Generator().manual_seed(seed)
    random_entry = torch.randint(len(bank.take), (len(labels_BM), pool), generator=generator).to(labels_BM.device)
    random_cosine = torch.einsum("bd,bpd->bp", candidates.key, bank.key[random_entry])
    best_B = queries.utility[:, :pool].argmax(dim=1, keepdim=True)
    own_BME = view.latents[candidates.segments[:, 1:-1]]
    random_mids = bank.segments[random_entry][:, :, 1:-1]
    cosine = candidates.cosine[:, :pool].masked_fill(~valid_BP, 0).sum(1) / valid_BP.sum(1).clamp_min(1)
    oracle_m1 = queries.m1.gather(1, best_B)[:, 0].where(some_B, 0.0)
    sums = {
        "same_step_recall": same_BPM.any(1).float().mean(1),
        "any_step_recall": any_BPMM.any(2).any(1).float().mean(1),
        "endpoint_cosine": cosine,
        "endpoint_cosine_random": random_cosine.mean(1),
        "best_mid_cosine": _best_mid_cosine(own_BME, view.latents[mids_BPM], valid_BP).where(some_B, 0.0),
        "best_mid_cosine_random": _best_mid_cosine(own_BME, view.latents[random_mids], None),
        "oracle_m1": oracle_m1,
        "oracle_mseq": (oracle_m1 == 1).float(),
        "n_windows": torch.ones_like(cosine),
        N_WITH_POOL: some_B.float(),
    }
    return {name: float(value.double().sum()) for name, value in sums.items()}


def headroom_row(seed: int, horizon: int, pool: int, parts: Iterable[PoolSums]) -> Headroom:
    """Make a row of the sums of all parts of one horizon; a cosine is 0 where no window has a candidate."""
    total: PoolSums = defaultdict(float)
    for part in parts:
        for name, value in part.items():
            total[name] += value
    n_windows, n_with_pool = int(total.pop("n_windows")), total.pop(N_WITH_POOL)
    count = {name: max(1.0, n_with_pool) if name in POOL_COSINES else n_windows for name in total}
    means = {name: (100 if name in PERCENT else 1) * value / count[name] for name, value in total.items()}
    return Headroom.model_validate({"seed": seed, "horizon": horizon, "pool": pool, "n_windows": n_windows, **means})


def _best_mid_cosine(own_BME: Tensor, other_BPME: Tensor, valid_BP: Tensor | None) -> Tensor:
    """Return (B,): the highest mean cosine over the middle steps between a pool's trajectories and the true one."""
    cosine_BP = torch.einsum("bme,bpme->bp", own_BME, other_BPME) / own_BME.shape[1]
    if valid_BP is not None:
        cosine_BP = cosine_BP.masked_fill(~valid_BP, -1.0)
    return cosine_BP.amax(dim=1)


def mask_coverage(masks: ScenarioMasks, data: PlanningData) -> list[MaskCoverage]:
    """Count, for every horizon, the steps of the test windows whose true label the mask of their scenario allows."""
    rows_of_horizon = []
    for horizon, windows in data.windows.items():
        rows = (windows.split == SPLITS.index("test")).nonzero()[:, 0]
        if not len(rows):
            continue
        take_B = windows.take[rows]
        allowed_BH = masks.of_windows(take_B).gather(1, data.labels[windows.segments[rows]])
        rows_of_horizon.append(
            MaskCoverage(
                horizon=horizon,
                n_windows=len(rows),
                n_windows_unmasked=int((~masks.is_known[masks.of_take[take_B]]).sum()),
                n_steps=allowed_BH.numel(),
                n_allowed=int(allowed_BH.sum()),
                n_middle=allowed_BH[:, 1:-1].numel(),
                n_middle_allowed=int(allowed_BH[:, 1:-1].sum()),
            )
        )
    return rows_of_horizon


def shuffle_scores(view: ChainView, segments_NH: Tensor, seed: int, config: EvaluationConfig) -> list[ShuffleScore]:
    """Score every derangement of the middle trajectories of one horizon's (N, H) windows."""
    truth = truth_of(view.data, segments_NH)
    scores = []
    for shuffle in range(config.shuffles):
        plan = shuffled_plan(view, segments_NH, donors_of(segments_NH, config.seed, shuffle))
        take = view.data.segment_take[segments_NH[:, 0]]
        right_NM = view.readout.against(ends_of(plan), plan[:, None, 1:-1], truth, take).right[:, 0]
        m1, mseq = accuracies(right_NM)
        horizon, n_windows = segments_NH.shape[1], len(segments_NH)
        scores.append(ShuffleScore(seed=seed, shuffle=shuffle, horizon=horizon, m1=m1, mseq=mseq, n_windows=n_windows))
    return scores


def accuracies(right_NM: Tensor) -> tuple[float, float]:
    """Return M@1 and MSeq in percent of (N, M) bool, the middle steps that are right."""
    return 100 * float(right_NM.double().mean()), 100 * float(right_NM.all(1).double().mean())
