"""Figures next to the rows: upper bounds of the retrieved pool, scores of random choices, one per draw, and the choices
on dev for rows whose steps are decoded together: T and the weight of the moves, row by row, without test windows.

Axes: B windows of one horizon H, K candidates, M = H - 2 middle steps, E text space, P labels kept per step.
Source: paper, appendix on headroom; docs/decisions/paper-gaps.md (37, D 40), docs/decisions/scorer.md (both readings of
its cosine column); docs/decisions/planners.md; docs/decisions/methods.md.
"""

import itertools
from collections import defaultdict
from collections.abc import Iterable, Sequence

import torch
from torch import Tensor

from schemas.config import EvaluationConfig
from schemas.planners import PlannerName
from schemas.results import DecodingChoice, Headroom, SamplingScore, ShuffleScore
from schemas.training import JointDecodingConfig
from trajpilot_core.data.planning import SPLITS, PlanningData, WindowSet
from trajpilot_core.methods.batch import WindowBatch
from trajpilot_core.methods.planner_models import PlannerRows, planned
from trajpilot_core.methods.plans import donors_of, shuffled_plan
from trajpilot_core.methods.sequences import Knobs, Shortlist
from trajpilot_core.methods.viterbi import PLAIN, shortlist
from trajpilot_core.models.blocks import ends_of
from trajpilot_core.models.label_chain import kept_chain, kept_marginals, kept_moves
from trajpilot_core.retrieval.bank import Bank, ChainView, batches
from trajpilot_core.retrieval.candidates import Candidates, truth_of
from trajpilot_core.training.fit_planners import AT_ONCE
from trajpilot_core.training.scorer import Queries

SAMPLED: PlannerName = "pdpp"
"""The planner whose plans are samples."""
PoolSums = dict[str, float]
N_WITH_POOL = "n_with_pool"
"""Windows with a candidate, over which the means of POOL_COSINES are computed."""
POOL_COSINES = ("endpoint_cosine", "best_mid_cosine")
PERCENT = ("same_step_recall", "any_step_recall", "oracle_m1", "oracle_mseq")


def pool_sums(view: ChainView, bank: Bank, candidates: Candidates, queries: Queries, pool: int, seed: int) -> PoolSums:
    """Return sums over B windows of the quantities of `Headroom` for the first `pool` candidates.

    A window without a candidate counts as wrong in the shares and is ignored in the two cosines of the pool. The random
    pool is sampled from the bank of the windows' horizon with replacement, by `seed`.
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


def sampling_scores(planners: PlannerRows | None, data: PlanningData, segments_NH: Tensor) -> list[SamplingScore]:
    """Score every sampling of PDPP's plans of one horizon's (N, H) windows; none without PDPP."""
    if planners is None or SAMPLED not in planners.of_method:
        return []
    truth_NM = truth_of(data, segments_NH)
    scores, seed, horizon, n_windows = [], planners.seed, segments_NH.shape[1], len(segments_NH)
    for sampling in range(planners.tables.config.samplings):
        parts = batches(segments_NH, AT_ONCE)
        plans = [planned(planners, SAMPLED, data, part, sampling=sampling) for part in parts]
        decoded_NH = torch.cat([plan.decoded for plan in plans if plan is not None])
        m1, mseq = accuracies(decoded_NH[:, 1:-1] == truth_NM)
        score = SamplingScore(
            variant=SAMPLED, seed=seed, sampling=sampling, horizon=horizon, m1=m1, mseq=mseq, n_windows=n_windows
        )
        scores.append(score)
    return scores


def accuracies(right_NM: Tensor) -> tuple[float, float]:
    """Return M@1 and MSeq in percent of (N, M) bool, the middle steps that are right."""
    return 100 * float(right_NM.double().mean()), 100 * float(right_NM.all(1).double().mean())


LEAST = 1e-9
"""Probability of a true label that is not on the shortlist."""


def dev_rows(windows: WindowSet, most: int) -> Tensor:
    """Return long of shape (n,): at most `most` dev windows of a horizon, evenly spread over all takes."""
    rows = (windows.split == SPLITS.index("dev")).nonzero()[:, 0]
    n = min(most, len(rows))
    return rows[torch.arange(n, device=rows.device) * len(rows) // max(1, n)]


def grid_of(config: JointDecodingConfig, row: str) -> list[Knobs]:
    """Return the options of a row; the first is the default without dev windows."""
    is_vote = PLAIN[row].kind == "vote"
    temperatures = config.vote_temperatures if is_vote else config.cosine_temperatures
    middle = temperatures[len(temperatures) // 2]
    ordered = sorted(itertools.product(temperatures, config.weights), key=lambda pair: (pair[0] != middle, -pair[1]))
    return [Knobs(*pair) for pair in ordered]


def choose_knobs(
    batch: WindowBatch | None, config: JointDecodingConfig, seed: int, horizon: int
) -> list[DecodingChoice]:
    """Choose for every row by the likelihood of the true middle labels on dev.

    Without dev windows (`batch` is None) the choice is the middle of the grid and the full weight.
    """
    chosen = []
    for row in PLAIN:
        grid = grid_of(config, row)
        likelihood = [0.0] if batch is None else likelihoods(batch, shortlist(batch, row), grid)
        best = max(range(len(likelihood)), key=likelihood.__getitem__)
        n_windows = 0 if batch is None else len(batch.segments)
        choice = {**grid[best]._asdict(), "log_likelihood": round(likelihood[best], 6)}
        chosen.append(DecodingChoice(variant=row, seed=seed, horizon=horizon, n_windows=n_windows, **choice))
    return chosen


@torch.inference_mode()
def likelihoods(batch: WindowBatch, short: Shortlist, grid: Sequence[Knobs]) -> list[float]:
    """Return the mean log likelihood of the true middle labels under every pair of the grid."""
    truth_BM1 = batch.view.data.labels[batch.segments[:, 1:-1]][:, :, None]
    is_true_BMP = short.labels[:, 1:-1] == truth_BM1
    known, values = kept_moves(batch.joint().fitted.moves, short.labels), []
    for knobs in grid:
        kept = kept_chain(short.labels, short.scores / knobs.temperature, known, knobs.weight)
        posterior_BMP = kept_marginals(kept)[:, 1:-1]
        true_BM = torch.where(is_true_BMP, posterior_BMP, 0.0).sum(2)
        values.append(float(true_BM.clamp_min(LEAST).log().double().mean()))
    return values
